"""A thread that does one thing at a time for any number of event loops.

A database call blocks, and a connection belongs to one thread.  So each connection
gets a thread of its own, tasks hand it jobs and await the answers.  The thread
takes every job that is waiting at once: that is what lets a writer put them into
one commit.

Rules:

  - An answer is delivered by the loop that asked; that loop may be gone by then.
  - A caller that was cancelled changes nothing: its job is done, its answer dropped.
  - The thread never dies of a job: whatever is raised is the answer.
  - It is a daemon, so it cannot keep a program from ending; it is asked to finish
    when the program exits, so that the file is left tidy.  Acknowledged work does
    not depend on that: it was on disk before anybody heard of it.
  - It does not survive `fork()`, and neither does a connection: a child is told so.
"""

import asyncio
import atexit
import os
import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import TypeVar, cast

from bridle.values.errors import MisuseError

T = TypeVar("T")

GROUP_MAX = 512
"""Jobs taken at once: more would make the first of them wait for the last without making either cheaper."""

EXIT_SECONDS = 10.0
"""How long an exiting program waits for the thread; only a lock held by another process takes that long."""


class Job:
    """Something to do, who waits for it, and what came of it."""

    __slots__ = ("ask", "error", "future", "value")

    def __init__(self, ask: Callable[..., object], future: "asyncio.Future[object]") -> None:
        self.ask = ask
        self.future = future
        self.value: object = None
        self.error: Exception | None = None


class Worker:
    """`handle` answers a group of jobs; what it raises is the answer to all of them.
    `finish` runs once, last, in the same thread."""

    def __init__(
        self, name: str, handle: Callable[[Sequence[Job]], None], finish: Callable[[], None]
    ) -> None:
        self._name = name
        self._handle = handle
        self._finish = finish
        self._queue: SimpleQueue[Job | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._stopped = False
        self._process = os.getpid()

    async def run(self, ask: Callable[..., T]) -> T:
        loop = asyncio.get_running_loop()
        job = Job(ask, loop.create_future())
        if os.getpid() != self._process:
            raise MisuseError("this store was opened before fork(): open it again in the child process")
        # The lock makes "stopped" and "queued" one decision: a job behind the stop would wait for ever.
        with self._lock:
            if self._stopped:
                raise MisuseError("this store was closed: open it again")
            if self._thread is None:
                self._start()
            self._queue.put(job)
        return cast("T", await job.future)

    def stop(self) -> None:
        """Do what is waiting, then end.  Does not wait, so that a garbage collector may call it."""
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
            return  # a child: the thread is not here, and the lock may have been held when it forked
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
        """Everything in the queue; empty when there is nothing more to come."""
        jobs = []
        job = self._queue.get()
        while job is not None:
            jobs.append(job)
            if len(jobs) == GROUP_MAX or self._queue.empty():
                return jobs
            job = self._queue.get()
        if jobs:
            self._queue.put(None)
        return jobs


def _deliver_results(jobs: Sequence[Job]) -> None:
    """One wake-up a loop, however many of its tasks are answered: waking costs more than answering."""
    loops: dict[asyncio.AbstractEventLoop, list[Job]] = {}
    for job in jobs:
        loops.setdefault(job.future.get_loop(), []).append(job)
    for loop, done in loops.items():
        try:
            loop.call_soon_threadsafe(_resolve_futures, done)
        except RuntimeError:
            # That loop was closed while its job ran: nobody is left to be told.
            continue


def _resolve_futures(jobs: Sequence[Job]) -> None:
    for job in jobs:
        if job.future.done():
            continue
        if job.error is not None:
            job.future.set_exception(job.error)
        else:
            job.future.set_result(job.value)
