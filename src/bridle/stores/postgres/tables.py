"""Checks the server of a PostgreSQL store, and creates its tables."""

from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from bridle.values.errors import Unusable

from .address import Address

if TYPE_CHECKING:
    from asyncpg import Connection

FORMAT = 1
"""Version of the tables; raised only if older versions of Bridle could not use the new tables."""

SERVER_MIN = 14


class PostgresState(NamedTuple):
    """A server as it describes itself."""

    description: str
    has_tables: bool
    is_replicated: bool
    """False if there are synchronous standbys that an acknowledged append need not have reached."""


async def read_state(connection: "Connection", address: Address) -> PostgresState:
    version, commit, standbys = await connection.fetchrow(_SELECT_STATE)
    found = await _read_format(connection, address)
    description = f"PostgreSQL {version}, synchronous_commit {commit}"
    is_replicated = not standbys or commit in ("on", "remote_apply")
    return PostgresState(description, found > 0, is_replicated)


async def check_server(connection: "Connection", name: str) -> None:
    """Refuse a server that is too old, a standby, does not use UTF-8, or would acknowledge what it can lose."""
    version, encoding, commit, fsync, is_standby = await connection.fetchrow(_SELECT_SETTINGS)
    if version < SERVER_MIN * 10_000:
        raise Unusable(f"store {name}: it is PostgreSQL {version // 10_000}; {SERVER_MIN} or newer is needed")
    if is_standby:
        raise Unusable(
            f"store {name}: it is a standby, which is read-only; connect to the primary, or name all servers in the "
            "URL with ?target_session_attrs=primary"
        )
    if encoding != "UTF8":
        raise Unusable(f"store {name}: the database is encoded in {encoding}; create one with UTF8")
    # guard: durable-commit
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
    """Create the tables if there are none, one process at a time; refuse those of a newer version."""
    if await _read_format(connection, address):
        return
    async with connection.transaction():
        await _lock_tables(connection, address)
        if await _read_format(connection, address):
            return
        schema = quote_name(address.schema)
        if not await connection.fetchval("SELECT to_regnamespace($1) IS NOT NULL", schema):
            await connection.execute(f"CREATE SCHEMA {schema}")
        await _run_script(connection, "schema.sql")
        await connection.execute("INSERT INTO format VALUES ($1)", FORMAT)


async def prepare_live(connection: "Connection", address: Address) -> bool:
    """Create the table `live` if it is missing; returns False if the role may not."""
    if "live" in await _list_tables(connection, address):
        return True
    if not await connection.fetchval("SELECT has_schema_privilege($1, 'CREATE')", address.schema):
        return False
    async with connection.transaction():
        await _lock_tables(connection, address)
        if "live" not in await _list_tables(connection, address):
            await _run_script(connection, "live.sql")
    return True


async def _lock_tables(connection: "Connection", address: Address) -> None:
    """Be the only process that changes the tables, until the end of the transaction."""
    await connection.execute("SELECT pg_advisory_xact_lock($1)", make_lock_key("tables", address.schema))


async def _run_script(connection: "Connection", name: str) -> None:
    await connection.execute(Path(__file__).parent.joinpath(name).read_text(encoding="utf-8"))


async def _list_tables(connection: "Connection", address: Address) -> list[str]:
    return [row[0] for row in await connection.fetch(_SELECT_TABLES, address.schema)]


async def _read_format(connection: "Connection", address: Address) -> int:
    """Return the format of the tables; 0 if there are none. Raises `Unusable` if this version cannot use them."""
    tables = await _list_tables(connection, address)
    if not tables:
        return 0
    if not {"format", "sessions", "events"}.issubset(tables):
        raise Unusable(
            f"store {address.name}: schema {address.schema!r} has tables of another program; "
            "choose another with ?schema=NAME"
        )
    if not await connection.fetchval("SELECT has_schema_privilege($1, 'USAGE')", address.schema):
        raise Unusable(
            f"store {address.name}: the user lacks a privilege; GRANT USAGE ON SCHEMA {address.schema} to it"
        )
    version = await connection.fetchval("SELECT version FROM format")
    if version is None or version < FORMAT:
        raise Unusable(
            f"store {address.name}: its table format says {version}, and there is no format before {FORMAT}: another "
            f"program changed it; restore it from a backup, or correct the row in {quote_name(address.schema)}.format"
        )
    if version > FORMAT:
        raise Unusable(
            f"store {address.name}: it was written by a newer Bridle (format {version}, this one knows {FORMAT}); "
            "upgrade Bridle or choose another schema with ?schema=NAME"
        )
    return FORMAT


def quote_name(name: str) -> str:
    """Quote an identifier for SQL."""
    return '"' + name.replace('"', '""') + '"'


def make_lock_key(*parts: object) -> int:
    """Number of an advisory lock: locks are shared by everything in a database."""
    text = "\0".join(map(str, ("bridle", *parts)))
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), signed=True)


_SELECT_SETTINGS = """
SELECT current_setting('server_version_num')::int, current_setting('server_encoding'),
    current_setting('synchronous_commit'), current_setting('fsync'), pg_is_in_recovery()
"""

_SELECT_STATE = """
SELECT split_part(current_setting('server_version'), ' ', 1), current_setting('synchronous_commit'),
    current_setting('synchronous_standby_names')
"""

_SELECT_TABLES = "SELECT tablename::text FROM pg_catalog.pg_tables WHERE schemaname = $1"
