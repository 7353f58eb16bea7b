"""Contract of a store for session logs.

A store must keep records exactly as given and in order, must acknowledge an append only when it is durable,
and must reject (`Conflict`) an append that does not start right after its last record: writers are never
merged. It inspects two properties of an event only:

    unique_key      accepted once per session, records shared by a fork included; else `Conflict`
    required_blobs  must already be stored; else `MisuseError`, so that no reference dangles

All methods may be called concurrently from any task of one event loop.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Protocol, runtime_checkable

from bridle.values.base import Value
from bridle.values.record import Record


class SessionInfo(Value):
    id: str
    length: int
    """Number of records, shared ones included."""
    created_at: float
    """Time of its own first record; for a fork without one, of the record it forked at."""
    updated_at: float
    """Time of its last record."""
    parent: str = ""
    """Session that this one was forked from."""
    forked_at: int = 0


class Lease(Value):
    """Exclusive right to drive a session, as long as the session has this epoch."""

    session: str
    epoch: int
    """Number of takeovers of the session; a writer with an older epoch is refused."""


class Store(Protocol):
    async def append(
        self, session: str, after: int, records: Sequence[Record], *, epoch: int | None = None
    ) -> None:
        """Append records, the first of which has number `after + 1`; all of them or none.

        `epoch` is that of the caller's lease: raises `Conflict` if the session was taken over since. A caller
        without a lease gives none.

        If cancelled while waiting, only reading shows which of the two happened.
        """
        ...

    async def read(self, session: str, after: int = 0) -> Sequence[Record]:
        """Records numbered above `after`; empty if there is no such session.

        Raises `Corrupt`, with the last good record, if they are not those that were appended.
        """
        ...

    async def fork(self, session: str, at: int, new: str) -> None:
        """Start `new` as a branch that shares the first `at` records.

        Must not copy them.

        Raises `SessionNotFound`; `MisuseError` if there is no record `at`; `Conflict` if `new` exists.
        """
        ...

    async def put_blob(self, data: bytes) -> str:
        """Store bytes under their SHA-256 (in hex), which is returned once they are durable.

        Equal bytes are stored once; no session owns them. May be cancelled and repeated: a partial write is
        never visible.
        """
        ...

    async def get_blob(self, hash_: str) -> bytes | None:
        """Bytes stored under the hash; None if there are none. Raises `Corrupt` if they do not match it."""
        ...

    def lease(self, session: str, *, take_over: bool = False) -> AbstractAsyncContextManager[Lease]:
        """Exclusive right to drive this session; entering it raises `Conflict` if a live process holds it.

        Must be released automatically when the holder's process ends, however it ends.

        `take_over` is for a holder that is alive and does not answer: it raises the epoch of the session, durably and
        in one atomic step, so that the holder's later appends are refused. Raises `SessionNotFound` if there is no
        such session.
        """
        ...

    async def sessions(self, limit: int = 50) -> Sequence[SessionInfo]:
        """The most recently updated sessions, newest first."""
        ...

    async def close(self) -> None:
        """Close the store; may be called twice. Everything acknowledged stays stored."""
        ...


@runtime_checkable
class RepairableStore(Protocol):
    """Optional: a store whose logs can lose their end and be continued afterwards."""

    async def read_intact(self, session: str) -> Sequence[Record]:
        """Records before the first one that is missing or damaged."""
        ...

    async def repair(self, session: str, record: Record, *, epoch: int | None = None) -> None:
        """Append to a torn log (`Corrupt.torn`), right after its last good record.

        Discards the torn end in the same atomic step. Raises `Conflict` if the log is intact, `Corrupt` if it
        is damaged in another way. `epoch` as in `append`.
        """
        ...


@runtime_checkable
class WatchableStore(Protocol):
    """Optional: a store that notices the appends of all processes, so that a reader need not read again and again."""

    async def wait_for_records(self, session: str, after: int) -> None:
        """Return when the session may have records numbered above `after`; may return early. Can be cancelled."""
        ...


@runtime_checkable
class LeaseInspectable(Protocol):
    """Optional: a store that can tell whether a session is driven, without disturbing those who take its lease."""

    async def is_leased(self, session: str) -> bool:
        """True if a live process holds the lease of the session."""
        ...


@runtime_checkable
class RestartableStore(Protocol):
    """Optional: a store in which a log can start again, so that logs of past periods take no space."""

    async def restart(self, session: str, head: str, record: Record) -> None:
        """Discard all records of a log and start it again with `record`, in one atomic step.

        Raises `Conflict` unless `head` is the hash of its last record. Sessions are never restarted: raises
        `MisuseError` unless the name starts with `budget:` or `control:`, and if another log shares its records.
        """
        ...


@runtime_checkable
class RedactableStore(Protocol):
    """Optional: a store from which the content of a record can be removed."""

    async def redact(
        self, session: str, seq: int, data: bytes, evidence: Mapping[str, Record], blobs: Sequence[str] = ()
    ) -> None:
        """Replace the data of record `seq` of a session and append the `evidence`, in one atomic step.

        The record keeps its number, time and hash. `evidence` has one record per session that contains the record
        (the session itself, and forks that share it): its event has the unique key `redaction_key(seq, data)`, and
        `read` accepts the changed data because of it. Also removes these blobs, and a blob that held the old data.
        The old content must not stay readable in the store's files; a store that cannot ensure that warns.

        Raises `Conflict` if the evidence does not continue each of these sessions, or one is missing.
        """
        ...


class UnusedBlob(Value):
    hash: str
    size: int


@runtime_checkable
class PrunableStore(Protocol):
    """Optional: a store that can be checked as a whole, pruned and copied while it is in use."""

    async def check_file(self) -> Sequence[str]:
        """List what is wrong with the store as a whole, beyond what reading its sessions reports."""
        ...

    async def remove_session(self, session: str, head: str, *, at: float, reason: str) -> None:
        """Remove a session and record that, in one atomic step; the caller holds its lease.

        Raises `Conflict` unless `head` is the hash of its last record, `MisuseError` if a fork shares its records.
        """
        ...

    async def remove_unused_blobs(self, *, dry_run: bool) -> Sequence[UnusedBlob]:
        """Remove the blobs that no record mentions, and list them. Raises `Conflict` while a run is in progress."""
        ...

    async def shrink_file(self) -> None:
        """Give unused space back to the disk."""
        ...

    async def back_up(self, target: Path) -> None:
        """Copy the store to a new file; the copy is durable when this returns."""
        ...


@runtime_checkable
class SupportsApprovalKey(Protocol):
    """Optional: a store that cannot have been copied from elsewhere and has a secret key."""

    @property
    def approval_key(self) -> bytes:
        """Key that proves approvals in this store; never written anywhere."""
        ...
