"""Where a prompt is marked to be kept, for how long, and under which key: the one owner of cache marks.

A provider that keeps prompts at marks looks a mark up by looking back a little from it.  So four
places matter, in this order of worth:

    end      where this request ends: the next one reads up to here
    before   where the request before ended, when more came since than is looked back over; without it
             a turn of sixty blocks loses the whole conversation, once a turn
    fixed    behind tools and system: what other sessions of the same agent read
    shared   the same without the notes, when there are any: what the sessions of other tenants read

A mark is no part of what a provider compares, so it may move; the blocks it stands on may not.  A
message is marked on its last block that can carry a mark, and one that has none is passed over: blank
words and reasoning are refused.  All marks of a request last equally long, which is the one order of
lifetimes that every provider takes.

How providers differ in that is the table `WAYS`.  Where a provider keeps everything and needs no marks,
there is one at the end when it is to be kept for longer than usual, and it says nothing else.
"""

from itertools import pairwise

from ..values.message import Message, Role
from ..values.model import Model, Ttl
from ..values.parts import Media, Opaque, Part, Text, ToolCall, ToolResult
from ..values.request import Mark, ToolSpec
from ..values.settings import Settings
from ..values.value import Value

LOOKBACK_BLOCKS = 20
"""How far a mark is looked back from, itself included."""
SECONDS: dict[Ttl, float] = {"5m": 300, "30m": 1_800, "1h": 3_600, "12h": 43_200, "24h": 86_400}
MESSAGES_LOOKED_AT = 32
"""Pauses that are longer ago say nothing about the next one."""


class Way(Value):
    """What can be marked where prompts are kept in one way."""

    roles: tuple[Role, ...]
    """Whose messages can carry a mark."""
    tools: bool
    """Whether the tools can, for want of a system prompt."""
    blocks_max: int = 0
    messages_max: int = 0
    """How much may come before the earlier end is marked too, in blocks or in messages of these roles."""


WAYS: dict[str, Way] = {
    # A wire may write more blocks than we have parts, so this is well below what is looked back over.
    "marks": Way(roles=("user", "tool", "assistant", "system"), tools=True, blocks_max=12),
    # Twenty earlier ends are looked up, whatever stands between them.
    "points": Way(roles=("user", "tool", "system"), tools=False, messages_max=15),
}
UNMARKED = ("prefix", "hits")
WRITES_BILLED = ("marks", "points")
"""Ways of keeping a prompt that cost something, and more for longer."""


def marks_of(
    settings: Settings, tools: tuple[ToolSpec, ...], view: tuple[Message, ...], *, remembers: bool = False
) -> tuple[Mark, ...]:
    """The marks of the next request, in the order of the prompt.  `remembers`: notes end its system."""
    abilities = settings.model.abilities
    if not abilities.cache_marks:
        return ()
    ttl = lifetime(settings, view)
    if abilities.cache in UNMARKED:
        return (Mark(place="end", ttl=ttl),) if ttl != abilities.cache_ttls[0] else ()
    way = WAYS.get(abilities.cache, WAYS["marks"])
    wanted = [_end(view, ttl, way, automatic=abilities.automatic_cache), _before(view, ttl, way)]
    if settings.instructions or remembers:
        wanted.append(Mark(place="system", ttl=ttl))
    if settings.instructions and remembers:
        wanted.append(Mark(place="system", block=0, ttl=ttl))
    elif tools and way.tools and not settings.instructions:
        wanted.append(Mark(place="tools", ttl=ttl))
    chosen = [mark for mark in wanted if mark is not None][: abilities.cache_marks]
    return tuple(reversed(chosen))


def lifetime(settings: Settings, view: tuple[Message, ...]) -> Ttl:
    """The shortest that is offered and long enough: for what the settings say, or for the pauses there were.

    A pause longer than all that is offered counts for nothing: then the dearer mark would be paid for in
    vain.  What nobody can price is never taken unasked, or a budget in dollars would be worth nothing.
    """
    offered = settings.model.abilities.cache_ttls or ("5m",)
    if settings.cache_ttl != "auto":
        least = SECONDS[settings.cache_ttl]
        return next((ttl for ttl in offered if SECONDS[ttl] >= least), offered[-1])
    usual, *longer = offered
    times = [message.at for message in view[-MESSAGES_LOOKED_AT:]]
    pauses = [later - earlier for earlier, later in pairwise(times)]
    for ttl in longer if _priced(settings.model) else ():
        if any(SECONDS[usual] < pause <= SECONDS[ttl] for pause in pauses):
            return ttl
    return usual


def kept_seconds(settings: Settings, view: tuple[Message, ...], marks: tuple[Mark, ...]) -> float:
    """How long the end of a request that was sent with these marks is kept."""
    if marks:
        return SECONDS[marks[-1].ttl]
    abilities = settings.model.abilities
    return SECONDS[lifetime(settings, view)] if abilities.cache == "marks" else abilities.cache_seconds


def long_marks(settings: Settings, view: tuple[Message, ...]) -> bool:
    """Whether the next request may ask for its prompt to be kept for longer than usual, which is dearer."""
    abilities = settings.model.abilities
    if any(f'"{ttl}"' in extra.json for ttl in abilities.cache_ttls[1:] for extra in settings.extras):
        return True
    usual = abilities.cache in UNMARKED or lifetime(settings, view) == abilities.cache_ttls[0]
    return bool(abilities.cache_marks) and not usual


def last_end(view: tuple[Message, ...]) -> int:
    """The number of the message that the request before ended with; -1 when there was none."""
    for at in range(len(view) - 1, -1, -1):
        if view[at].role == "assistant":
            return at - 1
    return -1


def _priced(model: Model) -> bool:
    """Whether it is known what longer life costs; of a model without any price nothing is."""
    if model.price is None or model.abilities.cache not in WRITES_BILLED:
        return True
    return all(tier.cache_write_1h is not None for tier in model.price.tiers)


def _end(view: tuple[Message, ...], ttl: Ttl, way: Way, *, automatic: bool) -> Mark | None:
    if automatic:
        return Mark(place="end", ttl=ttl)
    at = _markable(view, len(view) - 1, way)
    return Mark(place="message", message=at, ttl=ttl) if at >= 0 else None


def _before(view: tuple[Message, ...], ttl: Ttl, way: Way) -> Mark | None:
    at = _markable(view, last_end(view), way)
    if at < 0 or not _far(view, at, way):
        return None
    return Mark(place="message", message=at, ttl=ttl)


def _far(view: tuple[Message, ...], at: int, way: Way) -> bool:
    since = view[at + 1 :]
    if way.messages_max:
        return sum(message.role in way.roles for message in since) > way.messages_max
    return sum(len(message.parts) for message in since) > way.blocks_max


def _markable(view: tuple[Message, ...], at: int, way: Way) -> int:
    """This message, or the nearest one before it that can carry a mark; -1 when there is none."""
    while at >= 0 and not (view[at].role in way.roles and any(map(_carries, view[at].parts))):
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
