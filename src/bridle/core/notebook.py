"""What a line of records adds up to in notes, and what a session shows of notes: values only (memory.py)."""

from ..values.memory import MemoryLoaded, Note
from ..values.value import Value


class Notebook(Value):
    notes: tuple[Note, ...] = ()
    """Those of this line that were written and not removed."""
    keys: tuple[str, ...] = ()
    """Of every note ever written here, in order: their count numbers the next one."""
    shown: MemoryLoaded | None = None
    """What stands in front of the conversation."""
    text: str = ""
    """That, in the words it is sent in."""
    stale: str = ""
    """Why it is to be loaded again before the next request."""
