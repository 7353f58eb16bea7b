"""How much of a model's window a conversation takes, and what of it is whose.

What the provider counted last is the truth about everything up to there; nobody here has its tokenizer.
So weights (bytes, made into tokens on the dear side) are only ever compared with one another: a view of
half the weight takes half of what was counted.

    filled      the next prompt, by estimate; more than the window as soon as a provider has said so
    least       what it has at the very least: no run is ended for an estimate that may be twice the truth
    gate        from where on something is done about it
    limit       beyond which a prompt may not fit, with the least of a reply beside it
"""

from collections.abc import Iterable
from decimal import Decimal

from msgspec.structs import replace

from ..values.message import Message
from ..values.parts import Media, Opaque, Part, Reasoning, Text, ToolCall, ToolResult
from ..values.usage import MILLION
from .budget import REPLY_SHARE_LEAST, room
from .saying import MESSAGE_TOKENS, overhead, parts_tokens, text_tokens
from .state import State
from .window import window_tokens

DEAR_TIMES = 4
"""How much too high an estimate of ours can be: letters are counted two a token, and words may have eight."""
REPLY_SHARE = 0.2
"""Of the window: what is kept for the reply at most, when the gate is higher than that."""
CHARACTERS_PER_TOKEN = 4


def share(state: State, part: float) -> int:
    """So much of the window."""
    return int(part * window_tokens(state))


def filled(state: State) -> int:
    estimate = max(0, state.prompt_tokens - state.slack_tokens)
    return max(estimate, window_tokens(state) + 1) if state.run.squeeze.overflow else estimate


def least(state: State) -> int:
    if state.run.squeeze.overflow:
        return filled(state)
    counted = min(state.counted_tokens, filled(state))
    return counted + (filled(state) - counted) // DEAR_TIMES


def limit(state: State) -> int:
    return int(window_tokens(state) * (1 - REPLY_SHARE_LEAST))


def gate(state: State) -> int:
    """Where the share of the window is reached, or the reply would have to do with less than it may have."""
    wish, window = state.settings.compaction, window_tokens(state)
    reply = min(max(0, room(state)), int(window * REPLY_SHARE))
    return min(int(wish.at * window) if wish else window, window - reply)


def weight(state: State, view: Iterable[Message]) -> int:
    """Of a whole prompt with these messages in it."""
    return overhead(state) + sum(message_weight(state, message) for message in view)


def message_weight(state: State, message: Message) -> int:
    return MESSAGE_TOKENS + sum(_part_weight(state, part) for part in message.parts)


def scaled(state: State, part: int, whole: int) -> int:
    """What a part of the weight of the view is in tokens, by the measure of what was counted."""
    return -(-filled(state) * part // max(whole, 1))


def reweighed(state: State) -> State:
    """After something has left the view: what is left weighs no more than an estimate of it made anew.

    Else a hundred pictures that are not sent would end the run for want of room.
    """
    most = weight(state, state.view)
    if state.prompt_tokens <= most:
        return state
    fair = min(max(0, state.prompt_tokens - state.slack_tokens), most)
    return replace(state, prompt_tokens=most, slack_tokens=most - fair)


def price_anew(state: State, tokens: int) -> Decimal | None:
    """What it costs at most when so many tokens of a prompt are read anew."""
    model = state.settings.model
    rates = model.price.rates(tokens, state.now) if model.price is not None else None
    return max(rates.input, rates.cache_write) * tokens / MILLION if rates is not None else None


def _part_weight(state: State, part: Part) -> int:
    if state.run.squeeze.overflow == "too_large" and isinstance(part, Media):
        return len(part.data) // CHARACTERS_PER_TOKEN + 1  # it is bytes that were too many
    match part:
        case ToolCall(name=name, arguments=arguments):
            return text_tokens(name) + text_tokens(arguments)
        case ToolResult(parts=inside):
            return sum(_part_weight(state, each) for each in inside)
        case Reasoning(text=text, signature=signature):
            if state.settings.model.endpoint.reasoning == "strip":
                return 0
            return text_tokens(text) if text else len(signature) // CHARACTERS_PER_TOKEN
        case Opaque(native=native):
            return len(native) // CHARACTERS_PER_TOKEN
        case Text() | Media():
            return parts_tokens((part,))
