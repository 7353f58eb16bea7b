"""Locks of a SQLite file, as other processes hold them."""

import sqlite3
from contextlib import closing, contextmanager


@contextmanager
def write_lock(path):
    """Another process is in the middle of a write."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("BEGIN IMMEDIATE")
        yield
        db.execute("ROLLBACK")
