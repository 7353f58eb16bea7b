"""What streams by while a model talks.  Shown, never stored.

`text` exists on everything a stream yields and is empty where no words are
shown, so that `print(event.text, end="")` is a complete viewer.
"""

from .parts import ToolCall
from .value import Value


class TextDelta(Value, tag="text_delta"):
    text: str


class ReasoningDelta(Value, tag="reasoning_delta"):
    reasoning: str

    @property
    def text(self) -> str:
        return ""


class ToolCallDelta(Value, tag="tool_call_delta"):
    """A piece of a call's arguments: for show only, they are not complete."""

    index: int
    """Which of the reply's parts this belongs to."""
    name: str
    arguments: str

    @property
    def text(self) -> str:
        return ""


class CallReady(Value, tag="call_ready"):
    """A call whose every byte has arrived, while the reply it belongs to goes on."""

    index: int
    """Which of the reply's calls it is, counted from 0."""
    call: ToolCall

    @property
    def text(self) -> str:
        return ""


Delta = TextDelta | ReasoningDelta | ToolCallDelta | CallReady
