"""Removes content, sessions and unused blobs from the tables, and checks them as a whole.

Every removal is one transaction. The rows of the sessions that it concerns are locked first, so that no fork of them
begins meanwhile (rows.insert_fork).
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from asyncpg import exceptions as pg

from bridle.ports.store import UnusedBlob
from bridle.stores.chain import refers_to_blob
from bridle.stores.conflicts import check_evidence, diverged_append
from bridle.values.errors import Conflict, MisuseError, SessionNotFound, Unusable
from bridle.values.record import Record

from . import queries
from .rows import AppendJob, escape_nul, explain_refusal, insert_records, is_stored, unescape_nul

if TYPE_CHECKING:
    from asyncpg import Connection

GC_PRIVILEGES = {
    "DELETE": ("events", "sessions", "blobs"),
    "UPDATE": ("sessions", "removals"),
    "INSERT": ("removals",),
}
REDACTION_PRIVILEGES = {
    "UPDATE": ("events", "sessions", "blobs"),
    "INSERT": ("events",),
    "DELETE": ("blobs", "snapshots"),
}
LONG_SECONDS = 24 * 60 * 60
"""Longest time of a statement that reads or rewrites whole tables."""


async def redact_record(
    connection: "Connection",
    store: str,
    session: str,
    seq: int,
    data: bytes,
    evidence: Mapping[str, Record],
    blobs: Sequence[str],
    *,
    again: bool,
) -> str:
    """Replace the data of a record and append the evidence; `again` accepts a log where that has happened.

    Returns the id of its transaction, or of a later one.
    """
    async with connection.transaction():
        await check_privileges(connection, store, "bridle session redact", REDACTION_PRIVILEGES)
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
        transaction = str(await connection.fetchval("SELECT pg_current_xact_id()::text"))
        if again and all([await is_stored(connection, job) for job in jobs]):
            return transaction
        for job in jobs:
            await explain_refusal(connection, job)
        if len(await insert_records(connection, jobs)) != len(jobs):
            raise diverged_append(session, seq)
        await connection.execute(queries.UPDATE_DATA, owner, seq, data.decode())
        await connection.execute(queries.DELETE_SNAPSHOTS, [escape_nul(uid) for uid in sharing])
        # Appends lock the blobs that they refer to: one that came first is seen here, a later one waits and is refused.
        await connection.execute(queries.LOCK_BLOBS, list(blobs))
        await connection.execute("SET LOCAL statement_timeout = 0")
        for hash_ in blobs:
            mentions = await connection.fetch(queries.SELECT_MENTIONS, hash_, timeout=LONG_SECONDS)
            if not refers_to_blob(hash_, (data for (data,) in mentions)):
                await connection.execute("DELETE FROM blobs WHERE hash = $1", hash_)
    return transaction


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
    connection: "Connection", store: str, session: str, head: str, at: float, reason: str, *, again: bool
) -> None:
    """Delete a session and remember that it existed; `again` accepts that it is gone already."""
    async with connection.transaction():
        await check_privileges(connection, store, "bridle store gc", GC_PRIVILEGES)
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
        await check_privileges(connection, store, "bridle store gc", GC_PRIVILEGES)
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


async def vacuum_tables(connection: "Connection", transaction: str = "") -> str:
    """Let the server use the space of deleted rows again; the tables stay in use meanwhile.

    Returns the reason why it was not done, if it was not: only the owner of a table may do it, and rows that this
    transaction deleted stay while an older one may read them.
    """
    refusals: list[str] = []
    if transaction:
        older = [name for (name,) in await connection.fetch(queries.SELECT_OLDER_TRANSACTIONS, transaction)]
        refusals += [f"an older transaction is open: {', '.join(older)}"] if older else []

    def listen(_connection: object, message: pg.PostgresLogMessage) -> None:
        refusals.append(str(message))

    await connection.execute("SET statement_timeout = 0")
    connection.add_log_listener(listen)
    try:
        others = ", live" if await connection.fetchval("SELECT to_regclass('live') IS NOT NULL") else ""
        await connection.execute(f"VACUUM events, blobs, sessions, snapshots{others}", timeout=LONG_SECONDS)
    except pg.PostgresError as error:
        refusals.append(str(error))
    finally:
        connection.remove_log_listener(listen)
        await connection.execute("RESET statement_timeout")
    return refusals[0] if refusals else ""


async def check_privileges(
    connection: "Connection", store: str, command: str, needed: Mapping[str, Sequence[str]]
) -> None:
    """Raise `Unusable` with what to type if the role lacks a privilege: before anything is changed."""
    pairs = [(privilege, table) for privilege, tables in needed.items() for table in tables]
    role, *missing = await connection.fetchval(queries.SELECT_MISSING, *map(list, zip(*pairs, strict=True)))
    if missing:
        grants = "; ".join(f"GRANT {each} TO {role}" for each in missing)
        raise Unusable(f"store {store}: the user lacks privileges for {command}; type as its owner: {grants}")
