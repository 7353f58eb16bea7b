"""Replies of the Responses wire, from bytes in any slices: JSON or server-sent events.

A stream is a reply only once `response.completed` or `response.incomplete` has arrived; before that it
is cut, however much was said.  The JSON of an event says what it is, not the name in front of it; an
event unlike any known one is passed over, and so are padding, pings and what comes after the end.  An
event that cannot be read at all is an error, because it may have been part of what was said.

Deltas take a short road of their own: one typed parse, one append, one delta.  Everything else is rare
and goes through `_happened`, which looks before it touches.
"""

from collections.abc import Mapping
from itertools import chain

import msgspec

from ..values.delta import CallReady, Delta, ReasoningDelta, TextDelta
from ..values.errors import Failure, ProviderError
from ..values.message import Reply
from ..values.model import Model
from ..values.parts import ToolCall
from ..values.usage import Usage
from ._failures import error_in
from ._json import mended, whole
from ._openai_responses_content import Block
from ._openai_responses_ends import NOT_DONE, reply_of
from ._openai_responses_failures import error_event, failure_from, failure_of
from ._openai_responses_growing import CALLS, DELTAS, WHOLES, OpenItem, agrees, settled, shown
from ._openai_responses_hosted import HOSTED
from ._openai_responses_items import BETWEEN, REASONING, kind_of
from ._shell import DONE, DecoderShell

_ENDS = {"response.completed": "completed", "response.incomplete": "incomplete"}


class _Event(msgspec.Struct, gc=False):
    type: str = ""
    output_index: int = -1
    delta: str = ""


_decode_event = msgspec.json.Decoder(_Event).decode
_UNREAD = _Event()
"""Stands for an event that the typed parse refuses; the tolerant one has another look at it."""


class ResponsesDecoder(DecoderShell):
    wanted = "response of this provider"
    ending = "response.completed"

    def __init__(self, model: Model, status: int, headers: Mapping[str, str]) -> None:
        super().__init__(status, headers)
        self._model = model
        self._begun: dict[int, OpenItem] = {}
        self._said: list[OpenItem] = []
        self._done: list[tuple[int, Block]] = []
        self._places = 0
        self._hosted = False
        self._end: Block | None = None

    @property
    def partial(self) -> str:
        spoken = (item.texts() for item in self._said if item.kind == "message")
        return mended("".join(chain.from_iterable(spoken)))

    @property
    def counted(self) -> Usage:
        return Usage(incomplete=True)

    @property
    def _is_over(self) -> bool:
        return self._end is not None

    def _told(self) -> Reply:
        end = self._end or {}
        return reply_of(end, settled(end.get("output"), self._done, self._begun), self._model)

    def _refusal(self, body: bytes) -> Failure:
        return failure_of(self._status, self._headers, body)

    def _take(self, events: list[tuple[bytes, bytes]]) -> list[Delta]:
        deltas: list[Delta] = []
        for name, data in events:
            try:
                event = _decode_event(data)
            except (ValueError, RecursionError):
                event = _UNREAD
            kind, item, said = DELTAS.get(event.type), self._begun.get(event.output_index), event.delta
            if item is None or item.kind != kind or not said or self._end is not None:
                self._read(name, data, deltas)
                continue
            item.pieces.append(said)
            if kind == "message":
                deltas.append(TextDelta(text=said))
            elif (seen := shown(item, said)) is not None:
                deltas.append(seen)
        return deltas

    def _read(self, name: bytes, data: bytes, deltas: list[Delta]) -> None:
        if self._end is not None or data.strip() == DONE:
            return
        event = self._event(data)
        if isinstance(event, dict):
            kind = event.get("type")
            self._happened(kind if isinstance(kind, str) else name.decode("utf-8", "replace"), event, deltas)

    def _happened(self, kind: str, event: Block, deltas: list[Delta]) -> None:
        place = whole(event.get("output_index"))
        index = -1 if place is None else place
        match kind:
            case "response.output_item.added" if isinstance(event.get("item"), dict):
                self._begin(index, kind_of(event["item"]), event["item"])
            case "response.output_item.done" if isinstance(event.get("item"), dict):
                self._finish(index, event["item"], deltas)
            case "response.content_part.added" if index in self._begun:
                part = event.get("part") or {}
                if not isinstance(part, dict):
                    raise self._problem("garbled", f"the provider sent a {kind} whose part is no object")
                self._next_content(self._begun[index], kind_of(part), deltas)
            case "response.reasoning_summary_part.added" | "response.reasoning_part.added" if (
                index in self._begun
            ):
                if self._begun[index].texts():
                    deltas.append(ReasoningDelta(reasoning=BETWEEN))
                self._begun[index].next_piece()
            case _ if kind in DELTAS:
                self._say(index, kind, event.get("delta"), deltas)
            case _ if kind in WHOLES:
                self._say_whole(index, kind, event, deltas)
            case "error":
                raise ProviderError(failure_from(error_event(event), self._status))
            case "response.failed" | "response.completed" | "response.incomplete" | "response.cancelled":
                self._finally(kind, event.get("response"))
            case "" if "error" in event:
                raise ProviderError(failure_from(error_in(event) or {}, self._status))

    def _next_content(self, item: OpenItem, kind: str, deltas: list[Delta]) -> None:
        if item.kind == REASONING and item.texts():
            deltas.append(ReasoningDelta(reasoning=BETWEEN))
        item.next_piece()
        item.refuses |= kind == "refusal"
        self._places += item.kind == "message"

    def _begin(self, index: int, kind: str, stub: Block) -> OpenItem:
        item = OpenItem(kind, stub, self._places)
        self._begun[index] = item
        self._said.append(item)
        if kind != "message":
            self._places += 1
        return item

    def _finish(self, index: int, item: Block, deltas: list[Delta]) -> None:
        if self._done and self._done[-1] == (index, item):
            return
        self._done.append((index, item))
        # Only the whole reply shows which of these are calls, and so which number the next call has.
        kind = kind_of(item)
        self._hosted = self._hosted or kind in HOSTED
        if kind == "function_call" and item.get("status") in (None, "completed"):
            name, arguments = item.get("name"), item.get("arguments")
            agreed = agrees(item, self._begun.get(index)) and not self._hosted
            if isinstance(name, str) and isinstance(arguments, str) and agreed:
                before = sum([open_.kind in CALLS for at, open_ in self._begun.items() if at < index])
                deltas.append(CallReady(index=before, call=ToolCall(id="", name=name, arguments=arguments)))

    def _say(self, index: int, kind: str, said: object, deltas: list[Delta]) -> None:
        """A piece off the short road: of an item never announced, or half a character."""
        item = self._begun.get(index)
        if item is None or item.kind != DELTAS[kind]:
            item = self._begin(index, DELTAS[kind], {})
        if isinstance(said, str) and said:
            item.refuses = item.refuses or kind == "response.refusal.delta"
            item.pieces.append(said)
            if (seen := shown(item, mended(said))) is not None:
                deltas.append(seen)

    def _say_whole(self, index: int, kind: str, event: Block, deltas: list[Delta]) -> None:
        of, inside = WHOLES[kind]
        item = self._begun.get(index)
        if item is not None and item.kind == of and not item.pieces:
            item.refuses = item.refuses or inside == "refusal"
            if isinstance(said := event.get(inside), str) and said:
                item.pieces.append(said)
                if (seen := shown(item, mended(said))) is not None:
                    deltas.append(seen)

    def _finally(self, kind: str, response: object) -> None:
        if not isinstance(response, dict):
            raise self._problem(
                "garbled", f"the provider ended its stream with a {kind} that has no response"
            )
        if kind == "response.cancelled":
            response = {**response, "status": "cancelled"}
        self._check_done(response)
        if kind not in _ENDS:
            raise ProviderError(self._failed(response))
        self._end = {**response, "status": response.get("status") or _ENDS[kind]}

    def _check_done(self, response: Block) -> None:
        """Raises for a response that failed or is not done: nothing in it may be run or sent back."""
        status = response.get("status")
        if status == "failed":
            raise ProviderError(self._failed(response))
        if isinstance(status, str) and status in NOT_DONE:
            raise self._problem(
                "invalid", f"the response {NOT_DONE[status]} ({status}): ask without `background`, and again"
            )

    def _failed(self, response: Block) -> Failure:
        error = response.get("error")
        said = error if isinstance(error, dict) else {"message": "the provider gave no reason"}
        return failure_from(said, self._status)

    def _from_json(self, body: bytes) -> Reply:
        response = self._whole(body)
        if isinstance(response, dict):
            self._check_done(response)
            if isinstance(response.get("output"), list):
                return reply_of(response, response["output"], self._model)
            if (error := error_in(response)) is not None:
                raise ProviderError(failure_from(error, self._status))
            if isinstance(kind := response.get("object"), str) and kind != "response":
                raise self._problem(
                    "not_found",
                    f"the endpoint answered with a {kind}: it speaks another wire, or serves another path",
                )
        raise self._stranger(body)
