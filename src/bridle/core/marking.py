"""Where a prompt is marked to be kept, and for how long: the one owner of cache marks.

A provider that keeps prompts at marks looks a mark up by looking back over a few blocks from it.  So
three places matter, in this order of worth:

    end      where this request ends: the next one reads up to here
    before   where the request before ended, when more blocks came since than a mark looks back over;
             without it a turn of sixty blocks loses the whole conversation, once a turn
    fixed    behind tools and system: what other sessions of the same agent read

A mark is no part of what a provider compares, so it may move; the blocks it stands on may not.  A
message is marked on its last block that can carry a mark, and one that has none is passed over: blank
words and reasoning are refused.  All marks of a request last equally long, which is the one order of
lifetimes that every provider takes.
"""

from itertools import pairwise

from ..values.message import Message
from ..values.parts import Media, Opaque, Part, Text, ToolCall, ToolResult
from ..values.request import Mark, ToolSpec, Ttl
from ..values.settings import Settings

LOOKBACK_BLOCKS = 20
"""How far a mark is looked back from, itself included."""
BLOCKS_UNMARKED_MAX = 12
"""How many may come before the earlier end is marked too; a wire may write more blocks than we have parts."""
SHORT_SECONDS, LONG_SECONDS = 300, 3_600
SECONDS: dict[Ttl, float] = {"5m": SHORT_SECONDS, "1h": LONG_SECONDS}
MESSAGES_LOOKED_AT = 32
"""Pauses that are longer ago say nothing about the next one."""


def marks_of(settings: Settings, tools: tuple[ToolSpec, ...], view: tuple[Message, ...]) -> tuple[Mark, ...]:
    """The marks of the next request, in the order of the prompt."""
    abilities = settings.model.abilities
    if not abilities.cache_marks:
        return ()
    ttl = lifetime(settings, view)
    wanted = [_end(view, ttl, automatic=abilities.automatic_cache), _before(view, ttl)]
    if settings.instructions:
        wanted.append(Mark(place="system", ttl=ttl))
    elif tools:
        wanted.append(Mark(place="tools", ttl=ttl))
    chosen = [mark for mark in wanted if mark is not None][: abilities.cache_marks]
    return tuple(reversed(chosen))


def lifetime(settings: Settings, view: tuple[Message, ...]) -> Ttl:
    """As the settings say; else an hour as soon as there was a pause that five minutes do not outlast.

    A pause longer than the hour counts for nothing: then the dearer mark would be paid for in vain.
    """
    if settings.cache_ttl != "auto":
        return settings.cache_ttl
    times = [message.at for message in view[-MESSAGES_LOOKED_AT:]]
    pauses = (later - earlier for earlier, later in pairwise(times))
    return "1h" if any(SHORT_SECONDS < pause <= LONG_SECONDS for pause in pauses) else "5m"


def kept_seconds(settings: Settings, view: tuple[Message, ...], marks: tuple[Mark, ...]) -> float:
    """How long the end of a request that was sent with these marks is kept."""
    if marks:
        return SECONDS[marks[-1].ttl]
    abilities = settings.model.abilities
    return SECONDS[lifetime(settings, view)] if abilities.cache == "marks" else abilities.cache_seconds


def long_marks(settings: Settings, view: tuple[Message, ...]) -> bool:
    """Whether the next request may ask for its prompt to be kept for an hour, which is dearer."""
    if any('"1h"' in extra.json for extra in settings.extras):
        return True
    return bool(settings.model.abilities.cache_marks) and lifetime(settings, view) == "1h"


def last_end(view: tuple[Message, ...]) -> int:
    """The number of the message that the request before ended with; -1 when there was none."""
    for at in range(len(view) - 1, -1, -1):
        if view[at].role == "assistant":
            return at - 1
    return -1


def blocks_since(view: tuple[Message, ...], at: int) -> int:
    """How many blocks stand behind this message."""
    return sum(len(message.parts) for message in view[at + 1 :])


def _end(view: tuple[Message, ...], ttl: Ttl, *, automatic: bool) -> Mark | None:
    if automatic:
        return Mark(place="end", ttl=ttl)
    at = _markable(view, len(view) - 1)
    return Mark(place="message", message=at, ttl=ttl) if at >= 0 else None


def _before(view: tuple[Message, ...], ttl: Ttl) -> Mark | None:
    at = _markable(view, last_end(view))
    if at < 0 or blocks_since(view, at) <= BLOCKS_UNMARKED_MAX:
        return None
    return Mark(place="message", message=at, ttl=ttl)


def _markable(view: tuple[Message, ...], at: int) -> int:
    """This message, or the nearest one before it that can carry a mark; -1 when there is none."""
    while at >= 0 and not any(map(_carries, view[at].parts)):
        at -= 1
    return at


def _carries(part: Part) -> bool:
    match part:
        case Text(text=text):
            return bool(text.strip())
        case Media() | ToolCall() | ToolResult():
            return True
        case Opaque(kind=kind):
            return kind == "compaction"
    return False
