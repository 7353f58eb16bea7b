"""Decodes replies of Bedrock Converse: JSON, or frames of events.

A stream is a reply only after `messageStop`; until then it is truncated, however much has arrived. The counts
come after it, or never. The name of an event determines its type; exceptions are messages of their own kind
and end the stream. Unknown events and members, and the padding that the provider adds to every event, are
skipped; unknown blocks and their deltas are kept. An unreadable event is an error, because it may have been
part of the reply.

Text deltas take a fast path: one typed parse, one append, one delta. Everything else is rare and goes through
`_process_event`, which checks before it changes anything.
"""

from collections.abc import Mapping
from itertools import chain
from typing import Any

import msgspec
from msgspec.structs import replace

from bridle.providers.wire.decoder import BaseDecoder, CompletedCalls, EventReader, leave_open
from bridle.providers.wire.eventstream import MESSAGE_BYTES_MAX, EventFrame, EventStreamReader
from bridle.providers.wire.failures import find_error_object
from bridle.providers.wire.json import (
    loads,
    parse_integer,
    repair_surrogates,
    split_array,
    split_object,
    text_or_empty,
)
from bridle.values.errors import ProviderError
from bridle.values.message import Part, Reply, ToolCall
from bridle.values.model import Model
from bridle.values.result import Delta, ReasoningDelta, TextDelta, ToolCallDelta
from bridle.values.usage import Usage

from .failures import classify_error, decode_failure
from .partial_reply import CALL, REASONING, STARTED_BLOCKS, TEXT, PartialBedrockBlock, decode_whole_block
from .parts import Block
from .usage import LENGTH_STOP, build_reply, decode_usage

ID_HEADER = "x-amzn-requestid"
_DELTA_EVENT = b"contentBlockDelta"
# not from outside: how far a text or a schema is searched, which has its own limit
_LENGTH_MAX = MESSAGE_BYTES_MAX // 2**24 + 1
"""A frame begins with its length, which has an upper limit. No text begins with so small a byte."""
_STARTS_BLOCK = {"text": TEXT, "citation": TEXT}
"""The kind of block that a delta without a start event begins, if it differs from the delta's own."""
_KNOWN_PIECES = {*_STARTS_BLOCK, *STARTED_BLOCKS, REASONING}
"""All known kinds of pieces."""


class _BedrockText(msgspec.Struct, gc=False):
    input: str = ""
    text: str = ""


class _BedrockDelta(msgspec.Struct, gc=False, rename="camel"):
    text: str = ""
    tool_use: _BedrockText | None = None
    reasoning_content: _BedrockText | None = None


class _BedrockEvent(msgspec.Struct, gc=False, rename="camel"):
    content_block_index: int = -1
    delta: _BedrockDelta | None = None


_decode_event = msgspec.json.Decoder(_BedrockEvent).decode


class _FrameReader:
    """Reads whole frames: an exception in a stream is a frame of its own kind."""

    def __init__(self) -> None:
        reader = EventStreamReader()
        self.feed, self.close = reader.frames, reader.close


class BedrockDecoder(BaseDecoder):
    expected_content = "message of this provider"
    end_marker = "messageStop"
    decode_failure = staticmethod(decode_failure)

    def __init__(self, model: Model, status: int, headers: Mapping[str, str]) -> None:
        super().__init__(status, headers)
        self._model = model
        self._meta: dict[str, Any] = {}
        self._blocks: list[PartialBedrockBlock] = []
        self._open: dict[int, PartialBedrockBlock] = {}
        self._ready = CompletedCalls()
        self._stopped = False

    @property
    def partial_text(self) -> str:
        said = (block.pieces for block in self._blocks if block.kind == TEXT)
        return repair_surrogates("".join(chain.from_iterable(said)))

    @property
    def partial_usage(self) -> Usage:
        return replace(decode_usage(self._meta.get("usage")), incomplete=True)

    @property
    def _is_complete(self) -> bool:
        return self._stopped

    def _select_reader(self, start: bytes) -> EventReader | None:
        return _FrameReader() if start[0] < _LENGTH_MAX else None

    def _process_events(self, events: list[EventFrame]) -> list[Delta]:
        deltas: list[Delta] = []
        for name, data, failed in events:
            if name != _DELTA_EVENT or not self._process_fast(data, deltas):
                self._process_event(name, data, deltas, failed=failed)
        return deltas

    def _process_fast(self, data: bytes, deltas: list[Delta]) -> bool:
        """Process an event on the fast path; return False if it needs the slow one."""
        try:
            event = _decode_event(data)
        except (ValueError, RecursionError):
            return False
        block, delta = self._open.get(event.content_block_index), event.delta
        if block is None or delta is None:
            return False
        kind = block.kind
        if kind == TEXT and (said := delta.text):
            block.pieces.append(said)
            deltas.append(TextDelta(text=said))
        elif kind == REASONING and delta.reasoning_content and (said := delta.reasoning_content.text):
            block.pieces.append(said)
            deltas.append(ReasoningDelta(reasoning=said))
        elif kind == CALL and delta.tool_use and (said := delta.tool_use.input):
            block.pieces.append(said)
            if block.is_call:
                deltas.append(ToolCallDelta(index=block.place, name=block.name, arguments=said))
        else:
            return False
        return True

    def _process_event(self, name: bytes, data: bytes, deltas: list[Delta], *, failed: bool = False) -> None:
        kind = name.decode("utf-8", "replace")
        if self._stopped and kind != "metadata":
            return
        try:
            event = loads(data) if data.strip() else {}
            if not isinstance(event, dict):
                raise ValueError("it is not an object")
        except ValueError as error:
            if self._stopped:
                return  # the reply is complete; only the counts are lost
            message = f"the provider sent an event that cannot be read ({error})"
            raise self._make_error("garbled", message) from None
        if failed:
            error_object = {**event, **(find_error_object(event) or {})}
            raise ProviderError(classify_error(kind, error_object, self._status))
        self._apply_event(kind, event, deltas)

    def _apply_event(self, name: str, event: dict[str, Any], deltas: list[Delta]) -> None:
        match name:
            case "metadata":
                self._update_metadata(event)
            case "messageStart":
                # A gateway that retries starts again: two attempts are never joined.
                self._blocks, self._open, self._meta, self._ready = [], {}, {}, CompletedCalls()
            case "contentBlockStart" if isinstance(event.get("start"), dict):
                deltas += self._ready.release_held()
                for kind, stub in event["start"].items():
                    if kind in STARTED_BLOCKS and isinstance(stub, dict):
                        self._start_block(parse_integer(event.get("contentBlockIndex")), kind, stub)
            case "contentBlockDelta":
                self._apply_delta(parse_integer(event.get("contentBlockIndex")), event.get("delta"), deltas)
            case "contentBlockStop" if (index := parse_integer(event.get("contentBlockIndex"))) is not None:
                block = self._open.pop(index, None)
                if block is not None and block.is_call:
                    part = block.build_part(last_and_cut=False)
                    if isinstance(part, ToolCall):
                        sure = bool(block.pieces or block.stub.get("input"))
                        deltas += self._ready.end_call(block.call, part, sure=sure)
            case "messageStop":
                self._update_metadata(event)
                self._stopped = True
                self._open.clear()

    def _start_block(self, index: int | None, kind: str, stub: Block) -> PartialBedrockBlock:
        if index is None:
            raise self._make_error("garbled", "the provider began a block without saying which")
        block = self._open[index] = PartialBedrockBlock(kind, stub, len(self._blocks))
        self._blocks.append(block)
        if block.is_call:
            block.call = self._ready.start_call()
        return block

    def _apply_delta(self, index: int | None, said: object, deltas: list[Delta]) -> None:
        pieces = (
            {kind: piece for kind, piece in said.items() if piece is not None}
            if isinstance(said, dict)
            else {}
        )
        block = self._open.get(index) if index is not None else None
        if block is not None and block.is_call and not isinstance(pieces.get(CALL), dict):
            # The missing piece may have been part of the arguments.
            raise self._make_error("garbled", f"the provider continued call {index!r} with nothing of a call")
        # Known members come first, so that a member added to the wire later cannot hide them.
        for kind in sorted(pieces, key=lambda kind: kind not in _KNOWN_PIECES):
            self._append_piece(index, kind, pieces[kind], deltas)

    def _append_piece(self, index: int | None, kind: str, value: Any, deltas: list[Delta]) -> None:
        """Append a piece outside the fast path: the first of its block, a rare kind, half a character."""
        block = self._open.get(index) if index is not None else None
        if block is None:
            if kind == CALL:
                raise self._make_error(
                    "garbled", f"the provider continued call {index!r}, which it never began"
                )
            block = self._start_block(index, _STARTS_BLOCK.get(kind, kind), {})
        if (said := block.append(kind, value)) and (
            seen := block.make_delta(repair_surrogates(said))
        ) is not None:
            deltas.append(seen)

    def _update_metadata(self, said: dict[str, Any]) -> None:
        self._meta.update((name, value) for name, value in said.items() if value is not None)

    def _build_parts(self) -> list[Part]:
        cut = self._meta.get("stopReason") == LENGTH_STOP
        last = len(self._blocks) - 1
        try:
            return [block.build_part(last_and_cut=cut and block.place == last) for block in self._blocks]
        except (ValueError, TypeError) as error:
            raise self._make_error(
                "garbled", f"the provider sent a block that cannot be read ({error})"
            ) from None

    def _build_reply(self) -> Reply:
        return self._make_reply(self._build_parts())

    def _make_reply(self, parts: list[Part]) -> Reply:
        return build_reply(parts, self._meta, self._model, self._headers.get(ID_HEADER, ""))

    def _decode_body(self, body: bytes) -> Reply:
        try:
            top = split_object(body)
            self._update_metadata({name: loads(value) for name, value in top.items() if name != "output"})
            content = split_array(split_object(split_object(top["output"])["message"])["content"])
            cut = self._meta.get("stopReason") == LENGTH_STOP
            return self._make_reply(leave_open([decode_whole_block(block) for block in content], cut=cut))
        except (ValueError, KeyError):
            envelope = self._parse_body(body)
        error = find_error_object(envelope)
        if error is None:
            raise self._unrecognised_reply(body)
        named = text_or_empty(envelope.get("__type")) if isinstance(envelope, dict) else ""
        raise ProviderError(classify_error(named, error, self._status))
