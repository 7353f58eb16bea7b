"""Everything that can happen in a session, one struct per fact.

Events are kept for ever and a session is nothing but its events.  Hence:

  - An event names something that *has happened*, in the past tense.
  - Order, time and proof are on the envelope (`Record`), put there by the driver.
  - New fields get defaults; an old field is never renamed or given a new meaning.
  - What was decided by code outside the core (a price, a choice made by a
    callable) is recorded with the event, so that folding needs no outside world.

`once` names what must not be in a log twice, whatever retries above the store do.
"""

from decimal import Decimal
from typing import Literal

from .errors import Failure
from .message import Message, Reply
from .parts import Media, Text, ToolResult
from .request import ToolChoice
from .settings import Settings
from .usage import Budget, Usage
from .value import Value

RunStop = Literal[
    "done", "budget", "steps", "seconds", "no_progress", "refused", "cancelled", "failed", "waiting"
]


class _Quiet(Value):
    """An event that shows no words; everything a stream yields answers to `.text` and `.once`."""

    @property
    def text(self) -> str:
        return ""

    @property
    def once(self) -> str | None:
        return None


class Configured(_Quiet, tag="configured"):
    """What the session is made of from here on."""

    settings: Settings
    session: str = ""
    """Set on the first event: makes this line of records unlike any other, for ever."""


class Prompted(_Quiet, tag="prompted"):
    """A person said something: a run begins."""

    parts: tuple[Text | Media, ...]
    budget: Budget = Budget()


class Imported(_Quiet, tag="imported"):
    """A conversation held elsewhere became the beginning of this one."""

    messages: tuple[Message, ...]
    repairs: tuple[str, ...] = ()
    """What had to be put right in it, one sentence each."""


class Change(Value):
    """One part of what is sent, replaced by words, or left out when there are none.

    The log keeps the original; only the view that goes to models changes.
    """

    message: str
    part: int
    """Which part of the message as it was said, whatever was changed in it since."""
    inner: int = -1
    """Which part of a tool result; -1 for the part itself."""
    words: str = ""
    plain: bool = False
    """The part stays, without what only its provider can read."""


class ViewChanged(_Quiet, tag="view_changed"):
    """What goes to models from here on differs from what was said; decided once, and for a stated reason."""

    changes: tuple[Change, ...]
    why: str
    seat: str = ""
    """The only model (`Model.seat`) it is changed for; empty when it is for all of them."""


class Resumed(_Quiet, tag="resumed"):
    """A new driver took the session over; whatever was under way in the old one is in doubt."""

    budget: Budget | None = None


class ModelAsked(_Quiet, tag="model_asked"):
    step: int
    attempt: int
    digest: str
    """Hash of the encoded request: a replay can prove that it asks the same."""
    tool_choice: ToolChoice = ToolChoice()
    max_tokens: int | None = None
    notes: tuple[str, ...] = ()
    """What had to be changed because this model would refuse it."""


class ModelReplied(_Quiet, tag="model_replied"):
    reply: Reply
    usd: Decimal | None = None
    objection: str = ""
    """Why the type asked for refuses this answer, though its schema does not; found by the type itself."""


class ModelFailed(_Quiet, tag="model_failed"):
    failure: Failure
    partial: str = ""
    """What the model had said when its reply broke off."""
    usage: Usage | None = None
    """What was counted of a reply that broke off; None when there was no reply to pay for."""
    usd: Decimal | None = None


class ToolStarted(_Quiet, tag="tool_started"):
    """The intent, durable before the tool runs."""

    call_id: str
    name: str
    key: str
    """The same for every attempt at this call, so that a tool can recognise a repetition."""
    attempt: int = 1

    @property
    def once(self) -> str | None:
        return f"intent:{self.call_id}#{self.attempt}"


class ToolFinished(_Quiet, tag="tool_finished"):
    """The receipt: a call with one is never run again."""

    result: ToolResult

    @property
    def once(self) -> str | None:
        return f"receipt:{self.result.call_id}"


class Nudged(_Quiet, tag="nudged"):
    """The harness asked the model to go on or to try again."""

    why: str
    words: str


class RunEnded(_Quiet, tag="run_ended"):
    """Calls still open are answered by this event, so that no later request can be illegal."""

    stop: RunStop
    reason: str = ""
    partial: str = ""
    """What the model had said of a reply that was cut off."""
    usage: Usage | None = None
    """What was counted of that reply; None when there was none to pay for."""
    usd: Decimal | None = None


Event = (
    Configured
    | Imported
    | Prompted
    | ViewChanged
    | Resumed
    | ModelAsked
    | ModelReplied
    | ModelFailed
    | ToolStarted
    | ToolFinished
    | Nudged
    | RunEnded
)
