"""Adding a message to a session, and what that does to everything folded from messages.

`added` puts a message at the end of the transcript and of the view.  `said` is for
messages of ours, which no provider has counted yet: it also grows the estimate of the
next prompt, on the dear side, so that a budget errs by stopping early.
"""

from typing import TypeVar

from msgspec.structs import replace

from ..values.message import Message, Reply
from ..values.parts import Media, Part, Reasoning, Text, ToolCall, ToolResult
from ..values.request import ToolSpec
from .fitting import unfit_in
from .handoff import pictures_in
from .state import State

T = TypeVar("T", bound=Part)

_ALIASES = {"image/jpg": "image/jpeg", "image/pjpeg": "image/jpeg", "image/x-png": "image/png"}
PICTURE_TOKENS = 5_000
"""What the largest picture a model looks at costs."""
MESSAGE_TOKENS = 16
"""What goes around a message: who speaks, where it begins and ends."""
IMPLAUSIBLE_TIMES = 2
LETTERS = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ "
LETTERS_PER_TOKEN = 2
"""Words have four; names and codes have two.  Digits, signs and other scripts are counted one a byte."""


def added(state: State, message: Message) -> State:
    bare = not any(isinstance(part, Media | ToolResult) for part in message.parts)
    home = state.settings.model.endpoint.home
    transcript = state.transcript.adding(message if bare else _told_fully(message, home))
    placed = transcript.messages[-1]
    if bare:
        return replace(state, transcript=transcript, view=(*state.view, placed))
    return replace(
        state,
        transcript=transcript,
        view=(*state.view, placed),
        pictures=state.pictures + pictures_in(placed),
        unfit=(*state.unfit, *unfit_in(placed, state.settings.model)),
    )


def _told_fully(message: Message, home: str) -> Message:
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
            home=part.home or (holder if part.file_id else ""),
            media_type=_ALIASES.get(part.media_type.lower(), part.media_type),
        )

    return replace(message, parts=tuple(map(told, message.parts)))


def said(state: State, message: Message) -> State:
    estimate = (state.prompt_tokens or overhead(state)) + parts_tokens(message.parts) + MESSAGE_TOKENS
    return replace(added(state, message), prompt_tokens=estimate)


def prompted(state: State, message: Message) -> State:
    """What a person said: it is kept word for word, however long the conversation becomes."""
    after = said(state, message)
    return replace(after, prompts=(*after.prompts, after.transcript.messages[-1].id))


def doubt_usage(state: State, reply: Reply) -> str:
    """Why the usage of a reply cannot be true, in words; empty when it may be.

    More than the model can read and write, where our own estimate, which is high, says far less.
    """
    limits, total = state.settings.model.abilities, reply.usage.total
    most = limits.prompt_tokens_max + (limits.output_tokens or 0)
    if not limits.prompt_tokens_max or total <= most:
        return ""
    estimate = (state.prompt_tokens or overhead(state)) + parts_tokens(reply.parts)
    if total <= IMPLAUSIBLE_TIMES * estimate:
        return ""
    return (
        f"{state.settings.model.name} counted {total:,} tokens where it can read and write {most:,}"
        f" and about {estimate:,} were sent and said; the window is reckoned by our estimate"
    )


def counted(state: State, reply: Reply, *, doubted: bool = False) -> dict[str, int]:
    """The estimate after a reply: as its provider counted, and by our own measure where it did not.

    `doubted`: the provider's count is not believed.
    """
    total = reply.usage.total
    if not total or doubted:
        return {"prompt_tokens": state.prompt_tokens + parts_tokens(reply.parts)}
    return {"prompt_tokens": total, "counted_tokens": total, "slack_tokens": 0}


def counts(part: Part) -> bool:
    """Whether a message with only this in it is one; reasoning that led to nothing is not."""
    if isinstance(part, Text):
        return bool(part.text.strip())
    return not isinstance(part, Reasoning)


def overhead(state: State) -> int:
    settings = state.settings
    texts = [
        settings.instructions,
        state.notebook.text,
        settings.output.parameters if settings.output else "",
    ]
    told = sum(text_tokens(text) for text in texts) + tools_tokens(settings.tools)
    shown = tuple(spec for spec in settings.hidden if spec.name in state.shown)
    return told + tools_tokens(shown) + MESSAGE_TOKENS


def tools_tokens(tools: tuple[ToolSpec, ...]) -> int:
    texts = [text for spec in tools for text in (spec.name, spec.description, spec.parameters)]
    return sum(map(text_tokens, texts))


def text_tokens(text: str) -> int:
    data = text.encode("utf-8", "replace")
    others = len(data.translate(None, LETTERS))
    return others + (len(data) - others) // LETTERS_PER_TOKEN + 1


def parts_tokens(parts: tuple[Part, ...]) -> int:
    total = 0
    for part in parts:
        if isinstance(part, Media):
            # A file is read as text, a picture is looked at: the one grows with its size.
            total += PICTURE_TOKENS if part.kind == "image" else max(PICTURE_TOKENS, len(part.data) // 2)
        elif isinstance(part, ToolResult):
            total += parts_tokens(part.parts)
        elif isinstance(part, ToolCall):
            total += text_tokens(part.name) + text_tokens(part.arguments)
        elif isinstance(part, Text | Reasoning):
            total += text_tokens(part.text)
    return total
