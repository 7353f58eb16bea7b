"""Codec of the Bedrock Converse wire, which serves the models of many makers.

The model and the delivery are in the path, not in the body.  The body is joined from parts that are encoded
once: system first, then the messages, and after them everything that may change between requests.  Tools come
last too, because this wire keeps them in one object with the tool choice; the provider ignores the order.  So
the bytes of one request up to its last message are a prefix of the next one, whatever changes in between.

The codec does not handle keys or signatures: the sender adds them.
"""

from collections.abc import Mapping
from hashlib import blake2b
from urllib.parse import quote

import msgspec
from msgspec import Raw

from bridle.ports.codec import Decoder, EncodedHistory, HttpRequest
from bridle.providers.base_codec import BaseCodec, SupportedSettings
from bridle.providers.schema.tool_schema import compile_output_schema
from bridle.providers.wire.breakpoints import (
    message_breakpoint_ttls,
    system_breakpoint_ttls,
    tools_breakpoint_ttl,
)
from bridle.providers.wire.decoder import request_headers, require_own_history
from bridle.providers.wire.encoded_history import DIGEST_BYTES
from bridle.providers.wire.extras import add_extra
from bridle.providers.wire.json import dumps, repair_surrogates, set_at_path
from bridle.providers.wire.message_form import MessageForm
from bridle.providers.wire.system_messages import place_system_messages
from bridle.providers.wire.tool_names import NAMES_64
from bridle.values.message import Media
from bridle.values.model import Model
from bridle.values.request import OutputSpec, Request, Thinking

from .decode import BedrockDecoder
from .decode_request import decode_request
from .dialect import FAMILY, BedrockDialect, dialect_for
from .encode import BedrockHistory
from .parts import Block, encode_part, has_media_form
from .tools import OUTPUT_DIALECT, TOOL_DIALECT, encode_cache_point, encode_tool_config

_RESERVED_FIELDS = frozenset({"modelId", "system", "messages"})
"""Fields of the body that a request sets elsewhere."""


class BedrockCodec(BaseCodec):
    family = FAMILY
    reserved_fields = _RESERVED_FIELDS
    tool_dialect, output_dialect = TOOL_DIALECT, OUTPUT_DIALECT
    tool_names = NAMES_64
    message_form = MessageForm(
        content_members=frozenset(
            {"text", "toolUse", "toolResult", "reasoningContent", "image", "document", "video", "cachePoint"}
        )
    )
    decode_request = staticmethod(decode_request)

    def new_history(self) -> BedrockHistory:
        return BedrockHistory()

    def encode(self, request: Request, kept: EncodedHistory | None = None) -> HttpRequest:
        """Encode a request; `digest` covers the model and the body, not the delivery."""
        kept = require_own_history(kept, BedrockHistory, self.new_history)
        model = request.model
        messages = request.messages
        if kept.has_system_message(messages):
            messages = place_system_messages(messages, taken=model.abilities.system_messages)
        called = kept.encode_messages(model, messages)
        kept.set_head((request.system, system_breakpoint_ttls(request)), lambda: _encode_head(request))
        tools = kept.encode_tools_once(request.tools, tools_breakpoint_ttl(request))
        dialect = dialect_for(model.endpoint)
        tail = _encode_tail(request, encode_tool_config(request, tools, called), dialect)
        body, digest = kept.build_body(messages, tail, _message_breakpoints(request))
        return HttpRequest(
            path=_request_path(model.id, stream=request.stream),
            body=body,
            headers=request_headers(request),
            digest=blake2b(f"{model.id} {digest}".encode(), digest_size=DIGEST_BYTES).hexdigest(),
        )

    def carries_media(self, media: Media, model: Model, *, in_result: bool) -> bool:
        return has_media_form(media, in_result=in_result)

    def supported_settings(self, request: Request) -> SupportedSettings:
        dialect = dialect_for(request.model.endpoint)
        return SupportedSettings(
            top_k=bool(dialect.top_k_at),
            parallel=False,
            no_calls=bool(dialect.no_calls),
            mode=bool(dialect.mode_at),
            budget=bool(dialect.budget_at),
            effort=bool(dialect.effort_at),
            display=bool(dialect.display_at)
            and (
                not request.thinking
                or bool(_thinking_mode(request.thinking, request.model.abilities.thinking))
            ),
        )

    def new_decoder(self, request: Request, status: int, headers: Mapping[str, str]) -> Decoder:
        return self.restore_tools(BedrockDecoder(request.model, status, headers), request)


def _request_path(model_id: str, *, stream: bool) -> str:
    # A colon is legal in a path and stays: clients undo its quoting, and a signature covers what is sent.
    return f"/model/{quote(model_id, safe=':')}/converse{'-stream' if stream else ''}"


def _encode_head(request: Request) -> bytes:
    system: list[Block | Raw] = []
    ttls = system_breakpoint_ttls(request)
    for at, text in enumerate(request.system):
        if (block := encode_part(text, own=True)) is not None:
            system.append(block)
        if at in ttls and system:
            system.append(encode_cache_point(ttls[at]))
    if not system:
        return b'{"messages":['
    return b'{"system":%b,"messages":[' % dumps(system)


def _encode_tail(request: Request, tools: Block | None, dialect: BedrockDialect) -> bytes:
    """Encode the fields that may differ between requests, in a fixed order."""
    sampling = request.sampling
    fields: Block = {}
    if tools is not None:
        fields["toolConfig"] = tools
    _set_setting(fields, "inferenceConfig.maxTokens", request.max_tokens)
    _set_setting(fields, "inferenceConfig.stopSequences", sampling.stop_sequences or None)
    if request.model.abilities.sampling:
        _set_setting(fields, "inferenceConfig.temperature", sampling.temperature)
        _set_setting(fields, "inferenceConfig.topP", sampling.top_p)
        _set_setting(fields, dialect.top_k_at, sampling.top_k)
    if request.thinking:
        _add_thinking(fields, request.thinking, dialect, request.model.abilities.thinking)
    if request.output and request.output.mode == "native":
        _set_setting(fields, "outputConfig.textFormat", _encode_output_format(request.output))
    if request.tools and request.tool_choice.mode == "none" and dialect.no_calls:
        fields = _merge_objects(fields, msgspec.json.decode(dialect.no_calls))
    for extra in request.extras:
        add_extra(fields, extra, _RESERVED_FIELDS)
    return b"]," + dumps(fields)[1:] if fields else b"]}"


def _add_thinking(fields: Block, thinking: Thinking, dialect: BedrockDialect, modes: tuple[str, ...]) -> None:
    mode = _thinking_mode(thinking, modes)
    _set_setting(fields, dialect.mode_at, mode or None)
    _set_setting(fields, dialect.budget_at, thinking.budget_tokens)
    _set_setting(fields, dialect.display_at if mode else "", thinking.display or None)
    _set_setting(fields, dialect.effort_at, thinking.effort or None)


def _thinking_mode(thinking: Thinking, modes: tuple[str, ...]) -> str:
    mode = thinking.mode or ("enabled" if thinking.budget_tokens is not None else "")
    if not mode and thinking.display and "adaptive" in modes:
        return "adaptive"  # the wire has `display` only together with a mode
    return mode


def _encode_output_format(output: OutputSpec) -> Block:
    shape = {"schema": repair_surrogates(bytes(compile_output_schema(output, OUTPUT_DIALECT)).decode())}
    if output.name:
        # The vendor's published types (botocore, `JsonSchemaDefinition`) set no pattern for this name.
        shape["name"] = output.name
    if output.description:
        shape["description"] = output.description
    return {"type": "json_schema", "structure": {"jsonSchema": shape}}


def _set_setting(fields: Block, path: str, value: object) -> None:
    if value is not None:
        set_at_path(fields, path, value)


def _merge_objects(below: Block, above: Block) -> Block:
    """Merge two objects recursively; where they differ, `above` wins."""
    merged = dict(below)
    for name, value in above.items():
        under = merged.get(name)
        within = isinstance(value, dict) and isinstance(under, dict)
        merged[name] = _merge_objects(under or {}, value) if within else value
    return merged


def _message_breakpoints(request: Request) -> dict[int, bytes]:
    marks = message_breakpoint_ttls(request, at_end=bool(request.model.abilities.cache_marks))
    return {index: b"," + dumps(encode_cache_point(ttl)) for index, ttl in marks.items()}


CODEC = BedrockCodec()
