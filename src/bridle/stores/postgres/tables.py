"""Checks the server of a PostgreSQL store, and creates its tables or brings them to this version's format."""

from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from bridle.values.errors import Unusable

from .address import Address

if TYPE_CHECKING:
    from asyncpg import Connection

FORMAT_SCRIPTS = ("schema.sql", "format_2.sql")
"""Script n makes format n + 1 of the tables out of format n."""

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
        await _lock_tables(connection, address)
        version = await _read_format(connection, address)
        if version > len(FORMAT_SCRIPTS):
            raise Unusable(
                f"store {name}: it was written by a newer Bridle (format {version}, this one knows "
                f"{len(FORMAT_SCRIPTS)}); upgrade Bridle or choose another schema with ?schema=NAME"
            )
        if not await connection.fetchval("SELECT to_regnamespace($1) IS NOT NULL", quote_name(schema)):
            await connection.execute(f"CREATE SCHEMA {quote_name(schema)}")
        for script in FORMAT_SCRIPTS[version:]:
            await _run_script(connection, script)
        await connection.execute("UPDATE format SET version = $1", len(FORMAT_SCRIPTS))


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
    """Return the format of the tables; 0 if there are none. Raises `Unusable` for tables of another program."""
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
    if version is None or version < 1:
        raise Unusable(
            f"store {address.name}: its table format says {version}, and its tables have at least format 1: another "
            f"program changed it; restore it from a backup, or correct the row in {quote_name(address.schema)}.format"
        )
    return int(version)


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
