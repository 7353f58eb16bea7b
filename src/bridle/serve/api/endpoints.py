"""The table of routes of the API, and how a row becomes a route.

To add a route, write a function and add a row to ROUTES: its body, query and reply are in the OpenAPI document.
"""

import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, get_type_hints
from urllib.parse import unquote

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import Scope

from bridle.run.validate_input import check_session
from bridle.serve.body_limits import check_body_items
from bridle.serve.errors import ServeError
from bridle.serve.host import AgentHost
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
_encode = msgspec.json.Encoder(decimal_format="string").encode


class ApiRoute:
    """One row of the API: what its function takes and returns is part of the document."""

    def __init__(
        self, method: str, path: str, handle: Callable[..., Awaitable[object]], status: int = 200
    ) -> None:
        self.method, self.path, self.handle, self.status = method, path, handle, status
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
    feed = None if query.tenant else host.feeds.find(check_session(session))
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
    ApiRoute("GET", "/agents", reading.list_agents),
    ApiRoute("GET", "/sessions", reading.list_sessions),
    ApiRoute("POST", "/sessions", control.create_session, 201),
    ApiRoute("GET", "/sessions/{session}", reading.read_detail),
    ApiRoute("POST", "/sessions/{session}/prompts", control.prompt_session, 201),
    ApiRoute("GET", "/sessions/{session}/stream", open_stream),
    ApiRoute("GET", "/sessions/{session}/events", reading.read_events),
    ApiRoute("GET", "/sessions/{session}/messages", reading.read_messages),
    ApiRoute("POST", "/sessions/{session}/steer", control.steer),
    ApiRoute("POST", "/sessions/{session}/cancel", control.cancel),
    ApiRoute("POST", "/sessions/{session}/pause", control.pause),
    ApiRoute("POST", "/sessions/{session}/resume", control.resume, 201),
    ApiRoute("POST", "/sessions/{session}/fork", control.fork, 201),
    ApiRoute("GET", "/sessions/{session}/approvals", reading.read_approvals),
    ApiRoute("POST", "/sessions/{session}/approvals/{approval}", control.answer_approval),
    ApiRoute("GET", "/sessions/{session}/cost", reports.read_cost),
    ApiRoute("GET", "/sessions/{session}/cache", reports.read_cache),
    ApiRoute("GET", "/sessions/{session}/calls", reports.list_calls),
    ApiRoute("GET", "/sessions/{session}/calls/{number}", reports.read_raw_call),
    ApiRoute("GET", "/sessions/{session}/replay", reports.read_replay),
    ApiRoute("GET", "/sessions/{session}/audit", reports.read_audit),
    ApiRoute("GET", "/sessions/{session}/branches", reports.read_branches),
    ApiRoute("GET", "/sessions/{session}/compare", reports.read_comparison),
    ApiRoute("POST", "/chat/{agent}", chat.stream_ui_messages),
    ApiRoute("GET", "/chat/{agent}/{session}/stream", chat.continue_ui_messages),
    ApiRoute("POST", "/ag-ui/{agent}", chat.stream_ag_ui),
)


def make_api_routes(host: AgentHost) -> Sequence[BaseRoute]:
    sessions = SessionList(host)
    document = msgspec.json.encode(make_openapi(ROUTES))

    async def openapi(request: Request) -> Response:
        return Response(document, media_type="application/json")

    made = [Route("/api/openapi.json", openapi)]
    for row in ROUTES:
        endpoint = _make_endpoint(row, host, sessions)
        made.append(_EncodedRoute(f"/api{row.path}", endpoint, methods=[row.method]))
    return made


def _make_endpoint(
    row: ApiRoute, host: AgentHost, sessions: SessionList
) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        given: dict[str, object] = {}
        if row.query is not None:
            given["query"] = msgspec.convert(dict(request.query_params), row.query, strict=False)
        if row.body is not None:
            given["body"] = _decode_body(await request.body() or b"{}", row.body)
        path = {name: unquote(value) for name, value in request.path_params.items()}
        reply = await row.handle(ApiCall(host, sessions, path, request), **given)
        if isinstance(reply, Response):
            return reply
        return Response(_encode(reply), row.status, media_type="application/json")

    return answer


def _decode_body(body: bytes, type_: type[object]) -> object:
    check_body_items(body)
    try:
        return msgspec.json.decode(body, type=type_)
    except RecursionError:
        raise ServeError(400, "invalid_request", "the request is nested too deeply") from None


class _EncodedRoute(Route):
    """A route whose parameters may contain an encoded slash: it matches the path before it is decoded."""

    def matches(self, scope: Scope) -> Any:
        raw = scope.get("raw_path")
        if scope["type"] == "http" and raw:
            scope = {**scope, "path": raw.partition(b"?")[0].decode("ascii", "replace")}
        return super().matches(scope)
