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
import ssl
import sys
import threading
from base64 import b64encode
from collections.abc import Awaitable, Callable
from functools import cache
from importlib import import_module
from ipaddress import ip_address
from math import inf
from urllib.request import getproxies, proxy_bypass
from weakref import WeakSet

from aiohappyeyeballs import AddrInfoType, start_connection
from yarl import URL

from bridle import __version__
from bridle.ports.clock import Turns

from .deadlines import DeadlineTimer
from .http1 import RECEIVED_BYTES_MAX, Http1Connection, PlainConnection
from .network_failures import (
    CertificateRejected,
    ConnectFailed,
    ConnectTimeout,
    HostNotFound,
    InvalidAddress,
    TlsFailed,
)

KEEP_CONNECTION_SECONDS = 45.0
"""Time an idle connection stays open. Most middleboxes drop one after 60 seconds."""
KEEPALIVE_PROBE_SECONDS = 60
"""Interval of TCP keepalive probes.

Reasoning models are silent for minutes; without probes, a connection dropped by a router would be noticed
only by the idle deadline.
"""
KEEPALIVE_PROBES = 5
KEEP_ADDRESS_SECONDS = 10.0
"""Time the addresses of a host are kept."""
SECOND_ADDRESS_SECONDS = 0.25
"""Time after which the next address of a host is tried as well."""
EXIT_SECONDS = 1.0
"""Time that process exit waits for another thread's loop to close its pool."""
ROUTES_MAX = 256
HEADS_MAX = 16
"""Encoded request heads that a route keeps."""
DESCRIPTORS_PER_CONNECTION = 4
"""File descriptors per active connection.

As many idle connections may exist for other addresses, which leaves half of the descriptors to stores, tools
and the program.
"""
CONNECTIONS_MIN = 4
USER_AGENT = f"bridle/{__version__}"

_KEEPALIVE_OPTIONS = (
    ("TCP_KEEPIDLE", KEEPALIVE_PROBE_SECONDS),
    ("TCP_KEEPALIVE", KEEPALIVE_PROBE_SECONDS),  # name of TCP_KEEPIDLE on some platforms
    ("TCP_KEEPINTVL", KEEPALIVE_PROBE_SECONDS),
    ("TCP_KEEPCNT", KEEPALIVE_PROBES),
)
Headers = tuple[tuple[str, str], ...]


class Route:
    """A parsed URL, with its proxy and the encoded heads of its requests."""

    def __init__(self, address: URL, proxy: str | None) -> None:
        self.address, self.proxy = address, proxy
        self.host, self.port = address.host or "", address.port or 0
        self.is_tls = address.scheme == "https"
        self.place = f"{self.host}:{self.port}"
        self.origin = (address.scheme, self.host, self.port)
        self._heads: dict[tuple[str, Headers], bytes] = {}

    def encode_head(self, method: str, headers: Headers, size: int) -> bytes:
        """The head of a request up to the body of `size` bytes. Raises `ValueError` if a header cannot be sent."""
        known = self._heads.get((method, headers))
        if known is None:
            if len(self._heads) >= HEADS_MAX:
                self._heads.clear()  # signed requests have a new header each
            known = self._heads[method, headers] = _encode_head(self.address, method, headers)
        return b"%b%d\r\n\r\n" % (known, size)


def _encode_head(address: URL, method: str, headers: Headers) -> bytes:
    names = {name.lower() for name, _ in headers}
    port = "" if address.is_default_port() else f":{address.port}"
    own = [("host", f"{address.host_subcomponent}{port}")]
    # Compressing a stream of small pieces costs both sides more than it saves.
    own += [("user-agent", USER_AGENT), ("accept-encoding", "identity"), ("accept", "*/*")]
    if address.user is not None:
        pair = f"{address.user}:{address.password or ''}"
        own.append(("authorization", f"Basic {b64encode(pair.encode()).decode()}"))
    lines = [f"{method} {address.raw_path_qs} HTTP/1.1"]
    for name, value in (*(each for each in own if each[0] not in names), *headers):
        if name.lower() in ("content-length", "transfer-encoding", "connection"):
            raise ValueError(f"the header {name} is set by the transport")
        if not _is_token(name) or any(character in value for character in "\r\n\0"):
            raise ValueError("a header has a line break or another character that HTTP forbids")
        lines.append(f"{name}: {value}")
    return ("\r\n".join(lines) + "\r\ncontent-length: ").encode()


def _is_token(name: str) -> bool:
    return bool(name) and name.isascii() and all(each.isalnum() or each in "!#$%&'*+-.^_`|~" for each in name)


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
        limit = max_connections()
        self.turns = Turns(inf if limit is None else limit)
        """Taken by every request until its response has been read or abandoned."""
        self.on_close: list[Callable[[], Awaitable[None]]] = []
        """Called when the pool is closed, by the transports that keep more than connections in it."""
        self._routes: dict[str, Route] = {}
        self._idle: dict[tuple[str, str, int], list[Http1Connection]] = {}
        self._active: set[Http1Connection] = set()
        self._addresses: dict[tuple[str, int], tuple[float, asyncio.Task[list[AddrInfoType]]]] = {}
        self._expiry: asyncio.TimerHandle | None = None
        self.deadlines = DeadlineTimer(loop)
        self._receives_in = memoryview(bytearray(RECEIVED_BYTES_MAX))
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
        if self._expiry is not None:
            self._expiry.cancel()
        self.deadlines.stop()
        for connection in (*self._active, *(each for idle in self._idle.values() for each in idle)):
            connection.close_unread()
        self._idle.clear()
        for close in self.on_close:
            await close()
        # An aborted connection closes its socket in the next turn of the loop, over TLS in the one after it.
        for _ in range(3):
            await asyncio.sleep(0)

    def find_route(self, url: str) -> Route:
        """Parse a URL and look up its proxy, cached."""
        found = self._routes.get(url)
        if found is None:
            try:
                address = URL(url)
            except ValueError:
                raise InvalidAddress(url) from None
            if address.scheme not in ("http", "https") or not address.host:
                raise InvalidAddress(url)
            host = address.host
            here = host in ("localhost", "::1") or host.startswith("127.")
            proxy = None if here or proxy_bypass(host) else getproxies().get(address.scheme)
            if len(self._routes) >= ROUTES_MAX:
                self._routes.clear()
            found = self._routes[url] = Route(address, proxy)
        return found

    def take_idle(self, route: Route) -> Http1Connection | None:
        """An idle connection of the route's origin; None if there is none."""
        idle = self._idle.get(route.origin)
        while idle:
            connection = idle.pop()
            if connection.is_open:
                self._active.add(connection)
                return connection
        return None

    async def connect(self, route: Route, seconds: float | None) -> Http1Connection:
        """A new connection to the route's origin."""
        try:
            async with asyncio.timeout(seconds):
                connection = await self._open(route)
        except TimeoutError as error:
            raise error if isinstance(error, ConnectFailed) else ConnectTimeout from None
        self._active.add(connection)
        return connection

    def release(self, route: Route, connection: Http1Connection) -> None:
        """Take a connection back after its exchange; it is closed unless it can be used again."""
        self._active.discard(connection)
        if connection.finish():
            connection.idle_since = self._loop.time()
            self._idle.setdefault(route.origin, []).append(connection)
            if self._expiry is None:
                self._expiry = self._loop.call_later(KEEP_CONNECTION_SECONDS, self._close_expired)

    def _close_expired(self) -> None:
        self._expiry = None
        oldest, limit = None, self._loop.time() - KEEP_CONNECTION_SECONDS
        for origin, idle in list(self._idle.items()):
            kept = []
            for each in idle:
                if each.is_open and each.idle_since > limit:
                    kept.append(each)
                else:
                    each.abort()
            if kept:
                self._idle[origin] = kept
                oldest = min(oldest or kept[0].idle_since, kept[0].idle_since)
            else:
                del self._idle[origin]
        if oldest is not None:
            self._expiry = self._loop.call_at(oldest + KEEP_CONNECTION_SECONDS, self._close_expired)

    async def _open(self, route: Route) -> Http1Connection:
        try:
            addresses = await self._find_addresses(route.host, route.port)
        except OSError as error:
            raise HostNotFound(route.place, error) from None
        try:
            made = await start_connection(
                addresses,
                happy_eyeballs_delay=SECOND_ADDRESS_SECONDS,
                interleave=1,
                loop=self._loop,
                socket_factory=_open_socket,
            )
        except OSError as error:
            raise ConnectFailed(route.place, error) from None
        try:
            _, connection = await self._loop.create_connection(
                lambda: self._make_connection(route),
                sock=made,
                ssl=_tls_context() if route.is_tls else None,
                server_hostname=route.host if route.is_tls else None,
            )
        except BaseException as error:
            made.close()
            if isinstance(error, ssl.SSLCertVerificationError):
                raise CertificateRejected(route.place, error) from None
            if isinstance(error, OSError):
                raise (TlsFailed if route.is_tls else ConnectFailed)(route.place, error) from None
            raise
        return connection

    def _make_connection(self, route: Route) -> Http1Connection:
        if route.is_tls or sys.platform == "win32":  # a read may be under way in several connections there
            return Http1Connection(self._loop)
        return PlainConnection(self._loop, self._receives_in)

    async def _find_addresses(self, host: str, port: int) -> list[AddrInfoType]:
        try:
            family = socket.AF_INET6 if ip_address(host).version == 6 else socket.AF_INET
        except ValueError:
            pass
        else:
            return [(family, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (host, port))]
        known = self._addresses.get((host, port))
        if known is None or known[0] < self._loop.time():
            search = self._loop.create_task(self._look_up(host, port))
            search.add_done_callback(lambda task: task.cancelled() or task.exception())
            known = self._addresses[host, port] = self._loop.time() + KEEP_ADDRESS_SECONDS, search
        try:
            return await asyncio.shield(known[1])
        except OSError:
            self._addresses.pop((host, port), None)
            raise

    async def _look_up(self, host: str, port: int) -> list[AddrInfoType]:
        return [*await self._loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)]

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


@cache
def _tls_context() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


def _open_socket(address: AddrInfoType) -> socket.socket:
    family, kind, protocol, _, _ = address
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
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
