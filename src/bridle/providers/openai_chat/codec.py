"""Codec of the Chat Completions wire, for every server that speaks it.

The body is joined from parts that are encoded once: model, tools and instructions first, then the messages,
and after them everything that may change between requests.  So the bytes of one request up to its last message
are a prefix of the next one, whatever changes in between.  The fields after the messages have a fixed order.  A
field that the model or the server would refuse is not sent: abilities and dialect decide, never a name.  Extras
come last; they may extend a field and never change it.

Many servers use this wire, each with differences.  The endpoint's `ChatDialect` describes them; an endpoint
without one gets the documented protocol.

The codec does not handle keys: the sender adds them.
"""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Raw

from bridle.ports.codec import Decoder, EncodedHistory, HttpRequest
from bridle.providers.base_codec import BaseCodec, SupportedSettings
from bridle.providers.openai.prompt_cache import (
    BREAKPOINT,
    EXPLICIT_BREAKPOINT,
    cache_fields,
    message_breakpoints,
)
from bridle.providers.schema.compiler import is_strict_ready
from bridle.providers.schema.tool_schema import (
    compile_for_wire,
    compile_output_schema,
    native_definition,
)
from bridle.providers.wire.breakpoints import (
    message_breakpoint_ttls,
    system_breakpoint_ttls,
    tools_breakpoint_ttl,
)
from bridle.providers.wire.decoder import request_headers, require_own_history
from bridle.providers.wire.dialect import match_model_id, read_dialect
from bridle.providers.wire.encoded_history import EncodedMessagesPerModel
from bridle.providers.wire.extras import merge_extra, parse_extra
from bridle.providers.wire.hosted import HostedForms, encode_hosted_tool
from bridle.providers.wire.json import dumps, loads, raw_json, repair_surrogates, set_at_path
from bridle.providers.wire.message_form import MessageForm
from bridle.providers.wire.tool_names import NAMES_64
from bridle.values.errors import MisuseError
from bridle.values.message import Media
from bridle.values.model import Abilities, Endpoint, Model
from bridle.values.request import Extra, OutputSpec, Request, Thinking, ToolSpec, find_wire_form

from .calls import encode_tool_name
from .content import Block, encode_content, has_media_form
from .decode import ChatDecoder
from .decode_request import decode_request
from .dialect import FAMILY, OUTPUT_DIALECT, TOOL_DIALECT, ChatDialect
from .encode import ChatMessageEncoder
from .parts import kept_members, simplify_content

PATH = "/chat/completions"
_DEFAULT_DIALECT = ChatDialect()
_DELIVERY_FIELDS = frozenset({"stream", "stream_options"})
"""Fields about the delivery of the answer, which are not part of the request's content."""
_RESERVED_FIELDS = frozenset({"model", "tools", "messages", "stream"})


class ChatCodec(BaseCodec):
    family = FAMILY
    reserved_fields = _RESERVED_FIELDS
    tool_dialect, output_dialect = TOOL_DIALECT, OUTPUT_DIALECT
    tool_names = NAMES_64
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
        self._frame: _ChatFrame | None = None

    def new_history(self) -> EncodedMessagesPerModel:
        return EncodedMessagesPerModel(
            lambda place, name: ChatMessageEncoder(place, name, self._dialect_for(place))
        )

    def encode(self, request: Request, kept: EncodedHistory | None = None) -> HttpRequest:
        """Encode a request. `digest` covers its content, not the delivery; only new messages are hashed."""
        kept = require_own_history(kept, EncodedMessagesPerModel, self.new_history)
        frame = kept.find_frame(request, lambda options: self._use_frame(options, kept))
        follows = kept.has_content(request.messages)
        kept.set_head((frame, follows), lambda: frame.encode_head(follows=follows))
        marks = _message_breakpoints(request, frame.dialect) if frame.dialect.cache_marks else {}
        body, digest = kept.build_body(request.messages, frame.tail, marks, ending=frame.ending)
        return HttpRequest(path=PATH, body=body, headers=frame.headers, digest=digest)

    def _use_frame(self, options: Request, kept: EncodedMessagesPerModel) -> "_ChatFrame":
        """The frame of these options; the latest one is kept, because the sessions of an agent share it."""
        frame = self._frame
        if frame is None or frame.request != options:
            frame = self._frame = _ChatFrame(options, self._dialect_for(options.model.endpoint))
        kept.set_model(options.model)
        return frame

    def supported_settings(self, request: Request) -> SupportedSettings:
        dialect = self._dialect_for(request.model.endpoint)
        return SupportedSettings(
            top_k=dialect.top_k,
            parallel=dialect.parallel_switch,
            mode=bool(dialect.mode_at),
            budget=bool(dialect.budget_at),
            effort=bool(dialect.effort_at),
            display=False,
        )

    def carries_media(self, media: Media, model: Model, *, in_result: bool) -> bool:
        return has_media_form(media, self._dialect_for(model.endpoint), in_result=in_result)

    def hosted_forms(self, model: Model) -> HostedForms:
        return self._dialect_for(model.endpoint).hosted

    def new_decoder(self, request: Request, status: int, headers: Mapping[str, str]) -> Decoder:
        dialect = self._dialect_for(request.model.endpoint)
        decoder = ChatDecoder(request.model, dialect, status, headers, tools=_can_call(request))
        return self.restore_tools(decoder, request)

    def _dialect_for(self, endpoint: Endpoint | None) -> ChatDialect:
        given = self._dialects.get(endpoint.name) if endpoint else None
        return given or read_dialect(endpoint, self._otherwise)


def _can_call(request: Request) -> bool:
    """True if the model may call a tool, so that a call written as text is a mistake and not an answer."""
    return bool(request.tools) and request.tool_choice.mode != "none"


class _ChatFrame:
    """Parts shared by requests that differ only in their messages."""

    def __init__(self, request: Request, dialect: ChatDialect) -> None:
        _check_tools_allowed(request, dialect)
        self.request, self.dialect = request, dialect
        fields = dumps(_encode_fields(request, dialect))[1:-1]
        delivery = dumps(_encode_delivery(request, dialect))[1:-1]
        self.tail = b"]" + (b"," + fields if fields else b"")
        self.ending = (b"," + delivery if delivery else b"") + b"}"
        self.headers = request_headers(request)

    def encode_head(self, *, follows: bool) -> bytes:
        return _encode_head(self.request, self.dialect, follows=follows)


def _encode_head(request: Request, dialect: ChatDialect, *, follows: bool) -> bytes:
    """Encode everything up to the first message; on this wire the instructions are a message."""
    head: Block = {"model": request.model.id} if request.model.id else {}
    if request.tools:
        tools = [_encode_tool(spec, dialect, request.model) for spec in request.tools]
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


def _check_tools_allowed(request: Request, dialect: ChatDialect) -> None:
    """Raise `MisuseError` if the model refuses tools here: the caller has to decide what to give up."""
    model = request.model
    if request.tools and match_model_id(dialect.toolless_models, model.id):
        other = f"write `{dialect.tools_at}:{model.id}`" if dialect.tools_at else "choose another model"
        raise MisuseError(f"{model.name} takes no tools on this wire: {other}, or ask without tools")


def _encode_tool(spec: ToolSpec, dialect: ChatDialect, model: Model) -> Block | Raw:
    if spec.hosted is not None:
        return encode_hosted_tool(spec, dialect.hosted, model)
    if (native := native_definition(spec, FAMILY)) is not None:
        return native
    function: Block = {"name": encode_tool_name(spec.name)}
    if spec.description:
        function["description"] = repair_surrogates(spec.description)
    function["parameters"] = compile_for_wire(spec.parameters, TOOL_DIALECT)
    return {"type": "function", "function": function}


def _encode_fields(request: Request, dialect: ChatDialect) -> Block:
    abilities, sampling = request.model.abilities, request.sampling
    fields: Block = {}
    if request.max_tokens is not None:
        fields[dialect.max_tokens] = request.max_tokens
    if sampling.stop_sequences:
        fields["stop"] = sampling.stop_sequences
    if abilities.sampling:
        top_k = sampling.top_k if dialect.top_k else None
        chosen = {"temperature": sampling.temperature, "top_p": sampling.top_p, "top_k": top_k}
        fields.update((name, value) for name, value in chosen.items() if value is not None)
    if request.tools:
        fields.update(_encode_tool_choice(request, abilities, dialect))
    if request.output and request.output.mode == "native":
        fields["response_format"] = _encode_response_format(request.output)
    if request.thinking:
        _add_thinking(fields, request.thinking, abilities, dialect, tools=bool(request.tools))
    own = {extra.name for extra in request.extras}
    fields |= {name: value for name, value in cache_fields(request).items() if name not in own}
    for extra in request.extras:
        if extra.name not in _DELIVERY_FIELDS:
            _add_extra(fields, extra)
    for extra in dialect.always:
        fields[extra.name] = _apply_defaults(parse_extra(extra), fields.get(extra.name))
    if request.output and request.output.mode == "native" and dialect.strict:
        _set_strict(fields["response_format"])
    return fields


def _encode_delivery(request: Request, dialect: ChatDialect) -> Block:
    """Encode the fields about delivery: whether to stream, and the request for token counts at its end."""
    options: Any = {"include_usage": True} if request.stream and dialect.stream_usage else None
    for extra in request.extras:
        if extra.name in _DELIVERY_FIELDS:
            options = parse_extra(extra, _RESERVED_FIELDS)
    delivery: Block = {"stream": True} if request.stream else {}
    return {**delivery, "stream_options": options} if options is not None else delivery


def _encode_tool_choice(request: Request, abilities: Abilities, dialect: ChatDialect) -> Block:
    fields: Block = {}
    choice = request.tool_choice
    forced = abilities.forced_tools
    match choice.mode:
        case "none":
            fields["tool_choice"] = "none"
        case "any" if forced:
            fields["tool_choice"] = dialect.tool_required
        case "tool" if forced:
            named = (spec for spec in request.tools if spec.name == choice.name)
            natives = filter(None, (spec.native or find_wire_form(spec, FAMILY) for spec in named))
            kind = (
                "custom" if any(loads(native).get("type") == "custom" for native in natives) else "function"
            )
            fields["tool_choice"] = {"type": kind, kind: {"name": encode_tool_name(choice.name)}}
    if not choice.parallel and choice.mode != "none" and dialect.parallel_switch:
        fields["parallel_tool_calls"] = False
    return fields


def _encode_response_format(output: OutputSpec) -> Block:
    shape: Block = {"name": NAMES_64.clean_name(output.name)} if output.name else {}
    if output.description:
        shape["description"] = repair_surrogates(output.description)
    schema = compile_output_schema(output, OUTPUT_DIALECT)
    return {"type": "json_schema", "json_schema": {**shape, "schema": schema}}


def _set_strict(response_format: Block) -> None:
    shape: Block = response_format["json_schema"]
    if "strict" not in shape and is_strict_ready(bytes(shape["schema"]).decode()):
        response_format["json_schema"] = {**shape, "strict": True}


def _add_thinking(
    fields: Block, thinking: Thinking, abilities: Abilities, dialect: ChatDialect, *, tools: bool
) -> None:
    """Add thinking settings. Empty abilities mean that the model is unknown, not that it accepts nothing."""
    able = abilities.effort_with_tools or not tools
    if thinking.effort and able and (not abilities.efforts or abilities.takes_effort(thinking.effort)):
        set_at_path(fields, dialect.effort_at, thinking.effort)
    if thinking.mode and (not abilities.thinking or thinking.mode in abilities.thinking):
        wire = dict(dialect.modes).get(thinking.mode)
        set_at_path(fields, dialect.mode_at, thinking.mode if wire is None else msgspec.json.decode(wire))
    if thinking.budget_tokens is not None:
        set_at_path(fields, dialect.budget_at, thinking.budget_tokens)


def _add_extra(fields: Block, extra: Extra) -> None:
    value = parse_extra(extra, _RESERVED_FIELDS)
    if extra.name in fields:
        fields[extra.name] = merge_extra(fields[extra.name], value, extra.name)
    else:
        fields[extra.name] = value if isinstance(value, dict) else raw_json(extra.json)


def _apply_defaults(usual: Any, asked: Any) -> Any:
    """Apply the defaults of the dialect to a requested value, recursively."""
    if isinstance(usual, dict) and isinstance(asked, dict):
        return {**usual, **{name: _apply_defaults(usual.get(name), value) for name, value in asked.items()}}
    return usual if asked is None else asked


CODEC = ChatCodec()
