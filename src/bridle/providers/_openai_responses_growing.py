"""Items of a streamed reply while they are being said.

The provider tells every item three times: in pieces, whole when the item is done, and whole again in the
response that ends the stream.  The last telling counts; `settled` says when it does not.  The pieces are
for show, and for servers that never tell anything else.

Items are known by their place in the output, never by id: some servers give an item a new id every time
they mention it.
"""

from typing import Any

from ..values.delta import Delta, ReasoningDelta, TextDelta, ToolCallDelta
from ._openai_responses_content import Block, word

DELTAS = {
    "response.output_text.delta": "message",
    "response.refusal.delta": "message",
    "response.reasoning_summary_text.delta": "reasoning",
    "response.reasoning_text.delta": "reasoning",
    "response.function_call_arguments.delta": "function_call",
    "response.custom_tool_call_input.delta": "custom_tool_call",
}
"""Events that say a piece of something, and the kind of item each belongs to."""
WHOLES = {
    "response.output_text.done": ("message", "text"),
    "response.refusal.done": ("message", "refusal"),
    "response.reasoning_summary_text.done": ("reasoning", "text"),
    "response.reasoning_text.done": ("reasoning", "text"),
    "response.function_call_arguments.done": ("function_call", "arguments"),
    "response.custom_tool_call_input.done": ("custom_tool_call", "input"),
}
"""Events that say it all once more; news only where no piece came before."""
CALLS = ("function_call", "custom_tool_call")
_SAID_IN = {"function_call": "arguments", "custom_tool_call": "input"}


class OpenItem:
    __slots__ = ("kind", "name", "pieces", "place", "refuses", "stub", "whole")

    def __init__(self, kind: str, stub: Block, place: int) -> None:
        self.kind, self.stub, self.place = kind, stub, place
        self.name = word(stub.get("name"))
        self.refuses = False
        self.whole: list[list[str]] = []
        self.pieces: list[str] = []
        """Of the piece of content being said; those before it are in `whole`."""

    def next_piece(self) -> None:
        if self.pieces:
            self.whole.append(self.pieces)
            self.pieces = []

    def texts(self) -> list[str]:
        return ["".join(pieces) for pieces in (*self.whole, self.pieces) if pieces]

    def item(self) -> Block:
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
                return {**self.stub, "type": self.kind, _SAID_IN[self.kind]: "".join(texts)}
        return self.stub


def shown(item: OpenItem, said: str) -> Delta | None:
    match item.kind:
        case "message":
            return TextDelta(text=said)
        case "reasoning":
            return ReasoningDelta(reasoning=said)
        case "function_call" | "custom_tool_call":
            return ToolCallDelta(index=item.place, name=item.name, arguments=said)
    return None


def settled(told: object, done: list[tuple[int, Block]], begun: dict[int, OpenItem]) -> list[Any]:
    """The items of a stream that has ended: those of its last event, unless it left some out.

    Some servers end with an empty output, and a few never say that an item is done.
    """
    last: list[Any] = told if isinstance(told, list) else []
    if last and len(last) >= len(done):
        return last
    finished = {index for index, _ in done}
    grown = [(index, item.item()) for index, item in begun.items() if index not in finished and item.texts()]
    return [item for _, item in sorted(done + grown, key=lambda each: each[0])]
