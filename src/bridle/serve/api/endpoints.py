"""The table of routes of the API, and how a row becomes a route.

To add a route, write a function and add a row to ROUTES: its body, query and reply are in the OpenAPI document.
"""

import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar, get_type_hints
from urllib.parse import unquote

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute
from starlette.types import Scope

from bridle.run.validate_input import check_session
from bridle.serve.body_limits import check_body_items
from bridle.serve.errors import ServeError
from bridle.serve.guarded_route import GuardedRoute
from bridle.serve.host import AgentHost
from bridle.serve.identity import Right, read_access
from bridle.serve.session_list import SessionList, is_running
from bridle.serve.streams.ag_ui import AgUiAdapter
from bridle.serve.streams.sse import EventAdapter, EventStream, StreamAdapter
from bridle.serve.streams.ui_messages import UiMessageAdapter

from . import chat, control, reading, reports
from . import types as t
from .call import ApiCall
from .openapi import make_openapi

ADAPTERS: dict[str, Callable[[str], StreamAdapter]] = {
    "events": lambda session: EventAdapter(),
    "ag-ui": AgUiAdapter,
    "ui-messages": UiMessageAdapter,
}
"""Makers of the adapter of a session, by the name of the stream format."""
SESSION_PATH = "/sessions/{session}"
"""Start of the routes about one session that exists; it is checked before their functions run."""
T = TypeVar("T", bound=msgspec.Struct)
_encode = msgspec.json.Encoder(decimal_format="string").encode


class ApiRoute:
    """One row of the API: what its function takes and returns is part of the document."""

    def __init__(
        self,
        method: str,
        path: str,
        handle: Callable[..., Awaitable[object]],
        right: Right,
        status: int = 200,
    ) -> None:
        self.method, self.path, self.handle, self.right, self.status = method, path, handle, right, status
        hints = get_type_hints(handle)
        self.summary = inspect.cleandoc(handle.__doc__ or "").partition("\n")[0].rstrip(".")
        self.body: type[msgspec.Struct] | None = hints.get("body")
        self.query: type[msgspec.Struct] | None = hints.get("query")
        self.reply = None if hints["return"] is Response else hints["return"]
        """Type of the reply; None for an event stream."""


async def open_stream(call: ApiCall, query: t.StreamQuery) -> Response:
    """Stream the events of a session, first from the log and then live."""
    host, session = call.host, call.session
    if host.feeds.viewers >= host.options.viewers_max:
        problem = f"the server has {host.options.viewers_max:,} open event streams and no more"
        raise ServeError(429, "too_many_viewers", problem, "", {"retry-after": "5"})
    last = call.request.headers.get("last-event-id", "")
    after = int(last) if last.isdecimal() and len(last) < 16 else max(query.after, 0)
    feed = None if call.access.sessions == "all" and query.tenant else host.feeds.find(check_session(session))
    if feed is None:
        records, _ = await reading.read_session(host, session, query.tenant)
    length = len(records) if feed is None else feed.last
    if last and after >= length and query.until == "end" and not await is_running(host, session):
        return Response(status_code=204)  # a browser does not reconnect after it
    if query.format not in ADAPTERS:
        problem = f"there is no stream format {query.format!r}"
        raise ServeError(400, "unknown_format", problem, f"choose one of: {', '.join(ADAPTERS)}")
    view = host.feeds.view(session, after, until_end=query.until == "end")
    return EventStream(view, ADAPTERS[query.format](session))


ROUTES: tuple[ApiRoute, ...] = (
    ApiRoute("GET", "/agents", reading.list_agents, "read"),
    ApiRoute("GET", "/sessions", reading.list_sessions, "read"),
    ApiRoute("POST", "/sessions", control.create_session, "prompt", 201),
    ApiRoute("GET", "/sessions/{session}", reading.read_detail, "read"),
    ApiRoute("POST", "/sessions/{session}/prompts", control.prompt_session, "prompt", 201),
    ApiRoute("GET", "/sessions/{session}/stream", open_stream, "read"),
    ApiRoute("GET", "/sessions/{session}/events", reading.read_events, "read"),
    ApiRoute("GET", "/sessions/{session}/messages", reading.read_messages, "read"),
    ApiRoute("POST", "/sessions/{session}/steer", control.steer, "prompt"),
    ApiRoute("POST", "/sessions/{session}/cancel", control.cancel, "prompt"),
    ApiRoute("POST", "/sessions/{session}/pause", control.pause, "prompt"),
    ApiRoute("POST", "/sessions/{session}/resume", control.resume, "prompt", 201),
    ApiRoute("POST", "/sessions/{session}/fork", control.fork, "prompt", 201),
    ApiRoute("GET", "/sessions/{session}/approvals", reading.read_approvals, "read"),
    ApiRoute("POST", "/sessions/{session}/approvals/{approval}", control.answer_approval, "approve"),
    ApiRoute("GET", "/sessions/{session}/cost", reports.read_cost, "read"),
    ApiRoute("GET", "/sessions/{session}/cache", reports.read_cache, "read"),
    ApiRoute("GET", "/sessions/{session}/calls", reports.list_calls, "read"),
    ApiRoute("GET", "/sessions/{session}/calls/{number}", reports.read_raw_call, "read"),
    ApiRoute("GET", "/sessions/{session}/replay", reports.read_replay, "read"),
    ApiRoute("GET", "/sessions/{session}/audit", reports.read_audit, "read"),
    ApiRoute("GET", "/sessions/{session}/branches", reports.read_branches, "read"),
    ApiRoute("GET", "/sessions/{session}/compare", reports.read_comparison, "read"),
    ApiRoute("POST", "/chat/{agent}", chat.stream_ui_messages, "prompt"),
    ApiRoute("GET", "/chat/{agent}/{session}/stream", chat.continue_ui_messages, "read"),
    ApiRoute("POST", "/ag-ui/{agent}", chat.stream_ag_ui, "prompt"),
)


def make_api_routes(host: AgentHost) -> Sequence[BaseRoute]:
    sessions = SessionList(host)
    document = msgspec.json.encode(make_openapi(ROUTES))

    async def openapi(request: Request) -> Response:
        return Response(document, media_type="application/json")

    made = [GuardedRoute("/api/openapi.json", openapi, right="read")]
    for row in ROUTES:
        endpoint = _make_endpoint(row, host, sessions)
        made.append(_EncodedRoute(f"/api{row.path}", endpoint, right=row.right, methods=[row.method]))
    return made


def _make_endpoint(
    row: ApiRoute, host: AgentHost, sessions: SessionList
) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        given: dict[str, object] = {}
        access = read_access(request.scope)
        if row.query is not None:
            query = msgspec.convert(dict(request.query_params), row.query, strict=False)
            given["query"] = access.narrow_query(query)
        if row.body is not None:
            given["body"] = access.narrow(_decode_body(await request.body() or b"{}", row.body))
        path = {name: unquote(value) for name, value in request.path_params.items()}
        # guard: session-of-identity
        if row.path.startswith(SESSION_PATH):
            await access.check_session(host.store, check_session(path["session"]))
        reply = await row.handle(ApiCall(host, sessions, path, request, access), **given)
        if isinstance(reply, Response):
            return reply
        return Response(_encode(reply), row.status, media_type="application/json")

    return answer


def _decode_body(body: bytes, type_: type[T]) -> T:
    check_body_items(body)
    try:
        return msgspec.json.decode(body, type=type_)
    except RecursionError:
        raise ServeError(400, "invalid_request", "the request is nested too deeply") from None


class _EncodedRoute(GuardedRoute):
    """A route whose parameters may contain an encoded slash: it matches the path before it is decoded."""

    def matches(self, scope: Scope) -> Any:
        raw = scope.get("raw_path")
        if scope["type"] == "http" and raw:
            scope = {**scope, "path": raw.partition(b"?")[0].decode("ascii", "replace")}
        return super().matches(scope)
