"""It is the model's turn: ask it, or is it over?

In this order: a limit that is reached, a prefix that moved and must not, a run that goes in circles, one
that is to be finished, a failure that no waiting mends (another model of the chain goes on, or the run
ends), notes to be loaded and things to be looked up, a change of the view that is due, a conversation that
has become too long; and then the question itself.
"""

from msgspec.structs import replace

from ..values.delta import AttemptRestarted
from ..values.parts import ToolCall
from .boundary import refuse_adjusted
from .budget import exhausted
from .catalogue import to_be_shown
from .compaction import SummaryWanted, compaction
from .context import assemble
from .conversation_object import conversation_wanted
from .effects import AskModel, ChangeView, Effect, End, Nudge, SwitchModel
from .fallback import next_model, story
from .gathering import gathering_wanted
from .handoff import wanted
from .judging import REJECTIONS_MAX, end_unshaped, last_output_problem
from .limits import deadline, to_wrap_up
from .memory import memory_wanted
from .prefix import refusal
from .progress import NOTICE_BEFORE_END, find_cycle, listed, notice
from .rebinding import outlived
from .retry import GivenUp, Wait, next_try
from .state import State
from .storing import kept_as, storing


def ask_or_end(state: State) -> Effect:
    reached = exhausted(state)
    if reached:
        return End(stop=reached[0], reason=reached[1])
    refused = refusal(state) or refuse_adjusted(state)
    if refused is not None:
        return refused
    circling = _circling(state)
    if circling is not None:
        return circling
    finish = to_wrap_up(state)
    if finish is not None:
        return finish
    if state.run.rejections > REJECTIONS_MAX:
        return end_unshaped(last_output_problem(state))
    patience = _patience(state)
    if isinstance(patience, GivenUp):
        own = _by_itself(state)
        if own is None:
            return _elsewhere_or_end(state, patience.why)
        state, patience = own, Wait(seconds=0.0, source="repair")
    before = memory_wanted(state) or gathering_wanted(state, deadline(state))
    if before is not None:
        return before
    change = wanted(state) or outlived(state)
    if change:
        return ChangeView(changes=change.changes, why=change.why, seat=change.seat)
    tools = to_be_shown(state, deadline(state))
    if tools is not None:
        return tools
    shorter = compaction(state)
    if isinstance(shorter, End) and (model := next_model(state)):
        return SwitchModel(model=model, why=shorter.reason)
    if shorter is not None and not isinstance(shorter, SummaryWanted):
        return shorter
    request, notes = (shorter.request, ()) if shorter else assemble(state)
    if shorter is None:
        conversing = conversation_wanted(state)
        if conversing is not None:
            return conversing
        keeping = storing(state, request)
        if keeping is not None:
            return keeping
        request = replace(request, kept_as=kept_as(state, request))
    failure = state.run.failure
    return AskModel(
        request=request,
        step=state.run.spent.steps + 1,
        attempt=state.run.attempt + 1,
        after=failure.kind if failure else None,
        wait_seconds=patience.seconds,
        wait_source=patience.source,
        deadline=deadline(state),
        notes=notes,
        summary_of=shorter.through if shorter else "",
    )


def restarted(effect: AskModel, state: State) -> AttemptRestarted:
    """What is shown before another attempt: why, when, and whether what was shown is void."""
    failure, left = state.run.failure, state.run.left
    return AttemptRestarted(
        attempt=effect.attempt,
        reason=failure.message if failure else left[-1][1] if left else "",
        after=effect.after,
        wait_seconds=effect.wait_seconds,
        wait_source=effect.wait_source,
        void=bool(state.run.partial),
    )


def _patience(state: State) -> Wait | GivenUp:
    run, until = state.run, deadline(state)
    refused = run.failure is not None and bool(run.failure.refused_parameter)
    mended = bool(run.blamed or run.echo or run.squeeze.overflow or refused)
    if run.failure is None or mended:
        return Wait(seconds=0.0, source="repair" if mended else "")
    if run.failure.kind == "unavailable" and next_model(state) is not None:
        return GivenUp(why=run.failure.message)  # why wait for one at rest, when another is awake
    return next_try(
        run.failure,
        run.tries,
        chance=run.chance,
        answered=state.replies > 0 or run.reached,
        again=run.refusals.count(run.failure.kind) > 1,
        rests=run.rests,
        left_seconds=None if until is None else until - state.now,
        attempts_max=state.settings.attempts_max,
    )


def _by_itself(state: State) -> State | None:
    """Where somebody else was to write a summary, or the provider, and cannot, the run's own model does."""
    wanted = compaction(state)
    if not isinstance(wanted, SummaryWanted):
        return None
    if wanted.request.compacts:
        return replace(state, run=replace(state.run, squeeze=replace(state.run.squeeze, plain=True)))
    if wanted.request.model.seat == state.settings.model.seat:
        return None
    return replace(state, run=replace(state.run, squeeze=replace(state.run.squeeze, own=True)))


def _elsewhere_or_end(state: State, why: str) -> Effect:
    model = next_model(state)
    if model is not None:
        return SwitchModel(model=model, why=why)
    return End(stop="failed", reason=story(state, why))


def _circling(state: State) -> Effect | None:
    run, limit = state.run, state.settings.repeats_max
    cycle = find_cycle(run.batches)
    if limit is None or cycle.repeats <= 1:
        return None
    calls = _last_calls(state, cycle.period)
    if cycle.repeats >= limit:
        told = f"{listed(calls)} called {cycle.repeats} times with the same arguments and result"
        return End(stop="no_progress", reason=told)
    due = cycle.complete and cycle.repeats == max(2, limit - NOTICE_BEFORE_END)
    if due and state.transcript.messages[-1].role == "tool":
        return Nudge(why="repeating", words=notice(cycle.repeats, calls))
    return None


def _last_calls(state: State, batches: int) -> tuple[ToolCall, ...]:
    with_calls = [message.calls for message in state.transcript.messages if message.calls]
    return tuple(call for calls in with_calls[-batches:] for call in calls)
