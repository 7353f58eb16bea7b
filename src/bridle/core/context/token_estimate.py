"""Adding a message to a session, and what that does to everything folded from messages.

`added` puts a message at the end of the transcript and of the view.  `said` is for
messages of ours, which no provider has counted yet: it also grows the estimate of the
next prompt, on the dear side, so that a budget errs by stopping early.
"""

from typing import TypeVar

from msgspec.structs import replace

from bridle.core.state import State
from bridle.values.errors import Failure
from bridle.values.message import Media, Message, Part, Reasoning, Reply, Text, ToolCall, ToolResult
from bridle.values.model import Model
from bridle.values.request import ToolSpec

from .media import find_unsupported_media
from .view import count_pictures

T = TypeVar("T", bound=Part)

_MEDIA_TYPE_ALIASES = {"image/jpg": "image/jpeg", "image/pjpeg": "image/jpeg", "image/x-png": "image/png"}
PICTURE_TOKENS = 5_000
"""What the largest picture a model looks at costs."""
MESSAGE_TOKENS = 16
"""What goes around a message: who speaks, where it begins and ends."""
IMPLAUSIBLE_TIMES = 2
LETTERS = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ "
LETTERS_PER_TOKEN = 2
"""Words have four; names and codes have two.  Digits, signs and other scripts are counted one a byte."""


def append_counted_message(state: State, message: Message) -> State:
    bare = not any(isinstance(part, Media | ToolResult) for part in message.parts)
    home = state.settings.model.endpoint.endpoint_id
    transcript = state.transcript.append(message if bare else _complete_media(message, home))
    placed = transcript.messages[-1]
    if bare:
        return replace(state, transcript=transcript, view=(*state.view, placed))
    return replace(
        state,
        transcript=transcript,
        view=(*state.view, placed),
        picture_count=state.picture_count + count_pictures(placed),
        unsupported_parts=(*state.unsupported_parts, *find_unsupported_media(placed, state.settings.model)),
    )


def _complete_media(message: Message, home: str) -> Message:
    """Files that only an id is known of are held by whom the conversation is with when they are named,
    and a type goes by the one name that everybody knows."""

    def told(part: T) -> T:
        if isinstance(part, ToolResult):
            return replace(part, parts=tuple(map(told, part.parts)))
        if not isinstance(part, Media):
            return part
        holder = message.origin.endpoint if message.origin else home
        return replace(
            part,
            endpoint_id=part.endpoint_id or (holder if part.file_id else ""),
            media_type=_MEDIA_TYPE_ALIASES.get(part.media_type.lower(), part.media_type),
        )

    return replace(message, parts=tuple(map(told, message.parts)))


def append_message(state: State, message: Message) -> State:
    estimate = (
        (state.prompt_tokens or estimate_overhead(state))
        + estimate_part_tokens(message.parts)
        + MESSAGE_TOKENS
    )
    return replace(append_counted_message(state, message), prompt_tokens=estimate)


def append_prompt(state: State, message: Message) -> State:
    """What a person said: it is kept word for word, however long the conversation becomes."""
    after = append_message(state, message)
    return replace(after, prompt_ids=(*after.prompt_ids, after.transcript.messages[-1].id))


def doubt_usage(state: State, reply: Reply) -> str:
    """Why the usage of a reply cannot be true, in words; empty when it may be.

    More than the model can read and write, where our own estimate, which is high, says far less.
    """
    limits, total = state.settings.model.abilities, reply.usage.total
    most = limits.prompt_tokens_max + (limits.output_tokens or 0)
    if not limits.prompt_tokens_max or total <= most:
        return ""
    estimate = (state.prompt_tokens or estimate_overhead(state)) + estimate_part_tokens(reply.parts)
    if total <= IMPLAUSIBLE_TIMES * estimate:
        return ""
    return (
        f"{state.settings.model.name} counted {total:,} tokens where it can read and write {most:,}"
        f" and about {estimate:,} were sent and said; the window is reckoned by our estimate"
    )


def estimate_after_reply(state: State, reply: Reply, *, doubted: bool = False) -> dict[str, int]:
    """The estimate after a reply: as its provider counted, and by our own measure where it did not.

    `doubted`: the provider's count is not believed.
    """
    total = reply.usage.total
    if not total or doubted:
        return {"prompt_tokens": state.prompt_tokens + estimate_part_tokens(reply.parts)}
    return {"prompt_tokens": total, "counted_tokens": total, "estimate_margin_tokens": 0}


def is_substantial(part: Part) -> bool:
    """Whether a message with only this in it is one; reasoning that led to nothing is not."""
    if isinstance(part, Text):
        return bool(part.text.strip())
    return not isinstance(part, Reasoning)


def estimate_overhead(state: State) -> int:
    settings = state.settings
    texts = [
        settings.instructions,
        state.memory.text,
        settings.output.parameters if settings.output else "",
    ]
    told = sum(estimate_text_tokens(text) for text in texts) + estimate_tool_tokens(settings.tools)
    shown = tuple(spec for spec in settings.hidden_tools if spec.name in state.revealed_tools)
    return told + estimate_tool_tokens(shown) + MESSAGE_TOKENS


def estimate_tool_tokens(tools: tuple[ToolSpec, ...]) -> int:
    texts = [text for spec in tools for text in (spec.name, spec.description, spec.parameters)]
    return sum(map(estimate_text_tokens, texts))


def estimate_text_tokens(text: str) -> int:
    data = text.encode("utf-8", "replace")
    others = len(data.translate(None, LETTERS))
    return others + (len(data) - others) // LETTERS_PER_TOKEN + 1


def estimate_part_tokens(parts: tuple[Part, ...]) -> int:
    total = 0
    for part in parts:
        if isinstance(part, Media):
            # A file is read as text, a picture is looked at: the one grows with its size.
            total += PICTURE_TOKENS if part.kind == "image" else max(PICTURE_TOKENS, len(part.data) // 2)
        elif isinstance(part, ToolResult):
            total += estimate_part_tokens(part.parts)
        elif isinstance(part, ToolCall):
            total += estimate_text_tokens(part.name) + estimate_text_tokens(part.arguments)
        elif isinstance(part, Text | Reasoning):
            total += estimate_text_tokens(part.text)
    return total


# The window that a session computes with: the model's own, or a smaller one that its server named.
#
# A server of one's own may be started with less than the model can read.  It says so when it refuses a prompt
# (`Failure.window_tokens`), and that holds for this model for the rest of the session.


WINDOW_TOKENS_MIN = 256
"""No server is run with less; a smaller number in a refusal is something else."""


def window_tokens(state: State) -> int:
    """The window of the model that is asked."""
    own = state.settings.window_tokens
    return _smaller_window(state, state.settings.model, own) if state.reported_windows else own


def model_window_tokens(state: State, model: Model) -> int:
    """The window of any model, for which no setting of the agent holds."""
    return _smaller_window(state, model, model.abilities.prompt_tokens_max)


def record_window(state: State, failure: Failure) -> tuple[tuple[str, int], ...]:
    """The windows named so far, with the one in this failure if it can be true."""
    named, own = failure.window_tokens, window_tokens(state)
    if failure.kind != "context" or named is None or not WINDOW_TOKENS_MIN <= named < own:
        return state.reported_windows
    seat = state.settings.model.model_key
    return (*(each for each in state.reported_windows if each[0] != seat), (seat, named))


def _smaller_window(state: State, model: Model, own: int) -> int:
    return min(own, dict(state.reported_windows).get(model.model_key, own))
