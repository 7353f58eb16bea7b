"""The tasks of this process that hold the lease of a session, and the wait for one that is being cancelled.

A caller who left the loop over a stream, or cancelled a run without waiting for its end, may prompt the session again
at once.  The prompt then waits until the old run has recorded its end.  A run that nobody cancelled keeps the session,
and the prompt gets a `Conflict`.
"""

import asyncio
import threading
from concurrent.futures import Future
from typing import NamedTuple

from bridle.ports.store import Store

# not from outside: time that we wait for our own work
CLEANUP_SECONDS_MAX = 30.0
"""A prompt waits at most this long for the end of a cancelled run."""
TURNS = 3
"""Turns of the event loop in which a cancelled caller ends its run: the cancellation passes from task to task."""


class Holder(NamedTuple):
    task: "asyncio.Task[object]"
    store: Store


_lock = threading.Lock()
_holders: dict[str, list[Holder]] = {}
_waiting: dict[str, list[Future[None]]] = {}


def add_holder(session: str, store: Store) -> Holder | None:
    """Note that the current task holds the lease of the session."""
    task = asyncio.current_task()
    if task is None:
        return None
    holder = Holder(task, store)
    with _lock:
        _holders.setdefault(session, []).append(holder)
    return holder


def remove_holder(session: str, holder: Holder | None) -> None:
    if holder is None:
        return
    with _lock:
        holders = _holders[session]
        holders.remove(holder)
        if not holders:
            del _holders[session]
        waiting = _waiting.pop(session, ())
    for each in waiting:
        if not each.done():
            each.set_result(None)


def is_held(session: str) -> bool:
    """True if a task of this process holds the lease of a session with this name, in whatever store."""
    return session in _holders


def is_held_on_loop(session: str, store: Store, loop: asyncio.AbstractEventLoop) -> bool:
    """True if a task of the event loop holds the lease of the session in this store."""
    with _lock:
        return any(
            holder.store is store and holder.task.get_loop() is loop for holder in _holders.get(session, ())
        )


async def wait_for_cancelled(session: str) -> None:
    """Wait until no cancelled task holds the session; returns at once if its holder was not cancelled."""
    for _ in range(TURNS):
        await asyncio.sleep(0)
    loop = asyncio.get_running_loop()
    until = loop.time() + CLEANUP_SECONDS_MAX
    while (left := until - loop.time()) > 0:
        released: Future[None] = Future()
        with _lock:
            current = asyncio.current_task()
            tasks = (holder.task for holder in _holders.get(session, ()) if holder.task is not current)
            if not any(task.cancelling() and not task.done() for task in tasks):
                return
            _waiting.setdefault(session, []).append(released)
        await asyncio.wait((asyncio.wrap_future(released),), timeout=left)
