"""A thread that runs blocking jobs one at a time for any number of event loops.

A database call blocks, and a connection belongs to one thread. So each connection gets a thread; tasks submit
jobs and await the results. The thread takes all waiting jobs at once, which lets a writer commit them
together.

Rules:

  - A result is delivered on the loop that submitted the job; that loop may be closed by then.
  - Cancelling the caller does not cancel the job: it runs, and its result is dropped.
  - An exception in a job never ends the thread: it is the job's result.
  - The thread is a daemon, so it cannot keep a program from exiting. An exit hook asks it to finish, so
    that the file is closed cleanly. Acknowledged work does not depend on that: it is on disk before the
    caller is notified.
  - Neither the thread nor the connection survives `fork()`: using the store in a child raises an error.
"""

import asyncio
import atexit
import os
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import TypeVar, cast

from bridle.stores.finished_writes import finish_write
from bridle.values.errors import MisuseError

T = TypeVar("T")

GROUP_MAX = 512
"""Most jobs per group: with more, the first waits for the last and neither gets cheaper."""

EXIT_SECONDS = 10.0
"""Time an exiting program waits for the thread; only another process's lock takes that long."""


class Job:
    """A function to run, the future of its caller, and its result."""

    __slots__ = ("ask", "error", "future", "value")

    def __init__(self, ask: Callable[..., object], future: "asyncio.Future[object]") -> None:
        self.ask = ask
        self.future = future
        self.value: object = None
        self.error: Exception | None = None


class Worker:
    """Runs jobs in one thread.

    `handle` runs a group of jobs; an exception it raises is the result of all of them. `finish` runs once,
    last, in the same thread. `poll` runs when no job is waiting, and again after the seconds that it returns;
    None waits for the next job.
    """

    def __init__(
        self,
        name: str,
        handle: Callable[[Sequence[Job]], None],
        finish: Callable[[], None],
        poll: Callable[[], float | None] | None = None,
    ) -> None:
        self._name = name
        self._handle = handle
        self._finish = finish
        self._poll = poll
        self._queue: SimpleQueue[Job | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._stopped = False
        self._process = os.getpid()

    async def run(self, ask: Callable[..., T]) -> T:
        """The result of a job, which runs even if the caller is cancelled."""
        return cast("T", await self._queue_job(ask))

    async def write(self, ask: Callable[..., T]) -> T:
        """`run`, for a job that writes: a cancelled caller waits for its end."""
        return cast("T", await finish_write(self._queue_job(ask)))

    def _queue_job(self, ask: Callable[..., object]) -> "asyncio.Future[object]":
        loop = asyncio.get_running_loop()
        job = Job(ask, loop.create_future())
        if os.getpid() != self._process:
            raise MisuseError("this store was opened before fork(): open it again in the child process")
        # The lock makes "stopped" and "queued" one decision: a job queued after the stop would wait forever.
        with self._lock:
            if self._stopped:
                raise MisuseError("this store was closed: open it again")
            if self._thread is None:
                self._start()
            self._queue.put(job)
        return job.future

    def stop(self) -> None:
        """Run the waiting jobs, then end the thread; returns at once."""
        self._put_stop()
        atexit.unregister(self._drain_and_finish)

    def join(self, timeout_seconds: float | None = None) -> None:
        if self._thread is not None:
            self._thread.join(timeout_seconds)

    def _start(self) -> None:
        self._thread = threading.Thread(target=self._run_loop, name=self._name, daemon=True)
        self._thread.start()
        atexit.register(self._drain_and_finish)

    def _put_stop(self) -> None:
        if os.getpid() != self._process:
            return  # in a child process: the thread does not exist, and the lock may have been held at the fork
        with self._lock:
            if not self._stopped:
                self._stopped = True
                self._queue.put(None)

    def _drain_and_finish(self) -> None:
        self._put_stop()
        self.join(EXIT_SECONDS)

    def _run_loop(self) -> None:
        while jobs := self._next_group():
            try:
                self._handle(jobs)
            except Exception as error:  # noqa: BLE001 - not swallowed: every caller gets it
                for job in jobs:
                    job.error = error
            _deliver_results(jobs)
            # An idle thread must not keep the last records and their loop alive.
            del jobs
        self._finish()

    def _next_group(self) -> list[Job]:
        """Take all queued jobs, at most GROUP_MAX; empty after the stop marker."""
        jobs = []
        job = self._queue.get() if self._poll is None else self._wait_and_poll(self._poll)
        while job is not None:
            jobs.append(job)
            if len(jobs) == GROUP_MAX or self._queue.empty():
                return jobs
            job = self._queue.get()
        if jobs:
            self._queue.put(None)
        return jobs

    def _wait_and_poll(self, poll: Callable[[], float | None]) -> Job | None:
        while True:
            with suppress(Empty):
                return self._queue.get(timeout=poll())


def _deliver_results(jobs: Sequence[Job]) -> None:
    """Deliver results with one wake-up per loop: waking a loop costs more than resolving its futures."""
    loops: dict[asyncio.AbstractEventLoop, list[Job]] = {}
    for job in jobs:
        loops.setdefault(job.future.get_loop(), []).append(job)
    for loop, done in loops.items():
        try:
            loop.call_soon_threadsafe(_resolve_futures, done)
        except RuntimeError:
            # The loop was closed while its job ran, so its caller is gone.
            continue


def _resolve_futures(jobs: Sequence[Job]) -> None:
    for job in jobs:
        if job.future.done():
            continue
        if job.error is not None:
            job.future.set_exception(job.error)
        else:
            job.future.set_result(job.value)
