"""Codec of the Gemini generateContent wire.

The body is joined from parts that are encoded once: system and tools first, then the contents, and after them
everything that may change between requests.  So the bytes of one request up to its last content are a prefix
of the next one, whatever changes in between.

The model and the delivery (streamed or whole) are in the path, not in the body.  The digest therefore covers
the model and the body, not the delivery.

The codec does not handle keys: the sender adds them.
"""

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from urllib.parse import quote

from bridle.ports.codec import Decoder, EncodedHistory, HttpRequest, StoredPromptInfo
from bridle.providers.base_codec import BaseCodec, SupportedSettings
from bridle.providers.schema.tool_schema import compile_output_schema
from bridle.providers.wire.decoder import request_headers, require_own_history
from bridle.providers.wire.dialect import match_model_id, read_dialect
from bridle.providers.wire.encoded_history import DIGEST_BYTES, EncodedMessagesPerModel
from bridle.providers.wire.extras import add_extra
from bridle.providers.wire.hosted import HostedForms
from bridle.providers.wire.json import drop_nulls, dumps
from bridle.providers.wire.message_form import MessageForm
from bridle.values.errors import MisuseError
from bridle.values.model import Abilities, Model
from bridle.values.request import Request, Thinking, ToolSpec

from .decode import GeminiDecoder
from .decode_request import decode_request
from .encode import DEFAULT_DIALECT, GeminiMessageEncoder, answer_open_calls, find_continuation
from .hosted import HOSTED
from .parts import CONTINUATION_TOKEN, FAMILY, Block, encode_instruction
from .stored_prompts import (
    decode_stored_prompt,
    encode_drop_prompt,
    encode_extend_prompt,
    encode_store_prompt,
)
from .tools import (
    INCLUDE_HOSTED_CALLS,
    OUTPUT_DIALECT,
    TOOL_DIALECT,
    encode_tool_config,
    encode_tools,
    has_both_tool_kinds,
)

GENERATE, STREAM_GENERATE = ":generateContent", ":streamGenerateContent?alt=sse"
MODEL_COLLECTIONS = ("models/", "tunedModels/", "endpoints/")
CACHED_CONTENT = "cachedContent"
_RESERVED_FIELDS = frozenset({"model", "contents", "systemInstruction", "tools"})
"""Fields of the body that a request sets elsewhere."""
BUDGET_MODE = "enabled"
"""The thinking mode of models that accept a budget in tokens."""
_BUDGET_BY_MODE = {"disabled": 0, "adaptive": -1}
"""Thinking modes that this wire expresses as a number."""
_INCLUDE_THOUGHTS = {"summarized": True, "omitted": False}
"""Value of `includeThoughts` by display setting."""


class GeminiCodec(BaseCodec):
    family = FAMILY
    reserved_fields = _RESERVED_FIELDS
    messages_field = "contents"
    tool_dialect, output_dialect = TOOL_DIALECT, OUTPUT_DIALECT
    message_form = MessageForm(members=frozenset({"parts"}), roles=frozenset({"model"}))
    decode_request = staticmethod(decode_request)

    def new_history(self) -> EncodedMessagesPerModel:
        return EncodedMessagesPerModel(GeminiMessageEncoder)

    def encode(self, request: Request, kept: EncodedHistory | None = None) -> HttpRequest:
        kept = require_own_history(kept, EncodedMessagesPerModel, self.new_history)
        model = request.model
        kept.set_model(model)
        # The provider rejects content that is also in the stored prompt.
        cached = bool(request.stored_prompt) or any(extra.name == CACHED_CONTENT for extra in request.extras)
        kept.set_head((request.tools, request.system, cached), lambda: _encode_head(request, cached=cached))
        messages, token = find_continuation(request.messages, model)
        body, digest = kept.build_body(
            answer_open_calls(messages), _encode_tail(request, token, cached=cached)
        )
        whole = blake2b(f"{model.id} {digest}".encode(), digest_size=DIGEST_BYTES)
        return HttpRequest(
            path=_model_path(model.id) + (STREAM_GENERATE if request.stream else GENERATE),
            body=body,
            headers=request_headers(request),
            digest=whole.hexdigest(),
        )

    def supported_settings(self, request: Request) -> SupportedSettings:
        sent = request.thinking and _encode_thinking(request.thinking, request.model.abilities)
        budget, effort = "thinkingBudget" in (sent or {}), "thinkingLevel" in (sent or {})
        return SupportedSettings(
            parallel=False, budget=budget, effort=effort, display="includeThoughts" in (sent or {})
        )

    def new_decoder(self, request: Request, status: int, headers: Mapping[str, str]) -> Decoder:
        return self.restore_tools(GeminiDecoder(request.model, request.tools, status, headers), request)

    def hosted_forms(self, model: Model) -> HostedForms:
        return HOSTED

    def encode_store_prompt(self, request: Request, seconds: float, label: str) -> HttpRequest:
        front = _encode_prompt_head(request)
        if has_both_tool_kinds(request.tools):
            front["toolConfig"] = {INCLUDE_HOSTED_CALLS: True}
        return encode_store_prompt(_model_path(request.model.id)[1:], front, seconds, label)

    def encode_extend_prompt(self, name: str, seconds: float) -> HttpRequest:
        return encode_extend_prompt(name, seconds)

    def encode_drop_prompt(self, name: str) -> HttpRequest:
        return encode_drop_prompt(name)

    def decode_stored_prompt(self, status: int, headers: Mapping[str, str], body: bytes) -> StoredPromptInfo:
        return decode_stored_prompt(status, headers, body)


def _model_path(model_id: str) -> str:
    """Return the path of a model; an id may include its collection."""
    named = model_id if model_id.startswith(MODEL_COLLECTIONS) else f"models/{model_id}"
    return "/" + quote(named, safe="/-._~@")


def _encode_prompt_head(request: Request) -> Block:
    """Encode the tools and the system instruction, which precede the conversation."""
    front: Block = {}
    system = [block for text in request.system if (block := encode_instruction(text)) is not None]
    if system:
        front["systemInstruction"] = {"parts": system}
    if tools := encode_tools(request.tools, request.model):
        _check_tool_kinds(request.model, request.tools)
        front["tools"] = tools
    return front


def _encode_head(request: Request, *, cached: bool) -> bytes:
    head = {} if cached else _encode_prompt_head(request)
    return dumps(head)[:-1] + (b"," if head else b"") + b'"contents":['


def _check_tool_kinds(model: Model, tools: Sequence[ToolSpec]) -> None:
    if has_both_tool_kinds(tools) and match_model_id(
        read_dialect(model.endpoint, DEFAULT_DIALECT).hosted_alone, model.id
    ):
        raise MisuseError(
            f"{model.name} takes functions or its provider's own tools, not both in one request:"
            " leave one kind out, or choose a newer model"
        )


def _encode_tail(request: Request, token: str, *, cached: bool) -> bytes:
    """Encode the fields that may differ between requests, in a fixed order."""
    fields: Block = {}
    if (
        request.tools
        and not cached
        and (tool_config := encode_tool_config(request.tool_choice, request.tools))
    ):
        fields["toolConfig"] = tool_config
    if config := _encode_generation_config(request):
        fields["generationConfig"] = config
    if token:
        fields[CONTINUATION_TOKEN] = token
    if request.stored_prompt:
        fields[CACHED_CONTENT] = request.stored_prompt
    for extra in request.extras:
        add_extra(fields, extra, _RESERVED_FIELDS)
    return b"]" + (b"," + dumps(fields)[1:] if fields else b"}")


def _encode_generation_config(request: Request) -> Block:
    abilities, sampling, output = request.model.abilities, request.sampling, request.output
    config: Block = {"maxOutputTokens": request.max_tokens}
    if abilities.sampling:
        config |= {"temperature": sampling.temperature, "topP": sampling.top_p, "topK": sampling.top_k}
    config["stopSequences"] = sampling.stop_sequences or None
    config["thinkingConfig"] = _encode_thinking(request.thinking, abilities) if request.thinking else None
    if output and output.mode == "native":
        schema = compile_output_schema(output, OUTPUT_DIALECT)
        config |= {"responseMimeType": "application/json", "responseJsonSchema": schema}
    return drop_nulls(config)


def _encode_thinking(thinking: Thinking, abilities: Abilities) -> Block | None:
    """Encode a level or a budget, never both: the provider refuses the two together."""
    modes = abilities.thinking
    unknown = not modes and not abilities.efforts
    wire: Block = {}
    if thinking.effort and (unknown or abilities.takes_effort(thinking.effort)):
        wire["thinkingLevel"] = thinking.effort.upper()
    elif thinking.budget_tokens is not None and (unknown or BUDGET_MODE in modes):
        wire["thinkingBudget"] = thinking.budget_tokens
    elif thinking.mode in _BUDGET_BY_MODE and (unknown or {thinking.mode, BUDGET_MODE} <= {*modes}):
        wire["thinkingBudget"] = _BUDGET_BY_MODE[thinking.mode]
    if thinking.display in _INCLUDE_THOUGHTS:
        wire["includeThoughts"] = _INCLUDE_THOUGHTS[thinking.display]
    return wire or None


CODEC = GeminiCodec()
