"""Replies of Gemini, from bytes in any slices: JSON, server-sent events, and one long JSON array.

All three carry the same object, whole or in pieces, and take the same road: a reply given whole is a
stream of one.  A stream has no last event.  It is a reply once the provider has said why it stopped,
or that it refused the prompt; before that it is cut, however much was said.  An array must also have
been closed.

Pieces of plain words take a short road: one typed parse that accepts nothing else, one append, one
delta.  Everything it does not know by sight goes through `_happened`, which looks before it touches.
Only the first candidate is read; nobody asks for more.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from ..values.delta import CallReady, Delta, ReasoningDelta, TextDelta, ToolCallDelta
from ..values.errors import Failure, ProviderError
from ..values.message import Reply
from ..values.model import Model
from ..values.parts import Opaque, Part, Reasoning, Text, ToolCall, ToolResult
from ..values.request import ToolSpec
from ..values.usage import Usage
from ._array import ArrayReader
from ._failures import error_in
from ._gemini_ends import CONTINUES, finish_word, is_block, reply_of, usage_of
from ._gemini_failures import failure_from, failure_of
from ._gemini_growing import Growing
from ._gemini_parts import (
    CANDIDATE_FIELDS,
    CONTINUATION,
    CONTINUED_BY,
    NAMES,
    Block,
    arguments_of,
    camel,
    opaque_of,
    part_of,
)
from ._json import dumps, loads, mended
from ._shell import DONE, DecoderShell, Reader

_KEPT = ("groundingMetadata", "citationMetadata", "urlContextMetadata")
"""What a candidate says beside its content that is worth keeping."""
_KNOWN = frozenset({"candidates", "promptFeedback", "usageMetadata", "modelVersion", "responseId"})
_NOTHING = Raw()


class _Piece(Struct, gc=False, forbid_unknown_fields=True, rename="camel"):
    pass


class _Words(_Piece):
    text: str
    thought: bool = False


class _Content(_Piece):
    parts: list[_Words]
    role: str = ""


class _Candidate(_Piece):
    content: _Content
    index: int = 0
    safety_ratings: Raw = _NOTHING
    avg_logprobs: Raw = _NOTHING


class _Chunk(_Piece):
    """A piece of a reply that holds nothing but words."""

    candidates: list[_Candidate]
    usage_metadata: Raw = _NOTHING
    model_version: str = ""
    response_id: str = ""
    create_time: str = ""


class _Written(Struct, rename="camel"):
    pass


class _WrittenCall(_Written):
    args: Raw = _NOTHING


class _WrittenPart(_Written):
    function_call: _WrittenCall | None = None


class _WrittenContent(_Written):
    parts: list[_WrittenPart] = []


class _WrittenCandidate(_Written):
    content: _WrittenContent | None = None


class _WrittenChunk(_Written):
    """Where the arguments of calls are written, to have them letter by letter."""

    candidates: list[_WrittenCandidate] = []


_decode_words = msgspec.json.Decoder(_Chunk).decode
_decode_written = msgspec.json.Decoder(_WrittenChunk).decode


class GeminiDecoder(DecoderShell):
    ending = "finishReason"

    def __init__(
        self, model: Model, tools: Sequence[ToolSpec], status: int, headers: Mapping[str, str]
    ) -> None:
        super().__init__(status, headers)
        self._model = model
        self._names = NAMES.renamed(tools)
        self._growing = Growing()
        self._calls = 0
        self._meta: dict[str, Any] = {}
        self._fields: dict[str, Any] = {}
        self._counts: dict[str, Any] = {}
        self._latest_counts = _NOTHING

    @property
    def partial(self) -> str:
        return self._growing.said

    @property
    def counted(self) -> Usage:
        self._note_counts()
        return replace(usage_of(self._counts), incomplete=True)

    @property
    def _is_over(self) -> bool:
        return bool(self._meta.get("finishReason")) or is_block(self._meta.get("promptFeedback"))

    def _told(self) -> Reply:
        if isinstance(self._reader, ArrayReader) and not self._reader.closed:
            raise self._problem("cut", "the stream ended before the array of its pieces did")
        return self._reply()

    def _refusal(self, body: bytes) -> Failure:
        return failure_of(self._status, self._headers, body)

    def _reader_of(self, start: bytes) -> Reader | None:
        return ArrayReader() if start == b"[" else super()._reader_of(start)

    def _reply(self) -> Reply:
        self._note_counts()
        reply = reply_of(self._parts(), self._meta, self._counts, self._model)
        return replace(reply, dropped=self._growing.dropped)

    def _take(self, events: list[tuple[bytes, bytes]]) -> list[Delta]:
        deltas: list[Delta] = []
        for name, data in events:
            try:
                chunk = _decode_words(data)
            except (ValueError, RecursionError):
                self._read(name, data, deltas)
                continue
            if len(chunk.candidates) != 1 or chunk.candidates[0].index:
                self._read(name, data, deltas)
                continue
            for part in chunk.candidates[0].content.parts:
                if said := part.text:
                    self._growing.say(said, thought=part.thought)
                    deltas.append(ReasoningDelta(reasoning=said) if part.thought else TextDelta(text=said))
                elif part.thought:
                    self._growing.pass_empty_thought()
            if chunk.usage_metadata is not _NOTHING:
                self._latest_counts = chunk.usage_metadata
            if chunk.response_id:
                self._meta["responseId"] = chunk.response_id
            if chunk.model_version:
                self._meta["modelVersion"] = chunk.model_version
        return deltas

    def _read(self, name: bytes, data: bytes, deltas: list[Delta]) -> None:
        chunk = self._event(data) if data.strip() != DONE else None
        if isinstance(chunk, dict):
            self._happened(chunk, data, deltas)

    def _happened(self, chunk: Block, data: bytes, deltas: list[Delta]) -> None:
        chunk = {camel(name): value for name, value in chunk.items() if value is not None}
        if "error" in chunk:
            raise ProviderError(failure_from(error_in(chunk) or {}, self._status))
        self._note_counts()
        if isinstance(counts := chunk.get("usageMetadata"), dict):
            self._counts.update((camel(name), value) for name, value in counts.items() if value is not None)
        for name in ("responseId", "modelVersion"):
            if isinstance(said := chunk.get(name), str) and said:
                self._meta[name] = said
        if is_block(chunk.get("promptFeedback")):
            self._meta["promptFeedback"] = chunk["promptFeedback"]
        candidates = chunk.get("candidates")
        for place, candidate in enumerate(candidates if isinstance(candidates, list) else ()):
            if isinstance(candidate, dict) and not candidate.get("index"):
                self._candidate(candidate, data, place, deltas)
                break

    def _candidate(self, candidate: Block, data: bytes, place: int, deltas: list[Delta]) -> None:
        said = {camel(name): value for name, value in candidate.items() if value is not None}
        self._fields.update((name, said[name]) for name in _KEPT if said.get(name))
        if reason := finish_word(said.get("finishReason")):
            self._meta["finishReason"] = reason
            self._meta["finishMessage"] = said.get("finishMessage")
        if isinstance(token := said.get(CONTINUED_BY), str):
            self._meta[CONTINUED_BY] = token
        content = said.get("content")
        parts = content.get("parts") if isinstance(content, dict) else None
        blocks = [parts] if isinstance(parts, dict) else parts if isinstance(parts, list) else []
        arguments = _arguments(data, place) if b'"functionCall"' in data else []
        for at, block in enumerate(blocks):
            if isinstance(block, dict):
                self._part(block, arguments[at] if at < len(arguments) else None, deltas)

    def _part(self, block: Block, arguments: str | None, deltas: list[Delta]) -> None:
        if block.keys() <= {"text", "thought"} and isinstance(said := block.get("text"), str):
            # Half a character may end one piece and begin the next: nothing is mended before they are joined.
            if said:
                thought = block.get("thought") is True
                self._growing.say(said, thought=thought)
                shown = mended(said)
                deltas.append(ReasoningDelta(reasoning=shown) if thought else TextDelta(text=shown))
            elif block.get("thought") is True:
                self._growing.pass_empty_thought()
            return
        call = block.get("functionCall")
        if isinstance(call, dict) and (
            call.get("willContinue") is True or "partialArgs" in call or self._growing.open is not None
        ):
            at = self._growing.open.place if self._growing.open else self._growing.count
            part: Part | None = self._growing.call(block)
        elif call == {} or all(value is None for value in block.values()):
            return  # how a call in pieces ends, where none began; or a part that says nothing
        else:
            part, at = part_of(block, arguments), self._growing.count
            if isinstance(part, ToolResult):
                part = opaque_of(block)  # not the model's to say, so nobody may take it for an answer
            self._growing.add(part)
        match part:
            case Text(text=said) if said:
                deltas.append(TextDelta(text=said))
            case Reasoning(text=said) if said:
                deltas.append(ReasoningDelta(reasoning=said))
            case ToolCall(name=name, arguments=given):
                name = self._names.get(name, name)
                deltas.append(ToolCallDelta(index=at, name=name, arguments=given))
                # A call comes whole, or is told to be whole by its last piece.
                deltas.append(CallReady(index=self._calls, call=replace(part, name=name)))
                self._calls += 1

    def _note_counts(self) -> None:
        """Later counts replace earlier ones, and null takes nothing back: they are totals so far."""
        if self._latest_counts is not _NOTHING:
            counts, self._latest_counts = loads(bytes(self._latest_counts)), _NOTHING
            if isinstance(counts, dict):
                self._counts.update((name, value) for name, value in counts.items() if value is not None)

    def _parts(self) -> list[Part]:
        parts = [self._called(part) for part in self._growing.parts()]
        if self._fields and any(map(_says, parts)):
            parts.append(Opaque(kind=CANDIDATE_FIELDS, native=dumps(self._fields).decode()))
        if self._meta.get("finishReason") == CONTINUES and (token := self._meta.get(CONTINUED_BY)):
            parts.append(Opaque(kind=CONTINUATION, native=dumps({CONTINUED_BY: token}).decode()))
        return parts

    def _called(self, part: Part) -> Part:
        """A call under the name its tool has on our side."""
        if isinstance(part, ToolCall) and part.name in self._names:
            return replace(part, name=self._names[part.name])
        return part

    def _from_json(self, body: bytes) -> Reply:
        """A reply given whole may leave out why it stopped, but must be one."""
        reply = self._whole(body)
        if not isinstance(reply, dict):
            raise self._stranger(body)
        if "error" not in reply and _KNOWN.isdisjoint(map(camel, reply)):
            if (error := error_in(reply)) is not None:
                raise ProviderError(failure_from(error, self._status))
            raise self._stranger(body)
        self._happened(reply, body, [])
        return self._reply()


def _says(part: Part) -> bool:
    """Whether there is something in it that could have a source: thoughts and signatures alone have none."""
    return bool(part.text.strip()) if isinstance(part, Text) else not isinstance(part, Reasoning)


def _arguments(data: bytes, place: int) -> list[str | None]:
    """The arguments of each part's call as they are written; none where it has none, or cannot be told."""
    try:
        content = _decode_written(data).candidates[place].content
    except (ValueError, RecursionError, IndexError):
        return []
    calls = [part.function_call for part in content.parts] if content else []
    return [
        arguments_of(bytes(call.args)) if call and bytes(call.args) not in (b"", b"null") else None
        for call in calls
    ]
