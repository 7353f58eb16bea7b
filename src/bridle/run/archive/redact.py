"""Removes content from a session's record, and records who did it and why.

The record keeps its number, time and hash, so the chain stays verifiable: the hash covers the original content, and
a `ContentRedacted` event later in the chain names the digest of what is left. A session that shares the record
gets the event as well, so that each log proves its own redactions.
"""

from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from typing import NamedTuple, Protocol

import msgspec

from bridle.core.recovery.log_repair import fold_log
from bridle.core.redaction import RAW, RedactedBody, redact_data
from bridle.ports.clock import Clock
from bridle.ports.store import ErasingStore, RedactableStore, SessionInfo, Store, supports
from bridle.run.clock import SystemClock
from bridle.run.control.holders import wait_for_cancelled
from bridle.run.recovery.session_log import SESSIONS_MAX
from bridle.run.validate_input import check_session
from bridle.values.base import Value
from bridle.values.calls import ContentRedacted, control_log_name, redaction_key
from bridle.values.errors import Conflict, MisuseError, SessionNotFound
from bridle.values.message import CallOutcome
from bridle.values.record import Record, seal_record

from .remains import RemainingText, find_remaining, read_blobs
from .transfer import find_sharing_sessions

RAW_REQUEST = f"{RAW}request"
CONFLICTS_MAX = 100


class Redaction(Value, kw_only=True):
    session: str
    record: int
    digest: str
    """SHA-256 of the record's original content."""
    field: str = ""
    reason: str = ""
    by: str = ""
    sessions: tuple[str, ...] = ()
    """Sessions that contained the record; each records the redaction."""
    dropped_blobs: tuple[str, ...] = ()
    kept_blobs: tuple[str, ...] = ()
    """Stored results that stay, because other records refer to them."""
    found_in: tuple[int, ...] = ()
    """Other records of the session that contain a removed text or a distinctive part of it."""
    found_elsewhere: tuple[RemainingText, ...] = ()
    """Such records of other sessions."""
    searched_all: bool = True
    """False if the search for such records left something out: parts of a long text, old records, damaged ones."""
    head: str = ""
    """Number and hash of the session's last record now, for `bridle store verify SESSION --head`."""
    emptied_requests: tuple[int, ...] = ()
    """Later records whose kept request (`Agent(keep_raw=…)`) was removed too, because it repeats the conversation."""


async def redact_record(
    store: Store,
    session: str,
    record: int,
    *,
    reason: str,
    by: str,
    field: str = "",
    clock: Clock | None = None,
) -> Redaction:
    """Remove one field (`result.parts.0.text`) or all content of a record.

    Raises `Conflict` if the session, or a fork that shares the record, is running.
    """
    done = await redact_one(store, check_session(session), record, reason, by, field, clock)
    await _erase_redacted(store)
    return done


async def _erase_redacted(store: Store) -> None:
    if supports(store, ErasingStore):
        await store.erase_redacted()


async def redact_one(
    store: Store,
    session: str,
    record: int,
    reason: str,
    by: str,
    field: str = "",
    clock: Clock | None = None,
    *,
    caller: str = "",
    searches: bool = True,
) -> Redaction:
    """Remove content from a record of a session, and leave the files of the store as they are.

    With `caller`, its name is removed as well. Without `searches`, other places of the content are not looked for.
    """
    redactable = check_redactable(store, reason, by)
    infos = await store.sessions(limit=SESSIONS_MAX)
    sharing = find_sharing_sessions(infos, session, record)
    now = (clock or SystemClock()).now()
    async with AsyncExitStack() as held:
        for name in sharing:
            await wait_for_cancelled(name)  # a stream that was just left
            await held.enter_async_context(store.lease(name))
        logs = {name: await store.read(name) for name in {session, *sharing}}
        # A session that was listed may have been deleted before its lease was held.
        sharing = tuple(name for name in sharing if logs[name])
        logs = {name: found for name, found in logs.items() if found or name == session}
        records = logs[session]
        if not records:
            raise SessionNotFound(f"no session {session!r} in this store; `bridle sessions` lists them")
        if not 1 <= record <= len(records):
            raise MisuseError(
                f"session {session!r} has {len(records)} records; `bridle show {session} --as log` lists them"
            )
        old = records[record - 1]
        body = redact_data(record, old.data, field, caller)
        blobs = await read_blobs(store, old)
        message = _find_changed_message(records, old, body)
        redactor = _Redactor(redactable, infos, reason.strip(), by.strip(), now)
        # Copies first: after a crash, the same redaction can be repeated and finds those that are left.
        await redactor.redact_control_request(sharing, old)
        requests = () if field.startswith(RAW) else await redactor.redact_later_requests(logs, record)
        dropped, kept = await redactor.redact(session, old, body, field, message)
        last = (await store.read(session))[-1]
    texts = [*body.removed, *(blob.decode(errors="replace") for blob in blobs)] if searches else []
    found, searched_all = await find_remaining(
        store, await store.sessions(limit=SESSIONS_MAX), session, texts
    )
    return Redaction(
        session=session,
        record=record,
        digest=body.digest,
        field=field,
        reason=redactor.reason,
        by=redactor.by,
        sessions=sharing,
        dropped_blobs=dropped,
        kept_blobs=kept,
        found_in=tuple(seq for each in found if each.session == session for seq in each.records),
        found_elsewhere=tuple(each for each in found if each.session != session),
        searched_all=searched_all,
        head=f"{last.seq}:{last.hash}",
        emptied_requests=requests,
    )


class _RedactableLog(Store, RedactableStore, Protocol):
    pass


def check_redactable(store: Store, reason: str, by: str) -> _RedactableLog:
    """The store; raises `MisuseError` if it keeps all content, or if reason or author are missing."""
    if not reason.strip() or not by.strip():
        raise MisuseError("a redaction records its reason and its author; give both")
    if not supports(store, RedactableStore):
        raise MisuseError(f"{type(store).__name__} cannot remove content from records")
    return store


async def redact_log_record(
    store: Store, log: str, record: Record, reason: str, by: str, now: float, caller: str = ""
) -> RedactedBody:
    """Remove all content of a record of a log that is no session: of notes, or of an evaluation.

    Such a log has several writers: if another one appends meanwhile, it is tried again.
    """
    redactable = check_redactable(store, reason, by)
    body = redact_data(record.seq, record.data, caller=caller)
    for attempt in range(CONFLICTS_MAX):
        redactor = _Redactor(
            redactable, await store.sessions(limit=SESSIONS_MAX), reason.strip(), by.strip(), now
        )
        try:
            await redactor.redact(log, record, body)
        except Conflict:
            if attempt == CONFLICTS_MAX - 1:
                raise
            continue
        break
    return body


class _Redactor(NamedTuple):
    """Removes content from records, for one reason; the caller holds the leases of all sessions that share them."""

    store: _RedactableLog
    infos: Sequence[SessionInfo]
    reason: str
    by: str
    now: float

    async def redact(
        self, log: str, old: Record, body: RedactedBody, field: str = "", message: str = ""
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Replace the record and record that; returns the blobs that were dropped and those that stay."""
        sharing = find_sharing_sessions(self.infos, log, old.seq)
        blobs = tuple(hash_ for hash_ in old.event.required_blobs if hash_ not in body.event.required_blobs)
        event = ContentRedacted(
            record=old.seq,
            record_hash=old.hash,
            body=redaction_key(old.seq, body.data).rpartition(":")[2],
            digest=body.digest,
            field=field,
            blobs=blobs,
            message=message,
            reason=self.reason,
            by=self.by,
        )
        found = {name: await self.store.read(name) for name in {log, *sharing}}
        if not found[log]:
            raise Conflict(f"the log {log!r} was deleted while it was being redacted; nothing of it is left")
        lasts = {name: records[-1] for name, records in found.items() if records}
        evidence = {
            name: seal_record(last.seq + 1, max(self.now, last.at), event, last.hash)
            for name, last in lasts.items()
        }
        await self.store.redact(log, old.seq, body.data, evidence, blobs)
        kept = tuple([hash_ for hash_ in blobs if await self.store.get_blob(hash_) is not None])
        return tuple(hash_ for hash_ in blobs if hash_ not in kept), kept

    async def redact_control_request(self, sharing: Sequence[str], old: Record) -> None:
        """Remove the text of the control request that brought the content of a record."""
        request = getattr(old.event, "request", "")
        for name in map(control_log_name, sharing):
            for record in await self.store.read(name) if request else ():
                if record.hash != request:
                    continue
                try:
                    body = redact_data(record.seq, record.data)
                except MisuseError:
                    continue  # without content, or redacted already
                await self.redact(name, record, body)

    async def redact_later_requests(self, logs: Mapping[str, Sequence[Record]], seq: int) -> tuple[int, ...]:
        """Remove the kept bodies of later requests, which repeat the conversation; returns their records."""
        found: set[int] = set()
        for name in logs:
            for record in (await self.store.read(name))[seq:]:
                event = record.event
                if isinstance(event, CallOutcome) and event.raw is not None and event.raw.request:
                    body = redact_data(record.seq, record.data, RAW_REQUEST)
                    await self.redact(name, record, body, RAW_REQUEST)
                    found.add(record.seq)
        return tuple(sorted(found))


async def redact_blob(
    store: Store, session: str, blob: str, *, reason: str, by: str
) -> tuple[Redaction, ...]:
    """Remove a stored tool result, named by its hash or the start of it, with the excerpts that show it."""
    found = [
        record.seq
        for record in await store.read(check_session(session))
        if any(hash_.startswith(blob) for hash_ in record.event.required_blobs)
    ]
    if not blob or not found:
        raise MisuseError(f"no record of session {session!r} refers to blob {blob!r}")
    done = tuple([await redact_one(store, session, seq, reason, by) for seq in found])
    await _erase_redacted(store)
    return done


def _find_changed_message(records: Sequence[Record], old: Record, body: RedactedBody) -> str:
    """Id of the first message that changes; raises `MisuseError` if a call that is not finished would."""
    after_records = [
        msgspec.structs.replace(each, data=body.data, event=body.event) if each is old else each
        for each in records
    ]
    before, after = fold_log(records).state, fold_log(after_records).state
    if before.calls.batch.pending != after.calls.batch.pending:
        raise MisuseError(
            f"record {old.seq} belongs to a call that is not finished: resume or cancel the run, then redact it"
        )
    pairs = zip(before.conversation.transcript.messages, after.conversation.transcript.messages, strict=True)
    return next((one.id for one, other in pairs if one != other), "")
