"""Over the network: HTTP/1.1 on aiohttp.

Rule 1: this is the hot path.  Whatever is added to aiohttp's own work is paid on every
        piece of every answer, so one object is the context manager, the answer and the
        iterator, and the watch for silence is one lazy timer instead of one per read.
Rule 2: connections are pooled per event loop and closed with it (pool.py); a request waits for its turn
        where there are not enough descriptors for all, and its deadlines begin with its turn.
Rule 3: leaving in the middle closes the socket at once.  A model that talks to nobody
        still costs money, so nothing is drained to save a handshake.
Rule 4: only `ProviderError` leaves here, with no cause attached: aiohttp's exceptions
        carry the request and with it the key.  What they said is in the message
        (explaining.py).

It never retries, follows no redirects, keeps no cookies and does not know what it carries.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from math import inf
from types import TracebackType
from typing import Self

import aiohttp

from ..ports.transport import Outgoing
from ..values.errors import ProviderError
from .deadlines import Deadlines
from .explaining import TROUBLE, Overdue, explain
from .pool import Pool, pool_of
from .upload import LONG_BYTES, Upload

__all__ = ["Deadlines", "HttpTransport", "close_all"]


class HttpTransport:
    def __init__(self, deadlines: Deadlines | None = None) -> None:
        self._deadlines = deadlines or Deadlines()
        self._timeout = aiohttp.ClientTimeout(total=None, connect=self._deadlines.connect_seconds)

    def open(self, outgoing: Outgoing) -> "Exchange":
        return Exchange(outgoing, self._deadlines, self._timeout)


async def close_all() -> None:
    """Close the connections of the running loop now; the next request opens new ones."""
    found: object = asyncio.get_running_loop().close
    if isinstance(found, Pool):
        await found.empty()


class Exchange:
    """One request and its answer."""

    __slots__ = (
        "_content", "_deadlines", "_ends", "_headers", "_heard", "_loop", "_outgoing", "_response",
        "_since", "_stalled", "_timeout", "_timer", "_turns", "status",
    )  # fmt: skip

    def __init__(self, outgoing: Outgoing, deadlines: Deadlines, timeout: aiohttp.ClientTimeout) -> None:
        self._outgoing, self._deadlines, self._timeout = outgoing, deadlines, timeout
        self._headers: dict[str, str] | None = None
        self._response: aiohttp.ClientResponse | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._since: float | None = None
        self._heard = False
        self._ends = inf
        self._stalled: TimeoutError | None = None
        self.status = 0

    async def __aenter__(self) -> Self:
        loop = self._loop = asyncio.get_running_loop()
        pool = pool_of(loop)
        turns = pool.turns
        await turns.__aenter__()
        try:
            await self._send(pool)
        except BaseException:
            await turns.__aexit__(None, None, None)
            raise
        self._turns = turns
        return self

    async def _send(self, pool: Pool) -> None:
        outgoing, loop, body = self._outgoing, self._loop, self._outgoing.body
        patience = _or_ever(self._deadlines.first_byte_seconds)
        started = self._since = loop.time()
        self._ends = started + _or_ever(self._deadlines.total_seconds)
        until = min(started + patience, self._ends)
        failure = None
        try:
            route = pool.route(outgoing.url)
            async with asyncio.timeout_at(None if until == inf else until):
                response = await pool.session.request(
                    outgoing.method,
                    route.url,
                    data=body if len(body) < LONG_BYTES else Upload(body),
                    headers=outgoing.headers,
                    allow_redirects=False,
                    proxy=route.proxy,
                    timeout=self._timeout,
                )
        except TROUBLE as error:
            overdue = type(error) is TimeoutError and self._ends < started + patience
            trouble = Overdue() if overdue else error
            failure = explain(trouble, outgoing, self._deadlines, answered=False)
        if failure is not None:
            raise ProviderError(failure)
        self._response, self._content, self.status = response, response.content, response.status
        self._look_at(until)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
        response = self._response
        if response is not None and response.connection is not None:
            response.close()
        await self._turns.__aexit__(None, None, None)

    @property
    def headers(self) -> Mapping[str, str]:
        if self._headers is None:
            assert self._response is not None
            given = self._response.headers
            self._headers = {name.lower(): value for name, value in given.items()}
            if len(self._headers) != len(given):
                self._headers = {name: ", ".join(given.getall(name)) for name in self._headers}
        return self._headers

    def chunks(self) -> AsyncIterator[bytes]:
        return self

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        content = self._content
        if self._heard:
            self._since = self._loop.time()
        failure = None
        try:
            chunk = await content.readany()
        except TROUBLE as error:
            # aiohttp reports a break before it hands out what arrived ahead of it, but those
            # are words the model said.
            chunk = content._read_nowait(-1)
            if not chunk:
                failure = explain(
                    self._stalled or error, self._outgoing, self._deadlines, answered=self._heard
                )
        if failure is not None:
            raise ProviderError(failure)
        self._since = None
        if not chunk:
            self._end()
        if not self._heard:
            self._heard = True
            self._watch()
        return chunk

    def _end(self) -> None:
        if self._stalled:  # an answer without a length ends where its connection ends, also when we ended it
            raise ProviderError(explain(self._stalled, self._outgoing, self._deadlines, answered=self._heard))
        raise StopAsyncIteration

    def _watch(self) -> None:
        """The first byte is here: from now on the idle deadline counts."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._look_at(min(self._loop.time() + _or_ever(self._deadlines.idle_seconds), self._ends))

    def _look_at(self, when: float) -> None:
        if when < inf and not self._content.is_eof():
            self._timer = self._loop.call_at(when, self._look)

    def _look(self) -> None:
        """Is it overdue?  Silence counts only while somebody waits here for the other side.

        Looking again later is far cheaper than moving the timer with every piece.
        """
        deadlines = self._deadlines
        patience = _or_ever(deadlines.idle_seconds if self._heard else deadlines.first_byte_seconds)
        now = self._loop.time()
        since = self._since
        if since is None or (not self._heard and self._content.total_bytes):
            since = now
        over = self._ends <= now
        if since + patience > now and not over:
            self._look_at(min(since + patience, self._ends))
            return
        self._stalled = Overdue() if over else TimeoutError()
        if self._response is not None:
            connection = self._response.connection
            if connection is not None and connection.transport is not None:
                connection.transport.abort()


def _or_ever(seconds: float | None) -> float:
    return inf if seconds is None else seconds
