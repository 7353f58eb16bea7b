"""What streams by while a model talks.  Shown, never stored.

`text` exists on everything a stream yields and is empty where no words are
shown, so that `print(event.text, end="")` is a complete viewer.
"""

from dataclasses import dataclass, field
from typing import Generic, TypeVar

from .base import Value
from .budget import Subrun
from .calls import Compensation
from .errors import Failure, FailureKind
from .events import RunStop, WaitSource
from .message import Message, ToolCall
from .usage import Usage


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


class DeltasSkipped(Value, tag="skipped"):
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
    after_failure: FailureKind | None = None
    wait_seconds: float = 0.0
    wait_source: WaitSource = ""
    is_text_void: bool = False
    """Whether words were shown that no longer count."""

    @property
    def text(self) -> str:
        return (
            "\n[the reply broke off; it is asked for again from its beginning]\n" if self.is_text_void else ""
        )


Delta = TextDelta | ReasoningDelta | ToolCallDelta | CallReady | AttemptRestarted


# What a run hands back: everything it produced, whatever way it ended.


T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Result(Generic[T]):
    text: str
    output: T | None
    """The answer in the shape asked for; the text when no shape was asked for; None without an answer."""
    usage: Usage
    """Of this run and of those inside its tools."""
    cost: float | None
    """Dollars for this run and for those inside its tools; None when a price is unknown."""
    stop: RunStop
    reason: str
    session: str
    """Pass it as `session=` to go on."""
    messages: tuple[Message, ...]
    steps: int
    compensations: tuple[Compensation, ...] = ()
    """After a run that did not end well: what it did that can be undone, in the order to do it."""
    failure: Failure | None = None
    """The provider's last failure, when that is what ended the run."""

    own_usage: Usage = field(default_factory=Usage)
    own_cost: float | None = None
    """Of this run alone."""
    subruns: tuple[Subrun, ...] = ()
    """The runs inside its tools, each with its session and what it came to."""

    @property
    def done(self) -> bool:
        return self.stop == "done"


@dataclass(frozen=True, kw_only=True)
class History:
    """A conversation held elsewhere, made legal."""

    messages: tuple[Message, ...]
    instructions: str = ""
    """The system prompt, where the list held one."""
    repairs: tuple[str, ...] = ()
    """What had to be put right and what could not be kept, one sentence each."""
    family: str = ""
    """The wire family in whose form it was listed."""


@dataclass(frozen=True, kw_only=True)
class FinalAnswer(Generic[T]):
    """The last thing a stream yields.  Its words have been shown already, so `text` is empty."""

    result: Result[T]

    @property
    def text(self) -> str:
        return ""
