"""Messages on their way out as Responses items: what goes back as it came, and under which ids.

A turn of this very endpoint goes back whole: every item in its place, reasoning with its encrypted
content right before the item it led to, ids and phases included.  The provider checks such a turn as a
whole ("… was provided without its required reasoning item", "… without its required following item",
"Duplicate item …", "Item with id … not found"), so there are only two safe forms: everything, or no ids
and no reasoning at all.  A turn of which anything cannot be sent takes the second form.  Reasoning that
led to nothing (a reply cut short) is left out.

Everything else is re-expressed: words, calls, results.  Encrypted content, ids and items of other
endpoints are never sent; what an endpoint wants done with plain reasoning is a fact about the endpoint.

A call goes out under the provider's own id when that is legal and was not used before, else under ours,
and its result follows it.  A call that never got a result is answered by a stand-in as soon as the
conversation goes on; a result whose call is nowhere is left out, unless the provider holds items we do
not see.  The stand-ins are the closing of the last turn, so that a result still to come replaces them.
The writer therefore sees the whole line, in order, once.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Raw
from msgspec.structs import replace

from bridle.providers.wire.encoded_history import EncodedMessages, WireTurn
from bridle.providers.wire.json import dumps, loads, raw_json
from bridle.providers.wire.origin import RETURNABLE_ID, is_from_same_origin
from bridle.values.base import Value
from bridle.values.message import Media, Message, Opaque, Part, Reasoning, Stop, Text, ToolCall, ToolResult
from bridle.values.model import Endpoint, ReasoningPolicy
from bridle.values.request import ToolSpec

from .content import OPAQUE_CONTENT_PREFIX, Block, encode_content, is_blank
from .hosted_calls import HOSTED_CALLS, encode_hosted_result
from .parts import CALL, CUSTOM_CALL, FAMILY, NEEDS_ID, encode_items, encode_opaque, item_id

OUTPUT_ITEMS = {CALL: "function_call_output", CUSTOM_CALL: "custom_tool_call_output"}
ID_LENGTH_MAX = 64
_LEGAL_ID = re.compile(rf"[!-~]{{1,{ID_LENGTH_MAX}}}")
_ILLEGAL_IN_ID = re.compile(r"[^a-zA-Z0-9_-]")
_REFERENCE_ITEMS = {"item_reference", "compaction"}
"""Items that stand for others we do not see."""

NO_RESULT_TEXT = "[tool error: unknown] no result of this call was recorded"
ERROR_PREFIX = re.compile(r"\[tool error(?:: (\w+))?\] ?")
"""This wire has no place to say that a call failed, so the words begin with it."""


ToolEncoder = Callable[[ToolSpec], Block | Raw]


class ResponsesEncodeOptions(Value):
    """How items are to be written, beside where they go."""

    reasoning: ReasoningPolicy = "may_echo"
    with_ids: bool = True
    server_holds_history: bool = False
    """The provider holds earlier items itself, which are not in this line."""
    sealed_by: str = ""
    model_id: str = ""
    """Who is asked, where only some models can open what others sealed."""
    has_breakpoints: bool = False
    """Marks go on pieces of content, so where there may be marks, what is told is always in pieces."""


class ResponsesHistory(EncodedMessages):
    """Kept messages that can also be sent from one of them on, the provider holding the rest."""

    def __init__(self) -> None:
        self._manner = ResponsesEncodeOptions()
        self._deferred: tuple[ToolSpec, ...] = ()
        self._define: ToolEncoder | None = None
        self._starts: list[int] = []
        super().__init__(
            lambda endpoint: ResponsesItemEncoder(endpoint, self._manner, self._deferred, self._define)
        )

    def configure(
        self,
        endpoint: Endpoint,
        manner: ResponsesEncodeOptions,
        deferred: tuple[ToolSpec, ...],
        define: ToolEncoder,
    ) -> None:
        """`deferred` are tools that are defined where a result brings them to light, by `define`."""
        self.set_endpoint(endpoint)
        if (manner, deferred) != (self._manner, self._deferred):
            self._manner, self._deferred, self._define = manner, deferred, define
            self._restart()

    def build_body_since(
        self,
        start: int,
        messages: Sequence[Message],
        tail: bytes,
        marks: Mapping[int, bytes],
        *,
        ending: bytes,
    ) -> tuple[bytes, str]:
        """Like `body`, without the first `start` messages; the digest is of the whole line all the same."""
        # What the provider holds itself cannot be marked.
        whole, digest = self.build_body(messages, tail, {} if start else marks, ending=ending)
        if not start:
            return whole, digest
        head = len(self._head[1]) if self._head else 0
        place = head + (self._starts[start] if start < len(self._starts) else len(self._buffer))
        return whole[:head] + whole[place:].removeprefix(b","), digest

    def _restart(self) -> None:
        self._starts = []
        super()._restart()

    def _append_message(self, message: Message) -> None:
        self._starts.append(len(self._buffer))
        super()._append_message(message)


class ResponsesItemEncoder:
    def __init__(
        self,
        endpoint: Endpoint | None,
        manner: ResponsesEncodeOptions,
        deferred: tuple[ToolSpec, ...] = (),
        define: ToolEncoder | None = None,
    ) -> None:
        self._endpoint, self._manner = endpoint, manner
        self._deferred, self._define = {spec.name: spec for spec in deferred}, define
        self._holds_more = manner.server_holds_history
        self._sent: dict[str, tuple[str, str]] = {}
        """The id each call went out with, and what its result is called."""
        self._hosted: dict[str, Block] = {}
        """Items of calls of the provider's own tool types, whose type stands for that of their result."""
        self._open: dict[str, None] = {}
        self._used: set[str] = set()
        self._item_ids: set[str] = set()

    def __call__(self, message: Message) -> Sequence[WireTurn]:
        own = self._is_from_here(message)
        parts = message.parts if own else tuple(map(_replace_with_text, message.parts))
        outputs = [part for part in parts if _is_output_part(part, message.role)]
        rest = [part for part in parts if not _is_output_part(part, message.role)]
        items = [item for part in outputs if (item := self._encode_output(part, own=own)) is not None]
        items += self._reveal_tools(outputs)
        unanswered = list(self._open)
        words = (
            self._encode_model_turn(message, rest, own=own)
            if message.role == "assistant"
            else self._encode_input_turn(message, rest, own=own)
        )
        if words:
            items += [*map(self._make_missing_result, unanswered), *words]
            for call_id in unanswered:
                del self._open[call_id]
        if not items:
            return ()
        written = [dumps(item) for item in items]
        closing = b"".join(b"," + dumps(self._make_missing_result(call_id)) for call_id in self._open)
        mark_at = _breakpoint_offset(items, written) if self._manner.has_breakpoints else -1
        return (WireTurn(b"", b",".join(written), closing, mark_at, merges_with_previous=True),)

    def _reveal_tools(self, outputs: Sequence[Part]) -> list[Block | Raw]:
        """Definitions of the tools that results brought to light: here, where nothing before them moves."""
        shown = (name for part in outputs if isinstance(part, ToolResult) for name in part.reveals_tools)
        specs = [self._deferred[name] for name in shown if name in self._deferred]
        if not specs or self._define is None:
            return []
        return [{"type": "additional_tools", "role": "developer", "tools": list(map(self._define, specs))}]

    def _is_from_here(self, message: Message) -> bool:
        sealed_by, model_id = self._manner.sealed_by, self._manner.model_id
        return is_from_same_origin(
            message.origin, FAMILY, self._endpoint, sealed_by=sealed_by, model_id=model_id
        )

    def _encode_model_turn(self, message: Message, parts: Sequence[Part], *, own: bool) -> list[Block | Raw]:
        usable = _drop_trailing_reasoning(_without_blanks(parts, own=own))
        whole = own and self._can_send_unchanged(message, usable)
        if own:
            self._note_references(usable)
        if whole:
            self._item_ids |= _item_ids(usable)
        else:
            echoed = not own and self._manner.reasoning == "must_echo"
            usable = [
                part for part in usable if not isinstance(part, Reasoning) or (echoed and part.text.strip())
            ]
        with_ids = whole and self._manner.with_ids
        if own and not with_ids:
            usable = [_without_id(part) for part in usable]
        items = encode_items(
            _drop_trailing_reasoning(usable),
            own=own,
            refused=own and message.stop is Stop.REFUSED,
            with_ids=with_ids,
            sent_id=lambda call: self._choose_call_id(call, own=own),
        )
        return [_shorten_message(item) for item in items]

    def _can_send_unchanged(self, message: Message, parts: Sequence[Part]) -> bool:
        """Whether a turn of this endpoint can go back as it came."""
        ids = _item_ids(parts)
        thoughts = [part for part in parts if isinstance(part, Reasoning)]
        if not ids.isdisjoint(self._item_ids):
            return False
        if not thoughts:
            # It did think, and what it thought first is not here any more.
            thought = message.usage is not None and message.usage.reasoning > 0
            return not (thought and isinstance(next(iter(message.parts), None), Text | ToolCall))
        if self._manner.reasoning != "signed":
            return self._manner.reasoning != "strip"
        # Where proof is asked for, only calls may have no id: another item without one was put there later.
        begin = [
            part for part, before in zip(parts, (None, *parts), strict=False) if _starts_item(part, before)
        ]
        named = all(item_id(part) or isinstance(part, ToolCall) for part in begin) or not ids
        all_spoken = _count_messages(message.parts) == _count_messages(parts)
        return named and all(thought.signature for thought in thoughts) and all_spoken

    def _encode_input_turn(self, message: Message, parts: Sequence[Part], *, own: bool) -> list[Block | Raw]:
        role = "user" if message.role == "tool" else message.role
        content: list[Any] = []
        fields: Block = {}
        items: list[Block | Raw] = []
        for part in parts:
            native: Block = loads(part.native) if own and part.native is not None else {}
            match part:
                case Text() | Media() if not is_blank(part):
                    content.append(encode_content(part, native.get("part", {}), role))
                    fields = fields or native.get("message", {})
                case Opaque(kind=kind) if own and kind.startswith(OPAQUE_CONTENT_PREFIX):
                    content.append(native)
                case Opaque() if (
                    own and (item := encode_opaque(part, with_ids=self._manner.with_ids)) is not None
                ):
                    items.append(item)
        if own:
            self._note_references(parts)
        if not content:
            return items
        if not self._manner.with_ids:
            fields = {name: value for name, value in fields.items() if name != "id"}
        told: Block = {"type": "message", "role": role, "content": content, **fields}
        return [told if self._manner.has_breakpoints else _shorten_message(told), *items]

    def _note_references(self, parts: Sequence[Part]) -> None:
        self._holds_more |= any(isinstance(part, Opaque) and part.kind in _REFERENCE_ITEMS for part in parts)

    def _encode_output(self, part: Part, *, own: bool) -> Block | Raw | None:
        if isinstance(part, Opaque):
            return encode_opaque(part, with_ids=self._manner.with_ids) if own else None
        assert isinstance(part, ToolResult)
        native: Block = loads(part.native) if own and part.native is not None else {}
        if part.call_id in self._sent:
            if part.call_id not in self._open:
                return None
            del self._open[part.call_id]
            id_, kind = self._sent[part.call_id]
        elif self._holds_more:
            id_, kind = _legal_id(part.call_id), native.get("type", OUTPUT_ITEMS[CALL])
            self._sent[part.call_id] = (id_, kind)
        else:
            return None
        if kind in HOSTED_CALLS:
            return encode_hosted_result(kind, id_, part, self._hosted[part.call_id])
        if not self._manner.with_ids:
            native.pop("id", None)
        output = _encode_result(part, own=own)
        if self._manner.has_breakpoints and isinstance(output, str) and output.strip():
            output = [{"type": "input_text", "text": output}]
        return {"type": kind, "call_id": id_, "output": output, **native}

    def _make_missing_result(self, call_id: str) -> Block:
        id_, kind = self._sent[call_id]
        if kind in HOSTED_CALLS:
            unknown = ToolResult(call_id=call_id, parts=(Text(text=NO_RESULT_TEXT),), outcome="unknown")
            return encode_hosted_result(kind, id_, unknown, self._hosted[call_id])
        return {"type": kind, "call_id": id_, "output": NO_RESULT_TEXT}

    def _choose_call_id(self, call: ToolCall, *, own: bool) -> str:
        offered = call.wire_id if own and RETURNABLE_ID.fullmatch(call.wire_id) else ""
        chosen = offered if offered and offered not in self._used else _legal_id(call.id)
        while chosen in self._used:
            chosen = chosen[: ID_LENGTH_MAX - len(tail := f"_{len(self._used)}")] + tail
        self._used.add(chosen)
        item: Block = loads(call.native) if own and call.native is not None else {}
        kind = item.get("type", CALL)
        if kind in HOSTED_CALLS:
            self._hosted[call.id] = item
        self._sent[call.id] = (
            chosen,
            kind if kind in HOSTED_CALLS else OUTPUT_ITEMS.get(kind, OUTPUT_ITEMS[CALL]),
        )
        self._open[call.id] = None
        return chosen


def _replace_with_text(part: Part) -> Part:
    """What is said instead of an item that goes to nobody but its maker."""
    return Text(text=part.text) if isinstance(part, Opaque) and part.text else part


def _is_output_part(part: Part, role: str) -> bool:
    return isinstance(part, ToolResult) or (role == "tool" and isinstance(part, Opaque))


def _without_blanks(parts: Sequence[Part], *, own: bool) -> list[Part]:
    """The parts that say something.  The members of a message stay with its first words."""
    kept: list[Part] = []
    fields: Block | None = None
    for part in parts:
        native: Block = loads(part.native) if own and isinstance(part, Text) and part.native else {}
        if not isinstance(part, Text | Media) or "message" in native:
            fields = None
        if is_blank(part, own=own):
            fields = native.get("message", fields)
            continue
        if fields is not None and isinstance(part, Text):
            kept.append(replace(part, native=dumps({"message": fields, **native}).decode()))
            fields = None
        else:
            kept.append(part)
    return kept


def _without_id(part: Part) -> Part:
    """A call of a type that is refused without its id becomes a plain call, whose id is optional."""
    if not isinstance(part, ToolCall) or part.native is None:
        return part
    return replace(part, native=None) if loads(part.native).get("type") in NEEDS_ID else part


def _item_ids(parts: Sequence[Part]) -> set[str]:
    return {id_ for part in parts if (id_ := item_id(part))}


def _starts_item(part: Part, before: Part | None) -> bool:
    """Whether a part begins an item; words go on in the message before them."""
    return not isinstance(part, Text | Media) or not isinstance(before, Text | Media)


def _count_messages(parts: Sequence[Part]) -> int:
    """How many items of a turn are messages."""
    return sum(
        isinstance(part, Text | Media) and (_starts_item(part, before) or '"message"' in (part.native or ""))
        for part, before in zip(parts, (None, *parts), strict=False)
    )


def _drop_trailing_reasoning(parts: Sequence[Part]) -> list[Part]:
    """The parts without reasoning that nothing follows: it would be refused."""
    end = len(parts)
    while end and isinstance(parts[end - 1], Reasoning):
        end -= 1
    return list(parts[:end])


def _encode_result(result: ToolResult, *, own: bool) -> str | list[Any]:
    pieces: list[Any] = []
    for part in result.parts:
        if isinstance(part, Opaque):
            if own:
                pieces.append(raw_json(part.native))
        elif not is_blank(part):
            native = loads(part.native).get("part", {}) if own and part.native is not None else {}
            pieces.append(encode_content(part, native, "tool"))
    if result.is_error:
        mark = "[tool error]" if result.outcome == "error" else f"[tool error: {result.outcome}]"
        first = pieces[0] if pieces else None
        if isinstance(first, dict) and first["type"] == "input_text":
            pieces[0] = {**first, "text": f"{mark} {first['text']}"}
        else:
            pieces.insert(0, {"type": "input_text", "text": mark})
    if not pieces:
        return ""
    only = pieces[0] if len(pieces) == 1 else None
    return only["text"] if isinstance(only, dict) and only.keys() == {"type", "text"} else pieces


def _breakpoint_offset(items: Sequence[Block | Raw], written: Sequence[bytes]) -> int:
    """The offset of the closing brace of the last piece of content that can carry a mark."""
    end = sum(map(len, written)) + len(written) - 1
    for item, data in zip(reversed(items), reversed(written), strict=True):
        told = list(item) if isinstance(item, dict) and item.get("role") != "assistant" else []
        if told and told[-1] in ("content", "output") and data.endswith(b"}]}"):
            return end - len(b"}]}")
        end -= len(data) + 1
    return -1


def _shorten_message(item: Block | Raw) -> Block | Raw:
    """A message of plain words as a string: the one form every server takes from every speaker."""
    if isinstance(item, dict) and item.keys() == {"type", "role", "content"} and len(item["content"]) == 1:
        piece: Block = {"annotations": [], **item["content"][0]}
        if piece.keys() == {"type", "text", "annotations"} and not piece["annotations"]:
            return {**item, "content": piece["text"]}
    return item


def _legal_id(name: str) -> str:
    if _LEGAL_ID.fullmatch(name):
        return name
    return _ILLEGAL_IN_ID.sub("_", name)[:ID_LENGTH_MAX] or "_"
