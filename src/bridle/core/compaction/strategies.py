"""How much of a model's window a conversation takes, and what of it is whose.

What the provider counted last is the truth about everything up to there; nobody here has its tokenizer.
So weights (bytes, made into tokens on the dear side) are only ever compared with one another: a view of
half the weight takes half of what was counted.

    filled      the next prompt, by estimate; more than the window as soon as a provider has said so
    least       what it has at the very least: no run is ended for an estimate that may be twice the truth
    gate        from where on something is done about it
    limit       beyond which a prompt may not fit, with the least of a reply beside it
"""

from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal
from typing import NamedTuple

from msgspec.structs import replace

from bridle.core.budget.limits import REPLY_SHARE_MIN, output_tokens_room
from bridle.core.context.excerpt import (
    LONG_CHARACTERS,
    READ_RESULT,
    VERBOSE_CHARACTERS,
    long_result_characters,
    shorten_long_text,
    shorten_old_result,
)
from bridle.core.context.token_estimate import (
    MESSAGE_TOKENS,
    estimate_overhead,
    estimate_part_tokens,
    estimate_text_tokens,
    window_tokens,
)
from bridle.core.context.view import drop_reasoning, find_pictures
from bridle.core.memory import find_old_chunks
from bridle.core.state import State
from bridle.values.events import ViewChange
from bridle.values.message import Media, Message, Opaque, Part, Reasoning, Text, ToolCall, ToolResult
from bridle.values.usage import MILLION

OVERESTIMATE_FACTOR = 4
"""How much too high an estimate of ours can be: letters are counted two a token, and words may have eight."""
REPLY_SHARE_MAX = 0.2
"""Of the window: what is kept for the reply at most, when the gate is higher than that."""
CHARACTERS_PER_TOKEN = 4


def window_share(state: State, part: float) -> int:
    """So much of the window."""
    return int(part * window_tokens(state))


def estimated_tokens(state: State) -> int:
    estimate = max(0, state.prompt_tokens - state.estimate_margin_tokens)
    return max(estimate, window_tokens(state) + 1) if state.run.compaction.overflow else estimate


def minimum_tokens(state: State) -> int:
    if state.run.compaction.overflow:
        return estimated_tokens(state)
    counted = min(state.counted_tokens, estimated_tokens(state))
    return counted + (estimated_tokens(state) - counted) // OVERESTIMATE_FACTOR


def fit_limit_tokens(state: State) -> int:
    return int(window_tokens(state) * (1 - REPLY_SHARE_MIN))


def compaction_threshold(state: State) -> int:
    """Where the share of the window is reached, or the reply would have to do with less than it may have."""
    wish, window = state.settings.compaction, window_tokens(state)
    reply = min(max(0, output_tokens_room(state)), int(window * REPLY_SHARE_MAX))
    return min(int(wish.at * window) if wish else window, window - reply)


def view_weight(state: State, view: Iterable[Message]) -> int:
    """Of a whole prompt with these messages in it."""
    return estimate_overhead(state) + sum(message_weight(state, message) for message in view)


def message_weight(state: State, message: Message) -> int:
    return MESSAGE_TOKENS + sum(_part_weight(state, part) for part in message.parts)


def scale_to_tokens(state: State, part: int, whole: int) -> int:
    """What a part of the weight of the view is in tokens, by the measure of what was counted."""
    return -(-estimated_tokens(state) * part // max(whole, 1))


def cap_estimate(state: State) -> State:
    """After something has left the view: what is left weighs no more than an estimate of it made anew.

    Else a hundred pictures that are not sent would end the run for want of room.
    """
    most = view_weight(state, state.view)
    if state.prompt_tokens <= most:
        return state
    fair = min(max(0, state.prompt_tokens - state.estimate_margin_tokens), most)
    return replace(state, prompt_tokens=most, estimate_margin_tokens=most - fair)


def price_uncached_tokens(state: State, tokens: int) -> Decimal | None:
    """What it costs at most when so many tokens of a prompt are read anew."""
    model = state.settings.model
    rates = model.price.rates(tokens, state.now) if model.price is not None else None
    return max(rates.input, rates.cache_write) * tokens / MILLION if rates is not None else None


def _part_weight(state: State, part: Part) -> int:
    if state.run.compaction.overflow == "too_large" and isinstance(part, Media):
        return len(part.data) // CHARACTERS_PER_TOKEN + 1  # it is bytes that were too many
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


# What of a conversation can be left out, and what of it stays: the strategies, in the order they are tried.
#
# `STRATEGIES` can be printed.  Each finds the changes it comes to in a state, as spots of what was said with
# the words that stand there instead; when and how far they are used is decided in compaction.py.  What only a
# model can make shorter has a row and no finder.
#
# The newest messages (`tail_start`) are out of reach, except for what does not fit otherwise.


def tail_start(state: State) -> int:
    """The first message of the transcript that is new enough to stay as it is.

    Never one with results: the call they belong to stays with them.
    """
    wish, messages = state.settings.compaction, state.transcript.messages
    assert wish is not None
    whole, room = view_weight(state, state.view), window_share(state, wish.keep)
    start, taken = len(messages), 0
    for at in range(len(messages) - 1, state.summarized_count - 1, -1):
        taken += message_weight(state, messages[at])
        if start < len(messages) and scale_to_tokens(state, taken, whole) > room:
            break
        if messages[at].role != "tool":
            start = at
    return start


def _find_old_pictures(state: State) -> Iterator[ViewChange]:
    assert state.settings.compaction is not None
    pictures = tuple(find_pictures(state))
    kept = state.settings.compaction.pictures
    yield from pictures[: max(0, len(pictures) - kept)]


def _find_old_results(state: State) -> Iterator[ViewChange]:
    readable = READ_RESULT in state.settings.hidden_tools
    for message in state.transcript.messages[state.summarized_count : tail_start(state)]:
        for at, inner, text in _list_texts(message):
            if (
                inner >= 0
                and len(text) > VERBOSE_CHARACTERS
                and (message.id, at, inner) not in state.changed_parts
            ):
                words = shorten_old_result(text, state.stored_results, readable=readable)
                yield ViewChange(message=message.id, part=at, inner=inner, text=words)


def _find_chunks_before_tail(state: State) -> Iterator[ViewChange]:
    yield from find_old_chunks(state, tail_start(state))


def _find_old_reasoning(state: State) -> Iterator[ViewChange]:
    """Of turns that are over: in the midst of one, providers want it back beside its calls."""
    if state.settings.model.endpoint.reasoning not in ("signed", "may_echo") or not state.prompt_ids:
        return
    messages = state.transcript.messages
    end = next((at for at, each in enumerate(messages) if each.id == state.prompt_ids[-1]), 0)
    changes = tuple(drop_reasoning(state, messages[state.summarized_count : min(end, tail_start(state))]))
    if not all(change.strip_native for change in changes):
        yield from changes


def _find_long_texts(state: State) -> Iterator[ViewChange]:
    """Everywhere, but in what was said last by a person and in what the model said."""
    for at_message, message in enumerate(state.transcript.messages):
        sent = at_message >= state.summarized_count or message.id in state.prompt_ids
        if not sent or message.role == "assistant" or message.id in state.prompt_ids[-1:]:
            continue
        for at, inner, text in _list_texts(message):
            most = long_result_characters(window_tokens(state)) if inner >= 0 else LONG_CHARACTERS
            if len(text) > most and (message.id, at, inner) not in state.changed_parts:
                yield ViewChange(message=message.id, part=at, inner=inner, text=shorten_long_text(text, most))


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
    """The changes it comes to; None for what a model has to be asked for."""
    last_resort: bool = False
    """Only for what does not fit otherwise."""


STRATEGIES: tuple[CompactionStrategy, ...] = (
    CompactionStrategy(
        "pictures", "old pictures from tools become a line", "the newest (`pictures`)", _find_old_pictures
    ),
    CompactionStrategy(
        "results",
        f"old tool results of more than {VERBOSE_CHARACTERS:,} characters become their beginning and end,"
        " with the handle of the whole where the store has it",
        "the newest messages (`keep`)",
        _find_old_results,
    ),
    CompactionStrategy(
        "chunks",
        "what was looked up for earlier prompts is left out",
        "what the latest prompt and the newest messages (`keep`) have beside them",
        _find_chunks_before_tail,
    ),
    CompactionStrategy(
        "reasoning",
        "reasoning of earlier turns is left out, where the provider allows that",
        "all of the current turn",
        _find_old_reasoning,
    ),
    CompactionStrategy(
        "texts",
        f"texts of more than {LONG_CHARACTERS:,} characters (tool results in a small window: half a character"
        " for each token of it) become their beginning and end; only when it does not fit otherwise",
        "the latest prompt, and what the model said",
        _find_long_texts,
        last_resort=True,
    ),
    CompactionStrategy(
        "turns",
        "old turns give way to a summary, which a model is asked for",
        "what people said, and the newest messages (`keep`)",
        None,
    ),
)
