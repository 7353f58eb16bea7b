"""Encodes messages as Responses items: what is sent back unchanged, and with which ids.

A turn of this very endpoint is sent back completely: every item in its place, reasoning with its encrypted
content right before the item it led to, ids and phases included. The provider checks such a turn as a whole
("… was provided without its required reasoning item", "… without its required following item", "Duplicate
item …", "Item with id … not found"), so there are only two safe forms: everything, or no ids and no reasoning
at all. A turn that cannot be sent completely takes the second form. Reasoning that led to nothing (a
truncated reply) is omitted.

Everything else is converted: text, calls, results. Encrypted content, ids and items of other endpoints are
never sent; the endpoint's policy decides about plain reasoning.

A call is sent with the provider's id if that is legal and not used before, else with Bridle's, and its result
uses the same id. A call without a result gets a placeholder as soon as the conversation continues; a result
without a call is omitted, unless the provider holds items that are not in the request. The placeholders are
the closing of the last turn, so that a later result replaces them. The encoder therefore has to see all
messages, in order, once.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Raw
from msgspec.structs import replace

from bridle.providers.wire.dialect import RETURNABLE_ID, is_from_same_origin
from bridle.providers.wire.encoded_history import EncodedMessages, WireTurn
from bridle.providers.wire.json import dumps
from bridle.values.base import Value
from bridle.values.message import (
    Media,
    Message,
    Opaque,
    Part,
    Reasoning,
    Stop,
    Text,
    ToolCall,
    ToolResult,
    is_written_for,
)
from bridle.values.model import Endpoint, Origin, ReasoningPolicy
from bridle.values.request import ToolSpec

from .content import (
    FAMILY,
    OPAQUE_CONTENT_PREFIX,
    Block,
    encode_content,
    encode_output,
    is_blank,
    shorten_message,
)
from .hosted_calls import HOSTED_CALLS, encode_hosted_result
from .parts import CALL, CUSTOM_CALL, NEEDS_ID, encode_items, encode_opaque, item_id, parse_native

OUTPUT_ITEMS = {CALL: "function_call_output", CUSTOM_CALL: "custom_tool_call_output"}
# not from outside: names and requests that we make
ID_LENGTH_MAX = 64
_LEGAL_ID = re.compile(rf"[!-~]{{1,{ID_LENGTH_MAX}}}")
_ILLEGAL_IN_ID = re.compile(r"[^a-zA-Z0-9_-]")
_REFERENCE_ITEMS = {"item_reference", "compaction"}
"""Items that refer to others that are not in the request."""

NO_RESULT_TEXT = "[tool error: unknown] no result of this call was recorded"
ERROR_PREFIX = re.compile(r"\[tool error(?:: (\w+))?\] ?")
"""This wire has no flag for a failed call, so its result begins with this."""


ToolEncoder = Callable[[ToolSpec], Block | Raw]


class ResponsesEncodeOptions(Value, kw_only=True):
    """Options of encoding besides the endpoint."""

    reasoning: ReasoningPolicy = "may_echo"
    with_ids: bool = True
    server_holds_history: bool = False
    """True if the provider holds earlier items that are not among these messages."""
    sealed_by: str = ""
    model_id: str = ""
    """The requested model, if only some models can read what others signed."""
    has_breakpoints: bool = False
    """True if breakpoints may be set on pieces of content, so content is always a list of pieces."""


class ResponsesHistory(EncodedMessages):
    """Encoded messages that can also be sent from a later message on, the provider holding the rest."""

    def __init__(self) -> None:
        self._options = ResponsesEncodeOptions()
        self._deferred: tuple[ToolSpec, ...] = ()
        self._define: ToolEncoder | None = None
        super().__init__(
            lambda endpoint: ResponsesItemEncoder(endpoint, self._options, self._deferred, self._define)
        )

    def configure(
        self,
        endpoint: Endpoint,
        options: ResponsesEncodeOptions,
        deferred: tuple[ToolSpec, ...],
        define: ToolEncoder,
    ) -> None:
        """Set the options; `deferred` are tools that `define` encodes where a result reveals them."""
        self.set_endpoint(endpoint)
        if (options, deferred) != (self._options, self._deferred):
            self._options, self._deferred, self._define = options, deferred, define
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
        """Build the body without the first `start` messages; the digest still covers all of them."""
        # Content held by the provider cannot have a breakpoint.
        whole, digest = self.build_body(messages, tail, {} if start else marks, ending=ending)
        if not start:
            return whole, digest
        head = len(self._head[1]) if self._head else 0
        place = head + (self._starts[start] if start < len(self._starts) else len(self._buffer))
        return whole[:head] + whole[place:].removeprefix(b","), digest


class ResponsesItemEncoder:
    def __init__(
        self,
        endpoint: Endpoint | None,
        options: ResponsesEncodeOptions,
        deferred: tuple[ToolSpec, ...] = (),
        define: ToolEncoder | None = None,
    ) -> None:
        self._endpoint, self._options = endpoint, options
        self._deferred, self._define = {spec.name: spec for spec in deferred}, define
        self._holds_more = options.server_holds_history
        self._sent: dict[str, tuple[str, str]] = {}
        """The id each call was sent with, and the item type of its result."""
        self._hosted: dict[str, Block] = {}
        """Items of hosted calls, whose type stands for that of their result."""
        self._open: dict[str, None] = {}
        self._used: set[str] = set()
        self._item_ids: set[str] = set()

    def __call__(self, message: Message) -> Sequence[WireTurn]:
        own = message.origin is not None and self._is_from_here(message.origin)
        parts = message.parts if own else _replace_items_with_text(message.parts)
        rest: Sequence[Part] = parts
        items: list[Block | Raw] = []
        if message.role == "tool" or ToolResult in map(type, parts):
            rest = []
            for part in parts:
                if type(part) is ToolResult or (message.role == "tool" and type(part) is Opaque):
                    if (item := self._encode_output(part, own=own)) is not None:
                        items.append(item)
                else:
                    rest.append(part)
            if self._deferred:
                items += self._reveal_tools(parts)
        if rest:
            unanswered = list(self._open)
            encode = self._encode_model_turn if message.role == "assistant" else self._encode_input_turn
            content = encode(message, rest, own=own)
            if content:
                items += [*map(self._make_missing_result, unanswered), *content]
                for call_id in unanswered:
                    del self._open[call_id]
        if not items:
            return ()
        written = [dumps(item) for item in items]
        joined = b",".join(written)
        closing = b""
        for call_id in self._open:
            closing += b"," + dumps(self._make_missing_result(call_id))
        mark_at = _breakpoint_offset(items, written, joined) if self._options.has_breakpoints else -1
        return (WireTurn(b"", joined, closing, mark_at, merges_with_previous=True),)

    def _reveal_tools(self, parts: Sequence[Part]) -> list[Block | Raw]:
        """Define the tools that results reveal at this position, so that nothing before them changes."""
        revealed = (name for part in parts if isinstance(part, ToolResult) for name in part.reveals_tools)
        specs = [self._deferred[name] for name in revealed if name in self._deferred]
        if not specs or self._define is None:
            return []
        return [{"type": "additional_tools", "role": "developer", "tools": list(map(self._define, specs))}]

    def _is_from_here(self, origin: Origin) -> bool:
        sealed_by, model_id = self._options.sealed_by, self._options.model_id
        return is_from_same_origin(origin, FAMILY, self._endpoint, sealed_by=sealed_by, model_id=model_id)

    def _encode_model_turn(self, message: Message, parts: Sequence[Part], *, own: bool) -> list[Block | Raw]:
        usable = _without_blanks(parts, own=own)
        _drop_trailing_reasoning(usable)
        unchanged = False
        if own:
            ids = {id_ for part, native in usable if (id_ := item_id(part, native))}
            unchanged = self._can_send_unchanged(message, usable, ids)
            self._note_references(parts)
            if unchanged:
                self._item_ids |= ids
        if not unchanged:
            echoed = not own and self._options.reasoning == "must_echo"
            usable = [
                (part, native)
                for part, native in usable
                if not isinstance(part, Reasoning) or (echoed and part.text.strip())
            ]
            _drop_trailing_reasoning(usable)
        with_ids = unchanged and self._options.with_ids
        if own and not with_ids:
            usable = [_without_id(part, native) for part, native in usable]
        items = encode_items(
            usable,
            own=own,
            refused=own and message.stop is Stop.REFUSED,
            with_ids=with_ids,
            sent_id=lambda call, native: self._choose_call_id(call, native, own=own),
        )
        return [shorten_message(item) for item in items]

    def _can_send_unchanged(
        self, message: Message, usable: Sequence[tuple[Part, Block]], ids: set[str]
    ) -> bool:
        """Return True if a turn of this endpoint, with items of these ids, can be sent back unchanged."""
        reasoning = [part for part, _ in usable if type(part) is Reasoning]
        if not ids.isdisjoint(self._item_ids):
            return False
        if not reasoning:
            # The model reasoned, but its first reasoning is no longer in the message.
            reasoned = message.usage is not None and message.usage.reasoning > 0
            return not (reasoned and type(next(iter(message.parts), None)) in (Text, ToolCall))
        if self._options.reasoning != "signed":
            return self._options.reasoning != "strip"
        # If signatures are required, only calls may lack an id: any other item without one was added later.
        parts = [part for part, _ in usable]
        named = not ids or all(
            isinstance(part, ToolCall) or item_id(part, native) or not _starts_item(part, before)
            for (part, native), before in zip(usable, (None, *parts), strict=False)
        )
        has_all_messages = _count_messages(message.parts) == _count_messages(parts)
        return named and all(part.signature for part in reasoning) and has_all_messages

    def _encode_input_turn(self, message: Message, parts: Sequence[Part], *, own: bool) -> list[Block | Raw]:
        role = "user" if message.role == "tool" else message.role
        content: list[Any] = []
        fields: Block = {}
        items: list[Block | Raw] = []
        for part in parts:
            native = parse_native(part, own=own)
            match part:
                case Text() | Media() if not is_blank(part):
                    content.append(encode_content(part, native.get("part", {}), role))
                    fields = fields or native.get("message", {})
                case Opaque(kind=kind) if (own or part.wire == FAMILY) and kind.startswith(
                    OPAQUE_CONTENT_PREFIX
                ):
                    content.append(native)
                case Opaque() if (own or part.wire == FAMILY) and (
                    item := encode_opaque(part, with_ids=self._options.with_ids)
                ) is not None:
                    items.append(item)
        if own:
            self._note_references(parts)
        if not content:
            return items
        if not self._options.with_ids:
            fields = {name: value for name, value in fields.items() if name != "id"}
        sent: Block = {"type": "message", "role": role, "content": content, **fields}
        return [sent if self._options.has_breakpoints else shorten_message(sent), *items]

    def _note_references(self, parts: Sequence[Part]) -> None:
        for part in parts:
            if type(part) is Opaque and part.kind in _REFERENCE_ITEMS:
                self._holds_more = True

    def _encode_output(self, part: Part, *, own: bool) -> Block | Raw | None:
        if isinstance(part, Opaque):
            taken = own or part.wire == FAMILY
            return encode_opaque(part, with_ids=self._options.with_ids) if taken else None
        assert isinstance(part, ToolResult)
        native = parse_native(part, own=own)
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
        if (
            native.get("type", kind) != kind
        ):  # its call was sent in another form, which does not have these members
            native = {}
        if not self._options.with_ids:
            native.pop("id", None)
        output = encode_output(part, own=own)
        if self._options.has_breakpoints and isinstance(output, str) and output.strip():
            output = [{"type": "input_text", "text": output}]
        return {"type": kind, "call_id": id_, "output": output, **native}

    def _make_missing_result(self, call_id: str) -> Block:
        id_, kind = self._sent[call_id]
        if kind in HOSTED_CALLS:
            unknown = ToolResult(call_id=call_id, parts=(Text(text=NO_RESULT_TEXT),), outcome="unknown")
            return encode_hosted_result(kind, id_, unknown, self._hosted[call_id])
        return {"type": kind, "call_id": id_, "output": NO_RESULT_TEXT}

    def _choose_call_id(self, call: ToolCall, native: Block, *, own: bool) -> str:
        offered = call.wire_id if own and RETURNABLE_ID.fullmatch(call.wire_id) else ""
        chosen = offered if offered and offered not in self._used else _legal_id(call.id)
        while chosen in self._used:
            chosen = chosen[: ID_LENGTH_MAX - len(tail := f"_{len(self._used)}")] + tail
        self._used.add(chosen)
        kind = native.get("type", CALL)
        if kind in HOSTED_CALLS:
            self._hosted[call.id] = native
            self._sent[call.id] = (chosen, kind)
        else:
            self._sent[call.id] = (chosen, OUTPUT_ITEMS.get(kind, OUTPUT_ITEMS[CALL]))
        self._open[call.id] = None
        return chosen


def _replace_items_with_text(parts: tuple[Part, ...]) -> tuple[Part, ...]:
    """Replace items that only their provider can read with their text.

    It is joined with the text beside it: a message without an id has one text.
    """
    if Opaque not in map(type, parts) or any(is_written_for(part, FAMILY) for part in parts):
        return parts
    joined: list[Part] = []
    for part in parts:
        text = part.text if isinstance(part, Text | Opaque) else ""
        if text and joined and isinstance(last := joined[-1], Text):
            joined[-1] = Text(text=f"{last.text}\n{text}")
        else:
            joined.append(Text(text=text) if text else part)
    return tuple(joined)


def _without_blanks(parts: Sequence[Part], *, own: bool) -> list[tuple[Part, Block]]:
    """Return the parts with content. The members of a message stay with its first text."""
    kept: list[tuple[Part, Block]] = []
    fields: Block | None = None
    for part in parts:
        native = parse_native(part, own=own)
        if not isinstance(part, (Text, Media)) or "message" in native:
            fields = None
        if is_blank(part, own=own):
            fields = native.get("message", fields)
            continue
        if fields is not None and isinstance(part, Text):
            native = {"message": fields, **native}
            part = replace(part, native=dumps(native).decode())  # noqa: PLW2901 - the part as it is sent
            fields = None
        kept.append((part, native))
    return kept


def _without_id(part: Part, native: Block) -> tuple[Part, Block]:
    """Convert a call of a type that is refused without its id to a plain call, whose id is optional."""
    if isinstance(part, ToolCall) and native.get("type") in NEEDS_ID:
        return replace(part, native=None), {}
    return part, native


def _starts_item(part: Part, before: Part | None) -> bool:
    """Return True if a part begins an item; text continues the message before it."""
    return not isinstance(part, (Text, Media)) or not isinstance(before, (Text, Media))


def _count_messages(parts: Sequence[Part]) -> int:
    return sum(
        isinstance(part, (Text, Media)) and (_starts_item(part, before) or '"message"' in (part.native or ""))
        for part, before in zip(parts, (None, *parts), strict=False)
    )


def _drop_trailing_reasoning(usable: list[tuple[Part, Block]]) -> None:
    """Remove reasoning at the end, which would be refused."""
    while usable and isinstance(usable[-1][0], Reasoning):
        usable.pop()


def _breakpoint_offset(items: Sequence[Block | Raw], written: Sequence[bytes], joined: bytes) -> int:
    """Return the offset of the closing brace of the last piece of content that can carry a breakpoint."""
    end = len(joined)
    if b"}]}" not in joined:
        return -1
    for item, data in zip(reversed(items), reversed(written), strict=True):
        is_input = isinstance(item, dict) and item.get("role") != "assistant"
        if is_input and data.endswith(b"}]}") and next(reversed(item)) in ("content", "output"):
            return end - len(b"}]}")
        end -= len(data) + 1
    return -1


def _legal_id(name: str) -> str:
    if _LEGAL_ID.fullmatch(name):
        return name
    return _ILLEGAL_IN_ID.sub("_", name)[:ID_LENGTH_MAX] or "_"
