"""Items of a streamed reply while they are being said.

The provider tells every item three times: in pieces, whole when the item is done, and whole again in the
response that ends the stream.  The last telling counts; `settled` says when it does not.  The pieces are
for show, and for servers that never tell anything else.

Items are known by their place in the output, never by id: some servers give an item a new id every time
they mention it.
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
"""Events that say a piece of something, and the kind of item each belongs to."""
WHOLE_TEXT_EVENTS = {
    "response.output_text.done": ("message", "text"),
    "response.refusal.done": ("message", "refusal"),
    "response.reasoning_summary_text.done": ("reasoning", "text"),
    "response.reasoning_text.done": ("reasoning", "text"),
    "response.function_call_arguments.done": ("function_call", "arguments"),
    "response.custom_tool_call_input.done": ("custom_tool_call", "input"),
}
"""Events that say it all once more; news only where no piece came before."""
CALL_ITEMS = ("function_call", "custom_tool_call")
_COMPARED_MEMBERS = ("type", "call_id", "name", "arguments", "input")
"""Members of a call that may be taken from another telling of it."""
_ARGUMENT_MEMBERS = {"function_call": "arguments", "custom_tool_call": "input"}


class PartialResponsesItem:
    __slots__ = ("kind", "name", "pieces", "place", "refuses", "stub", "whole")

    def __init__(self, kind: str, stub: Block, place: int) -> None:
        self.kind, self.stub, self.place = kind, stub, place
        self.name = text_or_empty(stub.get("name"))
        self.refuses = False
        self.whole: list[list[str]] = []
        self.pieces: list[str] = []
        """Of the piece of content being said; those before it are in `whole`."""

    def start_next_piece(self) -> None:
        if self.pieces:
            self.whole.append(self.pieces)
            self.pieces = []

    def texts(self) -> list[str]:
        return ["".join(pieces) for pieces in (*self.whole, self.pieces) if pieces]

    def build_item(self) -> Block:
        """The item as far as pieces tell it."""
        texts = self.texts()
        match self.kind:
            case "message":
                kind, inside = ("refusal", "refusal") if self.refuses else ("output_text", "text")
                content = [{"type": kind, inside: text} for text in texts]
                return {"type": "message", "role": "assistant", **self.stub, "content": content}
            case "reasoning":
                summary = [{"type": "summary_text", "text": text} for text in texts]
                return {**self.stub, "type": "reasoning", "summary": summary}
            case "function_call" | "custom_tool_call" if texts:
                return {**self.stub, "type": self.kind, _ARGUMENT_MEMBERS[self.kind]: "".join(texts)}
        return self.stub


def make_delta(item: PartialResponsesItem, said: str) -> Delta | None:
    match item.kind:
        case "message":
            return TextDelta(text=said)
        case "reasoning":
            return ReasoningDelta(reasoning=said)
        case "function_call" | "custom_tool_call":
            return ToolCallDelta(index=item.place, name=item.name, arguments=said)
    return None


def merge_items(
    told: object, done: list[tuple[int, Block]], begun: dict[int, PartialResponsesItem]
) -> list[Any]:
    """The items of a stream that has ended: those of its last event, unless it left some out.

    Some servers end with an empty output, and a few never say that an item is done.  Raises `ValueError`
    when two tellings of a call give different arguments: such a call must not run.
    """
    last: list[Any] = told if isinstance(told, list) else []
    finished = {index for index, _ in done}
    grown = [
        (index, item.build_item()) for index, item in begun.items() if index not in finished and item.texts()
    ]
    ordered = [item for _, item in sorted(done + grown, key=lambda each: each[0])]
    pieces = [item.build_item() for _, item in sorted(begun.items()) if item.kind in CALL_ITEMS]
    told_last = bool(last) and len(last) >= len(done)
    items = _complete_calls(last if told_last else ordered, ordered, must_agree=True)
    # Two whole tellings that agree outweigh the pieces; one alone does not.
    return _complete_calls(items, pieces, must_agree=not (told_last and done))


def has_same_arguments(item: Block, open_item: PartialResponsesItem | None) -> bool:
    """Whether a call that is said to be done has the arguments its pieces had."""
    if open_item is None or open_item.kind not in CALL_ITEMS or not open_item.texts():
        return True
    return _is_same_json(_call_arguments(item), _call_arguments(open_item.build_item()))


def _complete_calls(items: list[Any], tellings: list[Any], *, must_agree: bool) -> list[Any]:
    """The items, with what another telling of the same calls has and they lack."""
    if items == tellings:
        return items
    others = [item for item in tellings if _is_call(item)]
    places = [place for place, item in enumerate(items) if _is_call(item)]
    if len(others) != len(places):
        return items
    completed = [*items]
    for place, other in zip(places, others, strict=True):
        item = items[place]
        said, again = _call_arguments(item), _call_arguments(other)
        if must_agree and said and again and not _is_same_json(said, again):
            name = text_or_empty(item.get("name"))
            raise ValueError(f"the arguments of {name!r} were given more than once, and differently")
        lacking = {name: value for name, value in other.items() if not item.get(name) and value}
        completed[place] = {**item, **{name: lacking[name] for name in _COMPARED_MEMBERS if name in lacking}}
    return completed


def _is_call(item: object) -> bool:
    """Whether it is a call, also one that does not say so."""
    if not isinstance(item, dict):
        return False
    return item.get("type") in CALL_ITEMS or (not item.get("type") and bool(item.get("call_id")))


def _call_arguments(item: Block) -> str:
    given = item.get("input") if item.get("type") == "custom_tool_call" else item.get("arguments")
    return dumps(given).decode() if isinstance(given, dict) else text_or_empty(given)


def _is_same_json(said: str, again: str) -> bool:
    if said == again:
        return True
    try:
        return bool(loads(said) == loads(again))
    except ValueError:
        return False
