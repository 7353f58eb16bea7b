"""Places cache breakpoints, and chooses their lifetime and the cache key.

A provider with breakpoints looks for cached prompts a limited distance back from each one. Four positions
matter, most valuable first:

    end      the end of this request: the next one reads up to here
    before   the end of the previous request, if more was added since than the lookback covers; without it a
             turn of sixty blocks loses the whole conversation
    fixed    after tools and system: read by other sessions of the same agent
    shared   the same without notes and written instructions, if there are any: read by all sessions

A breakpoint is not part of the compared prefix, so it may move; the blocks before it may not. A message is
marked on its last block that accepts a breakpoint (blank text and reasoning do not); messages without one are
skipped. All breakpoints of a request have the same lifetime, the only combination that every provider
accepts.

`BREAKPOINT_RULES` describes how providers differ. A provider that caches everything needs no breakpoints; one
at the end only requests a longer lifetime.

Cache keys: a provider with keys caches prompts separately per key, and routes requests with the same key and
prefix to the same machine up to a rate limit. The key belongs to the agent, so that its sessions share their
common prefix across tenants. A tenant's own content is not exposed, because a prompt is found only by its
exact prefix. With `cache_by="tenant"` the key includes the tenant. A busy agent can be split into shards
(`Settings.cache_shards`), each of which writes the prefix separately. Only a digest is sent, so tenant names
stay private.

An agent without a name gets one derived from its instructions and tool names. It is the same in every
process; a better tool description does not change it, other instructions do.
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
"""Blocks searched back from a breakpoint, its own included."""
TTL_SECONDS: dict[Ttl, float] = {"5m": 300, "30m": 1_800, "1h": 3_600, "12h": 43_200, "24h": 86_400}
# not from outside: our own records and queues
RECENT_MESSAGES_MAX = 32
"""Older pauses say nothing about the next one."""


class BreakpointRules(Value, kw_only=True):
    """Positions that accept breakpoints under one cache mode."""

    roles: tuple[Role, ...]
    """Roles whose messages accept a breakpoint."""
    tools: bool
    """True if the tools accept one, if there is no system prompt."""
    blocks_max: int = 0
    messages_max: int = 0
    """Number of blocks or messages of these roles after which the previous end gets a breakpoint too."""


BREAKPOINT_RULES: dict[str, BreakpointRules] = {
    # A wire may write more blocks than we have parts, so this is well below the lookback.
    "marks": BreakpointRules(roles=("user", "tool", "assistant", "system"), tools=True, blocks_max=12),
    # The provider looks up twenty earlier ends, whatever is between them.
    "points": BreakpointRules(roles=("user", "tool", "system"), tools=False, messages_max=15),
}
AUTOMATIC_CACHES = ("prefix", "hits")
WRITES_BILLED = ("marks", "points")
"""Cache modes in which writing costs money, and more for a longer lifetime."""


def place_breakpoints(
    settings: Settings, tools: tuple[ToolSpec, ...], view: tuple[Message, ...], *, remembers: bool = False
) -> tuple[Breakpoint, ...]:
    """Breakpoints of the next request, in prompt order. `remembers`: content of a tenant or session ends its
    system prompt."""
    abilities = settings.model.abilities
    # defect: cache-marks
    if not abilities.cache_marks:
        return ()
    ttl = choose_ttl(settings, view)
    if abilities.cache in AUTOMATIC_CACHES:
        return (Breakpoint(position="end", ttl=ttl),) if ttl != abilities.cache_ttls[0] else ()
    rules = BREAKPOINT_RULES.get(abilities.cache, BREAKPOINT_RULES["marks"])
    candidates = []
    if abilities.automatic_cache:
        # defect: end-breakpoint
        candidates.append(Breakpoint(position="end", ttl=ttl))
    elif (end := _find_markable(view, len(view) - 1, rules)) >= 0:
        candidates.append(Breakpoint(position="message", message=end, ttl=ttl))
    before = _find_markable(view, previous_end_index(view), rules)
    # defect: previous-end
    if before >= 0 and _is_far_back(view, before, rules):
        candidates.append(Breakpoint(position="message", message=before, ttl=ttl))
    # defect: instructions-breakpoint
    if settings.instructions or remembers:
        candidates.append(Breakpoint(position="system", ttl=ttl))
    if settings.instructions and remembers:
        candidates.append(Breakpoint(position="system", block=0, ttl=ttl))
    elif tools and rules.tools and not settings.instructions:
        candidates.append(Breakpoint(position="tools", ttl=ttl))
    return tuple(candidates[: abilities.cache_marks][::-1])


def choose_ttl(settings: Settings, view: tuple[Message, ...]) -> Ttl:
    """Shortest offered lifetime that suffices for the setting, or for the pauses so far.

    A pause longer than every lifetime does not count: the more expensive breakpoint would not help. A
    lifetime without a known price is used only on request; otherwise a dollar budget could not be enforced.
    """
    offered = settings.model.abilities.cache_ttls or ("5m",)
    # defect: cache-lifetime
    if settings.cache_ttl != "auto":
        wanted_seconds = TTL_SECONDS[settings.cache_ttl]
        return next((ttl for ttl in offered if TTL_SECONDS[ttl] >= wanted_seconds), offered[-1])
    default = offered[0]
    if len(offered) == 1:
        return default
    times = [message.at for message in view[-RECENT_MESSAGES_MAX:]]
    if not times:
        return default
    ordered = sorted(times)  # they usually are; then this is faster than min() and max()
    if ordered[-1] - ordered[0] <= TTL_SECONDS[default] or not _is_long_ttl_priced(settings.model):
        return default  # most conversations have no long pause
    pauses = [later - earlier for earlier, later in pairwise(times)]
    for ttl in offered[1:]:
        # defect: automatic-lifetime
        if any(TTL_SECONDS[default] < pause <= TTL_SECONDS[ttl] for pause in pauses):
            return ttl
    return default


def ttl_seconds(settings: Settings, view: tuple[Message, ...], marks: tuple[Breakpoint, ...]) -> float:
    """Time for which the end of a request with these breakpoints stays cached."""
    if marks:
        return TTL_SECONDS[marks[-1].ttl]
    abilities = settings.model.abilities
    return TTL_SECONDS[choose_ttl(settings, view)] if abilities.cache == "marks" else abilities.cache_seconds


def can_use_long_ttl(settings: Settings, view: tuple[Message, ...]) -> bool:
    """True if the next request may ask for a longer lifetime, which costs more."""
    abilities = settings.model.abilities
    if any(f'"{ttl}"' in extra.json for ttl in abilities.cache_ttls[1:] for extra in settings.extras):
        return True
    is_default = abilities.cache in AUTOMATIC_CACHES or choose_ttl(settings, view) == abilities.cache_ttls[0]
    return bool(abilities.cache_marks) and not is_default


def previous_end_index(view: tuple[Message, ...]) -> int:
    """Index of the last message of the previous request; -1 if there was none."""
    for at in range(len(view) - 1, -1, -1):
        if view[at].role == "assistant":
            return at - 1
    return -1


def _is_long_ttl_priced(model: Model) -> bool:
    """True if the price of a longer lifetime is known; also for models without any price."""
    if model.price is None or model.abilities.cache not in WRITES_BILLED:
        return True
    return all(tier.cache_write_1h is not None for tier in model.price.tiers)


def _is_far_back(view: tuple[Message, ...], at: int, rules: BreakpointRules) -> bool:
    count = 0
    for message in view[at + 1 :]:
        count += message.role in rules.roles if rules.messages_max else len(message.parts)
    return count > (rules.messages_max or rules.blocks_max)


def _find_markable(view: tuple[Message, ...], at: int, rules: BreakpointRules) -> int:
    """Index of this message or the nearest earlier one that accepts a breakpoint; -1 if there is none."""
    for place in range(at, -1, -1):
        if view[place].role in rules.roles:
            for part in view[place].parts:
                if _can_carry_breakpoint(part):
                    return place
    return -1


def _can_carry_breakpoint(part: Part) -> bool:
    if type(part) is Text:
        return bool(part.text.strip())
    if type(part) is Opaque:
        return part.kind == "compaction"
    return type(part) in (Media, ToolCall, ToolResult)


KEY_SEPARATOR = "\x00"


# not from outside: names and requests that we make
KEY_LENGTH_MAX = 64
"""Limit of the strictest provider."""
KEY_BYTES = 16
KEY_FORBIDDEN = re.compile(r"[^a-zA-Z0-9._-]+")


def agent_name(settings: Settings) -> str:
    return settings.name or settings.derived_name


def cache_key(settings: Settings, tenant: str, session: str) -> str:
    """Cache key for the prompts of this session; empty if the provider takes none."""
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


def _digest_text(text: str) -> bytes:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=KEY_BYTES).digest()
