"""Plans compaction: shortens a conversation before it no longer fits into the window.

Checked before every request. Nothing happens below the threshold (`compaction_threshold`). Above it the
strategies (strategies.py) are applied in order until the prompt reaches the target size, all in one recorded
event: every change of earlier messages is a cache miss, so it is done rarely and thoroughly, and the event
states its cost.

Rule 1: the log keeps every original; only the view is compacted.
Rule 2: a call and its result are never separated, and the newest messages stay unchanged.
Rule 3: user messages stay verbatim. Only an overlong text of an earlier run, in a prompt that does not fit,
        is reduced to its beginning and end; with `shorten_prompts`, shorter texts of user messages too.
Rule 4: a summary is written from the original messages, before anything is shortened, while the provider
        still has them cached; and only if shortening would not be enough.
Rule 5: after two failed tries compaction stops. If the prompt fits anyway it is sent; otherwise the run ends
        and names the parts that cannot be shortened.
Rule 6: a compaction that saves less than a tenth of the window does not run; if the prompt may not fit otherwise,
        less than a fiftieth (`NEEDED_GAIN_SHARE_MIN`).
"""

from collections.abc import Iterator

from msgspec.structs import replace

from bridle.core.cache.prefix import mark_stale_after
from bridle.core.context import summary_view
from bridle.core.context.assemble import limit_output, offered_tools
from bridle.core.context.token_estimate import (
    estimate_text_tokens,
    estimate_tool_tokens,
    model_window_tokens,
    window_tokens,
)
from bridle.core.context.view import part_ref, rebuild_view, view_for_model
from bridle.core.effects import Compact, EndRun
from bridle.core.memory import drop_chunks, find_old_chunks, request_memory_reload
from bridle.core.state import Phase, State, SummaryInProgress
from bridle.values.base import Value
from bridle.values.events import Compacted
from bridle.values.message import Message
from bridle.values.request import Request

from .strategies import (
    CHARACTERS_PER_TOKEN,
    GAIN_SHARE_MIN,
    STRATEGIES,
    compaction_threshold,
    estimated_tokens,
    fit_limit_tokens,
    gain_tokens_min,
    is_below_threshold,
    message_weight,
    minimum_tokens,
    needed_gain_tokens_min,
    price_uncached_tokens,
    scale_to_tokens,
    suggest_shorter_prompts,
    tail_start,
    view_weight,
    window_share,
)
from .summary import (
    PROMPT_LABEL,
    SUMMARY_ASK,
    SUMMARY_HEADING,
    SUMMARY_LEAD,
    make_native_summary_request,
    make_summary_request,
    summarizer_model,
    summary_words_max,
)

PARTS_NAMED_MAX = 5
OVERFLOW_REASON = (
    "the conversation does not fit into the window of {window:,} tokens ({filled:,} by estimate) and cannot"
    " be compacted further{tries}{provider_message}. Parts that cannot shrink: {parts}. {advice}"
)
OVERFLOW_ADVICE = (
    "Give a larger window (another model, or context_tokens=… if the model has more){option}, or shorten these"
    " parts, and resume; or start a new session"
)


def context_overflow(state: State) -> EndRun:
    whole = view_weight(state, state.conversation.view)
    parts = sorted(_list_unshrinkable_parts(state), key=lambda each: -each[1])[:PARTS_NAMED_MAX]
    named_parts = ", ".join(
        f"{name} (about {scale_to_tokens(state, size, whole):,} tokens)" for name, size in parts
    )
    progress, overflow = state.run.compaction, state.run.compaction.overflow
    count = "1 try" if progress.failed_tries == 1 else f"{progress.failed_tries} tries"
    tries = f"; {count} failed" if progress.failed_tries else ""
    provider_message = f" (the provider says: {overflow.message})" if overflow.message else ""
    window = overflow.window_tokens or window_tokens(state)
    reason = OVERFLOW_REASON.format(
        provider_message=provider_message,
        window=window,
        filled=max(window + 1, state.estimate.prompt_tokens - state.estimate.margin_tokens)
        if overflow.kind
        else estimated_tokens(state),
        tries=tries,
        parts=named_parts,
        advice=OVERFLOW_ADVICE.format(option=suggest_shorter_prompts(state)),
    )
    return EndRun(stop="context", reason=reason)


def _list_unshrinkable_parts(state: State) -> Iterator[tuple[str, int]]:
    settings = state.settings
    if settings.instructions:
        yield "the instructions", estimate_text_tokens(settings.instructions)
    tools = offered_tools(state)
    if tools:
        yield f"{len(tools)} tools", estimate_tool_tokens(tools)
    for message in state.conversation.view:
        yield _name_message(state, message), message_weight(state, message)


def _name_message(state: State, message: Message) -> str:
    conversation = state.conversation
    if message.id in conversation.prompt_ids:
        return f"the prompt {message.id}"
    if conversation.summarized_count and message is conversation.view[0]:
        last = conversation.transcript.messages[conversation.summarized_count - 1]
        return f"what was said and summarised up to {last.id}"
    kind = {"tool": "the tool results", "assistant": "the reply"}.get(message.role, "the message")
    return f"{kind} {message.id}"


TRIES_MAX = 2
COMPACTED_REASON = "the conversation was made shorter"
RETRY_GROWTH_SHARE = 0.05
"""Share of the window by which the conversation must grow before another try after a failed one."""
TOKENS_PER_WORD = 2
"""Conservative, because a summary is full of names and numbers."""
REPLY_TOKENS_MAX = 8_000
"""Room for a summary, including reasoning if no allowance is set."""
SUMMARY_SHARE = 0.125
PIECE_SHARE = 0.5
"""Share of the window to summarize at a time, if not everything fits."""
PIECES_MAX = 4


class SummaryRequest(Value, kw_only=True):
    """A request for a summary that will replace old turns."""

    request: Request
    summarized_until: str


def plan_compaction(state: State) -> Compact | SummaryRequest | EndRun | None:
    """Compaction step needed before the next model call; None if there is none."""
    options, progress = state.settings.compaction, state.run.compaction
    if options is None:
        return None
    if progress.summary.text or progress.summary.native_parts:
        return Compact(event=_place_summary(state))
    now = estimated_tokens(state)
    if is_below_threshold(state, now):
        return None
    overflows = now > fit_limit_tokens(state)
    exhausted = progress.failed_tries >= TRIES_MAX or progress.split_count > PIECES_MAX
    if exhausted and overflows:
        return context_overflow(state)
    if (
        progress.failed_tries
        and not overflows
        and now - progress.tried_tokens < window_share(state, RETRY_GROWTH_SHARE)
    ):
        return None
    smaller = _shrink_view(state)
    gain = now - smaller.after_tokens
    if smaller.changes and smaller.after_tokens <= window_share(state, options.to):
        return Compact(event=smaller)
    sends_whole = _can_send_whole_view(state)
    # Not if a summary had to be requested right afterwards: that would be two cache misses.
    if (
        not sends_whole
        and gain >= gain_tokens_min(state)
        and smaller.after_tokens <= compaction_threshold(state)
    ):
        return Compact(event=smaller)
    summary_request = None if exhausted else _plan_summary(state, whole=sends_whole, hard=overflows)
    if summary_request is not None:
        return summary_request
    if smaller.changes and gain >= (needed_gain_tokens_min(state) if overflows else gain_tokens_min(state)):
        return Compact(event=smaller)
    return context_overflow(state) if minimum_tokens(state) > window_tokens(state) else None


def apply_compacted(state: State, event: Compacted, at: float, proof: str) -> State:
    conversation = state.conversation
    before, progress = estimated_tokens(state), state.run.compaction
    in_vain = (
        event.after_tokens > compaction_threshold(state)
        and before - event.after_tokens < before * GAIN_SHARE_MIN
    )
    failed = progress.failed_tries + 1 if in_vain else progress.failed_tries if progress.overflow.kind else 0
    fresh = replace(
        progress,
        # An error that ends the run still quotes the provider's message.
        overflow=replace(progress.overflow, kind=""),
        failed_tries=failed,
        tried_tokens=event.after_tokens,
        just_compacted=True,
        summary=SummaryInProgress(
            summarizer_key=progress.summary.summarizer_key, native_requested=progress.summary.native_requested
        ),
    )
    attempt = replace(state.run.attempt, failure=None) if progress.overflow.kind else state.run.attempt
    run = replace(state.run, compaction=fresh, attempt=attempt)
    after = rebuild_view(
        mark_stale_after(
            replace(
                state,
                run=run,
                conversation=summary_view.add_compaction(conversation, event),
            ),
            event,
        )
    )
    # Reservations use the conservative estimate, the window the likely one.
    conservative = max(
        event.after_tokens, min(state.estimate.prompt_tokens, view_weight(after, after.conversation.view))
    )
    shorter = replace(
        after,
        estimate=replace(
            after.estimate,
            prompt_tokens=conservative,
            margin_tokens=conservative - event.after_tokens,
            counted_tokens=min(
                event.after_tokens, state.estimate.counted_tokens * event.after_tokens // max(before, 1)
            ),
        ),
    )
    return request_memory_reload(shorter, COMPACTED_REASON)


def _shrink_view(state: State, summary: Compacted | None = None) -> Compacted:
    """The view with everything shortened that needs no summary, as far as possible or necessary."""
    assert state.settings.compaction is not None
    event = summary or Compacted(strategies=(), why="")
    event = measure_event(state, replace(event, before_tokens=estimated_tokens(state)))
    for strategy in STRATEGIES:
        if strategy.find_changes is None or event.after_tokens <= window_share(
            state, state.settings.compaction.to
        ):
            continue
        if strategy.last_resort and event.after_tokens <= fit_limit_tokens(state):
            continue
        target, before = window_share(state, state.settings.compaction.to), event
        for find_changes in (strategy.find_changes, *strategy.levels):
            known = {part_ref(each): each for each in event.changes}
            found = {part_ref(each): each for each in find_changes(state)}
            if not strategy.shortens_again:
                found = {ref: each for ref, each in found.items() if ref not in known}
            if found:
                changes = tuple({**known, **found}.values())
                more = replace(event, changes=changes, strategies=(*before.strategies, strategy.name))
                event = measure_event(state, more)
            if event.after_tokens <= target:
                break
    return replace(event, why=_explain_compaction(state))


def measure_event(state: State, event: Compacted) -> Compacted:
    """The event with the resulting prompt size and its uncached part."""
    conversation = state.conversation
    view, _, _ = view_for_model(
        conversation.transcript.messages, (*conversation.view_changes, event), state.settings.model
    )
    whole = view_weight(state, conversation.view)
    pairs = enumerate(zip(conversation.view, view, strict=False))
    first = next((at for at, (old, new) in pairs if old != new), min(len(view), len(conversation.view)))
    uncached = scale_to_tokens(state, sum(message_weight(state, message) for message in view[first:]), whole)
    after = scale_to_tokens(state, view_weight(state, view), whole)
    return replace(
        event, after_tokens=after, uncached_tokens=uncached, usd=price_uncached_tokens(state, uncached)
    )


def _explain_compaction(state: State) -> str:
    progress = state.run.compaction
    if progress.overflow.kind:
        return (
            f"it did not fit into the model's window: {progress.overflow.message or 'the reply ended there'}"
        )
    window = window_tokens(state)
    filled, threshold = estimated_tokens(state), compaction_threshold(state)
    return f"the next prompt would fill {filled:,} of {window:,} tokens, more than {threshold:,}"


def _plan_summary(state: State, *, whole: bool, hard: bool) -> SummaryRequest | None:
    """Request for a summary of the old turns, if worthwhile; of the first ones, if there are too many."""
    if state.phase is Phase.EVALUATING_REPLY:
        return None  # a paused reply must be continued first
    end = tail_start(state)
    for native in (
        summary_view.native_cut_points(state, end) if summary_view.can_summarize_natively(state) else ()
    ):
        if _is_worth_summarizing(state, native, hard=hard) and _can_fit(state, _view_until(state, native)):
            return _limit_summary_request(
                state, make_native_summary_request(state, _view_until(state, native)), native
            )
    # The first piece may save little, if all of them together save enough.
    is_enough = hard and _is_worth_summarizing(state, end, hard=True)
    if not whole:
        end = _skip_back_over_prompts(state, min(end, _piece_end(state)))
    if not _is_worth_summarizing(state, end, hard=hard) and not (is_enough and _summary_gain(state, end) > 0):
        return None
    messages = _drop_unfinished_reply(state.conversation.view) if whole else _view_until(state, end)
    return _limit_summary_request(state, make_summary_request(state, messages), end)


def _limit_summary_request(state: State, request: Request, end: int) -> SummaryRequest:
    room = min(request.max_tokens or REPLY_TOKENS_MAX, _reply_tokens(state))
    until = state.conversation.transcript.messages[end - 1].id
    return SummaryRequest(request=limit_output(request, room), summarized_until=until)


def _is_worth_summarizing(state: State, end: int, *, hard: bool) -> bool:
    """True if a summary of this many messages of the transcript saves enough."""
    least = needed_gain_tokens_min(state) if hard else gain_tokens_min(state)
    return _summary_gain(state, end) >= least


def _summary_gain(state: State, end: int) -> int:
    """Tokens that a summary of this many messages of the transcript saves, if it is as long as it may be."""
    conversation = state.conversation
    if end <= conversation.summarized_count:
        return 0
    prompts = (drop_chunks(state, each) for each in summary_view.list_kept_messages(conversation, end))
    prompt_weight = sum(message_weight(state, each) for each in prompts)
    old = sum(message_weight(state, message) for message in _view_until(state, end))
    saved = scale_to_tokens(state, old - prompt_weight, view_weight(state, conversation.view))
    return saved - TOKENS_PER_WORD * summary_words_max(state)


def _view_until(state: State, end: int) -> tuple[Message, ...]:
    """Part of the view that represents this many messages of the transcript."""
    conversation = state.conversation
    return conversation.view[: end - conversation.summarized_count + bool(conversation.summarized_count)]


def _can_fit(state: State, view: tuple[Message, ...]) -> bool:
    """True if this part of the view can be sent with room for a summary."""
    tokens = scale_to_tokens(state, view_weight(state, view), view_weight(state, state.conversation.view))
    return tokens + _reply_tokens(state) <= window_tokens(state)


def _drop_unfinished_reply(view: tuple[Message, ...]) -> tuple[Message, ...]:
    """The view without an unfinished reply, after which no message may follow."""
    return view[:-1] if view[-1].role == "assistant" else view


def _reply_tokens(state: State) -> int:
    """Tokens for the summary and its reasoning; the usual allowance, because another would be a cache miss."""
    thinking = state.settings.thinking
    return _summary_tokens(state) + ((thinking.budget_tokens or 0) if thinking is not None else 0)


def _summary_tokens(state: State) -> int:
    window = min(window_tokens(state), model_window_tokens(state, summarizer_model(state)))
    return max(1, min(REPLY_TOKENS_MAX, int(window * SUMMARY_SHARE)))


def _can_send_whole_view(state: State) -> bool:
    """True if the whole view can be sent together with the request for a summary."""
    progress, model = state.run.compaction, summarizer_model(state)
    if progress.overflow.kind or progress.split_count:
        return False
    own = model.model_key == state.settings.model.model_key
    window = window_tokens(state) if own else model_window_tokens(state, model)
    return estimated_tokens(state) + estimate_text_tokens(SUMMARY_ASK) + _reply_tokens(state) <= window


def _piece_end(state: State) -> int:
    """End of the first turns that can be summarized in one request."""
    conversation = state.conversation
    messages, whole = conversation.transcript.messages, view_weight(state, conversation.view)
    window = min(window_tokens(state), model_window_tokens(state, summarizer_model(state)))
    room = int(window * PIECE_SHARE) >> state.run.compaction.split_count
    taken = (
        view_weight(state, conversation.view[:1]) if conversation.summarized_count else view_weight(state, ())
    )
    end = conversation.summarized_count
    for at in range(conversation.summarized_count, len(messages)):
        taken += message_weight(
            state, conversation.view[at - conversation.summarized_count + bool(conversation.summarized_count)]
        )
        if scale_to_tokens(state, taken, whole) > room:
            break
        if at + 1 == len(messages) or messages[at + 1].role != "tool":
            end = at + 1
    return end


def _skip_back_over_prompts(state: State, end: int) -> int:
    """Latest cut that is not right after a prompt: there the model would answer the prompt instead."""
    messages, kept = state.conversation.transcript.messages, summary_view.list_kept_ids(state.conversation)
    while end > state.conversation.summarized_count and messages[end - 1].id in kept:
        end -= 1
    return end


def _place_summary(state: State) -> Compacted:
    """Event that puts the summary in place, with further shortening if needed."""
    conversation = state.conversation
    progress, messages = state.run.compaction, conversation.transcript.messages
    end = next(at + 1 for at, message in enumerate(messages) if message.id == progress.summary.until)
    words = (progress.summary.text or summary_view.native_summary_text(progress.summary.native_parts))[
        : _summary_tokens(state) * CHARACTERS_PER_TOKEN
    ]
    event = Compacted(
        strategies=("turns",),
        why=_explain_compaction(state),
        summarized_until=progress.summary.until,
        prompt_ids=tuple(each.id for each in summary_view.list_kept_messages(conversation, end)),
        lead=SUMMARY_LEAD,
        label=PROMPT_LABEL,
        # Retrieved chunks were written by no one in the conversation, and the summary covers their use.
        changes=tuple(find_old_chunks(state, end)),
        summary=SUMMARY_HEADING + words if words else "",
        native_parts=progress.summary.native_parts,
        native_origin=progress.summary.native_origin,
        before_tokens=estimated_tokens(state),
    )
    # The messages after a native summary stay unchanged; otherwise their reasoning would be rejected.
    return measure_event(state, event) if progress.summary.native_parts else _shrink_view(state, event)
