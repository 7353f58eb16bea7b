"""When notes may be written, loaded, and things looked up: these lines of the table of transitions.

Notes are facts of their own and may come at any time; a line of records may hold nothing else.  What they
do to a prompt, and what is looked up for one, happens only while a question to the model is being made.
"""

from collections.abc import Callable
from typing import Any

from ..values.memory import MemoryLoaded, NoteRemoved, NoteWritten
from ..values.retrieval import ContextGathered
from .gathering import context_gathered
from .memory import memory_loaded, note_removed, note_written
from .state import Phase, State

REMEMBERED: dict[tuple[Phase, type], Callable[[State, Any, float, str], State]] = {
    (Phase.ASKING, MemoryLoaded): memory_loaded,
    (Phase.JUDGING, MemoryLoaded): memory_loaded,
    (Phase.ASKING, ContextGathered): context_gathered,
    **{(phase, NoteWritten): note_written for phase in Phase},
    **{(phase, NoteRemoved): note_removed for phase in Phase},
}
