"""Decodes replies of Gemini: JSON, server-sent events, and one long JSON array.

All three carry the same object, complete or in pieces, and are decoded alike: a complete reply is a stream of
one. A stream has no final event. It is a reply once the provider has sent a finish reason, or refused the
prompt; until then it is truncated, however much has arrived. An array must also have been closed.

Pieces of plain text take a fast path: one typed parse that accepts nothing else, one append, one delta.
Everything else goes through `_process_event`, which checks before it changes anything. Only the first
candidate is read; Bridle never requests more.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from bridle.providers.wire.decoder import DONE_EVENT, BaseDecoder, EventReader
from bridle.providers.wire.failures import find_error_object
from bridle.providers.wire.json import dumps, loads, repair_surrogates
from bridle.providers.wire.tool_names import restore_name
from bridle.values.errors import ProviderError
from bridle.values.message import Opaque, Part, Reasoning, Reply, Text, ToolCall, ToolResult
from bridle.values.model import Model
from bridle.values.request import ToolSpec
from bridle.values.result import CallReady, Delta, ReasoningDelta, TextDelta, ToolCallDelta
from bridle.values.usage import Usage

from .failures import classify_error, decode_failure
from .json_array import JsonArrayReader
from .partial_reply import PartialGeminiReply
from .parts import (
    CONTINUATION_KIND,
    CONTINUATION_TOKEN,
    TOOL_NAMES,
    Block,
    decode_part,
    make_candidate_fields,
    make_opaque,
    normalise_arguments,
    to_camel_case,
)
from .usage import (
    CONTINUATION_STOP,
    add_grounding,
    build_reply,
    decode_usage,
    finish_reason,
    is_prompt_blocked,
)

_GROUNDING = "groundingMetadata"
_KEPT_METADATA = (_GROUNDING, "citationMetadata", "urlContextMetadata")
"""Members of a candidate besides its content that are kept."""
_KNOWN_FIELDS = frozenset({"candidates", "promptFeedback", "usageMetadata", "modelVersion", "responseId"})
_EMPTY_RAW = Raw()


class _GeminiChunkPart(Struct, gc=False, forbid_unknown_fields=True, rename="camel"):
    pass


class _TextOnlyPart(_GeminiChunkPart):
    text: str
    thought: bool = False


class _TextOnlyContent(_GeminiChunkPart):
    parts: list[_TextOnlyPart]
    role: str = ""


class _TextOnlyCandidate(_GeminiChunkPart):
    content: _TextOnlyContent
    index: int = 0
    safety_ratings: Raw = _EMPTY_RAW
    avg_logprobs: Raw = _EMPTY_RAW


class _TextOnlyChunk(_GeminiChunkPart):
    """A piece of a reply that contains only text."""

    candidates: list[_TextOnlyCandidate]
    usage_metadata: Raw = _EMPTY_RAW
    model_version: str = ""
    response_id: str = ""
    create_time: str = ""


class _RawPiece(Struct, rename="camel"):
    pass


class _RawCall(_RawPiece):
    args: Raw = _EMPTY_RAW


class _RawPart(_RawPiece):
    function_call: _RawCall | None = None


class _RawContent(_RawPiece):
    parts: list[_RawPart] = []


class _RawCandidate(_RawPiece):
    content: _RawContent | None = None


class _RawChunk(_RawPiece):
    """The location of the arguments of calls, to keep their original text."""

    candidates: list[_RawCandidate] = []


_decode_text_chunk = msgspec.json.Decoder(_TextOnlyChunk).decode
_decode_raw_chunk = msgspec.json.Decoder(_RawChunk).decode


class GeminiDecoder(BaseDecoder):
    end_marker = "finishReason"
    decode_failure = staticmethod(decode_failure)

    def __init__(
        self, model: Model, tools: Sequence[ToolSpec], status: int, headers: Mapping[str, str]
    ) -> None:
        super().__init__(status, headers)
        self._model = model
        self._names = TOOL_NAMES.renamed_tools(tools)
        self._growing = PartialGeminiReply()
        self._calls = 0
        self._meta: dict[str, Any] = {}
        self._fields: dict[str, Any] = {}
        self._counts: dict[str, Any] = {}
        self._latest_counts = _EMPTY_RAW

    @property
    def partial_text(self) -> str:
        return self._growing.text

    @property
    def partial_usage(self) -> Usage:
        self._update_counts()
        return replace(decode_usage(self._counts), incomplete=True)

    @property
    def _is_complete(self) -> bool:
        return bool(self._meta.get("finishReason")) or is_prompt_blocked(self._meta.get("promptFeedback"))

    def _build_reply(self) -> Reply:
        if isinstance(self._reader, JsonArrayReader) and not self._reader.closed:
            raise self._make_error("cut", "the stream ended before the array of its pieces did")
        return self._assemble_reply()

    def _select_reader(self, start: bytes) -> EventReader | None:
        return JsonArrayReader() if start == b"[" else super()._select_reader(start)

    def _assemble_reply(self) -> Reply:
        self._update_counts()
        reply = build_reply(self._build_parts(), self._meta, self._counts, self._model)
        reply = replace(reply, dropped_parts=self._growing.dropped)
        if _GROUNDING not in self._fields:
            return reply
        return replace(reply, usage=add_grounding(reply.usage, self._fields[_GROUNDING]))

    def _process_events(self, events: list[tuple[bytes, bytes]]) -> list[Delta]:
        deltas: list[Delta] = []
        for name, data in events:
            try:
                chunk = _decode_text_chunk(data)
            except (ValueError, RecursionError):
                self._process_event(name, data, deltas)
                continue
            if len(chunk.candidates) != 1 or chunk.candidates[0].index:
                self._process_event(name, data, deltas)
                continue
            for part in chunk.candidates[0].content.parts:
                if said := part.text:
                    self._growing.append_text(said, thought=part.thought)
                    deltas.append(ReasoningDelta(reasoning=said) if part.thought else TextDelta(text=said))
                elif part.thought:
                    self._growing.note_empty_reasoning()
            if chunk.usage_metadata is not _EMPTY_RAW:
                self._latest_counts = chunk.usage_metadata
            if chunk.response_id:
                self._meta["responseId"] = chunk.response_id
            if chunk.model_version:
                self._meta["modelVersion"] = chunk.model_version
        return deltas

    def _process_event(self, name: bytes, data: bytes, deltas: list[Delta]) -> None:
        chunk = self._parse_event(data) if data.strip() != DONE_EVENT else None
        if isinstance(chunk, dict):
            self._apply_chunk(chunk, data, deltas)

    def _apply_chunk(self, chunk: Block, data: bytes, deltas: list[Delta]) -> None:
        chunk = {to_camel_case(name): value for name, value in chunk.items() if value is not None}
        if "error" in chunk:
            raise ProviderError(classify_error(find_error_object(chunk) or {}, self._status))
        self._update_counts()
        if isinstance(counts := chunk.get("usageMetadata"), dict):
            self._counts.update(
                (to_camel_case(name), value) for name, value in counts.items() if value is not None
            )
        for name in ("responseId", "modelVersion"):
            if isinstance(said := chunk.get(name), str) and said:
                self._meta[name] = said
        if is_prompt_blocked(chunk.get("promptFeedback")):
            self._meta["promptFeedback"] = chunk["promptFeedback"]
        candidates = chunk.get("candidates")
        for place, candidate in enumerate(candidates if isinstance(candidates, list) else ()):
            if isinstance(candidate, dict) and not candidate.get("index"):
                self._apply_candidate(candidate, data, place, deltas)
                break

    def _apply_candidate(self, candidate: Block, data: bytes, place: int, deltas: list[Delta]) -> None:
        said = {to_camel_case(name): value for name, value in candidate.items() if value is not None}
        self._fields.update((name, said[name]) for name in _KEPT_METADATA if said.get(name))
        if reason := finish_reason(said.get("finishReason")):
            self._meta["finishReason"] = reason
            self._meta["finishMessage"] = said.get("finishMessage")
        if isinstance(token := said.get(CONTINUATION_TOKEN), str):
            self._meta[CONTINUATION_TOKEN] = token
        content = said.get("content")
        parts = content.get("parts") if isinstance(content, dict) else None
        blocks = [parts] if isinstance(parts, dict) else parts if isinstance(parts, list) else []
        arguments = _raw_arguments(data, place) if b'"functionCall"' in data else []
        for at, block in enumerate(blocks):
            if isinstance(block, dict):
                self._apply_part(block, arguments[at] if at < len(arguments) else None, deltas)

    def _apply_part(self, block: Block, arguments: str | None, deltas: list[Delta]) -> None:
        if block.keys() <= {"text", "thought"} and isinstance(said := block.get("text"), str):
            # A character may be split between two pieces, so they are repaired only after joining.
            if said:
                thought = block.get("thought") is True
                self._growing.append_text(said, thought=thought)
                shown = repair_surrogates(said)
                deltas.append(ReasoningDelta(reasoning=shown) if thought else TextDelta(text=shown))
            elif block.get("thought") is True:
                self._growing.note_empty_reasoning()
            return
        call = block.get("functionCall")
        if isinstance(call, dict) and (
            call.get("willContinue") is True or "partialArgs" in call or self._growing.open is not None
        ):
            at = self._growing.open.place if self._growing.open else self._growing.count
            part: Part | None = self._growing.append_call_piece(block)
        elif call == {} or all(value is None for value in block.values()):
            return  # the end marker of a call in pieces that never began, or an empty part
        else:
            part, at = decode_part(block, arguments), self._growing.count
            if isinstance(part, ToolResult):
                part = make_opaque(block)  # a model cannot answer a call, so this is kept as an opaque item
            self._growing.append_part(part)
        match part:
            case Text(text=said) if said:
                deltas.append(TextDelta(text=said))
            case Reasoning(text=said) if said:
                deltas.append(ReasoningDelta(reasoning=said))
            case ToolCall(name=name, arguments=given):
                name = self._names.get(name, name)
                deltas.append(ToolCallDelta(index=at, name=name, arguments=given))
                # The call is complete: it came whole, or this was its last piece.
                deltas.append(CallReady(index=self._calls, call=replace(part, name=name)))
                self._calls += 1

    def _update_counts(self) -> None:
        """Update the counts; null values do not overwrite, because counts are running totals."""
        if self._latest_counts is not _EMPTY_RAW:
            counts, self._latest_counts = loads(bytes(self._latest_counts)), _EMPTY_RAW
            if isinstance(counts, dict):
                self._counts.update((name, value) for name, value in counts.items() if value is not None)

    def _build_parts(self) -> list[Part]:
        parts = [self._restore_tool_name(part) for part in self._growing.build_parts()]
        if self._fields and any(map(_has_citable_content, parts)):
            parts.append(make_candidate_fields(self._fields))
        if self._meta.get("finishReason") == CONTINUATION_STOP and (
            token := self._meta.get(CONTINUATION_TOKEN)
        ):
            parts.append(Opaque(kind=CONTINUATION_KIND, native=dumps({CONTINUATION_TOKEN: token}).decode()))
        return parts

    def _restore_tool_name(self, part: Part) -> Part:
        """Return a call with its tool's original name; other parts unchanged."""
        return restore_name(part, self._names) if isinstance(part, ToolCall) else part

    def _decode_body(self, body: bytes) -> Reply:
        """Decode a complete reply, which may lack a finish reason."""
        reply = self._parse_body(body)
        if not isinstance(reply, dict):
            raise self._unrecognised_reply(body)
        if "error" not in reply and _KNOWN_FIELDS.isdisjoint(map(to_camel_case, reply)):
            if (error := find_error_object(reply)) is not None:
                raise ProviderError(classify_error(error, self._status))
            raise self._unrecognised_reply(body)
        self._apply_chunk(reply, body, [])
        return self._assemble_reply()


def _has_citable_content(part: Part) -> bool:
    """Return True if a part can have a source: reasoning and signatures alone cannot."""
    return bool(part.text.strip()) if isinstance(part, Text) else not isinstance(part, Reasoning)


def _raw_arguments(data: bytes, place: int) -> list[str | None]:
    """Return the original text of each part's call arguments; None where there are none."""
    try:
        content = _decode_raw_chunk(data).candidates[place].content
    except (ValueError, RecursionError, IndexError):
        return []
    calls = [part.function_call for part in content.parts] if content else []
    return [
        normalise_arguments(bytes(call.args)) if call and bytes(call.args) not in (b"", b"null") else None
        for call in calls
    ]
