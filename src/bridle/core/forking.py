"""What a session begins with that left another one.

Rule 1: a call that is open where the line was left is the old session's to finish.  It may be running this
        very moment, so the new session answers it and never runs it; a model that wants it there too asks
        again, and then it is another call with another key.  Where equal arguments are the same action
        (`once_per`), the call that was under way is in doubt in the new session, and an equal one as well.
Rule 2: what only reads, or may be repeated under its key, stays open and runs in both.
Rule 3: what was done before the fork is undone, if at all, where it was done.
"""

from msgspec.structs import replace

from ..values.lineage import Forked
from ..values.parts import Text, ToolResult
from ..values.request import ToolSpec
from .calls import closed, in_doubt_from_now
from .opencall import OpenCall
from .state import Phase, State

UNDER_WAY = (
    "This call was under way in the session that this one was forked from. Whether it took effect is not"
    " known here; find out before you repeat it."
)
NOT_HERE = (
    "This call was not run here. It belongs to the session that this one was forked from, which may run it"
    " yet; find out before you repeat it."
)


def forked(state: State, event: Forked, at: float, proof: str) -> State:
    # The provider's conversation object goes on growing with the session that this one has left.
    state = replace(state, conversation=None)
    run = replace(state.run, done=tuple(item for item in state.run.done if item.state == "done"))
    if not any(item.result is None for item in state.calls):
        return replace(state, run=run)
    calls = tuple(_left(item, spec_of(state, item)) for item in state.calls)
    for before, item in zip(state.calls, calls, strict=True):
        if before.result is None and item.result is not None and item.result.outcome == "unknown":
            state = in_doubt_from_now(state, item, at)
    if all(item.result is not None for item in calls):
        run = replace(run, stop=None, reason="")
        return closed(replace(state, phase=Phase.ACTING, calls=calls, run=run), at)
    return replace(state, calls=calls, run=run)


def cuts_calls(state: State) -> bool:
    """Whether leaving here leaves calls behind that may change something."""
    return any(_owned(item, spec_of(state, item)) for item in state.calls)


def spec_of(state: State, item: OpenCall) -> ToolSpec | None:
    return next((spec for spec in state.settings.every_tool if spec.name == item.call.name), None)


def _owned(item: OpenCall, spec: ToolSpec | None) -> bool:
    """Whether running it in two sessions would be doing it twice.  What was wrong with it never runs."""
    if item.result is not None or item.problem or spec is None:
        return False
    return spec.effect != "read" and spec.on_unknown != "retry"


def _left(item: OpenCall, spec: ToolSpec | None) -> OpenCall:
    """An open call as it is for the session that has left: nobody here is running it."""
    if item.result is not None:
        return item
    started = item.running or item.in_doubt
    if not _owned(item, spec):
        return replace(item, running=False, in_doubt=started)
    result = ToolResult(
        call_id=item.call.id,
        parts=(Text(text=UNDER_WAY if started else NOT_HERE),),
        outcome="unknown" if started else "cancelled",
    )
    return replace(item, running=False, in_doubt=False, result=result)
