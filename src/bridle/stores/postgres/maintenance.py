"""Removes content, sessions and unused blobs from the tables, and checks them as a whole.

Every removal is one transaction. The rows of the sessions that it concerns are locked first, so that no fork of them
begins meanwhile (rows.insert_fork).
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from bridle.ports.store import UnusedBlob
from bridle.stores.conflicts import check_evidence, diverged_append
from bridle.values.errors import Conflict, MisuseError, SessionNotFound
from bridle.values.record import Record

from . import queries
from .rows import AppendJob, escape_nul, explain_refusal, insert_records, is_stored, unescape_nul

if TYPE_CHECKING:
    from asyncpg import Connection

LONG_SECONDS = 24 * 60 * 60
"""Longest time of a statement that reads or rewrites whole tables."""


async def redact_record(
    connection: "Connection",
    session: str,
    seq: int,
    data: bytes,
    evidence: Mapping[str, Record],
    blobs: Sequence[str],
    *,
    again: bool,
) -> None:
    """Replace the data of a record and append the evidence; `again` accepts a log where that has happened."""
    async with connection.transaction():
        owner = await connection.fetchval(queries.SELECT_OWNER, escape_nul(session), seq)
        if owner is None:
            raise diverged_append(session, seq)
        sharing = await _lock_sharing(connection, owner, seq)
        check_evidence(session, seq, sharing, evidence)
        jobs = []
        for uid in sharing:
            record = evidence[uid]
            key = record.event.unique_key
            jobs.append(AppendJob(uid, record.seq - 1, (record,), (key,) if key else (), None))
        if again and all([await is_stored(connection, job) for job in jobs]):
            return
        written = await insert_records(connection, jobs)
        for place, job in enumerate(jobs):
            if place not in written:
                await explain_refusal(connection, job)
                raise diverged_append(job.session, job.after)
        await connection.execute(queries.UPDATE_DATA, owner, seq, data.decode())
        await connection.execute("DELETE FROM blobs WHERE hash = ANY($1)", list(blobs))


async def _lock_sharing(connection: "Connection", owner: int, seq: int) -> list[str]:
    """Lock the rows of all sessions that contain the record, and return their ids."""
    locked: set[int] = set()
    while True:
        sharing = await connection.fetch(queries.SELECT_SHARING, owner, seq)
        if locked.issuperset(row["sid"] for row in sharing):
            return [unescape_nul(row["uid"]) for row in sharing]
        # A fork may have begun before its parent was locked: look again.
        locked = {row["sid"] for row in sharing}
        await connection.execute(queries.LOCK_SESSIONS, list(locked))


async def delete_session(
    connection: "Connection", session: str, head: str, at: float, reason: str, *, again: bool
) -> None:
    """Delete a session and remember that it existed; `again` accepts that it is gone already."""
    async with connection.transaction():
        row = await connection.fetchrow(queries.SELECT_FOR_UPDATE, escape_nul(session))
        if row is None:
            if again and await connection.fetchval(queries.SELECT_REMOVAL, escape_nul(session), head):
                return
            raise SessionNotFound(f"there is no session {session!r} to remove")
        if row["head"] != head:
            raise Conflict(f"session {session!r} was written to by another process; it is not removed")
        if await connection.fetchval(queries.SELECT_FORK, row["sid"]):
            raise MisuseError(f"session {session!r} shares records with a fork; it is not removed")
        await connection.execute(
            queries.INSERT_REMOVAL, escape_nul(session), row["seq"], head, at, escape_nul(reason)
        )
        await connection.execute("DELETE FROM events WHERE sid = $1", row["sid"])
        await connection.execute("DELETE FROM sessions WHERE sid = $1", row["sid"])


async def select_unused_blobs(connection: "Connection") -> tuple[UnusedBlob, ...]:
    """The blobs that no record mentions. Any text that looks like a hash counts as a mention."""
    async with connection.transaction():
        await connection.execute("SET LOCAL statement_timeout = 0")
        found = await connection.fetch(queries.SELECT_UNUSED_BLOBS, timeout=LONG_SECONDS)
    return tuple(UnusedBlob(hash=hash_, size=size) for hash_, size in found)


async def delete_unused_blobs(connection: "Connection", lock_key: int, store: str) -> tuple[UnusedBlob, ...]:
    """Delete them while no session is driven: a run puts a blob before the record that refers to it."""
    async with connection.transaction():
        if not await connection.fetchval("SELECT pg_try_advisory_xact_lock($1)", lock_key):
            raise Conflict(f"a session of {store} is in use by a run; wait for that run or stop it")
        unused = await select_unused_blobs(connection)
        await connection.execute(
            "DELETE FROM blobs WHERE hash = ANY($1)", [blob.hash for blob in unused], timeout=LONG_SECONDS
        )
    return unused


async def check_tables(connection: "Connection") -> tuple[str, ...]:
    """List what is wrong with the tables as a whole, beyond the sessions that reading verifies."""
    async with connection.transaction():
        await connection.execute("SET LOCAL statement_timeout = 0")
        blobs = await connection.fetch(queries.SELECT_DAMAGED_BLOBS, timeout=LONG_SECONDS)
        surplus = await connection.fetch(queries.SELECT_SURPLUS, timeout=LONG_SECONDS)
    return (
        *(f"blob {hash_} is not what was written" for (hash_,) in blobs),
        *(
            f"session {unescape_nul(uid)!r} has a record {seq} outside of its log of {length} records"
            for uid, seq, length in surplus
        ),
    )


async def vacuum_tables(connection: "Connection") -> None:
    """Let the server use the space of deleted rows again; the tables stay in use meanwhile."""
    await connection.execute("SET statement_timeout = 0")
    try:
        await connection.execute("VACUUM events, blobs, sessions", timeout=LONG_SECONDS)
    finally:
        await connection.execute("RESET statement_timeout")
