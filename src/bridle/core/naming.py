"""What an agent is called where its sessions are added up, and what its prompts are kept under.

An agent that was given no name has one made of what it is for: its instructions and the names of its
tools.  So it is the same in every process and in logs that were written before agents had names, and a
better description of a tool does not make it another agent; other instructions do.
"""

from functools import lru_cache
from hashlib import blake2b

from ..values.settings import Settings

DIGEST_BYTES = 4
SEPARATOR = "\x00"


def agent_name(settings: Settings) -> str:
    if settings.name:
        return settings.name
    return _made_of(settings.instructions, tuple(spec.name for spec in settings.every_tool))


@lru_cache(maxsize=64)
def _made_of(instructions: str, tools: tuple[str, ...]) -> str:
    words = SEPARATOR.join((instructions, *tools)).encode("utf-8", "surrogatepass")
    return f"agent-{blake2b(words, digest_size=DIGEST_BYTES).hexdigest()}"
