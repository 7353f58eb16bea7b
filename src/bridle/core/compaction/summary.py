"""Old turns in a few words: how a model is asked for them, and what becomes of its answer.

It is asked on the one road on which models are asked: the same tools, instructions and messages as ever,
so that the provider reads what it has kept, with one message more that asks for the summary.  What
comes back is paid for like any reply and is no part of the conversation.  When everything is too long even
for that, the first turns are summarised alone, and then the summary with the next ones.

Nothing is said to the model about tools but not to call them: forbidding calls would be another prompt to
some providers.  One that calls all the same is asked again with calls forbidden.
"""

from msgspec.structs import replace

from bridle.core.budget.limits import add_spending, billable_usage
from bridle.core.cache.diagnosis import record_call_sent, record_summary_answered
from bridle.core.context import summary_view
from bridle.core.context.assemble import assemble_request, step_tool_choice
from bridle.core.context.token_estimate import window_tokens
from bridle.core.context.view import replace_unsupported_media, view_for_model
from bridle.core.memory import drop_chunks
from bridle.core.recovery.fallback import set_model
from bridle.core.state import CompactionProgress, State
from bridle.values.errors import Failure
from bridle.values.events import ModelAsked, ModelReplied
from bridle.values.message import Message, Reply, Stop, Text
from bridle.values.model import Model
from bridle.values.request import Request, ToolChoice

SUMMARY_ASK = """\
Pause the work here and write down what is needed to go on with it. What you write will stand in place of \
the conversation above, except for the user's own messages and the latest steps, which stay as they are. \
Do not call a tool; answer with the summary and nothing else.

Say"""
SUMMARY_INSTRUCTIONS = """\
 briefly, with names, numbers, paths and ids exactly as they are:
- what has been done, in order, and what came of it
- what was found out and decided, and why
- what failed or must not be repeated
- what is open, and what comes next
At most {words} words."""
SUMMARY_LEAD = (
    "[The beginning of this conversation was shortened. What the user said in it stands here word for word;"
    " a summary of the rest follows.]"
)
PROMPT_LABEL = "[The user:]"
SUMMARY_HEADING = "[Summary of the steps up to here, written by the model; these are not the user's words:]\n"
WORDS_MAX = 800
WORDS_SHARE = 0.05
"""Of a small window, in words."""
UNUSABLE_STOPS = (Stop.REFUSED, Stop.FILTERED)


def summarizer_model(state: State) -> Model:
    """Who is asked for a summary now."""
    wish = state.settings.compaction
    other = wish.summarizer if wish is not None and not state.run.compaction.use_own_model else None
    return other or state.settings.model


def state_for_summarizer(state: State, seat: str) -> State:
    """The state as it is for whoever is asked for a summary: another model has other prices and limits."""
    wish = state.settings.compaction
    other = wish.summarizer if wish is not None else None
    if not seat or other is None or other.model_key != seat:
        return state
    return replace(state, settings=set_model(state.settings, other))


def summary_words_max(state: State) -> int:
    """How long a summary may be."""
    return min(WORDS_MAX, int(WORDS_SHARE * window_tokens(state)))


def summary_instructions(state: State) -> str:
    """What a summary is to be about."""
    wish = state.settings.compaction
    more = f"\n\n{wish.summary_words.strip()}" if wish is not None and wish.summary_words.strip() else ""
    return SUMMARY_INSTRUCTIONS.format(words=summary_words_max(state)) + more


def make_summary_request(state: State, messages: tuple[Message, ...]) -> Request:
    """The question for a summary of these messages, which are the view or its beginning."""
    model = summarizer_model(state)
    words = (Text(text=SUMMARY_ASK + summary_instructions(state)),)
    question = Message(role="user", parts=words, at=state.now, provenance="harness")
    # What is asked aside must not be added to a conversation object.
    aside = replace(state.settings, chain=state.settings.chain is True)
    asked = replace(state, settings=aside)
    if model.model_key != state.settings.model.model_key:
        asked = replace(
            state_for_summarizer(state, model.model_key), run=replace(state.run, reasoning_status="")
        )
        view, _, _ = view_for_model(state.transcript.messages, state.view_changes, model)
        # Its view may be longer: what one provider made of old turns is nothing to another.
        end = next((at + 1 for at, each in enumerate(view) if each.id == messages[-1].id), len(messages))
        messages = replace_unsupported_media(view[:end], model)
        asked = replace(asked, settings=replace(asked.settings, chain=False))
    choice = step_tool_choice(state)
    forced = state.run.compaction.forbid_calls or choice.mode in ("any", "tool")
    told = replace(asked, view=(*messages, question))
    request, _ = assemble_request(told, ToolChoice(mode="none") if forced else choice)
    return replace(request, output=None)


def make_native_summary_request(state: State, messages: tuple[Message, ...]) -> Request:
    """The request for something short in place of these messages, which are the beginning of the view."""
    told = replace(state, view=messages, settings=replace(state.settings, chain=False))
    request, _ = assemble_request(told)
    words = summary_view.NATIVE_SUMMARY_ASK + summary_instructions(state)
    return replace(request, output=None, asks_native_summary=True, summary_instructions=words)


def record_overflow(state: State, failure: Failure) -> CompactionProgress:
    """After a failure: was it too long, though it may just have been made shorter?"""
    squeeze, kind = state.run.compaction, failure.kind
    if (kind != "context" and kind != "too_large") or state.settings.compaction is None:
        return squeeze
    told = replace(
        squeeze, overflow=kind, overflow_message=failure.message, window_tokens=failure.window_tokens
    )
    if squeeze.summary_until:
        return replace(told, split_count=squeeze.split_count + 1)
    return replace(told, failed_tries=squeeze.failed_tries + squeeze.just_compacted)


def progress_after_reply(state: State, stop: Stop) -> CompactionProgress:
    """After a reply, which may have ended where the window does."""
    filled = stop is Stop.CONTEXT and state.settings.compaction is not None
    return replace(
        state.run.compaction,
        overflow="context" if filled else "",
        overflow_message="",
        just_compacted=False,
        split_count=0,
    )


def progress_after_resume(state: State) -> CompactionProgress:
    """Somebody resumes the run, and may have seen to what was in its way."""
    return replace(
        state.run.compaction,
        overflow="",
        overflow_message="",
        failed_tries=0,
        tried_tokens=0,
        split_count=0,
        just_compacted=False,
    )


def apply_summary_asked(state: State, event: ModelAsked, at: float) -> State:
    squeeze = replace(
        state.run.compaction,
        summary_until=event.summarizes_until,
        summarizer_key=event.model_key,
        use_own_model=state.run.compaction.use_own_model or not event.model_key,
        native_requested=event.asks_native_summary,
        native_disabled=state.run.compaction.native_disabled
        or (state.run.compaction.native_requested and not event.asks_native_summary),
    )
    # Whoever steps in for another has its own number of tries.
    before = state.run.compaction
    tries = (
        state.run.model_attempts
        if (squeeze.use_own_model, squeeze.native_disabled) == (before.use_own_model, before.native_disabled)
        else 0
    )
    run = replace(
        state.run,
        attempt=event.attempt,
        model_attempts=tries + 1,
        failure=None,
        partial_text="",
        compaction=squeeze,
    )
    return replace(
        state, run=run, cache=record_call_sent(state_for_summarizer(state, event.model_key), event, at)
    )


def apply_summary_replied(state: State, event: ModelReplied) -> State:
    """Paid for, and kept until it is put in its place; an answer without words was a try in vain."""
    reply, before = event.reply, state.run.compaction
    if before.native_requested:
        squeeze = _accept_native_summary(state, reply)
    else:
        words = "" if reply.stop in UNUSABLE_STOPS else reply.text.strip()
        squeeze = replace(
            before,
            summary_text=words,
            failed_tries=before.failed_tries + (not words),
            forbid_calls=before.forbid_calls or bool(reply.calls),
        )
    squeeze, usage = (
        replace(squeeze, summary_until=event.summarizes_until, native_requested=False),
        billable_usage(state, reply),
    )
    run = replace(
        state.run,
        spent=add_spending(state.run.spent, usage, event.usd),
        attempt=0,
        model_attempts=0,
        breaker_waits=0,
        failure=None,
        repair_failures=(),
        partial_text="",
        compaction=squeeze,
    )
    total = add_spending(state.total_spent, usage, event.usd)
    hits = record_summary_answered(
        state_for_summarizer(state, before.summarizer_key), reply, elsewhere=bool(before.summarizer_key)
    )
    return replace(state, run=run, total_spent=total, reply_count=state.reply_count + 1, cache=hits)


def _accept_native_summary(state: State, reply: Reply) -> CompactionProgress:
    """What the provider made, if people's words are safe in it; else its words, or another try without it."""
    squeeze, messages = state.run.compaction, state.transcript.messages
    made = summary_view.extract_native_parts(reply)
    end = next(at + 1 for at, message in enumerate(messages) if message.id == squeeze.summary_until)
    said = [drop_chunks(state, message) for message in messages[:end] if message.id in state.prompt_ids]
    if made and summary_view.has_prompts_intact(made, said, state.settings.model):
        return replace(squeeze, native_parts=made, native_origin=reply.origin)
    words = summary_view.native_summary_text(made)
    return replace(squeeze, summary_text=words, native_disabled=not words)
