"""Lists, adds and removes the notes of tenants, of their callers, and of sessions.

    await agent.notes.list(tenant="acme")
    await agent.notes.add("Invoices go out on Fridays.", tenant="acme")
    await agent.notes.add("Ada drinks tea.", tenant="acme", caller="ada")
    await agent.notes.remove("t1", tenant="acme")

The notes of a tenant or a caller are a log that any process may append to at any time; on a conflict the writer
reads again and retries, so nothing is lost.  A session's notes are in its own log, which only its driver writes
while it runs.  Models see changed notes only at certain points (core/memory.py).  Removed notes remain in the
log, and in the prompts of running sessions, until they are redacted (run/archive/redact_notes.py).
"""

import asyncio
from collections.abc import Callable
from contextlib import nullcontext
from hashlib import sha256
from typing import NamedTuple
from weakref import WeakKeyDictionary, WeakValueDictionary

import msgspec
from msgspec.structs import replace

from bridle.core.note_tools import explain_no_room, explain_unknown_note
from bridle.core.recovery.log_repair import fold_log
from bridle.core.state import MemoryState
from bridle.ports.clock import Clock
from bridle.ports.store import RepairableStore, Store, supports
from bridle.run.clock import SystemClock
from bridle.run.recovery.session_log import SessionLog, append_record, load_log
from bridle.run.validate_input import check_tenant, check_text
from bridle.values.budget import BUDGET_LOG_PREFIX
from bridle.values.errors import Conflict, Corrupt, MisuseError, SessionNotFound
from bridle.values.memory import (
    CALLER_NOTES_PREFIX,
    NOTES_CHARACTERS_DEFAULT,
    NOTES_PREFIX,
    Memory,
    Note,
    NoteRemoved,
    NoteWritten,
    Writer,
)
from bridle.values.record import seal_record

NOTES_PREFIXES = (NOTES_PREFIX, CALLER_NOTES_PREFIX)
WRITE_ATTEMPTS_MAX = 100
"""Conflicting writes after which `Conflict` is raised."""


def notes_log_name(tenant: str, caller: str = "") -> str:
    """Name of the log of a tenant's notes, or of those of one of its callers.

    The latter is a hash: it has any length, and a removed log leaves no name of a person in the store.
    """
    if not caller:
        return f"{NOTES_PREFIX}{tenant}"
    return f"{CALLER_NOTES_PREFIX}{sha256(msgspec.json.encode((tenant, caller))).hexdigest()}"


class LoadedNotes(NamedTuple):
    notes: tuple[Note, ...]
    load_error: str = ""


NO_NOTES = LoadedNotes(())


class NotesOwner(NamedTuple):
    """Whose notes these are: a session's, or those of a tenant or one of its callers."""

    tenant: str = ""
    session: str | None = None
    caller: str = ""

    @property
    def log_name(self) -> str:
        if self.session is None:
            return notes_log_name(check_text(tenant=self.tenant), check_text(caller=self.caller))
        if self.caller:
            raise MisuseError("notes belong to a session or to a caller: give one of `session` and `caller`")
        if self.session.startswith((*NOTES_PREFIXES, BUDGET_LOG_PREFIX)):
            raise MisuseError(f"{self.session!r} is not a session id; select a tenant's notes with tenant=")
        return self.session

    @property
    def letter(self) -> str:
        """First letter of the ids of these notes."""
        return "s" if self.session is not None else "c" if self.caller else "t"


class Notes:
    """The notes in one store."""

    def __init__(self, store: Store, *, memory: Memory | None = None, clock: Clock | None = None) -> None:
        self._store, self._clock = store, clock or SystemClock()
        self._characters_max = memory.characters_max if memory is not None else NOTES_CHARACTERS_DEFAULT

    async def list(
        self, *, tenant: str = "", session: str | None = None, caller: str = ""
    ) -> tuple[Note, ...]:
        """List notes, oldest first: those of a tenant, with `caller` of that caller, with `session` of that session.

        With a tenant and a session, raises `MisuseError` if the session belongs to another tenant; so do `add` and
        `remove`.
        """
        return (await load_notes(self._store, NotesOwner(tenant, session, caller))).state.memory.notes

    async def add(
        self,
        text: str,
        *,
        tenant: str = "",
        session: str | None = None,
        by: Writer = "code",
        caller: str = "",
        key: str = "",
        written_in: str = "",
        written_for: str = "",
    ) -> Note:
        """Add a note; raises `MisuseError` if there is no room.  A repeated `key` writes nothing.

        `written_in` and `written_for` are the session and the caller of the run that writes it.
        """
        text = check_text(note=text).strip()
        owner = NotesOwner(tenant, session, caller)

        def change(memory: MemoryState) -> NoteWritten | Note:
            if key and key in memory.note_keys:
                number = memory.note_keys.index(key) + 1
                return Note(id=make_note_id(number, owner.letter), text=text, written_by=by)
            id_ = make_note_id(len(memory.note_keys) + 1, owner.letter)
            written = make_note_written(memory, text, self._characters_max, id_, by, key, written_in)
            person = caller or written_for
            return replace(written, tenant=str(tenant), caller=person) if person else written

        return await self._write_locked(owner, change)

    async def remove(
        self,
        note: str,
        *,
        tenant: str = "",
        session: str | None = None,
        by: Writer = "code",
        caller: str = "",
    ) -> Note:
        """Remove a note; raises `MisuseError` if it does not exist."""

        def change(memory: MemoryState) -> tuple[NoteRemoved, Note]:
            return make_note_removed(memory, note, by), next(each for each in memory.notes if each.id == note)

        return await self._write_locked(NotesOwner(tenant, session, caller), change)

    async def _write_locked(
        self,
        owner: NotesOwner,
        change: Callable[[MemoryState], NoteWritten | Note | tuple[NoteRemoved, Note]],
    ) -> Note:
        log_name, session = owner.log_name, owner.session
        # A session's log has a single writer, so it needs the lease; a tenant's log has many.
        async with (
            self._store.lease(session) if session is not None else nullcontext() as lease,
            _write_lock(log_name),
        ):
            epoch = lease.epoch if lease is not None else None
            return await self._append_with_retry(owner, change, epoch)

    async def _append_with_retry(
        self,
        owner: NotesOwner,
        change: Callable[[MemoryState], NoteWritten | Note | tuple[NoteRemoved, Note]],
        epoch: int | None,
    ) -> Note:
        log_name = owner.log_name
        owner = owner._replace(tenant=str(owner.tenant))  # `CrossTenant` cannot be recorded in a note
        for _ in range(WRITE_ATTEMPTS_MAX):
            log = await load_notes(self._store, owner)
            found = change(log.state.memory)
            if isinstance(found, Note):
                return found
            event, note = (found, found.note) if isinstance(found, NoteWritten) else found
            record = seal_record(log.length + 1, self._clock.now(), event, log.head)
            try:
                await append_record(self._store, log_name, record, torn=log.is_torn, epoch=epoch)
            except Conflict:
                continue  # another writer was first: read its record and retry
            return note
        raise Conflict(f"{log_name!r} has too many concurrent writers: {WRITE_ATTEMPTS_MAX} attempts failed")


async def load_notes(store: Store, owner: NotesOwner) -> SessionLog:
    """The log with these notes; raises `MisuseError` if the session belongs to another tenant."""
    log = await load_log(store, owner.log_name)
    if owner.session is not None and not log.length:
        raise SessionNotFound(f"there is no session {owner.session!r} in this store")
    if owner.session is not None and owner.tenant:
        check_tenant(owner.session, log.state, owner.tenant)
    return log


def _write_lock(log_name: str) -> asyncio.Lock:
    """One lock per log and event loop: without it, some of many writers would never succeed."""
    locks = _write_locks.setdefault(asyncio.get_running_loop(), WeakValueDictionary())
    lock = locks[log_name] = locks.get(log_name) or asyncio.Lock()
    return lock


_write_locks: WeakKeyDictionary[asyncio.AbstractEventLoop, WeakValueDictionary[str, asyncio.Lock]] = (
    WeakKeyDictionary()
)


async def read_notes(store: Store, tenant: str, caller: str = "") -> LoadedNotes:
    """Read the notes of a tenant or a caller for a prompt; a damaged log yields its intact notes and an error."""
    log_name = notes_log_name(tenant, caller)
    try:
        return LoadedNotes((await load_log(store, log_name)).state.memory.notes)
    except Corrupt as error:
        records = await store.read_intact(log_name) if supports(store, RepairableStore) else ()
        return LoadedNotes(fold_log(records).state.memory.notes, f"notes may be missing: {error}")


def make_note_written(
    memory: MemoryState,
    text: str,
    characters_max: int,
    id_: str,
    by: Writer,
    key: str = "",
    session: str = "",
) -> NoteWritten:
    if problem := explain_no_room(memory, text, characters_max):
        raise MisuseError(problem)
    return NoteWritten(note=Note(id=id_, text=text, written_by=by), key=key, session=session)


def make_note_removed(memory: MemoryState, note: str, by: Writer) -> NoteRemoved:
    if all(each.id != note for each in memory.notes):
        raise MisuseError(explain_unknown_note(memory, note))
    return NoteRemoved(id=note, removed_by=by)


def make_note_id(number: int, letter: str) -> str:
    return f"{letter}{number}"
