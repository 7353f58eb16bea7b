"""What an agent is called where its sessions are added up, and what its prompts are kept under.

An agent that was given no name has one made of what it is for: its instructions and the names of its
tools.  So it is the same in every process and in logs that were written before agents had names, and a
better description of a tool does not make it another agent; other instructions do.

A provider that takes a key keeps prompts under different keys apart, and sends what has the same key and the
same beginning to the same machine until there is too much of it.  The key is the agent's: its sessions
share the prefix that they have in common, tools and instructions, whichever tenant they belong to.  What a
tenant alone has is read by nobody else, because a prompt is found only by its exact beginning.  With
`cache_by="tenant"` the key is the tenant's too, and tenants are accounted apart.  An agent so busy that calls
spill over to other machines can be cut into lots of sessions (`Settings.cache_shards`); each writes the
prefix for itself.  Only a digest goes out: who the tenants are is nobody else's business.
"""

import re
from functools import lru_cache
from hashlib import blake2b

from ..values.settings import Settings

DIGEST_BYTES = 4
SEPARATOR = "\x00"


KEY_LENGTH_MAX = 64
"""What the strictest provider takes."""
KEY_BYTES = 16
UNSPEAKABLE = re.compile(r"[^a-zA-Z0-9._-]+")


def agent_name(settings: Settings) -> str:
    if settings.name:
        return settings.name
    return _made_of(settings.instructions, settings.tool_names)


def cache_key(settings: Settings, tenant: str, session: str) -> str:
    """What the prompts of this session are kept under; empty where no key is taken."""
    if not settings.model.abilities.cache_key:
        return ""
    shard = 0
    if settings.cache_shards > 1:
        shard = int.from_bytes(_digest(session)) % settings.cache_shards
    return _key(agent_name(settings), tenant if settings.cache_by == "tenant" else "", shard)


@lru_cache(maxsize=64)
def _key(agent: str, tenant: str, shard: int) -> str:
    digest = _digest(SEPARATOR.join((agent, tenant, str(shard)))).hex()
    readable = UNSPEAKABLE.sub("-", agent)[: KEY_LENGTH_MAX - len(digest) - 1]
    return f"{readable}-{digest}"


def _digest(words: str) -> bytes:
    return blake2b(words.encode("utf-8", "surrogatepass"), digest_size=KEY_BYTES).digest()


@lru_cache(maxsize=64)
def _made_of(instructions: str, tools: tuple[str, ...]) -> str:
    words = SEPARATOR.join((instructions, *tools)).encode("utf-8", "surrogatepass")
    return f"agent-{blake2b(words, digest_size=DIGEST_BYTES).hexdigest()}"
