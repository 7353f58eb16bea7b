"""A FastAPI service with a page that streams an agent's answers, shows approvals, and cancels.

    pip install 'bridle[examples]'
    python examples/service/service.py                     # then open http://127.0.0.1:8000

The agents' API is mounted at /agents; everything else is an ordinary FastAPI application.
"""

import argparse
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import uvicorn
from fastapi import FastAPI
from fastapi.responses import FileResponse

import bridle.serve
from bridle import Agent
from bridle.serve import ServeOptions
from shop_agents import shop

FOLDER = Path(__file__).parent
HEADERS = {
    "content-security-policy": "default-src 'self'; img-src data:; frame-ancestors 'none'",
    "cache-control": "no-store",
}


def make_app(agent: Agent[object, str] = shop, store: str = "service.db") -> FastAPI:
    """Build the application. `ServeOptions()` checks Host and Origin, so that pages of other sites cannot use it."""
    agents = bridle.serve.router({"shop": agent}, store=store, options=ServeOptions())

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with agents.router.lifespan_context(
            agents
        ):  # resumes runs of a killed process, and ends them well
            yield

    app = FastAPI(title="Bicycle shop", lifespan=lifespan)
    app.mount("/agents", agents)

    @app.get("/", include_in_schema=False)
    def page() -> FileResponse:
        return FileResponse(FOLDER / "page.html", headers=HEADERS)

    @app.get("/page.js", include_in_schema=False)
    def script() -> FileResponse:
        return FileResponse(FOLDER / "page.js", headers=HEADERS)

    @app.get("/page.css", include_in_schema=False)
    def style() -> FileResponse:
        return FileResponse(FOLDER / "page.css", headers=HEADERS)

    return app


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--store", default=os.environ.get("BRIDLE_STORE", "service.db"), help="the log")
    given = parser.parse_args()
    uvicorn.run(make_app(store=given.store), host="127.0.0.1", port=given.port)


if __name__ == "__main__":
    main()
