"""Writes appends in groups: all that wait are one transaction, so a hundred sessions share one disk sync.

One coroutine with one connection writes everything. While a group is being written the next one gathers. A group
has at most one append per session, so a refused append does not affect the others. If the statement of a group fails,
each of its appends is tried alone.

If the connection is lost while a statement is under way, its outcome is unknown. Each append is then written once more
on a new connection: the head of the session's row lets it happen once, and if it is refused because its own records
are there already, it had succeeded. If the server cannot be reached, the append raises `Unusable`, and only reading
tells if it was stored.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from asyncpg import exceptions as pg

from bridle.values.errors import BridleError, Unusable

from .connections import Connections
from .driver_errors import LOST, explain_error
from .rows import AppendJob, explain_refusal, insert_records, is_stored

if TYPE_CHECKING:
    from asyncpg import Connection

GROUP_MAX = 200
"""Most appends per transaction: with more, the first waits for the last and neither gets cheaper."""
# not from outside: our own records and queues
GROUP_BYTES_MAX = 16 << 20
ATTEMPTS_MAX = 5
"""Attempts for an append that was refused and has no reason to be (any more)."""

_Waiting = tuple[AppendJob, "asyncio.Future[None]"]


class GroupWriter:
    """The only writer of records of a store. `announce` gets the sessions of every group that was written."""

    def __init__(self, connections: Connections, announce: Callable[[Sequence[str]], None]) -> None:
        self._connections = connections
        self._announce = announce
        self._queue: deque[_Waiting] = deque()
        self._task: asyncio.Task[None] | None = None
        self._connection: Connection | None = None

    async def append(self, job: AppendJob) -> None:
        """Return when the job is durable. Cancelling the caller does not cancel the job."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.append((job, future))
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._write_queue())
        await future

    async def _write_queue(self) -> None:
        while self._queue:
            group = self._take_group()
            try:
                await self._write_group(group)
            except Exception as error:  # noqa: BLE001 - not swallowed: every caller gets it
                for _, future in group:
                    _settle(future, error)

    def _take_group(self) -> list[_Waiting]:
        """Take the appends that may share a transaction; later ones of the same session stay in their order."""
        group: dict[str, _Waiting] = {}
        later: list[_Waiting] = []
        size = 0
        while self._queue and len(group) < GROUP_MAX and size < GROUP_BYTES_MAX:
            waiting = self._queue.popleft()
            if waiting[0].session in group:
                later.append(waiting)
            else:
                group[waiting[0].session] = waiting
                size += waiting[0].size
        self._queue.extendleft(reversed(later))
        return list(group.values())

    async def _write_group(self, group: Sequence[_Waiting]) -> None:
        connection = await self._connect()
        is_uncertain, written = False, set[int]()
        try:
            written = await insert_records(connection, [job for job, _ in group])
        except LOST as error:
            connection.terminate()
            if isinstance(error, TimeoutError | pg.QueryCanceledError):
                raise self._explain_lost(error) from error
            is_uncertain = True
        except pg.PostgresError as error:
            if len(group) == 1 and not isinstance(error, pg.UniqueViolationError | pg.DeadlockDetectedError):
                raise explain_error(self._connections.address.name, error) from error
        self._announce([group[place][0].session for place in written])
        for place, (job, future) in enumerate(group):
            if place in written:
                _settle(future, None)
            else:
                _settle(future, await self._write_alone(job, is_uncertain=is_uncertain))

    async def _write_alone(self, job: AppendJob, *, is_uncertain: bool) -> BridleError | None:
        """Write a job that was not written in its group; return the reason why it cannot be.

        `is_uncertain`: it may have been written nevertheless.
        """
        name = self._connections.address.name
        failure: BridleError = Unusable(f"store {name}: session {job.session!r} is busy; try again")
        for _ in range(ATTEMPTS_MAX):
            try:
                connection = await self._connect()
                try:
                    await explain_refusal(connection, job)
                    is_written = await insert_records(connection, [job])
                except BridleError as error:
                    if not is_uncertain or not await is_stored(connection, job):
                        return error
                    is_written = {0}
                if is_written:
                    self._announce([job.session])
                    return None
            except LOST as error:
                connection.terminate()
                return self._explain_lost(error)
            except pg.PostgresError as error:
                failure = explain_error(name, error)
            except BridleError as error:
                return self._explain_lost(error) if is_uncertain else error
        return failure

    def _explain_lost(self, error: BaseException) -> Unusable:
        told = (
            error if isinstance(error, BridleError) else explain_error(self._connections.address.name, error)
        )
        return Unusable(f"{told}; it is unknown if the last records were stored: resume reads them")

    async def _connect(self) -> "Connection":
        if self._connection is None or self._connection.is_closed():
            self._connection = await self._connections.open()
        return self._connection


def _settle(future: "asyncio.Future[None]", error: Exception | None) -> None:
    if future.done():
        return  # its caller was cancelled
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)
