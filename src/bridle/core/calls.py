"""What happens to the calls of a reply, from opened to answered.

The tools' half of the loop: each function is the state after one event.  A batch is closed
when its last call has a result; only then does the model hear of any of them, in its own
order.
"""

from msgspec.structs import replace

from ..values import event as e
from ..values.errors import MisuseError
from ..values.message import Message
from ..values.parts import Text, ToolResult
from ..values.request import ToolSpec
from ..values.settings import Settings
from .catalogue import naming
from .dispatch import answered, callable_tools, problem_with
from .limits import CAPPED
from .opencall import OpenCall, find_call
from .progress import PERIOD_MAX, batch_signature
from .receipts import (
    LOOKED_UP,
    add_doubt,
    add_receipt,
    is_still_unknown,
    settle_doubts,
    share_doubt,
)
from .saying import said, tools_tokens
from .state import Phase, State
from .undoing import remembered

INTERRUPTED = (
    "This call was interrupted while it was running. Whether it took effect is unknown; find out before"
    " you repeat it."
)
NOT_STARTED = "This call was not run: the run ended first."
EDITED = "A person changed the arguments of this call to {arguments}\n"


def tool_started(state: State, event: e.ToolStarted, at: float, proof: str) -> State:
    after = replace(_counted(state) if event.attempt == 1 else state, sifted=True)
    return _with(after, event.call_id, attempt=event.attempt, key=event.key, running=True, in_doubt=False)


def _counted(state: State) -> State:
    spent, total = state.run.spent, state.total
    run = replace(state.run, spent=replace(spent, tool_calls=spent.tool_calls + 1))
    return replace(state, run=run, total=replace(total, tool_calls=total.tool_calls + 1))


def tool_probed(state: State, event: e.ToolProbed, at: float, proof: str) -> State:
    """It surely never took effect: it may be run, under the key it always had."""
    place = find_call(state.calls, event.call_id)
    if place is None:
        return state
    item = _shared(state, state.calls[place])
    spec = _spec_of(state, item)
    doubts = settle_doubts(state.doubts, item, spec) if spec is not None else state.doubts
    return _with(replace(state, doubts=doubts), event.call_id, in_doubt=False, key=item.key)


def tool_finished(state: State, event: e.ToolFinished, at: float, proof: str) -> State:
    wholes = (event.whole,) if event.whole is not None and event.whole not in state.wholes else ()
    before = replace(state, wholes=(*state.wholes, *wholes)) if wholes else state
    if event.rule in CAPPED:
        before = replace(before, run=replace(before.run, capped=CAPPED[event.rule]))
    place = find_call(state.calls, event.result.call_id)
    if place is not None and state.calls[place].open_question is not None:
        before = _waited(before, at)  # for an answer that never came
    after = _with(before, event.result.call_id, result=event.result, running=False)
    item = after.calls[place] if place is not None else None
    return closed(_kept(after, item, event, at) if item is not None else after, at)


def _kept(state: State, item: OpenCall, event: e.ToolFinished, at: float) -> State:
    """What is remembered of a call beyond its batch: how to undo it, and that it need not be done again."""
    found = _shared(state, item) if event.how in LOOKED_UP else item
    if found.same_action and not is_still_unknown(found, event.how):
        found = replace(found, attempt=1)  # the earlier call's: this result is of that attempt
    after = remembered(state, found, event.whole)
    if found.attempt == 0:
        return after
    if is_still_unknown(found, event.how):
        return in_doubt_from_now(after, found, at)
    spec = _spec_of(state, found)
    if spec is None or spec.once_per is None:
        return after
    receipts = add_receipt(after.receipts, found, spec, event.whole, run=len(after.prompts), at=at)
    return replace(after, receipts=receipts, doubts=settle_doubts(after.doubts, found, spec))


def in_doubt_from_now(state: State, item: OpenCall, at: float) -> State:
    """The state after a call was answered that was started and of which nobody knows the effect."""
    return replace(state, doubts=add_doubt(state.doubts, item, run=len(state.prompts), at=at))


def _shared(state: State, item: OpenCall) -> OpenCall:
    """The call, with the doubt and the key of an interrupted one where both are the same action."""
    spec = _spec_of(state, item)
    if spec is None:
        return item
    return share_doubt(state.doubts, item, spec, run=len(state.prompts), now=state.now)


def _spec_of(state: State, item: OpenCall) -> ToolSpec | None:
    for spec in state.settings.every_tool:
        if spec.name == item.call.name:
            return spec
    return None


def tools_shown(state: State, event: e.ToolsShown, at: float, proof: str) -> State:
    """Behind all others, once and for good; naming again what is shown already changes nothing."""
    hidden = {spec.name: spec for spec in state.settings.hidden}
    strange = [name for name in event.names if name not in hidden]
    if strange:
        raise MisuseError(f"{', '.join(strange)} cannot be shown: no hidden tool is called that")
    new = tuple(name for name in dict.fromkeys(event.names) if name not in state.shown)
    # With no estimate yet there is nothing to add to: the first one counts what is shown by then.
    more = tools_tokens(tuple(hidden[name] for name in new)) if state.prompt_tokens else 0
    return replace(
        state,
        shown=(*state.shown, *new),
        shown_at=(*state.shown_at, *[len(state.transcript.messages)] * len(new)),
        prompt_tokens=state.prompt_tokens + more,
        looked=state.looked or event.first,
        owed=tuple(name for name in state.owed if name not in new),
    )


def approval_asked(state: State, event: e.ApprovalAsked, at: float, proof: str) -> State:
    return _with(state, event.call_id, asked=event, asked_at=at)


def approval_answered(state: State, event: e.ApprovalAnswered, at: float, proof: str) -> State:
    place = find_call(state.calls, event.call_id)
    item = state.calls[place] if place is not None else None
    asked = item.open_question if item is not None else None
    if item is None or asked is None or asked.binding != event.binding:
        raise MisuseError(
            f"nobody asks about {event.call_id} any more; `bridle approvals` lists what is open"
        )
    if asked.expires_at is not None and at >= asked.expires_at:
        raise MisuseError(f"the time to answer about {event.call_id} is over; resume the run to go on")
    if event.answer == "done" and asked.question != "in_doubt":
        raise MisuseError(f"{event.call_id} was never started, so it cannot be done; approve or reject it")
    is_doubted = bool(item.attempt) or asked.question == "in_doubt"
    if event.arguments is not None and is_doubted:
        raise MisuseError(
            f"{event.call_id} was started already, so its arguments cannot change; answer without them"
        )
    if event.arguments is not None:
        edited = replace(item.call, arguments=event.arguments)
        problem = problem_with(edited, callable_tools(state))
        if problem:
            raise MisuseError(f"{item.call.name} cannot be run with these arguments: {problem}")
    waited = _waited(state, at)
    if is_doubted and item.answer is not None:
        # It was started with what an earlier answer made of it; the key stands for these arguments.
        event = replace(event, arguments=item.answer.arguments, claim=item.answer.claim)
    return _with(replace(waited, sifted=False), event.call_id, answer=event)


def call_reviewed(state: State, event: e.CallReviewed, at: float, proof: str) -> State:
    place = find_call(state.calls, event.call_id)
    if place is None:
        return state
    item = state.calls[place]
    claim = event.claim or item.claim
    if not event.discards_approval or item.answer is None:
        return _with(state, event.call_id, claim=claim)
    # A call that was started keeps the arguments it was started with: its key stands for them.
    kept = replace(item.answer, binding="") if item.attempt else None
    discarded = item.approvals_discarded + 1
    return _with(state, event.call_id, claim=claim, answer=kept, asked=None, approvals_discarded=discarded)


def paused(state: State, at: float) -> State:
    """Since the last event nothing went on but waiting for a person or for a driver: not the run's time."""
    started_at = state.run.started_at + max(0.0, at - state.now)
    return replace(state, run=replace(state.run, started_at=started_at))


def _waited(state: State, at: float) -> State:
    """A person's time is the run's only while some tool went on beside it."""
    return state if any(item.running and item.result is None for item in state.calls) else paused(state, at)


def closed(state: State, at: float) -> State:
    """The state after a batch whose last result has come in; the state as it is before that."""
    calls = state.calls
    # From the end: the last calls are answered last, so that this looks at few of many.
    if not calls or any(item.result is None for item in reversed(calls)):
        return state
    remembered = PERIOD_MAX * (state.settings.repeats_max or 0)
    output = _accepted(state.settings, calls)
    run = replace(
        state.run,
        batches=(*state.run.batches, batch_signature(answered(calls)))[-remembered:] if remembered else (),
        output=output,
        rejections=state.run.rejections + (1 if _rejected(state.settings, calls) else 0),
    )
    after = answered_by(replace(state, run=run), calls, at)
    return replace(after, phase=Phase.JUDGING if output is not None else Phase.ASKING)


def checked_again(state: State) -> tuple[OpenCall, ...]:
    """The open calls under new settings: what has not been started yet must suit the tools there are now."""
    known = callable_tools(state)
    return tuple(
        replace(item, problem=problem_with(item.call, known))
        if item.result is None and item.attempt == 0
        else item
        for item in state.calls
    )


def given_up(calls: tuple[OpenCall, ...]) -> tuple[OpenCall, ...]:
    """Every call with a result, whatever was going on."""
    return tuple(_given_up(item) for item in calls)


def answered_by(state: State, calls: tuple[OpenCall, ...], at: float) -> State:
    """The state in which the model is told what came of its calls."""
    message, owed = naming(state, _results_message(calls, at))
    return said(replace(state, calls=(), sifted=False, owed=(*state.owed, *owed)), message)


def _results_message(calls: tuple[OpenCall, ...], at: float) -> Message:
    """What the model is told; of a call a person changed, also that it was changed."""
    results = tuple(_told(item) for item in calls if item.result is not None)
    return Message(role="tool", parts=results, at=at, provenance="tool")


def _with(state: State, call_id: str, **changes: object) -> State:
    calls, place = state.calls, find_call(state.calls, call_id)
    if place is None:
        return state
    changed = replace(calls[place], **changes)
    return replace(state, calls=(*calls[:place], changed, *calls[place + 1 :]))


def _told(item: OpenCall) -> ToolResult:
    result = item.result
    assert result is not None
    edited = item.answer.arguments if item.answer is not None else None
    if edited is None or result.outcome in ("denied", "cancelled", "invalid"):
        return result
    return replace(result, parts=(Text(text=EDITED.format(arguments=edited)), *result.parts))


def _given_up(item: OpenCall) -> OpenCall:
    if item.result is not None:
        return item
    started = item.running or item.in_doubt
    result = ToolResult(
        call_id=item.call.id,
        parts=(Text(text=INTERRUPTED if started else NOT_STARTED),),
        outcome="unknown" if started else "cancelled",
    )
    return replace(item, result=result)


def _output_calls(settings: Settings, calls: tuple[OpenCall, ...]) -> tuple[OpenCall, ...]:
    output = settings.output
    if output is None or output.mode != "tool":
        return ()
    return tuple(item for item in calls if item.call.name == output.name and item.result is not None)


def _accepted(settings: Settings, calls: tuple[OpenCall, ...]) -> str | None:
    good = [item for item in _output_calls(settings, calls) if item.result and not item.result.is_error]
    return good[0].call.arguments if good else None


def _rejected(settings: Settings, calls: tuple[OpenCall, ...]) -> bool:
    return bool(_output_calls(settings, calls)) and _accepted(settings, calls) is None
