"""Values that a run yields and returns: stream deltas, its result, imported histories.

Deltas are shown, never stored. Every item of a stream has `text`, empty if there is nothing to show, so that
`print(event.text, end="")` is a complete viewer.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from importlib import import_module
from typing import Any, Generic, TypeVar, cast

import msgspec

from .base import Value
from .budget import Subrun
from .calls import Compensation
from .errors import BridleError, Failure, FailureKind
from .events import Event, RunStop, WaitSource
from .message import Message, ToolCall
from .text import render_messages, render_result
from .usage import Usage


class SilentItem(Value):
    """An item without text to show."""

    @property
    def text(self) -> str:
        return ""


class TextDelta(Value, kw_only=True, tag="text_delta"):
    text: str


class ReasoningDelta(SilentItem, kw_only=True, tag="reasoning_delta"):
    reasoning: str


class ToolCallDelta(SilentItem, kw_only=True, tag="tool_call_delta"):
    """A piece of a call's arguments; incomplete, for display only."""

    index: int
    """Identifies the call within its reply."""
    name: str
    arguments: str
    call_id: str = ""
    """The call's id in all later events; set by the run, not by the decoder."""


class CallReady(SilentItem, kw_only=True, tag="call_ready"):
    """A call that has arrived completely, while its reply is still streaming."""

    index: int
    """Index of the call in the reply, from 0."""
    call: ToolCall
    """Has its final id once a run shows it."""

    @property
    def call_id(self) -> str:
        return self.call.id

    @property
    def name(self) -> str:
        return self.call.name

    @property
    def arguments(self) -> str:
        return self.call.arguments


class DeltasSkipped(SilentItem, kw_only=True, tag="skipped"):
    """Placeholder for deltas that a slow viewer missed."""

    count: int
    """Number of missed deltas; the reply contains their text, progress is not shown again."""


class AttemptRestarted(Value, kw_only=True, tag="attempt_restarted"):
    """A reply broke off or never began and is requested again from the start.

    Shown before the wait. Text already shown is void, and `text` says so: a viewer that prints everything
    must not appear to show one answer made of two halves.
    """

    attempt: int
    """Number of the next attempt."""
    reason: str
    after_failure: FailureKind | None = None
    wait_seconds: float = 0.0
    wait_source: WaitSource = ""
    is_text_void: bool = False
    """True if text was shown that no longer counts."""

    @property
    def text(self) -> str:
        return "\n[reply interrupted; retrying from the start]\n" if self.is_text_void else ""


class Progress(SilentItem, kw_only=True, tag="progress"):
    """Progress reported by a running tool or other user code; shown live and not stored."""

    name: str
    """Name of the tool or function."""
    message: str
    fraction: float | None = None
    """Completed share, from 0 to 1."""
    call_id: str = ""
    """Id of the tool call; empty outside of tools."""
    is_output: bool = False
    """True if the message is the latest line that a program wrote, which the next one replaces."""


class SubrunItem(SilentItem, kw_only=True, tag="subrun_item"):
    """An event of a run inside a tool, as the viewers of the outer run see it."""

    call_id: str
    """Call of the outer run inside which it happened."""
    session: str
    """Session of the run inside the tool; its log holds the event."""
    item: "Event | Delta"
    """The event; itself a `SubrunItem` if it happened in a run inside a tool of that run."""


class SubrunDelta(SubrunItem, tag="subrun_delta"):
    """A delta of a run inside a tool, which a slow viewer may miss."""


Delta = (
    TextDelta
    | ReasoningDelta
    | ToolCallDelta
    | CallReady
    | AttemptRestarted
    | Progress
    | SubrunItem
    | SubrunDelta
)
DELTA_TYPES = (TextDelta, ReasoningDelta, ToolCallDelta, CallReady, Progress, SubrunDelta)
"""Items that a slow viewer may miss: the reply repeats them in full, except for progress."""


T = TypeVar("T")


def _describe_message(message: Message) -> str:
    calls = (f"{call.name}({call.arguments})" for call in message.calls)
    results = (result.text for result in message.results)
    return "\n".join(filter(None, (message.text, *calls, *results)))


class Messages(tuple[Message, ...]):
    """The messages of a conversation, which print as a transcript and are shown as one in notebooks."""

    __slots__ = ()

    def __str__(self) -> str:
        return "\n\n".join(f"{message.role}: {_describe_message(message)}" for message in self)

    def _repr_html_(self) -> str:
        return render_messages(msgspec.to_builtins(tuple(self)))


@dataclass(frozen=True, kw_only=True)
class Result(Generic[T]):
    """Everything a run produced, however it ended."""

    text: str
    output: T | None
    """The answer as the requested type; the text if no type was requested; None without an answer."""
    usage: Usage
    """Usage of this run and its subruns."""
    cost: float | None
    """Dollars for this run and its subruns; None if a price is unknown."""
    stop: RunStop
    reason: str
    session: str
    """Pass as `session=` to continue."""
    messages: Messages
    steps: int
    compensations: tuple[Compensation, ...] = ()
    """Actions of a run that did not end well that can be undone, in the order to undo them."""
    failure: Failure | None = None
    """The provider's last failure, if it ended the run."""
    external_calls: tuple[ToolCall, ...] = ()
    """Calls that the run waits for the caller to run; pass their results to `agent.resume(results=…)`."""
    adjusted: tuple[str, ...] = ()
    """Everything that was asked for and dropped, clamped, replaced or not followed, one sentence each, with the reason.

    `Agent(on_adjusted="error")` ends a run instead, before anything is sent."""

    own_usage: Usage = field(default_factory=Usage)
    own_cost: float | None = None
    """Usage and dollars of this run alone."""
    subruns: tuple[Subrun, ...] = ()
    """Runs inside its tools, each with its session and spending."""
    _hold: object = field(default=None, repr=False, compare=False)
    """Keeps the session in a store in memory that drops old ones."""
    _dump_output: Callable[[Any], object] = field(default=lambda output: output, repr=False, compare=False)
    """Makes JSON of the output."""
    _is_output_missing: bool = field(default=False, repr=False, compare=False)
    """True if the run ended with an answer that another agent took as text, not as the output type."""

    @property
    def done(self) -> bool:
        return self.stop == "done"

    def _repr_html_(self) -> str:
        cost = "cost unknown" if self.cost is None else f"${self.cost:.4f}"
        tokens = f"{self.usage.prompt:,} tokens in, {self.usage.output:,} out"
        facts = (f"{self.steps} steps", tokens, cost, f"session {self.session}")
        described = {"stop": self.stop, "reason": self.reason, "text": self.text, "facts": facts}
        return render_result(described, msgspec.to_builtins(self.messages))

    def __str__(self) -> str:
        """The answer; of a run without one, why it stopped and what to do."""
        return self.text if self.done else explain_stop(self)

    def to_dict(self, *, messages: bool = False) -> dict[str, object]:
        """The result as JSON data, for a web handler or a file; with `messages`, the whole conversation too.

        FastAPI sends it by itself for a handler that is annotated `-> Result`.
        """
        described: dict[str, object] = {
            "session": self.session,
            "stop": self.stop,
            "reason": self.reason,
            "text": self.text,
            "output": self._dump_output(self.output),
            "cost": self.cost,
            "steps": self.steps,
        }
        listed = ("usage", "failure", "external_calls", "compensations", "subruns", "adjusted")
        for name in (*listed, "messages") if messages else listed:
            value = getattr(self, name)
            described[name] = msgspec.to_builtins(tuple(value) if isinstance(value, Messages) else value)
        return described

    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: object) -> object:
        """Called by pydantic, which is therefore there; a web framework then sends `to_dict()`."""
        schemas = import_module("pydantic_core.core_schema")
        write = schemas.plain_serializer_function_ser_schema(lambda result: result.to_dict())
        return schemas.is_instance_schema(Result, serialization=write)

    def raise_for_stop(self) -> "DoneResult[T]":
        """Return this result with `output` typed as present; raise `RunStopped` without an answer of that type."""
        if self.stop != "done" or self._is_output_missing:
            raise RunStopped(self)
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return cast("DoneResult[T]", DoneResult(**values))


@dataclass(frozen=True, kw_only=True)
class DoneResult(Result[T]):
    """The result of a run that ended with an answer, so `output` is never missing."""

    output: T


NEXT_MOVES: dict[RunStop, str] = {
    "budget": "raise the budget and call `agent.resume({session!r}, budget=…)`; a pool is raised with `Agent(pool=…)`",
    "steps": "raise the budget and call `agent.resume({session!r}, budget=…)`",
    "seconds": "raise the budget and call `agent.resume({session!r}, budget=…)`",
    "waiting": "answer `agent.approvals({session!r})`, then call `agent.resume({session!r})`; with the results of"
    " `result.external_calls`, call `agent.resume({session!r}, results=…)`",
    "cancelled": "call `agent.resume({session!r})` to finish it",
    "failed": "remove the cause and call `agent.resume({session!r})`",
    "no_progress": "change the tools or the instructions, or prompt again with `session={session!r}`",
    "paused": "call `agent.resume({session!r})` to continue it",
    "refused": "change the prompt; `result.messages` has the refusal",
    "context": "use a model with a larger window, or shorten the conversation",
}
"""Next step for the caller after each end without an answer."""


FAILURE_MOVES: dict[FailureKind, str] = {
    "unauthorized": "check the key of the provider (`bridle doctor`)",
    "quota": "add credit to the account, or raise its limit",
    "not_found": "check the name of the model (`bridle models`) and the address",
    "invalid": "the provider rejected the request: `bridle show {session}` has its words",
    "unreachable": "check the network and the address (`bridle doctor`)",
}
"""Next step after a failure of a provider; after others it is that of `NEXT_MOVES`."""


def explain_stop(result: "Result[T]") -> str:
    """One sentence about a run without an answer: how it stopped, why, and what to do."""
    why = f": {result.reason}" if result.reason else ""
    return f"the run stopped as {result.stop!r} without an answer{why}. Next: {suggest_move(result)}"


def suggest_move(result: "Result[T]") -> str:
    kind = result.failure.kind if result.failure is not None else None
    move = FAILURE_MOVES.get(kind) if kind is not None else None
    return (move or NEXT_MOVES.get(result.stop, "see `result.reason`")).format(session=result.session)


class RunStopped(BridleError):
    """A run ended without an answer.

    Raised by `Result.raise_for_stop`, `run(…, check=True)` and an agent with `raise_on_stop=True`.
    """

    def __init__(self, result: "Result[T]") -> None:
        if result.stop == "done":
            super().__init__(
                f"the run in session {result.session!r} ended with a text, not with the output type: an agent without"
                " this `output=` finished it. Next: read `result.text`, or prompt again with the session"
            )
            self.result: Result[object] = cast("Result[object]", result)
            return
        super().__init__(explain_stop(result))
        self.result = cast("Result[object]", result)

    @property
    def stop(self) -> RunStop:
        return self.result.stop


@dataclass(frozen=True, kw_only=True)
class History:
    """A conversation imported from another library or provider, repaired so that it can be continued."""

    messages: tuple[Message, ...]
    instructions: str = ""
    """The system prompt, if the list contained one."""
    repairs: tuple[str, ...] = ()
    """Repairs and dropped content, one sentence each."""
    family: str = ""
    """Wire family in whose form it was listed."""


@dataclass(frozen=True, kw_only=True)
class PartialOutput(Generic[T]):
    """An answer while it arrives; see `Stream.partial`."""

    value: object
    """The answer so far as plain JSON data, or as text without an output type."""
    output: T | None = None
    """The answer as the requested type, once the type accepts what has arrived."""
    answer: int = 1
    """Number of the answer: higher if the model was asked again and starts from the beginning."""
    complete: bool = False
    """True for the last item: `output` is the answer of the run."""


@dataclass(frozen=True, kw_only=True)
class FinalAnswer(Generic[T]):
    """The last item of a stream. Its text has been shown already, so `text` is empty."""

    result: Result[T]

    @property
    def text(self) -> str:
        return ""
