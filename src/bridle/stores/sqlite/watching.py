"""Wakes the tasks that wait for records, also for those of other processes.

SQLite sends no notification. The reading thread therefore looks at `PRAGMA data_version` while a task waits: one look
takes a few microseconds, however many tasks wait, and the sessions are looked up only after a commit.
"""

import asyncio
import sqlite3
from typing import NamedTuple

from bridle.stores.locks import resolve_future
from bridle.values.errors import BridleError

from .connection import DatabaseConnection

POLL_SECONDS_MIN, POLL_SECONDS_MAX = 0.005, 0.05
"""Time between two looks: doubled while nothing is written."""


class _Waiter(NamedTuple):
    session: str
    after: int
    future: "asyncio.Future[None]"


class RecordWaiters:
    """Tasks that wait for records. All methods run in the thread of the connection."""

    def __init__(self, connection: DatabaseConnection) -> None:
        self._connection = connection
        self._waiting: list[_Waiter] = []
        self._version = (0, 0)
        self._pause = POLL_SECONDS_MIN

    def add(self, session: str, after: int, future: "asyncio.Future[None]", db: sqlite3.Connection) -> None:
        """Resolve the future when the session has records above `after`."""
        waiter = _Waiter(session, after, future)
        if not _resolve_if_due(waiter, db):
            self._waiting.append(waiter)
            self._pause = POLL_SECONDS_MIN

    def poll(self) -> float | None:
        """Look at the file once; return the seconds until the next look, None if no task waits."""
        self._waiting = [waiter for waiter in self._waiting if not waiter.future.done()]
        if not self._waiting:
            return None
        try:
            version = self._connection.read_version()
            if version == self._version:
                self._pause = min(2 * self._pause, POLL_SECONDS_MAX)
            else:
                self._resolve_due()
                self._version, self._pause = version, POLL_SECONDS_MIN
        except BridleError as error:
            self._resolve_all(error)
        return self._pause

    def close(self) -> None:
        """Wake all tasks and close the connection."""
        self._resolve_all()
        self._connection.drop()

    def _resolve_due(self) -> None:
        self._connection.begin("BEGIN")
        with self._connection.transaction() as db:
            self._waiting = [waiter for waiter in self._waiting if not _resolve_if_due(waiter, db)]

    def _resolve_all(self, error: Exception | None = None) -> None:
        for waiter in self._waiting:
            resolve_future(waiter.future, error)
        self._waiting = []


def _resolve_if_due(waiter: _Waiter, db: sqlite3.Connection) -> bool:
    row = db.execute("SELECT seq FROM sessions WHERE uid = ?", (waiter.session,)).fetchone()
    is_due = row is not None and row[0] > waiter.after
    if is_due:
        resolve_future(waiter.future)
    return is_due
