"""Notes: what is to be known beyond one conversation, or throughout it.

The notes of a tenant are a line of records of their own (`notes_of`) in the same store, so that many
sessions can write them at a time; the notes of a session are in its own log.  Both are written by the
same two events.  What a session *shows* of them to a model is a third event: notes may change at any
time, a prompt must not.
"""

from typing import Literal

from .quiet import Quiet
from .value import Value

NOTES_PREFIX = "notes:"
"""What the names of tenants' notes begin with; no conversation may be called so."""
NOTE_CHARACTERS_MAX = 1_000
"""A note is a fact, not a document: what is longer belongs into retrieval."""
NOTES_CHARACTERS_DEFAULT = 8_000
"""Some three thousand tokens, in front of every prompt of every session."""

Refresh = Literal["session", "run"]
Writer = Literal["code", "model"]


class Memory(Value):
    """That an agent remembers, and how.

    `refresh` says when a session looks at the notes again: never after it began, or at the start of every
    run, which costs a prompt read anew whenever they have changed.  `tools` lets the model write and remove
    notes itself (`remember`, `forget`).
    """

    refresh: Refresh = "session"
    tools: bool = True
    characters_max: int = NOTES_CHARACTERS_DEFAULT
    """How much a tenant's notes may hold, and as much again a session's."""


class Note(Value):
    id: str
    """`t` and a number for a tenant's, `s` and a number for a session's."""
    words: str
    by: Writer = "code"


class NoteWritten(Quiet, tag="note_written"):
    note: Note
    key: str = ""
    """Of the call that wrote it, if a model did: a call that is repeated writes once."""
    session: str = ""
    """Where it was written, when that is another line than this one."""

    @property
    def once(self) -> str | None:
        return f"note:{self.key or self.note.id}"


class NoteRemoved(Quiet, tag="note_removed"):
    id: str
    by: Writer = "code"


class MemoryLoaded(Quiet, tag="memory_loaded"):
    """These notes stand in front of the conversation from here on, whatever becomes of them elsewhere."""

    notes: tuple[Note, ...]
    why: str
    tenant: str = ""
    left_out: int = 0
    """How many there were no room for: the oldest."""
    trouble: str = ""
    """Why some of them could not be read."""


def notes_of(tenant: str) -> str:
    """The name of the line that a tenant's notes are in."""
    return f"{NOTES_PREFIX}{tenant}"
