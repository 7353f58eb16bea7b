"""Finishing what must not be left half-way, however often somebody asks to stop."""

import asyncio
from collections.abc import Coroutine
from typing import TypeVar

T = TypeVar("T")


async def surely(work: Coroutine[None, None, T]) -> T:
    """Do it to its end; whoever was cancelled meanwhile hears of it afterwards."""
    doing = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not doing.done():
        try:
            await asyncio.wait((doing,))
        except asyncio.CancelledError as error:
            cancelled = error
    result = doing.result()
    if cancelled is not None:
        raise cancelled
    return result
