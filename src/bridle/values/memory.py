"""Memory notes, context retrieved for a turn, and instructions that functions of the agent write.

The notes of a tenant, and those of each of its callers, are logs of their own in the store (`notes_log_name` in
`run/memory/notes.py`), so that many sessions can write them concurrently; the notes of a session are in its own log.
All use the same two events. The notes *shown* to the model are a third event: notes may change at any time, the
prompt must not.

Retrieved chunks and facts are requested once per turn, outside the core, and recorded. From then on they are
part of the turn's message and never change; they stand after everything that sessions share, so that the
shared prefix stays cached.

Instructions that a function writes are recorded in the same way, once per session or once per turn.
"""

from typing import Literal, Self

from .base import EventBase, Value

NOTES_PREFIX = "notes:"
"""Prefix of the logs of tenants' notes; session ids must not start with it."""
CALLER_NOTES_PREFIX = "caller-notes:"
"""Prefix of the logs of callers' notes. Not a part of `notes:`, because a tenant may have any name."""
NOTE_CHARACTERS_MAX = 1_000
"""A note is a fact; longer texts belong in retrieval."""
NOTES_CHARACTERS_DEFAULT = 8_000
"""About three thousand tokens at the start of every prompt of every session."""

Refresh = Literal["session", "run"]
Writer = Literal["code", "model"]
NoteScope = Literal["caller", "tenant"]
"""Whose notes a run reads and writes: those of its caller, if it has one, or those of the whole tenant."""


class Memory(Value, kw_only=True):
    """Memory options of an agent.

    `refresh` selects when a session reloads the notes: never after its start, or at the start of every run,
    which is a cache miss whenever they changed. `tools` lets the model write and remove notes itself
    (`remember`, `forget`).

    With `scope="caller"`, a run for a caller writes notes of that caller, and is shown them, the session's own and
    those that code wrote for the tenant. With `scope="tenant"`, all callers of a tenant share its notes.
    """

    refresh: Refresh = "session"
    tools: bool = True
    characters_max: int = NOTES_CHARACTERS_DEFAULT
    """Maximum size of a tenant's notes and, separately, of a caller's and of a session's."""
    scope: NoteScope = "caller"
    handover: bool = False
    """Show the notes, without the tools, also to agents without `memory` that take the run over."""


class Note(Value, kw_only=True):
    id: str
    """`t` and a number for a tenant's note, `c` for a caller's, `s` for a session's."""
    text: str
    written_by: Writer = "code"


class NoteWritten(EventBase, kw_only=True, tag="note_written"):
    note: Note
    key: str = ""
    """Idempotency key of the call that wrote it, if a model did; a repeated call writes once."""
    session: str = ""
    """Session that wrote it, if this log is not that session's."""
    tenant: str = ""
    """Tenant of the caller; only with a caller."""
    caller: str = ""
    """Caller whose note it is, or whose run wrote this note of a tenant."""

    @property
    def unique_key(self) -> str | None:
        return f"note:{self.key or self.note.id}"


class NoteRemoved(EventBase, kw_only=True, tag="note_removed"):
    id: str
    removed_by: Writer = "code"


class MemoryLoaded(EventBase, kw_only=True, tag="memory_loaded"):
    """These notes precede the conversation from here on, even if they change elsewhere."""

    notes: tuple[Note, ...]
    why: str
    tenant: str = ""
    caller: str = ""
    """Caller whose notes these are as well; empty for a run without one, and with `Memory(scope="tenant")`."""
    withheld_count: int = 0
    """Number of the tenant's notes that a model wrote, and that a run for a caller is not shown."""
    omitted_count: int = 0
    """Number of notes left out for lack of space, the oldest first."""
    load_error: str = ""
    """Reason why some notes could not be read."""


RETRIEVE_SECONDS_DEFAULT = 10.0
CHUNKS_CHARACTERS_DEFAULT = 20_000
FACTS_CHARACTERS_MAX = 4_000
"""Facts are a time, a place, an id; longer texts belong in retrieval."""


class Chunk(Value, kw_only=True):
    """A retrieved piece of text; `source` is its origin, for checking answers."""

    text: str
    id: str = ""
    source: str = ""


class Query(Value, kw_only=True):
    """A retrieval query, and the identity on whose behalf it is made."""

    text: str
    session: str = ""
    tenant: str = ""
    caller: str = ""


class RetrievalSettings(Value, kw_only=True):
    """Retrieval options of an agent."""

    characters_max: int = CHUNKS_CHARACTERS_DEFAULT
    required: bool = False
    """If True, the run ends when retrieval fails; otherwise it continues without chunks."""


InstructionScope = Literal["session", "turn"]
"""`session`: written once, before the first request. `turn`: written once per prompt."""
# not from outside: time of a function of the user's program
INSTRUCTION_SECONDS_MAX = 10.0


class InstructionFunction(Value, kw_only=True):
    """A function of the agent that writes instructions."""

    name: str
    scope: InstructionScope = "session"


class TemplateVersion(Value, kw_only=True):
    """A prompt template that a text was made from."""

    name: str
    version: str
    """Hash of its text and variables."""


class FilledPrompt(str):
    """A text made from a template; it is a string like any other."""

    __slots__ = ("template",)
    template: TemplateVersion

    def __new__(cls, text: str, template: TemplateVersion) -> Self:
        filled = super().__new__(cls, text)
        filled.template = template
        return filled


class InstructionWritten(EventBase, kw_only=True, tag="instruction_written"):
    """A function of the agent wrote instructions; it is not called again for this session or turn."""

    name: str
    """Name of the function."""
    instructions: str = ""
    scope: InstructionScope = "session"
    templates: tuple[TemplateVersion, ...] = ()
    """Template that the text was made from, if any."""
    write_error: str = ""
    """Reason why the function failed; the run ends, and the function is called again when it is resumed."""
    owner: str = ""
    """Agent that the run was handed over to, and `:N` for options of run N: other functions may have the same name."""


class ContextRetrieved(EventBase, kw_only=True, tag="context_retrieved"):
    """Context retrieved for a prompt; not retrieved again."""

    chunks: tuple[Chunk, ...] = ()
    facts: tuple[tuple[str, str], ...] = ()
    omitted_count: int = 0
    """Number of chunks left out for lack of space."""
    load_error: str = ""
    """Errors during retrieval."""
    failed: bool = False
    """True if chunks were requested and retrieval failed."""
    not_started: bool = False
    """True if a function did not run, because it waited for others until its time was up; the run ends."""
