"""Sums up a run for watchers when it ends."""

from typing import TYPE_CHECKING

from bridle.core.budget.limits import add_nested_spending
from bridle.core.cache.breakpoints import agent_name
from bridle.core.state import State
from bridle.core.tracing.attributes import list_budget_use
from bridle.ports.watcher import RunSummary

if TYPE_CHECKING:
    from bridle.run.context.telemetry import SessionTracer


def summarize_run(state: State, tracer: "SessionTracer | None") -> RunSummary:
    used, origin = state.run.budget, state.run.origin
    spent = add_nested_spending(used.spent, used.nested_spent)
    traceparent = tracer.run_traceparent() if tracer is not None else origin.traceparent
    return RunSummary(
        agent=agent_name(state.settings),
        tenant=origin.tenant,
        caller=origin.caller,
        usd=spent.usd,
        budget_use=tuple(list_budget_use(state)),
        trace_id=traceparent.split("-")[1] if traceparent else "",
    )
