"""What is looked up for one turn and stands beside its words: chunks found for them, and facts of the hour.

Both are asked for once a turn, outside the core, and written down; from then on they are part of what was
said, and never change.  They stand with the turn's own message, behind everything that sessions share.
"""

from .quiet import Quiet
from .value import Value

RETRIEVE_SECONDS_DEFAULT = 10.0
CHUNKS_CHARACTERS_DEFAULT = 20_000
FACTS_CHARACTERS_MAX = 4_000
"""Facts are a time, a place, an id; what is longer is something to retrieve."""


class Chunk(Value):
    """A piece of text that was found; `source` says where, for whoever checks an answer."""

    text: str
    id: str = ""
    source: str = ""


class Query(Value):
    """What is looked for, and on whose behalf."""

    text: str
    session: str = ""
    tenant: str = ""
    caller: str = ""


class Gathering(Value):
    """That something is looked up for every turn, and how much of it is taken."""

    characters_max: int = CHUNKS_CHARACTERS_DEFAULT
    required: bool = False
    """Whether a turn ends when chunks could not be looked for, or goes on without."""


class ContextGathered(Quiet, tag="context_gathered"):
    """What was found for the prompt; nobody looks for it again."""

    chunks: tuple[Chunk, ...] = ()
    facts: tuple[tuple[str, str], ...] = ()
    left_out: int = 0
    """How many chunks there was no room for."""
    trouble: str = ""
    """What went wrong on the way."""
    failed: bool = False
    """Whether chunks were to be found and could not be looked for."""
