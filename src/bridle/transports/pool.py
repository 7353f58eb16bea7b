"""The connections of one event loop, shared by everybody on it and closed with it.

Nobody has to remember to close anything.  That is harder than it sounds: a loop tells
nobody that it is about to be closed, and afterwards the sockets on it cannot be closed
any more; they leak, and Python says so.  Hence a pool takes the place of `loop.close`.
When it is called it closes its connections while the loop can still run, gives the loop
its own `close` back and calls that.

`asyncio.run`, runners, test frameworks and bare loops all come by here.  Nothing but the
loop keeps the pool, so it lives exactly as long as its loop; a loop that is still open
when the process ends (a notebook's, a daemon thread's) has its pool emptied then.

Connections are limited by the descriptors that the process may open: requests beyond the limit wait for
their turn, before any deadline of theirs begins, instead of failing.
"""

import asyncio
import atexit
import os
import socket
import threading
from contextlib import nullcontext
from functools import cache
from importlib import import_module
from typing import NamedTuple
from urllib.request import getproxies, proxy_bypass
from weakref import WeakSet

import aiohttp
from yarl import URL

from bridle import __version__

KEEP_CONNECTION_SECONDS = 45.0
"""How long an unused connection is kept.  Most middleboxes forget one after 60 seconds."""
KEEPALIVE_PROBE_SECONDS = 60
"""A silent connection is probed this often: reasoning models are silent for minutes, and a
router that forgot the connection would otherwise be noticed only by the idle deadline."""
KEEPALIVE_PROBES = 5
EXIT_SECONDS = 1.0
"""How long the end of the process waits for the loop of another thread to empty its pool."""
ROUTES_MAX = 256
DESCRIPTORS_PER_CONNECTION = 4
"""One connection in use for so many descriptors.  As many again may be idle at another address, which
leaves half of them to stores, tools and the program."""
CONNECTIONS_MIN = 4

_KEEPALIVE_OPTIONS = (
    ("TCP_KEEPIDLE", KEEPALIVE_PROBE_SECONDS),
    ("TCP_KEEPALIVE", KEEPALIVE_PROBE_SECONDS),  # what some platforms call the first
    ("TCP_KEEPINTVL", KEEPALIVE_PROBE_SECONDS),
    ("TCP_KEEPCNT", KEEPALIVE_PROBES),
)


class Route(NamedTuple):
    url: URL
    proxy: str | None


def find_pool(loop: asyncio.AbstractEventLoop) -> "ConnectionPool":
    found: object = loop.close
    return found if isinstance(found, ConnectionPool) else ConnectionPool(loop)


def max_connections() -> int | None:
    """The requests that may be under way at once in one loop; None without a limit of descriptors."""
    try:
        resource = import_module("resource")
    except ImportError:
        return None
    limit: int = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit == resource.RLIM_INFINITY:
        return None
    return max(limit // DESCRIPTORS_PER_CONNECTION, CONNECTIONS_MIN)


class ConnectionPool:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=0, keepalive_timeout=KEEP_CONNECTION_SECONDS, socket_factory=_open_socket
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            # Compressing a stream of small pieces costs both sides more than it saves.
            headers={"user-agent": f"bridle/{__version__}", "accept-encoding": "identity"},
            response_class=_DroppingResponse,
        )
        most = max_connections()
        self.turns = nullcontext() if most is None else asyncio.Semaphore(most)
        """Entered for every request, until its answer has been read or given up."""
        self._routes: dict[str, Route] = {}
        self._loop, self._process = loop, os.getpid()
        self._former = vars(loop).get("close")
        self._close_loop = loop.close
        loop.close = self  # type: ignore[method-assign]
        _POOLS.add(self)
        _register_exit_hook()

    def __call__(self) -> None:
        """`loop.close()`."""
        if not self._loop.is_running() and not self._loop.is_closed():
            self._finish()
        self._close_loop()

    async def close_connections(self) -> None:
        if vars(self._loop).get("close") is self:
            if self._former is None:
                del self._loop.close
            else:
                self._loop.close = self._former
        _POOLS.discard(self)
        await self.session.close()

    def find_route(self, url: str) -> Route:
        """The parsed address and the proxy to it, looked up once; aiohttp would ask on every request."""
        found = self._routes.get(url)
        if found is None:
            try:
                address = URL(url)
            except ValueError:
                raise aiohttp.InvalidURL(url) from None
            host = address.host or ""
            here = host in ("localhost", "::1") or host.startswith("127.")
            proxy = None if here or proxy_bypass(host) else getproxies().get(address.scheme)
            if len(self._routes) >= ROUTES_MAX:
                self._routes.clear()
            found = self._routes[url] = Route(address, proxy)
        return found

    def close_at_exit(self) -> None:
        """The process ends and this loop was never closed.  After a fork the loop is the parent's."""
        if self._process != os.getpid() or self._loop.is_closed():
            return
        if not self._loop.is_running():
            self._finish()
            return
        emptying = asyncio.run_coroutine_threadsafe(self.close_connections(), self._loop)
        try:
            emptying.result(EXIT_SECONDS)
        except TimeoutError:
            emptying.cancel()

    def _finish(self) -> None:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            self._loop.run_until_complete(self.close_connections())
            return
        # Closed from inside another loop, and a thread can run only one.
        thread = threading.Thread(target=lambda: self._loop.run_until_complete(self.close_connections()))
        thread.start()
        thread.join()


class _DroppingResponse(aiohttp.ClientResponse):
    def close(self) -> None:
        """Drop the connection instead of closing it politely.

        A polite close first sends what is still unsent and, over TLS, waits for an answer;
        with a server that stopped reading, that is for ever.
        """
        connection = self.connection
        if connection is not None and connection.transport is not None:
            connection.transport.abort()
        super().close()
        if connection is not None:
            connection.close()  # of a loop that is closed, aiohttp would leave it to complain


def _open_socket(address: aiohttp.AddrInfoType) -> socket.socket:
    family, kind, protocol, _, _ = address
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, number in _KEEPALIVE_OPTIONS:
        if hasattr(socket, name):
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), number)
    return made


_POOLS: "WeakSet[ConnectionPool]" = WeakSet()


@cache
def _register_exit_hook() -> None:
    atexit.register(_close_pools_at_exit)


def _close_pools_at_exit() -> None:
    for pool in list(_POOLS):
        pool.close_at_exit()
