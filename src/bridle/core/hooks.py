"""Places hooks in the loop, and applies their decisions.

`insert_hooks` exchanges an effect for the hook that has to decide first. A hook decides once per point (per
step, reply, call, result or run); `HookDecided` records it, and the next hook or the effect itself follows.
Sessions without hooks never get here.

    before_model  before the first request of a step, and before any request that has something new for a hook
    after_model   a complete reply, before it becomes part of the conversation
    before_tool   a valid call, before rules and approvals decide about it, and again if a person edits it
    after_tool    the result of a call that ran, before the model receives it
    on_end        the end of a run, for any reason but a wait for an approval

A `before_model` hook decides about everything that its provider is sent, once and before it is sent, whatever
the origin: `Conversation.judged` holds how far each hook has come. An agent that takes over, or a session that
goes to another endpoint, begins again. What a hook refused is kept out of later prompts.

A hook that raises or takes too long has failed. The run then ends as `failed`, and resuming it calls the hook
again: a guard that does not work must not let anything pass.
"""

import json
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

from msgspec.structs import replace

from bridle.core.calls.compensation import compensation_notices
from bridle.core.calls.dispatch import find_call_problem
from bridle.core.calls.pending import CallHooks, PendingCall, canonical_arguments, find_call
from bridle.core.calls.transitions import apply_tool_finished, update_call
from bridle.core.context.assemble import callable_tools, request_tools, system_prompt, use_step_options
from bridle.core.context.head_edits import HeadEditor, digest_text
from bridle.core.context.summary_view import list_kept_ids
from bridle.core.context.token_estimate import append_message
from bridle.core.context.view import list_edited_messages
from bridle.values import events as e
from bridle.values.calls import RunConclusion
from bridle.values.hooks import HeadEdit, HeadText, HookDecided, HookPoint, HookSpec
from bridle.values.message import Media, Message, Part, Reply, Stop, Text, ToolCall, ToolResult, ViewChange
from bridle.values.model import make_origin

from .effects import AskModel, Effect, EndRun, RequestApproval, RunHook, RunTool, SkipCall, StorePrompt
from .evaluate_reply import REJECTED_ANSWERS_MAX, count_rejected_answer
from .model_turn import apply_model_replied
from .state import HookProgress, JudgedPrompt, Phase, State

REFUSED_BY = "hook {hook}: {reason}"
HOOK_FAILED = "hook {hook} failed: {reason}"
CALL_REFUSED = "This call was refused and not run: {reason}"
RESULT_WITHHELD = "The call was run. Its result is withheld: {reason}"
REPLY_REJECTED = "Your reply was not accepted: {reason}\nAnswer again, in full."
REJECTED_TOO_OFTEN = "hook {hook} rejected {count} replies in a row; the last because: {reason}"
EDITS_REPLACED_MAX = 8
EDITS_REPLACED_TOO_OFTEN = "they replace those that a person edited, for the {count}th time"
HOOK_MISSING = "the session was resumed without the hook that was due"
NOT_NEW = "a hook can edit and refuse only new messages, once; {message} is not one of them"
NO_HEAD_TEXT = "there is no text to edit at {place!r}; there are: {places}"
NOT_JSON = "the new text at {place!r} must be JSON"
WITHHELD = "[This was refused and is not shown.]"
WITHHELD_ARGUMENTS = json.dumps({"withheld": WITHHELD}, ensure_ascii=False)


def insert_hooks(state: State, effects: tuple[Effect, ...]) -> tuple[Effect, ...]:
    """The effects, each exchanged for the hook that has to decide first."""
    progress = state.run.evaluation.hooks
    if state.phase is Phase.IDLE:
        hook = _find_due_hook(state, "on_end", progress.decided) if state.run.end.stop else None
        return (_run_hook(hook, "on_end", f"{len(state.conversation.prompt_ids)}"),) if hook else ()
    if progress.failure:
        return (EndRun(stop="failed", reason=progress.failure),)
    if progress.refusal:
        return (EndRun(stop="refused", reason=progress.refusal),)
    match state.phase:
        case Phase.CALLING_MODEL | Phase.EVALUATING_REPLY:
            return tuple(_before_model(state, effect) for effect in effects)
        case Phase.REVIEWING_REPLY:
            hook = _find_due_hook(state, "after_model", progress.decided)
            return (_run_hook(hook, "after_model", f"{state.totals.reply_count + 1}"),)
        case Phase.RUNNING_TOOLS:
            return (*_review_results(state), *(_before_tool(state, effect) for effect in effects))
    return effects


def list_new_messages(state: State, hook: str) -> tuple[Message, ...]:
    """The messages that this hook has not decided about, with the edits of other hooks.

    Not among them: replies of the endpoint itself, refused messages, and messages that are no longer sent.
    """
    conversation, endpoint = state.conversation, state.settings.model.endpoint.endpoint_id
    # guard: unjudged-messages
    start = _find_judged(state, hook).message_count
    messages = conversation.transcript.messages[start:]
    kept = list_kept_ids(conversation) if start < conversation.summarized_count else ()
    new = [
        message
        for at, message in enumerate(messages, start)
        if not _is_own_reply(message, endpoint)
        and message.id not in conversation.withheld_ids
        and (at >= conversation.summarized_count or message.id in kept)
    ]
    return list_edited_messages(conversation, new)


def _is_own_reply(message: Message, endpoint: str) -> bool:
    if message.role != "assistant" or message.provenance != "model":
        return False
    return message.origin is None or message.origin.endpoint == endpoint


def list_head_texts(state: State) -> tuple[HeadText, ...]:
    """The texts of the next request outside the conversation, with the edits of hooks so far."""
    settings = state.settings
    given = {each.option for each in settings.overrides}
    if settings.instructions and settings.instructions == state.conversation.imported_instructions:
        given.add("instructions")
    found = [
        HeadText(place=f"system {at}", text=text.text, is_given="instructions" in given)
        for at, text in enumerate(system_prompt(state))
    ]
    tools, deferred = request_tools(state)
    answer = settings.output.name if settings.output is not None else ""
    for spec in (*tools, *deferred):
        common = {"is_given": ("output" if spec.name == answer else "tools") in given}
        found.append(HeadText(place=f"tool {spec.name} description", text=spec.description, **common))
        found.append(
            HeadText(place=f"tool {spec.name} parameters", text=spec.parameters, is_json=True, **common)
        )
    if settings.output is not None and settings.output.mode == "native":
        output = settings.output
        if state.conversation.head_edits:
            output = HeadEditor(state.conversation.head_edits).edit_output(output) or output
        common = {"is_given": "output" in given}
        found.append(HeadText(place="output description", text=output.description, **common))
        found.append(HeadText(place="output parameters", text=output.parameters, is_json=True, **common))
    sampling = use_step_options(state, state.run.budget.spent.steps + 1).settings.sampling
    # guard: stop-sequences-judged
    if sampling.stop_sequences:
        if state.conversation.head_edits:
            sampling = HeadEditor(state.conversation.head_edits).edit_sampling(sampling)
        found += [
            HeadText(place=f"stop sequence {at}", text=text, is_given="sampling" in given)
            for at, text in enumerate(sampling.stop_sequences)
        ]
    found += [HeadText(place=f"summary {at}", text=text) for at, text in _list_summary_texts(state)]
    return tuple(each for each in found if each.text)


def _list_summary_texts(state: State) -> list[tuple[int, str]]:
    """The texts of the summary that stands for old turns, each with the index of its part."""
    view, edits = state.conversation.view, state.conversation.head_edits
    if not state.conversation.summarized_count or not view:
        return []
    messages = HeadEditor(edits).edit_summary(view[:1]) if edits else view[:1]
    return [(at, part.text) for at, part in enumerate(messages[0].parts) if isinstance(part, Text)]


def list_new_texts(state: State, hook: str) -> tuple[HeadText, ...]:
    """Those texts, if one of them changed since this hook decided last."""
    texts = list_head_texts(state)
    return texts if _digest_head(texts) != _find_judged(state, hook).head else ()


def _digest_head(texts: Iterable[HeadText]) -> str:
    return digest_text("\0".join(f"{each.place}\0{each.text}" for each in texts))


def _find_judged(state: State, hook: str) -> JudgedPrompt:
    for each in state.conversation.judged:
        if each.hook == hook:
            return each
    return JudgedPrompt(hook=hook)


def _has_new_content(state: State, hook: str, head: str) -> bool:
    return _find_judged(state, hook).head != head or bool(list_new_messages(state, hook))


def mark_judged(before: State, after: State, event: HookDecided) -> State:
    """State in which this hook has decided about the prompt as it is now.

    Hooks that had decided about all of it before do not decide again about what this one added.
    """
    if not event.hook or event.action in ("fail", "refuse"):
        return _mark_failed(after, event.hook) if event.action == "fail" else after
    counts = [len(state.conversation.transcript.messages) for state in (before, after)]
    heads = [_digest_head(list_head_texts(state)) for state in (before, after)]
    judged = [
        replace(
            each,
            message_count=counts[1] if each.message_count == counts[0] else each.message_count,
            head=heads[1] if each.head == heads[0] else each.head,
        )
        for each in before.conversation.judged
        if each.hook != event.hook
    ]
    own = JudgedPrompt(hook=event.hook, message_count=counts[1], head=heads[1])
    return replace(after, conversation=replace(after.conversation, judged=(*judged, own)))


def _mark_failed(state: State, hook: str) -> State:
    conversation = state.conversation
    failed = replace(
        _find_judged(state, hook),
        failed_count=len(conversation.transcript.messages),
        failed_prompt=len(conversation.prompt_ids),
    )
    judged = (*(each for each in conversation.judged if each.hook != hook), failed)
    return replace(state, conversation=replace(conversation, judged=judged))


def list_failed_again(state: State, hook: str) -> tuple[str, ...]:
    """Ids of the messages at which this hook has failed for an earlier prompt too.

    Later prompts are sent without them: one message that a hook cannot judge must not end the session for good.
    """
    before, conversation = _find_judged(state, hook), state.conversation
    if not before.failed_count or before.failed_prompt == len(conversation.prompt_ids):
        return ()
    known = {message.id for message in conversation.transcript.messages[: before.failed_count]}
    return tuple(message.id for message in list_new_messages(state, hook) if message.id in known)


def list_withheld_changes(state: State) -> tuple[ViewChange, ...]:
    """Changes that put placeholders in place of the messages that a hook refused in the last run."""
    ids = state.run.evaluation.hooks.withheld
    messages = (message for message in state.conversation.transcript.messages if message.id in ids)
    return tuple(change for message in messages for change in _withhold_message(message))


def _withhold_message(message: Message) -> Iterator[ViewChange]:
    """Changes that remove the content of a message; calls and results stay paired."""
    is_shown = False
    for at, part in enumerate(message.parts):
        if isinstance(part, ToolCall):
            yield ViewChange(message=message.id, part=at, arguments=WITHHELD_ARGUMENTS)
        elif isinstance(part, ToolResult):
            yield from (
                ViewChange(message=message.id, part=at, inner=inner, text=WITHHELD)
                for inner in range(len(part.parts))
            )
        else:
            yield ViewChange(message=message.id, part=at, text="" if is_shown else WITHHELD)
            is_shown = True


def _find_due_hook(state: State, point: HookPoint, decided: Collection[str]) -> HookSpec | None:
    """The first hook of this point that has not decided yet."""
    for spec in state.settings.hooks:
        if point in spec.points and spec.name not in decided:
            return spec
    return None


def _run_hook(hook: HookSpec | None, point: HookPoint, subject: str) -> RunHook:
    """The effect of a due hook; without one, an effect that only records that there is none any more."""
    if hook is None:
        return RunHook(hook="", point=point, subject=subject)
    return RunHook(hook=hook.name, point=point, subject=subject, timeout_seconds=hook.timeout_seconds)


def _before_model(state: State, effect: Effect) -> Effect:
    if not isinstance(effect, AskModel | StorePrompt) or "before_model" not in state.settings.hook_points:
        return effect
    progress, step = state.run.evaluation.hooks, state.run.budget.spent.steps + 1
    is_asked = progress.asked_step == step
    hook = None if is_asked else _find_due_hook(state, "before_model", progress.decided)
    if is_asked or isinstance(effect, StorePrompt) or effect.summarizes_until:
        head = _digest_head(list_head_texts(state))
        specs = [spec for spec in state.settings.hooks if "before_model" in spec.points]
        hook = next((spec for spec in specs if _has_new_content(state, spec.name, head)), None)
    return _run_hook(hook, "before_model", f"{step}") if hook else effect


def _review_results(state: State) -> list[Effect]:
    return [
        _run_hook(_find_due_hook(state, "after_tool", item.hooks.after), "after_tool", item.call.id)
        for item in state.calls.batch.pending
        if item.hooks.unreviewed is not None and item.result is None
    ]


def _before_tool(state: State, effect: Effect) -> Effect:
    """The hook of a call that would start or ask a person now; its result, if a hook gave one."""
    if not isinstance(effect, RunTool | RequestApproval):
        return effect
    item = _find_pending(state, effect.call.id)
    if item is None or item.attempt or item.in_doubt:
        return effect
    call, hooks, rule = item.call, item.hooks, f"hook {item.hooks.decided_by}"
    if hooks.refusal:
        return SkipCall(call=call, outcome="denied", why=CALL_REFUSED.format(reason=hooks.refusal), rule=rule)
    if hooks.answer is not None:
        gives_output = call.name in state.settings.output_functions
        return SkipCall(
            call=call, outcome="ok", why=hooks.answer, rule=rule, source="hook", gives_output=gives_output
        )
    hook = _find_due_hook(state, "before_tool", hooks.before)
    return _run_hook(hook, "before_tool", call.id) if hook else effect


def _find_pending(state: State, call_id: str) -> PendingCall | None:
    calls = state.calls.batch.pending
    place = find_call(calls, call_id)
    return calls[place] if place is not None else None


def _set_progress(state: State, progress: HookProgress) -> State:
    return replace(state, run=replace(state.run, evaluation=replace(state.run.evaluation, hooks=progress)))


def _add_decision(progress: HookProgress, event: HookDecided) -> HookProgress:
    """Progress after a decision; a hook that failed or refused is due again if the run is resumed before its end."""
    progress = replace(progress, is_used=True)
    match event.action:
        case "fail":
            failure = HOOK_FAILED.format(hook=event.hook, reason=event.reason)
            return replace(progress, failure=failure, withheld=event.withheld)
        case "refuse":
            refusal = REFUSED_BY.format(hook=event.hook, reason=event.reason)
            return replace(progress, refusal=refusal, withheld=event.withheld)
    return replace(progress, decided=(*progress.decided, event.hook))


def apply_before_model(state: State, event: HookDecided, at: float) -> State:
    """State after a decision about a request; the loop applies its edits."""
    before = state.run.evaluation.hooks
    progress = _add_decision(before, event)
    if before.asked_step == state.run.budget.spent.steps + 1:  # something new came after all had decided
        progress = replace(progress, decided=())
    elif event.action == "answer" or _find_due_hook(state, "before_model", progress.decided) is None:
        progress = replace(progress, asked_step=state.run.budget.spent.steps + 1, decided=())
    after = _set_progress(state, progress)
    if event.action == "answer":
        return _answer_for_model(after, event.replacement or "", at)
    if event.replacement is not None:
        notice = (Text(text=event.replacement),)
        after = append_message(after, Message(role="user", parts=notice, at=at, provenance="harness"))
    return after


def find_edit_problem(state: State, hook: str, ids: Iterable[str]) -> str:
    """Reason why this hook cannot edit or refuse messages with these ids; empty if it can."""
    new = {message.id for message in list_new_messages(state, hook)}
    old = [each for each in ids if each not in new]
    return NOT_NEW.format(message=old[0]) if old else ""


def make_head_edits(state: State, texts: Iterable[HeadText]) -> tuple[HeadEdit, ...]:
    """The edits that put these texts in their places; raises `ValueError` for one that cannot be put there."""
    now = {each.place: each for each in list_head_texts(state)}
    edits = []
    for new in texts:
        old = now.get(new.place)
        if old is None:
            raise ValueError(NO_HEAD_TEXT.format(place=new.place, places=", ".join(now) or "none"))
        if old.is_json:
            try:
                json.loads(new.text)
            except ValueError:
                raise ValueError(NOT_JSON.format(place=new.place)) from None
        if old.text != new.text:
            edits.append(HeadEdit(digest=digest_text(old.text), text=new.text))
    return tuple(edits)


def _answer_for_model(state: State, text: str, at: float) -> State:
    """State in which a hook's text is the reply to be evaluated; no model was asked."""
    model = state.settings.model
    reply = Reply(parts=(Text(text=text),), stop=Stop.DONE, origin=make_origin(model))
    message = Message(role="assistant", parts=reply.parts, at=at, stop=Stop.DONE, provenance="harness")
    evaluation = replace(state.run.evaluation, reply=reply, output_error="", suspected_truncation="")
    run = replace(state.run, evaluation=evaluation)
    return append_message(replace(state, phase=Phase.EVALUATING_REPLY, run=run), message)


def _apply_after_model(state: State, event: HookDecided, at: float, proof: str) -> State:
    progress = _add_decision(state.run.evaluation.hooks, event)
    held = progress.unreviewed
    assert held is not None
    if event.action == "retry":
        return _reject_reply(state, event, at, proof)
    if event.action in ("answer", "change"):
        held = replace(held, reply=change_reply(held.reply, event), output_error=event.output_error)
        state = _forget_server_state(state)
    after = _set_progress(state, replace(progress, unreviewed=held))
    is_open = _find_due_hook(state, "after_model", progress.decided) is not None
    if is_open or progress.failure or progress.refusal:
        return after
    accepted = _set_progress(after, replace(progress, decided=(), unreviewed=None))
    return _apply_reviewed(accepted, held, at, proof)


def change_reply(reply: Reply, event: HookDecided) -> Reply:
    """The reply with the hook's text; without its provider id, because the provider has another text."""
    text: tuple[Part, ...] = (Text(text=event.replacement or ""),)
    if event.action == "answer":
        return replace(reply, parts=text, stop=Stop.DONE, id="")
    places = [at for at, part in enumerate(reply.parts) if isinstance(part, Text)]
    first = places[0] if places else len(reply.parts)
    rest = tuple(part for part in reply.parts[first:] if not isinstance(part, Text))
    return replace(reply, parts=(*reply.parts[:first], *text, *rest), id="")


def _forget_server_state(state: State) -> State:
    """State in which the next request sends everything: the provider's copy differs from the conversation."""
    return replace(
        state, run=replace(state.run, refusals=replace(state.run.refusals, server_state_lost=True))
    )


def end_review(state: State, at: float, proof: str) -> State:
    """State before the end of a run; a reply that no hook accepted is paid for, and not part of the conversation."""
    review = state.run.evaluation.hooks
    kept = (review.unreviewed, review.decided) if review.unreviewed is not None else None
    after = _close_review(state, (), at, proof)
    return _set_progress(after, replace(after.run.evaluation.hooks, decided=(), cancelled=kept))


def hooks_after_resume(state: State) -> HookProgress:
    """Progress after a resume: hooks that failed or refused are called again, and those of the end for the next end."""
    progress = replace(state.run.evaluation.hooks, failure="", refusal="", withheld=())
    return replace(progress, decided=()) if state.phase is Phase.IDLE else progress


def has_open_reply(state: State) -> bool:
    """True if the run was cancelled after a complete reply and before its end, and nothing was undone since."""
    evaluation = state.run.evaluation
    replies = (evaluation.reply, evaluation.output, evaluation.hooks.cancelled)
    is_cancelled = state.phase is Phase.IDLE and state.run.end.stop == "cancelled"
    return is_cancelled and any(each is not None for each in replies) and not compensation_notices(state)


def drop_open_reply(state: State) -> State:
    """State of a run that does not return to its last reply."""
    hooks = replace(state.run.evaluation.hooks, cancelled=None)
    evaluation = replace(state.run.evaluation, reply=None, output=None, continued_text="", hooks=hooks)
    return replace(state, run=replace(state.run, evaluation=replace(evaluation, suspected_truncation="")))


def reopen_reply(state: State) -> State:
    """State of a resumed run that evaluates the reply before the cancel, or continues its review by hooks."""
    progress = state.run.evaluation.hooks
    if progress.cancelled is None:
        return replace(state, phase=Phase.EVALUATING_REPLY)
    reply, decided = progress.cancelled
    reviewing = replace(progress, unreviewed=reply, decided=decided)
    return _set_progress(replace(state, phase=Phase.REVIEWING_REPLY), reviewing)


def _apply_reviewed(state: State, held: e.ModelReplied, at: float, proof: str) -> State:
    """State after a reviewed reply; one whose run was cancelled before is counted already."""
    after = apply_model_replied(state, held, at, proof)
    progress = after.run.evaluation.hooks
    if progress.cancelled is None:
        return after
    counted = replace(after.run, budget=state.run.budget)
    return _set_progress(replace(after, run=counted, totals=state.totals), replace(progress, cancelled=None))


def _close_review(state: State, parts: tuple[Part, ...], at: float, proof: str) -> State:
    """State after a reply of which only these parts become part of the conversation."""
    progress = state.run.evaluation.hooks
    held = progress.unreviewed
    if held is None:
        return state
    kept = replace(held, reply=replace(held.reply, parts=parts, stop=Stop.DONE, id=""))
    cleared = _set_progress(state, replace(progress, unreviewed=None, decided=()))
    after = _forget_server_state(_apply_reviewed(cleared, kept, at, proof))
    return replace(
        after,
        phase=Phase.CALLING_MODEL,
        run=replace(after.run, evaluation=replace(after.run.evaluation, reply=None)),
    )


def _reject_reply(state: State, event: HookDecided, at: float, proof: str) -> State:
    """Run no call of the reply and ask the model again, a limited number of times."""
    held = state.run.evaluation.hooks.unreviewed
    assert held is not None
    words = tuple(part for part in held.reply.parts if not isinstance(part, ToolCall))
    after = _close_review(state, words, at, proof)
    evaluation, progress = after.run.evaluation, after.run.evaluation.hooks
    output_progress = count_rejected_answer(evaluation.output_progress)
    count = output_progress.rejected_answers
    if count > REJECTED_ANSWERS_MAX:
        reason = REJECTED_TOO_OFTEN.format(hook=event.hook, count=count, reason=event.reason)
        return _set_progress(after, replace(progress, failure=reason))
    run = replace(after.run, evaluation=replace(evaluation, output_progress=output_progress))
    notice = (Text(text=REPLY_REJECTED.format(reason=event.reason)),)
    message = Message(role="user", parts=notice, at=at, provenance="harness")
    return append_message(replace(after, run=run), message)


def _apply_tool_hook(state: State, event: HookDecided, at: float, proof: str) -> State:
    item = _find_pending(state, event.call_id)
    if item is None:
        return state
    if event.action == "fail":
        return _set_progress(state, _add_decision(state.run.evaluation.hooks, event))
    if event.point == "before_tool":
        return _apply_before_tool(state, item, event)
    return _apply_after_tool(state, item, event, at, proof)


def _apply_before_tool(state: State, item: PendingCall, event: HookDecided) -> State:
    hooks = replace(item.hooks, before=(*item.hooks.before, event.hook), decided_by=event.hook)
    match event.action:
        case "refuse":
            return update_call(state, item.call.id, hooks=replace(hooks, refusal=event.reason))
        case "answer":
            return update_call(state, item.call.id, hooks=replace(hooks, answer=event.replacement or ""))
        case "change":
            return _change_arguments(state, item, event, hooks)
    return update_call(state, item.call.id, hooks=replace(hooks, decided_by=item.hooks.decided_by))


def _change_arguments(state: State, item: PendingCall, event: HookDecided, hooks: CallHooks) -> State:
    """State in which the call has the hook's arguments. If a person had edited it, they have to be approved again."""
    call = replace(item.call, arguments=event.arguments or "{}")
    is_edited = item.answer is not None and item.answer.arguments is not None
    tools = callable_tools(state)
    spec = tools.get(call.name) if is_edited else None
    # guard: hook-edit-compared
    if spec and canonical_arguments(item.arguments, spec) == canonical_arguments(call.arguments, spec):
        return update_call(state, call.id, hooks=replace(hooks, decided_by=item.hooks.decided_by))
    problem = find_call_problem(call, tools)
    if item.hooks.edits_replaced >= EDITS_REPLACED_MAX:
        problem = EDITS_REPLACED_TOO_OFTEN.format(count=EDITS_REPLACED_MAX)
    if problem:
        failed = replace(event, action="fail", reason=f"its arguments are invalid: {problem}")
        return _set_progress(state, _add_decision(state.run.evaluation.hooks, failed))
    # guard: replaced-edits-counted
    hooks = replace(hooks, edited_by=event.hook, edits_replaced=hooks.edits_replaced + is_edited)
    after = update_call(
        state, call.id, call=call, original=None, hooks=hooks, resource_claim=event.resource_claim
    )
    return update_call(after, call.id, answer=None, question=None) if is_edited else after


def _apply_after_tool(state: State, item: PendingCall, event: HookDecided, at: float, proof: str) -> State:
    held = item.hooks.unreviewed
    assert held is not None
    hooks = replace(item.hooks, after=(*item.hooks.after, event.hook))
    if event.action != "continue":
        parts: tuple[Text | Media, ...] = event.parts or (Text(text=event.replacement or ""),)
        if event.action == "refuse":
            parts = (Text(text=RESULT_WITHHELD.format(reason=event.reason)),)
        hooks = replace(hooks, original=hooks.original or held)
        # The stored whole result would let the model read what the hook replaced.
        is_refused = event.action == "refuse"
        held = replace(
            held,
            result=replace(held.result, parts=parts),
            stored_result=None,
            output=None if is_refused else held.output,
            conclusion=RunConclusion(stop="failed", reason=RESULT_WITHHELD.format(reason=event.reason))
            if is_refused and held.conclusion is not None
            else held.conclusion,
        )
    is_open = _find_due_hook(state, "after_tool", hooks.after) is not None
    hooks = replace(hooks, unreviewed=held if is_open else None)
    after = update_call(state, item.call.id, hooks=hooks)
    return after if is_open else apply_tool_finished(after, held, at, proof)


def _apply_on_end(state: State, event: HookDecided, at: float, proof: str) -> State:
    progress, end = state.run.evaluation.hooks, state.run.end
    progress = replace(progress, decided=(*progress.decided, event.hook))
    match event.action:
        case "change" | "answer":
            end = replace(end, answer=event.replacement or "")
        case "refuse":
            reason = REFUSED_BY.format(hook=event.hook, reason=event.reason)
            end = replace(end, stop="refused", reason=reason, answer="")
        case "fail":
            failure = HOOK_FAILED.format(hook=event.hook, reason=event.reason)
            end = replace(end, reason=f"{end.reason}; {failure}" if end.reason else failure)
    evaluation = replace(state.run.evaluation, hooks=progress)
    if event.action == "refuse":
        evaluation = replace(evaluation, output=None)
    elif event.action in ("change", "answer") and end.stop == "done" and state.settings.output is not None:
        evaluation = replace(evaluation, output=event.replacement)
    return replace(state, run=replace(state.run, end=end, evaluation=evaluation))


def _receive_reply(state: State, event: e.ModelReplied, at: float, proof: str) -> State:
    """Hold a reply back if hooks have to review it before it becomes part of the conversation."""
    if "after_model" not in state.settings.hook_points or event.summarizes_until:
        return apply_model_replied(state, event, at, proof)
    progress = replace(state.run.evaluation.hooks, is_used=True, decided=(), unreviewed=event)
    return _set_progress(replace(state, phase=Phase.REVIEWING_REPLY), progress)


def _receive_result(state: State, event: e.ToolFinished, at: float, proof: str) -> State:
    """Hold back the result of a call that ran if hooks have to review it; until then the call counts as running."""
    item = _find_pending(state, event.result.call_id)
    if "after_tool" not in state.settings.hook_points or item is None or not item.attempt:
        return apply_tool_finished(state, event, at, proof)
    held = _set_progress(state, replace(state.run.evaluation.hooks, is_used=True))
    hooks = replace(item.hooks, unreviewed=event)
    return update_call(held, item.call.id, hooks=hooks, running=True, in_doubt=False)


REVIEW_TRANSITIONS: dict[tuple[Phase, type], Callable[[State, Any, float, str], State]] = {
    (Phase.CALLING_MODEL, e.ModelReplied): _receive_reply,
    (Phase.RUNNING_TOOLS, e.ToolFinished): _receive_result,
}
HOOK_TRANSITIONS: dict[tuple[Phase, type], Callable[[State, Any, float, str], State]] = {
    (Phase.REVIEWING_REPLY, HookDecided): _apply_after_model,
    (Phase.RUNNING_TOOLS, HookDecided): _apply_tool_hook,
    (Phase.IDLE, HookDecided): _apply_on_end,
}
