"""Gemini generateContent, our side and theirs.

The body is joined, never written anew: system and tools first, then the contents, each encoded once,
and behind them everything that may change from one request to the next.  So the bytes of one request
up to its last content begin the bytes of the following one, whatever changes in between.

Two things other wires have in the body are in the path here: the model, and whether the answer is to
be streamed.  The digest therefore covers the model beside the body, and not the delivery.

The rest of the family, by what it does (each file is `_gemini_` and this word):

    parts      their parts and ours, both ways         failures   what goes wrong, both ways
    tools      declarations and choices, both ways     ends       stops and counts, both ways
    write      messages on their way out               read       requests, as the provider sees them
    decode     replies, from bytes in any slices       speak      replies, as the provider gives them
    growing    their parts, while they are said        meaning    which requests it takes for equal

Keys are no business of a codec: whoever sends the request adds them.
"""

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any
from urllib.parse import quote

import msgspec

from ..ports.codec import Decoder, HttpReply, HttpRequest, Kept
from ..ports.prompts import Named
from ..values.errors import Failure, MisuseError
from ..values.message import Reply
from ..values.model import Abilities, Model
from ..values.request import Extra, OutputSpec, Request, Thinking, ToolSpec
from ._dialect import spoken_at
from ._gemini_decode import GeminiDecoder
from ._gemini_failures import speak_failure
from ._gemini_meaning import meaning
from ._gemini_named import creation, extension, named, removal
from ._gemini_parts import CONTINUED_BY, FAMILY, Block, instruction_block
from ._gemini_read import read
from ._gemini_speak import speak
from ._gemini_tools import ANSWER_SCHEMA, SCHEMA, SHOWS_HOSTED, config_of, is_mixed, tools_of
from ._gemini_write import DIALECT, MessageWriter, answered, continuation
from ._home import fits
from ._json import dumps, is_object, raw
from ._kept import DIGEST_BYTES, KeptForModel
from ._listed_form import Signs
from ._remarks import Carries, unsent_settings
from ._shell import json_headers, kept_here
from ._tool_schema import reason_unfit, restoring, schema_remarks, sendable

WHOLE, STREAMED = ":generateContent", ":streamGenerateContent?alt=sse"
COLLECTIONS = ("models/", "tunedModels/", "endpoints/")
CACHE = "cachedContent"
_SPOKEN_FOR = frozenset({"model", "contents", "systemInstruction", "tools"})
"""Fields of the body that have a place of their own in a request."""
BUDGETED = "enabled"
"""The mode of thinking of models that take an allowance in tokens."""
_BUDGETS = {"disabled": 0, "adaptive": -1}
"""Modes of thinking that this wire has a number for."""
_SHOWN = {"summarized": True, "omitted": False}
"""Whether the thoughts are to be sent along."""
SIGNS = Signs(members=frozenset({"parts"}), roles=frozenset({"model"}))
"""What only lists of this wire have."""


class GeminiCodec:
    @property
    def family(self) -> str:
        return FAMILY

    @property
    def listed(self) -> str:
        return "contents"

    def recognizes(self, item: object) -> bool:
        return SIGNS.fit(item)

    def keep(self) -> KeptForModel:
        return KeptForModel(MessageWriter)

    def encode(self, request: Request, kept: Kept | None = None) -> HttpRequest:
        kept = kept_here(kept, KeptForModel, self.keep)
        model = request.model
        kept.on_model(model)
        # What is kept in the provider's cache must not be sent again, and is refused when it is.
        cached = bool(request.kept_as) or any(extra.name == CACHE for extra in request.extras)
        kept.head((request.tools, request.system, cached), lambda: _head(request, cached=cached))
        messages, token = continuation(request.messages, model)
        body, digest = kept.body(answered(messages), _tail(request, token, cached=cached))
        whole = blake2b(f"{model.id} {digest}".encode(), digest_size=DIGEST_BYTES)
        return HttpRequest(
            path=_place(model.id) + (STREAMED if request.stream else WHOLE),
            body=body,
            headers=json_headers(request),
            digest=whole.hexdigest(),
        )

    def remarks(self, request: Request) -> tuple[str, ...]:
        sent = request.thinking and _thinking(request.thinking, request.model.abilities)
        budget, effort = "thinkingBudget" in (sent or {}), "thinkingLevel" in (sent or {})
        carries = Carries(parallel=False, budget=budget, effort=effort)
        return (*schema_remarks(request, SCHEMA, ANSWER_SCHEMA), *unsent_settings(request, carries))

    def reason_unfit(self, output: OutputSpec, model: Model) -> str:
        return reason_unfit(output, ANSWER_SCHEMA)

    def decoder(self, request: Request, status: int, headers: Mapping[str, str]) -> Decoder:
        decoder = GeminiDecoder(request.model, request.tools, status, headers)
        return restoring(decoder, request, SCHEMA)

    def read(self, request: HttpRequest) -> Request:
        return read(request)

    def speak(self, reply: Reply, *, stream: bool) -> HttpReply:
        return speak(reply, stream=stream)

    def speak_failure(self, failure: Failure) -> HttpReply:
        return speak_failure(failure)

    def keep_prompt(self, request: Request, seconds: float, label: str) -> HttpRequest:
        front = _front(request)
        if is_mixed(request.tools):
            front["toolConfig"] = {SHOWS_HOSTED: True}
        return creation(_place(request.model.id)[1:], front, seconds, label)

    def keep_longer(self, name: str, seconds: float) -> HttpRequest:
        return extension(name, seconds)

    def drop_prompt(self, name: str) -> HttpRequest:
        return removal(name)

    def named(self, status: int, headers: Mapping[str, str], body: bytes) -> Named:
        return named(status, headers, body)

    def meaning(self, request: HttpRequest) -> object:
        """The request with everything removed that the provider does not tell apart."""
        return meaning(request)


def _place(model_id: str) -> str:
    """Where the model answers; an id may name its collection itself."""
    named = model_id if model_id.startswith(COLLECTIONS) else f"models/{model_id}"
    return "/" + quote(named, safe="/-._~@")


def _front(request: Request) -> Block:
    """What stands before the conversation."""
    front: Block = {}
    system = [block for text in request.system if (block := instruction_block(text)) is not None]
    if system:
        front["systemInstruction"] = {"parts": system}
    if tools := tools_of(request.tools):
        _check_kinds(request.model, request.tools)
        front["tools"] = tools
    return front


def _head(request: Request, *, cached: bool) -> bytes:
    head = {} if cached else _front(request)
    return dumps(head)[:-1] + (b"," if head else b"") + b'"contents":['


def _check_kinds(model: Model, tools: Sequence[ToolSpec]) -> None:
    if is_mixed(tools) and fits(spoken_at(model.endpoint, DIALECT).hosted_alone, model.id):
        raise MisuseError(
            f"{model.name} takes functions or its provider's own tools, not both in one request:"
            " leave one kind out, or choose a newer model"
        )


def _tail(request: Request, token: str, *, cached: bool) -> bytes:
    """What may differ from one request to the next, in a fixed order."""
    fields: Block = {}
    if request.tools and not cached and (tool_config := config_of(request.tool_choice, request.tools)):
        fields["toolConfig"] = tool_config
    if config := _generation_config(request):
        fields["generationConfig"] = config
    if token:
        fields[CONTINUED_BY] = token
    if request.kept_as:
        fields[CACHE] = request.kept_as
    for extra in request.extras:
        _add(fields, extra)
    return b"]" + (b"," + dumps(fields)[1:] if fields else b"}")


def _generation_config(request: Request) -> Block:
    abilities, sampling, output = request.model.abilities, request.sampling, request.output
    config: Block = {"maxOutputTokens": request.max_tokens}
    if abilities.sampling:
        config |= {"temperature": sampling.temperature, "topP": sampling.top_p, "topK": sampling.top_k}
    config["stopSequences"] = sampling.stop_sequences or None
    config["thinkingConfig"] = _thinking(request.thinking, abilities) if request.thinking else None
    if output and output.mode == "native":
        if not is_object(output.parameters):
            raise MisuseError(f"the schema of output {output.name!r} is no JSON object: correct it")
        schema = sendable(output.parameters, ANSWER_SCHEMA)
        config |= {"responseMimeType": "application/json", "responseJsonSchema": schema}
    return {name: value for name, value in config.items() if value is not None}


def _thinking(thinking: Thinking, abilities: Abilities) -> Block | None:
    """A level or an allowance, never both: the provider refuses the two together."""
    modes = abilities.thinking
    unknown = not modes and not abilities.efforts
    wire: Block = {}
    if thinking.effort and (unknown or abilities.takes_effort(thinking.effort)):
        wire["thinkingLevel"] = thinking.effort.upper()
    elif thinking.budget_tokens is not None and (unknown or BUDGETED in modes):
        wire["thinkingBudget"] = thinking.budget_tokens
    elif thinking.mode in _BUDGETS and (unknown or {thinking.mode, BUDGETED} <= {*modes}):
        wire["thinkingBudget"] = _BUDGETS[thinking.mode]
    if thinking.display in _SHOWN:
        wire["includeThoughts"] = _SHOWN[thinking.display]
    return wire or None


def _add(fields: Block, extra: Extra) -> None:
    """An extra goes out as it is.  It may add to a field that is an object, never change what is set."""
    if extra.name in _SPOKEN_FOR:
        raise MisuseError(f"extra {extra.name!r} would replace part of the request: set it on the request")
    try:
        value: Any = msgspec.json.decode(extra.json)
    except ValueError as error:
        raise MisuseError(f"extra {extra.name!r} holds no JSON ({error}): correct it") from None
    present = fields.get(extra.name)
    if present is None:
        fields[extra.name] = raw(extra.json)
    elif isinstance(present, dict) and isinstance(value, dict):
        fields[extra.name] = {**value, **present}
    else:
        raise MisuseError(f"extra {extra.name!r} is set by the request already: remove one of the two")


CODEC = GeminiCodec()
