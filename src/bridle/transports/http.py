"""HTTP/1.1 transport on aiohttp.

Rule 1: this is the hot path. Anything added to aiohttp's own work is paid for every chunk of every response,
so one object is the context manager, the response and the iterator, and one lazy timer checks the deadlines
instead of one timer per read.

Rule 2: connections are pooled per event loop and closed with it (pool.py). A request waits while the process
lacks file descriptors; its deadlines start after that wait.

Rule 3: leaving early closes the socket at once. A model that generates into the void still costs money, so
nothing is drained to save a handshake.

Rule 4: only `ProviderError` is raised, without a cause: aiohttp's exceptions carry the request and with it
the key. Their text is in the message (network_failures.py).

Rule 5: a long body is sent in slices of it, without a copy. aiohttp puts headers and body into one write; for
a conversation of a megabyte that copies it in every step, which cost more than the rest of the step. The
first slice is small and travels with the headers; between the others the loop runs other tasks, so an upload
does not delay a stream.

The transport never retries, follows no redirects, keeps no cookies and does not interpret the bytes.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from math import inf
from types import TracebackType
from typing import Self

import aiohttp
from aiohttp import Payload
from aiohttp.abc import AbstractStreamWriter

from bridle.ports.transport import OutgoingRequest
from bridle.values.errors import ProviderError

from .deadlines import Deadlines
from .network_failures import NETWORK_ERRORS, TotalDeadlineExceeded, explain_network_error
from .pool import ConnectionPool, find_pool

UPLOAD_THRESHOLD_BYTES = 2**15
"""Shorter bodies are faster as one write."""
FIRST_PIECE_BYTES = 2**12
PIECE_BYTES = 2**19


class BodyUpload(Payload):
    _autoclose = True

    def __init__(self, body: bytes) -> None:
        super().__init__(body)
        self._body, self._size = body, len(body)

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        return self._body.decode(encoding, errors)

    async def as_bytes(self, encoding: str = "utf-8", errors: str = "strict") -> bytes:
        return self._body

    async def write(self, writer: AbstractStreamWriter) -> None:
        whole = memoryview(self._body)
        await writer.write(whole[:FIRST_PIECE_BYTES])
        for start in range(FIRST_PIECE_BYTES, len(whole), PIECE_BYTES):
            await writer.write(whole[start : start + PIECE_BYTES])

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:
        # The announced length is that of the whole body, so all of it is written.
        await self.write(writer)


__all__ = ["Deadlines", "HttpTransport", "close_all"]


class HttpTransport:
    def __init__(self, deadlines: Deadlines | None = None) -> None:
        self._deadlines = deadlines or Deadlines()
        self._timeout = aiohttp.ClientTimeout(total=None, connect=self._deadlines.connect_seconds)

    def open(self, outgoing: OutgoingRequest) -> "HttpExchange":
        return HttpExchange(outgoing, self._deadlines, self._timeout)


async def close_all() -> None:
    """Close the connections of the running loop now; the next request opens new ones."""
    found: object = asyncio.get_running_loop().close
    if isinstance(found, ConnectionPool):
        await found.close_connections()


class HttpExchange:
    """One request and its response."""

    __slots__ = (
        "_content", "_deadlines", "_ends", "_headers", "_loop", "_outgoing", "_received", "_response",
        "_since", "_stalled", "_timeout", "_timer", "_turns", "status",
    )  # fmt: skip

    def __init__(
        self, outgoing: OutgoingRequest, deadlines: Deadlines, timeout: aiohttp.ClientTimeout
    ) -> None:
        self._outgoing, self._deadlines, self._timeout = outgoing, deadlines, timeout
        self._headers: dict[str, str] | None = None
        self._response: aiohttp.ClientResponse | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._since: float | None = None
        self._received = False
        self._ends = inf
        self._stalled: TimeoutError | None = None
        self.status = 0

    async def __aenter__(self) -> Self:
        loop = self._loop = asyncio.get_running_loop()
        pool = find_pool(loop)
        turns = pool.turns
        await turns.__aenter__()
        try:
            await self._send(pool)
        except BaseException:
            await turns.__aexit__(None, None, None)
            raise
        self._turns = turns
        return self

    async def _send(self, pool: ConnectionPool) -> None:
        outgoing, loop, body = self._outgoing, self._loop, self._outgoing.body
        first_byte_limit = _seconds_or_infinity(self._deadlines.first_byte_seconds)
        started = self._since = loop.time()
        self._ends = started + _seconds_or_infinity(self._deadlines.total_seconds)
        until = min(started + first_byte_limit, self._ends)
        failure = None
        try:
            route = pool.find_route(outgoing.url)
            async with asyncio.timeout_at(None if until == inf else until):
                response = await pool.session.request(
                    outgoing.method,
                    route.url,
                    data=body if len(body) < UPLOAD_THRESHOLD_BYTES else BodyUpload(body),
                    headers=outgoing.headers,
                    allow_redirects=False,
                    proxy=route.proxy,
                    timeout=self._timeout,
                )
        except NETWORK_ERRORS as error:
            overdue = type(error) is TimeoutError and self._ends < started + first_byte_limit
            shown_error = TotalDeadlineExceeded() if overdue else error
            failure = explain_network_error(shown_error, outgoing, self._deadlines, answered=False)
        if failure is not None:
            raise ProviderError(failure)
        self._response, self._content, self.status = response, response.content, response.status
        self._schedule_deadline_check(until)

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
        if self._received:
            self._since = self._loop.time()
        failure = None
        try:
            chunk = await content.readany()
        except NETWORK_ERRORS as error:
            # aiohttp reports a broken connection before it hands out the data that arrived earlier; that data
            # is part of the reply.
            chunk = content._read_nowait(-1)
            if not chunk:
                failure = explain_network_error(
                    self._stalled or error, self._outgoing, self._deadlines, answered=self._received
                )
        if failure is not None:
            raise ProviderError(failure)
        self._since = None
        if not chunk:
            self._raise_end()
        if not self._received:
            self._received = True
            self._start_idle_deadline()
        return chunk

    def _raise_end(self) -> None:
        if (
            self._stalled
        ):  # without a content length, closing the connection ends the body, also if this side closed it
            raise ProviderError(
                explain_network_error(self._stalled, self._outgoing, self._deadlines, answered=self._received)
            )
        raise StopAsyncIteration

    def _start_idle_deadline(self) -> None:
        """Switch from the first-byte deadline to the idle deadline."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._schedule_deadline_check(
            min(self._loop.time() + _seconds_or_infinity(self._deadlines.idle_seconds), self._ends)
        )

    def _schedule_deadline_check(self, when: float) -> None:
        if when < inf and not self._content.is_eof():
            self._timer = self._loop.call_at(when, self._check_deadline)

    def _check_deadline(self) -> None:
        """Abort if a deadline has passed, else look again at the next one.

        Silence counts only while the reader waits for the server. Checking again later is far cheaper than
        moving the timer for every chunk.
        """
        deadlines = self._deadlines
        limit = _seconds_or_infinity(
            deadlines.idle_seconds if self._received else deadlines.first_byte_seconds
        )
        now = self._loop.time()
        since = self._since
        if since is None or (not self._received and self._content.total_bytes):
            since = now
        over = self._ends <= now
        if since + limit > now and not over:
            self._schedule_deadline_check(min(since + limit, self._ends))
            return
        self._stalled = TotalDeadlineExceeded() if over else TimeoutError()
        if self._response is not None:
            connection = self._response.connection
            if connection is not None and connection.transport is not None:
                connection.transport.abort()


def _seconds_or_infinity(seconds: float | None) -> float:
    return inf if seconds is None else seconds
