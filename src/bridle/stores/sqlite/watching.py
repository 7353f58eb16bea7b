"""Wakes the tasks that wait for records, also for those of other processes.

SQLite sends no notification. The reading thread therefore looks at `PRAGMA data_version` while a task waits: one look
takes a few microseconds, however many tasks wait, and the sessions are looked up only after a commit.
"""

import asyncio
import sqlite3
from collections.abc import Sequence
from typing import NamedTuple

from bridle.stores.locks import resolve_future
from bridle.values.errors import BridleError

from .connection import DatabaseConnection

# not from outside: time that we wait for our own work
POLL_SECONDS_MIN, POLL_SECONDS_MAX = 0.005, 0.05
"""Time between two looks: doubled while nothing is written, and longer if many sessions are looked up."""
NAMES_PER_QUERY = 64
"""Sessions that one query looks up: it costs as much as four queries of one session each."""


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
        if _select_lengths([session], db).get(session, 0) > after:
            resolve_future(future)
        else:
            self._waiting.append(_Waiter(session, after, future))
            self._pause = self._find_shortest_pause()

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
                self._version, self._pause = version, self._find_shortest_pause()
        except BridleError as error:
            self._resolve_all(error)
        return self._pause

    def _find_shortest_pause(self) -> float:
        """Return the pause after a commit: one per query, so that looks take the same share of the time."""
        queries = 1 + len(self._waiting) // NAMES_PER_QUERY
        return min(queries * POLL_SECONDS_MIN, POLL_SECONDS_MAX)

    def close(self) -> None:
        """Wake all tasks and close the connection."""
        self._resolve_all()
        self._connection.drop()

    def _resolve_due(self) -> None:
        self._connection.begin("BEGIN")
        with self._connection.transaction() as db:
            lengths = _select_lengths([waiter.session for waiter in self._waiting], db)
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            if lengths.get(waiter.session, 0) > waiter.after:
                resolve_future(waiter.future)
            else:
                self._waiting.append(waiter)

    def _resolve_all(self, error: Exception | None = None) -> None:
        for waiter in self._waiting:
            resolve_future(waiter.future, error)
        self._waiting = []


def _select_lengths(sessions: Sequence[str], db: sqlite3.Connection) -> dict[str, int]:
    """Return the lengths of those sessions that exist. Most have no control log, and so give no row."""
    found: dict[str, int] = {}
    for start in range(0, len(sessions), NAMES_PER_QUERY):
        names = sessions[start : start + NAMES_PER_QUERY]
        # One text for any number of names, so that the statement is prepared once. The rest matches nothing.
        found.update(db.execute(_SELECT_LENGTHS, (*names, *(None,) * (NAMES_PER_QUERY - len(names)))))
    return found


_SELECT_LENGTHS = f"SELECT uid, seq FROM sessions WHERE uid IN ({', '.join('?' * NAMES_PER_QUERY)})"  # noqa: S608
