"""The notes of tenants and sessions, for code: read them, add one, remove one.

    await agent.notes.list(tenant="acme")
    await agent.notes.add("Invoices go out on Fridays.", tenant="acme")
    await agent.notes.remove("t1", tenant="acme")

A tenant's notes are a line of records that anybody may write at any time: whoever comes second reads again
and goes on from there, so nothing is lost and nobody waits.  A session's notes are in its own log, which
one driver writes: while it runs, code cannot.  What is kept is shown to models at chosen points only
(core/memory.py); what is removed stays in the log, and in the prompts of sessions that are under way.
"""

import asyncio
from collections.abc import Callable
from contextlib import nullcontext
from typing import NamedTuple
from weakref import WeakKeyDictionary, WeakValueDictionary

from bridle.core.memory import explain_no_room, explain_unknown_note
from bridle.core.recovery.log_repair import fold_log
from bridle.core.state import MemoryState
from bridle.ports.clock import Clock
from bridle.ports.store import RepairableStore, Store
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
"""How often somebody else may be faster before it is said that it did not work."""


class LoadedNotes(NamedTuple):
    notes: tuple[Note, ...]
    load_error: str = ""


class Notes:
    def __init__(self, store: Store, *, memory: Memory | None = None, clock: Clock | None = None) -> None:
        self._store, self._clock = store, clock or SystemClock()
        self._characters_max = memory.characters_max if memory is not None else NOTES_CHARACTERS_DEFAULT

    async def list(self, *, tenant: str = "", session: str | None = None) -> tuple[Note, ...]:
        """Oldest first.  Of a session only its own; a tenant's stand in its prompts as well.

        With a `session`, a `tenant` that is named must be the one it belongs to; so when notes are written.
        """
        return (await self._load(tenant, session)).state.memory.notes

    async def add(
        self,
        words: str,
        *,
        tenant: str = "",
        session: str | None = None,
        by: Writer = "code",
        key: str = "",
        written_in: str = "",
    ) -> Note:
        """Raises `MisuseError` when there is no room.  The same `key` writes once."""
        words = check_text(note=words).strip()

        def wanted(book: MemoryState) -> NoteWritten | Note:
            if key and key in book.note_keys:
                number = book.note_keys.index(key) + 1
                return Note(id=make_note_id(number, session), text=words, written_by=by)
            return make_note_written(
                book,
                words,
                self._characters_max,
                make_note_id(len(book.note_keys) + 1, session),
                by,
                key,
                written_in,
            )

        return await self._write_locked(tenant, session, wanted)

    async def remove(
        self, note: str, *, tenant: str = "", session: str | None = None, by: Writer = "code"
    ) -> Note:
        """Raises `MisuseError` when there is no such note."""

        def wanted(book: MemoryState) -> tuple[NoteRemoved, Note]:
            return make_note_removed(book, note, by), next(each for each in book.notes if each.id == note)

        return await self._write_locked(tenant, session, wanted)

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
        wanted: Callable[[MemoryState], NoteWritten | Note | tuple[NoteRemoved, Note]],
    ) -> Note:
        line = _notes_log_name(tenant, session)
        # A session has one driver, who must not find records of others; a tenant's notes have none.
        with self._store.lease(session) if session is not None else nullcontext():
            async with _write_lock(line):
                return await self._append_with_retry(line, tenant, session, wanted)

    async def _append_with_retry(
        self,
        line: str,
        tenant: str,
        session: str | None,
        wanted: Callable[[MemoryState], NoteWritten | Note | tuple[NoteRemoved, Note]],
    ) -> Note:
        for _ in range(WRITE_ATTEMPTS_MAX):
            log = await self._load(str(tenant), session)  # a note has no place to record a crossing
            found = wanted(log.state.memory)
            if isinstance(found, Note):
                return found
            event, note = (found, found.note) if isinstance(found, NoteWritten) else found
            record = seal_record(log.length + 1, self._clock.now(), event, log.head)
            try:
                await append_record(self._store, line, record, torn=log.is_torn)
            except Conflict:
                continue  # somebody else was faster: what they wrote counts too
            return note
        raise Conflict(
            f"{line!r} is written by so many at once that there was no room in {WRITE_ATTEMPTS_MAX} tries"
        )


def _write_lock(line: str) -> asyncio.Lock:
    """One at a time of those on one event loop: of many at once, some would come second for ever."""
    locks = _write_locks.setdefault(asyncio.get_running_loop(), WeakValueDictionary())
    lock = locks[line] = locks.get(line) or asyncio.Lock()
    return lock


_write_locks: WeakKeyDictionary[asyncio.AbstractEventLoop, WeakValueDictionary[str, asyncio.Lock]] = (
    WeakKeyDictionary()
)


async def read_notes(store: Store, tenant: str) -> LoadedNotes:
    """A tenant's notes for a prompt: as many as can be trusted, since no damage to them may stop a run."""
    line = notes_log_name(tenant)
    try:
        return LoadedNotes((await load_log(store, line)).state.memory.notes)
    except Corrupt as error:
        records = await store.read_intact(line) if isinstance(store, RepairableStore) else ()
        return LoadedNotes(fold_log(records).state.memory.notes, f"notes may be missing: {error}")


def make_note_written(
    book: MemoryState, words: str, most: int, id_: str, by: Writer, key: str = "", session: str = ""
) -> NoteWritten:
    if trouble := explain_no_room(book, words, most):
        raise MisuseError(trouble)
    return NoteWritten(note=Note(id=id_, text=words, written_by=by), key=key, session=session)


def make_note_removed(book: MemoryState, note: str, by: Writer) -> NoteRemoved:
    if all(each.id != note for each in book.notes):
        raise MisuseError(explain_unknown_note(book, note))
    return NoteRemoved(id=note, removed_by=by)


def make_note_id(number: int, session: str | None) -> str:
    return f"{'t' if session is None else 's'}{number}"


def _notes_log_name(tenant: str, session: str | None) -> str:
    if session is None:
        return notes_log_name(check_text(tenant=tenant))
    if session.startswith((NOTES_PREFIX, BUDGET_LOG_PREFIX)):
        raise MisuseError(f"{session!r} is no session; a tenant's notes are named by the tenant")
    return session
