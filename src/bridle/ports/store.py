"""What keeps the log.

A store must keep records exactly as given and in order, must acknowledge an append
only when it will survive, and must refuse (`Conflict`) an append that does not start
right after the last record it has: a second writer is never merged.  It never looks
inside an event except for its `once` name, of which it keeps each only once a session,
what a fork shares with its parent included: the second is a `Conflict`; and for what it
`refers` to: a record whose blobs are not there is refused (`MisuseError`), so that nothing
in a log can point at nothing.
All methods may be called from any task of one event loop at the same time.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Protocol, runtime_checkable

from bridle.values.base import Value
from bridle.values.record import Record


class SessionInfo(Value):
    id: str
    length: int
    """How many records its line has, those before a fork included."""
    created_at: float
    """Time of its own first record; of a fork that has none yet, of the record it forked at."""
    updated_at: float
    """Time of the last record of its line."""
    parent: str = ""
    """The session this one was forked from."""
    forked_at: int = 0


class Store(Protocol):
    async def append(self, session: str, after: int, records: Sequence[Record]) -> None:
        """Add records whose first has number `after + 1`; all of them or none.

        Cancelled while it waits, which of the two it was shows only by reading.
        """
        ...

    async def read(self, session: str, after: int = 0) -> Sequence[Record]:
        """Records with a number above `after`; empty when there is no such session.

        Raises `Corrupt` when they are not those that were appended, and says which is the last good one.
        """
        ...

    async def fork(self, session: str, at: int, new: str) -> None:
        """Start `new` as a branch that shares the first `at` records.  Must not copy them.

        Raises `SessionNotFound`; `MisuseError` when there is no record `at`; `Conflict` when there
        is a session `new`.
        """
        ...

    async def put_blob(self, data: bytes) -> str:
        """Keep bytes under their SHA-256 (in hex), which is returned when they will survive.

        Equal bytes are kept once, whoever puts them; no session owns them.  May be cancelled and
        repeated: there is nothing half-way to find.
        """
        ...

    async def get_blob(self, hash_: str) -> bytes | None:
        """What was put under that hash, None when nothing was.  Raises `Corrupt` when it is not that."""
        ...

    def lease(self, session: str) -> AbstractContextManager[None]:
        """Keep everybody else from driving this session; `Conflict` when somebody alive does already.

        Must be let go of by itself when its holder's process ends, however that happens.
        """
        ...

    async def sessions(self, limit: int = 50) -> Sequence[SessionInfo]:
        """The sessions touched last, newest first."""
        ...

    async def close(self) -> None:
        """May be called twice.  Everything acknowledged is kept."""
        ...


@runtime_checkable
class RepairableStore(Protocol):
    """What a store may be as well: one whose lines can lose their end, and go on after that."""

    async def read_intact(self, session: str) -> Sequence[Record]:
        """The records up to the first that is missing or not what was appended."""
        ...

    async def repair(self, session: str, record: Record) -> None:
        """Append to a torn line (`Corrupt.torn`): the record follows the last good one.

        What was torn is given up in the same step, all of it or nothing.  Raises `Conflict` when the line is
        whole, `Corrupt` when it is not just torn.
        """
        ...


@runtime_checkable
class SupportsApprovalKey(Protocol):
    """What a store may be as well: one that cannot come from elsewhere and has a key of its own."""

    @property
    def approval_key(self) -> bytes:
        """Proves approvals in this store; never written anywhere."""
        ...
