"""An MCP server over HTTP: `python http_server.py (http|sse|json) PORT`; prints "up" once it listens on the port.

Its tool `die` ends the process during the call, `header` returns the Authorization header of its request.
"""

import itertools
import os
import sys
from typing import Annotated

import uvicorn
from mcp.server.mcpserver import Context, Elicit, MCPServer, Resolve
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import PlainTextResponse, StreamingResponse

app = MCPServer("http")


@app.tool()
def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


@app.tool()
def die() -> str:
    """Ends the server."""
    os._exit(3)


@app.tool()
def header(context: Context) -> str:
    """The header of the request."""
    request = context.request_context.request
    return request.headers.get("authorization", "none") if isinstance(request, Request) else "none"


@app.tool()
async def long(size: int, context: Context) -> str:
    """A long text, after progress: a server that has more to send than the result sends events."""
    await context.report_progress(1, 2)
    return "x" * size


class Title(BaseModel):
    title: str


def ask_title() -> Elicit[Title]:
    return Elicit("Which title?", Title)


@app.tool()
def keep(text: str, chosen: Annotated[Title, Resolve(ask_title)]) -> str:
    """Keeps a text under a title that a person chooses."""
    return f"{chosen.title}: {text}"


def main():
    kind, port = sys.argv[1], int(sys.argv[2])
    made = app.sse_app() if kind == "sse" else app.streamable_http_app(json_response=kind == "json")

    async def refuse(request):
        return PlainTextResponse("no", status_code=401)

    async def answer_without_end(request):
        return StreamingResponse(itertools.repeat(" " * 10_000), media_type="application/json")

    made.add_route("/endless", answer_without_end, methods=["GET", "POST"])
    made.add_route("/closed", refuse, methods=["GET", "POST"])

    class Announcing(uvicorn.Server):
        async def startup(self, sockets=None):
            await super().startup(sockets)
            print("up", self.servers[0].sockets[0].getsockname()[1], flush=True)

    Announcing(uvicorn.Config(made, host="127.0.0.1", port=port, log_level="error")).run()


main()
