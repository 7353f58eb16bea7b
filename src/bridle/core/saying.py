"""Adding a message to a session, and what that does to everything folded from messages.

`added` puts a message at the end of the transcript and of the view.  `said` is for
messages of ours, which no provider has counted yet: it also grows the estimate of the
next prompt, on the dear side, so that a budget errs by stopping early.
"""

from msgspec.structs import replace

from ..values.message import Message
from ..values.parts import Media, Part, Text, ToolResult
from .handoff import pictures_in, too_large_in
from .state import State

PICTURE_TOKENS = 5_000
"""What the largest picture a model looks at costs."""
MESSAGE_TOKENS = 16
"""What goes around a message: who speaks, where it begins and ends."""
LETTERS = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ "
LETTERS_PER_TOKEN = 2
"""Words have four; names and codes have two.  Digits, signs and other scripts are counted one a byte."""


def added(state: State, message: Message) -> State:
    transcript = state.transcript.adding(message)
    placed = transcript.messages[-1]
    if not any(isinstance(part, Media | ToolResult) for part in placed.parts):
        return replace(state, transcript=transcript, view=(*state.view, placed))
    image_max = state.settings.model.abilities.image_bytes_max
    return replace(
        state,
        transcript=transcript,
        view=(*state.view, placed),
        pictures=state.pictures + pictures_in(placed),
        too_large=(*state.too_large, *too_large_in(placed, image_max)),
    )


def said(state: State, message: Message) -> State:
    estimate = (state.prompt_tokens or _overhead(state)) + _tokens(message.parts) + MESSAGE_TOKENS
    return replace(added(state, message), prompt_tokens=estimate)


def _overhead(state: State) -> int:
    settings = state.settings
    texts = [settings.instructions, settings.output.parameters if settings.output else ""]
    for spec in settings.tools:
        texts += (spec.name, spec.description, spec.parameters)
    return sum(text_tokens(text) for text in texts) + MESSAGE_TOKENS


def text_tokens(text: str) -> int:
    data = text.encode("utf-8", "replace")
    others = len(data.translate(None, LETTERS))
    return others + (len(data) - others) // LETTERS_PER_TOKEN + 1


def _tokens(parts: tuple[Part, ...]) -> int:
    total = 0
    for part in parts:
        if isinstance(part, Media):
            # A file is read as text, a picture is looked at: the one grows with its size.
            total += PICTURE_TOKENS if part.kind == "image" else max(PICTURE_TOKENS, len(part.data) // 2)
        elif isinstance(part, ToolResult):
            total += _tokens(part.parts)
        elif isinstance(part, Text):
            total += text_tokens(part.text)
    return total
