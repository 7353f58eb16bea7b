"""Removes content from a session's record, and records who did it and why.

The record keeps its number, time and hash, so the chain stays verifiable: the hash covers the original content, and
a `ContentRedacted` event later in the chain names the digest of what is left. A session that shares the record
gets the event as well, so that each log proves its own redactions.
"""

from collections.abc import Sequence
from contextlib import AsyncExitStack

import msgspec

from bridle.core.recovery.log_repair import fold_log
from bridle.core.redaction import RedactedBody, redact_data
from bridle.ports.clock import Clock
from bridle.ports.store import RedactableStore, Store
from bridle.run.clock import SystemClock
from bridle.run.validate_input import check_session
from bridle.values.base import Value
from bridle.values.calls import ContentRedacted, redaction_key
from bridle.values.errors import Corrupt, MisuseError, SessionNotFound
from bridle.values.record import Record, seal_record

from .transfer import SESSIONS_MAX, find_sharing_sessions

SEARCHED_CHARACTERS_MIN = 6
"""Shorter removed texts are not searched for in other records."""


class Redaction(Value):
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
    """Other records of the session that contain a removed text."""


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
    check_session(session)
    if not reason.strip() or not by.strip():
        raise MisuseError("a redaction records its reason and its author; give both")
    if not isinstance(store, RedactableStore):
        raise MisuseError(f"{type(store).__name__} cannot remove content from records")
    infos = await store.sessions(limit=SESSIONS_MAX)
    sharing = find_sharing_sessions(infos, session, record)
    async with AsyncExitStack() as held:
        for name in sharing:
            await held.enter_async_context(store.lease(name))
        logs = {name: await store.read(name) for name in {session, *sharing}}
        records = logs[session]
        if not records:
            raise SessionNotFound(f"no session {session!r} in this store; `bridle sessions` lists them")
        if not 1 <= record <= len(records):
            raise MisuseError(
                f"session {session!r} has {len(records)} records; `bridle log {session}` lists them"
            )
        old = records[record - 1]
        body = redact_data(record, old.data, field)
        blobs = tuple(hash_ for hash_ in old.event.required_blobs if hash_ not in body.event.required_blobs)
        kept = await _find_referenced(store, blobs, sharing, record) if blobs else ()
        dropped = tuple(hash_ for hash_ in blobs if hash_ not in kept)
        event = ContentRedacted(
            record=record,
            record_hash=old.hash,
            body=redaction_key(record, body.data).rpartition(":")[2],
            digest=body.digest,
            field=field,
            blobs=blobs,
            message=_find_changed_message(records, old, body),
            reason=reason.strip(),
            by=by.strip(),
        )
        now = (clock or SystemClock()).now()
        evidence = {
            name: seal_record(len(log) + 1, max(now, log[-1].at), event, log[-1].hash)
            for name, log in logs.items()
        }
        await store.redact(session, record, body.data, evidence, dropped)
    found = tuple(each.seq for each in records if each is not old and _contains(each, body.removed))
    return Redaction(
        session=session,
        record=record,
        digest=body.digest,
        field=field,
        reason=event.reason,
        by=event.by,
        sessions=sharing,
        dropped_blobs=dropped,
        kept_blobs=kept,
        found_in=found,
    )


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
    return tuple([await redact_record(store, session, seq, reason=reason, by=by) for seq in found])


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


async def _find_referenced(
    store: Store, blobs: Sequence[str], sharing: Sequence[str], seq: int
) -> tuple[str, ...]:
    """Those of the blobs that other records of the store refer to."""
    found: set[str] = set()
    for info in await store.sessions(limit=SESSIONS_MAX):
        try:
            records = await store.read(info.id)
        except Corrupt:
            return tuple(blobs)  # a damaged session may refer to them
        for record in records:
            if record.seq != seq or info.id not in sharing:
                found.update(record.event.required_blobs)
    return tuple(hash_ for hash_ in blobs if hash_ in found)


def _contains(record: Record, texts: Sequence[str]) -> bool:
    searched = (text for text in texts if len(text) >= SEARCHED_CHARACTERS_MIN)
    return any(msgspec.json.encode(text)[1:-1] in record.data for text in searched)
