"""Connections of the PostgreSQL store: opened and checked, pooled for reads, and their errors explained.

Everything here runs in the store's own event loop. A store has up to `POOL_MAX` connections for reads and small
writes, one for appends, one that holds locks and one that listens; each is opened when it is first needed, and again
after it was lost.
"""

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

import asyncpg
from asyncpg import exceptions as pg

from bridle.values.errors import BridleError, MisuseError

from .address import Address
from .driver_errors import LOST, explain_error
from .tables import PostgresState, check_server, prepare_live, prepare_tables, quote_name, read_state

if TYPE_CHECKING:
    from asyncpg import Connection

T = TypeVar("T")

POOL_MAX = 4
CONNECT_SECONDS = 15.0
STATEMENT_SECONDS = 60
"""Longest time the server works on a statement. The client waits a little longer, in case the server is gone."""
CLIENT_EXTRA_SECONDS = 15
CLOSE_SECONDS = 5.0

KEEPALIVE_IDLE_SECONDS, KEEPALIVE_INTERVAL_SECONDS, KEEPALIVE_PROBES = 4, 2, 3
"""Silence after which each side asks whether the other one is there, the time between two questions, their number."""
VANISHED_SECONDS = KEEPALIVE_IDLE_SECONDS + KEEPALIVE_INTERVAL_SECONDS * KEEPALIVE_PROBES
"""Time after which a side that does not answer, or does not confirm what was sent, has vanished."""
SOCKET_OPTIONS = (
    ("TCP_KEEPIDLE", KEEPALIVE_IDLE_SECONDS),
    ("TCP_KEEPALIVE", KEEPALIVE_IDLE_SECONDS),  # name of TCP_KEEPIDLE on some platforms
    ("TCP_KEEPINTVL", KEEPALIVE_INTERVAL_SECONDS),
    ("TCP_KEEPCNT", KEEPALIVE_PROBES),
    ("TCP_USER_TIMEOUT", VANISHED_SECONDS * 1_000),
)
"""The same for this side; a system has some of them."""

SESSION_SETTINGS = {
    "application_name": "bridle",
    "statement_timeout": f"{STATEMENT_SECONDS}s",
    "lock_timeout": "30s",
    "idle_in_transaction_session_timeout": "60s",
    "idle_session_timeout": "0",  # a connection that holds locks is idle for long
    # The server releases the locks of a machine that vanished after about ten seconds.
    "tcp_keepalives_idle": f"{KEEPALIVE_IDLE_SECONDS}",
    "tcp_keepalives_interval": f"{KEEPALIVE_INTERVAL_SECONDS}",
    "tcp_keepalives_count": f"{KEEPALIVE_PROBES}",
    "tcp_user_timeout": f"{VANISHED_SECONDS}s",
    # Statements look up few rows by key, whatever the statistics of a table that has just grown say.
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "jit": "off",
}


class Connections:
    """All connections of one store."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self._preparing = asyncio.Lock()
        self._is_prepared = False
        self.has_live = False
        """True if replies can be shown to other processes; known once a connection is open."""
        self._open: set[Connection] = set()
        self._idle: list[Connection] = []
        self._places = asyncio.Semaphore(POOL_MAX)

    async def open(self, *, creates_tables: bool = True) -> "Connection":
        """Open a connection. The first one of a store creates the tables if they are missing."""
        name = self.address.name
        try:
            connection = await asyncpg.connect(
                self.address.dsn,
                timeout=CONNECT_SECONDS,
                command_timeout=STATEMENT_SECONDS + CLIENT_EXTRA_SECONDS,
                server_settings={**SESSION_SETTINGS, "search_path": quote_name(self.address.schema)},
            )
        except ssl.SSLError as error:  # a wrong certificate is a ValueError too
            raise explain_error(name, error) from error
        # guard: driver-error-hidden
        except (pg.ClientConfigurationError, ValueError, OverflowError):
            # The driver's text may repeat parts of the URL.
            raise MisuseError(
                f"store {name}: the driver rejects the URL; check its port and its ?options"
            ) from None
        except (pg.PostgresError, *LOST) as error:
            if isinstance(error, FileNotFoundError):  # the driver does not name the file
                self.address.check_files()
            raise explain_error(name, error) from error
        try:
            _set_socket_options(connection)
            await check_server(connection, name)
            async with self._preparing:
                if creates_tables and not self._is_prepared:
                    await prepare_tables(connection, self.address)
                    self.has_live = await prepare_live(connection, self.address)
                    self._is_prepared = True
        except BaseException as error:
            connection.terminate()
            if isinstance(error, (pg.PostgresError, *LOST)):
                raise explain_error(name, error) from error
            raise
        self._open.add(connection)
        connection.add_termination_listener(self._open.discard)
        return connection

    async def use(self, act: "Callable[[Connection], Awaitable[T]]", *, retry: bool = True) -> T:
        """Run statements on a pooled connection; once more on a new one if it was lost and they may be repeated."""
        async with self._places:
            connection = self._take_idle() or await self.open()
            try:
                try:
                    return await act(connection)
                except LOST as error:
                    if not retry or isinstance(error, TimeoutError | pg.QueryCanceledError):
                        raise
                    # The others were probably lost as well.
                    while self._idle:
                        self._idle.pop().terminate()
                    connection.terminate()
                    connection = await self.open()
                    return await act(connection)
            except BaseException as error:
                if not isinstance(error, BridleError):
                    connection.terminate()
                if isinstance(error, (pg.PostgresError, *LOST)):
                    raise explain_error(self.address.name, error) from error
                raise
            finally:
                if not connection.is_closed():
                    self._idle.append(connection)

    async def read_state(self) -> PostgresState:
        """Ask the server how it is; creates nothing."""
        connection = await self.open(creates_tables=False)
        try:
            return await read_state(connection, self.address)
        finally:
            connection.terminate()

    def _take_idle(self) -> "Connection | None":
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_closed():
                return connection
        return None

    async def close(self) -> None:
        for connection in list(self._open):
            try:
                await connection.close(timeout=CLOSE_SECONDS)
            except (pg.PostgresError, *LOST):
                connection.terminate()

    def list_sockets(self) -> list[int]:
        """File descriptors of the open connections."""
        sockets = map(find_socket, self._open)
        return [each.fileno() for each in sockets if each is not None and each.fileno() >= 0]


def find_socket(connection: "Connection") -> socket.socket | None:
    """The socket of a connection; None if it is closed."""
    found: socket.socket | None = connection._transport.get_extra_info("socket")
    return found


def _set_socket_options(connection: "Connection") -> None:
    """Notice in time that the database's machine has vanished; a Unix socket needs nothing."""
    found = find_socket(connection)
    if found is None or found.family not in (socket.AF_INET, socket.AF_INET6):
        return
    found.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, number in SOCKET_OPTIONS:
        if hasattr(socket, name):
            found.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), number)
