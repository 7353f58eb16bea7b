"""Codec of the Chat Completions wire, for every server that speaks it.

The body is joined from parts that are encoded once: model, tools and instructions first, then the messages,
and after them everything that may change between requests.  So the bytes of one request up to its last message
are a prefix of the next one, whatever changes in between.

Many servers use this wire, each with differences.  The endpoint's `ChatDialect` describes them; an endpoint
without one gets the documented protocol.

The codec does not handle keys: the sender adds them.
"""

from collections.abc import Mapping

from msgspec import Raw

from bridle.ports.codec import Decoder, EncodedHistory, HttpRequest
from bridle.providers.base_codec import BaseCodec, SupportedSettings
from bridle.providers.openai.prompt_cache import BREAKPOINT, EXPLICIT_BREAKPOINT, message_breakpoints
from bridle.providers.schema.tool_schema import wrap_decoder
from bridle.providers.wire.breakpoints import (
    message_breakpoint_ttls,
    system_breakpoint_ttls,
    tools_breakpoint_ttl,
)
from bridle.providers.wire.decoder import request_headers, require_own_history
from bridle.providers.wire.dialect import read_dialect
from bridle.providers.wire.encoded_history import EncodedMessagesPerModel
from bridle.providers.wire.json import dumps, loads
from bridle.providers.wire.message_form import MessageForm
from bridle.providers.wire.tool_names import NAMES_64
from bridle.values.model import Endpoint
from bridle.values.request import Request

from .content import Block, encode_content
from .decode import ChatDecoder
from .decode_request import decode_request
from .dialect import FAMILY, OUTPUT_DIALECT, TOOL_DIALECT, ChatDialect
from .encode import ChatMessageEncoder
from .parts import kept_members, simplify_content
from .request_fields import check_tools_allowed, encode_delivery, encode_fields, encode_tool

PATH = "/chat/completions"
_DEFAULT_DIALECT = ChatDialect()


class ChatCodec(BaseCodec):
    family = FAMILY
    tool_dialect, output_dialect = TOOL_DIALECT, OUTPUT_DIALECT
    message_form = MessageForm(
        members=frozenset({"tool_calls", "tool_call_id", "function_call"}),
        roles=frozenset({"tool", "function"}),
        content_types=frozenset({"image_url", "input_audio", "file", "video_url"}),
    )
    decode_request = staticmethod(decode_request)

    def __init__(
        self, dialects: Mapping[str, ChatDialect] | None = None, *, otherwise: ChatDialect = _DEFAULT_DIALECT
    ) -> None:
        """Create a codec; `dialects` by endpoint name override those of the endpoints."""
        self._dialects = dict(dialects or {})
        self._otherwise = otherwise

    def new_history(self) -> EncodedMessagesPerModel:
        return EncodedMessagesPerModel(
            lambda place, name: ChatMessageEncoder(place, name, self._dialect_for(place))
        )

    def encode(self, request: Request, kept: EncodedHistory | None = None) -> HttpRequest:
        """Encode a request; `digest` covers its content, not the delivery, and costs only new messages."""
        kept = require_own_history(kept, EncodedMessagesPerModel, self.new_history)
        dialect = self._dialect_for(request.model.endpoint)
        check_tools_allowed(request, dialect)
        kept.set_model(request.model)
        follows = kept.has_content(request.messages)
        kept.set_head(
            (
                request.model.id,
                request.tools,
                request.system,
                tools_breakpoint_ttl(request),
                system_breakpoint_ttls(request),
                follows,
            ),
            lambda: _encode_head(request, dialect, follows=follows),
        )
        fields = dumps(encode_fields(request, dialect))[1:-1]
        delivery = dumps(encode_delivery(request, dialect))[1:-1]
        body, digest = kept.build_body(
            request.messages,
            b"]" + (b"," + fields if fields else b""),
            _message_breakpoints(request, dialect),
            ending=(b"," + delivery if delivery else b"") + b"}",
        )
        return HttpRequest(path=PATH, body=body, headers=request_headers(request), digest=digest)

    def supported_settings(self, request: Request) -> SupportedSettings:
        dialect = self._dialect_for(request.model.endpoint)
        return SupportedSettings(
            top_k=dialect.top_k,
            parallel=dialect.parallel_switch,
            mode=bool(dialect.mode_at),
            budget=bool(dialect.budget_at),
            effort=bool(dialect.effort_at),
        )

    def new_decoder(self, request: Request, status: int, headers: Mapping[str, str]) -> Decoder:
        dialect = self._dialect_for(request.model.endpoint)
        decoder = ChatDecoder(request.model, dialect, status, headers, tools=bool(request.tools))
        return wrap_decoder(NAMES_64.wrap_decoder(decoder, request.tools), request, TOOL_DIALECT)

    def _dialect_for(self, endpoint: Endpoint | None) -> ChatDialect:
        given = self._dialects.get(endpoint.name) if endpoint else None
        return given or read_dialect(endpoint, self._otherwise)


def _encode_head(request: Request, dialect: ChatDialect, *, follows: bool) -> bytes:
    """Encode everything up to the first message; on this wire the instructions are a message."""
    head: Block = {"model": request.model.id} if request.model.id else {}
    if request.tools:
        tools = [encode_tool(spec) for spec in request.tools]
        if dialect.cache_marks and (ttl := tools_breakpoint_ttl(request)):
            last = tools[-1]
            tools[-1] = {
                **(last if isinstance(last, dict) else loads(bytes(last))),
                **_encode_breakpoint(ttl, dialect),
            }
        head["tools"] = tools
    written = dumps({**head, "messages": []})[:-2]
    system: list[Block | Raw] = []
    ttls = system_breakpoint_ttls(request) if dialect.cache_marks else {}
    for at, text in enumerate(request.system):
        if (block := encode_content(text, dialect, own=True)) is not None:
            system.append(block)
        if at in ttls and system and isinstance(last := system[-1], dict):
            system[-1] = {**last, **_encode_breakpoint(ttls[at], dialect)}
    if not system:
        return written
    content = system if dialect.cache_marks else simplify_content(system, dialect)
    message = {"role": dialect.system_role, "content": content, **kept_members(request.system)}
    return written + dumps(message) + (b"," if follows else b"")


def _message_breakpoints(request: Request, dialect: ChatDialect) -> dict[int, bytes]:
    if not dialect.cache_marks:
        return {}
    if dialect.breakpoints:
        return message_breakpoints(request)
    marks = message_breakpoint_ttls(request, at_end=True)
    return {index: b"," + dumps(_encode_breakpoint(ttl, dialect))[1:-1] for index, ttl in marks.items()}


def _encode_breakpoint(ttl: str, dialect: ChatDialect) -> Block:
    if dialect.breakpoints:
        return {BREAKPOINT: EXPLICIT_BREAKPOINT}
    return {"cache_control": {"type": "ephemeral"} if ttl == "5m" else {"type": "ephemeral", "ttl": ttl}}


CODEC = ChatCodec()
