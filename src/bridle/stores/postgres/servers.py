"""The servers that use a store: each holds an advisory lock of two keys, the schema and its own number.

The lock is on the connection that holds the leases: PostgreSQL releases both when that connection ends. It is none of
the locks that pruning waits for.
"""

import zlib
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from asyncpg import exceptions as pg

from .driver_errors import LOST, explain_error
from .leases import Leases

if TYPE_CHECKING:
    from asyncpg import Connection

T = TypeVar("T")
SELECT_SERVERS = """
SELECT objid::bigint FROM pg_catalog.pg_locks
WHERE locktype = 'advisory' AND granted AND objsubid = 2 AND classid = $1::bigint::oid
    AND database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database())
"""
LOCK_SERVER = "SELECT pg_try_advisory_lock($1::int, $2::int)"
RELEASE_SERVER = "SELECT pg_advisory_unlock($1::int, $2::int)"


class ServerLocks:
    def __init__(self, leases: Leases, name: str, schema: str) -> None:
        self._leases, self._name = leases, name
        self._group = zlib.crc32(f"bridle\0servers\0{schema}".encode())

    async def announce(self, server: str) -> frozenset[str]:
        """Hold the lock of this server, also after its connection was lost; returns all servers that live."""

        async def act(connection: "Connection") -> frozenset[str]:
            found = await self._list(connection)
            if server not in found:
                await connection.fetchval(LOCK_SERVER, _sign(self._group), _sign(int(server, 16)))
                found = await self._list(connection)
            return found

        return await self._use(act)

    async def withdraw(self, server: str) -> None:
        async def act(connection: "Connection") -> None:
            if server in await self._list(connection):
                await connection.fetchval(RELEASE_SERVER, _sign(self._group), _sign(int(server, 16)))

        await self._use(act)

    async def _list(self, connection: "Connection") -> frozenset[str]:
        rows = await connection.fetch(SELECT_SERVERS, self._group)
        return frozenset(f"{row[0]:08x}" for row in rows)

    async def _use(self, act: "Callable[[Connection], Awaitable[T]]") -> T:
        try:
            return await self._leases.use_connection(act)
        except (pg.PostgresError, *LOST) as error:
            raise explain_error(self._name, error) from error


def _sign(number: int) -> int:
    """The number as PostgreSQL's signed integer of 32 bits."""
    return number - (1 << 32) if number >= 1 << 31 else number
