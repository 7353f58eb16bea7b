"""Decodes replies of the Responses wire: JSON or server-sent events.

A stream is a reply only after `response.completed` or `response.incomplete`; until then it is truncated,
however much has arrived. The JSON of an event determines its type, not the SSE name; unknown events are
skipped, and so are padding, pings and anything after the end. An unreadable event is an error, because it may
have been part of the reply.

Deltas take a fast path: one typed parse, one append, one delta. Everything else is rare and goes through
`_apply_event`, which checks before it changes anything. The typed parse reads only the members that count; what
it refuses, and what it does not read, is read by the tolerant parser.
"""

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import msgspec

from bridle.providers.wire.decoder import DONE_EVENT, BaseDecoder
from bridle.providers.wire.failures import find_error_object
from bridle.providers.wire.json import parse_integer, repair_surrogates
from bridle.values.errors import Failure, ProviderError
from bridle.values.message import Message, Reply, ToolCall
from bridle.values.model import Model
from bridle.values.result import CallReady, Delta, ReasoningDelta, TextDelta
from bridle.values.usage import Usage

from .content import Block
from .failures import classify_error, decode_failure, find_event_error
from .hosted_calls import HOSTED_CALLS
from .partial_reply import (
    CALL_ITEMS,
    DELTA_EVENTS,
    WHOLE_TEXT_EVENTS,
    PartialResponsesItem,
    has_same_arguments,
    make_delta,
    merge_items,
)
from .parts import BETWEEN, REASONING, item_type
from .usage import UNFINISHED_STATUSES, ResponseMembers, build_reply

_UNUSED_EVENTS = frozenset(
    {"response.created", "response.queued", "response.in_progress", "response.content_part.done"}
)
_END_EVENTS = {"response.completed": "completed", "response.incomplete": "incomplete"}


class _ResponsesEvent(msgspec.Struct, gc=False):
    type: str = ""
    output_index: int = -1
    delta: str = ""
    item: dict[str, Any] | None = None
    part: dict[str, Any] | None = None


class _ResponsesEndEvent(_ResponsesEvent, gc=False):
    response: ResponseMembers | None = None


_decode_event = msgspec.json.Decoder(_ResponsesEvent).decode
_decode_end_event = msgspec.json.Decoder(_ResponsesEndEvent).decode
_decode_response = msgspec.json.Decoder(ResponseMembers).decode
_EMPTY_EVENT = _ResponsesEvent()
"""Placeholder for an event that the typed parse refuses; the tolerant parser reads it."""


class ResponsesDecoder(BaseDecoder):
    expected_content = "response of this provider"
    end_marker = "response.completed"
    decode_failure = staticmethod(decode_failure)

    def __init__(
        self, model: Model, status: int, headers: Mapping[str, str], messages: Sequence[Message] = ()
    ) -> None:
        super().__init__(status, headers)
        self._model, self._messages = model, messages
        self._started: dict[int, PartialResponsesItem] = {}
        self._items: list[PartialResponsesItem] = []
        self._done: list[tuple[int, Block]] = []
        self._places = 0
        self._hosted = False
        self._end: Block | None = None

    @property
    def partial_text(self) -> str:
        texts = (item.texts() for item in self._items if item.kind == "message")
        return repair_surrogates("".join(chain.from_iterable(texts)))

    @property
    def partial_usage(self) -> Usage:
        return Usage(incomplete=True)

    @property
    def _is_complete(self) -> bool:
        return self._end is not None

    def _build_reply(self) -> Reply:
        end = self._end or {}
        return build_reply(
            end, merge_items(end.get("output"), self._done, self._started), self._model, self._messages
        )

    def _process_events(self, events: list[tuple[bytes, bytes]]) -> list[Delta]:
        deltas: list[Delta] = []
        for name, data in events:
            try:
                event = _decode_end_event(data) if name == b"response.completed" else _decode_event(data)
            except (ValueError, RecursionError):
                event = _EMPTY_EVENT
            kind, text = DELTA_EVENTS.get(event.type), event.delta
            item = self._started.get(event.output_index)
            if item is None or item.kind != kind or not text or self._end is not None:
                if not self._apply_typed_event(event, item, deltas):
                    self._process_event(name, data, deltas)
                continue
            item.pieces.append(text)
            if kind == "message":
                deltas.append(TextDelta(text=text))
            elif (delta := make_delta(item, text)) is not None:
                deltas.append(delta)
        return deltas

    def _apply_typed_event(
        self, event: _ResponsesEvent, started: PartialResponsesItem | None, deltas: list[Delta]
    ) -> bool:
        """Apply an event as `_apply_event` would; False if the typed parse does not hold all that counts."""
        item = event.item
        if self._end is not None or event.type in _UNUSED_EVENTS:
            return True
        if event.type in WHOLE_TEXT_EVENTS:
            return started is None or bool(started.pieces)
        if item is not None and event.type == "response.output_item.added":
            self._start_item(event.output_index, item_type(item), item)
        elif item is not None and event.type == "response.output_item.done":
            self._finish_item(event.output_index, item, deltas)
        elif started is not None and event.type == "response.content_part.added":
            self._next_content(started, item_type(event.part or {}), deltas)
        elif isinstance(event, _ResponsesEndEvent) and event.type in _END_EVENTS:
            self._end_stream(event.type, event.response)
        else:
            return False
        return True

    def _process_event(self, name: bytes, data: bytes, deltas: list[Delta]) -> None:
        if self._end is not None or data.strip() == DONE_EVENT:
            return
        event = self._parse_event(data)
        if isinstance(event, dict):
            kind = event.get("type")
            self._apply_event(
                kind if isinstance(kind, str) else name.decode("utf-8", "replace"), event, deltas
            )

    def _apply_event(self, kind: str, event: Block, deltas: list[Delta]) -> None:
        place = parse_integer(event.get("output_index"))
        index = -1 if place is None else place
        match kind:
            case "response.output_item.added" if isinstance(event.get("item"), dict):
                self._start_item(index, item_type(event["item"]), event["item"])
            case "response.output_item.done" if isinstance(event.get("item"), dict):
                self._finish_item(index, event["item"], deltas)
            case "response.content_part.added" if index in self._started:
                part = event.get("part") or {}
                if not isinstance(part, dict):
                    raise self._make_error(
                        "garbled", f"the provider sent a {kind} whose part is not an object"
                    )
                self._next_content(self._started[index], item_type(part), deltas)
            case "response.reasoning_summary_part.added" | "response.reasoning_part.added" if (
                index in self._started
            ):
                if self._started[index].texts():
                    deltas.append(ReasoningDelta(reasoning=BETWEEN))
                self._started[index].start_next_piece()
            case _ if kind in DELTA_EVENTS:
                self._append_piece(index, kind, event.get("delta"), deltas)
            case _ if kind in WHOLE_TEXT_EVENTS:
                self._apply_whole_text(index, kind, event, deltas)
            case "error":
                raise ProviderError(classify_error(find_event_error(event), self._status))
            case "response.failed" | "response.completed" | "response.incomplete" | "response.cancelled":
                self._end_stream(kind, event.get("response"))
            case "" if "error" in event:
                raise ProviderError(classify_error(find_error_object(event) or {}, self._status))

    def _next_content(self, item: PartialResponsesItem, kind: str, deltas: list[Delta]) -> None:
        if item.kind == REASONING and item.texts():
            deltas.append(ReasoningDelta(reasoning=BETWEEN))
        item.start_next_piece()
        item.refuses |= kind == "refusal"
        self._places += item.kind == "message"

    def _start_item(self, index: int, kind: str, stub: Block) -> PartialResponsesItem:
        item = PartialResponsesItem(kind, stub, self._places)
        self._started[index] = item
        self._items.append(item)
        if kind != "message":
            self._places += 1
        return item

    def _finish_item(self, index: int, item: Block, deltas: list[Delta]) -> None:
        if self._done and self._done[-1] == (index, item):
            return
        self._done.append((index, item))
        # Only the complete reply shows which of these are calls, and thus the index of the next call.
        kind = item_type(item)
        self._hosted = self._hosted or kind in HOSTED_CALLS
        if kind == "function_call" and item.get("status") in (None, "completed"):
            name, arguments = item.get("name"), item.get("arguments")
            is_consistent = has_same_arguments(item, self._started.get(index)) and not self._hosted
            if isinstance(name, str) and isinstance(arguments, str) and is_consistent:
                before = sum([open_.kind in CALL_ITEMS for at, open_ in self._started.items() if at < index])
                deltas.append(CallReady(index=before, call=ToolCall(id="", name=name, arguments=arguments)))

    def _append_piece(self, index: int, kind: str, text: object, deltas: list[Delta]) -> None:
        """Append a piece outside the fast path: of an unannounced item, or half a character."""
        item = self._started.get(index)
        if item is None or item.kind != DELTA_EVENTS[kind]:
            item = self._start_item(index, DELTA_EVENTS[kind], {})
        if isinstance(text, str) and text:
            item.refuses = item.refuses or kind == "response.refusal.delta"
            item.pieces.append(text)
            if (delta := make_delta(item, repair_surrogates(text))) is not None:
                deltas.append(delta)

    def _apply_whole_text(self, index: int, kind: str, event: Block, deltas: list[Delta]) -> None:
        of, member = WHOLE_TEXT_EVENTS[kind]
        item = self._started.get(index)
        if item is not None and item.kind == of and not item.pieces:
            item.refuses = item.refuses or member == "refusal"
            if isinstance(text := event.get(member), str) and text:
                item.pieces.append(text)
                if (delta := make_delta(item, repair_surrogates(text))) is not None:
                    deltas.append(delta)

    def _end_stream(self, kind: str, response: object) -> None:
        if not isinstance(response, dict):
            raise self._make_error(
                "garbled", f"the provider ended its stream with a {kind} that has no response"
            )
        if kind == "response.cancelled":
            response = {**response, "status": "cancelled"}
        self._check_done(response)
        if kind not in _END_EVENTS:
            raise ProviderError(self._make_failure(response))
        self._end = {**response, "status": response.get("status") or _END_EVENTS[kind]}

    def _check_done(self, response: Block) -> None:
        """Raise for a response that failed or is not done: nothing in it may be run or sent back."""
        status = response.get("status")
        if status == "failed":
            raise ProviderError(self._make_failure(response))
        if isinstance(status, str) and status in UNFINISHED_STATUSES:
            raise self._make_error(
                "invalid",
                f"the response {UNFINISHED_STATUSES[status]} ({status}): repeat the request without `background`",
            )

    def _make_failure(self, response: Block) -> Failure:
        error = response.get("error")
        details = error if isinstance(error, dict) else {"message": "the provider gave no reason"}
        return classify_error(details, self._status)

    def _decode_body(self, body: bytes) -> Reply:
        try:
            response: Any = _decode_response(body)
        except (ValueError, RecursionError):
            response = None
        if response is None or not isinstance(response.get("output"), list):
            response = self._parse_body(body)
        if isinstance(response, dict):
            self._check_done(response)
            if isinstance(response.get("output"), list):
                return build_reply(response, response["output"], self._model, self._messages)
            if (error := find_error_object(response)) is not None:
                raise ProviderError(classify_error(error, self._status))
            if isinstance(kind := response.get("object"), str) and kind != "response":
                raise self._make_error(
                    "not_found",
                    f"the endpoint returned a {kind}: it uses another wire, or another path",
                )
        raise self._unrecognised_reply(body)
