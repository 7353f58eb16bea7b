"""What streams by while a model talks.  Shown, never stored.

`text` exists on everything a stream yields and is empty where no words are
shown, so that `print(event.text, end="")` is a complete viewer.
"""

from .errors import FailureKind
from .event import WaitSource
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
    """Tells the calls of one reply apart: all pieces of one call have the same."""
    name: str
    arguments: str
    call_id: str = ""
    """The call's id, as every later event about it has it; set by the run, not by a decoder."""

    @property
    def text(self) -> str:
        return ""


class CallReady(Value, tag="call_ready"):
    """A call whose every byte has arrived, while the reply it belongs to goes on."""

    index: int
    """Which of the reply's calls it is, counted from 0."""
    call: ToolCall
    """With the id that every later event about it has, once a run shows it."""

    @property
    def text(self) -> str:
        return ""


class Skipped(Value, tag="skipped"):
    """Stands where a viewer that fell behind lost something."""

    count: int
    """How many deltas are missing here; the reply has them all."""

    @property
    def text(self) -> str:
        return ""


class AttemptRestarted(Value, tag="attempt_restarted"):
    """A reply broke off or never began, and is asked for again from its beginning.

    Shown before the wait.  Where words of the reply had been shown, they are void, and `text` says so: a
    viewer that prints everything must not seem to show one answer where there are two halves.
    """

    attempt: int
    """The attempt that is about to be made."""
    reason: str
    after: FailureKind | None = None
    wait_seconds: float = 0.0
    wait_source: WaitSource = ""
    void: bool = False
    """Whether words were shown that no longer count."""

    @property
    def text(self) -> str:
        return "\n[the reply broke off; it is asked for again from its beginning]\n" if self.void else ""


Delta = TextDelta | ReasoningDelta | ToolCallDelta | CallReady | AttemptRestarted
