"""What the latest request had in front: references only, for the guard of the prefix (prefix.py)."""

from ..values.message import Message
from ..values.request import ToolChoice, ToolSpec
from ..values.settings import Settings
from ..values.value import Value


class Asked(Value):
    """What the latest request had in front, to be compared with the next one."""

    settings: Settings
    tools: tuple[ToolSpec, ...]
    shown: tuple[str, ...]
    view: tuple[Message, ...]
    cache_key: str
    memory: str
    changes: int
    """How many changes of the view there were."""
    choice: ToolChoice = ToolChoice()
