"""The routes of a server and the right that each needs, from its table of mounts, for docs/reference/routes.md."""

import asyncio
import logging
import re
from collections.abc import Iterator

from starlette.requests import Request
from starlette.types import ASGIApp, Message

from bridle import Agent
from bridle.serve import Identity, ServeOptions, router
from bridle.serve.guarded_route import GuardedRoute
from bridle.serve.identity import RIGHTS, Identify
from bridle.stores.memory import MemoryStore

METHODS_UNLISTED = ("HEAD", "OPTIONS")
"""They are those of GET."""
IN_PATHS = {"{agent}": "shop", "{name}": "app.js"}
REFUSED = (401, 403)


def fail(request: Request) -> Identity | None:
    raise ConnectionError("the directory of people is down")


def find_nobody(request: Request) -> Identity | None:
    return None


TRUSTING = "`trusts_callers`"
OUTSIDE: dict[str, tuple[Identify | None, ServeOptions | None]] = {
    "no `identify`": (None, None),
    "it raises": (fail, None),
    "it returns `None`": (find_nobody, None),
    TRUSTING: (None, ServeOptions(trusts_callers=True)),
}
"""Routers that cannot tell who sends a request, by the title of their column."""


def make_router(identify: Identify | None = None, options: ServeOptions | None = None) -> ASGIApp:
    agent = Agent("sim:", name="shop", store=MemoryStore())
    return router(agent, identify=identify, options=options)


def list_routes() -> list[GuardedRoute]:
    made = router(Agent("sim:", name="shop", store=MemoryStore()))
    return [route for route in made.routes if isinstance(route, GuardedRoute)]


async def ask(app: ASGIApp, method: str, route: GuardedRoute) -> int:
    """The status of a request without credentials; a session in its path does not exist."""
    path = re.sub(r"\{[^}]+\}", lambda found: IN_PATHS.get(found[0], "x"), route.path)
    scope = {
        "type": "http", "method": method, "path": path, "raw_path": path.encode(), "query_string": b"",
        "headers": [(b"host", b"localhost"), (b"content-type", b"application/json"), (b"content-length", b"2")],
        "scheme": "http", "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80),
    }  # fmt: skip
    found: list[int] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": b"{}", "more_body": False}

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            found.append(message["status"])

    await app(scope, receive, send)
    return found[0]


async def ask_routers(route: GuardedRoute, method: str) -> list[str]:
    """What each router without an identity answers: the status of a refusal, or `yes` if the route is reached."""
    cells = []
    for title, (identify, options) in OUTSIDE.items():
        # An open stream would not end; that route has the right of the others on its path.
        asked = "POST" if (route.path, method, title) == ("/mcp", "GET", TRUSTING) else method
        status = await ask(make_router(identify, options), asked, route)
        cells.append(str(status) if status in REFUSED else "yes")
    return cells


def list_rows() -> Iterator[list[str]]:
    for route in list_routes():
        methods = sorted({*(route.methods or ())} - {*METHODS_UNLISTED})
        outside = [asyncio.run(ask_routers(route, method)) for method in methods]
        is_public = route.right == "public"
        marks = ["yes" if is_public or route.right == right else "" for right in RIGHTS]
        joined = [", ".join(dict.fromkeys(cells)) for cells in zip(*outside, strict=True)]
        yield [f"`{route.path}`", ", ".join(methods), *joined, *marks]


def routes() -> str:
    """Every route, and who may use it: a request that proves nothing, or one with a right."""
    logging.getLogger("bridle").setLevel(logging.CRITICAL)  # it says that `identify` failed, as it should
    head = ["route", "method", *OUTSIDE, *(f"`{right}`" for right in RIGHTS)]
    rows = [head, ["---"] * len(head), *list_rows()]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)
