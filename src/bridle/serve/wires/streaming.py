"""Sends a reply while its run works, and ends the run if the client disconnects."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from starlette.requests import Request as HttpRequestIn
from starlette.responses import Response
from starlette.types import Message as AsgiMessage
from starlette.types import Receive, Scope, Send

from bridle.run.stream import RunHandle
from bridle.serve.errors import ServeError

CANCEL_SECONDS = 5.0
KEEP_ALIVE_SECONDS = 15.0
"""Time without a piece after which a stream has a sign of life."""


async def end_run(run: "RunHandle[Any]") -> None:
    run.cancel()
    ending = asyncio.ensure_future(run.result())
    _ignore_outcome(ending)  # the table of runs logs how it ended
    await asyncio.wait((ending,), timeout=CANCEL_SECONDS)


async def unless_gone(request: HttpRequestIn, work: Awaitable[bytes]) -> bytes:
    """The result of the work; raises `ServeError` if the client disconnects before."""
    working = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_wait_for_disconnect(request.receive))
    try:
        await asyncio.wait((working, gone), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ServeError(499, "client_gone", "the client disconnected")
        return working.result()
    finally:
        for task in (working, gone):
            task.cancel()
        await asyncio.gather(working, gone, return_exceptions=True)


async def _wait_for_disconnect(receive: Receive) -> None:
    message: AsgiMessage = {}
    while message.get("type") != "http.disconnect":
        message = await receive()


class PieceReader:
    """Reads the pieces of a reply with a time limit."""

    def __init__(self, pieces: AsyncIterator[bytes]) -> None:
        self._pieces = pieces
        self._next: asyncio.Future[bytes | None] | None = None

    async def read(self, seconds: float | None = None) -> bytes | None:
        """The next piece, None at the end; raises `TimeoutError` if it does not arrive in time, and can go on then."""
        if self._next is None:
            self._next = asyncio.ensure_future(_read_next(self._pieces))
        await asyncio.wait((self._next,), timeout=seconds)
        if not self._next.done():
            raise TimeoutError
        ended, self._next = self._next, None
        return ended.result()

    async def read_all(self, make_filler: Callable[[], bytes]) -> AsyncIterator[bytes]:
        """The pieces up to the end; a filler after a time without one."""
        while True:
            try:
                piece = await self.read(KEEP_ALIVE_SECONDS)
            except TimeoutError:
                piece = make_filler()
            if piece is None:
                return
            yield piece

    def close(self) -> None:
        if self._next is not None:
            _ignore_outcome(self._next)
            self._next.cancel()


async def _read_next(pieces: AsyncIterator[bytes]) -> bytes | None:
    return await anext(pieces, None)


def _ignore_outcome(ending: "asyncio.Future[Any]") -> None:
    """An exception that is never read would be logged, with its traceback."""
    ending.add_done_callback(lambda ended: ended.cancelled() or ended.exception())


class StreamedReply(Response):
    """A stream that ends its run as soon as the client is gone, also while nothing is sent."""

    def __init__(self, pieces: AsyncIterator[bytes], run: "RunHandle[Any]") -> None:
        super().__init__()
        del self.headers["content-length"]
        self._pieces, self._run = pieces, run

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        sending = asyncio.ensure_future(self._send_all(send))
        gone = asyncio.ensure_future(_wait_for_disconnect(receive))
        try:
            await asyncio.wait((sending, gone), return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                sending.result()
        finally:
            for task in (sending, gone):
                task.cancel()
            await asyncio.gather(sending, gone, return_exceptions=True)
            if not self._run.done:
                await end_run(self._run)

    async def _send_all(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        async for piece in self._pieces:
            if piece:
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})
