"""Connections of the PostgreSQL store: opened and checked, pooled for reads, and their errors explained.

Everything here runs in the store's own event loop. A store has up to `POOL_MAX` connections for reads and small
writes, one for appends, one that holds locks and one that listens; each is opened when it is first needed, and again
after it was lost.
"""

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from bridle.values.errors import BridleError, Corrupt, MisuseError, StoreError, Unusable

from .address import Address

try:
    import asyncpg
    from asyncpg import exceptions as pg
except ModuleNotFoundError as error:
    raise MisuseError(
        f"PostgreSQL stores need the package {error.name}; install it: pip install 'bridle[postgres]'"
    ) from error

if TYPE_CHECKING:
    from asyncpg import Connection

T = TypeVar("T")

FORMAT_SCRIPTS = ("schema.sql",)
"""Script n makes format n + 1 of the tables out of format n."""

SERVER_MIN = 14
POOL_MAX = 4
CONNECT_SECONDS = 15.0
STATEMENT_SECONDS = 60
"""Longest time the server works on a statement. The client waits a little longer, in case the server is gone."""
CLIENT_EXTRA_SECONDS = 15
CLOSE_SECONDS = 5.0

SESSION_SETTINGS = {
    "application_name": "bridle",
    "statement_timeout": f"{STATEMENT_SECONDS}s",
    "lock_timeout": "30s",
    "idle_in_transaction_session_timeout": "60s",
    "idle_session_timeout": "0",  # a connection that holds locks is idle for long
    # The locks of a machine that vanished are released after about a minute.
    "tcp_keepalives_idle": "30",
    "tcp_keepalives_interval": "10",
    "tcp_keepalives_count": "3",
    # Statements look up few rows by key, whatever the statistics of a table that has just grown say.
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "jit": "off",
}

LOST = (
    pg.PostgresConnectionError,
    pg.OperatorInterventionError,
    pg.InterfaceError,
    pg.InternalClientError,
    OSError,
    TimeoutError,
)
"""Errors after which the outcome of a statement is unknown."""

_EXPLANATIONS: tuple[tuple[type[BaseException], type[StoreError], str], ...] = (
    (pg.InvalidPasswordError, Unusable, "it refuses the user or the password; check the URL, $PGPASSWORD or ~/.pgpass"),
    (pg.InvalidAuthorizationSpecificationError, Unusable, "it refuses the user; check the URL and pg_hba.conf"),
    (pg.InvalidCatalogNameError, Unusable, "there is no such database; create it: createdb NAME"),
    (pg.InsufficientPrivilegeError, Unusable, "the user lacks a privilege; GRANT CREATE ON DATABASE, or the schema's tables, to it"),
    (pg.ReadOnlySQLTransactionError, Unusable, "it is read-only, perhaps a standby; connect to the primary"),
    (pg.TooManyConnectionsError, Unusable, "it has no connection left; raise max_connections or stop other clients"),
    (pg.DiskFullError, Unusable, "its disk is full; make room and resume"),
    (pg.OutOfMemoryError, Unusable, "it is out of memory; free some and resume"),
    (pg.CannotConnectNowError, Unusable, "it is starting up or shutting down; try again in a moment"),
    (pg.AdminShutdownError, Unusable, "an administrator ended the connection; resume"),
    (pg.CrashShutdownError, Unusable, "it crashed; resume when it runs again"),
    (pg.QueryCanceledError, Unusable, f"a statement took more than {STATEMENT_SECONDS} seconds; find what keeps it busy"),
    (pg.LockNotAvailableError, Unusable, "another transaction keeps a row locked; end it (pg_stat_activity) or try again"),
    (pg.UndefinedTableError, Corrupt, "tables are missing; restore them from a backup"),
    (pg.IntegrityConstraintViolationError, Corrupt, "its rows contradict one another; restore them from a backup"),
    (pg.DataCorruptedError, Corrupt, "its data are damaged; restore them from a backup"),
    (pg.PostgresConnectionError, Unusable, "the connection was lost; resume when the server can be reached"),
    (pg.TargetServerAttributeNotMatched, Unusable, "no server of the URL has the wanted role; check target_session_attrs"),
    (ssl.SSLError, Unusable, "TLS fails; check sslmode and sslrootcert in the URL"),
    (TimeoutError, Unusable, "it does not answer; check the address, the firewall and that it runs"),
    (OSError, Unusable, "it cannot be reached; check the address and that it runs"),
)  # fmt: skip


def explain_error(name: str, error: BaseException) -> BridleError:
    """Translate an error of the driver, whose first line is quoted."""
    for kind, raised, explanation in _EXPLANATIONS:
        if isinstance(error, kind):
            return raised(f"store {name}: {explanation}{_quote(error)}")
    return Unusable(f"store {name}: it cannot be used{_quote(error)}")


def _quote(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f" ({lines[0]})" if lines else ""


class Connections:
    """All connections of one store."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self._preparing = asyncio.Lock()
        self._is_prepared = False
        self._open: set[Connection] = set()
        self._idle: list[Connection] = []
        self._places = asyncio.Semaphore(POOL_MAX)

    async def open(self) -> "Connection":
        """Open a connection. The first one of a store creates the tables if they are missing."""
        name = self.address.name
        try:
            connection = await asyncpg.connect(
                self.address.dsn,
                timeout=CONNECT_SECONDS,
                command_timeout=STATEMENT_SECONDS + CLIENT_EXTRA_SECONDS,
                server_settings={**SESSION_SETTINGS, "search_path": quote_name(self.address.schema)},
            )
        except (pg.ClientConfigurationError, ValueError):
            # The driver's text may repeat parts of the URL.
            raise MisuseError(
                f"store {name}: the driver rejects the URL; check its port and its ?options"
            ) from None
        except (pg.PostgresError, *LOST) as error:
            raise explain_error(name, error) from error
        try:
            await check_server(connection, name)
            async with self._preparing:
                if not self._is_prepared:
                    await prepare_tables(connection, self.address)
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
                    if not retry or isinstance(error, pg.QueryCanceledError):
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
        sockets = (connection._transport.get_extra_info("socket") for connection in self._open)
        return [each.fileno() for each in sockets if each is not None and each.fileno() >= 0]


async def check_server(connection: "Connection", name: str) -> None:
    """Refuse a server that is too old, does not use UTF-8, or would acknowledge what it can lose."""
    version, encoding, commit, fsync = await connection.fetchrow(_SELECT_SETTINGS)
    if version < SERVER_MIN * 10_000:
        raise Unusable(f"store {name}: it is PostgreSQL {version // 10_000}; {SERVER_MIN} or newer is needed")
    if encoding != "UTF8":
        raise Unusable(f"store {name}: the database is encoded in {encoding}; create one with UTF8")
    if commit == "off" or fsync == "off":
        setting = "synchronous_commit" if commit == "off" else "fsync"
        remedy = (
            "ALTER ROLE … or ALTER DATABASE … SET synchronous_commit = on"
            if commit == "off"
            else "ALTER SYSTEM SET fsync = on, and restart it"
        )
        raise Unusable(
            f"store {name}: {setting} is off, so a crash of the server could lose records that were "
            f"acknowledged; turn it on: {remedy}"
        )


async def prepare_tables(connection: "Connection", address: Address) -> None:
    """Create the tables or bring them to this version's format, one process at a time; refuse newer ones."""
    name, schema = address.name, address.schema
    if await _read_format(connection, address) == len(FORMAT_SCRIPTS):
        return
    async with connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock($1)", make_lock_key("tables", schema))
        version = await _read_format(connection, address)
        if version > len(FORMAT_SCRIPTS):
            raise Unusable(
                f"store {name}: it was written by a newer Bridle (format {version}, this one knows "
                f"{len(FORMAT_SCRIPTS)}); upgrade Bridle or choose another schema with ?schema=NAME"
            )
        if not await connection.fetchval("SELECT to_regnamespace($1) IS NOT NULL", quote_name(schema)):
            await connection.execute(f"CREATE SCHEMA {quote_name(schema)}")
        for script in FORMAT_SCRIPTS[version:]:
            await connection.execute(Path(__file__).with_name(script).read_text(encoding="utf-8"))
        await connection.execute("UPDATE format SET version = $1", len(FORMAT_SCRIPTS))


async def _read_format(connection: "Connection", address: Address) -> int:
    """Return the format of the tables; 0 if there are none. Raises `Unusable` for tables of another program."""
    tables = [row[0] for row in await connection.fetch(_SELECT_TABLES, address.schema)]
    if not tables:
        return 0
    if not {"format", "sessions", "events"}.issubset(tables):
        raise Unusable(
            f"store {address.name}: schema {address.schema!r} has tables of another program; "
            "choose another with ?schema=NAME"
        )
    return int(await connection.fetchval("SELECT version FROM format"))


def quote_name(name: str) -> str:
    """Quote an identifier for SQL."""
    return '"' + name.replace('"', '""') + '"'


def make_lock_key(*parts: object) -> int:
    """Number of an advisory lock: locks are shared by everything in a database."""
    text = "\0".join(map(str, ("bridle", *parts)))
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), signed=True)


_SELECT_SETTINGS = """
SELECT current_setting('server_version_num')::int, current_setting('server_encoding'),
    current_setting('synchronous_commit'), current_setting('fsync')
"""

_SELECT_TABLES = "SELECT tablename::text FROM pg_catalog.pg_tables WHERE schemaname = $1"
