"""Waits for a write that another thread does, so that it does not outlive its caller."""

import asyncio
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")

# not from outside: time that we wait for our own work
CANCELLED_SECONDS_MAX = 30.0
"""A cancelled caller waits at most this long for its write."""


async def finish_write(write: "asyncio.Future[T]") -> T:
    """The result of a write that has been handed over.  A cancelled caller waits for its end, and then ends.

    The caller holds the lease of the session.  If it gave that back first, the next holder could read the log before
    the write arrives, and would get a conflict.
    """
    try:
        return await asyncio.shield(write)
    except asyncio.CancelledError:
        loop = asyncio.get_running_loop()
        until = loop.time() + CANCELLED_SECONDS_MAX
        while not write.done() and (left := until - loop.time()) > 0:
            with suppress(asyncio.CancelledError):
                await asyncio.wait((write,), timeout=left)
        raise
