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

from ..core.memory import no_room, unknown_note
from ..core.mending import fold
from ..core.notebook import Notebook
from ..ports.clock import Clock
from ..ports.store import Mending, Store
from ..values.errors import Conflict, Corrupt, MisuseError, SessionNotFound
from ..values.memory import (
    NOTES_CHARACTERS_DEFAULT,
    NOTES_PREFIX,
    Memory,
    Note,
    NoteRemoved,
    NoteWritten,
    Writer,
    notes_of,
)
from ..values.pooled import LINE
from ..values.record import seal
from .clock import SystemClock
from .given import worded
from .loading import Log, keep, load
from .tenancy import check_tenant

WRITES_MAX = 100
"""How often somebody else may be faster before it is said that it did not work."""


class Read(NamedTuple):
    notes: tuple[Note, ...]
    trouble: str = ""


class Notes:
    def __init__(self, store: Store, *, memory: Memory | None = None, clock: Clock | None = None) -> None:
        self._store, self._clock = store, clock or SystemClock()
        self._most = memory.characters_max if memory is not None else NOTES_CHARACTERS_DEFAULT

    async def list(self, *, tenant: str = "", session: str | None = None) -> tuple[Note, ...]:
        """Oldest first.  Of a session only its own; a tenant's stand in its prompts as well.

        With a `session`, a `tenant` that is named must be the one it belongs to; so when notes are written.
        """
        return (await self._log(tenant, session)).state.notebook.notes

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
        words = worded(note=words).strip()

        def wanted(book: Notebook) -> NoteWritten | Note:
            if key and key in book.keys:
                number = book.keys.index(key) + 1
                return Note(id=note_id(number, session), words=words, by=by)
            return written(book, words, self._most, note_id(len(book.keys) + 1, session), by, key, written_in)

        return await self._write(tenant, session, wanted)

    async def remove(
        self, note: str, *, tenant: str = "", session: str | None = None, by: Writer = "code"
    ) -> Note:
        """Raises `MisuseError` when there is no such note."""

        def wanted(book: Notebook) -> tuple[NoteRemoved, Note]:
            return removed(book, note, by), next(each for each in book.notes if each.id == note)

        return await self._write(tenant, session, wanted)

    async def _log(self, tenant: str, session: str | None) -> Log:
        log = await load(self._store, _line(tenant, session))
        if session is not None and not log.length:
            raise SessionNotFound(f"there is no session {session!r} in this store")
        if session is not None and tenant:
            check_tenant(session, log.state, tenant)
        return log

    async def _write(
        self,
        tenant: str,
        session: str | None,
        wanted: Callable[[Notebook], NoteWritten | Note | tuple[NoteRemoved, Note]],
    ) -> Note:
        line = _line(tenant, session)
        # A session has one driver, who must not find records of others; a tenant's notes have none.
        with self._store.hold(session) if session is not None else nullcontext():
            async with _turnstile(line):
                return await self._written(line, tenant, session, wanted)

    async def _written(
        self,
        line: str,
        tenant: str,
        session: str | None,
        wanted: Callable[[Notebook], NoteWritten | Note | tuple[NoteRemoved, Note]],
    ) -> Note:
        for _ in range(WRITES_MAX):
            log = await self._log(str(tenant), session)  # a note has no place to record a crossing
            found = wanted(log.state.notebook)
            if isinstance(found, Note):
                return found
            event, note = (found, found.note) if isinstance(found, NoteWritten) else found
            record = seal(log.length + 1, self._clock.now(), event, log.head)
            try:
                await keep(self._store, line, record, torn=log.torn)
            except Conflict:
                continue  # somebody else was faster: what they wrote counts too
            return note
        raise Conflict(f"{line!r} is written by so many at once that there was no room in {WRITES_MAX} tries")


def _turnstile(line: str) -> asyncio.Lock:
    """One at a time of those on one event loop: of many at once, some would come second for ever."""
    locks = _turnstiles.setdefault(asyncio.get_running_loop(), WeakValueDictionary())
    lock = locks[line] = locks.get(line) or asyncio.Lock()
    return lock


_turnstiles: WeakKeyDictionary[asyncio.AbstractEventLoop, WeakValueDictionary[str, asyncio.Lock]] = (
    WeakKeyDictionary()
)


async def read_notes(store: Store, tenant: str) -> Read:
    """A tenant's notes for a prompt: as many as can be trusted, since no damage to them may stop a run."""
    line = notes_of(tenant)
    try:
        return Read((await load(store, line)).state.notebook.notes)
    except Corrupt as error:
        records = await store.whole(line) if isinstance(store, Mending) else ()
        return Read(fold(records).state.notebook.notes, f"notes may be missing: {error}")


def written(
    book: Notebook, words: str, most: int, id_: str, by: Writer, key: str = "", session: str = ""
) -> NoteWritten:
    if trouble := no_room(book, words, most):
        raise MisuseError(trouble)
    return NoteWritten(note=Note(id=id_, words=words, by=by), key=key, session=session)


def removed(book: Notebook, note: str, by: Writer) -> NoteRemoved:
    if all(each.id != note for each in book.notes):
        raise MisuseError(unknown_note(book, note))
    return NoteRemoved(id=note, by=by)


def note_id(number: int, session: str | None) -> str:
    return f"{'t' if session is None else 's'}{number}"


def _line(tenant: str, session: str | None) -> str:
    if session is None:
        return notes_of(worded(tenant=tenant))
    if session.startswith((NOTES_PREFIX, LINE)):
        raise MisuseError(f"{session!r} is no session; a tenant's notes are named by the tenant")
    return session
