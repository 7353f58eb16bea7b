"""Stores persist session logs: in memory, in one SQLite file, or in a PostgreSQL database.

`open_store` is the only name needed from here. The modules of a database are imported when such a store is opened,
so a program that keeps nothing on disk never loads one.
"""

import os
import re
from importlib import import_module
from pathlib import Path
from types import ModuleType

from bridle.ports.store import Store
from bridle.values.errors import MisuseError

from .memory import MemoryStore as MemoryStore

SESSIONS_IN_MEMORY = 1_000
"""Sessions that an agent without `store=` keeps, beside unfinished ones and those that a `Result` holds."""
BYTES_IN_MEMORY = 256 << 20
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://")
_SQLITE = "sqlite:///"
_POSTGRES = ("postgresql://", "postgres://")


def open_store(where: str | os.PathLike[str] | None) -> Store:
    """Open a store: None or ":memory:" for memory; a path or `sqlite:///PATH` for a file, created if absent;
    `postgresql://…` for a database.

    `sqlite:///PATH?anchors=FILE`, or $BRIDLE_ANCHORS for all stores, writes the heads of sessions to another file.
    """
    if where is None or where == ":memory:":
        return MemoryStore(sessions_max=SESSIONS_IN_MEMORY, bytes_max=BYTES_IN_MEMORY)
    anchors = os.environ.get("BRIDLE_ANCHORS")
    store: Store
    if is_postgres(where):
        store = _load_postgres().PostgresStore(where, anchors=anchors)
        return store
    if isinstance(where, str):
        where, anchors = _split_anchors(where, anchors)
        where = _parse_location(where)
    store = import_module(".sqlite.store", __name__).SqliteStore(where, anchors=anchors)
    return store


def _load_postgres() -> ModuleType:
    try:
        return import_module(".postgres.store", __name__)
    except ModuleNotFoundError as error:
        if error.name != "asyncpg":
            raise
        raise MisuseError(
            "PostgreSQL stores need the package asyncpg; install it: pip install 'bridle[postgres]'"
        ) from None


def is_postgres(where: object) -> bool:
    """Return True if this is the URL of a PostgreSQL store."""
    return isinstance(where, str) and where.startswith(_POSTGRES)


def name_store(where: str) -> str:
    """The place of a store for messages: without the user, the password and the options of a URL."""
    if not is_postgres(where):
        return where
    return f"postgresql://{where.partition('://')[2].rpartition('@')[2].partition('?')[0]}"


def find_store_file(where: object) -> Path | None:
    """The file of a store, or of the place where one is to be opened; None if it has none."""
    if isinstance(where, str) and where != ":memory:" and not is_postgres(where):
        where = _parse_location(_split_anchors(where, None)[0])
    file = where if isinstance(where, os.PathLike) else getattr(where, "path", None)
    return Path(file).resolve() if isinstance(file, os.PathLike) else None


def _split_anchors(where: str, default: str | None) -> tuple[str, str | None]:
    plain, mark, anchors = where.partition("?anchors=")
    return (plain, anchors) if where.startswith(_SQLITE) and mark and anchors else (where, default)


def _parse_location(where: str) -> Path:
    if not where.strip():
        raise MisuseError("the store path is empty; give a file path, or omit it to keep the log in memory")
    if where.startswith(_SQLITE) and len(where) > len(_SQLITE) and "?" not in where:
        where = where[len(_SQLITE) :]
    elif scheme := _SCHEME.match(where):
        raise MisuseError(_explain_bad_scheme(scheme[1].lower()))
    # Only the plain "~/": a shell expands it, a settings file does not.
    return Path(where).expanduser() if where.startswith("~/") else Path(where)


def _explain_bad_scheme(scheme: str) -> str:
    # The URL itself is not repeated: it may hold a password.
    if scheme == "sqlite":
        return "a SQLite store is named by its path, or sqlite:///PATH, with no host and no option but ?anchors=FILE"
    return f"{scheme}:// stores are not available in this version: give a file path, sqlite:///PATH or postgresql://HOST/DATABASE"
