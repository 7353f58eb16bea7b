"""What of a conversation can be left out, and what of it stays: the strategies, in the order they are tried.

`STRATEGIES` can be printed.  Each finds the changes it comes to in a state, as spots of what was said with
the words that stand there instead; when and how far they are used is decided in compaction.py.  What only a
model can make shorter has a row and no finder.

The newest messages (`tail_start`) are out of reach, except for what does not fit otherwise.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from ..values.event import Change
from ..values.message import Message
from ..values.parts import Part, Text, ToolResult
from .excerpt import READ_RESULT
from .gathering import old_chunks
from .handoff import old_pictures, without_reasoning
from .shrinking import LONG_CHARACTERS, VERBOSE_CHARACTERS, long_result, long_text, verbose_text
from .state import State
from .weighing import message_weight, scaled, share, weight
from .window import window_tokens


def tail_start(state: State) -> int:
    """The first message of the transcript that is new enough to stay as it is.

    Never one with results: the call they belong to stays with them.
    """
    wish, messages = state.settings.compaction, state.transcript.messages
    assert wish is not None
    whole, room = weight(state, state.view), share(state, wish.keep)
    start, taken = len(messages), 0
    for at in range(len(messages) - 1, state.covered - 1, -1):
        taken += message_weight(state, messages[at])
        if start < len(messages) and scaled(state, taken, whole) > room:
            break
        if messages[at].role != "tool":
            start = at
    return start


def _old_pictures(state: State) -> Iterator[Change]:
    assert state.settings.compaction is not None
    pictures = tuple(old_pictures(state))
    kept = state.settings.compaction.pictures
    yield from pictures[: max(0, len(pictures) - kept)]


def _old_results(state: State) -> Iterator[Change]:
    readable = READ_RESULT in state.settings.hidden
    for message in state.transcript.messages[state.covered : tail_start(state)]:
        for at, inner, text in _texts(message):
            if inner >= 0 and len(text) > VERBOSE_CHARACTERS and (message.id, at, inner) not in state.changed:
                words = verbose_text(text, state.wholes, readable=readable)
                yield Change(message=message.id, part=at, inner=inner, words=words)


def _old_chunks(state: State) -> Iterator[Change]:
    yield from old_chunks(state, tail_start(state))


def _old_reasoning(state: State) -> Iterator[Change]:
    """Of turns that are over: in the midst of one, providers want it back beside its calls."""
    if state.settings.model.endpoint.reasoning not in ("signed", "may_echo") or not state.prompts:
        return
    messages = state.transcript.messages
    end = next((at for at, each in enumerate(messages) if each.id == state.prompts[-1]), 0)
    changes = tuple(without_reasoning(state, messages[state.covered : min(end, tail_start(state))]))
    if not all(change.plain for change in changes):
        yield from changes


def _long_texts(state: State) -> Iterator[Change]:
    """Everywhere, but in what was said last by a person and in what the model said."""
    for at_message, message in enumerate(state.transcript.messages):
        sent = at_message >= state.covered or message.id in state.prompts
        if not sent or message.role == "assistant" or message.id in state.prompts[-1:]:
            continue
        for at, inner, text in _texts(message):
            most = long_result(window_tokens(state)) if inner >= 0 else LONG_CHARACTERS
            if len(text) > most and (message.id, at, inner) not in state.changed:
                yield Change(message=message.id, part=at, inner=inner, words=long_text(text, most))


def _texts(message: Message) -> Iterator[tuple[int, int, str]]:
    for at, part in enumerate(message.parts):
        inside: tuple[tuple[int, Part], ...] = ((-1, part),)
        if isinstance(part, ToolResult):
            inside = tuple(enumerate(part.parts))
        for inner, each in inside:
            if isinstance(each, Text):
                yield at, inner, each.text


class Strategy(NamedTuple):
    name: str
    what: str
    stays: str
    find: Callable[[State], Iterator[Change]] | None
    """The changes it comes to; None for what a model has to be asked for."""
    hard: bool = False
    """Only for what does not fit otherwise."""


STRATEGIES: tuple[Strategy, ...] = (
    Strategy("pictures", "old pictures from tools become a line", "the newest (`pictures`)", _old_pictures),
    Strategy(
        "results",
        f"old tool results of more than {VERBOSE_CHARACTERS:,} characters become their beginning and end,"
        " with the handle of the whole where the store has it",
        "the newest messages (`keep`)",
        _old_results,
    ),
    Strategy(
        "chunks",
        "what was looked up for earlier prompts is left out",
        "what the latest prompt and the newest messages (`keep`) have beside them",
        _old_chunks,
    ),
    Strategy(
        "reasoning",
        "reasoning of earlier turns is left out, where the provider allows that",
        "all of the current turn",
        _old_reasoning,
    ),
    Strategy(
        "texts",
        f"texts of more than {LONG_CHARACTERS:,} characters (tool results in a small window: half a character"
        " for each token of it) become their beginning and end; only when it does not fit otherwise",
        "the latest prompt, and what the model said",
        _long_texts,
        hard=True,
    ),
    Strategy(
        "turns",
        "old turns give way to a summary, which a model is asked for",
        "what people said, and the newest messages (`keep`)",
        None,
    ),
)
