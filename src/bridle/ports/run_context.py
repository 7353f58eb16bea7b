"""Contract of `RunContext[T]`: what user code that takes part in a run is given.

Tools, instructions, hooks and validators take it as a parameter annotated `RunContext` or `RunContext[T]`; a
model never sees that parameter. `context` is the object that the caller passed as `context=…`. It is never
stored: a resumed run is given it again.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Generic, Protocol

import msgspec

from bridle.values.calls import ServerReply, ServerRequest
from bridle.values.text import repair_surrogates
from bridle.values.usage import Limits, Usage

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from bridle.ports.timeout_pause import TimeoutPause
    from bridle.values.result import Progress

    T_co = TypeVar("T_co", covariant=True, default=object)
else:
    from typing import TypeVar

    T_co = TypeVar("T_co", covariant=True)


class RunMonitor(Protocol):
    """The run that a `RunContext` belongs to; may be used from any thread."""

    @property
    def usage(self) -> Usage: ...

    @property
    def budget_left(self) -> Limits: ...

    def show_progress(self, progress: "Progress") -> None: ...

    async def answer_request(self, call_id: str, request: ServerRequest) -> ServerReply:
        """Put a request of a tool's server to the model or to a person; raises `RequestRefused`."""
        ...


class RunContext(msgspec.Struct, Generic[T_co], frozen=True, kw_only=True, eq=False):
    """The caller's context, and the run and call that it is used in.

    A test of a tool makes one by hand: `RunContext(context=…)`.
    """

    context: T_co
    session: str = ""
    tenant: str = ""
    caller: str = ""
    step: int = 0
    """Number of the model reply in this run that the call belongs to, from 1; before a request, of the next."""
    name: str = ""
    """Name of the tool or function that receives this."""
    call_id: str = ""
    """Id of the tool call; empty outside of tools."""
    idempotency_key: str = ""
    """Equal for all attempts at this call: pass it on to services that recognise repetitions."""
    attempt: int = 1
    traceparent: str = ""
    """Position in the trace of the run, as a W3C header to send on; empty without telemetry and without one from
    the caller."""
    cancelled: bool = False
    """True once the result is no longer awaited: the deadline has passed or the run was cancelled.  A function
    in a thread cannot be stopped from outside, so a long one checks this."""
    monitor: RunMonitor | None = None
    """The run; None in a context made by hand."""
    pause: "TimeoutPause | None" = None
    """Time that does not count towards the timeout of the call; None if it waited for nobody."""

    @property
    def usage(self) -> Usage:
        """Tokens used by this run and its subruns so far."""
        return self.monitor.usage if self.monitor is not None else Usage()

    @property
    def budget_left(self) -> Limits:
        """What is left of the limits of the run and of its session; None where there is no limit.

        Budgets shared with other runs are not included.
        """
        return self.monitor.budget_left if self.monitor is not None else Limits()

    def progress(self, message: str, fraction: float | None = None) -> None:
        """Show progress to the viewers of the run now.  It is not recorded.

        `fraction` is the completed share, from 0 to 1.  May be called from any thread; after the call was
        cancelled nothing is shown.
        """
        if not isinstance(message, str):
            raise TypeError(f"progress(…) takes a text, not {type(message).__name__}")
        if fraction is not None and not 0 <= fraction <= 1:
            raise ValueError(f"progress(…, fraction) must be between 0 and 1, not {fraction!r}")
        if self.monitor is not None and not self.cancelled:
            # The module of results and events is not needed to declare a tool.
            self.monitor.show_progress(
                import_module("bridle.values.result").Progress(
                    name=self.name,
                    call_id=self.call_id,
                    message=repair_surrogates(message),
                    fraction=None if fraction is None else float(fraction),
                )
            )
