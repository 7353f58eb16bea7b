"""Make a conversation shorter before it no longer fits: when, what, and how far.

Looked at before every request, in the midst of a run as well as at its beginning.  Nothing is done below
the gate (`weighing.gate`).  Above it the strategies (strategies.py) are tried in their order until the
prompt is down to the target, all in one recorded event: each change of what was sent before makes the
provider read it anew, so it is done seldom and thoroughly, and the event says what that costs.

Rule 1: the log keeps every original; only the view is shorter.
Rule 2: a call and its result are never parted, and the newest messages stay as they are.
Rule 3: what people said stays, word for word.  Only a text of an earlier run that is longer than anything
        a person types, in a prompt that does not fit, becomes its beginning and its end.
Rule 4: a summary is written from what was said, before anything shrinks, while the provider still
        has it in its cache; and only when shrinking would not be enough.
Rule 5: two tries in vain are the last, and where nothing fits any more the end of the run, with the names of
        what cannot shrink.  What still fits is sent.
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
from bridle.core.context.view import rebuild_view, view_for_model
from bridle.core.effects import Compact, EndRun
from bridle.core.memory import drop_chunks, find_old_chunks, request_memory_reload
from bridle.core.state import Phase, State
from bridle.values.base import Value
from bridle.values.events import Compacted
from bridle.values.message import Message
from bridle.values.request import Request

from .strategies import (
    CHARACTERS_PER_TOKEN,
    STRATEGIES,
    compaction_threshold,
    estimated_tokens,
    fit_limit_tokens,
    message_weight,
    minimum_tokens,
    price_uncached_tokens,
    scale_to_tokens,
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

# A conversation that does not fit and cannot be made to: the end of the run, and what is in the way.
#
# Named are the instructions, the tools, what people said and the newest messages, with what each takes of
# the window by estimate, the largest first, and what can be done about it.


PARTS_NAMED_MAX = 5
OVERFLOW_REASON = (
    "the conversation does not fit into the window of {window:,} tokens ({filled:,} by estimate) and cannot"
    " be made shorter{tries}{said}. What cannot shrink: {parts}. {advice}"
)
OVERFLOW_ADVICE = (
    "Give a larger window (another model, or context_tokens=… if the model has more), or shorten what is"
    " named, and resume; or begin a new session"
)


def context_overflow(state: State) -> EndRun:
    whole = view_weight(state, state.view)
    parts = sorted(_list_unshrinkable_parts(state), key=lambda each: -each[1])[:PARTS_NAMED_MAX]
    told = ", ".join(f"{name} (about {scale_to_tokens(state, size, whole):,} tokens)" for name, size in parts)
    squeeze = state.run.compaction
    many = "1 try was" if squeeze.failed_tries == 1 else f"{squeeze.failed_tries} tries were"
    tries = f"; {many} in vain" if squeeze.failed_tries else ""
    said = f" (the provider says: {squeeze.overflow_message})" if squeeze.overflow_message else ""
    window = squeeze.window_tokens or window_tokens(state)
    reason = OVERFLOW_REASON.format(
        said=said,
        window=window,
        filled=max(window + 1, state.prompt_tokens - state.estimate_margin_tokens)
        if squeeze.overflow
        else estimated_tokens(state),
        tries=tries,
        parts=told,
        advice=OVERFLOW_ADVICE,
    )
    return EndRun(stop="context", reason=reason)


def _list_unshrinkable_parts(state: State) -> Iterator[tuple[str, int]]:
    settings = state.settings
    if settings.instructions:
        yield "the instructions", estimate_text_tokens(settings.instructions)
    tools = offered_tools(state)
    if tools:
        yield f"{len(tools)} tools", estimate_tool_tokens(tools)
    for message in state.view:
        yield _name_message(state, message), message_weight(state, message)


def _name_message(state: State, message: Message) -> str:
    if message.id in state.prompt_ids:
        return f"the prompt {message.id}"
    if state.summarized_count and message is state.view[0]:
        return (
            f"what was said and summarised up to {state.transcript.messages[state.summarized_count - 1].id}"
        )
    kind = {"tool": "the tool results", "assistant": "the reply"}.get(message.role, "the message")
    return f"{kind} {message.id}"


TRIES_MAX = 2
COMPACTED_REASON = "the conversation was made shorter"
GAIN_SHARE_MIN = 0.1
"""Of the window: what a change must gain to be worth reading everything behind it anew."""
RETRY_GROWTH_SHARE = 0.05
"""Of the window: how much more there must be before another try after one in vain."""
TOKENS_PER_WORD = 2
"""Of a summary, with some to spare: it is full of names and numbers."""
REPLY_TOKENS_MAX = 8_000
"""Room for a summary, and for thinking where nothing is said about that."""
SUMMARY_SHARE = 0.125
PIECE_SHARE = 0.5
"""Of the window: how much is summarised at a time, when all of it does not fit."""
PIECES_MAX = 4


class SummaryRequest(Value):
    """Old turns are to give way, and somebody has to say what was in them."""

    request: Request
    summarized_until: str


def plan_compaction(state: State) -> Compact | SummaryRequest | EndRun | None:
    """What has to be done before the model can be asked; None when nothing has."""
    wish, squeeze = state.settings.compaction, state.run.compaction
    if wish is None:
        return None
    if squeeze.summary_text or squeeze.native_parts:
        return Compact(event=_place_summary(state))
    now = estimated_tokens(state)
    if now <= compaction_threshold(state):
        return None
    hard, spent = (
        now > fit_limit_tokens(state),
        squeeze.failed_tries >= TRIES_MAX or squeeze.split_count > PIECES_MAX,
    )
    if spent and hard:
        return context_overflow(state)
    if (
        squeeze.failed_tries
        and not hard
        and now - squeeze.tried_tokens < window_share(state, RETRY_GROWTH_SHARE)
    ):
        return None
    smaller = _shrink_view(state)
    gain = now - smaller.after_tokens
    if smaller.changes and smaller.after_tokens <= window_share(state, wish.to):
        return Compact(event=smaller)
    whole = _can_send_whole_view(state)
    # Not if a summary would have to be asked for right behind it: that would be read anew twice.
    if (
        not whole
        and gain >= window_share(state, GAIN_SHARE_MIN)
        and smaller.after_tokens <= compaction_threshold(state)
    ):
        return Compact(event=smaller)
    wanted = None if spent else _plan_summary(state, whole=whole, hard=hard)
    if wanted is not None:
        return wanted
    if smaller.changes and (hard or gain >= window_share(state, GAIN_SHARE_MIN)):
        return Compact(event=smaller)
    return context_overflow(state) if minimum_tokens(state) > window_tokens(state) else None


def apply_compacted(state: State, event: Compacted, at: float, proof: str) -> State:
    before, squeeze = estimated_tokens(state), state.run.compaction
    in_vain = (
        event.after_tokens > compaction_threshold(state)
        and before - event.after_tokens < before * GAIN_SHARE_MIN
    )
    failed = squeeze.failed_tries + 1 if in_vain else squeeze.failed_tries if squeeze.overflow else 0
    fresh = replace(
        squeeze,
        overflow="",
        failed_tries=failed,
        tried_tokens=event.after_tokens,
        just_compacted=True,
        summary_until="",
        summary_text="",
        native_parts=(),
        native_origin=None,
    )
    run = replace(state.run, compaction=fresh, failure=None if squeeze.overflow else state.run.failure)
    after = rebuild_view(
        mark_stale_after(replace(state, run=run, view_changes=(*state.view_changes, event)), event)
    )
    # Money is set aside for the dear estimate, the window is filled by the fair one.
    dear = max(event.after_tokens, min(state.prompt_tokens, view_weight(after, after.view)))
    shorter = replace(
        after,
        prompt_tokens=dear,
        estimate_margin_tokens=dear - event.after_tokens,
        counted_tokens=min(event.after_tokens, state.counted_tokens * event.after_tokens // max(before, 1)),
    )
    return request_memory_reload(shorter, COMPACTED_REASON)


def _shrink_view(state: State, summary: Compacted | None = None) -> Compacted:
    """The view without what can go without a summary, as far down as it goes or has to."""
    assert state.settings.compaction is not None
    event = summary or Compacted(strategies=(), why="")
    event = _measure_event(state, replace(event, before_tokens=estimated_tokens(state)))
    for strategy in STRATEGIES:
        if strategy.find_changes is None or event.after_tokens <= window_share(
            state, state.settings.compaction.to
        ):
            continue
        if strategy.last_resort and event.after_tokens <= fit_limit_tokens(state):
            continue
        known = {(change.message, change.part, change.inner) for change in event.changes}
        found = (
            each
            for each in strategy.find_changes(state)
            if (each.message, each.part, each.inner) not in known
        )
        if changes := tuple(found):
            more = replace(
                event, changes=(*event.changes, *changes), strategies=(*event.strategies, strategy.name)
            )
            event = _measure_event(state, more)
    return replace(event, why=_explain_compaction(state))


def _measure_event(state: State, event: Compacted) -> Compacted:
    """With what is left of the prompt, and what of that has to be read anew."""
    view, _, _ = view_for_model(state.transcript.messages, (*state.view_changes, event), state.settings.model)
    whole = view_weight(state, state.view)
    pairs = enumerate(zip(state.view, view, strict=False))
    first = next((at for at, (old, new) in pairs if old != new), min(len(view), len(state.view)))
    anew = scale_to_tokens(state, sum(message_weight(state, message) for message in view[first:]), whole)
    after = scale_to_tokens(state, view_weight(state, view), whole)
    return replace(event, after_tokens=after, uncached_tokens=anew, usd=price_uncached_tokens(state, anew))


def _explain_compaction(state: State) -> str:
    squeeze = state.run.compaction
    if squeeze.overflow:
        return (
            f"it did not fit into the model's window: {squeeze.overflow_message or 'the reply ended there'}"
        )
    window = window_tokens(state)
    filled, threshold = estimated_tokens(state), compaction_threshold(state)
    return f"the next prompt would fill {filled:,} of {window:,} tokens, more than {threshold:,}"


def _plan_summary(state: State, *, whole: bool, hard: bool) -> SummaryRequest | None:
    """A summary of the old turns, if there are enough of them; of the first of them, if they are too many."""
    if state.phase is Phase.EVALUATING_REPLY:
        return None  # in the midst of a reply that was paused nobody else can be heard
    end = tail_start(state)
    for native in (
        summary_view.native_cut_points(state, end) if summary_view.can_summarize_natively(state) else ()
    ):
        if _is_worth_summarizing(state, native, hard=hard) and _can_fit(state, _view_until(state, native)):
            return _limit_summary_request(
                state, make_native_summary_request(state, _view_until(state, native)), native
            )
    if not whole:
        end = _skip_back_over_prompts(state, min(end, _piece_end(state)))
    if not _is_worth_summarizing(state, end, hard=hard):
        return None
    told = _drop_unfinished_reply(state.view) if whole else _view_until(state, end)
    return _limit_summary_request(state, make_summary_request(state, told), end)


def _limit_summary_request(state: State, request: Request, end: int) -> SummaryRequest:
    room = min(request.max_tokens or REPLY_TOKENS_MAX, _reply_tokens(state))
    through = state.transcript.messages[end - 1].id
    return SummaryRequest(request=limit_output(request, room), summarized_until=through)


def _is_worth_summarizing(state: State, end: int, *, hard: bool) -> bool:
    """Whether so many messages of the transcript are worth a summary."""
    messages = state.transcript.messages
    if end <= state.summarized_count:
        return False
    prompts = (drop_chunks(state, each) for each in messages[:end] if each.id in state.prompt_ids)
    said = sum(message_weight(state, each) for each in prompts)
    old = sum(message_weight(state, message) for message in _view_until(state, end))
    gain = scale_to_tokens(
        state, old - said, view_weight(state, state.view)
    ) - TOKENS_PER_WORD * summary_words_max(state)
    return gain >= (window_share(state, GAIN_SHARE_MIN) if not hard else 1)


def _view_until(state: State, end: int) -> tuple[Message, ...]:
    """What of the view stands for so many messages of the transcript."""
    return state.view[: end - state.summarized_count + bool(state.summarized_count)]


def _can_fit(state: State, view: tuple[Message, ...]) -> bool:
    """Whether this much of the view can be sent with room for a summary."""
    tokens = scale_to_tokens(state, view_weight(state, view), view_weight(state, state.view))
    return tokens + _reply_tokens(state) <= window_tokens(state)


def _drop_unfinished_reply(view: tuple[Message, ...]) -> tuple[Message, ...]:
    """Without a reply that the model has not ended yet: nothing may be said behind that."""
    return view[:-1] if view[-1].role == "assistant" else view


def _reply_tokens(state: State) -> int:
    """For the summary and the thinking before it, which is as much as ever: less would be another prompt."""
    thinking = state.settings.thinking
    return _summary_tokens(state) + ((thinking.budget_tokens or 0) if thinking is not None else 0)


def _summary_tokens(state: State) -> int:
    window = min(window_tokens(state), model_window_tokens(state, summarizer_model(state)))
    return max(1, min(REPLY_TOKENS_MAX, int(window * SUMMARY_SHARE)))


def _can_send_whole_view(state: State) -> bool:
    """Whether the whole view can be sent with the question for a summary behind it."""
    squeeze, other = state.run.compaction, summarizer_model(state)
    if squeeze.overflow or squeeze.split_count:
        return False
    own = other.model_key == state.settings.model.model_key
    window = window_tokens(state) if own else model_window_tokens(state, other)
    return estimated_tokens(state) + estimate_text_tokens(SUMMARY_ASK) + _reply_tokens(state) <= window


def _piece_end(state: State) -> int:
    """How far the first turns go that can be summarised at one go."""
    messages, whole = state.transcript.messages, view_weight(state, state.view)
    window = min(window_tokens(state), model_window_tokens(state, summarizer_model(state)))
    room = int(window * PIECE_SHARE) >> state.run.compaction.split_count
    taken = view_weight(state, state.view[:1]) if state.summarized_count else view_weight(state, ())
    end = state.summarized_count
    for at in range(state.summarized_count, len(messages)):
        taken += message_weight(state, state.view[at - state.summarized_count + bool(state.summarized_count)])
        if scale_to_tokens(state, taken, whole) > room:
            break
        if at + 1 == len(messages) or messages[at + 1].role != "tool":
            end = at + 1
    return end


def _skip_back_over_prompts(state: State, end: int) -> int:
    """Not right behind a prompt: asked for a summary there, a model answers the prompt."""
    messages = state.transcript.messages
    while end > state.summarized_count and messages[end - 1].id in state.prompt_ids:
        end -= 1
    return end


def _place_summary(state: State) -> Compacted:
    """The summary in its place, and as much more as is still needed."""
    squeeze, messages = state.run.compaction, state.transcript.messages
    end = next(at + 1 for at, message in enumerate(messages) if message.id == squeeze.summary_until)
    words = (squeeze.summary_text or summary_view.native_summary_text(squeeze.native_parts))[
        : _summary_tokens(state) * CHARACTERS_PER_TOKEN
    ]
    event = Compacted(
        strategies=("turns",),
        why=_explain_compaction(state),
        summarized_until=squeeze.summary_until,
        prompt_ids=tuple(message.id for message in messages[:end] if message.id in state.prompt_ids),
        lead=SUMMARY_LEAD,
        label=PROMPT_LABEL,
        # They are nobody's words, and the summary has what came of them.
        changes=tuple(find_old_chunks(state, end)),
        summary=SUMMARY_HEADING + words if words else "",
        native_parts=squeeze.native_parts,
        native_origin=squeeze.native_origin,
        before_tokens=estimated_tokens(state),
    )
    # What stands behind it stays as it is: it is taken for what followed the turns, or its reasoning is not.
    return _measure_event(state, event) if squeeze.native_parts else _shrink_view(state, event)
