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

import re
from functools import lru_cache
from hashlib import blake2b
from itertools import pairwise

from bridle.values.base import Value
from bridle.values.message import Media, Message, Opaque, Part, Role, Text, ToolCall, ToolResult
from bridle.values.model import Model, Ttl
from bridle.values.request import Breakpoint, ToolSpec
from bridle.values.settings import Settings

LOOKBACK_BLOCKS = 20
"""How far a mark is looked back from, itself included."""
TTL_SECONDS: dict[Ttl, float] = {"5m": 300, "30m": 1_800, "1h": 3_600, "12h": 43_200, "24h": 86_400}
RECENT_MESSAGES_MAX = 32
"""Pauses that are longer ago say nothing about the next one."""


class BreakpointRules(Value):
    """What can be marked where prompts are kept in one way."""

    roles: tuple[Role, ...]
    """Whose messages can carry a mark."""
    tools: bool
    """Whether the tools can, for want of a system prompt."""
    blocks_max: int = 0
    messages_max: int = 0
    """How much may come before the earlier end is marked too, in blocks or in messages of these roles."""


BREAKPOINT_RULES: dict[str, BreakpointRules] = {
    # A wire may write more blocks than we have parts, so this is well below what is looked back over.
    "marks": BreakpointRules(roles=("user", "tool", "assistant", "system"), tools=True, blocks_max=12),
    # Twenty earlier ends are looked up, whatever stands between them.
    "points": BreakpointRules(roles=("user", "tool", "system"), tools=False, messages_max=15),
}
AUTOMATIC_CACHES = ("prefix", "hits")
WRITES_BILLED = ("marks", "points")
"""Ways of keeping a prompt that cost something, and more for longer."""


def place_breakpoints(
    settings: Settings, tools: tuple[ToolSpec, ...], view: tuple[Message, ...], *, remembers: bool = False
) -> tuple[Breakpoint, ...]:
    """The marks of the next request, in the order of the prompt.  `remembers`: notes end its system."""
    abilities = settings.model.abilities
    if not abilities.cache_marks:
        return ()
    ttl = choose_ttl(settings, view)
    if abilities.cache in AUTOMATIC_CACHES:
        return (Breakpoint(position="end", ttl=ttl),) if ttl != abilities.cache_ttls[0] else ()
    way = BREAKPOINT_RULES.get(abilities.cache, BREAKPOINT_RULES["marks"])
    wanted = [
        _end_breakpoint(view, ttl, way, automatic=abilities.automatic_cache),
        _previous_end_breakpoint(view, ttl, way),
    ]
    if settings.instructions or remembers:
        wanted.append(Breakpoint(position="system", ttl=ttl))
    if settings.instructions and remembers:
        wanted.append(Breakpoint(position="system", block=0, ttl=ttl))
    elif tools and way.tools and not settings.instructions:
        wanted.append(Breakpoint(position="tools", ttl=ttl))
    chosen = [mark for mark in wanted if mark is not None][: abilities.cache_marks]
    return tuple(reversed(chosen))


def choose_ttl(settings: Settings, view: tuple[Message, ...]) -> Ttl:
    """The shortest that is offered and long enough: for what the settings say, or for the pauses there were.

    A pause longer than all that is offered counts for nothing: then the dearer mark would be paid for in
    vain.  What nobody can price is never taken unasked, or a budget in dollars would be worth nothing.
    """
    offered = settings.model.abilities.cache_ttls or ("5m",)
    if settings.cache_ttl != "auto":
        least = TTL_SECONDS[settings.cache_ttl]
        return next((ttl for ttl in offered if TTL_SECONDS[ttl] >= least), offered[-1])
    usual, *longer = offered
    times = [message.at for message in view[-RECENT_MESSAGES_MAX:]]
    pauses = [later - earlier for earlier, later in pairwise(times)]
    for ttl in longer if _is_long_ttl_priced(settings.model) else ():
        if any(TTL_SECONDS[usual] < pause <= TTL_SECONDS[ttl] for pause in pauses):
            return ttl
    return usual


def ttl_seconds(settings: Settings, view: tuple[Message, ...], marks: tuple[Breakpoint, ...]) -> float:
    """How long the end of a request that was sent with these marks is kept."""
    if marks:
        return TTL_SECONDS[marks[-1].ttl]
    abilities = settings.model.abilities
    return TTL_SECONDS[choose_ttl(settings, view)] if abilities.cache == "marks" else abilities.cache_seconds


def can_use_long_ttl(settings: Settings, view: tuple[Message, ...]) -> bool:
    """Whether the next request may ask for its prompt to be kept for longer than usual, which is dearer."""
    abilities = settings.model.abilities
    if any(f'"{ttl}"' in extra.json for ttl in abilities.cache_ttls[1:] for extra in settings.extras):
        return True
    usual = abilities.cache in AUTOMATIC_CACHES or choose_ttl(settings, view) == abilities.cache_ttls[0]
    return bool(abilities.cache_marks) and not usual


def previous_end_index(view: tuple[Message, ...]) -> int:
    """The number of the message that the request before ended with; -1 when there was none."""
    for at in range(len(view) - 1, -1, -1):
        if view[at].role == "assistant":
            return at - 1
    return -1


def _is_long_ttl_priced(model: Model) -> bool:
    """Whether it is known what longer life costs; of a model without any price nothing is."""
    if model.price is None or model.abilities.cache not in WRITES_BILLED:
        return True
    return all(tier.cache_write_1h is not None for tier in model.price.tiers)


def _end_breakpoint(
    view: tuple[Message, ...], ttl: Ttl, way: BreakpointRules, *, automatic: bool
) -> Breakpoint | None:
    if automatic:
        return Breakpoint(position="end", ttl=ttl)
    at = _find_markable(view, len(view) - 1, way)
    return Breakpoint(position="message", message=at, ttl=ttl) if at >= 0 else None


def _previous_end_breakpoint(view: tuple[Message, ...], ttl: Ttl, way: BreakpointRules) -> Breakpoint | None:
    at = _find_markable(view, previous_end_index(view), way)
    if at < 0 or not _is_far_back(view, at, way):
        return None
    return Breakpoint(position="message", message=at, ttl=ttl)


def _is_far_back(view: tuple[Message, ...], at: int, way: BreakpointRules) -> bool:
    since = view[at + 1 :]
    if way.messages_max:
        return sum(message.role in way.roles for message in since) > way.messages_max
    return sum(len(message.parts) for message in since) > way.blocks_max


def _find_markable(view: tuple[Message, ...], at: int, way: BreakpointRules) -> int:
    """This message, or the nearest one before it that can carry a mark; -1 when there is none."""
    while at >= 0 and not (view[at].role in way.roles and any(map(_can_carry_breakpoint, view[at].parts))):
        at -= 1
    return at


def _can_carry_breakpoint(part: Part) -> bool:
    match part:
        case Text(text=text):
            return bool(text.strip())
        case Media() | ToolCall() | ToolResult():
            return True
        case Opaque(kind=kind):
            return kind == "compaction"
    return False


# What an agent is called where its sessions are added up, and what its prompts are kept under.
#
# An agent that was given no name has one made of what it is for: its instructions and the names of its
# tools.  So it is the same in every process and in logs that were written before agents had names, and a
# better description of a tool does not make it another agent; other instructions do.
#
# A provider that takes a key keeps prompts under different keys apart, and sends what has the same key and the
# same beginning to the same machine until there is too much of it.  The key is the agent's: its sessions
# share the prefix that they have in common, tools and instructions, whichever tenant they belong to.  What a
# tenant alone has is read by nobody else, because a prompt is found only by its exact beginning.  With
# `cache_by="tenant"` the key is the tenant's too, and tenants are accounted apart.  An agent so busy that calls
# spill over to other machines can be cut into lots of sessions (`Settings.cache_shards`); each writes the
# prefix for itself.  Only a digest goes out: who the tenants are is nobody else's business.


NAME_DIGEST_BYTES = 4
KEY_SEPARATOR = "\x00"


KEY_LENGTH_MAX = 64
"""What the strictest provider takes."""
KEY_BYTES = 16
KEY_FORBIDDEN = re.compile(r"[^a-zA-Z0-9._-]+")


def agent_name(settings: Settings) -> str:
    if settings.name:
        return settings.name
    return _derive_agent_name(settings.instructions, settings.tool_names)


def cache_key(settings: Settings, tenant: str, session: str) -> str:
    """What the prompts of this session are kept under; empty where no key is taken."""
    if not settings.model.abilities.cache_key:
        return ""
    shard = 0
    if settings.cache_shards > 1:
        shard = int.from_bytes(_digest_text(session)) % settings.cache_shards
    return _format_cache_key(agent_name(settings), tenant if settings.cache_by == "tenant" else "", shard)


@lru_cache(maxsize=64)
def _format_cache_key(agent: str, tenant: str, shard: int) -> str:
    digest = _digest_text(KEY_SEPARATOR.join((agent, tenant, str(shard)))).hex()
    readable = KEY_FORBIDDEN.sub("-", agent)[: KEY_LENGTH_MAX - len(digest) - 1]
    return f"{readable}-{digest}"


def _digest_text(words: str) -> bytes:
    return blake2b(words.encode("utf-8", "surrogatepass"), digest_size=KEY_BYTES).digest()


@lru_cache(maxsize=64)
def _derive_agent_name(instructions: str, tools: tuple[str, ...]) -> str:
    words = KEY_SEPARATOR.join((instructions, *tools)).encode("utf-8", "surrogatepass")
    return f"agent-{blake2b(words, digest_size=NAME_DIGEST_BYTES).hexdigest()}"
