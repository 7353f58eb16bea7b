"""What a line of records adds up to in notes, what a session shows of them, and which of its prompts have
something beside them: values only (memory.py, gathering.py).
"""

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
    chunked: tuple[str, ...] = ()
    """Messages of people that begin with what was found for them."""
    stale: str = ""
    """Why it is to be loaded again before the next request."""
