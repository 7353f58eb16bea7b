"""An event loop in a thread of its own, which serves callers from any event loop and thread.

Connections belong to the loop that opened them, and a program may use one store from several loops (`run_sync` makes a
new one for each call). So all connections of a store live in this loop; callers submit coroutines and await the result
in their own.

The thread is a daemon, so it cannot keep a program from exiting. An exit hook asks it to finish. It does not
survive `fork()`: the child closes its copies of the sockets, because the server would see a killed parent as alive as
long as one of them is open.
"""

import asyncio
import atexit
import os
import threading
import weakref
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from typing import TypeVar

from bridle.stores.finished_writes import finish_write
from bridle.values.errors import MisuseError

T = TypeVar("T")

EXIT_SECONDS = 10.0
"""Time an exiting program waits for appends that are under way."""

_running: "weakref.WeakSet[StoreLoop]" = weakref.WeakSet()


class StoreLoop:
    """Runs coroutines in its thread, which starts with the first one.

    When it is stopped, `drain` lets those end that wait for something, the others are finished, and `close` runs last.
    """

    def __init__(
        self,
        name: str,
        *,
        drain: Callable[[], None],
        close: Callable[[], Awaitable[None]],
        sockets: Callable[[], list[int]],
    ) -> None:
        self._name = name
        self._work = drain, close
        self._sockets = sockets
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._stopped = False
        self._process = os.getpid()

    async def run(self, work: Coroutine[object, object, T]) -> T:
        """Run a coroutine there. Cancelling the caller cancels it."""
        return await asyncio.wrap_future(self.submit(work))

    async def write(self, work: Coroutine[object, object, T]) -> T:
        """Run a coroutine there that writes: a cancelled caller does not cancel it and waits for its end."""
        return await finish_write(asyncio.wrap_future(self.submit(work)))

    def submit(self, work: Coroutine[object, object, T]) -> "Future[T]":
        """Start a coroutine there."""
        try:
            self._check_process()  # before the lock, which may have been held at the fork
            with self._lock:
                return asyncio.run_coroutine_threadsafe(work, self._start())
        except BaseException:
            work.close()
            raise

    @property
    def is_usable(self) -> bool:
        return not self._stopped and os.getpid() == self._process

    def _check_process(self) -> None:
        if os.getpid() != self._process:
            raise MisuseError("this store was opened before fork(): open it again in the child process")

    def _start(self) -> asyncio.AbstractEventLoop:
        if self._stopped:
            raise MisuseError("this store was closed: open it again")
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(
                target=_serve, args=(self._loop, *self._work), name=self._name, daemon=True
            )
            self._thread.start()
            atexit.register(self._finish_at_exit)
            _running.add(self)
        return self._loop

    def stop(self) -> None:
        """Ask the thread to finish; returns at once."""
        if os.getpid() != self._process:
            return
        with self._lock:
            if not self._stopped and self._loop is not None:
                self._loop.call_soon_threadsafe(self._loop.stop)
            self._stopped = True
        atexit.unregister(self._finish_at_exit)

    def join(self, timeout_seconds: float | None = None) -> None:
        if self._thread is not None and os.getpid() == self._process:
            self._thread.join(timeout_seconds)

    def drop_sockets(self) -> None:
        """Replace the sockets by the null device: their numbers stay in use, so no later file is closed for them."""
        empty = os.open(os.devnull, os.O_RDWR)
        for descriptor in self._sockets():
            os.dup2(empty, descriptor, inheritable=False)
        os.close(empty)

    def _finish_at_exit(self) -> None:
        self.stop()
        self.join(EXIT_SECONDS)


def _serve(
    loop: asyncio.AbstractEventLoop, drain: Callable[[], None], close: Callable[[], Awaitable[None]]
) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
        drain()
        while leftover := asyncio.all_tasks(loop):
            loop.run_until_complete(asyncio.wait(leftover))
        loop.run_until_complete(close())
    finally:
        loop.close()


def _drop_child_sockets() -> None:
    for running in list(_running):
        running.drop_sockets()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_drop_child_sockets)
