"""Anthropic Messages, our side and theirs.

The body is joined, never written anew: model, tools and system first, then the messages, each encoded
once, and behind them everything that may change from one request to the next.  So the bytes of one
request up to its last message begin the bytes of the following one, whatever changes in between.

The rest of the family, by what it does (each file is `_anthropic_` and this word):

    blocks     parts and content blocks, both ways     failures   what goes wrong, both ways
    write      messages on their way out               ends       stops and counts, both ways
    decode     replies, from bytes in any slices       read       requests, as the provider sees them
    growing    their blocks, while they are said       speak      replies, as the provider gives them
    meaning    which requests the provider takes for equal

Keys are no business of a codec: whoever sends the request adds them.
"""

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any
from urllib.parse import quote

import msgspec
from msgspec import Raw

from ..ports.codec import Decoder, HttpReply, HttpRequest, Kept
from ..values.errors import BadTool, Failure, MisuseError
from ..values.message import Reply
from ..values.model import Model
from ..values.request import Extra, Mark, OutputSpec, Request, Thinking, ToolChoice, ToolSpec
from ..values.value import Value
from ._anthropic_blocks import ANSWER_SCHEMA, FAMILY, NAMES, SCHEMA, Block, instruction_block
from ._anthropic_decode import AnthropicDecoder
from ._anthropic_failures import speak_failure
from ._anthropic_meaning import meaning
from ._anthropic_read import read
from ._anthropic_speak import speak
from ._anthropic_summary import (
    BETA_HEADER,
    betas,
    compacts_by_itself,
    wish_for_a_summary,
    without_what_it_excludes,
)
from ._anthropic_write import KeptLine, Manner
from ._dialect import spoken_at
from ._json import dumps, is_object, loads, raw
from ._kept import DIGEST_BYTES
from ._listed_form import Signs
from ._marks import system_ttls, tools_ttl
from ._operators import placed
from ._shell import json_headers, kept_here
from ._tool_schema import reason_unfit, restoring, schema_remarks, sendable

VERSION_DEFAULT = "2023-06-01"
ANSWER_TOKENS_DEFAULT = 20_000
"""Room for an answer when nobody said how much; a larger one is mostly a runaway."""

_SPOKEN_FOR = frozenset({"model", "tools", "system", "messages", "max_tokens", "stream"})
"""Fields of the body that have a place of their own in a request."""
_MODEL = "{model}"


class Dialect(Value):
    """What differs where other clouds serve this wire."""

    path: str = "/v1/messages"
    """Where requests go.  With `{model}` in it, the body names no model."""
    stream_path: str = ""
    """Where they go when the answer is to be streamed; the body then does not ask for it."""
    body_version: str = ""
    """Said in the body as `anthropic_version`."""


DIALECT = Dialect()
SIGNS = Signs(
    content_types=frozenset(
        {"tool_use", "tool_result", "thinking", "redacted_thinking", "image", "document", "server_tool_use"}
    )
)
"""What only lists of this wire have."""


class AnthropicCodec:
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
        """`digest` covers what is asked, not how the answer is delivered; it costs only new messages."""
        kept = kept_here(kept, KeptLine, self.keep)
        model = request.model
        dialect = spoken_at(model.endpoint, DIALECT)
        request = without_what_it_excludes(request) if request.compacts else request
        manner = Manner(
            prefill=model.abilities.prefill or request.compacts,
            deferred=frozenset(spec.name for spec in request.deferred),
            signed=model.abilities.compaction,
            unsigned=compacts_by_itself(request),
        )
        kept.written_for(model, manner)
        messages = placed(request.messages, taken=model.abilities.system_messages)
        kept.head(
            (
                model,
                request.tools,
                request.deferred,
                request.system,
                tools_ttl(request),
                system_ttls(request),
            ),
            lambda: _head(request, dialect),
        )
        ending = b',"stream":true}' if request.stream else b"}"
        tail = _tail(request, dialect)
        body, digest = kept.body(messages, tail, _message_marks(request), ending=ending)
        if _MODEL in dialect.path:
            digest = blake2b(f"{model.id} {digest}".encode(), digest_size=DIGEST_BYTES).hexdigest()
        path = _path(model.id, dialect, stream=request.stream)
        return HttpRequest(path=path, body=body, headers=_headers(request), digest=digest)

    def remarks(self, request: Request) -> tuple[str, ...]:
        return schema_remarks(request, SCHEMA, ANSWER_SCHEMA)

    def reason_unfit(self, output: OutputSpec, model: Model) -> str:
        return reason_unfit(output, ANSWER_SCHEMA)

    def decoder(self, request: Request, status: int, headers: Mapping[str, str]) -> Decoder:
        tools = (*request.tools, *request.deferred)
        decoder = NAMES.decoder(AnthropicDecoder(request.model, status, headers), tools)
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


def _path(model_id: str, dialect: Dialect, *, stream: bool) -> str:
    path = dialect.stream_path if stream and dialect.stream_path else dialect.path
    return path.replace(_MODEL, quote(model_id, safe="@"))


def _headers(request: Request) -> tuple[tuple[str, str], ...]:
    headers = dict((("anthropic-version", VERSION_DEFAULT), *json_headers(request)))
    if wanted := betas(request, headers.get(BETA_HEADER, "")):
        headers[BETA_HEADER] = wanted
    return tuple(headers.items())


def _head(request: Request, dialect: Dialect) -> bytes:
    tools = [_tool(spec) for spec in request.tools]
    if ttl := tools_ttl(request):
        _mark_last(tools, ttl)
    tools += [_deferred(spec) for spec in request.deferred]
    system: list[Block | Raw] = []
    ttls = system_ttls(request)
    for at, text in enumerate(request.system):
        if (block := instruction_block(text)) is not None:
            system.append(block)
        if at in ttls:
            _mark_last(system, ttls[at])
    head: Block = {} if _MODEL in dialect.path else {"model": request.model.id}
    if tools:
        head["tools"] = tools
    if system:
        head["system"] = system
    return dumps({**head, "messages": []})[:-2]


def _mark_last(blocks: list[Block | Raw], ttl: str) -> None:
    for at, block in reversed(list(enumerate(blocks))):
        marked: Block = loads(bytes(block)) if isinstance(block, Raw) else block
        # A tool that is loaded later is not part of the prefix, so it may not carry the mark.
        if not marked.get("defer_loading"):
            blocks[at] = {**marked, "cache_control": _cache_control(ttl)}
            return


def _tool(spec: ToolSpec) -> Block | Raw:
    if spec.native is not None:
        if not is_object(spec.native):
            raise BadTool(f"the native definition of tool {spec.name!r} is no JSON object: correct it")
        return raw(spec.native)
    if not is_object(spec.parameters):
        raise BadTool(f"the parameters of tool {spec.name!r} are no JSON Schema object: correct them")
    tool: Block = {"name": NAMES.on_wire(spec.name)}
    if spec.description:
        tool["description"] = spec.description
    tool["input_schema"] = sendable(spec.parameters, SCHEMA)
    return tool


def _deferred(spec: ToolSpec) -> Block:
    """A tool that is no part of the prompt until a result refers to it."""
    tool = _tool(spec)
    return {**(loads(bytes(tool)) if isinstance(tool, Raw) else tool), "defer_loading": True}


def _tail(request: Request, dialect: Dialect) -> bytes:
    """What may differ from one request to the next, in a fixed order."""
    abilities, sampling = request.model.abilities, request.sampling
    allowance = request.thinking.budget_tokens if request.thinking else None
    room = min(abilities.output_tokens, ANSWER_TOKENS_DEFAULT + (allowance or 0))
    fields: Block = {"max_tokens": room if request.max_tokens is None else request.max_tokens}
    if sampling.stop_sequences:
        fields["stop_sequences"] = sampling.stop_sequences
    if abilities.sampling:
        chosen = {"temperature": sampling.temperature, "top_p": sampling.top_p, "top_k": sampling.top_k}
        fields.update((name, value) for name, value in chosen.items() if value is not None)
    if request.tools and (choice := _tool_choice(request.tool_choice)):
        fields["tool_choice"] = choice
    if request.thinking and (thinking := _thinking(request.thinking, abilities.thinking)):
        fields["thinking"] = thinking
    if output := _output_config(request):
        fields["output_config"] = output
    if abilities.automatic_cache and (mark := _mark(request, "end")):
        fields["cache_control"] = _cache_control(mark.ttl)
    if request.compared_to and all(extra.name != "diagnostics" for extra in request.extras):
        fields["diagnostics"] = {"previous_message_id": request.compared_to}
    if request.compacts:
        fields["compaction"] = wish_for_a_summary(request)
    for extra in request.extras:
        _add(fields, extra)
    if dialect.body_version:
        fields.setdefault("anthropic_version", dialect.body_version)
    return b"]," + dumps(fields)[1:-1]


def _tool_choice(choice: ToolChoice) -> Block | None:
    wire: Block = {"type": choice.mode}
    if choice.mode == "tool":
        wire["name"] = NAMES.on_wire(choice.name)
    if not choice.parallel and choice.mode != "none":
        wire["disable_parallel_tool_use"] = True
    return None if wire == {"type": "auto"} else wire


def _thinking(thinking: Thinking, modes: tuple[str, ...]) -> Block | None:
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


def _output_config(request: Request) -> Block:
    wire: Block = {}
    if request.thinking and request.thinking.effort:
        wire["effort"] = request.thinking.effort
    if request.output and request.output.mode == "native":
        if not is_object(request.output.parameters):
            raise MisuseError(f"the schema of output {request.output.name!r} is no JSON object: correct it")
        wire["format"] = {"type": "json_schema", "schema": sendable(request.output.parameters, ANSWER_SCHEMA)}
    return wire


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


def _mark(request: Request, place: str) -> Mark | None:
    return next((mark for mark in request.marks if mark.place == place), None)


def _message_marks(request: Request) -> dict[int, bytes]:
    count = len(request.messages)
    marks: dict[int, str] = {}
    for mark in request.marks:
        if mark.place == "message":
            if not -count <= mark.message < count:
                raise MisuseError(f"no message {mark.message} to mark: the request has {count}")
            marks[mark.message % count] = mark.ttl
    abilities = request.model.abilities
    end = _mark(request, "end")
    if end and count and abilities.cache_marks and not abilities.automatic_cache:
        # What the provider would do by itself, done by hand where it does not.
        marks[count - 1] = end.ttl
    return {index: b',"cache_control":' + dumps(_cache_control(ttl)) for index, ttl in marks.items()}


def _cache_control(ttl: str) -> Block:
    return {"type": "ephemeral"} if ttl == "5m" else {"type": "ephemeral", "ttl": ttl}


CODEC = AnthropicCodec()
