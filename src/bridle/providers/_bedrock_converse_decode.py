"""Replies of Bedrock Converse, from bytes in any slices: JSON, or frames of events.

A stream is a reply only once `messageStop` has arrived; before that it is cut, however much was said.
The counts come after it, or never.  The name of an event says what it is; exceptions come as messages of
their own kind and end the stream.  Unknown events and members, and the padding the provider puts into
every event, are passed over; unknown blocks and their deltas are kept.  An event that cannot be read at
all is an error, because it may have been part of what was said.

Text deltas take a short road of their own: one typed parse, one append, one delta.  Everything else is
rare and goes through `_happened`, which looks before it touches.
"""

from collections.abc import Mapping
from itertools import chain
from typing import Any

import msgspec
from msgspec.structs import replace

from ..values.delta import Delta, ReasoningDelta, TextDelta, ToolCallDelta
from ..values.errors import Failure, FailureKind, ProviderError
from ..values.message import Reply
from ..values.model import Model
from ..values.parts import Part, ToolCall
from ..values.usage import Usage
from ._bedrock_converse_blocks import Block
from ._bedrock_converse_ends import LENGTH_WORD, reply_of, usage_of
from ._bedrock_converse_failures import failure_from, failure_of
from ._bedrock_converse_growing import ANNOUNCED, CALL, TEXT, THOUGHT, OpenBlock, part_in
from ._eventstream import MESSAGE_BYTES_MAX, EventStreamReader, Frame
from ._failures import error_in, stranger
from ._json import elements, loads, members, mended, whole
from ._ready import ReadyCalls, leave_open

BODY_BYTES_MAX = 64 * 1024 * 1024
"""As for one message of a stream: nothing real comes near it."""
ERROR_BYTES_MAX = 1024 * 1024
"""What is read of an error page; the rest would tell nobody more."""

ID_HEADER = "x-amzn-requestid"
_DELTA = b"contentBlockDelta"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_BLANK = b" \t\r\n" + _BYTE_ORDER_MARK
_LENGTH_MAX = MESSAGE_BYTES_MAX // 2**24 + 1
"""A frame begins with its length, which has an upper limit.  No text begins with so small a byte."""
_BEGUN_BY = {"text": TEXT, "citation": TEXT}
"""The kind of the block a delta begins, when nothing announced it and it is not the delta's own."""
_PIECES = {*_BEGUN_BY, *ANNOUNCED, THOUGHT}
"""What blocks are made of, as far as anybody knows."""


class _Words(msgspec.Struct, gc=False):
    input: str = ""
    text: str = ""


class _Delta(msgspec.Struct, gc=False, rename="camel"):
    text: str = ""
    tool_use: _Words | None = None
    reasoning_content: _Words | None = None


class _Event(msgspec.Struct, gc=False, rename="camel"):
    content_block_index: int = -1
    delta: _Delta | None = None


_decode_event = msgspec.json.Decoder(_Event).decode


class BedrockConverseDecoder:
    def __init__(self, model: Model, status: int, headers: Mapping[str, str]) -> None:
        self._model, self._status, self._headers = model, status, headers
        self._reader: EventStreamReader | None = None
        self._sniffed = not 200 <= status < 300
        self._body: list[bytes] = []
        self._body_size = 0
        self._meta: dict[str, Any] = {}
        self._blocks: list[OpenBlock] = []
        self._open: dict[int, OpenBlock] = {}
        self._ready = ReadyCalls()
        self._stopped = False
        self._failure: Failure | None = None

    @property
    def partial(self) -> str:
        said = (block.pieces for block in self._blocks if block.kind == TEXT)
        return mended("".join(chain.from_iterable(said)))

    @property
    def counted(self) -> Usage:
        return replace(usage_of(self._meta.get("usage")), incomplete=True)

    def feed(self, data: bytes) -> list[Delta]:
        if self._failure is not None:
            raise ProviderError(self._failure)
        try:
            if data and not self._sniffed:
                # What the headers claim may be wrong or missing, the first byte is not.
                self._reader = EventStreamReader() if data[0] < _LENGTH_MAX else None
                self._sniffed = True
            if self._reader is None:
                self._hold(data)
                return []
            return self._take(self._reader.frames(data))
        except ProviderError as error:
            self._failure = error.failure
            raise

    def close(self) -> Reply:
        if self._failure is not None:
            raise ProviderError(self._failure)
        if not 200 <= self._status < 300:
            raise ProviderError(failure_of(self._status, self._headers, b"".join(self._body)))
        if self._reader is None:
            return self._from_json(b"".join(self._body))
        if not self._stopped:
            raise self._problem("cut", "the stream ended before the reply did: no messageStop arrived")
        return self._reply(self._parts())

    def _hold(self, data: bytes) -> None:
        limit = BODY_BYTES_MAX if 200 <= self._status < 300 else ERROR_BYTES_MAX
        if self._body_size + len(data) <= limit:
            self._body.append(data)
            self._body_size += len(data)
        elif limit == BODY_BYTES_MAX:
            raise self._problem("garbled", f"the provider sent a reply of more than {limit} bytes")

    def _take(self, frames: list[Frame]) -> list[Delta]:
        deltas: list[Delta] = []
        for frame in frames:
            if frame.name != _DELTA or not self._quick(frame.data, deltas):
                self._read(frame, deltas)
        return deltas

    def _quick(self, data: bytes, deltas: list[Delta]) -> bool:
        """The short road; whether it could be taken."""
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
        elif kind == THOUGHT and delta.reasoning_content and (said := delta.reasoning_content.text):
            block.pieces.append(said)
            deltas.append(ReasoningDelta(reasoning=said))
        elif kind == CALL and delta.tool_use and (said := delta.tool_use.input):
            block.pieces.append(said)
            if block.is_call:
                deltas.append(ToolCallDelta(index=block.place, name=block.name, arguments=said))
        else:
            return False
        return True

    def _read(self, frame: Frame, deltas: list[Delta]) -> None:
        name = frame.name.decode("utf-8", "replace")
        if self._stopped and name != "metadata":
            return
        try:
            event = loads(frame.data) if frame.data.strip() else {}
            if not isinstance(event, dict):
                raise ValueError("it is no object")
        except ValueError as error:
            if self._stopped:
                return  # everything was said; only the counts are lost
            raise self._problem(
                "garbled", f"the provider sent an event that cannot be read ({error})"
            ) from None
        if frame.failed:
            raise ProviderError(failure_from(name, {**event, **(error_in(event) or {})}, self._status))
        self._happened(name, event, deltas)

    def _happened(self, name: str, event: dict[str, Any], deltas: list[Delta]) -> None:
        match name:
            case "metadata":
                self._note(event)
            case "messageStart":
                # A gateway that tries again begins again: two attempts are never one reply.
                self._blocks, self._open, self._meta, self._ready = [], {}, {}, ReadyCalls()
            case "contentBlockStart" if isinstance(event.get("start"), dict):
                deltas += self._ready.more()
                for kind, stub in event["start"].items():
                    if kind in ANNOUNCED and isinstance(stub, dict):
                        self._begin(whole(event.get("contentBlockIndex")), kind, stub)
            case "contentBlockDelta":
                self._delta(whole(event.get("contentBlockIndex")), event.get("delta"), deltas)
            case "contentBlockStop" if (index := whole(event.get("contentBlockIndex"))) is not None:
                block = self._open.pop(index, None)
                if block is not None and block.is_call:
                    part = block.part(last_and_cut=False)
                    if isinstance(part, ToolCall):
                        sure = bool(block.pieces or block.stub.get("input"))
                        deltas += self._ready.end(block.call, part, sure=sure)
            case "messageStop":
                self._note(event)
                self._stopped = True
                self._open.clear()

    def _begin(self, index: int | None, kind: str, stub: Block) -> OpenBlock:
        if index is None:
            raise self._problem("garbled", "the provider began a block without saying which")
        block = self._open[index] = OpenBlock(kind, stub, len(self._blocks))
        self._blocks.append(block)
        if block.is_call:
            block.call = self._ready.begin()
        return block

    def _delta(self, index: int | None, said: object, deltas: list[Delta]) -> None:
        pieces = (
            {kind: piece for kind, piece in said.items() if piece is not None}
            if isinstance(said, dict)
            else {}
        )
        block = self._open.get(index) if index is not None else None
        if block is not None and block.is_call and not isinstance(pieces.get(CALL), dict):
            # A piece that is not there may have been part of the arguments.
            raise self._problem("garbled", f"the provider continued call {index!r} with nothing of a call")
        # What is known begins a block before what is not: a member of next year must not hide it.
        for kind in sorted(pieces, key=lambda kind: kind not in _PIECES):
            self._grow(index, kind, pieces[kind], deltas)

    def _grow(self, index: int | None, kind: str, value: Any, deltas: list[Delta]) -> None:
        """A delta off the short road: the first of its block, a rare kind, half a character."""
        block = self._open.get(index) if index is not None else None
        if block is None:
            if kind == CALL:
                raise self._problem("garbled", f"the provider continued call {index!r}, which it never began")
            block = self._begin(index, _BEGUN_BY.get(kind, kind), {})
        if (said := block.add(kind, value)) and (seen := block.shown(mended(said))) is not None:
            deltas.append(seen)

    def _note(self, said: dict[str, Any]) -> None:
        self._meta.update((name, value) for name, value in said.items() if value is not None)

    def _parts(self) -> list[Part]:
        cut = self._meta.get("stopReason") == LENGTH_WORD
        last = len(self._blocks) - 1
        try:
            return [block.part(last_and_cut=cut and block.place == last) for block in self._blocks]
        except (ValueError, TypeError) as error:
            raise self._problem(
                "garbled", f"the provider sent a block that cannot be read ({error})"
            ) from None

    def _reply(self, parts: list[Part]) -> Reply:
        return reply_of(parts, self._meta, self._model, self._headers.get(ID_HEADER, ""))

    def _from_json(self, body: bytes) -> Reply:
        try:
            top = members(body.removeprefix(_BYTE_ORDER_MARK))
            self._note({name: loads(value) for name, value in top.items() if name != "output"})
            if "output" in top:
                content = elements(members(members(top["output"])["message"])["content"])
                cut = self._meta.get("stopReason") == LENGTH_WORD
                return self._reply(leave_open([part_in(block) for block in content], cut=cut))
        except (ValueError, KeyError):
            if not body.strip():
                raise self._problem("cut", "the provider's reply was empty") from None
        raise ProviderError(self._no_message(body))

    def _no_message(self, body: bytes) -> Failure:
        try:
            envelope = loads(body)
        except ValueError:
            if body.lstrip(_BLANK)[:1] in (b"{", b"["):
                return self._problem("cut", "the reply ended before it was complete").failure
            envelope = None
        if (error := error_in(envelope)) is not None:
            exception = envelope.get("__type") if isinstance(envelope, dict) else ""
            named = exception if isinstance(exception, str) else ""
            return failure_from(named, error, self._status)
        return stranger(self._status, "message of this provider", body)

    def _problem(self, kind: FailureKind, message: str) -> ProviderError:
        return ProviderError(Failure(kind=kind, message=message, status=self._status))
