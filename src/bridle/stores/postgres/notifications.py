"""Tells other processes that sessions have new records, and hears it from them.

A writer sends one notification for all sessions written in the last `COALESCE_SECONDS`, outside of the transactions
that wrote them: inside, the server would commit such transactions one at a time. A notification is only a hint. It can
be lost (the writer died first, the listener was not connected), so a waiting reader also looks every `LOOK_SECONDS`,
and reads by number, which cannot skip a record.

Everybody who may connect to the database can listen, so sessions are named by a hash.

Replies that are being received are in a table of their own: one row per session that is watched. The table is not
logged (UNLOGGED): it reaches no write-ahead log and no standby. It is made when a store is opened. A viewer makes the
row and touches it while it reads; without a fresh one nothing is written.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING

from asyncpg import exceptions as pg

from bridle.values.errors import BridleError

from .connections import Connections
from .driver_errors import LOST, explain_error
from .rows import escape_nul

if TYPE_CHECKING:
    from asyncpg import Connection

COALESCE_SECONDS = 0.01
LOOK_SECONDS = 1.0
PAYLOAD_NAMES_MAX = 400
"""Sessions in one notification, whose payload has less than 8,000 bytes; with more, it wakes every reader."""

PUBLISH_LIVE = "UPDATE live SET data = $2 WHERE uid = $1 AND read_at > now() - interval '5 seconds'"
REMOVE_LIVE = "UPDATE live SET data = '' WHERE uid = $1 AND data <> ''"
REMOVE_LEFT_LIVE = "DELETE FROM live WHERE read_at < now() - interval '10 minutes'"
READ_LIVE = """
WITH reading AS (
    INSERT INTO live (uid) VALUES ($1)
    ON CONFLICT (uid) DO UPDATE SET read_at = now() WHERE live.read_at < now() - interval '1 second'
)
SELECT data FROM live WHERE uid = $1
"""


class Notifications:
    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._channel = "bridle_" + _hash(connections.address.schema)
        self._pending: set[str] = set()
        self._sending: asyncio.Task[None] | None = None
        self._listening: Connection | None = None
        self._starting = asyncio.Lock()
        self._waiting: dict[str, set[asyncio.Event]] = {}
        self._is_closing = False

    def announce(self, sessions: Sequence[str]) -> None:
        """Send a notification soon; returns at once."""
        self._pending.update(sessions)
        if self._pending and (self._sending is None or self._sending.done()):
            self._sending = asyncio.create_task(self._send())

    async def _send(self) -> None:
        while self._pending:
            await asyncio.sleep(COALESCE_SECONDS)
            names = [_hash(session) for session in self._pending]
            self._pending.clear()
            payload = " ".join(names) if len(names) <= PAYLOAD_NAMES_MAX else "*"
            try:
                await self._connections.use(partial(_notify, self._channel, payload))
            except BridleError:
                return  # a hint: readers look by themselves

    async def wait_for_records(self, session: str, after: int) -> None:
        """Return when the session has records above `after`, or the store is closed."""
        woken = asyncio.Event()
        name = _hash(session)
        self._waiting.setdefault(name, set()).add(woken)
        try:
            await self._listen()
            # Looking comes after listening, so that nothing falls between the two.
            while not self._is_closing and await self._read_length(session) <= after:
                try:
                    await asyncio.wait_for(woken.wait(), LOOK_SECONDS)
                except TimeoutError:
                    await self._listen()
                woken.clear()
        finally:
            self._waiting[name].discard(woken)
            if not self._waiting[name]:
                del self._waiting[name]

    def end_waits(self) -> None:
        self._is_closing = True
        self._wake(None, 0, "", "*")

    async def _read_length(self, session: str) -> int:
        found = await self._connections.use(
            lambda connection: connection.fetchval(
                "SELECT seq FROM sessions WHERE uid = $1", escape_nul(session)
            )
        )
        return int(found or 0)

    async def _listen(self) -> None:
        async with self._starting:
            if self._listening is None or self._listening.is_closed():
                connection = await self._connections.open()
                try:
                    await connection.add_listener(self._channel, self._wake)
                except (pg.PostgresError, *LOST) as error:
                    connection.terminate()
                    raise explain_error(self._connections.address.name, error) from error
                self._listening = connection

    def _wake(self, _connection: object, _process: int, _channel: str, payload: str) -> None:
        names = list(self._waiting) if payload == "*" else payload.split()
        for name in names:
            for woken in self._waiting.get(name, ()):
                woken.set()


async def _notify(channel: str, payload: str, connection: "Connection") -> None:
    await connection.execute("SELECT pg_notify($1, $2)", channel, payload)


def _hash(text: str) -> str:
    return blake2b(text.encode(), digest_size=8).hexdigest()


async def publish_live(connection: "Connection", session: str, data: bytes) -> bool:
    uid = escape_nul(session)
    if data:
        return bool(await connection.execute(PUBLISH_LIVE, uid, data) != "UPDATE 0")
    await connection.execute(REMOVE_LIVE, uid)
    with suppress(pg.InsufficientPrivilegeError):  # rows that are left are empty or belong to others
        await connection.execute(REMOVE_LEFT_LIVE)
    return True


async def read_live(connection: "Connection", session: str) -> bytes:
    return bytes(await connection.fetchval(READ_LIVE, escape_nul(session)) or b"")
