"""Decodes replies of Anthropic: JSON, server-sent events, and AWS event frames.

A stream is a reply only after a `message_delta` with the stop reason: the final counts come with it, and no
content follows. Until then the reply is truncated, however much has arrived. The JSON of an event determines
its type, not the SSE name. Pings, unknown events and unknown members are skipped; unknown blocks and their
deltas are kept. An unreadable event is an error, because it may have been part of the reply.

Text deltas take a fast path: one typed parse, one append, one delta. Everything else is rare and goes through
`_process_event`, which checks before it changes anything.
"""

from base64 import b64decode
from collections.abc import Mapping
from itertools import chain
from typing import Any

import msgspec
from msgspec.structs import replace

from bridle.providers.wire.decoder import DONE_EVENT, BaseDecoder, CompletedCalls, leave_open
from bridle.providers.wire.eventstream import EventStreamReader
from bridle.providers.wire.failures import find_error_object
from bridle.providers.wire.json import drop_nulls, loads, parse_integer, repair_surrogates, split_object
from bridle.values.errors import ProviderError
from bridle.values.message import Part, Reply, ToolCall
from bridle.values.model import Model
from bridle.values.result import Delta, ReasoningDelta, TextDelta, ToolCallDelta
from bridle.values.usage import Usage

from .failures import classify_error, decode_failure
from .partial_reply import (
    DELTA_MEMBERS,
    EMPTY_INPUT,
    PartialAnthropicBlock,
    check_block_type,
    decode_whole_blocks,
    disarm_declined_calls,
    find_delta_type,
    make_delta,
)
from .parts import FALLBACK, Block, decode_part
from .usage import LENGTH_STOP, build_reply, decode_usage
from .usual_reply import decode_usual_reply

_TEXT_MEMBERS = {"text_delta": "text", "thinking_delta": "thinking"}
"""The member of a delta, and of the start of a block, that holds text; input comes in deltas only."""
_METADATA = (
    "id", "type", "model", "error", "completion", "stop_reason", "stop_sequence", "stop_details", "diagnostics",
    "input_transformations",
)  # fmt: skip
"""The members of a message, besides content and usage, that decide about the reply."""
_EVENTSTREAM_TYPE = "application/vnd.amazon.eventstream"
_LARGE_EVENTS = frozenset({b"message_start", b"content_block_start", b"message_delta"})
"""Names of events that have members besides those of the typed parse."""


class _AnthropicDelta(msgspec.Struct, gc=False):
    type: str = ""
    text: str = ""
    partial_json: str = ""
    thinking: str = ""


class _AnthropicEvent(msgspec.Struct, gc=False):
    type: str = ""
    index: int | None = None
    delta: _AnthropicDelta | None = None


_decode_event = msgspec.json.Decoder(_AnthropicEvent).decode
_EMPTY_EVENT = _AnthropicEvent()
"""Placeholder for an event that the typed parse refuses; the tolerant parser reads it."""


class AnthropicDecoder(BaseDecoder):
    expected_content = "message of this provider"
    end_marker = "stop reason"
    decode_failure = staticmethod(decode_failure)

    def __init__(self, model: Model, status: int, headers: Mapping[str, str]) -> None:
        super().__init__(status, headers)
        self._model = model
        if not self._sniffed and headers.get("content-type", "").startswith(_EVENTSTREAM_TYPE):
            self._reader, self._sniffed = EventStreamReader(), True
        self._meta: dict[str, Any] = {}
        self._usage: dict[str, Any] = {}
        self._blocks: list[PartialAnthropicBlock] = []
        self._open: dict[int | None, PartialAnthropicBlock] = {}
        self._given: list[Part] = []
        self._started = self._has_stop_reason = self._stopped = False
        self._ready = CompletedCalls()

    @property
    def partial_text(self) -> str:
        pieces = (block.pieces for block in self._blocks if block.delta_type == "text_delta")
        return repair_surrogates("".join(chain.from_iterable(pieces)))

    @property
    def partial_usage(self) -> Usage:
        return replace(decode_usage(self._usage), incomplete=True)

    @property
    def _is_complete(self) -> bool:
        return self._stopped or self._has_stop_reason

    def _build_reply(self) -> Reply:
        if not self._started:
            raise self._make_error("garbled", "the provider ended a reply that it never began")
        return build_reply(self._build_parts(), self._meta, self._usage, self._model)

    def _process_events(self, events: list[tuple[bytes, bytes]]) -> list[Delta]:
        deltas: list[Delta] = []
        for name, data in events:
            if name != b"content_block_delta" and name in _LARGE_EVENTS:
                self._process_event(name, data, deltas)
                continue
            try:
                event = _decode_event(data)
            except (ValueError, RecursionError):
                event = _EMPTY_EVENT
            block, delta = self._open.get(event.index), event.delta
            if (
                block is None
                or delta is None
                or delta.type != block.delta_type
                or event.type != "content_block_delta"
            ):
                # Nothing follows from a ping, nor from the end of a block that is no call.
                is_over = event.type == "content_block_stop" and (block is None or block.call < 0)
                if event.type != "ping" and not is_over:
                    self._process_event(name, data, deltas)
            elif delta.type == "text_delta":
                if text := delta.text:
                    block.pieces.append(text)
                    deltas.append(TextDelta(text=text))
            elif delta.type == "thinking_delta":
                if text := delta.thinking:
                    block.pieces.append(text)
                    deltas.append(ReasoningDelta(reasoning=text))
            elif text := delta.partial_json:
                block.pieces.append(text)
                block.ended = None
                if block.is_call:
                    deltas.append(ToolCallDelta(index=block.place, name=block.name, arguments=text))
            else:
                self._process_event(name, data, deltas)
        return deltas

    def _process_event(self, name: bytes, data: bytes, deltas: list[Delta]) -> None:
        if data.strip() == DONE_EVENT:
            return
        try:
            event = loads(data)
            if isinstance(event, dict) and "bytes" in event and "type" not in event:
                data = b64decode(event["bytes"])
                event = loads(data)
            if isinstance(event, dict) and not self._stopped:
                kind = event.get("type")
                kind = kind if isinstance(kind, str) else name.decode("utf-8", "replace")
                self._apply_event(kind, event, data, deltas)
        except (ValueError, TypeError) as error:
            raise self._make_error(
                "garbled", f"the provider sent an event that cannot be read ({error})"
            ) from None

    def _apply_event(self, kind: str, event: dict[str, Any], data: bytes, deltas: list[Delta]) -> None:
        match kind:
            case "message_start" if isinstance(event.get("message"), dict):
                # A gateway that retries starts again: two attempts are never joined.
                self._blocks, self._open, self._meta, self._usage = [], {}, {}, {}
                self._ready = CompletedCalls()
                self._started, self._has_stop_reason = True, False
                message = event["message"]
                self._update_metadata(message)
                content = message.get("content")
                self._given = []
                if content and isinstance(content, list):
                    self._given = decode_whole_blocks(content, split_object(data)["message"])
            case "content_block_start" if isinstance(event.get("content_block"), dict):
                stub = event["content_block"]
                if stub.get("type") == FALLBACK:
                    # The calls before the fallback must not run: those after it are the first of the reply.
                    self._ready = CompletedCalls()
                deltas += self._ready.release_held()
                check_block_type(stub)
                input_text = (
                    split_object(split_object(data)["content_block"])["input"].decode("utf-8", "replace")
                    if stub.get("input")
                    else EMPTY_INPUT
                )
                block = self._start_block(parse_integer(event.get("index")), stub, input_text)
                self._append_text(block, stub.get(_TEXT_MEMBERS.get(block.delta_type or "", "")), deltas)
            case "content_block_delta":
                if not isinstance(event.get("delta"), dict):
                    raise ValueError("a content_block_delta has no delta")
                self._apply_delta(parse_integer(event.get("index")), event["delta"], deltas)
            case "content_block_stop" if (index := parse_integer(event.get("index"))) is not None:
                self._end_block(self._open.get(index), deltas)
            case "message_delta":
                if isinstance(event.get("delta"), dict):
                    self._update_metadata(event["delta"])
                    self._has_stop_reason = self._has_stop_reason or bool(event["delta"].get("stop_reason"))
                told = event.get("input_transformations")  # again, if another model answered in the end
                self._update_metadata({"usage": event.get("usage"), "input_transformations": told})
            case "message_stop":
                self._stopped = True
                self._open.clear()
            case "error":
                raise ProviderError(classify_error(find_error_object(event) or {}, self._status))
            case _ if kind.lower().endswith("exception"):
                raise ProviderError(classify_error({"type": kind, **event}, self._status))

    def _start_block(self, index: int | None, stub: Block, input_text: str) -> PartialAnthropicBlock:
        block = PartialAnthropicBlock(stub, len(self._blocks), input_text)
        if block.is_call:
            block.call = self._ready.start_call()
        self._blocks.append(block)
        if index is not None:
            self._open[index] = block
        return block

    def _end_block(self, block: PartialAnthropicBlock | None, deltas: list[Delta]) -> None:
        if block is None or block.call < 0:
            return
        index, block.call = block.call, -1
        part = block.build_part(last_and_cut=False)
        if isinstance(part, ToolCall):
            block.ended = part if block.pieces else None
            deltas += self._ready.end_call(
                index, part, sure=bool(block.pieces) or block.input_text != EMPTY_INPUT
            )

    def _apply_delta(self, index: int | None, delta: dict[str, Any], deltas: list[Delta]) -> None:
        """Apply a delta outside the fast path: a rare type, a value of the wrong type, half a character."""
        if index is None:
            raise self._make_error("garbled", "the provider continued a block without saying which")
        block, delta_type = self._open.get(index), find_delta_type(delta)
        if block is None:
            # Some compatible servers do not announce text blocks; other blocks need their start.
            kind = _TEXT_MEMBERS.get(delta_type)
            if kind is None:
                raise self._make_error(
                    "garbled", f"the provider continued block {index}, which it never began"
                )
            block = self._start_block(index, {"type": kind, kind: ""}, EMPTY_INPUT)
        block.ended = None
        if delta_type in DELTA_MEMBERS and block.delta_type is None:
            block.delta_type = delta_type
        match delta_type:
            case block.delta_type if block.delta_type:
                inside = DELTA_MEMBERS[block.delta_type or ""]
                text = delta.get(inside)
                if block.is_call and (inside not in delta or not isinstance(text, str | None)):
                    raise ValueError("a piece of a call's arguments has no text")
                self._append_text(block, text, deltas)
            case "input_json_delta":
                raise ValueError(f"arguments were sent for a block of type {block.stub.get('type')!r}")
            case "text_delta" | "thinking_delta" if block.is_call:
                raise ValueError(f"text was sent for the call of {block.name!r}; it may be its arguments")
            case "citations_delta" if "citation" in delta:
                previous = block.stub.get("citations")
                block.stub["citations"] = [
                    *(previous if isinstance(previous, list) else ()),
                    delta["citation"],
                ]
            case str():
                for name, value in delta.items():
                    previous = block.stub.get(name)
                    if name != "type" and isinstance(value, str):
                        block.stub[name] = previous + value if isinstance(previous, str) else value

    def _append_text(self, block: PartialAnthropicBlock, text: object, deltas: list[Delta]) -> None:
        if isinstance(text, str) and text:
            block.pieces.append(text)
            if (delta := make_delta(block, repair_surrogates(text))) is not None:
                deltas.append(delta)

    def _update_metadata(self, update: dict[str, Any]) -> None:
        """Update the metadata; null values do not overwrite, because counts are running totals."""
        for name in _METADATA:
            if (value := update.get(name)) is not None:
                self._meta[name] = value
        if isinstance(usage := update.get("usage"), dict):
            self._usage.update(drop_nulls(usage))

    def _build_parts(self) -> list[Part]:
        cut = self._meta.get("stop_reason") == LENGTH_STOP
        last = len(self._blocks) - 1
        try:
            parts = [block.build_part(last_and_cut=cut and block.place == last) for block in self._blocks]
            return disarm_declined_calls(parts or self._given)
        except ValueError as error:
            raise self._make_error(
                "garbled", f"the provider sent a block that cannot be read ({error})"
            ) from None

    def _decode_body(self, body: bytes) -> Reply:
        usual = decode_usual_reply(body, self._model)
        if usual is not None:
            return usual
        try:
            whole = loads(body)
            if not isinstance(whole, dict):
                raise ValueError("not a JSON object")
            content = whole.pop("content", None)
            self._update_metadata(whole)
            failed = self._meta.get("type") == "error" or "error" in self._meta
            if isinstance(content, list) and not failed:
                cut = self._meta.get("stop_reason") == LENGTH_STOP
                parts = leave_open(decode_whole_blocks(content, body), cut=cut)
                return build_reply(disarm_declined_calls(parts), self._meta, self._usage, self._model)
            # The older completion format, which one cloud still uses.
            if isinstance(completion := self._meta.get("completion"), str):
                text = decode_part({"type": "text", "text": completion})
                return build_reply((text,), self._meta, self._usage, self._model)
        except ValueError as error:
            raise self._explain_missing_message(body) from error
        raise self._explain_missing_message(body)

    def _explain_missing_message(self, body: bytes) -> ProviderError:
        if (error := find_error_object(self._parse_body(body))) is not None:
            return ProviderError(classify_error(error, self._status))
        return self._unrecognised_reply(body)
