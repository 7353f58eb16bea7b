"""Codec of the OpenAI Responses wire.

The body is joined from parts that are encoded once: model, instructions and tools first, then the items, and
after them everything that may change between requests.  So the bytes of one request up to its last item are a
prefix of the next one, whatever changes in between.

There are three ways to keep a conversation:

  - Everything is sent every time and nothing is stored (`store: false`); this is the default.  Reasoning
    is sent back encrypted, inside the items.
  - With the extra `previous_response_id`, only the messages after that reply are sent; the provider holds the
    rest.  If the parent is not in the request (a conversation started elsewhere), the provider holds
    everything before the first message.
  - With a conversation object (`Request.conversation`, made by `encode_open_conversation`), only the messages
    after the newest reply in it are sent; to an empty object, all of them.  With the extra `conversation`,
    which names an object of the caller, only the messages after this endpoint's last reply are sent.

If the provider has lost its state, the same request without these extras sends everything again.

A compaction request has its own path, without tools and without fields that shape an answer.  The reply is a
list of items, which is sent unchanged in place of the messages it replaces.

The codec does not handle keys: the sender adds them.
"""

from collections.abc import Mapping
from typing import Any

from msgspec import Raw
from msgspec.structs import replace

from bridle.ports.codec import Decoder, EncodedHistory, HttpRequest
from bridle.providers.base_codec import BaseCodec, SupportedSettings
from bridle.providers.openai.prompt_cache import (
    NO_CACHE_OPTIONS,
    OPTIONS,
    cache_fields,
    message_breakpoints,
    takes_breakpoints,
)
from bridle.providers.schema.compiler import is_strict_ready
from bridle.providers.schema.tool_schema import (
    compile_for_wire,
    compile_output_schema,
    native_definition,
)
from bridle.providers.wire.breakpoints import system_breakpoint_ttls
from bridle.providers.wire.decoder import request_headers, require_own_history
from bridle.providers.wire.dialect import read_dialect
from bridle.providers.wire.encoded_history import ComparedTail
from bridle.providers.wire.extras import merge_extra, parse_extra
from bridle.providers.wire.hosted import HostedForms, encode_hosted_tool
from bridle.providers.wire.json import drop_nulls, dumps, is_object, loads, repair_surrogates
from bridle.providers.wire.message_form import MessageForm
from bridle.providers.wire.tool_names import NAMES_64
from bridle.values.base import Value
from bridle.values.errors import MisuseError
from bridle.values.message import Media, Opaque
from bridle.values.model import ANY_EFFORT, Abilities, Model, ReasoningPolicy
from bridle.values.request import OutputSpec, Request, Thinking, ToolSpec, find_wire_form

from .breakpoints import encode_marked_instructions
from .content import FAMILY, Block
from .conversations import decode_opened_conversation, encode_open_conversation
from .decode import ResponsesDecoder
from .decode_request import MODES, STATEFUL_FIELDS, SUMMARIES, decode_request
from .encode import ResponsesEncodeOptions, ResponsesHistory
from .hosted import HOSTED, USES_MAX_FIELD, count_hosted_uses
from .parts import OUTPUT_DIALECT, TOOL_DIALECT, TOOL_NAMES

PATH, COMPACT_PATH = "/responses", "/responses/compact"
COMPACT_FIELDS = (
    "previous_response_id",
    "prompt_cache_key",
    "prompt_cache_options",
    "prompt_cache_retention",
    "service_tier",
    "image",
)
"""The fields that a compaction request may have besides the conversation."""
OUTPUT_TOKENS_MIN = 16
"""The provider refuses a lower limit."""

_RESERVED_FIELDS = frozenset({"model", "input", "instructions", "tools", "stream"})
"""Fields of the body that a request sets elsewhere."""
_DELIVERY_FIELD = "stream_options"
_ENCRYPTED_REASONING = "reasoning.encrypted_content"


class ResponsesDialect(Value, kw_only=True):
    """Differences between servers of this wire."""

    with_ids: bool = True
    """True if items may be sent back with their ids; some servers bind ids to one connection."""
    sealed_by: str = ""
    """Pattern of model ids: signed items are sent to models with the same match (wire/dialect.py)."""


DEFAULT_DIALECT = ResponsesDialect()


class ResponsesCodec(BaseCodec):
    family = FAMILY
    reserved_fields = _RESERVED_FIELDS
    messages_field = "input"
    tool_dialect, output_dialect = TOOL_DIALECT, OUTPUT_DIALECT
    tool_names = TOOL_NAMES
    message_form = MessageForm(
        types=frozenset(
            {
                "message",
                "function_call",
                "function_call_output",
                "reasoning",
                "item_reference",
                "custom_tool_call",
                "custom_tool_call_output",
                "web_search_call",
                "compaction",
            }
        ),
        content_types=frozenset({"input_text", "output_text", "input_image", "input_file"}),
    )
    decode_request = staticmethod(decode_request)

    def __init__(self, dialect: ResponsesDialect = DEFAULT_DIALECT) -> None:
        self._dialect = dialect
        self._frame: _ResponsesFrame | None = None

    def new_history(self) -> ResponsesHistory:
        return ResponsesHistory()

    def encode(self, request: Request, kept: EncodedHistory | None = None) -> HttpRequest:
        """Encode a request. `digest` covers the body except its delivery; only new messages are hashed."""
        kept = require_own_history(kept, ResponsesHistory, self.new_history)
        if request.asks_native_summary:
            request = replace(request, tools=(), breakpoints=(), compare_reply_id="", stream=False)
        is_plain = not (
            request.keeps_server_state
            or request.conversation
            or request.extras
            or request.asks_native_summary
        )
        if is_plain and (request.tools or request.tool_choice.parallel):
            frame = kept.find_frame(request, self._use_frame)
        else:  # the messages or the state at the provider decide about some fields
            frame = _ResponsesFrame(request, self._dialect)
        kept.configure(request.model.endpoint, frame.options, request.deferred_tools, _encode_function)
        follows = kept.has_content(request.messages)
        kept.set_head((*frame.head_source, follows), lambda: frame.encode_head(follows=follows))
        body, digest = kept.build_body_since(
            _count_stored_messages(request, frame.extras) if frame.extras else 0,
            request.messages,
            frame.tail.encode(request.compare_reply_id),
            message_breakpoints(request) if request.breakpoints else {},
            ending=frame.ending,
        )
        path = COMPACT_PATH if request.asks_native_summary else PATH
        return HttpRequest(path=path, body=body, headers=frame.headers, digest=digest)

    def _use_frame(self, options: Request) -> "_ResponsesFrame":
        """The frame of these options; the latest one is kept, because the sessions of an agent share it."""
        if self._frame is None or self._frame.request != options:
            self._frame = _ResponsesFrame(options, self._dialect)
        return self._frame

    def list_losses(self, request: Request, *, with_schemas: bool = True) -> tuple[str, ...]:
        raised = request.max_tokens is not None and request.max_tokens < OUTPUT_TOKENS_MIN
        note = f"max_tokens {request.max_tokens} became {OUTPUT_TOKENS_MIN}: fewer are refused"
        return (*super().list_losses(request, with_schemas=with_schemas), *((note,) if raised else ()))

    def carries_media(self, media: Media, model: Model, *, in_result: bool) -> bool:
        return media.kind in ("image", "document")

    def supported_settings(self, request: Request) -> SupportedSettings:
        thinking, abilities = request.thinking, request.model.abilities
        reasons = bool(abilities.thinking or abilities.efforts)
        mode = thinking is None or not thinking.mode or (reasons and thinking.mode in MODES)
        return SupportedSettings(
            stop_sequences=False,
            top_k=False,
            mode=mode,
            budget=False,
            display=thinking is None or thinking.display in (*SUMMARIES, "omitted"),
            server_state=True,
        )

    def hosted_forms(self, model: Model) -> HostedForms:
        return HOSTED

    def encode_open_conversation(self, model: Model) -> HttpRequest:
        return encode_open_conversation(model)

    def decode_opened_conversation(self, status: int, headers: Mapping[str, str], body: bytes) -> str:
        return decode_opened_conversation(status, headers, body)

    def new_decoder(self, request: Request, status: int, headers: Mapping[str, str]) -> Decoder:
        return self.restore_tools(ResponsesDecoder(request.model, status, headers, request.messages), request)


class _ResponsesFrame:
    """Parts shared by requests that differ only in their messages."""

    def __init__(self, request: Request, default: ResponsesDialect) -> None:
        self.request = request
        self.extras = extras = _parse_extras(request)
        stored = _is_stored(extras)
        # If a whole chain is sent again, the provider lost it, so the ids in it are invalid.
        lost = request.keeps_server_state and not (request.server_state_until or _has_conversation(request))
        held = any(name in extras for name in STATEFUL_FIELDS) and not lost
        dialect = read_dialect(request.model.endpoint, default)
        self.options = ResponsesEncodeOptions(
            reasoning=_reasoning_policy(request.model.endpoint.reasoning, held=stored and not lost),
            with_ids=dialect.with_ids and not lost,
            server_holds_history=held,
            sealed_by=dialect.sealed_by,
            model_id=request.model.id if dialect.sealed_by else "",
            has_breakpoints=takes_breakpoints(request.model.abilities),
        )
        # A conversation at the provider already has its first message, which may occur only once.
        self.is_spoken = not (held or request.keeps_server_state) and any(
            mark.position == "system" for mark in request.breakpoints
        )
        ttls = system_breakpoint_ttls(request)
        self.head_source = request.model.id, request.tools, request.system, ttls, self.is_spoken
        self.tail = ComparedTail(
            lambda reply_id: (
                _encode_compact_tail(request, extras)
                if request.asks_native_summary
                else _encode_tail(replace(request, compare_reply_id=reply_id), extras, stored=stored)
            )
        )
        self.ending = _encode_ending(request, extras)
        self.headers = request_headers(request)
        self._heads: dict[bool, bytes] = {}

    def encode_head(self, *, follows: bool) -> bytes:
        """The fields before the messages; `follows`: there are messages."""
        if follows not in self._heads:
            self._heads[follows] = _encode_head(self.request, spoken=self.is_spoken, follows=follows)
        return self._heads[follows]


def _encode_head(request: Request, *, spoken: bool, follows: bool) -> bytes:
    """Encode model, instructions and tools. `spoken`: as a message, because only messages have breakpoints."""
    # A prompt stored at the provider may name the model.
    head: Block = {"model": request.model.id} if request.model.id else {}
    instructions = "\n\n".join(repair_surrogates(text.text) for text in request.system if text.text.strip())
    if instructions and not spoken:
        head["instructions"] = instructions
    if request.tools:
        head["tools"] = [_encode_tool(spec, request.model) for spec in request.tools]
    written = dumps({**head, "input": []})[:-2]
    if not instructions or not spoken:
        return written
    return (
        written
        + dumps(encode_marked_instructions(request.system, system_breakpoint_ttls(request)))
        + (b"," if follows else b"")
    )


def _encode_tool(spec: ToolSpec, model: Model) -> Block | Raw:
    return _encode_function(spec) if spec.hosted is None else encode_hosted_tool(spec, HOSTED, model)


def _encode_function(spec: ToolSpec) -> Block | Raw:
    if (native := native_definition(spec, FAMILY)) is not None:
        return native
    tool: Block = {"type": "function", "name": TOOL_NAMES.encode_name(spec.name)}
    if spec.description:
        tool["description"] = spec.description
    # Always explicit: without the field, the provider would rewrite the schema to make it strict.
    strict = is_strict_ready(spec.parameters)
    return {**tool, "parameters": compile_for_wire(spec.parameters, TOOL_DIALECT), "strict": strict}


def _parse_extras(request: Request) -> dict[str, Any]:
    given: dict[str, Any] = {}
    if request.keeps_server_state and not _has_conversation(request):
        given["store"] = True
    if request.conversation and not _has_conversation(request):
        given["conversation"] = request.conversation
    elif request.keeps_server_state and not _has_conversation(request):
        given["previous_response_id"] = request.server_state_until or None
    for extra in request.extras:
        given[extra.name] = parse_extra(extra, _RESERVED_FIELDS, loads)
    return drop_nulls(given)


def _has_conversation(request: Request) -> bool:
    """Return True if the caller names a conversation object, which takes precedence over Bridle's."""
    return any(extra.name == "conversation" for extra in request.extras)


def _is_stored(extras: Mapping[str, Any]) -> bool:
    """Return True if the provider is to store the reply: only on request, or if a requested feature needs it."""
    default = any(extras.get(name) for name in (*STATEFUL_FIELDS, "background"))
    return bool(extras.get("store", default))


def _reasoning_policy(policy: ReasoningPolicy, *, held: bool) -> ReasoningPolicy:
    """Return the policy: an item that the provider holds is identified by its id and needs no signature."""
    return "may_echo" if policy == "signed" and held else policy


def _count_stored_messages(request: Request, extras: Mapping[str, Any]) -> int:
    """Return the number of messages that the provider already holds."""
    named = [name for name in STATEFUL_FIELDS if name in extras]
    if len(named) > 1:
        raise MisuseError(f"{' and '.join(named)} exclude each other: remove one of these extras")
    own = bool(request.conversation) and not _has_conversation(request)
    if not named or (own and not request.server_state_until):
        return 0
    parent = request.server_state_until if own else extras.get("previous_response_id")
    for place in range(len(request.messages) - 1, -1, -1):
        message = request.messages[place]
        here = message.origin is not None and message.origin.endpoint == request.model.endpoint.endpoint_id
        if here and message.reply_id and parent in (None, message.reply_id):
            return place + 1
    return 0


def _encode_tail(request: Request, extras: Mapping[str, Any], *, stored: bool) -> bytes:
    """Encode the fields that may differ between requests, in a fixed order."""
    abilities, sampling = request.model.abilities, request.sampling
    fields: Block = {}
    if request.max_tokens is not None:
        fields["max_output_tokens"] = max(request.max_tokens, OUTPUT_TOKENS_MIN)
    if abilities.sampling:
        chosen = {"temperature": sampling.temperature, "top_p": sampling.top_p}
        fields.update((name, value) for name, value in chosen.items() if value is not None)
    if request.tools and (choice := _encode_tool_choice(request)) != "auto":
        fields["tool_choice"] = choice
    if not request.tool_choice.parallel and _has_tools(request):
        fields["parallel_tool_calls"] = False
    reasons = bool(abilities.thinking or abilities.efforts)
    if request.thinking and reasons and (reasoning := _encode_reasoning(request.thinking, abilities)):
        fields["reasoning"] = reasoning
    if request.output and request.output.mode == "native":
        fields["text"] = {"format": _encode_output_format(request.output)}
    for spec in request.tools:
        if spec.hosted is not None and (uses := count_hosted_uses(request.tools)):
            fields[USES_MAX_FIELD] = uses
    fields["store"] = stored
    fields |= {name: value for name, value in cache_fields(request).items() if name not in extras}
    # Models without reasoning reject the field, so it is not sent to unknown models.
    certain = reasons and ANY_EFFORT not in abilities.efforts
    if certain and request.model.endpoint.reasoning == "signed":
        fields["include"] = [_ENCRYPTED_REASONING]
    for name, value in extras.items():
        if name not in ("store", _DELIVERY_FIELD):
            _add_extra(fields, name, value)
    return b"]," + dumps(fields)[1:-1]


def _encode_compact_tail(request: Request, extras: Mapping[str, Any]) -> bytes:
    """Encode a compaction request; without its tools the prompt is not cached, so nothing is written."""
    fields = {OPTIONS: NO_CACHE_OPTIONS} if takes_breakpoints(request.model.abilities) else {}
    fields |= {name: extras[name] for name in COMPACT_FIELDS if name in extras}
    return b"]" + (b"," + dumps(fields)[1:-1] if fields else b"")


def _encode_ending(request: Request, extras: Mapping[str, Any]) -> bytes:
    """Encode the delivery of the reply, which is not part of the request's content."""
    if not request.stream:
        return b"}"
    options = {_DELIVERY_FIELD: extras[_DELIVERY_FIELD]} if _DELIVERY_FIELD in extras else {}
    return b"," + dumps({"stream": True, **options})[1:]


def _has_tools(request: Request) -> bool:
    """Return True if there are tools to call, in the request or in an item of the conversation."""
    return bool(request.tools or request.deferred_tools) or any(
        isinstance(part, Opaque) and part.kind == "additional_tools"
        for message in request.messages
        for part in message.parts
    )


def _encode_tool_choice(request: Request) -> str | Block:
    choice = request.tool_choice
    if choice.mode != "tool":
        return "required" if choice.mode == "any" else choice.mode
    kind = "function"
    for spec in request.tools:
        if spec.name == choice.name and spec.hosted is not None:
            tool = encode_hosted_tool(spec, HOSTED, request.model)
            return {name: tool[name] for name in ("type", "server_label") if name in tool}
        native = (spec.native or find_wire_form(spec, FAMILY)) if spec.name == choice.name else ""
        if native and is_object(native):
            kind = loads(native).get("type", kind)
    named = {"name": TOOL_NAMES.encode_name(choice.name)} if kind in ("function", "custom") else {}
    return {"type": kind, **named}


def _encode_reasoning(thinking: Thinking, abilities: Abilities) -> Block:
    wire: Block = {}
    if thinking.effort and (not abilities.efforts or abilities.takes_effort(thinking.effort)):
        wire["effort"] = thinking.effort
    if summary := SUMMARIES.get(thinking.display):
        wire["summary"] = summary
    if thinking.mode in MODES:
        wire["mode"] = thinking.mode
    return wire


def _encode_output_format(output: OutputSpec) -> Block:
    wire: Block = {"type": "json_schema", "name": NAMES_64.clean_name(output.name)}
    if output.description:
        wire["description"] = output.description
    strict = is_strict_ready(output.parameters)
    return {**wire, "schema": compile_output_schema(output, OUTPUT_DIALECT), "strict": strict}


def _add_extra(fields: Block, name: str, value: Any) -> None:
    """Add an extra, which may extend a list or an object, but not replace a value."""
    present = fields.get(name)
    if present is None:
        fields[name] = value
    elif isinstance(present, list) and isinstance(value, list):
        fields[name] = [*present, *(each for each in value if each not in present)]
    else:
        fields[name] = merge_extra(present, value, name)


CODEC = ResponsesCodec()
