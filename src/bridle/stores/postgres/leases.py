"""Locks that give a session one driver at a time: advisory locks of one connection.

The server releases them when the connection ends, however it ends. The connection is shared by all leases of a store,
because a server has few connections. If it is lost while leases are held, the locks are taken again at once, and
every `RETAKE_SECONDS` while the server is away; a session that another process has locked by then is lost to it.

Each epoch of a session has a lock of its own, so a takeover does not wait for a holder that does not answer.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from asyncpg import exceptions as pg

from bridle.stores.conflicts import session_in_use, taken_over
from bridle.values.errors import BridleError, SessionNotFound

from . import queries
from .connections import Connections
from .driver_errors import LOST, explain_error
from .rows import escape_nul
from .tables import make_lock_key

if TYPE_CHECKING:
    from asyncpg import Connection

T = TypeVar("T")
RETAKE_SECONDS = 0.5
NOTICE_SECONDS = (0.01, 0.02, 0.04, 0.08, 0.15, 0.3, 0.4)
"""Pauses between attempts to take a lock: the server notices a moment late that the process of its owner was killed."""

LeaseKey = tuple[str, int]
"""Session and epoch."""


class Leases:
    """The leases that this store holds."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._connection: Connection | None = None
        self._turn = asyncio.Lock()
        self._held: set[LeaseKey] = set()
        self._lost: set[LeaseKey] = set()
        """Leases that another process has, because the connection was lost; their holders still believe in them."""
        self._retaking: asyncio.Task[None] | None = None
        self._is_closing = False
        self.shared_key = make_lock_key("leases", connections.address.schema)
        """Lock that every lease shares, and pruning excludes."""

    async def read_epoch(self, session: str) -> int:
        found = await self._connections.use(
            lambda connection: connection.fetchval(
                "SELECT epoch FROM sessions WHERE uid = $1", escape_nul(session)
            )
        )
        return int(found or 0)

    async def is_held(self, session: str) -> bool:
        """True if a connection of any process holds the lease of the session."""
        key = self._lock_key((session, await self.read_epoch(session)))
        halves = key >> 32 & 0xFFFFFFFF, key & 0xFFFFFFFF
        return bool(
            await self._connections.use(lambda connection: connection.fetchval(queries.SELECT_LEASE, *halves))
        )

    async def take(self, session: str, *, take_over: bool) -> LeaseKey:
        """Lock a session; raises `Conflict` if it is in use."""
        key = session, await self.read_epoch(session) + take_over
        if take_over:  # before the lock: a process that is paused with it would keep others from taking over
            async with self._turn:  # without a connection for the lock, the session stays with its owner
                await self._connect()
            await self._connections.use(lambda connection: raise_epoch(connection, *key), retry=False)
        for pause in (*NOTICE_SECONDS, None):
            async with self._turn:
                # The same connection could lock it twice.
                if key not in self._held and await self._lock(await self._connect(), key):
                    self._held.add(key)
                    return key
            if pause is None or key in self._held:
                break
            await asyncio.sleep(pause)
        raise session_in_use(session)

    async def release(self, key: LeaseKey) -> None:
        async with self._turn:
            self._lost.discard(key)
            if key not in self._held:
                return
            self._held.discard(key)
            if self._connection is None or self._connection.is_closed():
                return
            try:
                await self._connection.execute(queries.RELEASE_LEASE, self._lock_key(key), self.shared_key)
            except BaseException as error:
                # Ending the connection releases all its locks; those still held are taken again.
                self._connection.terminate()
                if not isinstance(error, (pg.PostgresError, *LOST)):
                    raise

    async def use_connection(self, act: "Callable[[Connection], Awaitable[T]]") -> T:
        """Run statements on the connection of the locks."""
        async with self._turn:
            return await act(await self._connect())

    async def confirm(self, key: LeaseKey) -> None:
        """Take the locks again if their connection was lost; raises `Conflict` if another process has this one now."""
        if key in self._held and (self._connection is None or self._connection.is_closed()):
            async with self._turn:
                await self._connect()
        # guard: lost-lease
        if key in self._lost:
            raise session_in_use(key[0])

    async def _connect(self) -> "Connection":
        """Return the connection of the locks; a new one has all locks again that are still free."""
        if self._connection is None or self._connection.is_closed():
            connection = await self._connections.open()
            lost = [key for key in self._held if not await self._lock(connection, key)]
            self._held.difference_update(lost)
            self._lost.update(lost)
            self._connection = connection
            connection.add_termination_listener(self._start_retaking)
        return self._connection

    def _start_retaking(self, _connection: object) -> None:
        """Without its locks, a run that only waits would look as if its process were gone."""
        if self._held and not self._is_closing and (self._retaking is None or self._retaking.done()):
            self._retaking = asyncio.create_task(self._retake_locks())

    async def _retake_locks(self) -> None:
        while self._held and not self._is_closing:
            try:
                async with self._turn:
                    await self._connect()
                    return
            except BridleError:
                await asyncio.sleep(RETAKE_SECONDS)  # the next append reports it if this lasts

    def stop_retaking(self) -> None:
        self._is_closing = True

    async def _lock(self, connection: "Connection", key: LeaseKey) -> bool:
        try:
            return bool(await connection.fetchval(queries.TRY_LEASE, self._lock_key(key), self.shared_key))
        except BaseException as error:
            connection.terminate()  # the lock may have been taken
            if isinstance(error, (pg.PostgresError, *LOST)):
                raise explain_error(self._connections.address.name, error) from error
            raise

    def _lock_key(self, key: LeaseKey) -> int:
        return make_lock_key("lease", self._connections.address.schema, *key)


async def raise_epoch(connection: "Connection", session: str, epoch: int) -> None:
    """Set the epoch of a session, durably; raises `Conflict` if another process was faster."""
    stored = await connection.fetchval("SELECT epoch FROM sessions WHERE uid = $1", escape_nul(session))
    if stored is None:
        raise SessionNotFound(f"there is no session {session!r} to take over")
    done = await connection.execute(
        "UPDATE sessions SET epoch = $2 WHERE uid = $1 AND epoch = $2 - 1", escape_nul(session), epoch
    )
    if done != "UPDATE 1":
        raise taken_over(session)
