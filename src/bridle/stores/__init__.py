"""Stores persist session logs: in memory, or in one SQLite file.

`open_store` is the only name needed from here. The SQLite modules are imported when such a store is opened,
so a program that keeps nothing on disk never loads a database.
"""

import os
import re
from importlib import import_module
from pathlib import Path

from bridle.ports.store import Store
from bridle.values.errors import MisuseError

from .memory import MemoryStore

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://")
_SQLITE = "sqlite:///"


def open_store(where: str | os.PathLike[str] | None) -> Store:
    """Open a store: None or ":memory:" for memory; a path or `sqlite:///PATH` for a file, created if absent.

    `sqlite:///PATH?anchors=FILE`, or $BRIDLE_ANCHORS, writes the heads of its sessions to another file.
    """
    if where is None or where == ":memory:":
        return MemoryStore()
    anchors = os.environ.get("BRIDLE_ANCHORS")
    if isinstance(where, str):
        where, anchors = _split_anchors(where, anchors)
        where = _parse_location(where)
    module = import_module(".sqlite.store", __name__)
    store: Store = module.SqliteStore(where, anchors=anchors)
    return store


def find_store_file(where: object) -> Path | None:
    """The file of a store, or of the place where one is to be opened; None if it has none."""
    if isinstance(where, str) and where != ":memory:":
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
    return f"{scheme}:// stores are not available in this version: give a file path or sqlite:///PATH"
