"""Runs ordinary functions in threads, so that they cannot block the event loop.

One pool per process, of at most `THREADS_MAX` threads, started on demand.  The standard pool is not used, because
it can hang a program in two ways: it joins its threads when the interpreter exits, and a thread that never
returns occupies its slot forever.

A thread cannot be killed.  When its result is no longer awaited (deadline, cancellation), the thread is abandoned:
a new thread takes its slot, its result is dropped, and it ends when its function does.  At most `ABANDONED_MAX`
threads are replaced like that; beyond that, functions that never return occupy their slots.  When these occupy
all slots, new and queued calls fail at once instead of waiting forever.

Functions see the caller's context variables.
"""

import asyncio
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context, copy_context
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from bridle.ports.tool import is_deadline_cancel
from bridle.values.text import describe_error

THREADS_MAX = 32
ABANDONED_MAX = 256
INTERRUPT_CHECK_SECONDS = 0.5
"""Longest time for which a Ctrl-C can go unnoticed while a function runs."""

NEVER_STARTED_MESSAGE = "it never started, because all {places} threads for tools were busy; nothing was done"
THREADS_STUCK_MESSAGE = (
    "not run: abandoned functions that never returned occupy all {places} threads for tools;"
    " add timeouts inside these functions, or make them async"
)

T = TypeVar("T")


async def run_in_thread(function: Callable[[], T]) -> T:
    """Run a function in a thread; a cancellation returns at once and abandons the thread."""
    loop = asyncio.get_running_loop()
    job = _ThreadJob(function, copy_context(), loop)
    pool = _process_pool()
    pool.submit(job)
    _schedule_wake(job)
    try:
        answer: T = await job.answer
    except asyncio.CancelledError as error:
        if not pool.abandon(job) and is_deadline_cancel(error):
            raise TimeoutError(NEVER_STARTED_MESSAGE.format(places=THREADS_MAX)) from None
        raise
    finally:
        if job.timer is not None:
            job.timer.cancel()
    return answer


async def await_value(awaitable: Any) -> object:
    """Await what a function returned on the caller's loop, with errors that asyncio does not treat specially."""
    try:
        return await awaitable
    except SystemExit as error:
        raise to_safe_exception(error) from error
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and not task.cancelling():
            # This task was not cancelled: the tool awaited something that was.
            raise to_safe_exception(error) from error
        raise


def _schedule_wake(job: "_ThreadJob") -> None:
    """Wake an event loop of the main thread at intervals while the job runs, so that it notices Ctrl-C.

    Python handles signals in the main thread, between two steps of Python code. A signal that another thread
    receives, or that arrives just before the loop begins to wait, does not end the wait.
    """
    if threading.current_thread() is threading.main_thread() and not job.answer.done():
        job.timer = job.loop.call_later(INTERRUPT_CHECK_SECONDS, _schedule_wake, job)


class _ThreadJob:
    __slots__ = ("answer", "context", "function", "left", "loop", "running", "started", "stuck", "timer")

    def __init__(
        self, function: Callable[[], Any], context: Context, loop: asyncio.AbstractEventLoop
    ) -> None:
        self.function = function
        self.context = context
        self.loop = loop
        self.answer: asyncio.Future[Any] = loop.create_future()
        self.timer: asyncio.TimerHandle | None = None
        self.started = False
        self.running = False
        self.left = False
        self.stuck = False
        """Abandoned, but its slot could not be replaced."""

    def run(self) -> None:
        value, error = None, None
        try:
            value = self.context.run(self.function)
        except BaseException as raised:  # noqa: BLE001 - a worker must survive whatever a tool raises
            error = to_safe_exception(raised)
        self._send_result(value, error)

    def refuse(self, error: Exception) -> None:
        self._send_result(None, error)

    def _send_result(self, value: Any, error: Exception | None) -> None:
        try:
            self.loop.call_soon_threadsafe(self._set_result, value, error)
        except RuntimeError:
            # The loop was closed, so the caller is gone.
            return

    def _set_result(self, value: Any, error: Exception | None) -> None:
        if self.answer.done():
            return
        if error is None:
            self.answer.set_result(value)
        else:
            self.answer.set_exception(error)


def to_safe_exception(error: BaseException) -> Exception:
    """The error, replaced by a RuntimeError if asyncio treats it specially.

    SystemExit would end the process, CancelledError would look like a cancelled run, and StopIteration cannot
    be set on a future, so the caller would wait forever.
    """
    if isinstance(error, Exception) and not isinstance(error, StopIteration | StopAsyncIteration):
        return error
    replaced = RuntimeError(f"the tool raised {type(error).__name__}: {describe_error(error)}")
    replaced.__cause__ = error
    return replaced


class _ThreadPool:
    def __init__(self, limit: int, left_max: int) -> None:
        self._limit = limit
        self._abandoned_max = left_max
        self._jobs: SimpleQueue[_ThreadJob] = SimpleQueue()
        self._lock = threading.Lock()
        self._workers = 0
        self._abandoned = 0
        self._stuck = 0
        self._spare = 0
        """Workers without a job minus jobs without a worker."""

    def submit(self, job: _ThreadJob) -> None:
        with self._lock:
            if self._stuck >= self._limit:
                raise self._stuck_error()
            self._spare -= 1
            self._jobs.put(job)
            try:
                self._start_worker()
            except RuntimeError:
                job.left = (
                    True  # no thread can be started: the caller gets the error, so it must not run later
                )
                raise

    def abandon(self, job: _ThreadJob) -> bool:
        """Abandon a job; False if it never started, and then never will."""
        with self._lock:
            if not job.running:
                job.left = True
                return job.started
            if self._abandoned < self._abandoned_max:
                job.left = True
                self._workers -= 1
                self._abandoned += 1
                with suppress(RuntimeError):  # no thread can be started: queued jobs keep waiting
                    self._start_worker()
            else:
                job.stuck = True
                self._stuck += 1
                if self._stuck >= self._limit:
                    self._refuse_all()
            return True

    def _refuse_all(self) -> None:
        with suppress(Empty):
            while True:
                waiting = self._jobs.get_nowait()
                self._spare += 1
                waiting.refuse(self._stuck_error())

    def _stuck_error(self) -> RuntimeError:
        return RuntimeError(THREADS_STUCK_MESSAGE.format(places=self._limit))

    def _start_worker(self) -> None:
        if self._spare < 0 and self._workers < self._limit:
            threading.Thread(target=self._work, name="bridle-tool", daemon=True).start()
            self._workers += 1
            self._spare += 1

    def _work(self) -> None:
        while True:
            job = self._jobs.get()
            with self._lock:
                job.started = job.running = not job.left
            if job.running:
                job.run()
            with self._lock:
                if job.running and job.left:
                    self._abandoned -= 1
                    return
                if job.stuck:
                    self._stuck -= 1
                job.running = False
                self._spare += 1
            del job  # an idle worker must not keep the last caller's data alive


_thread_pools: dict[int, _ThreadPool] = {}


def _process_pool() -> _ThreadPool:
    """The pool of this process; a forked child has none of its parent's threads and gets a new one."""
    pid = os.getpid()
    return _thread_pools.get(pid) or _thread_pools.setdefault(pid, _ThreadPool(THREADS_MAX, ABANDONED_MAX))
