"""What belongs to one prompt besides its words: values only (memory.py, gathering.py)."""

from ..values.value import Value


class Turn(Value):
    words: str = ""
    """What the person said, without what was looked up for it."""
    proof: str = ""
    """The question to the model before it; as long as that is the latest, nothing was sent of this turn."""
    remembered: bool = False
    """Whether the notes were loaded since."""
    gathered: bool = False
    """Whether what stands beside the words was looked up."""
    trouble: str = ""
    """Why it could not be, where the turn may not go on without."""
