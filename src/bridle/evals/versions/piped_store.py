"""The store of an evaluation in another process: every operation is a call to the process that has the store.

The other version thus never opens the user's file, whose format it may not know. Records pass as the bytes that were
sealed, so an event that one side does not know keeps its content and its hash.
"""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from secrets import token_bytes
from typing import Any

import msgspec

from bridle.ports.store import Lease, SessionInfo, Store
from bridle.values.base import Value
from bridle.values.record import Record, unseal_record

from .peer import Handler, Peer, PeerGone

SealedRecord = tuple[int, float, bytes, str, str]
"""Number, time, data, hash of the record before, hash."""


class Append(Value, kw_only=True):
    session: str
    after: int
    records: tuple[SealedRecord, ...]
    epoch: int | None = None


def _seal(records: Sequence[Record]) -> list[SealedRecord]:
    return [(each.seq, each.at, each.data, each.prev, each.hash) for each in records]


def _unseal(given: object) -> tuple[Record, ...]:
    sealed = msgspec.convert(given, tuple[SealedRecord, ...])
    return tuple(unseal_record(seq, at, data, prev, hash_) for seq, at, data, prev, hash_ in sealed)


class PipedStore:
    """A `Store` in the process that runs trials."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self.approval_key = token_bytes(32)
        """Secret for approval tokens; a trial and its answers happen in one process."""

    async def append(
        self, session: str, after: int, records: Sequence[Record], *, epoch: int | None = None
    ) -> None:
        given: dict[str, Any] = {"session": session, "after": after, "epoch": epoch}
        await self._peer.call("append", records=_seal(records), **given)

    async def read(self, session: str, after: int = 0, limit: int | None = None) -> Sequence[Record]:
        return _unseal(await self._peer.call("read", session=session, after=after, limit=limit))

    async def fork(self, session: str, at: int, new: str) -> None:
        await self._peer.call("fork", session=session, at=at, new=new)

    async def put_blob(self, data: bytes) -> str:
        return str(await self._peer.call("put_blob", data=data))

    async def get_blob(self, hash_: str) -> bytes | None:
        return msgspec.convert(await self._peer.call("get_blob", hash_=hash_), bytes | None)

    @asynccontextmanager
    async def lease(self, session: str, *, take_over: bool = False) -> AsyncGenerator[Lease]:
        number, epoch = msgspec.convert(
            await self._peer.call("lease", session=session, take_over=take_over), tuple[int, int]
        )
        try:
            yield Lease(session=session, epoch=epoch)
        finally:
            with suppress(PeerGone):  # the other side releases the leases of a process that is gone
                await self._peer.call("release", number=number)

    async def sessions(self, limit: int = 50) -> Sequence[SessionInfo]:
        return msgspec.convert(await self._peer.call("sessions", limit=limit), tuple[SessionInfo, ...])

    async def close(self) -> None:
        """Do nothing: the other process owns the store."""


class StoreServer:
    """Answers the calls of a `PipedStore`, and holds its leases."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._leases: dict[int, AsyncExitStack] = {}
        self.handlers: dict[str, Handler] = {
            "append": self._append,
            "read": self._read,
            "fork": self._call_store("fork"),
            "put_blob": self._put_blob,
            "get_blob": self._call_store("get_blob"),
            "lease": self._lease,
            "release": self._release,
            "sessions": self._call_store("sessions"),
        }

    async def close(self) -> None:
        """Release the leases of a process that has ended."""
        for number in tuple(self._leases):
            await self._release({"number": number})

    def _call_store(self, name: str) -> Handler:
        async def call(given: Mapping[str, object]) -> object:
            return msgspec.to_builtins(await getattr(self._store, name)(**given), builtin_types=(bytes,))

        return call

    async def _append(self, given: Mapping[str, object]) -> None:
        wanted = msgspec.convert(given, Append)
        records = _unseal(wanted.records)
        await self._store.append(wanted.session, wanted.after, records, epoch=wanted.epoch)

    async def _read(self, given: Mapping[str, Any]) -> object:
        return _seal(await self._store.read(**given))

    async def _put_blob(self, given: Mapping[str, object]) -> str:
        return await self._store.put_blob(msgspec.convert(given["data"], bytes))

    async def _lease(self, given: Mapping[str, Any]) -> tuple[int, int]:
        stack = AsyncExitStack()
        lease = await stack.enter_async_context(self._store.lease(**given))
        number = id(stack)
        self._leases[number] = stack
        return number, lease.epoch

    async def _release(self, given: Mapping[str, object]) -> None:
        if stack := self._leases.pop(msgspec.convert(given["number"], int), None):
            await stack.aclose()
