"""Routes of the wires: replies, lists of models, counts of tokens.

A client that disconnects ends its run. Errors have the form and the status of the wire (`render_wire_error`).
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import quote, unquote
from weakref import WeakKeyDictionary

import msgspec
from msgspec.structs import replace
from starlette.requests import Request as HttpRequestIn
from starlette.responses import Response
from starlette.routing import BaseRoute

from bridle.core.context.token_estimate import (
    MESSAGE_TOKENS,
    estimate_part_tokens,
    estimate_text_tokens,
    estimate_tool_tokens,
)
from bridle.ports.codec import HttpReply, HttpRequest
from bridle.ports.served_wire import ClientTool, ServedWire, WireAction
from bridle.providers.families import list_served_wires, load_codec, load_served_wire
from bridle.run.agent import Agent
from bridle.run.stream import RunHandle
from bridle.serve.body_limits import check_body_items
from bridle.serve.errors import ServeError, describe_error
from bridle.serve.guarded_route import GuardedRoute
from bridle.serve.host import AgentHost
from bridle.serve.identity import WIRE_CALLER, Right, read_access
from bridle.values.errors import BridleError, Conflict, Failure, FailureKind, MisuseError, ProviderError
from bridle.values.message import Message, Opaque, Text
from bridle.values.request import Request

from .client_members import list_members, mark_client_parts
from .conversation import take_leading_system
from .options import ClientOptions, ClientRequest, read_options
from .reply import ReplyCollector, describe_taken_over, use_words_of_wire
from .sessions import SESSION_HEADER, SessionIndex, SessionPlace, make_reply_id
from .streaming import PieceReader, StreamedReply, end_run, unless_gone
from .turn import ANSWERED_STOPS, ClientRun, NamedPlace, TurnOpener, WireCaller

DROPPED_HEADER = "x-bridle-dropped"
# not from outside: our own text, shown to a person or a model
HEADER_CHARACTERS_MAX = 2_000
OPENING_SECONDS = 1.0
"""Time for a model to begin, or to fail; then a stream begins without it."""
LOST_THREAD = "No usable thread state was found for previous_message_id {id}."
# No row for 404: in the words of a wire, `not_found` is a model.
STATUS_KINDS: dict[int, FailureKind] = {
    401: "unauthorized",
    403: "unauthorized",
    408: "timeout",
    413: "too_large",
    429: "rate_limited",
    500: "server",
    503: "overloaded",
    504: "timeout",
}


class ServedModel(NamedTuple):
    """An agent as clients of a wire see it."""

    name: str
    agent: Agent[Any, Any]
    carries_all: bool = False
    """True for an agent that only forwards: everything in a request applies."""
    is_strict: bool = False
    """Refuse a request of which something cannot be carried."""


class WireServer:
    """The models and conversations behind all wires of a server."""

    def __init__(self, host: AgentHost) -> None:
        self.host, self.index = host, SessionIndex(host.store)

    def list_models(self, caller: WireCaller) -> tuple[str, ...]:
        return tuple(self.host.agents)

    def list_losses(self, model: ServedModel, request: Request, options: ClientOptions) -> tuple[str, ...]:
        """List what would not reach the model as the client sent it, one sentence each; strict mode only."""
        return ()

    def find_model(self, name: str, caller: WireCaller) -> ServedModel:
        """The model of this name; the only one whatever its name, because clients have names of their own."""
        agents = self.host.agents
        found = name if name in agents else next(iter(agents)) if len(agents) == 1 else ""
        if not found:
            raise ProviderError(
                Failure(
                    kind="not_found",
                    message=f"The model `{name}` does not exist here; there are: {', '.join(agents)}",
                    status=404,
                )
            )
        return ServedModel(found, agents[found])

    def identify(self, request: HttpRequestIn) -> WireCaller:
        """The user behind a request, which the server has let in."""
        access = read_access(request.scope)
        return WireCaller(access.caller or WIRE_CALLER, access.tenant, access=access)


def make_wire_routes(host: AgentHost, mount: str, server: WireServer | None = None) -> Sequence[BaseRoute]:
    """The routes of the wires below a mount."""
    wires = server or find_server(host)
    return [
        GuardedRoute(
            wire.mount + route.path,
            partial(guard_request, wire, partial(ACTIONS[route.action], wires, wire)),
            right=ACTION_RIGHTS[route.action],
            methods=[route.method],
        )
        for wire in map(load_served_wire, list_served_wires())
        if wire.mount == mount
        for route in wire.routes
    ]


def list_wire_mounts() -> tuple[str, ...]:
    """The mounts of all wires."""
    return tuple(dict.fromkeys(load_served_wire(family).mount for family in list_served_wires()))


def find_server(host: AgentHost) -> WireServer:
    """The one server of the wires of a host: a session that began on one wire may continue on another."""
    return _SERVERS.setdefault(host, WireServer(host))


async def guard_request(
    wire: ServedWire, handle: Callable[[HttpRequestIn], Awaitable[Response]], request: HttpRequestIn
) -> Response:
    try:
        return await handle(request)
    except ProviderError as error:
        return _render(wire.encode_failure(use_words_of_wire(wire, error.failure)))
    except (BridleError, ServeError, msgspec.MsgspecError) as error:
        return render_wire_error(wire.mount, describe_error(error))


def render_wire_error(mount: str, error: ServeError) -> Response:
    """An error of the server in the form of the first wire of a mount."""
    wire = next(each for each in map(load_served_wire, list_served_wires()) if each.mount == mount)
    kind = STATUS_KINDS.get(error.status, "invalid" if error.status < 500 else "server")
    hint = f" ({error.detail.hint})" if error.detail.hint else ""
    failure = Failure(kind=kind, message=f"{error.detail.message}{hint}", status=error.status)
    response = _render(wire.encode_failure(failure))
    response.headers.update(error.headers)
    return response


def _render(reply: HttpReply) -> Response:
    response = Response(b"".join(reply.frames), reply.status)
    response.headers.update(dict(reply.headers))
    return response


async def _read_request(wire: ServedWire, request: HttpRequestIn) -> HttpRequest:
    path = request.url.path.removeprefix(request.scope.get("root_path", "")).removeprefix(wire.mount)
    body = await request.body()
    check_body_items(body)
    return HttpRequest(path=path, body=body, headers=tuple(request.headers.items()))


async def answer_request(wires: WireServer, wire: ServedWire, request: HttpRequestIn) -> Response:
    """Run the agent and reply, whole or as a stream."""
    raw = await _read_request(wire, request)
    asked = _add_headers(wire, load_codec(wire.family).decode_request(raw), raw)
    received, tools = wire.take_tools(asked)
    caller = wires.identify(request)
    model = wires.find_model(received.model.id, caller)
    if not (model.carries_all and model.agent.settings.model.endpoint.family == wire.family):
        received = wire.read_output(received)
    decoded, options = _read_client(wire, model, asked, take_leading_system(received), tools, raw)
    if model.is_strict:
        lost = (*options.dropped, *options.elsewhere) or wires.list_losses(model, decoded, options)
        if lost:
            raise MisuseError(f"strict mode: this request cannot be carried as it is: {'; '.join(lost)}")
    host = wires.host
    opener = TurnOpener(
        model.name,
        model.agent,
        wires.index,
        host.find_context,
        host.runs.__contains__,
        forwards=model.carries_all,
    )
    named = read_place(unquote(request.headers.get(SESSION_HEADER, "")), decoded)
    for is_in_use in (False, True):
        async with opener.open(decoded, options, caller, named, is_in_use=is_in_use) as turn:
            run = host.runs.open(model.name, turn.stream)
        try:
            repeated = _list_repeated(wire, raw, model.agent.clock.now())
            return await _WireRun(wires, wire, decoded, options, turn, run.handle, request, repeated).answer()
        except Conflict as error:  # a run of another server: from the same point, this is a fork
            if run.after is not None:  # this run has recorded, and its tools may have run
                raise ProviderError(describe_taken_over(error)) from error
            if is_in_use:
                raise
    raise AssertionError("the second attempt returns or raises")


def _add_headers(wire: ServedWire, asked: Request, raw: HttpRequest) -> Request:
    """The request with the fields that are headers on its wire."""
    try:
        added = wire.read_headers(raw)
    except ValueError as error:
        raise ProviderError(Failure(kind="invalid", message=str(error), status=400)) from None
    names = {extra.name for extra in added}
    if twice := next((extra.name for extra in asked.extras if extra.name in names), ""):
        message = f"'{twice}' is given twice: as a header and in the body."
        raise ProviderError(Failure(kind="invalid", message=message, status=400))
    return replace(asked, extras=(*asked.extras, *added)) if added else asked


def _read_client(
    wire: ServedWire,
    model: ServedModel,
    asked: Request,
    decoded: Request,
    tools: Sequence[ClientTool],
    raw: HttpRequest,
) -> tuple[Request, ClientOptions]:
    """The request as it is carried, and its options; `decoded` is what is left of `asked` without its tools."""
    settings = model.agent.settings
    fields: dict[str, msgspec.Raw] = msgspec.json.decode(raw.body, type=dict[str, msgspec.Raw])
    written = {name: bytes(value) for name, value in fields.items()}
    try:
        is_hooked = "before_model" in settings.hook_points
        marked = mark_client_parts(decoded, wire.family, settings.model, is_hooked=is_hooked)
        left = list_members(marked.messages)
        withheld = tuple(name for name in list_members(decoded.messages) if name not in left)
        given = (asked.messages, decoded.messages, decoded.system)
        client = ClientRequest(
            wire.family,
            marked,
            tools,
            written,
            wire.cache_mark,
            withheld,
            bool(asked.breakpoints),
            _list_declarations(*given),
        )
        options = read_options(model.agent, client, carries_all=model.carries_all, is_strict=model.is_strict)
        return marked, options
    except ValueError as error:
        raise ProviderError(Failure(kind="invalid", message=f"The request: {error}", status=400)) from None


def _list_declarations(
    asked: Sequence[Message], left: Sequence[Message], system: Sequence[Text]
) -> tuple[str, ...]:
    """Names of parts that were taken out of a conversation because they only declare tools."""
    kept = {id(part) for message in left for part in message.parts} | {id(text) for text in system}
    parts = (part for message in asked for part in message.parts if id(part) not in kept)
    return tuple(dict.fromkeys(f"part {part.kind}" for part in parts if isinstance(part, Opaque)))


def read_place(session: str, request: Request) -> NamedPlace:
    """The place that a request names: by its session, by the response before it, or by a thread of Anthropic.

    A thread keeps the system prompt and the tools of the request that created it.
    """
    if isinstance(previous := _read_extra(request, "previous_response_id"), str):
        return NamedPlace(session, previous)
    thread = _read_extra(request, "thread")
    if isinstance(thread, dict) and isinstance(message := thread.get("previous_message_id"), str):
        kept = frozenset({"tools", "instructions"})
        return NamedPlace(session, message, kept, "thread_not_found", LOST_THREAD)
    return NamedPlace(session)


def _read_extra(request: Request, name: str) -> object:
    found = next((extra.json for extra in request.extras if extra.name == name), "null")
    value: object = msgspec.json.decode(found)
    return value


def _list_repeated(wire: ServedWire, raw: HttpRequest, now: float) -> dict[str, object]:
    """Members of every response to a request: the time, and the fields that its wire repeats."""
    found: dict[str, object] = {wire.created_field: int(now)} if wire.created_field else {}
    if wire.repeated_fields:
        given: dict[str, object] = msgspec.json.decode(raw.body)
        found |= {name: given[name] for name in wire.repeated_fields if given.get(name) is not None}
    return found


class _WireRun:
    """One request being answered."""

    def __init__(
        self,
        wires: WireServer,
        wire: ServedWire,
        request: Request,
        options: ClientOptions,
        turn: ClientRun,
        run: "RunHandle[Any]",
        incoming: HttpRequestIn,
        repeated: Mapping[str, object],
    ) -> None:
        self._repeated = repeated
        self._wires, self._wire, self._request, self._turn, self._run = wires, wire, request, turn, run
        self._incoming, self._identity = incoming, make_reply_id(wire.id_prefix, run.session, turn.number)
        dropped = (*options.dropped, *options.replaced, *turn.notes)
        writer = wire.make_stream(self._identity, request, incoming.query_params, repeated)
        self._opening = writer.open() if request.stream else b""
        self._collector = ReplyCollector(writer, request, options._replace(dropped=dropped), run.session)
        self._pieces = PieceReader(self._collector.write(run.view(None), turn.replies, turn.partial))

    async def answer(self) -> Response:
        run = self._run
        try:
            first = await unless_gone(self._incoming, self._read_first())
        except BaseException:
            self._pieces.close()
            await end_run(run)
            raise
        failure = self._collector.failure
        in_stream = self._wire.streamed_failures if self._request.stream else ()
        if failure is not None and failure.kind not in in_stream:
            self._remember_failed()
            response = _render(self._wire.encode_failure(use_words_of_wire(self._wire, failure)))
        elif self._request.stream:
            response = StreamedReply(self._stream(first), run)
            response.headers["content-type"] = self._collector.writer.content_type
        else:
            response = self._render_whole()
        response.headers[SESSION_HEADER] = quote(run.session, safe="-_.:@")
        if self._collector.dropped:
            response.headers[DROPPED_HEADER] = _make_header("; ".join(self._collector.dropped))
        return response

    async def _read_first(self) -> bytes:
        """The first piece of a stream; all of it for a whole reply.

        A stream begins as soon as the model does, and after a moment in any case; a failure before has its status.
        """
        if self._request.stream:
            try:
                return await self._pieces.read(OPENING_SECONDS) or b""
            except TimeoutError:
                return b""
        while await self._pieces.read() is not None:
            pass
        return b""

    async def _stream(self, first: bytes) -> AsyncIterator[bytes]:
        writer = self._collector.writer
        try:
            yield self._opening + first
            async for piece in self._pieces.read_all(writer.keep_alive):
                yield piece
        except Conflict as error:
            self._collector.failure = describe_taken_over(error)
        finally:
            self._pieces.close()
        if self._collector.failure is not None:
            self._remember_failed()
            yield writer.fail(use_words_of_wire(self._wire, self._collector.failure))
            return
        reply = self._collector.reply
        assert reply is not None
        self._remember()
        yield writer.close(reply)

    def _render_whole(self) -> Response:
        reply = self._collector.reply
        assert reply is not None
        self._remember()
        encoded = self._wire.encode_reply(reply, stream=False)
        if self._repeated:
            body = {**msgspec.json.decode(b"".join(encoded.frames)), **self._repeated}
            encoded = replace(encoded, frames=(msgspec.json.encode(body),))
        return _render(encoded)

    def _remember(self) -> None:
        """Remember the place after this reply before the client can refer to it."""
        result = self._collector.result
        assert result is not None
        place, index = SessionPlace(result.session, len(result.messages)), self._wires.index
        index.remember(self._turn.digest.compute_with(self._collector.message), place, self._turn.names)
        index.remember(self._identity, place)
        index.mark_sent(place)
        index.forget(self._turn.first_key)

    def _remember_failed(self) -> None:
        """Remember the session of a first request, so that the request, sent again, goes on there."""
        result, key = self._collector.result, self._turn.first_key
        if key and result is not None and result.stop in ("failed", *ANSWERED_STOPS):
            self._wires.index.remember(key, SessionPlace(result.session, None, is_first=True))


def _make_header(text: str) -> str:
    return text.encode("ascii", "replace").decode().replace("\n", " ")[:HEADER_CHARACTERS_MAX]


async def show_models(wires: WireServer, wire: ServedWire, request: HttpRequestIn) -> Response:
    return _render_json(wire.list_models(wires.list_models(wires.identify(request))))


async def show_model(wires: WireServer, wire: ServedWire, request: HttpRequestIn) -> Response:
    name = wires.find_model(request.path_params["model"], wires.identify(request)).name
    return _render_json(wire.describe_model(name))


async def count_tokens(wires: WireServer, wire: ServedWire, request: HttpRequestIn) -> Response:
    """An estimate, which rounds up: only the model could count, and only what it is sent."""
    asked = wire.read_counted(await _read_request(wire, request))
    return _render_json(wire.describe_count(_estimate_tokens(load_codec(wire.family).decode_request(asked))))


def _estimate_tokens(request: Request) -> int:
    return (
        sum(estimate_text_tokens(text.text) for text in request.system)
        + estimate_tool_tokens(request.tools)
        + sum(MESSAGE_TOKENS + estimate_part_tokens(message.parts) for message in request.messages)
    )


def _render_json(body: object) -> Response:
    return Response(msgspec.json.encode(body), media_type="application/json")


ACTIONS: dict[WireAction, Callable[[WireServer, ServedWire, HttpRequestIn], Awaitable[Response]]] = {
    "answer": answer_request,
    "count": count_tokens,
    "list": show_models,
    "show": show_model,
}
ACTION_RIGHTS: dict[WireAction, Right] = {
    "answer": "prompt",
    "count": "read",
    "list": "read",
    "show": "read",
}
_SERVERS: "WeakKeyDictionary[AgentHost, WireServer]" = WeakKeyDictionary()
