"""Replies of Anthropic, from bytes in any slices: JSON, server-sent events, and the frames another
cloud puts around the same events.

A stream is a reply only once a `message_delta` has told why it stopped: the last counts come with that,
and nothing is said after it.  Before that it is cut, however much was said.  The JSON of an event says
what it is, not the name in front of it.  Pings, unknown events and unknown members are passed over;
unknown blocks and their deltas are kept.  An event that cannot be read at all is an error, because it may
have been part of what was said.

Text deltas take a short road of their own: one typed parse, one append, one delta.  Everything
else is rare and goes through `_happened`, which looks before it touches.
"""

from base64 import b64decode
from collections.abc import Mapping
from itertools import chain
from typing import Any

import msgspec
from msgspec.structs import replace

from ..values.delta import Delta, ReasoningDelta, TextDelta, ToolCallDelta
from ..values.errors import Failure, ProviderError
from ..values.message import Reply
from ..values.model import Model
from ..values.parts import Part, ToolCall
from ..values.usage import Usage
from ._anthropic_blocks import FALLBACK, Block, part_of
from ._anthropic_ends import LENGTH_WORD, reply_of, usage_of
from ._anthropic_failures import failure_from, failure_of
from ._anthropic_growing import (
    NO_INPUT,
    PIECE_IN,
    OpenBlock,
    check_blocks,
    elements,
    part_in,
    runnable,
    shown,
    type_of_delta,
)
from ._eventstream import EventStreamReader
from ._failures import error_in
from ._json import loads, members, mended, whole
from ._ready import ReadyCalls, leave_open
from ._shell import DONE, DecoderShell

_SAID_IN = {"text_delta": "text", "thinking_delta": "thinking"}
"""Where a delta, and the beginning of a block, have what is said; input comes in deltas only."""
_FRAMED = "application/vnd.amazon.eventstream"


class _Delta(msgspec.Struct, gc=False):
    type: str = ""
    text: str = ""
    partial_json: str = ""
    thinking: str = ""


class _Event(msgspec.Struct, gc=False):
    type: str = ""
    index: int = -1
    delta: _Delta | None = None


_decode_event = msgspec.json.Decoder(_Event).decode
_UNREAD = _Event()
"""Stands for an event that the typed parse refuses; the tolerant one has another look at it."""


class AnthropicDecoder(DecoderShell):
    wanted = "message of this provider"
    ending = "stop reason"

    def __init__(self, model: Model, status: int, headers: Mapping[str, str]) -> None:
        super().__init__(status, headers)
        self._model = model
        if not self._sniffed and headers.get("content-type", "").startswith(_FRAMED):
            self._reader, self._sniffed = EventStreamReader(), True
        self._meta: dict[str, Any] = {}
        self._usage: dict[str, Any] = {}
        self._blocks: list[OpenBlock] = []
        self._open: dict[int, OpenBlock] = {}
        self._given: list[Part] = []
        self._started = self._reasoned = self._stopped = False
        self._ready = ReadyCalls()

    @property
    def partial(self) -> str:
        said = (block.pieces for block in self._blocks if block.delta_type == "text_delta")
        return mended("".join(chain.from_iterable(said)))

    @property
    def counted(self) -> Usage:
        return replace(usage_of(self._usage), incomplete=True)

    @property
    def _is_over(self) -> bool:
        return self._stopped or self._reasoned

    def _told(self) -> Reply:
        if not self._started:
            raise self._problem("garbled", "the provider ended a reply that it never began")
        return reply_of(self._parts(), self._meta, self._usage, self._model)

    def _refusal(self, body: bytes) -> Failure:
        return failure_of(self._status, self._headers, body)

    def _take(self, events: list[tuple[bytes, bytes]]) -> list[Delta]:
        deltas: list[Delta] = []
        for name, data in events:
            try:
                event = _decode_event(data)
            except (ValueError, RecursionError):
                event = _UNREAD
            block, delta = self._open.get(event.index), event.delta
            if (
                block is None
                or delta is None
                or delta.type != block.delta_type
                or event.type != "content_block_delta"
            ):
                self._read(name, data, deltas)
            elif delta.type == "text_delta":
                if said := delta.text:
                    block.pieces.append(said)
                    deltas.append(TextDelta(text=said))
            elif delta.type == "thinking_delta":
                if said := delta.thinking:
                    block.pieces.append(said)
                    deltas.append(ReasoningDelta(reasoning=said))
            elif said := delta.partial_json:
                block.pieces.append(said)
                if block.is_call:
                    deltas.append(ToolCallDelta(index=block.place, name=block.name, arguments=said))
            else:
                self._read(name, data, deltas)
        return deltas

    def _read(self, name: bytes, data: bytes, deltas: list[Delta]) -> None:
        if data.strip() == DONE:
            return
        try:
            event = loads(data)
            if isinstance(event, dict) and "bytes" in event and "type" not in event:
                data = b64decode(event["bytes"])
                event = loads(data)
            if isinstance(event, dict) and not self._stopped:
                kind = event.get("type")
                kind = kind if isinstance(kind, str) else name.decode("utf-8", "replace")
                self._happened(kind, event, data, deltas)
        except (ValueError, TypeError) as error:
            raise self._problem(
                "garbled", f"the provider sent an event that cannot be read ({error})"
            ) from None

    def _happened(self, kind: str, event: dict[str, Any], data: bytes, deltas: list[Delta]) -> None:
        match kind:
            case "message_start" if isinstance(event.get("message"), dict):
                # A gateway that tries again begins again: two attempts are never one reply.
                self._blocks, self._open, self._meta, self._usage = [], {}, {}, {}
                self._ready = ReadyCalls()
                self._started, self._reasoned = True, False
                self._note(event["message"])
                blocks = elements(members(members(data)["message"]).get("content", b"[]"))
                self._given = [part_in(block) for block in blocks or ()]
            case "content_block_start" if isinstance(event.get("content_block"), dict):
                stub = event["content_block"]
                if stub.get("type") == FALLBACK:
                    # The calls before it are not to be run: those after it are the first ones of the reply.
                    self._ready = ReadyCalls()
                deltas += self._ready.more()
                check_blocks([stub])
                given = (
                    members(members(data)["content_block"])["input"].decode("utf-8", "replace")
                    if stub.get("input")
                    else NO_INPUT
                )
                block = self._begin(whole(event.get("index")), stub, given)
                self._say(block, stub.get(_SAID_IN.get(block.delta_type or "", "")), deltas)
            case "content_block_delta":
                if not isinstance(event.get("delta"), dict):
                    raise ValueError("a content_block_delta has no delta")
                self._grow(whole(event.get("index")), event["delta"], deltas)
            case "content_block_stop" if (index := whole(event.get("index"))) is not None:
                self._end(self._open.get(index), deltas)
            case "message_delta":
                if isinstance(event.get("delta"), dict):
                    self._note(event["delta"])
                    self._reasoned = self._reasoned or bool(event["delta"].get("stop_reason"))
                self._note({"usage": event.get("usage")})
            case "message_stop":
                self._stopped = True
                self._open.clear()
            case "error":
                raise ProviderError(failure_from(error_in(event) or {}, self._status))
            case _ if kind.lower().endswith("exception"):
                raise ProviderError(failure_from({"type": kind, **event}, self._status))

    def _begin(self, index: int | None, stub: Block, input_text: str) -> OpenBlock:
        block = OpenBlock(stub, len(self._blocks), input_text)
        if block.is_call:
            block.call = self._ready.begin()
        self._blocks.append(block)
        if index is not None:
            self._open[index] = block
        return block

    def _end(self, block: OpenBlock | None, deltas: list[Delta]) -> None:
        if block is None or block.call < 0:
            return
        index, block.call = block.call, -1
        part = block.part(last_and_cut=False)
        if isinstance(part, ToolCall):
            deltas += self._ready.end(index, part, sure=bool(block.pieces) or block.input_text != NO_INPUT)

    def _grow(self, index: int | None, delta: dict[str, Any], deltas: list[Delta]) -> None:
        """A delta off the short road: a rare type, a value of the wrong type, half a character."""
        if index is None:
            raise self._problem("garbled", "the provider continued a block without saying which")
        block, said_as = self._open.get(index), type_of_delta(delta)
        if block is None:
            # Some compatible servers do not announce plain words; nothing else can be understood unannounced.
            kind = _SAID_IN.get(said_as)
            if kind is None:
                raise self._problem("garbled", f"the provider continued block {index}, which it never began")
            block = self._begin(index, {"type": kind, kind: ""}, NO_INPUT)
        if said_as in PIECE_IN and block.delta_type is None:
            block.delta_type = said_as
        match said_as:
            case block.delta_type if block.delta_type:
                inside = PIECE_IN[block.delta_type or ""]
                said = delta.get(inside)
                if block.is_call and (inside not in delta or not isinstance(said, str | None)):
                    raise ValueError("a piece of a call's arguments has no text")
                self._say(block, said, deltas)
            case "input_json_delta":
                raise ValueError(f"arguments were sent for a block of type {block.stub.get('type')!r}")
            case "text_delta" | "thinking_delta" if block.is_call:
                raise ValueError(f"words were sent for the call of {block.name!r}; they may be its arguments")
            case "citations_delta" if "citation" in delta:
                had = block.stub.get("citations")
                block.stub["citations"] = [*(had if isinstance(had, list) else ()), delta["citation"]]
            case str():
                for name, value in delta.items():
                    had = block.stub.get(name)
                    if name != "type" and isinstance(value, str):
                        block.stub[name] = had + value if isinstance(had, str) else value

    def _say(self, block: OpenBlock, said: object, deltas: list[Delta]) -> None:
        if isinstance(said, str) and said:
            block.pieces.append(said)
            if (seen := shown(block, mended(said))) is not None:
                deltas.append(seen)

    def _note(self, said: dict[str, Any]) -> None:
        """Later words replace earlier ones, and null takes nothing back: counts are totals so far."""
        usage = said.get("usage")
        if isinstance(usage, dict):
            self._usage.update((name, value) for name, value in usage.items() if value is not None)
        self._meta.update((name, value) for name, value in said.items() if value is not None)

    def _parts(self) -> tuple[Part, ...]:
        cut = self._meta.get("stop_reason") == LENGTH_WORD
        last = len(self._blocks) - 1
        try:
            grown = [block.part(last_and_cut=cut and block.place == last) for block in self._blocks]
            return runnable(grown or self._given)
        except ValueError as error:
            raise self._problem(
                "garbled", f"the provider sent a block that cannot be read ({error})"
            ) from None

    def _from_json(self, body: bytes) -> Reply:
        try:
            top = members(body)
            self._note({name: loads(value) for name, value in top.items() if name != "content"})
            failed = self._meta.get("type") == "error" or "error" in self._meta
            content = elements(top["content"]) if "content" in top and not failed else None
            if content is not None:
                cut = self._meta.get("stop_reason") == LENGTH_WORD
                parts = runnable(leave_open([part_in(block) for block in content], cut=cut))
                return reply_of(parts, self._meta, self._usage, self._model)
            # How the same models spoke before there were messages; one cloud still does.
            if isinstance(said := self._meta.get("completion"), str):
                text = part_of({"type": "text", "text": said})
                return reply_of((text,), self._meta, self._usage, self._model)
        except ValueError as error:
            raise self._no_message(body) from error
        raise self._no_message(body)

    def _no_message(self, body: bytes) -> ProviderError:
        if (error := error_in(self._whole(body))) is not None:
            return ProviderError(failure_from(error, self._status))
        return self._stranger(body)
