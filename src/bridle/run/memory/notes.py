"""Lists, adds and removes the notes of tenants and sessions.

    await agent.notes.list(tenant="acme")
    await agent.notes.add("Invoices go out on Fridays.", tenant="acme")
    await agent.notes.remove("t1", tenant="acme")

A tenant's notes are a log that any process may append to at any time; on a conflict the writer reads again
and retries, so nothing is lost.  A session's notes are in its own log, which only its driver writes while it
runs.  Models see changed notes only at certain points (core/memory.py).  Removed notes remain in the log, and
in the prompts of running sessions.
"""

import asyncio
from collections.abc import Callable
from contextlib import nullcontext
from typing import NamedTuple
from weakref import WeakKeyDictionary, WeakValueDictionary

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
    NOTES_CHARACTERS_DEFAULT,
    NOTES_PREFIX,
    Memory,
    Note,
    NoteRemoved,
    NoteWritten,
    Writer,
    notes_log_name,
)
from bridle.values.record import seal_record

WRITE_ATTEMPTS_MAX = 100
"""Conflicting writes after which `Conflict` is raised."""


class LoadedNotes(NamedTuple):
    notes: tuple[Note, ...]
    load_error: str = ""


class Notes:
    """The notes in one store."""

    def __init__(self, store: Store, *, memory: Memory | None = None, clock: Clock | None = None) -> None:
        self._store, self._clock = store, clock or SystemClock()
        self._characters_max = memory.characters_max if memory is not None else NOTES_CHARACTERS_DEFAULT

    async def list(self, *, tenant: str = "", session: str | None = None) -> tuple[Note, ...]:
        """List notes, oldest first: those of a tenant, or with `session` those of that session only.

        With both, raises `MisuseError` if the session belongs to another tenant; so do `add` and `remove`.
        """
        return (await self._load(tenant, session)).state.memory.notes

    async def add(
        self,
        text: str,
        *,
        tenant: str = "",
        session: str | None = None,
        by: Writer = "code",
        key: str = "",
        written_in: str = "",
    ) -> Note:
        """Add a note; raises `MisuseError` if there is no room.  A repeated `key` writes nothing."""
        text = check_text(note=text).strip()

        def change(memory: MemoryState) -> NoteWritten | Note:
            if key and key in memory.note_keys:
                number = memory.note_keys.index(key) + 1
                return Note(id=make_note_id(number, session), text=text, written_by=by)
            return make_note_written(
                memory,
                text,
                self._characters_max,
                make_note_id(len(memory.note_keys) + 1, session),
                by,
                key,
                written_in,
            )

        return await self._write_locked(tenant, session, change)

    async def remove(
        self, note: str, *, tenant: str = "", session: str | None = None, by: Writer = "code"
    ) -> Note:
        """Remove a note; raises `MisuseError` if it does not exist."""

        def change(memory: MemoryState) -> tuple[NoteRemoved, Note]:
            return make_note_removed(memory, note, by), next(each for each in memory.notes if each.id == note)

        return await self._write_locked(tenant, session, change)

    async def _load(self, tenant: str, session: str | None) -> SessionLog:
        log = await load_log(self._store, _notes_log_name(tenant, session))
        if session is not None and not log.length:
            raise SessionNotFound(f"there is no session {session!r} in this store")
        if session is not None and tenant:
            check_tenant(session, log.state, tenant)
        return log

    async def _write_locked(
        self,
        tenant: str,
        session: str | None,
        change: Callable[[MemoryState], NoteWritten | Note | tuple[NoteRemoved, Note]],
    ) -> Note:
        log_name = _notes_log_name(tenant, session)
        # A session's log has a single writer, so it needs the lease; a tenant's log has many.
        async with (
            self._store.lease(session) if session is not None else nullcontext() as lease,
            _write_lock(log_name),
        ):
            epoch = lease.epoch if lease is not None else None
            return await self._append_with_retry(log_name, tenant, session, change, epoch)

    async def _append_with_retry(
        self,
        log_name: str,
        tenant: str,
        session: str | None,
        change: Callable[[MemoryState], NoteWritten | Note | tuple[NoteRemoved, Note]],
        epoch: int | None,
    ) -> Note:
        for _ in range(WRITE_ATTEMPTS_MAX):
            log = await self._load(str(tenant), session)  # `CrossTenant` cannot be recorded in a note
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


def _write_lock(log_name: str) -> asyncio.Lock:
    """One lock per log and event loop: without it, some of many writers would never succeed."""
    locks = _write_locks.setdefault(asyncio.get_running_loop(), WeakValueDictionary())
    lock = locks[log_name] = locks.get(log_name) or asyncio.Lock()
    return lock


_write_locks: WeakKeyDictionary[asyncio.AbstractEventLoop, WeakValueDictionary[str, asyncio.Lock]] = (
    WeakKeyDictionary()
)


async def read_notes(store: Store, tenant: str) -> LoadedNotes:
    """Read a tenant's notes for a prompt; a damaged log yields its intact notes and an error message."""
    log_name = notes_log_name(tenant)
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


def make_note_id(number: int, session: str | None) -> str:
    return f"{'t' if session is None else 's'}{number}"


def _notes_log_name(tenant: str, session: str | None) -> str:
    if session is None:
        return notes_log_name(check_text(tenant=tenant))
    if session.startswith((NOTES_PREFIX, BUDGET_LOG_PREFIX)):
        raise MisuseError(f"{session!r} is not a session id; select a tenant's notes with tenant=")
    return session
