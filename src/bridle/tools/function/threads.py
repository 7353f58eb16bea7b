"""Runs ordinary functions in threads, so that they cannot block the event loop.

Each process has two pools (`ThreadLane`): one for tools, one for hooks, instructions, validators, retrieval and
previews, so that slow tools do not delay the functions that prepare and check a run.  A pool has a number of slots
(`limit_threads`), and its threads are started on demand.  The standard pool is not used, because it can hang a
program in two ways: it joins its threads when the interpreter exits, and a thread that never returns occupies its
slot forever.

A function that waits for a run gives its slot back while it waits (`release_slot`): the run may need a slot of the same
pool, and no slot is held by a function that waits for one.  At most `WAITING_MAX` functions of a pool wait like that.
How it waits does not matter: in `run_sync`, in an event loop of its own, for a thread, or for the loop of another
thread.  The context variable `_current_job`, which the run inherits, says which function is around it.  A thread that
the function starts without its context does not know it.

A thread cannot be killed.  When its result is no longer awaited (deadline, cancellation), the thread is abandoned:
a new thread takes its slot, its result is dropped, and it ends when its function does.  At most `ABANDONED_MAX`
threads are replaced like that; beyond that, functions that never return occupy their slots.  When these occupy
all slots, new and queued calls fail at once instead of waiting forever.

Functions see the caller's context variables.
"""

import asyncio
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import Context, ContextVar, copy_context
from queue import Empty, SimpleQueue
from typing import Any, Literal, TypeVar

from bridle.ports.tool import NotStarted, is_deadline_cancel
from bridle.values.errors import MisuseError
from bridle.values.text import describe_error

ThreadLane = Literal["tools", "functions"]
"""`functions` are hooks, instructions, validators, retrieval and previews."""
THREADS_DEFAULT = 32
THREADS_MAX = 1_024
WAITING_MAX = 1_024
ABANDONED_MAX = 256
INTERRUPT_CHECK_SECONDS = 0.5
"""Longest time for which a Ctrl-C can go unnoticed while a function runs."""

NOT_STARTED_MESSAGE = (
    "not started: all {places} threads for {lane} were busy; nothing was done. Allow more with"
    " bridle.tools.limit_threads({lane}=…), or make the functions async"
)
THREADS_STUCK_MESSAGE = (
    "not run: abandoned functions that never returned occupy all {places} threads for {lane};"
    " add timeouts inside these functions, or make them async"
)
TOO_MANY_WAITING = (
    "{count} functions already wait for runs inside them, each in a thread; make them async and use"
    " `await agent.run(...)` there"
)

T = TypeVar("T")


def limit_threads(*, tools: int | None = None, functions: int | None = None) -> None:
    """Set how many ordinary functions of this process run at once; None leaves a limit as it is.

    `tools` counts tools; `functions` counts hooks, instructions, validators, retrieval and previews.  A function
    that waits for `run_sync` is not counted.
    """
    given: dict[ThreadLane, int | None] = {"tools": tools, "functions": functions}
    for lane, limit in given.items():
        if limit is not None and (
            isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= THREADS_MAX
        ):
            raise MisuseError(
                f"limit_threads({lane}=…) takes a number from 1 to {THREADS_MAX:,}, not {limit!r}"
            )
    for lane, limit in given.items():
        if limit is not None:
            _limits[lane] = limit
            _find_pool(lane).set_limit(limit)


async def run_in_thread(function: Callable[[], T], lane: ThreadLane = "tools") -> T:
    """Run a function in a thread; a cancellation returns at once and abandons the thread."""
    loop = asyncio.get_running_loop()
    pool = _find_pool(lane)
    job = _ThreadJob(function, copy_context(), loop)
    outer = _current_job.get()  # this run is inside a function of a pool
    is_released = outer is not None and outer.release_slot()
    try:
        pool.submit(job)
        _schedule_wake(job)
        answer: T = await job.answer
    except asyncio.CancelledError as error:
        if not pool.abandon(job):
            not_started = NotStarted(NOT_STARTED_MESSAGE.format(places=pool.limit, lane=lane))
            if is_deadline_cancel(error):
                raise not_started from None
            error.__cause__ = not_started  # `asyncio.timeout` raises its TimeoutError from `error`
        raise
    finally:
        if job.timer is not None:
            job.timer.cancel()
        if outer is not None and is_released:
            outer.take_back_slot()
    return answer


def find_not_started(error: BaseException) -> NotStarted | None:
    """What kept a function from starting, if the error is the end of its time limit."""
    # `asyncio.timeout` names the cancellation as the cause since Python 3.11.5, and before that only as the context.
    cause = error.__cause__ or error.__context__
    while cause is not None and not isinstance(cause, NotStarted):
        cause = cause.__cause__ or cause.__context__
    return cause


@contextmanager
def release_slot() -> Iterator[None]:
    """Give the slot of the function around this code to others until the block ends; elsewhere, do nothing."""
    job = _current_job.get()
    if job is None or not job.release_slot():
        yield
        return
    try:
        yield
    finally:
        job.take_back_slot()


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
    __slots__ = (
        "answer", "context", "function", "left", "loop", "pool", "running", "started", "stuck", "timer", "waits",
    )  # fmt: skip

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
        self.pool: _ThreadPool | None = None
        """The pool whose thread runs it, or ran it."""
        self.waits = 0
        """How many runs it waits for; its slot is given back until there are none."""

    def run(self) -> None:
        value, error = None, None
        try:
            value = self.context.run(self._call)
        except BaseException as raised:  # noqa: BLE001 - a worker must survive whatever a tool raises
            error = to_safe_exception(raised)
        self._send_result(value, error)

    def _call(self) -> Any:
        around = _current_job.set(self)
        try:
            return self.function()
        finally:
            _current_job.reset(around)  # or the context and the job would keep each other alive

    def release_slot(self) -> bool:
        """Give its slot back because it waits for a run; False if its function has ended."""
        return self.pool is not None and self.pool.release(self)

    def take_back_slot(self) -> None:
        assert self.pool is not None
        self.pool.take_back(self)

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
    def __init__(self, limit: int, left_max: int, lane: ThreadLane = "tools") -> None:
        self.limit, self._lane = limit, lane
        self._abandoned_max = left_max
        self._jobs: SimpleQueue[_ThreadJob] = SimpleQueue()
        self._lock = threading.Lock()
        self._workers = 0
        """Threads that hold a slot; more than the limit while functions return from a wait."""
        self._waiting = 0
        """Threads that gave their slot back, because they wait for a run."""
        self._abandoned = 0
        self._stuck = 0
        self._spare = 0
        """Workers without a job minus jobs without a worker."""

    def set_limit(self, limit: int) -> None:
        with self._lock:
            self.limit = limit
            with suppress(RuntimeError):  # no thread can be started: queued jobs keep waiting
                while self._start_worker():
                    pass

    def submit(self, job: _ThreadJob) -> None:
        with self._lock:
            if self._stuck >= self.limit:
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

    def release(self, job: _ThreadJob) -> bool:
        """Give back the slot of a running job, which waits for a run; False if the job has ended."""
        with self._lock:
            if not job.running:
                return False
            if job.waits == 0 and not job.left:
                if self._waiting >= WAITING_MAX:
                    raise RuntimeError(TOO_MANY_WAITING.format(count=self._waiting))
                self._waiting += 1
                self._workers -= 1
                with suppress(RuntimeError):  # no thread can be started: queued jobs keep waiting
                    self._start_worker()
            job.waits += 1
            return True

    def take_back(self, job: _ThreadJob) -> None:
        """End a wait.  The job goes on at once, even if all slots are taken: waiting for one could take forever."""
        with self._lock:
            job.waits -= 1
            if job.waits == 0 and job.running and not job.left:
                self._waiting -= 1
                self._workers += 1

    def abandon(self, job: _ThreadJob) -> bool:
        """Abandon a job; False if it never started, and then never will."""
        with self._lock:
            if not job.running:
                job.left = True
                return job.started
            if self._abandoned < self._abandoned_max:
                job.left = True
                self._abandoned += 1
                if job.waits:
                    self._waiting -= 1
                else:
                    self._workers -= 1
                    with suppress(RuntimeError):  # no thread can be started: queued jobs keep waiting
                        self._start_worker()
            elif not job.waits:  # one that waits holds no slot
                job.stuck = True
                self._stuck += 1
                if self._stuck >= self.limit:
                    self._refuse_all()
            return True

    def _refuse_all(self) -> None:
        with suppress(Empty):
            while True:
                waiting = self._jobs.get_nowait()
                self._spare += 1
                waiting.refuse(self._stuck_error())

    def _stuck_error(self) -> RuntimeError:
        return RuntimeError(THREADS_STUCK_MESSAGE.format(places=self.limit, lane=self._lane))

    def _start_worker(self) -> bool:
        """Start a thread if a job needs one and a slot is free."""
        if self._spare >= 0 or self._workers >= self.limit:
            return False
        threading.Thread(target=self._work, name=THREAD_NAMES[self._lane], daemon=True).start()
        self._workers += 1
        self._spare += 1
        return True

    def _work(self) -> None:
        while True:
            job = self._jobs.get()
            with self._lock:
                job.started = job.running = not job.left
            if job.running:
                job.pool = self
                job.run()
            with self._lock:
                if job.running and job.waits and not job.left:  # a run that it started goes on without it
                    self._waiting -= 1
                    self._workers += 1
                if job.running and job.left:
                    self._abandoned -= 1
                    return
                if job.stuck:
                    self._stuck -= 1
                job.running = False
                if self._workers > self.limit:  # it returned from a wait, or the limit was lowered
                    self._workers -= 1
                    return
                self._spare += 1
            del job  # an idle worker must not keep the last caller's data alive


THREAD_NAMES: dict[ThreadLane, str] = {"tools": "bridle-tool", "functions": "bridle-function"}
_current_job: ContextVar[_ThreadJob | None] = ContextVar("bridle_thread_job", default=None)
"""The function around this code that runs in a thread of a pool; it may have ended."""
_limits: dict[ThreadLane, int] = {"tools": THREADS_DEFAULT, "functions": THREADS_DEFAULT}
_thread_pools: dict[tuple[int, ThreadLane], _ThreadPool] = {}


def _find_pool(lane: ThreadLane) -> _ThreadPool:
    """The pool of this process; a forked child has none of its parent's threads and gets new ones."""
    place = os.getpid(), lane
    return _thread_pools.get(place) or _thread_pools.setdefault(
        place, _ThreadPool(_limits[lane], ABANDONED_MAX, lane)
    )
