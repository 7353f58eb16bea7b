"""Checks and errors shared by all stores, so that every store refuses the same things in the same words.

A batch whose records do not follow one another is the caller's mistake (`MisuseError`). A valid batch that
does not continue from the end of the session is a `Conflict`: another writer appended first, and the caller
has to read the session again.
"""

from collections.abc import Iterable, Mapping, Sequence

from bridle.values.budget import BUDGET_LOG_PREFIX
from bridle.values.calls import CONTROL_LOG_PREFIX
from bridle.values.errors import Conflict, MissingBlob, MisuseError
from bridle.values.evals import EVAL_LOG_PREFIX
from bridle.values.memory import CALLER_NOTES_PREFIX, NOTES_PREFIX
from bridle.values.record import GENESIS, Record

RESERVED_PREFIXES = (
    BUDGET_LOG_PREFIX, NOTES_PREFIX, CALLER_NOTES_PREFIX, CONTROL_LOG_PREFIX, EVAL_LOG_PREFIX,
)  # fmt: skip
"""Beginnings of the names of logs that are not sessions."""


def check_batch(session: str, after: int, records: Sequence[Record]) -> dict[str, int]:
    """Return a batch's unique keys with their sequence numbers; raise if records are not consecutive."""
    seq, prev = after, records[0].prev
    names: dict[str, int] = {}
    for record in records:
        seq += 1
        if record.seq != seq or record.prev != prev:
            raise MisuseError(
                f"record {record.seq} for session {session!r} does not follow the one before it: "
                f"number {seq} was expected, sealed with the hash of number {seq - 1}"
            )
        prev = record.hash
        name = record.event.unique_key
        if name is not None:
            if name in names:
                raise repeated_name(session, name)
            names[name] = seq
    return names


def check_session_name(session: str) -> None:
    """Raise `MisuseError` unless the id is non-empty and encodable as UTF-8."""
    try:
        session.encode()
    except UnicodeEncodeError as error:
        raise MisuseError(f"session {session!r} is not a valid id: {error.reason}") from error
    if not session:
        raise MisuseError("a session id must not be empty")


def check_restart(session: str, record: Record) -> None:
    """Raise `MisuseError` unless the log is one of a budget or of control requests and the record is a first one."""
    if not session.startswith((BUDGET_LOG_PREFIX, CONTROL_LOG_PREFIX)):
        raise MisuseError(
            f"session {session!r} cannot start again: only logs of budgets ({BUDGET_LOG_PREFIX}…) "
            f"and of control requests ({CONTROL_LOG_PREFIX}…) can"
        )
    check_batch(session, 0, (record,))
    if record.prev != GENESIS:
        raise MisuseError(f"record 1 for session {session!r} is not sealed as a first record")


def restarted_fork(session: str) -> MisuseError:
    return MisuseError(f"log {session!r} cannot start again: it shares records with a fork")


def stale_append(session: str, length: int, after: int) -> Conflict:
    return Conflict(
        f"session {session!r} has {length} records, not {after}: another process wrote to it; "
        "read it again and continue from its end"
    )


def diverged_append(session: str, after: int) -> Conflict:
    return Conflict(
        f"record {after} of session {session!r} is not the one this append continues: "
        "another process wrote to it; read it again and continue from its end"
    )


def session_in_use(session: str) -> Conflict:
    return Conflict(f"session {session!r} is in use by another run; wait for that run or stop it")


def taken_over(session: str) -> Conflict:
    return Conflict(
        f"session {session!r} was taken over by another process, so this run may not write to it any more; "
        "read the session to see how it continues"
    )


def repeated_name(session: str, name: str) -> Conflict:
    return Conflict(
        f"session {session!r} already has {name!r}, which may be recorded only once; "
        "read the session again, that action has already been recorded"
    )


def missing_blob(session: str, hash_: str) -> MissingBlob:
    return MissingBlob(
        f"a record for session {session!r} refers to {hash_}, which is not in the store; put_blob comes first"
    )


def session_exists(session: str) -> Conflict:
    return Conflict(f"there is already a session {session!r}; choose another name for the fork")


def check_evidence(session: str, seq: int, sharing: Iterable[str], evidence: Mapping[str, Record]) -> None:
    """Raise `Conflict` unless every session that contains the record gets evidence of its redaction."""
    missing = ", ".join(repr(name) for name in sharing if name not in evidence)
    if missing:
        raise Conflict(
            f"record {seq} of session {session!r} is shared with {missing}: redact it there as well"
        )


def fork_beyond_end(session: str, length: int, at: int) -> MisuseError:
    return MisuseError(f"session {session!r} has {length} records: it cannot be forked at {at}")


def explain_snapshot_removal(schema: str, session: str) -> str:
    """SQL statement that removes the snapshot of a session; `schema` is the prefix of the tables."""
    uid = session.replace("'", "''")
    sids = f"SELECT sid FROM {schema}sessions WHERE uid = '{uid}'"  # noqa: S608 - for a person to type
    return f"DELETE FROM {schema}snapshots WHERE sid = ({sids})"  # noqa: S608 - for a person to type
