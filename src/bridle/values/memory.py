"""Notes: what is to be known beyond one conversation, or throughout it.

The notes of a tenant are a line of records of their own (`notes_of`) in the same store, so that many
sessions can write them at a time; the notes of a session are in its own log.  Both are written by the
same two events.  What a session *shows* of them to a model is a third event: notes may change at any
time, a prompt must not.
"""

from typing import Literal

from .base import EventBase, Value

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
    text: str
    written_by: Writer = "code"


class NoteWritten(EventBase, tag="note_written"):
    note: Note
    key: str = ""
    """Of the call that wrote it, if a model did: a call that is repeated writes once."""
    session: str = ""
    """Where it was written, when that is another line than this one."""

    @property
    def unique_key(self) -> str | None:
        return f"note:{self.key or self.note.id}"


class NoteRemoved(EventBase, tag="note_removed"):
    id: str
    removed_by: Writer = "code"


class MemoryLoaded(EventBase, tag="memory_loaded"):
    """These notes stand in front of the conversation from here on, whatever becomes of them elsewhere."""

    notes: tuple[Note, ...]
    why: str
    tenant: str = ""
    omitted_count: int = 0
    """How many there were no room for: the oldest."""
    load_error: str = ""
    """Why some of them could not be read."""


def notes_log_name(tenant: str) -> str:
    """The name of the line that a tenant's notes are in."""
    return f"{NOTES_PREFIX}{tenant}"


# What is looked up for one turn and stands beside its words: chunks found for them, and facts of the hour.
#
# Both are asked for once a turn, outside the core, and written down; from then on they are part of what was
# said, and never change.  They stand with the turn's own message, behind everything that sessions share.


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


class RetrievalSettings(Value):
    """That something is looked up for every turn, and how much of it is taken."""

    characters_max: int = CHUNKS_CHARACTERS_DEFAULT
    required: bool = False
    """Whether a turn ends when chunks could not be looked for, or goes on without."""


class ContextRetrieved(EventBase, tag="context_gathered"):
    """What was found for the prompt; nobody looks for it again."""

    chunks: tuple[Chunk, ...] = ()
    facts: tuple[tuple[str, str], ...] = ()
    omitted_count: int = 0
    """How many chunks there was no room for."""
    load_error: str = ""
    """What went wrong on the way."""
    failed: bool = False
    """Whether chunks were to be found and could not be looked for."""
