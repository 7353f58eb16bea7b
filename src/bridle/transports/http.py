"""HTTP/1.1 transport: one request and its response, with deadlines.

Rule 1: this is the hot path. Anything done here is paid for every chunk of every response, so one object is the context
manager, the response and the iterator, and one lazy timer per event loop checks all deadlines of its open connections.

Rule 2: connections are pooled per event loop and closed with it (pool.py). A request waits while the process
lacks file descriptors; its deadlines start after that wait.

Rule 3: leaving early closes the socket at once. A model that generates into the void still costs money, so
nothing is drained to save a handshake.

Rule 4: only `ProviderError` is raised, without a cause, and no message repeats a header (network_failures.py).

http1.py speaks HTTP on a connection; aiohttp sends requests through a proxy (proxied.py). The transport never retries,
follows no redirects, keeps no cookies and does not interpret the bytes.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from importlib import import_module
from math import inf
from types import TracebackType
from typing import Protocol, Self

from msgspec.structs import replace

from bridle.ports.forbidden_requests import check_request
from bridle.ports.transport import OutgoingRequest
from bridle.values.errors import ProviderError

from .deadlines import Deadlines
from .http1 import Http1Connection
from .network_failures import NETWORK_ERRORS, TotalDeadlineExceeded, explain_network_error
from .pool import ConnectionPool, Route, find_pool

__all__ = ["Deadlines", "HttpTransport", "close_all"]


class ReceivedResponse(Protocol):
    """A response whose head has arrived: of a connection of ours, or of a proxy."""

    status: int
    is_complete: bool
    has_body: bool

    @property
    def headers(self) -> Mapping[str, str]: ...

    def read_now(self) -> bytes | None: ...

    async def read(self) -> bytes: ...

    def abort(self, error: Exception | None = None) -> None: ...


class HttpTransport:
    def __init__(self, deadlines: Deadlines | None = None) -> None:
        self._deadlines = deadlines or Deadlines()

    def open(self, outgoing: OutgoingRequest) -> "HttpExchange":
        return HttpExchange(outgoing, self._deadlines)


async def close_all() -> None:
    """Close the connections of the running loop now; the next request opens new ones."""
    found: object = asyncio.get_running_loop().close
    if isinstance(found, ConnectionPool):
        await found.close_connections()


class HttpExchange:
    """One request and its response."""

    __slots__ = (
        "_connection", "_deadlines", "_ends", "_loop", "_outgoing", "_pool", "_received", "_response", "_route",
        "_since", "status",
    )  # fmt: skip

    def __init__(self, outgoing: OutgoingRequest, deadlines: Deadlines) -> None:
        self._outgoing, self._deadlines = outgoing, deadlines
        self._connection: Http1Connection | None = None
        self._response: ReceivedResponse | None = None
        self._since: float | None = None
        self._received = False
        self._ends = inf
        self.status = 0

    async def __aenter__(self) -> Self:
        check_request(self._outgoing.url)
        self._loop = asyncio.get_running_loop()
        pool = self._pool = find_pool(self._loop)
        if not pool.turns.take_free():
            await pool.turns.take()
        outgoing, deadlines = self._outgoing, self._deadlines
        self._since = started = self._loop.time()
        # guard: total-deadline
        self._ends = started + _seconds_or_infinity(deadlines.total_seconds)
        failure = None
        try:
            route = self._route = pool.find_route(outgoing.url)
            if route.proxy is not None:
                response = await self._send_proxied(pool, route)
            else:
                head = route.encode_head(outgoing.method, outgoing.headers, len(outgoing.body))
                response = pool.take_idle(route) or await pool.connect(route, deadlines.connect_seconds)
                self._connection = self._response = response
                first_byte = started + _seconds_or_infinity(deadlines.first_byte_seconds)
                pool.deadlines.set(self, min(first_byte, self._ends))
                await response.request(head, outgoing.body)
        except NETWORK_ERRORS as error:
            failure = explain_network_error(error, outgoing, deadlines, answered=False)
        except BaseException:
            await self.__aexit__(None, None, None)
            raise
        if failure is not None:
            await self.__aexit__(None, None, None)
            raise ProviderError(failure)
        # guard: redirect-not-followed
        self.status = response.status
        if not response.is_complete:
            self._outgoing = replace(outgoing, body=b"")  # a reply may stream for minutes
        return self

    async def _send_proxied(self, pool: ConnectionPool, route: Route) -> ReceivedResponse:
        """Send through a proxy; the wait for the head has its deadline here, the rest has the timer."""
        proxied = import_module(".proxied", __package__)
        limit = self._loop.time() + _seconds_or_infinity(self._deadlines.first_byte_seconds)
        until = min(limit, self._ends)
        try:
            async with asyncio.timeout_at(None if until == inf else until) as time:
                response: ReceivedResponse = await proxied.open_proxied(
                    pool, route, self._outgoing, self._deadlines
                )
        except TimeoutError:
            if time.expired() and self._ends < limit:
                raise TotalDeadlineExceeded from None
            raise
        self._response = response
        pool.deadlines.set(self, until)
        return response

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.deadlines.clear(self)
        if self._connection is not None:
            self._pool.release(self._route, self._connection)
        elif self._response is not None and not self._response.is_complete:
            self._response.abort()
        self._pool.turns.give_back()

    @property
    def headers(self) -> Mapping[str, str]:
        assert self._response is not None
        return self._response.headers

    def chunks(self) -> AsyncIterator[bytes]:
        return self

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        response = self._response
        assert response is not None
        failure = None
        try:
            chunk = response.read_now()
            if chunk is None:
                if self._received:
                    self._since = self._loop.time()
                chunk = await response.read()
        except NETWORK_ERRORS as error:
            failure = explain_network_error(error, self._outgoing, self._deadlines, answered=self._received)
        if failure is not None:
            raise ProviderError(failure)
        self._since = None
        if not chunk:
            raise StopAsyncIteration
        if not self._received:
            self._received = True
            if not response.is_complete:
                silent = self._loop.time() + _seconds_or_infinity(self._deadlines.idle_seconds)
                self._pool.deadlines.set(self, min(silent, self._ends))
        return chunk

    def check_deadline(self) -> None:
        """Abort if a deadline has passed, else look again at the next one.

        Silence counts only while the reader waits for the server. Checking again later is far cheaper than
        moving the deadline for every chunk.
        """
        deadlines, response = self._deadlines, self._response
        assert response is not None
        if response.is_complete:
            return
        limit = _seconds_or_infinity(
            deadlines.idle_seconds if self._received else deadlines.first_byte_seconds
        )
        now = self._loop.time()
        since = self._since
        if since is None or (not self._received and response.has_body):
            since = now
        over = self._ends <= now
        if since + limit > now and not over:
            self._pool.deadlines.set(self, min(since + limit, self._ends))
            return
        response.abort(TotalDeadlineExceeded() if over else TimeoutError())


def _seconds_or_infinity(seconds: float | None) -> float:
    return inf if seconds is None else seconds
