"""Serves agents as the tools of an MCP server: over standard input and output, or over HTTP at `/mcp`.

Every agent is a tool of its name that takes a prompt, and optionally the session to continue. A call is a run of the
agent: its steps are reported as progress, and a cancelled call ends the run. Needs the extra `bridle[mcp]`.
"""

import asyncio
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from mcp import types
from mcp.server import Server, ServerRequestContext
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http_manager import StreamableHTTPASGIApp, StreamableHTTPSessionManager
from starlette.requests import Request
from starlette.routing import BaseRoute
from starlette.types import Message, Receive, Scope, Send

from bridle import __version__
from bridle.run.context.resources import StoreLike
from bridle.run.stream import RunHandle
from bridle.values.errors import BridleError, MisuseError
from bridle.values.events import ModelAsked, ToolStarted
from bridle.values.result import FinalAnswer, Result
from bridle.values.text import escape_text

from .body_limits import check_body_items
from .errors import ServeError
from .guarded_route import GuardedRoute
from .host import AgentHost, AnyAgent
from .identity import HOLDER, Access, read_access
from .options import ServeOptions
from .wires.streaming import end_run

SERVER_NAME = "bridle"
DESCRIPTION = "Ask the agent {name!r}. Returns its answer and the session; pass the session to continue it."
NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]")
INPUT_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "prompt": {"type": "string", "description": "What the agent is asked."},
        "session": {"type": "string", "description": "Session of an earlier answer, to continue it."},
    },
    "required": ["prompt"],
    "additionalProperties": False,
}
ANSWERED_STOPS = ("done", "waiting")
STREAMS_MAX = 100
"""Streams of events that clients may hold open at once (`GET /mcp`)."""


class AgentTools:
    """The tools of an MCP server: one for each agent of a host."""

    def __init__(self, host: AgentHost) -> None:
        self._host = host
        self._names = _name_tools(host.agents)
        self.server: Server[Any] = Server(
            SERVER_NAME, version=__version__, on_list_tools=self._list_tools, on_call_tool=self._call_tool
        )

    async def _list_tools(
        self, context: ServerRequestContext[Any], params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        tools = [
            types.Tool(name=tool, description=DESCRIPTION.format(name=name), input_schema=INPUT_SCHEMA)
            for tool, name in self._names.items()
        ]
        return types.ListToolsResult(tools=tools)

    async def _call_tool(
        self, context: ServerRequestContext[Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        name, arguments = self._names.get(params.name), params.arguments or {}
        prompt, session = arguments.get("prompt"), arguments.get("session") or None
        if name is None:
            return _describe_problem(
                f"there is no agent {params.name!r}; there are: {', '.join(self._names)}"
            )
        if not isinstance(prompt, str) or not isinstance(session, str | None):
            return _describe_problem("prompt and session must be texts")
        try:
            agent = self._host.find_agent(name)
            access = _read_access(context)
            stream = agent.stream(
                prompt,
                session,
                new=await access.find_new(self._host.store, session),
                caller=access.caller,
                tenant=access.tenant,
                context=await self._host.find_context(access, access.owner),
            )
            run = self._host.runs.open(name, stream).handle
            return _describe_result(await self._follow(context, run))
        except (BridleError, ServeError) as error:
            return _describe_problem(str(error))

    async def _follow(self, context: ServerRequestContext[Any], run: "RunHandle[Any]") -> Result[Any]:
        """The result of the run; its steps are reported on the way."""
        steps = 0
        try:
            async for item in run.view(0):
                match item:
                    case FinalAnswer(result=result):
                        return result
                    case ModelAsked(step=step):
                        steps = step
                        await context.session.report_progress(float(steps), message=f"step {step}")
                    case ToolStarted(name=tool):
                        await context.session.report_progress(
                            float(steps), message=escape_text(f"calls {tool}")
                        )
            return await run.result()
        finally:
            if not run.done:
                await end_run(run)


def _read_access(context: ServerRequestContext[Any]) -> Access:
    """What the request may do; everything for a program on standard input, which started this one."""
    return HOLDER if context.request is None else read_access(context.request.scope)


def _describe_result(result: Result[Any]) -> types.CallToolResult:
    is_answered = result.stop in ANSWERED_STOPS
    why = "" if result.stop == "done" else f"{result.stop}: {result.reason}"
    told = "\n\n".join(filter(None, (result.text, why)))
    facts = {"session": result.session, "stop": result.stop, "text": result.text, "reason": result.reason}
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=f"{told}\n\n[session {result.session}]")],
        structured_content=facts,
        is_error=not is_answered,
    )


def _describe_problem(problem: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(type="text", text=problem)], is_error=True)


def serve_agents(agents: Mapping[str, AnyAgent], store: StoreLike, options: ServeOptions) -> None:
    """Serve agents to the program that started this one; raises `MisuseError` without agents."""
    if not agents:
        raise MisuseError("an MCP server needs agents: bridle serve FILE.py --mcp")

    async def serve() -> None:
        await serve_stdio(AgentHost(agents, store=store, options=options))

    asyncio.run(serve())


def _name_tools(agents: Iterable[str]) -> dict[str, str]:
    """The agents by the names of their tools; raises `MisuseError` if two would have one name."""
    names: dict[str, str] = {}
    for agent in agents:
        tool = NOT_IN_NAMES.sub("_", agent)
        if tool in names:
            raise MisuseError(
                f"the agents {names[tool]!r} and {agent!r} would both be the MCP tool {tool!r}; rename one"
            )
        names[tool] = agent
    return names


async def serve_stdio(host: AgentHost) -> None:
    """Serve the agents over standard input and output until the client closes them."""
    server = AgentTools(host).server
    await host.start()
    try:
        async with stdio_server() as (received, sent):
            await server.run(received, sent, server.create_initialization_options())
    finally:
        await host.stop()


class McpEndpoint:
    """The HTTP transport, started by the first request and closed with the host."""

    def __init__(self, host: AgentHost) -> None:
        self._manager = StreamableHTTPSessionManager(AgentTools(host).server, stateless=True)
        self._app = StreamableHTTPASGIApp(self._manager)
        self._running: asyncio.Task[None] | None = None
        self._ready, self._stopped = asyncio.Event(), asyncio.Event()
        self._streams = 0
        """Open streams of GET requests, which last as long as their clients."""
        host.closers.append(self.close)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._running is None:
            self._running = asyncio.create_task(self._run())
        await self._ready.wait()
        if scope["method"] != "GET":
            # guard: mcp-body-count
            receive = await _check_body(scope, receive)
            await self._app(scope, receive, send)
            return
        # guard: mcp-stream-limit
        if self._streams >= STREAMS_MAX:
            raise ServeError(
                503,
                "too_many_streams",
                f"the server has {STREAMS_MAX} open streams of MCP clients",
                "",
                {"retry-after": "5"},
            )
        self._streams += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._streams -= 1

    async def _run(self) -> None:
        async with self._manager.run():
            self._ready.set()
            await self._stopped.wait()

    async def close(self) -> None:
        if self._running is not None:
            self._stopped.set()
            with suppress(asyncio.CancelledError):
                await self._running


async def _check_body(scope: Scope, receive: Receive) -> Receive:
    """Count the items of the body before the SDK reads it on the event loop; the body is handed out again."""
    body = await Request(scope, receive).body()
    check_body_items(body)
    replayed: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return replayed.pop() if replayed else await receive()

    return replay


def make_mcp_routes(host: AgentHost) -> Sequence[BaseRoute]:
    return [GuardedRoute("/mcp", McpEndpoint(host), right="prompt", methods=["GET", "POST", "DELETE"])]
