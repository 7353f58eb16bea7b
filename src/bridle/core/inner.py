"""Runs inside the tools of a run: what they spend is the run's too.

Each has a log of its own.  In the log of the run around it stands that it began and what each of its calls
came to, so that limits hold for all of it, and a crash loses no more than the call that was under way.
"""

from decimal import Decimal

from msgspec.structs import replace

from ..values.subrun import Subrun, SubrunCharged, SubrunStarted
from .budget import plus
from .state import State


def subrun_started(state: State, event: SubrunStarted, at: float, proof: str) -> State:
    if any(each.session == event.session for each in state.run.subruns):
        return state
    calls = (call for message in reversed(state.transcript.messages) for call in message.calls)
    tool = next((call.name for call in calls if call.id == event.call_id), "")
    begun = Subrun(session=event.session, call_id=event.call_id, tool=tool)
    return replace(state, run=replace(state.run, subruns=(*state.run.subruns, begun)))


def subrun_charged(state: State, event: SubrunCharged, at: float, proof: str) -> State:
    run = state.run
    subruns = tuple(_with(each, event) if each.session == event.session else each for each in run.subruns)
    inner = plus(run.inner, event.usage, event.usd, steps=event.steps)
    total = plus(state.inner, event.usage, event.usd, steps=event.steps)
    return replace(state, run=replace(run, inner=inner, subruns=subruns), inner=total)


def _with(subrun: Subrun, event: SubrunCharged) -> Subrun:
    known: Decimal | None = None if subrun.usd is None or event.usd is None else subrun.usd + event.usd
    return replace(subrun, usage=subrun.usage + event.usage, usd=known, steps=subrun.steps + event.steps)
