"""Compaction strategies in the order they are tried, and the sizes they are measured by.

The provider's last token count is exact for everything up to there, but its tokenizer is not available. So
weights (bytes converted to tokens, rounded up) are only compared with each other: a view with half the weight
takes half of the counted tokens.

    estimated_tokens      size of the next prompt; over the window once a provider has rejected it
    minimum_tokens        lower bound; a run does not end because of an estimate that may be too high
    compaction_threshold  size at which compaction starts
    fit_limit_tokens      size above which a prompt may not fit with a minimal reply

Each strategy finds its changes in a state, as parts with replacement texts; plan.py decides when and how far
they are used. A summary, which only a model can write, has a row without a finder. The newest messages
(`tail_start`) are excluded, except for prompts that do not fit otherwise.
"""

from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal
from functools import partial
from typing import NamedTuple

from msgspec.structs import replace

from bridle.core.budget.limits import REPLY_SHARE_MIN, output_tokens_room
from bridle.core.context.excerpt import (
    LONG_CHARACTERS,
    OLD_PROMPT_CHARACTERS,
    READ_RESULT,
    VERBOSE_CHARACTERS,
    long_result_characters,
    old_prompt_characters,
    shorten_long_text,
    shorten_old_prompt,
    shorten_old_result,
)
from bridle.core.context.summary_view import list_kept_ids
from bridle.core.context.token_estimate import (
    MESSAGE_TOKENS,
    estimate_overhead,
    estimate_part_tokens,
    estimate_text_tokens,
    window_tokens,
)
from bridle.core.context.view import (
    drop_reasoning,
    find_pictures,
    list_compacted_parts,
    list_uncompacted_messages,
    part_ref,
)
from bridle.core.memory import find_old_chunks
from bridle.core.state import State
from bridle.values.events import ViewChange
from bridle.values.message import Media, Message, Opaque, Part, Reasoning, Text, ToolCall, ToolResult
from bridle.values.usage import MILLION

OVERESTIMATE_FACTOR = 4
"""Factor by which an estimate may be too high: it assumes two letters per token, and words may have eight."""
REPLY_SHARE_MAX = 0.2
"""Maximum share of the window kept free for the reply."""
CHARACTERS_PER_TOKEN = 4
GAIN_SHARE_MIN = 0.1
"""Share of the window that a change must save to be worth the cache miss; less if `at` and `to` are close."""
NEEDED_GAIN_SHARE_MIN = 0.02
"""Share of the window that a change must save if the prompt may not fit otherwise."""
PROMPT_LEVELS = (1, 2, 4, 8, 16)
"""Divisors of the length of earlier prompts, tried in order until the prompt reaches the target size."""


def window_share(state: State, part: float) -> int:
    """This share of the window in tokens."""
    return int(part * window_tokens(state))


def gain_tokens_min(state: State) -> int:
    """Tokens that a change must save."""
    options = state.settings.compaction
    assert options is not None
    return window_share(state, min(GAIN_SHARE_MIN, (options.at - options.to) / 2))


def needed_gain_tokens_min(state: State) -> int:
    """Tokens that a change must save if the prompt may not fit otherwise; any, if the provider rejected it.

    Less than the usual share if that makes a prompt fit which certainly does not.
    """
    if state.run.compaction.overflow.kind:
        return 1
    missing, usual = minimum_tokens(state) - window_tokens(state), window_share(state, NEEDED_GAIN_SHARE_MIN)
    return min(gain_tokens_min(state), usual, missing if missing > 0 else usual)


def estimated_tokens(state: State) -> int:
    estimate = max(0, state.estimate.prompt_tokens - state.estimate.margin_tokens)
    return max(estimate, window_tokens(state) + 1) if state.run.compaction.overflow.kind else estimate


def minimum_tokens(state: State) -> int:
    if state.run.compaction.overflow.kind:
        return estimated_tokens(state)
    counted = min(state.estimate.counted_tokens, estimated_tokens(state))
    least = counted + (estimated_tokens(state) - counted) // OVERESTIMATE_FACTOR
    # A provider's count may hold more than the prompt, such as the steps of a hosted tool.
    return min(least, view_weight(state, state.conversation.view)) if least > window_tokens(state) else least


def fit_limit_tokens(state: State) -> int:
    return int(window_tokens(state) * (1 - REPLY_SHARE_MIN))


def compaction_threshold(state: State) -> int:
    """Prompt size at which the configured share is reached or the reply would be restricted."""
    options, window = state.settings.compaction, window_tokens(state)
    reply = min(max(0, output_tokens_room(state)), int(window * REPLY_SHARE_MAX))
    return min(int(options.at * window) if options else window, window - reply)


def is_below_threshold(state: State, tokens: int) -> bool:
    """True if a prompt of this size needs no compaction."""
    options, window = state.settings.compaction, window_tokens(state)
    # Far below the threshold, which leaves at most `REPLY_SHARE_MAX` of the window to the reply, it need not be known.
    if options and tokens < window * options.at - 1 and tokens <= window * (1 - REPLY_SHARE_MAX):
        return True
    # defect: compacted-in-time
    return tokens <= compaction_threshold(state)


def view_weight(state: State, view: Iterable[Message]) -> int:
    """Weight of a whole prompt with these messages."""
    return estimate_overhead(state) + sum(message_weight(state, message) for message in view)


def message_weight(state: State, message: Message) -> int:
    return MESSAGE_TOKENS + sum(_part_weight(state, part) for part in message.parts)


def scale_to_tokens(state: State, part: int, whole: int) -> int:
    """Tokens of a part of the view's weight, in proportion to the estimated size."""
    return -(-estimated_tokens(state) * part // max(whole, 1))


def cap_estimate(state: State) -> State:
    """Lower the estimate after parts have left the view to at most a fresh estimate of the rest.

    Otherwise a hundred images that are no longer sent would end the run for lack of room.
    """
    fresh_estimate = view_weight(state, state.conversation.view)
    if state.estimate.prompt_tokens <= fresh_estimate:
        return state
    likely = min(max(0, state.estimate.prompt_tokens - state.estimate.margin_tokens), fresh_estimate)
    return replace(
        state,
        estimate=replace(state.estimate, prompt_tokens=fresh_estimate, margin_tokens=fresh_estimate - likely),
    )


def price_uncached_tokens(state: State, tokens: int) -> Decimal | None:
    """Maximum cost of processing this many prompt tokens again."""
    model = state.settings.model
    rates = model.price.rates(tokens, state.now) if model.price is not None else None
    return max(rates.input, rates.cache_write) * tokens / MILLION if rates is not None else None


def _part_weight(state: State, part: Part) -> int:
    if state.run.compaction.overflow.kind == "too_large" and isinstance(part, Media):
        return len(part.data) // CHARACTERS_PER_TOKEN + 1  # the limit concerned bytes, not tokens
    match part:
        case ToolCall(name=name, arguments=arguments):
            return estimate_text_tokens(name) + estimate_text_tokens(arguments)
        case ToolResult(parts=inside):
            return sum(_part_weight(state, each) for each in inside)
        case Reasoning(text=text, signature=signature):
            if state.settings.model.endpoint.reasoning == "strip":
                return 0
            return estimate_text_tokens(text) if text else len(signature) // CHARACTERS_PER_TOKEN
        case Opaque(native=native):
            return len(native) // CHARACTERS_PER_TOKEN
        case Text() | Media():
            return estimate_part_tokens((part,))


def tail_start(state: State) -> int:
    """First message of the transcript that is recent enough to stay unchanged.

    Never a message with results: the call they belong to stays with them.  Messages of a person to the running run
    stay until the model has answered them, with the results before them.
    """
    options, messages = state.settings.compaction, state.conversation.transcript.messages
    assert options is not None
    whole, room = view_weight(state, state.conversation.view), window_share(state, options.keep)
    start, taken, unanswered = len(messages), 0, _find_unanswered(state)
    for at in range(len(messages) - 1, state.conversation.summarized_count - 1, -1):
        taken += message_weight(state, messages[at])
        if at < unanswered and start < len(messages) and scale_to_tokens(state, taken, whole) > room:
            break
        if messages[at].role != "tool":
            start = at
    return start


def _find_unanswered(state: State) -> int:
    """First message of a turn that ends with steered messages; the length of the transcript if none does."""
    messages, prompt_ids = state.conversation.transcript.messages, state.conversation.prompt_ids
    first = len(messages)
    while first and messages[first - 1].provenance == "person" and messages[first - 1].id not in prompt_ids:
        first -= 1
    if first == len(messages):
        return first
    at = first
    while at and messages[at - 1].role == "tool":
        at -= 1
    return at - 1 if at < first else first


def _find_old_pictures(state: State) -> Iterator[ViewChange]:
    assert state.settings.compaction is not None
    pictures = tuple(find_pictures(state))
    kept = state.settings.compaction.pictures
    yield from pictures[: max(0, len(pictures) - kept)]


def _find_old_results(state: State) -> Iterator[ViewChange]:
    conversation = state.conversation
    readable, shortened = READ_RESULT in state.settings.hidden_tools, list_compacted_parts(conversation)
    old = conversation.transcript.messages[conversation.summarized_count : tail_start(state)]
    for message in list_uncompacted_messages(conversation, old):
        for at, inner, text in _list_texts(message):
            if inner >= 0 and len(text) > VERBOSE_CHARACTERS and (message.id, at, inner) not in shortened:
                words = shorten_old_result(text, state.calls.stored_results, readable=readable)
                yield ViewChange(message=message.id, part=at, inner=inner, text=words)


def _find_chunks_before_tail(state: State) -> Iterator[ViewChange]:
    yield from find_old_chunks(state, tail_start(state))


def _find_old_reasoning(state: State) -> Iterator[ViewChange]:
    """Reasoning of finished turns; within a turn, providers require it beside its calls."""
    conversation = state.conversation
    if state.settings.model.endpoint.reasoning not in ("signed", "may_echo") or not conversation.prompt_ids:
        return
    messages = conversation.transcript.messages
    end = next((at for at, each in enumerate(messages) if each.id == conversation.prompt_ids[-1]), 0)
    changes = tuple(
        drop_reasoning(state, messages[conversation.summarized_count : min(end, tail_start(state))])
    )
    if not all(change.strip_native for change in changes):
        yield from changes


def _find_long_texts(state: State) -> Iterator[ViewChange]:
    """Long texts everywhere, except in the latest prompt, in instructions for it and in replies to it."""
    conversation = state.conversation
    kept = list_kept_ids(conversation)
    unchanged = {*conversation.prompt_ids[-1:], *(place for place, _ in state.run.prompt.instructions)}
    is_earlier, window, shortened = True, window_tokens(state), list_compacted_parts(conversation)
    passed = list_uncompacted_messages(conversation, conversation.transcript.messages)
    for at_message, message in enumerate(passed):
        is_earlier = is_earlier and message.id not in conversation.prompt_ids[-1:]
        sent = at_message >= conversation.summarized_count or message.id in kept
        if not sent or message.id in unchanged or (message.role == "assistant" and not is_earlier):
            continue
        for at, inner, text in _list_texts(message):
            # A prompt that no window of this size has room for would end every later run.
            is_bounded = inner >= 0 or message.role == "assistant" or estimate_text_tokens(text) > window
            limit = long_result_characters(window) if is_bounded else LONG_CHARACTERS
            if len(text) > limit and (message.id, at, inner) not in shortened:
                yield ViewChange(
                    message=message.id, part=at, inner=inner, text=shorten_long_text(text, limit)
                )


def _find_earlier_prompts(state: State, divisor: int = 1) -> Iterator[ViewChange]:
    """Texts of user messages before the latest prompt, those shortened less before included."""
    assert state.settings.compaction is not None
    if not state.settings.compaction.shorten_prompts:
        return
    conversation, limit = state.conversation, old_prompt_characters(window_tokens(state)) // divisor
    kept = list_kept_ids(conversation)
    shown = {
        part_ref(change): change.text
        for event in conversation.view_changes
        if event.model_key in ("", state.settings.model.model_key)
        for change in event.changes
    }
    # guard: compacted-after-hooks
    passed = list_uncompacted_messages(conversation, conversation.transcript.messages)
    for at_message, message in enumerate(passed):
        if message.id in conversation.prompt_ids[-1:]:
            return
        sent = at_message >= conversation.summarized_count or message.id in kept
        if not sent or message.role != "user":
            continue
        for at, inner, text in _list_texts(message):
            shorter = shorten_old_prompt(text, limit)
            if len(text) > limit and len(shorter) < len(shown.get((message.id, at, inner), text)):
                yield ViewChange(message=message.id, part=at, inner=inner, text=shorter)


def suggest_shorter_prompts(state: State) -> str:
    """Advice to allow `shorten_prompts`, as part of a sentence; empty if it would not help."""
    options, prompts = state.settings.compaction, state.conversation.prompt_ids
    allowed = options is None or options.shorten_prompts or len(prompts) < 2
    return "" if allowed else ", or let earlier prompts be shortened (Compaction(shorten_prompts=True))"


def _list_texts(message: Message) -> Iterator[tuple[int, int, str]]:
    for at, part in enumerate(message.parts):
        inside: tuple[tuple[int, Part], ...] = ((-1, part),)
        if isinstance(part, ToolResult):
            inside = tuple(enumerate(part.parts))
        for inner, each in inside:
            if isinstance(each, Text):
                yield at, inner, each.text


class CompactionStrategy(NamedTuple):
    name: str
    effect: str
    keeps: str
    find_changes: Callable[[State], Iterator[ViewChange]] | None
    """Changes that the strategy makes; None if a model has to be asked."""
    last_resort: bool = False
    """Used only if the prompt does not fit otherwise."""
    shortens_again: bool = False
    """Replaces changes of the same parts by the strategies before it."""
    levels: tuple[Callable[[State], Iterator[ViewChange]], ...] = ()
    """Stronger forms of `find_changes`, used in order until the prompt reaches the target size."""


STRATEGIES: tuple[CompactionStrategy, ...] = (
    CompactionStrategy(
        "pictures",
        "old images from tools are replaced by one line",
        "the newest (`pictures`)",
        _find_old_pictures,
    ),
    CompactionStrategy(
        "results",
        f"old tool results of more than {VERBOSE_CHARACTERS:,} characters are reduced to beginning and end,"
        " with a handle to the complete text if the store has it",
        "the newest messages (`keep`)",
        _find_old_results,
    ),
    CompactionStrategy(
        "chunks",
        "context retrieved for earlier prompts is omitted",
        "context of the latest prompt and the newest messages (`keep`)",
        _find_chunks_before_tail,
    ),
    CompactionStrategy(
        "reasoning",
        "reasoning of earlier turns is omitted, if the provider allows it",
        "all of the current turn",
        _find_old_reasoning,
    ),
    CompactionStrategy(
        "texts",
        f"texts of more than {LONG_CHARACTERS:,} characters (in a small window: half a character per token of it, for"
        " tool results, replies, and prompts larger than the window) are reduced to beginning and end; only if the"
        " prompt does not fit otherwise",
        "the latest prompt, and the model's replies to it",
        _find_long_texts,
        last_resort=True,
    ),
    CompactionStrategy(
        "prompts",
        f"texts of earlier user messages of more than {OLD_PROMPT_CHARACTERS:,} characters (in a small window: one"
        " character per twenty tokens of it) are reduced to beginning and end, then to a half of that and so on, down"
        f" to a {('half', 'quarter', 'eighth', 'sixteenth')[len(PROMPT_LEVELS) - 2]}, until the target size is reached;"
        " only with `shorten_prompts=True` and if the prompt does not fit otherwise",
        "the latest prompt, and messages after it",
        _find_earlier_prompts,
        last_resort=True,
        shortens_again=True,
        levels=tuple(partial(_find_earlier_prompts, divisor=each) for each in PROMPT_LEVELS[1:]),
    ),
    CompactionStrategy(
        "turns",
        "old turns are replaced by a summary that a model writes",
        "user messages, and the newest messages (`keep`)",
        None,
    ),
)
