"""Redacts notes: the text in the log of the notes, and in the records of sessions that showed it.

A note that was removed stays readable in the log until it is redacted; one that was not is removed as well.
"""

from collections.abc import Collection

from bridle.core.note_tools import explain_unknown_note
from bridle.ports.clock import Clock
from bridle.ports.store import ErasingStore, Store, supports
from bridle.run.clock import SystemClock
from bridle.run.memory.notes import Notes, NotesOwner, load_notes
from bridle.run.recovery.verification import list_all_sessions
from bridle.stores.conflicts import RESERVED_PREFIXES
from bridle.values.base import Value
from bridle.values.errors import Corrupt, MisuseError
from bridle.values.memory import MemoryLoaded, NoteWritten
from bridle.values.record import Record

from .redact import check_redactable, redact_log_record, redact_one
from .remains import RemainingText, find_remaining


class NoteRedaction(Value, kw_only=True):
    """A note whose text was removed, and the records that showed it."""

    note: str
    tenant: str = ""
    caller: str = ""
    session: str = ""
    reason: str = ""
    by: str = ""
    shown_in: tuple[RemainingText, ...] = ()
    """Records of sessions that showed the note to a model; its text was removed there too."""
    found_elsewhere: tuple[RemainingText, ...] = ()
    """Records that contain the text or a distinctive part of it, such as the call that wrote it."""
    searched_all: bool = True
    """False if the search for such records left something out."""


async def redact_note(
    store: Store,
    note: str,
    *,
    tenant: str = "",
    caller: str = "",
    session: str | None = None,
    reason: str,
    by: str,
    clock: Clock | None = None,
) -> NoteRedaction:
    """Remove a note and its text, also if it was removed before; the owner is named as in `Notes`."""
    check_redactable(store, reason, by)
    owner = NotesOwner(tenant, session, caller)
    log = await load_notes(store, owner)
    written = [record for record in await store.read(owner.log_name) if _find_text(record, note) is not None]
    if not written:
        raise MisuseError(explain_unknown_note(log.state.memory, note))
    if written[0].is_redacted:
        raise MisuseError(f"the text of {note} was removed before")
    text, time = _find_text(written[0], note) or "", clock or SystemClock()
    shown = await _redact_copies(store, text, reason, by)
    if any(each.id == note for each in log.state.memory.notes):
        await Notes(store, clock=time).remove(note, tenant=tenant, session=session, caller=caller)
    if session is not None:
        await redact_one(store, session, written[0].seq, reason, by, clock=time, searches=False)
    else:
        await redact_log_record(store, owner.log_name, written[0], reason, by, time.now())
    found, searched_all = await find_remaining(store, await list_all_sessions(store), "", [text])
    if supports(store, ErasingStore):
        await store.erase_redacted()
    return NoteRedaction(
        note=note,
        tenant=tenant,
        caller=caller,
        session=session or "",
        reason=reason.strip(),
        by=by.strip(),
        shown_in=shown,
        found_elsewhere=tuple(found),
        searched_all=searched_all,
    )


async def redact_shown_notes(
    store: Store, session: str, record: int, texts: Collection[str], reason: str, by: str
) -> None:
    """Remove these texts, and no others, from the notes that a record of a session showed."""
    event = (await store.read(session, record - 1, 1))[0].event
    for place, note in enumerate(event.notes if isinstance(event, MemoryLoaded) else ()):
        if note.text in texts:
            await redact_one(store, session, record, reason, by, f"notes.{place}.text", searches=False)


async def _redact_copies(store: Store, text: str, reason: str, by: str) -> tuple[RemainingText, ...]:
    found = []
    for info in await list_all_sessions(store):
        if info.id.startswith(RESERVED_PREFIXES):
            continue
        try:
            records = await store.read(info.id)
        except Corrupt:
            continue  # it is reported by the search for what remains
        shown = [
            record.seq
            for record in records
            if isinstance(record.event, MemoryLoaded)
            and any(note.text == text for note in record.event.notes)
        ]
        for seq in shown:
            await redact_shown_notes(store, info.id, seq, {text}, reason, by)
        if shown:
            found.append(RemainingText(session=info.id, records=tuple(shown)))
    return tuple(found)


def _find_text(record: Record, note: str) -> str | None:
    """The text of the note, if this record wrote it."""
    event = record.event
    return event.note.text if isinstance(event, NoteWritten) and event.note.id == note else None
