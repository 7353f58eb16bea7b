"""Assembles the items of a streamed reply.

The provider sends every item three times: in pieces, complete when the item is done, and complete again in
the response that ends the stream. The last version counts; `merge_items` handles the exceptions. The pieces
are for display, and for servers that send nothing else.

Items are identified by their position in the output, never by id: some servers give an item a new id every
time they mention it.
"""

from typing import Any

from bridle.providers.wire.json import dumps, loads, text_or_empty
from bridle.values.result import Delta, ReasoningDelta, TextDelta, ToolCallDelta

from .content import Block

DELTA_EVENTS = {
    "response.output_text.delta": "message",
    "response.refusal.delta": "message",
    "response.reasoning_summary_text.delta": "reasoning",
    "response.reasoning_text.delta": "reasoning",
    "response.function_call_arguments.delta": "function_call",
    "response.custom_tool_call_input.delta": "custom_tool_call",
}
"""Events that carry a piece of text, and the kind of item each belongs to."""
WHOLE_TEXT_EVENTS = {
    "response.output_text.done": ("message", "text"),
    "response.refusal.done": ("message", "refusal"),
    "response.reasoning_summary_text.done": ("reasoning", "text"),
    "response.reasoning_text.done": ("reasoning", "text"),
    "response.function_call_arguments.done": ("function_call", "arguments"),
    "response.custom_tool_call_input.done": ("custom_tool_call", "input"),
}
"""Events that repeat the complete text; new only if no piece came before."""
CALL_ITEMS = ("function_call", "custom_tool_call")
_COMPARED_MEMBERS = ("type", "call_id", "name", "arguments", "input")
"""Members of a call that may be taken from another version of it."""
_ARGUMENT_MEMBERS = {"function_call": "arguments", "custom_tool_call": "input"}


class PartialResponsesItem:
    __slots__ = ("kind", "name", "pieces", "place", "refuses", "stub", "whole")

    def __init__(self, kind: str, stub: Block, place: int) -> None:
        self.kind, self.stub, self.place = kind, stub, place
        self.name = text_or_empty(stub.get("name"))
        self.refuses = False
        self.whole: list[list[str]] = []
        self.pieces: list[str] = []
        """Pieces of the current content part; those of earlier parts are in `whole`."""

    def start_next_piece(self) -> None:
        if self.pieces:
            self.whole.append(self.pieces)
            self.pieces = []

    def texts(self) -> list[str]:
        return ["".join(pieces) for pieces in (*self.whole, self.pieces) if pieces]

    def build_item(self) -> Block:
        texts = self.texts()
        match self.kind:
            case "message":
                kind, member = ("refusal", "refusal") if self.refuses else ("output_text", "text")
                content = [{"type": kind, member: text} for text in texts]
                return {"type": "message", "role": "assistant", **self.stub, "content": content}
            case "reasoning":
                summary = [{"type": "summary_text", "text": text} for text in texts]
                return {**self.stub, "type": "reasoning", "summary": summary}
            case "function_call" | "custom_tool_call" if texts:
                return {**self.stub, "type": self.kind, _ARGUMENT_MEMBERS[self.kind]: "".join(texts)}
        return self.stub


def make_delta(item: PartialResponsesItem, text: str) -> Delta | None:
    match item.kind:
        case "message":
            return TextDelta(text=text)
        case "reasoning":
            return ReasoningDelta(reasoning=text)
        case "function_call" | "custom_tool_call":
            return ToolCallDelta(index=item.place, name=item.name, arguments=text)
    return None


def merge_items(
    final: object, done: list[tuple[int, Block]], begun: dict[int, PartialResponsesItem]
) -> list[Any]:
    """Return the items of a finished stream: those of its last event, unless it omits some.

    Some servers end with an empty output, and a few never report that an item is done. Raises `ValueError` if
    two versions of a call have different arguments: such a call must not run.
    """
    last: list[Any] = final if isinstance(final, list) else []
    finished = {index for index, _ in done}
    partial = [
        (index, item.build_item()) for index, item in begun.items() if index not in finished and item.texts()
    ]
    ordered = [item for _, item in sorted(done + partial, key=lambda each: each[0])]
    pieces = [item.build_item() for _, item in sorted(begun.items()) if item.kind in CALL_ITEMS]
    has_final = bool(last) and len(last) >= len(done)
    items = _complete_calls(last if has_final else ordered, ordered, must_agree=True)
    # Two complete versions that agree outweigh the pieces; one alone does not.
    return _complete_calls(items, pieces, must_agree=not (has_final and done))


def has_same_arguments(item: Block, open_item: PartialResponsesItem | None) -> bool:
    """Return True if a finished call has the same arguments as its pieces."""
    if open_item is None or open_item.kind not in CALL_ITEMS:
        return True
    sent = "".join(open_item.texts())
    return not sent or _is_same_json(_call_arguments(item), text_or_empty(sent))


def _complete_calls(items: list[Any], versions: list[Any], *, must_agree: bool) -> list[Any]:
    """Add members that the calls lack from another version of the same calls."""
    if items == versions:
        return items
    others = [item for item in versions if _is_call(item)]
    places = [place for place, item in enumerate(items) if _is_call(item)]
    if len(others) != len(places):
        return items
    completed = [*items]
    for place, other in zip(places, others, strict=True):
        item = items[place]
        one, two = (_call_arguments(item), _call_arguments(other)) if must_agree else ("", "")
        if one and two and not _is_same_json(one, two):
            name = text_or_empty(item.get("name"))
            raise ValueError(f"the arguments of {name!r} were given more than once, and differently")
        for name in _COMPARED_MEMBERS:
            if not item.get(name) and other.get(name):
                completed[place] = {**completed[place], name: other[name]}
    return completed


def _is_call(item: object) -> bool:
    """Return True for a call, also for one without a type."""
    if not isinstance(item, dict):
        return False
    return item.get("type") in CALL_ITEMS or (not item.get("type") and bool(item.get("call_id")))


def _call_arguments(item: Block) -> str:
    given = item.get("input") if item.get("type") == "custom_tool_call" else item.get("arguments")
    return dumps(given).decode() if isinstance(given, dict) else text_or_empty(given)


def _is_same_json(one: str, other: str) -> bool:
    if one == other:
        return True
    try:
        return bool(loads(one) == loads(other))
    except ValueError:
        return False
