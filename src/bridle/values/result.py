"""What a run hands back: everything it produced, whatever way it ended."""

from dataclasses import dataclass, field
from typing import Generic, TypeVar

from .compensation import Compensation
from .errors import Failure
from .event import RunStop
from .message import Message
from .subrun import Subrun
from .usage import Usage

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
