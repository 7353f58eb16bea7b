"""The HTTP connections of one event loop, shared by its tasks and closed with the loop.

Callers never close anything. An event loop has no hook that runs before it closes, and afterwards its sockets
can no longer be closed: they leak and Python warns. So a pool replaces `loop.close`. When called, it closes
its connections while the loop can still run, restores the original `close` and calls it.

This covers `asyncio.run`, runners, test frameworks and bare loops. Only the loop references its pool, so the
pool lives as long as the loop. A loop still open when the process exits (a notebook's, a daemon thread's) has
its pool closed by an exit hook.

The number of connections is limited by the file descriptors the process may open. Requests beyond the limit
wait, before their deadlines start, instead of failing.
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
"""Time an idle connection stays open. Most middleboxes drop one after 60 seconds."""
KEEPALIVE_PROBE_SECONDS = 60
"""Interval of TCP keepalive probes.

Reasoning models are silent for minutes; without probes, a connection dropped by a router would be noticed
only by the idle deadline.
"""
KEEPALIVE_PROBES = 5
EXIT_SECONDS = 1.0
"""Time that process exit waits for another thread's loop to close its pool."""
ROUTES_MAX = 256
DESCRIPTORS_PER_CONNECTION = 4
"""File descriptors per active connection.

As many idle connections may exist for other addresses, which leaves half of the descriptors to stores, tools
and the program.
"""
CONNECTIONS_MIN = 4

_KEEPALIVE_OPTIONS = (
    ("TCP_KEEPIDLE", KEEPALIVE_PROBE_SECONDS),
    ("TCP_KEEPALIVE", KEEPALIVE_PROBE_SECONDS),  # name of TCP_KEEPIDLE on some platforms
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
    """Maximum number of concurrent requests in one event loop; None if file descriptors are unlimited."""
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
        limit = max_connections()
        self.turns = nullcontext() if limit is None else asyncio.Semaphore(limit)
        """Entered by every request until its response has been read or abandoned."""
        self._routes: dict[str, Route] = {}
        self._loop, self._process = loop, os.getpid()
        self._former = vars(loop).get("close")
        self._close_loop = loop.close
        loop.close = self  # type: ignore[method-assign]
        _POOLS.add(self)
        _register_exit_hook()

    def __call__(self) -> None:
        """Close the pool, then the loop; takes the place of `loop.close()`."""
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
        """Parse a URL and look up its proxy, cached; aiohttp would do so for every request."""
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
        """Close the pool of a loop still open at process exit, except in a forked child."""
        if self._process != os.getpid() or self._loop.is_closed():
            return
        if not self._loop.is_running():
            self._finish()
            return
        closing = asyncio.run_coroutine_threadsafe(self.close_connections(), self._loop)
        try:
            closing.result(EXIT_SECONDS)
        except TimeoutError:
            closing.cancel()

    def _finish(self) -> None:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            self._loop.run_until_complete(self.close_connections())
            return
        # Called from inside another loop: a thread can run only one loop.
        thread = threading.Thread(target=lambda: self._loop.run_until_complete(self.close_connections()))
        thread.start()
        thread.join()


class _DroppingResponse(aiohttp.ClientResponse):
    def close(self) -> None:
        """Abort the connection instead of closing it gracefully.

        A graceful close flushes unsent data and, over TLS, waits for the peer; if the server stopped reading,
        it waits forever.
        """
        connection = self.connection
        if connection is not None and connection.transport is not None:
            connection.transport.abort()
        super().close()
        if connection is not None:
            connection.close()  # otherwise aiohttp warns if the loop is closed


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
