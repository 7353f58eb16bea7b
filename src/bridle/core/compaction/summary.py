"""Summaries of old turns: the request to the model, and the use of its reply.

The request is an ordinary one with the same tools, instructions and messages, so that the cached prompt is
reused, plus one message that asks for the summary. The reply is paid for like any other but is not part of
the conversation. If the conversation is too long even for that, the first turns are summarized alone, then
the summary together with the next ones.

Tools stay offered, with the instruction not to call them: forbidding calls would be a cache miss at some
providers. If the model calls a tool anyway, it is asked again with calls forbidden.
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
from bridle.core.state import Attempt, CompactionProgress, Overflow, State
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
"""Maximum number of words per token of the window, for small windows."""
UNUSABLE_STOPS, CONTEXT_STOP = (Stop.REFUSED, Stop.FILTERED), Stop.CONTEXT


def summarizer_model(state: State) -> Model:
    """Model that is currently asked for summaries."""
    options = state.settings.compaction
    other = options.summarizer if options is not None and not state.run.compaction.use_own_model else None
    return other or state.settings.model


def state_for_summarizer(state: State, model_key: str) -> State:
    """The state with the summarizer as its model: it has other prices and limits."""
    options = state.settings.compaction
    other = options.summarizer if options is not None else None
    if not model_key or other is None or other.model_key != model_key:
        return state
    return replace(state, settings=set_model(state.settings, other))


def summary_words_max(state: State) -> int:
    """Maximum length of a summary in words."""
    return min(WORDS_MAX, int(WORDS_SHARE * window_tokens(state)))


def summary_instructions(state: State) -> str:
    """Instructions for the content of a summary."""
    options = state.settings.compaction
    extra = (
        f"\n\n{options.summary_words.strip()}"
        if options is not None and options.summary_words.strip()
        else ""
    )
    return SUMMARY_INSTRUCTIONS.format(words=summary_words_max(state)) + extra


def make_summary_request(state: State, messages: tuple[Message, ...]) -> Request:
    """Request for a summary of these messages, which are the view or its beginning."""
    conversation = state.conversation
    model = summarizer_model(state)
    words = (Text(text=SUMMARY_ASK + summary_instructions(state)),)
    question = Message(role="user", parts=words, at=state.now, provenance="harness")
    # A side request must not be added to a conversation object.
    settings = replace(state.settings, chain=state.settings.chain is True)
    summarizer_state = replace(state, settings=settings)
    if model.model_key != state.settings.model.model_key:
        summarizer_state = replace(
            state_for_summarizer(state, model.model_key),
            run=replace(state.run, refusals=replace(state.run.refusals, reasoning_status="")),
        )
        view, _, _ = view_for_model(conversation.transcript.messages, conversation.view_changes, model)
        # Its view may be longer, because it cannot read another provider's native summary.
        end = next((at + 1 for at, each in enumerate(view) if each.id == messages[-1].id), len(messages))
        messages = replace_unsupported_media(view[:end], model)
        summarizer_state = replace(summarizer_state, settings=replace(summarizer_state.settings, chain=False))
    choice = step_tool_choice(state)
    forced = state.run.compaction.forbid_calls or choice.mode in ("any", "tool")
    asking_state = replace(
        summarizer_state, conversation=replace(summarizer_state.conversation, view=(*messages, question))
    )
    request, _ = assemble_request(asking_state, ToolChoice(mode="none") if forced else choice)
    return replace(request, output=None)


def make_native_summary_request(state: State, messages: tuple[Message, ...]) -> Request:
    """Request for a native summary of these messages, which are the beginning of the view."""
    asking_state = replace(
        state,
        conversation=replace(state.conversation, view=messages),
        settings=replace(state.settings, chain=False),
    )
    request, _ = assemble_request(asking_state)
    words = summary_view.NATIVE_SUMMARY_ASK + summary_instructions(state)
    return replace(request, output=None, asks_native_summary=True, summary_instructions=words)


def record_overflow(state: State, failure: Failure) -> CompactionProgress:
    """Progress after a failure: records that the prompt was too long, possibly despite compaction."""
    progress, kind = state.run.compaction, failure.kind
    if (kind != "context" and kind != "too_large") or state.settings.compaction is None:
        return progress
    overflow = Overflow(kind=kind, message=failure.message, window_tokens=failure.window_tokens)
    if progress.summary.until:
        return replace(progress, overflow=overflow, split_count=progress.split_count + 1)
    return replace(progress, overflow=overflow, failed_tries=progress.failed_tries + progress.just_compacted)


def progress_after_reply(state: State, stop: Stop) -> CompactionProgress:
    """Progress after a reply, which may have been cut off by the window."""
    filled = stop is CONTEXT_STOP and state.settings.compaction is not None
    before = state.run.compaction
    overflow = before.overflow
    if not (filled or overflow.kind or overflow.message or before.just_compacted or before.split_count):
        return before
    return replace(
        before,
        overflow=Overflow(kind="context") if filled else Overflow(),
        just_compacted=False,
        split_count=0,
    )


def progress_after_resume(state: State) -> CompactionProgress:
    """Progress after a resume: earlier obstacles may have been removed."""
    before = state.run.compaction
    return CompactionProgress(
        summary=before.summary,
        use_own_model=before.use_own_model,
        forbid_calls=before.forbid_calls,
        native_disabled=before.native_disabled,
    )


def progress_after_request(progress: CompactionProgress) -> CompactionProgress:
    """Progress after a request that does not ask for a summary."""
    summary = progress.summary
    if not summary.until and not summary.summarizer_key:
        return progress
    return replace(progress, summary=replace(summary, until="", summarizer_key=""))


def apply_summary_asked(state: State, event: ModelAsked, at: float) -> State:
    run, before = state.run, state.run.compaction
    progress = replace(
        before,
        summary=replace(
            before.summary,
            until=event.summarizes_until,
            summarizer_key=event.model_key,
            native_requested=event.asks_native_summary,
        ),
        use_own_model=before.use_own_model or not event.model_key,
        native_disabled=before.native_disabled
        or (before.summary.native_requested and not event.asks_native_summary),
    )
    # A model that takes over has its own number of tries.
    tries = (
        run.attempt.model_attempts
        if (progress.use_own_model, progress.native_disabled)
        == (before.use_own_model, before.native_disabled)
        else 0
    )
    run = replace(
        run,
        attempt=replace(
            run.attempt, number=event.attempt, model_attempts=tries + 1, failure=None, partial_text=""
        ),
        compaction=progress,
    )
    return replace(
        state,
        run=run,
        cache=replace(
            state.cache, history=record_call_sent(state_for_summarizer(state, event.model_key), event, at)
        ),
    )


def apply_summary_replied(state: State, event: ModelReplied) -> State:
    """Charge the summary and hold it until it is put in place; a reply without text is a failed try."""
    reply, before = event.reply, state.run.compaction
    if before.summary.native_requested:
        progress = _accept_native_summary(state, reply)
    else:
        words = "" if reply.stop in UNUSABLE_STOPS else reply.text.strip()
        progress = replace(
            before,
            summary=replace(before.summary, text=words),
            failed_tries=before.failed_tries + (not words),
            forbid_calls=before.forbid_calls or bool(reply.calls),
        )
    summary = replace(progress.summary, until=event.summarizes_until, native_requested=False)
    run, usage = state.run, billable_usage(state, reply)
    run = replace(
        run,
        budget=replace(run.budget, spent=add_spending(run.budget.spent, usage, event.usd)),
        attempt=Attempt(),
        compaction=replace(progress, summary=summary),
    )
    total = add_spending(state.totals.spent, usage, event.usd)
    hits = record_summary_answered(
        state_for_summarizer(state, before.summary.summarizer_key),
        reply,
        elsewhere=bool(before.summary.summarizer_key),
    )
    return replace(
        state,
        run=run,
        totals=replace(state.totals, spent=total, reply_count=state.totals.reply_count + 1),
        cache=replace(state.cache, history=hits),
    )


def _accept_native_summary(state: State, reply: Reply) -> CompactionProgress:
    """Use a native summary if it preserves the user messages; otherwise its text, or try without it."""
    conversation = state.conversation
    progress, messages = state.run.compaction, conversation.transcript.messages
    native_parts = summary_view.extract_native_parts(reply)
    end = next(at + 1 for at, message in enumerate(messages) if message.id == progress.summary.until)
    prompts = [drop_chunks(state, each) for each in summary_view.list_kept_messages(conversation, end)]
    if native_parts and summary_view.has_prompts_intact(native_parts, prompts, state.settings.model):
        return replace(
            progress, summary=replace(progress.summary, native_parts=native_parts, native_origin=reply.origin)
        )
    words = summary_view.native_summary_text(native_parts)
    return replace(progress, summary=replace(progress.summary, text=words), native_disabled=not words)
