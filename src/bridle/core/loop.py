"""The agent loop, as two pure functions.

    apply(state, event)      what has happened  -> the new state
    next_effects(state)      what is known      -> what to do now

Rule 1: everything that changes the state of a session is in this file, and in calls.py for its tools.
Rule 2: this file knows no provider, no tool, no store, no clock.
Rule 3: what to do is derived from the state, so a live run and a resumed run take the
        same road: fold the events, ask for the next effects.  There is no recovery code.

`TRANSITIONS` at the end is the specification: an event that has no line for the current
phase cannot happen, and saying so is better than guessing what it could mean.
"""

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from ..values import event as e
from ..values.errors import MisuseError
from ..values.message import Message, Stop
from ..values.parts import Text
from ..values.settings import Settings
from ..values.subrun import SubrunCharged, SubrunStarted
from .asking import ask_or_end
from .boundary import request_adjusted
from .budget import booked, charged, plus
from .calls import (
    answered_by,
    approval_answered,
    approval_asked,
    call_reviewed,
    checked_again,
    given_up,
    in_doubt_from_now,
    paused,
    tool_finished,
    tool_probed,
    tool_started,
    tools_shown,
)
from .compaction import compacted
from .conversation_object import (
    CONVERSING,
    classify_failure,
    conversation_answered,
    conversation_failed,
    conversation_sent,
    conversation_tried_again,
)
from .dispatch import effects_for, opened
from .effects import Effect, End
from .fallback import switched
from .forking import forked
from .gathering import again, begun
from .handoff import blamable, is_echo_refused, viewed
from .inner import subrun_charged, subrun_started
from .judging import final_text, judge, output_json
from .limits import WRAP_UP
from .lost import passed_over, repaired
from .misses import answered, sent
from .prefix import asked_now, prefix_moved
from .rebinding import moved_by, moved_wholly, outlived
from .refused_parameters import leave_out_refused
from .remembering import REMEMBERED
from .saying import added, counted, counts, prompted, said
from .state import Phase, Run, State
from .storing import CACHED
from .summary import asked_now_by, heard_of, overflowed, summarised, summary_asked, tried_anew
from .undoing import compensation_finished, compensation_started, remembered, undone_notice, undone_reported
from .verdicts import FAILURES
from .weighing import reweighed
from .window import note_window

CONTINUE = "Continue where you stopped."


def apply(state: State, event: e.Event, at: float = 0.0, proof: str = "") -> State:
    """`at` and `proof` are the time and the hash of the event's record."""
    handle = TRANSITIONS.get((state.phase, type(event)))
    if handle is None:
        raise MisuseError(f"{type(event).__name__} cannot happen while the session is {state.phase}")
    after = handle(state, event, at, proof)
    return replace(after, now=max(at, state.now))


def next_effects(state: State) -> tuple[Effect, ...]:
    if state.phase is Phase.ASKING:
        return (ask_or_end(state),)
    if state.run.unread and state.phase in (Phase.JUDGING, Phase.ACTING):
        return (End(stop="failed", reason=state.run.unread),)
    if state.phase is Phase.JUDGING:
        return (judge(state) or ask_or_end(state),)
    if state.phase is Phase.ACTING:
        return effects_for(state)
    return ()


def _configured(state: State, event: e.Configured, at: float, proof: str) -> State:
    phase = Phase.RESTING if state.phase is Phase.NEW else state.phase
    session = state.session or event.session
    # Only a driver that takes over brings other settings: until it came, nobody was driving.
    after = replace(paused(state, at), phase=phase, settings=event.settings, session=session, sifted=False)
    if event.settings.every_tool != state.settings.every_tool:
        after = replace(after, calls=checked_again(after))
    if event.settings.chain is True and state.settings.chain is not True:
        after = replace(after, chained_from=len(state.transcript.messages))
    if _front(event.settings) != _front(state.settings):
        after = moved_wholly(after)
    return viewed(after)


def _front(settings: Settings) -> tuple[object, ...]:
    """What stands before the conversation."""
    return settings.instructions, settings.tools, settings.output, settings.memory is None


def _imported(state: State, event: e.Imported, at: float, proof: str) -> State:
    after = replace(state, imported_instructions=event.instructions)
    for message in (replace(message, provenance="import") for message in event.messages):
        after = prompted(after, message) if message.role == "user" else said(after, message)
    return after


def _view_changed(state: State, event: e.ViewChanged, at: float, proof: str) -> State:
    run = state.run
    if run.blamed and not state.unfit:
        run = replace(run, blamed=(), repairs=run.repairs + 1, failure=None)
    elif run.echo and not state.unfit:
        run = replace(run, echo="", repairs=run.repairs + 1, failure=None)
    elif (run.reasoning == "refused" or outlived(state)) and not state.unfit:
        run = replace(run, reasoning="left out")
    return reweighed(viewed(moved_by(replace(state, run=run, recorded=(*state.recorded, event)), event)))


def _prompted(state: State, event: e.Prompted, at: float, proof: str) -> State:
    message = Message(role="user", parts=event.parts, at=at, provenance="person")
    turn, notice = begun(state, event.parts), undone_notice(state)
    run = Run(budget=event.budget, started_at=at, caller=event.caller, tenant=event.tenant, turn=turn)
    earlier = state.earlier_seconds + state.run.seconds
    conversation = conversation_tried_again(state)
    owner = event.tenant if state.owner is None else state.owner
    asking = replace(
        state, phase=Phase.ASKING, run=run, owner=owner, earlier_seconds=earlier, conversation=conversation
    )
    return prompted(_noticed(asking, notice, at) if notice else asking, message)


def _noticed(state: State, words: tuple[Text, ...], at: float) -> State:
    """The state after a notice of the harness, which is sent in the user's role and is no person's."""
    return said(state, Message(role="user", parts=words, at=at, provenance="harness"))


def _resumed(state: State, event: e.Resumed, at: float, proof: str) -> State:
    """Time while nobody was driving is not the run's time; what was under way is in doubt."""
    run = replace(
        state.run,
        budget=event.budget or state.run.budget,
        wrapped="" if event.budget else state.run.wrapped,
        capped="own" if state.run.capped == "own" else "",
        started_at=at - max(0.0, state.now - state.run.started_at),
        attempt=0,
        tries=0,
        rests=0,
        left=(),
        failure=None,
        refusals=(),
        partial="",
        batches=(),
        nudges=0,
        rejections=0,
        pauses=0,
        unread="",
        prefix_moved=None,
        adjusted=(),
        squeeze=tried_anew(state),
        turn=again(state.run.turn),
        stop=None,
        reason="",
    )
    calls = tuple(
        replace(item, in_doubt=item.result is None and (item.running or item.in_doubt), running=False)
        for item in state.calls
    )
    taken = replace(state, run=run, calls=calls, sifted=False, conversation=conversation_tried_again(state))
    if state.phase is Phase.WAITING:
        return replace(taken, phase=Phase.ACTING)
    if state.phase is not Phase.RESTING:
        return taken
    asking = undone_reported(replace(taken, phase=Phase.ASKING))
    to_continue = state.transcript.messages[-1].role == "assistant"
    words = (*undone_notice(state), *((Text(text=CONTINUE),) if to_continue else ()))
    return _noticed(asking, words, at) if words else asking


def _asked(state: State, event: e.ModelAsked, at: float, proof: str) -> State:
    if event.summary_of:
        return summary_asked(state, event, at)
    # A paused reply is continued from JUDGING; from here on the model's turn is on.
    said = final_text(state) if state.run.reply is not None else state.run.said
    run = replace(
        state.run,
        attempt=event.attempt,
        tries=state.run.tries + 1,
        failure=None,
        partial="",
        reply=None,
        said=said,
        forbidden=event.tool_choice.mode == "none",
        noted=(*state.run.noted, *(note for note in event.notes if note not in state.run.noted)),
        prefix_moved=None,
        squeeze=replace(state.run.squeeze, asked="", seat=""),
        crowded=event.reserved.used if event.reserved else "",
    )
    hits = sent(state, event, at)
    return replace(
        state,
        phase=Phase.ASKING,
        run=run,
        proof=proof,
        asked=asked_now(state, event.tool_choice),
        hits=hits,
        conversation=conversation_sent(state, event),
    )


def _replied(state: State, event: e.ModelReplied, at: float, proof: str) -> State:
    if event.summary_of:
        return summarised(state, event)
    reply = event.reply
    refused = reply.stop in (Stop.REFUSED, Stop.FILTERED)
    calls = () if refused else reply.calls
    acting, usage = bool(calls), booked(state, reply)
    run = replace(
        state.run,
        spent=plus(state.run.spent, usage, event.usd, steps=1),
        attempt=0,
        tries=0,
        rests=0,
        failure=None,
        refusals=(),
        partial="",
        more_room=reply.stop is Stop.LENGTH,
        unchained=False,
        squeeze=heard_of(state, reply.stop),
        pauses=state.run.pauses + 1 if reply.stop is Stop.PAUSED else 0,
        reply=None if acting else reply,
        objection=event.objection,
        capped="",
        unread=event.suspicion if state.settings.on_truncation == "error" else "",
    )
    after = replace(
        state,
        phase=Phase.ACTING if acting else Phase.JUDGING,
        sifted=False,
        calls=opened(reply, state, event.objection, event.claims, forbidden=run.forbidden) if acting else (),
        run=replace(run, nudges=0, said="") if acting else run,
        total=plus(state.total, usage, event.usd, steps=1),
        replies=state.replies + 1,
        hits=answered(state, reply),
        conversation=conversation_answered(state, reply),
        **counted(state, reply, doubted=bool(event.usage_doubt)),
    )
    # What was refused may be shown, but it is not part of what is sent on: no calls, no reasoning.
    parts = tuple(part for part in reply.parts if isinstance(part, Text)) if refused else reply.parts
    if not any(counts(part) for part in parts):
        return after
    message = Message(
        role="assistant",
        parts=parts,
        at=at,
        origin=reply.origin,
        usage=reply.usage,
        stop=reply.stop,
        reply_id=reply.id,
        provenance="model",
    )
    return added(after, message)


def _failed(state: State, event: e.ModelFailed, at: float, proof: str) -> State:
    run = state.run
    left_out, failure = leave_out_refused(run.left_out, event.failure)
    failure = classify_failure(state, failure)
    kind = failure.kind
    blamed = () if kind == "forgotten" else blamable(state, event.blamed)
    run = replace(
        run,
        failure=failure,
        left_out=left_out,
        echo="refused" if not blamed and is_echo_refused(state, failure) else "",
        reached=run.reached or _has_answered(event),
        blamed=blamed,
        squeeze=run.squeeze if blamed else overflowed(state, failure),
        chance=event.chance,
        # Nothing was sent to an endpoint at rest: what was said before it is still all there is.
        partial=run.partial if kind == "unavailable" else event.partial,
        rests=run.rests + (kind == "unavailable"),
        refusals=(*run.refusals, kind) if FAILURES[kind].verdict == "repair" else run.refusals,
        unchained=kind == "forgotten" or run.unchained,
        reasoning="refused" if kind == "reasoning_refused" else run.reasoning,
    )
    paid = charged(asked_now_by(state, run.squeeze.seat), event.usage, event.usd)
    run = replace(run, spent=paid.run.spent)
    windows = note_window(asked_now_by(state, state.run.squeeze.seat), failure)
    held = conversation_failed(state, event, kind)
    return replace(state, run=run, total=paid.total, conversation=held, windows=windows)


def _has_answered(event: e.ModelFailed) -> bool:
    """Whether this failure shows that there is a server: it sent a status, or broke off what it had begun."""
    failure = event.failure
    return failure.status is not None or failure.kind in ("cut", "garbled") or bool(event.partial)


def _nudged(state: State, event: e.Nudged, at: float, proof: str) -> State:
    run = state.run
    run = replace(
        run,
        nudges=run.nudges + (event.why not in ("output", "repeating", WRAP_UP)),
        wrapped=event.words.partition(". ")[0] if event.why == WRAP_UP else run.wrapped,
        rejections=run.rejections + (event.why == "output"),
        said=final_text(state) if run.reply is not None and run.reply.stop is Stop.LENGTH else "",
        reply=None,
    )
    return _noticed(replace(state, phase=Phase.ASKING, run=run), (Text(text=event.words),), at)


def _ended(state: State, event: e.RunEnded, at: float, proof: str) -> State:
    """Leave a transcript that any later request can start from, whatever was going on."""
    after = charged(state, event.usage, event.usd)
    after = replace(after, run=replace(after.run, seconds=at - after.run.started_at))
    if event.stop == "waiting":
        run = replace(after.run, stop=event.stop, reason=event.reason)
        return replace(after, phase=Phase.WAITING, run=run)
    if state.calls:
        closed = given_up(state.calls)
        for before, item in zip(state.calls, closed, strict=True):
            if before.result is None:
                after = remembered(after, item, None)
                if item.result is not None and item.result.outcome == "unknown":
                    after = in_doubt_from_now(after, item, at)
        after = answered_by(after, closed, at)
    partial = event.partial.strip()
    if partial:
        words = (Text(text=partial),)
        message = Message(role="assistant", parts=words, at=at, stop=Stop.OTHER, provenance="model")
        after = said(after, message)
    output = state.run.output
    answer = final_text(state) if state.run.reply is not None else output or state.run.said + partial
    if event.stop == "done" and output is None and state.settings.output is not None:
        output = output_json(answer)
    run = replace(
        after.run, stop=event.stop, reason=event.reason, answer=answer, output=output, reply=None, said=""
    )
    return replace(after, phase=Phase.RESTING, run=run)


Handler = Callable[[State, Any, float, str], State]

TRANSITIONS: dict[tuple[Phase, type], Handler] = {
    (Phase.NEW, e.Configured): _configured,
    (Phase.RESTING, e.Configured): _configured,
    (Phase.RESTING, e.Imported): _imported,
    (Phase.RESTING, e.Prompted): _prompted,
    (Phase.RESTING, e.Resumed): _resumed,
    (Phase.RESTING, e.CompensationStarted): compensation_started,
    (Phase.RESTING, e.CompensationFinished): compensation_finished,
    (Phase.ASKING, e.Configured): _configured,
    (Phase.ASKING, e.Resumed): _resumed,
    (Phase.ASKING, e.ModelAsked): _asked,
    (Phase.ASKING, e.ModelReplied): _replied,
    (Phase.ASKING, e.ModelFailed): _failed,
    (Phase.ASKING, e.ModelSwitched): switched,
    (Phase.ASKING, e.ViewChanged): _view_changed,
    (Phase.ASKING, e.Compacted): compacted,
    (Phase.ASKING, e.ToolsShown): tools_shown,
    (Phase.ASKING, e.PrefixMoved): prefix_moved,
    (Phase.ASKING, e.RequestAdjusted): request_adjusted,
    (Phase.ASKING, e.Nudged): _nudged,
    (Phase.ASKING, e.RunEnded): _ended,
    (Phase.JUDGING, e.Configured): _configured,
    (Phase.JUDGING, e.Resumed): _resumed,
    (Phase.JUDGING, e.ModelAsked): _asked,
    (Phase.JUDGING, e.ModelFailed): _failed,
    (Phase.JUDGING, e.ModelSwitched): switched,
    (Phase.JUDGING, e.ViewChanged): _view_changed,
    (Phase.JUDGING, e.Compacted): compacted,
    (Phase.JUDGING, e.ToolsShown): tools_shown,
    (Phase.JUDGING, e.PrefixMoved): prefix_moved,
    (Phase.JUDGING, e.RequestAdjusted): request_adjusted,
    (Phase.JUDGING, e.Nudged): _nudged,
    (Phase.JUDGING, e.RunEnded): _ended,
    (Phase.ACTING, e.Configured): _configured,
    (Phase.ACTING, e.Resumed): _resumed,
    (Phase.ACTING, e.ToolsShown): tools_shown,
    (Phase.ACTING, e.ToolStarted): tool_started,
    (Phase.ACTING, e.ToolProbed): tool_probed,
    (Phase.ACTING, e.ToolFinished): tool_finished,
    (Phase.ACTING, e.ApprovalAsked): approval_asked,
    (Phase.ACTING, e.ApprovalAnswered): approval_answered,
    (Phase.ACTING, e.CallReviewed): call_reviewed,
    (Phase.ACTING, e.RunEnded): _ended,
    (Phase.WAITING, e.Configured): _configured,
    (Phase.WAITING, e.Resumed): _resumed,
    (Phase.WAITING, e.ApprovalAnswered): approval_answered,
    (Phase.WAITING, e.RunEnded): _ended,
    **REMEMBERED,
    **CACHED,
    **CONVERSING,
    **{(phase, SubrunStarted): subrun_started for phase in Phase if phase is not Phase.NEW},
    **{(phase, SubrunCharged): subrun_charged for phase in Phase if phase is not Phase.NEW},
    **{(phase, e.Forked): forked for phase in Phase},
    **{(phase, e.Repaired): repaired for phase in Phase},
    **{(phase, e.Unknown): passed_over for phase in Phase},
}
