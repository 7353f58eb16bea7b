"""Contract of a store for session logs.

A store must keep records exactly as given and in order, must acknowledge an append only when it is durable,
and must reject (`Conflict`) an append that does not start right after its last record: writers are never
merged. It inspects two properties of an event only:

    unique_key      accepted once per session, records shared by a fork included; else `Conflict`
    required_blobs  must already be stored; else `MissingBlob`, so that no reference dangles

All methods may be called concurrently from any task of one event loop.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

from bridle.values.base import Value
from bridle.values.record import Record

if TYPE_CHECKING:
    from typing_extensions import TypeIs

T = TypeVar("T")


class SessionInfo(Value, kw_only=True):
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


class Lease(Value, kw_only=True):
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

        If cancelled while waiting, it ends when nothing can be appended any more: reading then shows which of the two
        happened.
        """
        ...

    async def read(self, session: str, after: int = 0, limit: int | None = None) -> Sequence[Record]:
        """Records numbered above `after`, at most the first `limit` of them; empty if there is no such session.

        Raises `Corrupt`, with the last good record, if they are not those that were appended. Reads no more than it
        returns, so that damage behind a page is found only by reading on.
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


class WatchableStore(Protocol):
    """Optional: a store that notices the appends of all processes, so that a reader need not read again and again."""

    async def wait_for_records(self, session: str, after: int) -> None:
        """Return when the session may have records numbered above `after`; may return early. Can be cancelled."""
        ...


class LiveStore(Protocol):
    """Optional: a store through which viewers in other processes see a reply while it is being written.

    Nothing of it is durable, and it is no part of a log. Anything may be lost.
    """

    async def publish_live(self, session: str, data: bytes) -> bool:
        """Show this to those who read it, in place of what was shown before; empty data removes it.

        Returns False, and stores nothing, if no process has read it lately.
        """
        ...

    async def read_live(self, session: str) -> bytes:
        """The text that is shown now; empty if there is none. For some seconds the caller counts as a viewer."""
        ...


class LeaseInspectable(Protocol):
    """Optional: a store that can tell whether a session is driven, without disturbing those who take its lease."""

    async def is_leased(self, session: str) -> bool:
        """True if a live process holds the lease of the session."""
        ...


class ServerListStore(Protocol):
    """Optional: a store through which servers notice that another one has ended, however it ended."""

    async def announce_server(self, server: str) -> Collection[str]:
        """List this server until it is withdrawn or its process ends; returns all that are listed now.

        `server` is a number of 8 hex digits. Called again, it renews what a lost connection has ended.
        """
        ...

    async def withdraw_server(self, server: str) -> None:
        """List this server no more; does nothing if it is not listed."""
        ...


class RestartableStore(Protocol):
    """Optional: a store in which a log can start again, so that logs of past periods take no space."""

    async def restart(self, session: str, head: str, record: Record) -> None:
        """Discard all records of a log and start it again with `record`, in one atomic step.

        Raises `Conflict` unless `head` is the hash of its last record. Sessions are never restarted: raises
        `MisuseError` unless the name starts with `budget:` or `control:`, and if another log shares its records.
        """
        ...


class RedactableStore(Protocol):
    """Optional: a store from which the content of a record can be removed."""

    async def redact(
        self, session: str, seq: int, data: bytes, evidence: Mapping[str, Record], blobs: Sequence[str] = ()
    ) -> None:
        """Replace the data of record `seq` of a session and append the `evidence`, in one atomic step.

        The record keeps its number, time and hash. `evidence` has one record per session that contains the record
        (the session itself, and forks that share it): its event has the unique key `redaction_key(seq, data)`, and
        `read` accepts the changed data because of it. Also removes those of these blobs, and of a blob that held the
        old data, that no record refers to afterwards: an append that comes first keeps them, a later one is refused.
        The old content must not stay readable in the store's files; a store that cleans them later is an
        `ErasingStore`.

        Raises `Conflict` if the evidence does not continue each of these sessions, or one is missing.
        """
        ...


class ErasingStore(Protocol):
    """Optional: a store whose files keep redacted content until they are cleaned."""

    async def erase_redacted(self) -> None:
        """Clean the files, once after one or several redactions; warns if content stays somewhere."""
        ...


class StoredSnapshot(Value, kw_only=True):
    """A log as it was folded once, up to a record: derived, never the truth, and never needed."""

    seq: int
    """Number of that record."""
    head: str
    """Its hash."""
    fold_version: str
    """Code that folded the log; other code folds the log itself."""
    data: bytes
    digest: str
    """Proof that this user's code made it, which the store does not check."""
    replaced: str = ""
    """Reason why the snapshot before this one was not used."""


RawRecord = tuple[float, bytes, bytes]
"""A record as it is stored, not verified: time, the 32 bytes of its hash, data."""
RestoreSnapshot = Callable[[StoredSnapshot, Iterator[RawRecord]], T | None]
"""Uses a snapshot and the records that it covers, which it must verify; None if they do not fit together."""


class SnapshotStore(Protocol):
    """Optional: a store that keeps a snapshot beside a log, so that a long log need not be folded at each start.

    Losing a snapshot loses nothing. Redacting a record removes the snapshots of all sessions that contain it, in the
    same atomic step; so does removing the session.
    """

    async def read_with_snapshot(
        self, session: str, restore: RestoreSnapshot[T]
    ) -> tuple[T | None, Sequence[Record]]:
        """Read a whole log: what `restore` makes of its snapshot, and the records after that, verified.

        Without a snapshot, or if it does not fit, the first is None and the second are all records.
        `restore` may be called in another thread. Raises `Corrupt` like `read`.
        """
        ...

    async def write_snapshot(self, session: str, snapshot: StoredSnapshot) -> None:
        """Keep this snapshot in place of the one before; does nothing unless its record is the last of the log.

        A log that was redacted since it was folded has another last record.
        """
        ...

    def explain_snapshot_removal(self, session: str) -> str:
        """Statement to type into the database that removes the snapshot of this session."""
        ...


class UnusedBlob(Value, kw_only=True):
    hash: str
    size: int


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


class SupportsApprovalKey(Protocol):
    """Optional: a store that cannot have been copied from elsewhere and has a secret key."""

    @property
    def approval_key(self) -> bytes:
        """Key that proves approvals in this store; never written anywhere."""
        ...


def supports(store: object, protocol: type[T]) -> "TypeIs[T]":
    """True if a store has every member of one of the optional contracts.

    A wrapper that passes attributes on has them too. `isinstance` would not see those since Python 3.12, and it
    takes a tenth of the time of a short run.
    """
    contract: type = protocol
    return all(hasattr(store, name) for name in _list_members(contract))


@cache
def _list_members(protocol: type) -> tuple[str, ...]:
    return tuple(name for name in vars(protocol) if not name.startswith("_"))
