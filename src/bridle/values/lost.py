"""What cannot be read in a log, as events: it is said once, and never guessed at."""

from .quiet import Quiet


class Repaired(Quiet, tag="repaired"):
    """The log could not be read as it is; what was put right in reading it, written down once."""

    items: tuple[str, ...]
    """What, one sentence each, with the numbers of the records."""
    lost: bool = False
    """Records are gone: nobody knows what was done in them."""


class Unknown(Quiet, tag="unknown"):
    """What this version cannot read, because a newer one wrote it.  Its bytes are on its record."""

    kind: str = ""
    """What it calls itself."""
