"""Runs coroutines for synchronous callers, on one event loop in a background thread.

`run_sync` works in a script, inside a notebook's running loop and from several threads, and connections stay
open between calls.  A forked process gets a new loop.  The loop is closed when the interpreter exits.

It blocks its thread.  On the thread of an event loop that drives the run around it, or a run of the same session, it
would wait for itself: this is refused.  On the thread of another running loop it blocks everything on that loop: there
is a warning, except in a notebook, where nothing else runs.  In a thread for tools it gives its slot back while it
waits.
"""

import asyncio
import atexit
import contextvars
import os
import sys
import threading
import warnings
from collections.abc import Coroutine, Generator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import suppress
from contextvars import ContextVar
from queue import Empty, SimpleQueue
from typing import Generic, Self, TypeVar

from bridle.ports.store import Store
from bridle.run.control.holders import is_held_on_loop
from bridle.tools.function.threads import WAITING_MAX, release_slot
from bridle.values.errors import MisuseError
from bridle.values.result import FinalAnswer

from .context.shown_deltas import StreamItem
from .stream import Stream

T = TypeVar("T")

INTERRUPT_CHECK_SECONDS = 0.5
"""Longest time for which a Ctrl-C can go unnoticed; see `_wait_for_result`."""
NOTEBOOK_MODULE = "ipykernel"
"""Imported in the process that runs the cells of a notebook."""
INSIDE_RUN = "run_sync was called from inside a run; use `await agent.run(...)` there"
BLOCKS_LOOP = (
    "run_sync blocks the event loop that runs in this thread until the run ends; use `await agent.run(...)`"
)
SESSION_ON_LOOP = (
    "run_sync would block the event loop of a run that has session {session!r} and wait for that run;"
    " use `await agent.run(...)`"
)
driving_loop: ContextVar[asyncio.AbstractEventLoop | None] = ContextVar("bridle_driving_loop", default=None)
"""The event loop of the run inside which this code runs."""
_background_lock = threading.Lock()
_background_loop: "BackgroundLoop | None" = None


def run_in_background(
    coroutine: Coroutine[None, None, T], session: str = "", store: Store | None = None
) -> T:
    """Run a coroutine to its end.  Ctrl-C cancels it, waits for its cleanup, and is raised again.

    `session` is the one that it holds in the store.
    """
    background = _get_background_loop()
    try:
        _check_blocking(background, session, store)
    except (RuntimeError, RuntimeWarning):  # a program may turn warnings into errors
        coroutine.close()
        raise
    future: Future[T] = Future()  # created first: Ctrl-C may arrive at any point below
    try:
        background.submit(coroutine, future)
        with release_slot():
            return _wait_for_result(future)
    except KeyboardInterrupt:
        background.cancel(coroutine, future)
        with suppress(CancelledError):
            _wait_for_result(future)
        raise


def _check_blocking(background: "BackgroundLoop", session: str, store: Store | None) -> None:
    """Refuse to block a loop that the run needs; warn about blocking another one."""
    running = _find_running_loop()
    if threading.current_thread() is background.thread or (
        running is not None and running is driving_loop.get()
    ):
        raise RuntimeError(INSIDE_RUN)
    if running is not None and store is not None and is_held_on_loop(session, store, running):
        raise RuntimeError(SESSION_ON_LOOP.format(session=session))
    if running is not None and NOTEBOOK_MODULE not in sys.modules:
        warnings.warn(BLOCKS_LOOP, RuntimeWarning, stacklevel=4)


class SyncStream(Generic[T]):
    """A run in the background, whose deltas and events a plain loop reads.  Iterate over it once."""

    def __init__(self, stream: Stream[T], store: Store | None = None) -> None:
        self.session, self._stream, self._store = stream.session, stream, store
        self._items: SimpleQueue[StreamItem | FinalAnswer[T] | None] = SimpleQueue()
        self._reading: Coroutine[None, None, None] | None = None
        self._future: Future[None] = Future()

    def __iter__(self) -> Generator[StreamItem | FinalAnswer[T], None, None]:
        if self._reading is not None:
            raise MisuseError("a stream can be iterated once; call agent.stream_sync() again for another run")
        background = _get_background_loop()
        _check_blocking(background, self.session, self._store)
        self._reading = self._read()
        self._future.add_done_callback(lambda _: self._items.put(None))
        try:
            background.submit(self._reading, self._future)
            while (item := self._wait_for_item()) is not None:
                yield item
            _wait_for_result(self._future)
        finally:
            self.close()

    def __enter__(self) -> Self:
        """Leaving the block ends the run, and waits for its end."""
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def close(self) -> None:
        """End the run, if it was started, and wait for its end."""
        if self._reading is None or self._future.done():
            return
        _get_background_loop().cancel(self._reading, self._future)
        with suppress(CancelledError):
            _wait_for_result(self._future)

    async def _read(self) -> None:
        async with self._stream:
            async for item in self._stream:
                self._items.put(item)

    def _wait_for_item(self) -> "StreamItem | FinalAnswer[T] | None":
        """The next item; None after the last.  The main thread notices Ctrl-C at intervals."""
        seconds = INTERRUPT_CHECK_SECONDS if threading.current_thread() is threading.main_thread() else None
        with release_slot():
            while True:
                with suppress(Empty):
                    return self._items.get(timeout=seconds)


def _find_running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _wait_for_result(future: "Future[T]") -> T:
    """Wait for the future, and let the main thread notice Ctrl-C at intervals.

    The main thread raises KeyboardInterrupt only while it executes Python code or if the signal interrupts its wait.
    The signal does not interrupt the wait if another thread receives it, or if it arrives just before the wait begins.
    """
    is_main = threading.current_thread() is threading.main_thread()
    while is_main and not future.done():
        with suppress(TimeoutError, CancelledError):
            future.exception(INTERRUPT_CHECK_SECONDS)
    return future.result()


class BackgroundLoop:
    def __init__(self) -> None:
        self.pid = os.getpid()
        self._loop = asyncio.new_event_loop()
        # Looks up host names, and runs what tools give to `asyncio.to_thread`, such as `run_sync`.  With the few
        # threads of the standard one, functions that wait for runs would take all of them, and the runs need one.
        self._loop.set_default_executor(ThreadPoolExecutor(WAITING_MAX, "bridle-background"))
        self._tasks: dict[int, asyncio.Task[object]] = {}
        self._stopping = False
        self.thread = threading.Thread(target=self._run_loop, name="bridle", daemon=True)
        self.thread.start()

    def submit(self, coroutine: Coroutine[None, None, T], future: "Future[T]") -> None:
        context = contextvars.copy_context()
        self._loop.call_soon_threadsafe(self._start_task, coroutine, future, context)

    def cancel(self, coroutine: Coroutine[None, None, T], future: "Future[T]") -> None:
        self._loop.call_soon_threadsafe(self._cancel_task, coroutine, future)

    def close(self) -> None:
        if self._loop.is_closed() or self.pid != os.getpid():
            return
        self._stopping = True
        self._loop.call_soon_threadsafe(self._loop.stop)
        self.thread.join()
        self._loop.run_until_complete(self._cancel_remaining())
        self._loop.close()

    def _cancel_task(self, coroutine: Coroutine[None, None, T], future: "Future[T]") -> None:
        task = self._tasks.get(id(future))
        if task is not None:
            task.cancel()
        elif not future.done():  # interrupted before the task was created
            coroutine.close()
            future.cancel()
            future.set_running_or_notify_cancel()

    def _run_loop(self) -> None:
        asyncio.set_event_loop(self._loop)
        while not self._stopping:
            # A task started by a tool may raise KeyboardInterrupt or SystemExit, which stop the loop.
            # Ctrl-C itself is never raised in this thread.
            with suppress(KeyboardInterrupt, SystemExit):
                self._loop.run_forever()

    def _start_task(
        self, coroutine: Coroutine[None, None, T], future: "Future[T]", context: contextvars.Context
    ) -> None:
        task = self._loop.create_task(coroutine, context=context)
        self._tasks[id(future)] = task
        task.add_done_callback(lambda done: self._transfer_result(done, future))

    def _transfer_result(self, task: "asyncio.Task[T]", future: "Future[T]") -> None:
        self._tasks.pop(id(future), None)
        if task.cancelled():
            future.cancel()
            future.set_running_or_notify_cancel()
        elif (error := task.exception()) is not None:
            future.set_exception(error)
        else:
            future.set_result(task.result())

    async def _cancel_remaining(self) -> None:
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._loop.shutdown_asyncgens()


def _get_background_loop() -> BackgroundLoop:
    global _background_loop
    with _background_lock:
        if (
            _background_loop is None
            or _background_loop.pid != os.getpid()
            or not _background_loop.thread.is_alive()
        ):
            _background_loop = BackgroundLoop()
            atexit.register(_background_loop.close)
        return _background_loop
