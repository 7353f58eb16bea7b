"""Erases what a store has of one caller: sessions, notes, stored results, snapshots and trials of evaluations.

A session in which only the caller prompted is removed as a whole, with the sessions of runs inside its tools. A session
that others share, because they prompted in it or forked it, stays: the content of the caller's runs is redacted there,
with later summaries and other records that repeat it. So is what the caller said in runs of others: steering messages,
and requests in control logs, also those that no run took. Redaction keeps the hash chain verifiable
(run/archive/redact.py). What a run in progress or an unfinished one needs stays, and the report says so.

Does not belong here: backups, exports and what providers keep.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from bridle.core.redaction import NoContent, redact_data
from bridle.ports.clock import Clock
from bridle.ports.store import ErasingStore, PrunableStore, SessionInfo, Store, supports
from bridle.run.clock import SystemClock
from bridle.run.memory.notes import Notes, notes_log_name
from bridle.run.recovery.retention import find_open_work, remove_session
from bridle.run.recovery.verification import list_all_sessions
from bridle.run.validate_input import check_text
from bridle.stores.conflicts import RESERVED_PREFIXES
from bridle.values.base import Value
from bridle.values.calls import (
    CONTROL_LOG_PREFIX,
    ContentRedacted,
    ControlRefused,
    ControlRequested,
    control_log_name,
)
from bridle.values.errors import BridleError, Conflict, Corrupt, MisuseError, Unusable
from bridle.values.evals import EVAL_LOG_PREFIX, TrialScored
from bridle.values.events import Compacted, Configured, Prompted, Steered, UnknownEvent
from bridle.values.memory import CALLER_NOTES_PREFIX, NOTES_PREFIX, MemoryLoaded, NoteWritten
from bridle.values.record import Record

from .redact import check_redactable, redact_log_record, redact_one
from .redact_notes import redact_shown_notes
from .remains import LINE_CHARACTERS_MIN, RemainingText, find_remaining

REASON_DEFAULT = "the data of a caller was erased"
BY_DEFAULT = "bridle store erase"
HAS_DATA = re.compile(r"[0-9@]")
REMOVALS_MAX = 100


class ErasedRecords(Value, kw_only=True):
    """Records of a log whose content was removed."""

    session: str
    records: tuple[int, ...]


class KeptData(Value, kw_only=True):
    """Something that stays, and why."""

    name: str
    """A session, or `blobs` or `file`."""
    reason: str


class Erasure(Value, kw_only=True):
    """What was erased of a caller, or what would be (`dry_run`)."""

    caller: str
    tenant: str
    dry_run: bool = False
    reason: str = ""
    by: str = ""
    removed_sessions: tuple[str, ...] = ()
    redacted: tuple[ErasedRecords, ...] = ()
    """Records of logs that stay, because others share them."""
    notes: int = 0
    """Number of notes of the caller, removed ones included."""
    blobs: int = 0
    """Number of stored results that nothing refers to any more; not known in a dry run."""
    kept: tuple[KeptData, ...] = ()
    found_elsewhere: tuple[RemainingText, ...] = ()
    """Records of other sessions that contain an erased text or a distinctive part of it."""
    searched_all: bool = True
    """False if the search for such records left something out."""

    @property
    def is_complete(self) -> bool:
        """True if nothing was kept; what `found_elsewhere` names may be chance."""
        return not self.kept


async def erase_caller(
    store: Store,
    caller: str,
    *,
    tenant: str | None = None,
    reason: str = REASON_DEFAULT,
    by: str = BY_DEFAULT,
    dry_run: bool = False,
    clock: Clock | None = None,
) -> Erasure:
    """Erase what the store has of a caller; a second call erases what a crash or a run in progress left.

    A caller is a caller of its tenant: raises `MisuseError` if several tenants have one of this name and none is given.
    """
    if not check_text(caller=caller).strip():
        raise MisuseError("name the caller whose data to erase")
    check_redactable(store, reason, by)
    plan = await _make_plan(store, caller, tenant)
    eraser = _Eraser(store, caller, reason.strip(), by.strip(), (clock or SystemClock()).now(), plan)
    if dry_run:
        return eraser.report(dry_run=True)
    await eraser.erase()
    return eraser.report(dry_run=False)


class _Run(NamedTuple):
    """The records from one prompt to the next."""

    first: int
    last: int
    caller: str
    tenant: str
    parent_session: str

    def is_of(self, caller: str, tenant: str) -> bool:
        return self.caller == caller and self.tenant == tenant


class _Session(NamedTuple):
    info: SessionInfo
    runs: tuple[_Run, ...]
    open_work: str


class _LogRecord(NamedTuple):
    log: str
    record: Record


@dataclass
class _Plan:
    tenant: str
    removed: list[str]
    """Forks before their parents."""
    shared: dict[str, tuple[int, ...]]
    """Records to redact, by session."""
    shown: dict[str, tuple[int, ...]]
    """Records of other sessions that showed a note of the caller."""
    said: dict[str, tuple[int, ...]]
    """Records of other people's runs with messages of the caller, by session."""
    requests: list[_LogRecord]
    """Requests of the caller in control logs of sessions that stay."""
    notes: list[_LogRecord]
    trials: list[_LogRecord]
    kept: list[KeptData]

    def list_redacted(self) -> dict[str, list[int]]:
        """Records to redact, by log; notes of the caller are removed with their log."""
        found = {name: [*records] for name, records in (*self.shown.items(), *self.shared.items())}
        for name, records in self.said.items():
            found[name] = sorted({*found.get(name, ()), *records})
        for each in (*self.trials, *self.requests, *self.notes):
            if not each.log.startswith(CALLER_NOTES_PREFIX):
                found.setdefault(each.log, []).append(each.record.seq)
        return found


@dataclass
class _Findings:
    """What one pass over the store found."""

    sessions: dict[str, _Session] = field(default_factory=dict)
    notes: list[_LogRecord] = field(default_factory=list)
    """All notes of tenants and callers."""
    trials: list[_LogRecord] = field(default_factory=list)
    loaded: dict[str, list[tuple[int, frozenset[str]]]] = field(default_factory=dict)
    """Records that show notes, with the texts of these, by session."""
    said: dict[str, list[int]] = field(default_factory=dict)
    """Records with messages of the caller, by session."""
    requests: dict[str, list[_LogRecord]] = field(default_factory=dict)
    """Requests of the caller to runs, by session."""
    unreadable: list[KeptData] = field(default_factory=list)

    def find_owner(self, session: str) -> str | None:
        """The tenant of a session; None if it is not there or was never prompted."""
        known = self.sessions.get(session)
        return known.runs[0].tenant if known is not None and known.runs else None


async def _find_all(store: Store, caller: str) -> _Findings:
    found = _Findings()
    infos = await list_all_sessions(store)
    names = {info.id for info in infos}
    for info in infos:
        if info.id.startswith(RESERVED_PREFIXES) and not info.id.startswith(
            (NOTES_PREFIX, CALLER_NOTES_PREFIX, EVAL_LOG_PREFIX, CONTROL_LOG_PREFIX)
        ):
            continue
        try:
            records = await store.read(info.id)
        except Corrupt as error:
            found.unreadable.append(KeptData(name=info.id, reason=f"it is damaged: {error}"))
            continue
        for record in records:
            match record.event:
                case NoteWritten() if info.id.startswith((NOTES_PREFIX, CALLER_NOTES_PREFIX)):
                    found.notes.append(_LogRecord(info.id, record))
                case Steered(by=by) | ControlRefused(by=by) if by == caller and not record.is_redacted:
                    found.said.setdefault(info.id, []).append(record.seq)
                case ControlRequested(by=by) if by == caller and not record.is_redacted:
                    controlled = info.id.removeprefix(CONTROL_LOG_PREFIX)
                    found.requests.setdefault(controlled, []).append(_LogRecord(info.id, record))
                case TrialScored():
                    found.trials.append(_LogRecord(info.id, record))
                case MemoryLoaded(notes=notes) if notes:
                    texts = frozenset(note.text for note in notes)
                    found.loaded.setdefault(info.id, []).append((record.seq, texts))
        runs = _split_runs(records)
        if not info.id.startswith(RESERVED_PREFIXES):
            is_named = any(run.caller == caller or run.parent_session for run in runs)
            may_take = is_named or info.id in found.said or control_log_name(info.id) in names
            found.sessions[info.id] = _Session(
                info, runs, find_open_work(info.id, records) if may_take else ""
            )
    return found


def _split_runs(records: Sequence[Record]) -> tuple[_Run, ...]:
    prompts = [(record.seq, record.event) for record in records if isinstance(record.event, Prompted)]
    # What is before the first prompt, such as an imported history, belongs to it.
    starts = [1, *(seq for seq, _ in prompts[1:])]
    ends = [*(seq - 1 for seq in starts[1:]), len(records)]
    return tuple(
        _Run(first, last, event.caller, event.tenant, event.parent_session)
        for first, last, (_, event) in zip(starts, ends, prompts, strict=False)
    )


async def _make_plan(store: Store, caller: str, tenant: str | None) -> _Plan:
    found = await _find_all(store, caller)
    owner = _choose_tenant(found, caller, tenant)
    sessions = found.sessions
    touched = {name for name, each in sessions.items() if any(run.is_of(caller, owner) for run in each.runs)}
    owned = {name for name in touched if all(run.is_of(caller, owner) for run in sessions[name].runs)}
    while inner := {
        name
        for name, each in sessions.items()
        if name not in owned and each.runs and all(run.parent_session in owned for run in each.runs)
    }:
        owned |= inner
    touched |= owned
    # A run that is not over needs its session, those that it started and those that it shares records with.
    kept = {name: sessions[name].open_work for name in touched if sessions[name].open_work}
    while more := {
        name: f"a run of {run.parent_session} is not over"
        for name in touched - kept.keys()
        for run in sessions[name].runs
        if run.parent_session in kept
    }:
        kept.update(more)
    # A session whose records a remaining fork shares is not removed.
    staying = {each.info.parent for name, each in sessions.items() if name not in owned or name in kept}
    removed = owned - kept.keys()
    while shared := removed & staying:
        removed -= shared
        staying |= {sessions[name].info.parent for name in shared}
    texts = _find_note_texts(found, caller, owner, touched)
    plans = {
        name: await _list_erased_records(store, each, caller, owner, whole=name in owned)
        for name, each in sessions.items()
        if name in touched - removed - kept.keys()
    }
    shown = {
        name: tuple(seq for seq, shown_texts in places if shown_texts & texts.keys())
        for name, places in found.loaded.items()
        if name not in touched
    }
    # A run that is not over may still take a message or a request. A removed session takes its control log along.
    gone = removed if supports(store, PrunableStore) else set[str]()
    asked = {
        name
        for name in (*found.said, *found.requests)
        if name not in gone and found.find_owner(name) == owner
    }
    kept.update({name: sessions[name].open_work for name in asked if sessions[name].open_work})
    asked -= kept.keys()
    said = {
        name: tuple(seq for seq in found.said.get(name, ()) if seq not in plans.get(name, ()))
        for name in asked
    }
    trials = [
        each
        for each in found.trials
        if isinstance(each.record.event, TrialScored) and each.record.event.session in touched
    ]
    return _Plan(
        tenant=owner,
        removed=sorted(removed, key=lambda name: (-_count_ancestors(name, sessions), name)),
        shared={name: records for name, records in plans.items() if records},
        shown={name: records for name, records in shown.items() if records},
        said={name: records for name, records in said.items() if records},
        requests=[each for name in sorted(asked) for each in found.requests.get(name, ())],
        notes=[each for group in texts.values() for each in group],
        trials=[each for each in trials if not each.record.is_redacted],
        kept=[*found.unreadable, *(KeptData(name=name, reason=kept[name]) for name in sorted(kept))],
    )


def _choose_tenant(found: _Findings, caller: str, tenant: str | None) -> str:
    if tenant is not None:
        return check_text(tenant=tenant)
    tenants = (
        {run.tenant for each in found.sessions.values() for run in each.runs if run.caller == caller}
        | {
            owner
            for session in (*found.said, *found.requests)
            if (owner := found.find_owner(session)) is not None
        }
        | {
            each.record.event.tenant
            for each in found.notes
            if isinstance(each.record.event, NoteWritten) and each.record.event.caller == caller
        }
    )
    if len(tenants) > 1:
        named = ", ".join(map(repr, sorted(tenants)))
        raise MisuseError(
            f"several tenants have a caller {caller!r}, who may be different people: {named};"
            " name one with tenant= or --tenant"
        )
    return min(tenants, default="")


def _find_note_texts(
    found: _Findings, caller: str, tenant: str, touched: Collection[str]
) -> Mapping[str, list[_LogRecord]]:
    """The notes of the caller, and those of the tenant that a run for the caller wrote, by text.

    A note from before callers had notes names the session that wrote it only.
    """
    texts: dict[str, list[_LogRecord]] = {}
    own = notes_log_name(tenant, caller)
    for each in found.notes:
        event = each.record.event
        if not isinstance(event, NoteWritten) or each.record.is_redacted:
            continue
        is_own = each.log == own or (event.caller, event.tenant) == (caller, tenant)
        wrote = (
            {run.caller for run in found.sessions[event.session].runs} if event.session in touched else {""}
        )
        if is_own or (not event.caller and wrote == {caller}):
            texts.setdefault(event.note.text, []).append(each)
    return texts


async def _list_erased_records(
    store: Store, session: _Session, caller: str, tenant: str, *, whole: bool
) -> tuple[int, ...]:
    """Records of a session that stays: the caller's runs, and every summary after the first of them."""
    runs = [run for run in session.runs if whole or run.is_of(caller, tenant)]
    return tuple(
        record.seq
        for record in await store.read(session.info.id)
        if not isinstance(record.event, ContentRedacted | Configured)
        and not record.is_redacted
        and (
            any(run.first <= record.seq <= run.last for run in runs)
            or (isinstance(record.event, Compacted) and record.seq > runs[0].first)
        )
        and _list_removed_texts(record, caller) is not None
    )


def _count_ancestors(name: str, sessions: Mapping[str, _Session]) -> int:
    count, seen = 0, {name}
    while (parent := sessions[name].info.parent) in sessions and parent not in seen:
        name, count = parent, count + 1
        seen.add(name)
    return count


def _list_removed_texts(record: Record, caller: str) -> tuple[str, ...] | None:
    """Texts that a redaction of all content removes; None if the record has nothing to remove."""
    try:
        return redact_data(record.seq, record.data, caller=caller).removed
    except NoContent:
        return None


class _Eraser:
    def __init__(self, store: Store, caller: str, reason: str, by: str, now: float, plan: _Plan) -> None:
        self._store, self._caller, self._plan = store, caller, plan
        self._reason, self._by, self._now = reason, by, now
        self._removed: list[str] = []
        self._redacted: dict[str, list[int]] = {}
        self._kept = [*plan.kept]
        self._blobs, self._elsewhere, self._searched_all = 0, list[RemainingText](), True
        self._texts: set[str] = set()

    def report(self, *, dry_run: bool) -> Erasure:
        plan = self._plan
        records = plan.list_redacted() if dry_run else self._redacted
        return Erasure(
            caller=self._caller,
            tenant=plan.tenant,
            dry_run=dry_run,
            reason=self._reason,
            by=self._by,
            removed_sessions=tuple(plan.removed if dry_run else self._removed),
            redacted=tuple(
                ErasedRecords(session=name, records=tuple(sorted(numbers)))
                for name, numbers in sorted(records.items())
                if numbers
            ),
            notes=len(plan.notes),
            blobs=self._blobs,
            kept=tuple(self._kept),
            found_elsewhere=tuple(self._elsewhere),
            searched_all=self._searched_all,
        )

    async def erase(self) -> None:
        """Copies first: after a crash, what is left is found in the same way again."""
        self._texts |= {
            each.record.event.note.text
            for each in self._plan.notes
            if isinstance(each.record.event, NoteWritten)
        }
        for session, records in self._plan.shown.items():
            await self._redact_shown(session, records)
        for each in self._plan.requests:
            await self._redact_entry(each)
        for session, records in self._plan.said.items():
            self._plan.shared[session] = tuple(sorted({*self._plan.shared.get(session, ()), *records}))
        for session in self._plan.shared:
            await self._redact_session(session)
        for each in self._plan.trials:
            await self._redact_entry(each)
        for each in self._plan.notes:
            await self._erase_note(each)
        for session in self._plan.removed:
            await self._remove(session)
        await self._search()
        await self._clean()

    async def _redact_session(self, session: str) -> None:
        try:
            for seq in self._plan.shared[session]:
                await self._redact(session, seq)
            own = [info for info in await list_all_sessions(self._store) if info.id == session]
            texts = self._list_distinct_texts()
            repeated, searched_all = await find_remaining(self._store, own, session, texts)
            self._searched_all &= searched_all
            for seq in (seq for place in repeated for seq in place.records):
                await self._redact(session, seq)
        except (BridleError, OSError) as error:
            self._keep(session, str(error))

    async def _redact_shown(self, session: str, records: Sequence[int]) -> None:
        """Remove the notes of the caller, and no others, from what a session of someone else showed."""
        texts = self._texts.copy()
        try:
            for seq in records:
                await redact_shown_notes(self._store, session, seq, texts, self._reason, self._by)
                self._redacted.setdefault(session, []).append(seq)
        except (BridleError, OSError) as error:
            self._keep(session, str(error))

    async def _redact(self, session: str, seq: int) -> None:
        record = (await self._store.read(session, seq - 1, 1))[0]
        if isinstance(record.event, Configured | ContentRedacted):
            return
        if isinstance(record.event, UnknownEvent):
            self._keep(session, f"record {seq} was written by a newer Bridle")
            return
        texts = _list_removed_texts(record, self._caller)
        if texts is None:
            return
        await redact_one(
            self._store, session, seq, self._reason, self._by, caller=self._caller, searches=False
        )
        if not isinstance(record.event, MemoryLoaded):  # it also shows notes of others
            self._texts.update(texts)
        self._redacted.setdefault(session, []).append(seq)

    async def _redact_entry(self, entry: _LogRecord) -> None:
        """Redact a record of a log that is no session."""
        try:
            if _list_removed_texts(entry.record, self._caller) is None:
                return
            await redact_log_record(
                self._store, entry.log, entry.record, self._reason, self._by, self._now, self._caller
            )
            event = entry.record.event
            if isinstance(event, ControlRequested) and event.text:
                self._texts.add(event.text)
            self._redacted.setdefault(entry.log, []).append(entry.record.seq)
        except (BridleError, OSError) as error:
            self._keep(entry.log, str(error))

    async def _erase_note(self, entry: _LogRecord) -> None:
        event = entry.record.event
        assert isinstance(event, NoteWritten)
        if entry.log.startswith(CALLER_NOTES_PREFIX):
            if supports(self._store, PrunableStore):
                await self._remove_log(entry.log)
                return
            tenant, caller = self._plan.tenant, self._caller
        else:
            tenant, caller = entry.log.removeprefix(NOTES_PREFIX), ""
        notes = Notes(self._store)
        if any(note.id == event.note.id for note in await notes.list(tenant=tenant, caller=caller)):
            await notes.remove(event.note.id, tenant=tenant, caller=caller)
        await self._redact_entry(entry)

    async def _remove_log(self, log: str) -> None:
        """Remove the notes of the caller with their log; another process may write one meanwhile."""
        assert supports(self._store, PrunableStore)
        for _ in range(REMOVALS_MAX):
            records = await self._store.read(log)
            if not records:
                return
            try:
                await self._store.remove_session(log, records[-1].hash, at=self._now, reason=self._reason)
            except Conflict:
                continue
            return
        self._keep(log, "notes are written to it all the time")

    async def _remove(self, session: str) -> None:
        if not supports(self._store, PrunableStore):
            self._plan.shared[session] = tuple(range(1, len(await self._store.read(session)) + 1))
            await self._redact_session(session)
            return
        for record in await self._store.read(session):
            if isinstance(record.event, Prompted):
                self._texts.update(_list_removed_texts(record, self._caller) or ())
        if refusal := await remove_session(self._store, session, now=self._now, reason=self._reason):
            self._keep(session, refusal)
        else:
            self._removed.append(session)

    def _list_distinct_texts(self) -> list[str]:
        """Erased texts that others hardly write by chance."""
        return [text for text in self._texts if len(text) >= LINE_CHARACTERS_MIN or HAS_DATA.search(text)]

    async def _search(self) -> None:
        infos = await list_all_sessions(self._store)
        others = [info for info in infos if not info.id.startswith(CALLER_NOTES_PREFIX)]
        texts = self._list_distinct_texts()
        self._elsewhere, searched_all = await find_remaining(self._store, others, "", texts)
        self._searched_all &= searched_all

    async def _clean(self) -> None:
        """Remove the stored results that nothing refers to, and what the files keep of deleted rows."""
        if supports(self._store, PrunableStore):
            try:
                self._blobs = len(await self._store.remove_unused_blobs(dry_run=False))
            except Conflict as error:
                self._keep("blobs", str(error))
        try:
            if supports(self._store, ErasingStore):
                await self._store.erase_redacted()
            elif supports(self._store, PrunableStore):
                await self._store.shrink_file()
        except Unusable as error:
            self._keep("file", str(error))

    def _keep(self, name: str, reason: str) -> None:
        self._kept.append(KeptData(name=name, reason=reason))
