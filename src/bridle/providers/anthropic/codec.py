"""Codec of the Anthropic Messages wire.

The body is joined from parts that are encoded once: model, tools and system first, then the messages, and
after them everything that may change between requests. So the bytes of one request up to its last message are
a prefix of the next one, whatever changes in between.

The other modules of this package:

    parts            parts and content blocks            failures        errors of the provider
    encode           messages of a request               usage           stop reasons and token counts
    decode           replies, from bytes in any chunks   decode_request  requests, as the provider sees them
    partial_reply    blocks of a streamed reply          native_summary  compaction by the provider

The codec does not handle keys: the sender adds them.
"""

from collections.abc import Mapping
from hashlib import blake2b
from urllib.parse import quote

from msgspec import Raw
from msgspec.structs import replace

from bridle.ports.codec import Decoder, EncodedHistory, HttpRequest
from bridle.providers.base_codec import BaseCodec, SupportedSettings
from bridle.providers.schema.tool_schema import (
    compile_for_wire,
    compile_output_schema,
    native_definition,
)
from bridle.providers.wire.breakpoints import (
    end_breakpoint_ttl,
    message_breakpoint_ttls,
    system_breakpoint_ttls,
    tools_breakpoint_ttl,
)
from bridle.providers.wire.decoder import request_headers, require_own_history
from bridle.providers.wire.dialect import read_dialect
from bridle.providers.wire.encoded_history import DIGEST_BYTES, ComparedTail
from bridle.providers.wire.extras import add_extra
from bridle.providers.wire.hosted import HostedForms, find_hosted_form
from bridle.providers.wire.json import dumps, loads
from bridle.providers.wire.message_form import MessageForm
from bridle.providers.wire.system_messages import place_system_messages
from bridle.values.base import Value
from bridle.values.message import Media
from bridle.values.model import Model
from bridle.values.request import Extra, Request, Thinking, ToolChoice, ToolSpec

from .decode import AnthropicDecoder
from .decode_request import decode_request
from .encode import AnthropicEncodeOptions, AnthropicHistory
from .header_fields import BETA_HEADER, BETAS, HEADER_FIELDS, encode_header
from .hosted import HOSTED, REMOTE_MCP, encode_mcp_servers, encode_own_hosted_tool
from .native_summary import (
    encode_summary_request,
    has_automatic_compaction,
    has_leading_summary,
    remove_excluded_fields,
    required_betas,
)
from .parts import FAMILY, OUTPUT_DIALECT, TOOL_DIALECT, TOOL_NAMES, Block, encode_instruction

VERSION_DEFAULT = "2023-06-01"
ANSWER_TOKENS_DEFAULT = 20_000
"""Default of `max_tokens` for an answer; a larger one is mostly a runaway reply."""

_RESERVED_FIELDS = frozenset({"model", "tools", "system", "messages", "max_tokens", "stream"})
"""Fields of the body that a request sets elsewhere."""
_MODEL_PLACEHOLDER = "{model}"


class AnthropicDialect(Value, kw_only=True):
    """Differences of other clouds that serve this wire."""

    path: str = "/v1/messages"
    """Path of a request. With `{model}` in it, the body names no model."""
    stream_path: str = ""
    """Path of a streamed request; the body then does not request a stream."""
    body_version: str = ""
    """Value of `anthropic_version` in the body."""


DEFAULT_DIALECT = AnthropicDialect()


class AnthropicCodec(BaseCodec):
    family = FAMILY
    reserved_fields = _RESERVED_FIELDS
    tool_dialect, output_dialect = TOOL_DIALECT, OUTPUT_DIALECT
    tool_names = TOOL_NAMES
    message_form = MessageForm(
        content_types=frozenset(
            {
                "tool_use",
                "tool_result",
                "thinking",
                "redacted_thinking",
                "image",
                "document",
                "server_tool_use",
            }
        )
    )
    decode_request = staticmethod(decode_request)
    _frame: "_Frame | None" = None

    def new_history(self) -> AnthropicHistory:
        return AnthropicHistory()

    def encode(self, request: Request, kept: EncodedHistory | None = None) -> HttpRequest:
        """Encode a request. `digest` covers its content, not the delivery; only new messages are hashed."""
        kept = require_own_history(kept, AnthropicHistory, self.new_history)
        if request.asks_native_summary:
            request = remove_excluded_fields(request)
        frame = kept.find_frame(request, lambda options: self._use_frame(options, kept))
        messages = request.messages
        if kept.has_system_message(messages):
            messages = place_system_messages(messages, taken=request.model.abilities.system_messages)
        tail = frame.tail.encode(request.compare_reply_id)
        body, digest = kept.build_body(messages, tail, _message_breakpoints(request), ending=frame.ending)
        if frame.is_model_in_path:
            digest = blake2b(f"{request.model.id} {digest}".encode(), digest_size=DIGEST_BYTES).hexdigest()
        headers = frame.headers
        if has_leading_summary(request):
            headers = _request_headers(request)
        return HttpRequest(path=frame.path, body=body, headers=headers, digest=digest)

    def _use_frame(self, options: Request, kept: AnthropicHistory) -> "_Frame":
        """The frame of these options; the latest one is kept, because the sessions of an agent share it."""
        frame = self._frame
        if frame is None or frame.request != options:
            frame = self._frame = _Frame(options)
        kept.configure(options.model, frame.options)
        head = options.model, options.tools, options.deferred_tools, options.system, options.breakpoints
        kept.set_head(head, lambda: frame.head)
        return frame

    def check_extra(self, extra: Extra) -> None:
        if extra.name in HEADER_FIELDS:
            encode_header(extra)

    def hosted_forms(self, model: Model) -> HostedForms:
        return HOSTED

    def carries_media(self, media: Media, model: Model, *, in_result: bool) -> bool:
        return media.kind in ("image", "document")

    def supported_settings(self, request: Request) -> SupportedSettings:
        return SupportedSettings(display=_is_display_sent(request))

    def new_decoder(self, request: Request, status: int, headers: Mapping[str, str]) -> Decoder:
        return self.restore_tools(AnthropicDecoder(request.model, status, headers), request)


class _Frame:
    """Parts shared by requests that differ only in their messages."""

    def __init__(self, request: Request) -> None:
        self.request, model = request, request.model
        dialect = read_dialect(model.endpoint, DEFAULT_DIALECT)
        self.options = AnthropicEncodeOptions(
            prefill=model.abilities.prefill or request.asks_native_summary,
            deferred=frozenset(spec.name for spec in request.deferred_tools),
            send_signed_summaries=model.abilities.compaction,
            send_unsigned_summaries=has_automatic_compaction(request),
        )
        self.head = _encode_head(request, dialect)
        self.ending = b',"stream":true}' if request.stream else b"}"
        self.path = _request_path(model.id, dialect, stream=request.stream)
        self.is_model_in_path = _MODEL_PLACEHOLDER in dialect.path
        self.headers = _request_headers(request)
        self.tail = ComparedTail(
            lambda reply_id: _encode_tail(replace(request, compare_reply_id=reply_id), dialect)
        )


def _request_path(model_id: str, dialect: AnthropicDialect, *, stream: bool) -> str:
    path = dialect.stream_path if stream and dialect.stream_path else dialect.path
    return path.replace(_MODEL_PLACEHOLDER, quote(model_id, safe="@"))


def _request_headers(request: Request) -> tuple[tuple[str, str], ...]:
    headers = dict((("anthropic-version", VERSION_DEFAULT), *request_headers(request)))
    named = headers.get(BETA_HEADER, "")
    for spec in request.tools:
        if spec.hosted is not None and (form := find_hosted_form(HOSTED, spec.hosted.concept, request.model)):
            named = f"{named},{form.beta}"
    for extra in request.extras:
        if extra.name == BETAS:
            named = f"{named},{encode_header(extra)}"
        elif extra.name in HEADER_FIELDS and (value := encode_header(extra)):
            headers[HEADER_FIELDS[extra.name]] = value
    if wanted := required_betas(request, named):
        headers[BETA_HEADER] = wanted
    return tuple(headers.items())


def _encode_head(request: Request, dialect: AnthropicDialect) -> bytes:
    tools = [_encode_tool(spec, request.model) for spec in request.tools]
    if ttl := tools_breakpoint_ttl(request):
        _add_breakpoint(tools, ttl)
    tools += [encode_deferred_tool(spec, request.model) for spec in request.deferred_tools]
    system: list[Block | Raw] = []
    ttls = system_breakpoint_ttls(request)
    for at, text in enumerate(request.system):
        if (block := encode_instruction(text)) is not None:
            system.append(block)
        if at in ttls:
            _add_breakpoint(system, ttls[at])
    head: Block = {} if _MODEL_PLACEHOLDER in dialect.path else {"model": request.model.id}
    if tools:
        head["tools"] = tools
    if system:
        head["system"] = system
    return dumps({**head, "messages": []})[:-2]


def _add_breakpoint(blocks: list[Block | Raw], ttl: str) -> None:
    for at, block in reversed(list(enumerate(blocks))):
        marked: Block = loads(bytes(block)) if isinstance(block, Raw) else block
        # A deferred tool is not part of the prefix, so it may not carry the breakpoint.
        if not marked.get("defer_loading"):
            blocks[at] = {**marked, "cache_control": _cache_control(ttl)}
            return


def _encode_tool(spec: ToolSpec, model: Model) -> Block | Raw:
    if spec.hosted is not None:
        return encode_own_hosted_tool(spec, model)
    if (native := native_definition(spec, FAMILY)) is not None:
        return native
    tool: Block = {"name": TOOL_NAMES.encode_name(spec.name)}
    if spec.description:
        tool["description"] = spec.description
    tool["input_schema"] = compile_for_wire(spec.parameters, TOOL_DIALECT)
    return tool


def encode_deferred_tool(spec: ToolSpec, model: Model) -> Block:
    """Encode a tool that is not part of the prompt until a result refers to it."""
    tool = _encode_tool(spec, model)
    return {**(loads(bytes(tool)) if isinstance(tool, Raw) else tool), "defer_loading": True}


def _encode_tail(request: Request, dialect: AnthropicDialect) -> bytes:
    """Encode the fields that may differ between requests, in a fixed order."""
    abilities, sampling = request.model.abilities, request.sampling
    allowance = request.thinking.budget_tokens if request.thinking else None
    room = min(abilities.output_tokens, ANSWER_TOKENS_DEFAULT + (allowance or 0))
    fields: Block = {"max_tokens": room if request.max_tokens is None else request.max_tokens}
    if sampling.stop_sequences:
        fields["stop_sequences"] = sampling.stop_sequences
    if abilities.sampling:
        chosen = {"temperature": sampling.temperature, "top_p": sampling.top_p, "top_k": sampling.top_k}
        fields.update((name, value) for name, value in chosen.items() if value is not None)
    if request.tools and (choice := _encode_tool_choice(request.tool_choice)):
        fields["tool_choice"] = choice
    if request.thinking and (thinking := _encode_thinking(request.thinking, abilities.thinking)):
        fields["thinking"] = thinking
    if output := _encode_output_config(request):
        fields["output_config"] = output
    if abilities.automatic_cache and (ttl := end_breakpoint_ttl(request)):
        fields["cache_control"] = _cache_control(ttl)
    if request.compare_reply_id and all(extra.name != "diagnostics" for extra in request.extras):
        fields["diagnostics"] = {"previous_message_id": request.compare_reply_id}
    if request.asks_native_summary:
        fields["compaction"] = encode_summary_request(request)
    for spec in request.tools:
        if spec.hosted is not None and spec.hosted.concept == REMOTE_MCP:
            fields["mcp_servers"] = encode_mcp_servers(request.tools)
    for extra in request.extras:
        if extra.name not in HEADER_FIELDS:
            add_extra(fields, extra, _RESERVED_FIELDS)
    if dialect.body_version:
        fields.setdefault("anthropic_version", dialect.body_version)
    return b"]," + dumps(fields)[1:-1]


def _encode_tool_choice(choice: ToolChoice) -> Block | None:
    wire: Block = {"type": choice.mode}
    if choice.mode == "tool":
        wire["name"] = TOOL_NAMES.encode_name(choice.name)
    if not choice.parallel and choice.mode != "none":
        wire["disable_parallel_tool_use"] = True
    return None if wire == {"type": "auto"} else wire


def _is_display_sent(request: Request) -> bool:
    thinking = request.thinking
    if thinking is None or not thinking.display:
        return True
    return "display" in (_encode_thinking(thinking, request.model.abilities.thinking) or {})


def _encode_thinking(thinking: Thinking, modes: tuple[str, ...]) -> Block | None:
    mode = thinking.mode
    if not mode and thinking.budget_tokens is not None:
        mode = "enabled"
    if not mode and thinking.display and (not modes or "adaptive" in modes):
        mode = "adaptive"
    if not mode:
        return None
    wire: Block = {"type": mode}
    if thinking.budget_tokens is not None:
        wire["budget_tokens"] = thinking.budget_tokens
    if thinking.display:
        wire["display"] = thinking.display
    return wire


def _encode_output_config(request: Request) -> Block:
    wire: Block = {}
    if request.thinking and request.thinking.effort:
        wire["effort"] = request.thinking.effort
    if request.output and request.output.mode == "native":
        wire["format"] = {
            "type": "json_schema",
            "schema": compile_output_schema(request.output, OUTPUT_DIALECT),
        }
    return wire


def _message_breakpoints(request: Request) -> dict[int, bytes]:
    abilities = request.model.abilities
    if not request.breakpoints:
        return {}
    # If the provider does not track the end of the prompt itself, the last message is marked.
    at_end = bool(abilities.cache_marks) and not abilities.automatic_cache
    if not at_end and "message" not in [mark.position for mark in request.breakpoints]:
        return {}
    marks = message_breakpoint_ttls(request, at_end=at_end)
    return {index: b',"cache_control":' + dumps(_cache_control(ttl)) for index, ttl in marks.items()}


def _cache_control(ttl: str) -> Block:
    return {"type": "ephemeral"} if ttl == "5m" else {"type": "ephemeral", "ttl": ttl}


CODEC = AnthropicCodec()
