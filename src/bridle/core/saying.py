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

MEDIA_TOKENS = 1_600
BYTES_PER_TOKEN = 3
"""Fewer than most text has."""


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
    estimate = (state.prompt_tokens or _overhead(state)) + _tokens(message.parts)
    return replace(added(state, message), prompt_tokens=estimate)


def _overhead(state: State) -> int:
    settings = state.settings
    size = len(settings.instructions.encode("utf-8", "replace"))
    size += sum(len(spec.parameters) + len(spec.description) + len(spec.name) for spec in settings.tools)
    return size // BYTES_PER_TOKEN


def _tokens(parts: tuple[Part, ...]) -> int:
    total = 0
    for part in parts:
        if isinstance(part, Media):
            total += MEDIA_TOKENS
        elif isinstance(part, ToolResult):
            total += _tokens(part.parts)
        elif isinstance(part, Text):
            total += len(part.text.encode("utf-8", "replace")) // BYTES_PER_TOKEN + 1
    return total
