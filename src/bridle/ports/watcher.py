"""Contract of an observer of runs, such as a console, a file or telemetry.

A watcher must return quickly and never await. It cannot affect a run: if it raises, a warning is issued once
and it is not called again.
"""

from decimal import Decimal
from typing import Protocol, runtime_checkable

from bridle.values.base import Value
from bridle.values.record import Record
from bridle.values.result import Delta


class RunSummary(Value, kw_only=True):
    """What a run is and has used when it ends, also in a process that continued it."""

    agent: str
    tenant: str
    caller: str
    usd: Decimal | None
    """Cost so far, with that of runs inside its tools; None if a price is unknown."""
    budget_use: tuple[tuple[str, float], ...] = ()
    """Shares of the run's limits that are used, by kind: 1.0 is all of it."""
    trace_id: str = ""
    """Id of its trace, in hex; empty without telemetry and without a caller's trace."""


class Watcher(Protocol):
    def on_event(self, session: str, happening: "Record | Delta") -> None: ...


@runtime_checkable
class SummaryWatcher(Protocol):
    """Optional: a watcher that gets a summary right before the event `RunEnded`."""

    def on_run_end(self, session: str, summary: RunSummary) -> None: ...


@runtime_checkable
class AgentWatcher(Protocol):
    """Optional: a watcher that is told the agent and the tenant of a run.

    It is told before the first event that this process records of the run, and when another agent takes it over.
    """

    def on_run_agent(self, session: str, agent: str, tenant: str) -> None: ...
