"""Evaluates replies without calls and answers given by a call, and detects repetition.

Each stop reason (`Stop`) has a handler that considers the content before the reason: providers report "tools"
without a call and "done" without text. Every second chance has a limit; then the run ends with what it has.

Repetition: a batch of calls with the same results as before brings nothing new, nor does a repeated cycle of
batches. The model is warned first; if it continues, the run ends. No model is needed to detect this.
"""

from collections.abc import Callable
from hashlib import sha256

import msgspec
from msgspec.structs import replace

from bridle.core.budget.limits import deadline
from bridle.core.calls.argument_schema import ANSWER_WORDING
from bridle.core.calls.pending import PendingCall
from bridle.core.calls.validation import ArgumentProblem, check_arguments
from bridle.values.base import Value
from bridle.values.calls import RunConclusion
from bridle.values.events import OutputChecked, RequestAdjusted, RunStop
from bridle.values.message import Media, Opaque, Part, Reply, Stop, ToolCall, ToolResult
from bridle.values.request import OutputSpec, ToolSpec
from bridle.values.settings import Settings
from bridle.values.text import parse_json

from .effects import CheckOutput, Effect, EndRun, RecordFinding, Reprompt, SkipCall
from .state import OutputProgress, ReplyEvaluation, Run, State

PAUSES_MAX = 10
REJECTED_ANSWERS_MAX = 2
NO_WORDS = "Your reply had no words in it. Please answer in words."
ANSWER_UNUSABLE = "Your answer cannot be used:"
ANSWER_UNCHECKED = "Your answer could not be checked. Give it again."
REPLY_EMPTY = "Your reply was empty. Please answer."
OUT_OF_ROOM = "Your reply ran out of room before you said anything. Think less and answer."
CUT_OFF = "Your reply was cut off at its length limit. Continue exactly where it stopped."
CALL_MALFORMED = "Your last call was malformed. Please try again."
CALL_MISSING = "You announced a call but made none. Go on."
CONTINUE_AFTER_COMPACTION = (
    "The conversation was shortened, so there is room again. Continue where your reply stopped."
)


def evaluate_reply(state: State) -> Effect | None:
    """Effect that follows from the reply; None to call the model again."""
    if state.run.evaluation.output is not None:
        return EndRun(stop="done")
    reply = state.run.evaluation.reply
    assert reply is not None
    return STOP_HANDLERS[reply.stop](state)


def has_content(state: State) -> bool:
    """True if the reply has content for the user: text, media, or an item that answers."""
    reply = state.run.evaluation.reply
    return reply is not None and (bool(reply.text.strip()) or any(map(_is_answer, reply.parts)))


def _is_answer(part: Part) -> bool:
    return isinstance(part, Media) or (isinstance(part, Opaque) and part.answers)


def _evaluate_answer(state: State) -> Effect:
    if not has_content(state) and not state.run.evaluation.continued_text:
        why, notice = _silence(state)
        return _reprompt_or_end(state, why, notice, stop="no_progress")
    return _check_output(state)


def _silence(state: State) -> tuple[str, str]:
    """Reason why a reply is not an answer, and the notice to the model."""
    parts = state.run.evaluation.reply.parts if state.run.evaluation.reply else ()
    kinds = dict.fromkeys(part.kind for part in parts if isinstance(part, Opaque))
    if not kinds:
        return "the reply was empty", REPLY_EMPTY
    items = ", ".join(kinds)
    return f"the reply had no words, only items of the provider ({items})", NO_WORDS


UNFOLLOWED_CHOICE = "tool choice {choice!r} was not followed: the reply has no call"


def _check_forced_choice(state: State) -> Effect | None:
    """The effect if the reply lacks the call that its request forced; None if it does not."""
    last = state.cache.last_request
    if last is None or last.tool_choice.mode not in ("any", "tool"):
        return None
    note = UNFOLLOWED_CHOICE.format(choice=last.tool_choice.name or last.tool_choice.mode)
    if note not in state.run.adjustments.recorded_notes:
        return RecordFinding(event=RequestAdjusted(adjustments=(note,)))
    return None if state.settings.validators else EndRun(stop="done", reason=note)


# not from outside: our own text, shown to a person or a model
CALLED_CHARACTERS_MAX = 200
OTHER_CALLS = "tool choice {choice!r} was not followed: the reply calls {called}"


def report_other_calls(state: State, run: Run, name: str, calls: tuple[ToolCall, ...]) -> Run:
    """The run with a note if the reply calls other tools than the one that its request forced.

    The call that gives the answer is forced by the harness, not by the user; a reply without it is asked for again.
    """
    called, output = dict.fromkeys(call.name for call in calls), state.settings.output
    if name in called or (output is not None and name in output.call_names):
        return run
    note = OTHER_CALLS.format(choice=name, called=", ".join(map(repr, called))[:CALLED_CHARACTERS_MAX])
    return _report_change(run, note)


SEVERAL_CALLS = "parallel=False was not followed: the reply has several calls"


def report_several_calls(run: Run, calls: tuple[ToolCall, ...]) -> Run:
    """The run with a note if a reply has several calls to a request that allowed only one."""
    return _report_change(run, SEVERAL_CALLS) if len(calls) > 1 else run


def _report_change(run: Run, note: str) -> Run:
    adjustments = run.adjustments
    if note in adjustments.recorded_notes or note in adjustments.reported_changes:
        return run
    changes = (*adjustments.reported_changes, note)
    return replace(run, adjustments=replace(adjustments, reported_changes=changes))


def _check_output(state: State) -> Effect:
    output, answer = state.settings.output, final_text(state)
    if output is not None:
        if output.mode == "tool":
            return _reject_answer(state, _ask_for_call(output.call_names))
        problem = find_output_problem(output, answer) or state.run.evaluation.output_error
        if problem:
            return _reject_answer(state, problem)
        answer = extract_output_json(answer)
    if (unfollowed := _check_forced_choice(state)) is not None:
        return unfollowed
    return _check_by_validators(state, answer) if state.settings.validators else EndRun(stop="done")


def _ask_for_call(names: tuple[str, ...]) -> str:
    listed = " or ".join(f"`{name}`" for name in names)
    return f"Give your final answer by calling the tool {listed}."


def _check_by_validators(state: State, answer: str) -> Effect:
    answer_id = f"r{state.totals.reply_count}"
    progress = state.run.evaluation.output_progress
    if progress.answer_id == answer_id and progress.validator_error:
        return EndRun(stop="failed", reason=progress.validator_error)
    if progress.answer_id == answer_id and progress.problem:
        return _reject_answer(state, f"{ANSWER_UNUSABLE} {progress.problem}")
    return next_output_check(state, answer_id, answer) or EndRun(stop="done")


def next_output_check(state: State, answer_id: str, answer: str) -> CheckOutput | None:
    """Check of the answer by the next validator; None if all of them accepted it."""
    progress = state.run.evaluation.output_progress
    known = progress.answer_id == answer_id
    for validator in state.settings.validators:
        if not known or validator not in progress.validated_by:
            current = progress.changed if known and progress.changed is not None else answer
            return CheckOutput(
                validator=validator, answer_id=answer_id, answer=current, deadline=deadline(state)
            )
    return None


def record_output_check(progress: OutputProgress, event: OutputChecked) -> OutputProgress:
    """Progress after the decision of a validator."""
    if progress.answer_id != event.answer_id:
        progress = replace(progress, answer_id=event.answer_id, validated_by=(), changed=None, problem="")
    if event.verdict == "accepted":
        changed = progress.changed if event.changed is None else event.changed
        return replace(progress, validated_by=(*progress.validated_by, event.validator), changed=changed)
    if event.verdict == "retry":
        return replace(progress, problem=event.reason)
    return replace(progress, validator_error=f"validator `{event.validator}` failed: {event.reason}")


def describe_rejection(event: OutputChecked) -> str:
    """Result of an output call that a validator did not accept."""
    return f"{ANSWER_UNUSABLE} {event.reason}" if event.verdict == "retry" else ANSWER_UNCHECKED


def restart_output_progress(progress: OutputProgress) -> OutputProgress:
    """Progress of a resumed run: decisions stand, counts begin again."""
    return replace(progress, rejected_answers=0, tool_retries=(), validator_error="")


def conclude_run(state: State, conclusion: RunConclusion) -> tuple[Effect, ...]:
    """End the run as a tool asked, when the calls that are running have ended."""
    if any(item.running and item.result is None for item in state.calls.batch.pending):
        return ()
    return (EndRun(stop=conclusion.stop, reason=conclusion.reason),)


def conclude_answer(state: State, stop: RunStop, partial: str) -> tuple[str, str | None]:
    """Text and JSON of the answer with which a run ends."""
    conclusion = state.run.conclusion
    if conclusion is not None and stop == "done":
        return conclusion.text, conclusion.output
    evaluation, output = state.run.evaluation, state.run.evaluation.output
    answer = (
        final_text(state) if evaluation.reply is not None else output or evaluation.continued_text + partial
    )
    if stop != "done":
        return answer, output
    progress = evaluation.output_progress
    if progress.changed is not None and progress.answer_id == f"r{state.totals.reply_count}":
        answer = progress.changed
    if output is None and state.settings.output is not None:
        output = extract_output_json(answer)
    return answer, output


def _reject_answer(state: State, problem: str) -> Effect:
    if state.run.evaluation.output_progress.rejected_answers >= REJECTED_ANSWERS_MAX:
        return end_output_rejected(state, problem)
    words = problem if problem.startswith(ANSWER_UNUSABLE) else f"{ANSWER_UNUSABLE} {problem}"
    return Reprompt(why="output", message=f"{words}\nAnswer again, in full.")


def count_rejected_answer(progress: OutputProgress) -> OutputProgress:
    return replace(progress, rejected_answers=progress.rejected_answers + 1)


def end_output_rejected(state: State, problem: str) -> EndRun:
    """End of a run in which every answer was rejected."""
    sent_back = problem.removeprefix(f"{ANSWER_UNUSABLE} ")
    why = (
        "no answer passed the validators" if sent_back != problem else "no answer matched the requested type"
    )
    if state.settings.output_functions:
        why = "no answer was accepted"
    return EndRun(stop="failed", reason=f"{why}; last problem: {sent_back}")


def find_last_output_problem(state: State) -> str:
    """Problem with the last answer that the model gave by calling the output tool."""
    output, results = state.settings.output, dict[str, str]()
    for message in reversed(state.conversation.transcript.messages):
        results.update((result.call_id, result.text) for result in message.results)
        for call in message.calls:
            if output is not None and call.name in output.call_names:
                # If the schema is satisfied, the type or the function rejected it; the call's result says why.
                problem = find_output_problem(output, call.arguments) if call.name == output.name else ""
                return problem or results.get(call.id, "")
    return ""


def find_last_retry_reason(state: State, name: str) -> str:
    """Reason of the latest `ModelRetry` of a tool."""
    results = dict[str, str]()
    for message in reversed(state.conversation.transcript.messages):
        results.update((result.call_id, result.text) for result in message.results)
        for call in reversed(message.calls):
            if call.name == name and call.id in results:
                return results[call.id]
    return ""


def _continue_truncated(state: State) -> Effect:
    is_silent = not state.run.evaluation.continued_text and not has_content(state)
    notice = OUT_OF_ROOM if is_silent else CUT_OFF
    return _reprompt_or_end(state, "the reply was cut off at its length limit", notice)


def _continue_paused(state: State) -> Effect | None:
    evaluation = state.run.evaluation
    if evaluation.pauses > PAUSES_MAX:
        return EndRun(stop="failed", reason=f"the model paused {evaluation.pauses} times without an answer")
    return None


def _end_refused(state: State) -> Effect:
    assert state.run.evaluation.reply is not None
    return EndRun(stop="refused", reason=state.run.evaluation.reply.stop_detail)


def _handle_full_context(state: State) -> Effect:
    if state.run.compaction.overflow.kind:
        return _reprompt_or_end(
            state, "the reply ended where the window does", CONTINUE_AFTER_COMPACTION, stop="context"
        )
    return EndRun(stop="context", reason="the conversation no longer fits into the model's context window")


def _reprompt_malformed(state: State) -> Effect:
    return _reprompt_or_end(state, "the model's call was malformed", CALL_MALFORMED)


def _handle_missing_calls(state: State) -> Effect:
    if has_content(state):
        return _check_output(state)
    return _reprompt_or_end(state, "a call was announced and none came", CALL_MISSING, stop="no_progress")


def _reprompt_or_end(state: State, why: str, notice: str, stop: RunStop = "failed") -> Effect:
    """Reprompt within the limit; then end the run as `stop`."""
    reprompts = state.run.evaluation.reprompts
    if reprompts >= state.settings.reprompts_max:
        times = f", {reprompts + 1} times in a row" if reprompts else ""
        return EndRun(stop=stop, reason=f"{why}{times}")
    return Reprompt(why=why, message=notice)


# defect: refusal
STOP_HANDLERS: dict[Stop, Callable[[State], Effect | None]] = {
    Stop.DONE: _evaluate_answer,
    Stop.TOOLS: _handle_missing_calls,
    Stop.LENGTH: _continue_truncated,
    Stop.PAUSED: _continue_paused,
    Stop.REFUSED: _end_refused,
    Stop.FILTERED: _end_refused,
    Stop.CONTEXT: _handle_full_context,
    Stop.MALFORMED: _reprompt_malformed,
    Stop.OTHER: _evaluate_answer,
}


def final_text(state: State) -> str:
    evaluation = state.run.evaluation
    return evaluation.continued_text + (evaluation.reply.text if evaluation.reply else "")


def find_output_problem(output: OutputSpec, text: str) -> str:
    """Reason why the text is not the requested structured answer; empty if it is."""
    spec = ToolSpec(name=output.name, parameters=output.parameters)
    checked = check_arguments(spec, extract_output_json(text), ANSWER_WORDING)
    return checked.text if isinstance(checked, ArgumentProblem) else ""


def find_structured_answer(state: State, reply: Reply) -> str | None:
    """JSON of a structured answer in this reply that satisfies its schema; None if there is none."""
    output = state.settings.output
    if output is None:
        return None
    if output.mode == "tool":
        answer = next((call.arguments for call in reply.calls if call.name == output.name), None)
    else:
        answer = (
            None if reply.calls else extract_output_json(state.run.evaluation.continued_text + reply.text)
        )
    return answer if answer is not None and not find_output_problem(output, answer) else None


def extract_output_json(text: str) -> str:
    """JSON of an answer, without the code fence that some models add."""
    inner = text.strip()
    if inner.startswith("```"):
        inner = inner.strip("`").strip()
        first, _, rest = inner.partition("\n")
        if not _is_json(inner) and not first.startswith("{"):
            inner = rest
    return inner


def _is_json(text: str) -> bool:
    try:
        parse_json(text)
    except ValueError:
        return False
    return True


NOTICE_BEFORE_END = 2
"""Number of repetitions before the limit at which the model is warned."""
# not from outside: our own records and queues
CYCLE_LENGTH_MAX = 8
"""Maximum length of a detected cycle, in batches."""


class Cycle(Value, kw_only=True):
    """The shortest cycle that the latest batches repeat most often."""

    repeats: int = 0
    """Number of consecutive completions; 1 if nothing is repeated."""
    period: int = 1
    """Length in batches."""
    complete: bool = False
    """True if the latest batch is the last one of the cycle, counted from its first appearance."""


def find_cycle(batches: tuple[str, ...]) -> Cycle:
    """Find a cycle of up to `CYCLE_LENGTH_MAX` batches at the end of `batches`."""
    if not batches or batches[-1] not in batches[-1 - CYCLE_LENGTH_MAX : -1]:
        return Cycle(repeats=len(batches[-1:]), complete=bool(batches))
    found = (_find_cycle_of_period(batches, period) for period in range(1, CYCLE_LENGTH_MAX + 1))
    return max(found, key=lambda cycle: cycle.repeats)


def _find_cycle_of_period(batches: tuple[str, ...], period: int) -> Cycle:
    """Count how much of the end repeats with this period."""
    if len(batches) < period:
        return Cycle(period=period)
    length = period
    while length < len(batches) and batches[-length - 1] == batches[period - length - 1]:
        length += 1
    return Cycle(repeats=length // period, period=period, complete=length % period == 0)


def batch_signature(answered: tuple[tuple[ToolCall, ToolResult], ...]) -> str:
    """Digest that is equal exactly if the same calls had the same results."""
    pieces: list[bytes] = []
    for call, result in answered:
        texts = f"{call.name}\0{_canonical_arguments(call.arguments)}\0{result.outcome}\0"
        pieces += (
            texts.encode("utf-8", "surrogatepass"),
            msgspec.json.encode(result.parts),  # images included: a new screenshot is new information
            b"\0",
        )
    return sha256(b"".join(pieces)).hexdigest()


def _canonical_arguments(arguments: str) -> str:
    try:
        parsed = parse_json(arguments or "{}")
    except ValueError:
        return arguments
    return msgspec.json.encode(parsed, order="sorted").decode()


OUTPUT_ACCEPTED = "Accepted."
NO_ANSWER = (None, "")
ANSWER_GIVEN = "This call was not run: the answer was already given."


def answer_output_call(state: State, item: PendingCall) -> SkipCall | CheckOutput | None:
    """Result of a call of the output tool, or its next check; None while an earlier answer is being checked.

    The first accepted call of a reply is the answer; later ones are not checked.
    """
    call, output = item.call, state.settings.output
    accepted = SkipCall(call=call, outcome="ok", why=OUTPUT_ACCEPTED)
    if output is None or not (state.settings.validators or output.functions):
        return accepted
    for earlier in state.calls.batch.pending:
        if earlier.call.id == call.id:
            break
        is_answer = earlier.call.name in output.call_names
        if is_answer and (earlier.result is None or not earlier.result.is_error):
            return None if earlier.result is None else accepted
    return next_output_check(state, call.id, call.arguments) or accepted


def list_output_calls(settings: Settings, calls: tuple[PendingCall, ...]) -> tuple[PendingCall, ...]:
    """Answered calls that give an answer."""
    if settings.output is None or settings.output.mode != "tool":
        return ()
    names = settings.output.call_names
    return tuple(item for item in calls if item.call.name in names and item.result is not None)


def find_accepted_output(state: State, calls: tuple[PendingCall, ...]) -> tuple[str | None, str]:
    """JSON of the answer among these calls, as validators changed it, and the output function that returned it."""
    progress, functions = state.run.evaluation.output_progress, state.settings.output_functions
    for item in list_output_calls(state.settings, calls):
        if item.call.name in functions:
            if item.output is not None:
                return item.output, item.call.name
        elif item.result is not None and not item.result.is_error:
            is_changed = progress.changed is not None and progress.answer_id == item.call.id
            return progress.changed if is_changed else item.call.arguments, ""
    return NO_ANSWER


def keep_function_answer(state: State, evaluation: ReplyEvaluation) -> ReplyEvaluation:
    """The evaluation of a run that ends before its batch, with the answer that an output function returned."""
    answer, function = find_accepted_output(state, state.calls.batch.pending)
    if not function:
        return evaluation
    progress = replace(evaluation.output_progress, function=function)
    return replace(evaluation, output=answer, output_progress=progress)
