"""Bedrock Converse, our side and theirs: one wire for the models of many makers.

The model and the delivery are in the path, not in the body.  The body is joined, never written anew:
system first, then the messages, each encoded once, and behind them everything that may change from one
request to the next.  Tools stand there too, because the choice among them cannot be told apart from them
on this wire; the provider does not mind the order.  So the bytes of one request up to its last message
begin the bytes of the following one, whatever changes in between.

The rest of the family, by what it does (each file is `_bedrock_converse_` and this word):

    blocks     parts and content blocks, both ways     failures   what goes wrong, both ways
    media      pictures, documents, films, sounds      ends       stops and counts, both ways
    tools      tools and the choice among them         read       requests, as the provider sees them
    write      messages on their way out               speak      replies, as the provider gives them
    decode     replies, from bytes in any slices       meaning    which requests it takes for equal
    growing    their blocks, while they are said       dialect    what differs from model to model

Keys and signatures are no business of a codec: whoever sends the request adds them.
"""

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any
from urllib.parse import quote

import msgspec
from msgspec import Raw

from ..ports.codec import Decoder, HttpReply, HttpRequest, Kept
from ..values.errors import Failure, MisuseError
from ..values.message import Reply
from ..values.model import Model
from ..values.request import Extra, OutputSpec, Request, Thinking
from ._bedrock_converse_blocks import Block, block_of
from ._bedrock_converse_decode import BedrockConverseDecoder
from ._bedrock_converse_dialect import FAMILY, Dialect, dialect_of
from ._bedrock_converse_failures import speak_failure
from ._bedrock_converse_meaning import meaning
from ._bedrock_converse_read import read
from ._bedrock_converse_speak import speak
from ._bedrock_converse_tools import ANSWER_SCHEMA, SCHEMA, cache_point, tool_config
from ._bedrock_converse_write import KeptLine
from ._json import dumps, is_object, mended, raw
from ._kept import DIGEST_BYTES
from ._listed_form import Signs
from ._marks import system_ttls, tools_ttl
from ._names import SHORT
from ._operators import placed
from ._remarks import Carries, unsent_settings
from ._shell import json_headers, kept_here
from ._tool_schema import reason_unfit, restoring, schema_remarks, sendable

_SPOKEN_FOR = frozenset({"modelId", "system", "messages"})
"""Fields of the body that have a place of their own in a request."""
SIGNS = Signs(
    content_members=frozenset(
        {"text", "toolUse", "toolResult", "reasoningContent", "image", "document", "video", "cachePoint"}
    )
)
"""What only lists of this wire have."""


class BedrockConverseCodec:
    @property
    def family(self) -> str:
        return FAMILY

    @property
    def listed(self) -> str:
        return "messages"

    def recognizes(self, item: object) -> bool:
        return SIGNS.fit(item)

    def keep(self) -> KeptLine:
        return KeptLine()

    def encode(self, request: Request, kept: Kept | None = None) -> HttpRequest:
        """`digest` covers the model and the body, not how the answer is delivered."""
        kept = kept_here(kept, KeptLine, self.keep)
        model = request.model
        messages = placed(request.messages, taken=model.abilities.system_messages)
        called = kept.written_for(model, messages)
        kept.head((request.system, system_ttls(request)), lambda: _head(request))
        tools = kept.tools(request.tools, tools_ttl(request))
        dialect = dialect_of(model.endpoint)
        tail = _tail(request, tool_config(request, tools, called), dialect)
        body, digest = kept.body(messages, tail, _message_marks(request))
        return HttpRequest(
            path=_path(model.id, stream=request.stream),
            body=body,
            headers=json_headers(request),
            digest=blake2b(f"{model.id} {digest}".encode(), digest_size=DIGEST_BYTES).hexdigest(),
        )

    def remarks(self, request: Request) -> tuple[str, ...]:
        dialect = dialect_of(request.model.endpoint)
        carries = Carries(
            top_k=bool(dialect.top_k_at),
            parallel=False,
            no_calls=bool(dialect.no_calls),
            mode=bool(dialect.mode_at),
            budget=bool(dialect.budget_at),
            effort=bool(dialect.effort_at),
        )
        return (*schema_remarks(request, SCHEMA, ANSWER_SCHEMA), *unsent_settings(request, carries))

    def reason_unfit(self, output: OutputSpec, model: Model) -> str:
        return reason_unfit(output, ANSWER_SCHEMA)

    def decoder(self, request: Request, status: int, headers: Mapping[str, str]) -> Decoder:
        decoder = SHORT.decoder(BedrockConverseDecoder(request.model, status, headers), request.tools)
        return restoring(decoder, request, SCHEMA)

    def read(self, request: HttpRequest) -> Request:
        return read(request)

    def speak(self, reply: Reply, *, stream: bool) -> HttpReply:
        return speak(reply, stream=stream)

    def speak_failure(self, failure: Failure) -> HttpReply:
        return speak_failure(failure)

    def meaning(self, request: HttpRequest) -> object:
        """The body with everything removed that the provider does not tell apart."""
        return meaning(request)


def _path(model_id: str, *, stream: bool) -> str:
    # A colon is legal in a path and stays: clients undo its quoting, and a signature covers what is sent.
    return f"/model/{quote(model_id, safe=':')}/converse{'-stream' if stream else ''}"


def _head(request: Request) -> bytes:
    system: list[Block | Raw] = []
    ttls = system_ttls(request)
    for at, text in enumerate(request.system):
        if (block := block_of(text, own=True)) is not None:
            system.append(block)
        if at in ttls and system:
            system.append(cache_point(ttls[at]))
    if not system:
        return b'{"messages":['
    return b'{"system":%b,"messages":[' % dumps(system)


def _tail(request: Request, tools: Block | None, dialect: Dialect) -> bytes:
    """What may differ from one request to the next, in a fixed order."""
    sampling = request.sampling
    fields: Block = {}
    if tools is not None:
        fields["toolConfig"] = tools
    _set(fields, "inferenceConfig.maxTokens", request.max_tokens)
    _set(fields, "inferenceConfig.stopSequences", sampling.stop_sequences or None)
    if request.model.abilities.sampling:
        _set(fields, "inferenceConfig.temperature", sampling.temperature)
        _set(fields, "inferenceConfig.topP", sampling.top_p)
        _set(fields, dialect.top_k_at, sampling.top_k)
    if request.thinking:
        _think(fields, request.thinking, dialect, request.model.abilities.thinking)
    if request.output and request.output.mode == "native":
        _set(fields, "outputConfig.textFormat", _format(request.output))
    if request.tools and request.tool_choice.mode == "none" and dialect.no_calls:
        fields = _laid_over(fields, msgspec.json.decode(dialect.no_calls))
    for extra in request.extras:
        _add(fields, extra)
    return b"]," + dumps(fields)[1:] if fields else b"]}"


def _think(fields: Block, thinking: Thinking, dialect: Dialect, modes: tuple[str, ...]) -> None:
    mode = thinking.mode or ("enabled" if thinking.budget_tokens is not None else "")
    if not mode and thinking.display and "adaptive" in modes:
        mode = "adaptive"  # a display can only be said beside a mode
    _set(fields, dialect.mode_at, mode or None)
    _set(fields, dialect.budget_at, thinking.budget_tokens)
    _set(fields, dialect.display_at if mode else "", thinking.display or None)
    _set(fields, dialect.effort_at, thinking.effort or None)


def _format(output: OutputSpec) -> Block:
    if not is_object(output.parameters):
        raise MisuseError(f"the schema of output {output.name!r} is no JSON object: correct it")
    shape = {"schema": mended(bytes(sendable(output.parameters, ANSWER_SCHEMA)).decode())}
    if output.name:
        shape["name"] = output.name
    if output.description:
        shape["description"] = output.description
    return {"type": "json_schema", "structure": {"jsonSchema": shape}}


def _set(fields: Block, place: str, value: object) -> None:
    if value is None or not place:
        return
    *above, last = place.split(".")
    for name in above:
        fields = fields.setdefault(name, {})
    fields[last] = value


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
        fields[extra.name] = _laid_over(value, present)
    else:
        raise MisuseError(f"extra {extra.name!r} is set by the request already: remove one of the two")


def _laid_over(below: Block, above: Block) -> Block:
    """Both, member by member, objects within as well; where they differ, what is above counts."""
    merged = dict(below)
    for name, value in above.items():
        under = merged.get(name)
        within = isinstance(value, dict) and isinstance(under, dict)
        merged[name] = _laid_over(under or {}, value) if within else value
    return merged


def _message_marks(request: Request) -> dict[int, bytes]:
    count = len(request.messages)
    marks: dict[int, str] = {}
    for mark in request.marks:
        if mark.place == "message":
            if not -count <= mark.message < count:
                raise MisuseError(f"no message {mark.message} to mark: the request has {count}")
            marks[mark.message % count] = mark.ttl
        elif mark.place == "end" and count and request.model.abilities.cache_marks:
            # What other providers do by themselves is done by hand here.
            marks[count - 1] = mark.ttl
    return {index: b"," + dumps(cache_point(ttl)) for index, ttl in marks.items()}


CODEC = BedrockConverseCodec()
