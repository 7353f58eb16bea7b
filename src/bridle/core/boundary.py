"""What is stopped before it reaches a provider that cannot take it, and what is said about it.

Some of what an agent is given belongs to one provider: a field of its request (`Extra`), a tool that it
runs itself (`ToolSpec.native`).  To any other provider these are an error, or worse, mean something else,
so they are not sent there.  Nor is a tool offered that a provider would run without asking, where the
policy wants it denied or a person asked.

What was asked for and is not done is recorded (`RequestAdjusted`); with `on_adjusted="error"` the run ends
before anything is sent.
"""

from collections.abc import Iterable

from msgspec.structs import replace

from ..values.event import RequestAdjusted
from ..values.request import ToolSpec
from .effects import End
from .permission import hosted_permission
from .settling import is_taken
from .state import State

STRICT = '{what}. Change what is asked for, or allow the difference with Agent(on_adjusted="event")'


def offered(state: State, specs: Iterable[ToolSpec]) -> tuple[ToolSpec, ...]:
    """Those of the tools that may be sent to the current model."""
    return tuple([spec for spec in specs if spec.native is None or not _withheld(state, spec)])


def withheld_tools(state: State, specs: Iterable[ToolSpec]) -> tuple[str, ...]:
    """Why tools that the provider runs itself are not offered, one sentence each."""
    return tuple(filter(None, [_withheld(state, spec) for spec in specs if spec.native is not None]))


def _withheld(state: State, spec: ToolSpec) -> str:
    model, called = state.settings.model, f"the hosted tool {spec.name!r} is not offered"
    if not is_taken(spec.native_to, model):
        return f"{called}: it belongs to {', '.join(spec.native_to)}, and {model.name} is asked"
    decision = hosted_permission(state, spec)
    if decision.permission == "deny":
        return f"{called}: it is not allowed ({decision.rule})"
    if decision.permission == "ask":
        return f"{called}: its provider runs it without asking, and a person is to be asked ({decision.rule})"
    return ""


def request_adjusted(state: State, event: RequestAdjusted, at: float, proof: str) -> State:
    """Recorded once a run; whoever wants an error gets it until the cause is gone."""
    run = state.run
    if state.settings.on_adjusted == "error":
        return replace(state, run=replace(run, adjusted=event.what))
    return replace(state, run=replace(run, noted=(*run.noted, *event.what)))


def refuse_adjusted(state: State) -> End | None:
    adjusted = state.run.adjusted
    return End(stop="failed", reason=STRICT.format(what="; ".join(adjusted))) if adjusted else None
