"""Requests through a proxy, by aiohttp, which is imported only for them.

aiohttp's exceptions carry the request and with it the key: they are translated to those of network_failures.py here
and never leave this module.
"""

from collections.abc import Mapping

import aiohttp
from aiohttp.http_exceptions import HttpProcessingError

from bridle.ports.transport import OutgoingRequest

from .deadlines import Deadlines
from .network_failures import (
    BrokenOff,
    CertificateRejected,
    ClosedEarly,
    ConnectFailed,
    ConnectTimeout,
    HostNotFound,
    NotHttp,
    ProxyRefused,
    ProxyUnreachable,
    TlsFailed,
)
from .pool import USER_AGENT, ConnectionPool, Route

AIOHTTP_ERRORS = (aiohttp.ClientError, HttpProcessingError)
_CONNECT_ERRORS: tuple[tuple[type[aiohttp.ClientConnectorError], type[ConnectFailed]], ...] = (
    (aiohttp.ClientProxyConnectionError, ProxyUnreachable),
    (aiohttp.ClientConnectorDNSError, HostNotFound),
    (aiohttp.ClientConnectorSSLError, TlsFailed),
    (aiohttp.ClientConnectorError, ConnectFailed),
)
_sessions: dict[int, aiohttp.ClientSession] = {}


class ProxiedResponse:
    """A response that came through a proxy."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self._error: Exception | None = None
        self.status, self.is_complete, self.has_body = response.status, False, False

    @property
    def headers(self) -> Mapping[str, str]:
        given = self._response.headers
        return {name.lower(): ", ".join(given.getall(name)) for name in given}

    def read_now(self) -> bytes | None:
        return None

    async def read(self) -> bytes:
        content = self._response.content
        failure: Exception | None = None
        try:
            piece = await content.readany()
        except AIOHTTP_ERRORS as error:
            # aiohttp reports a broken connection before it hands out the data that arrived earlier.
            piece = content._read_nowait(-1)
            failure = translate_error(error)
        if not piece and failure is not None:
            raise self._error or failure
        self.has_body, self.is_complete = True, not piece
        return piece

    def abort(self, error: Exception | None = None) -> None:
        self._error = self._error or error
        connection = self._response.connection
        if connection is not None and connection.transport is not None:
            connection.transport.abort()
        self._response.close()
        if connection is not None:
            connection.close()  # otherwise aiohttp warns if the loop is closed


async def open_proxied(
    pool: ConnectionPool, route: Route, outgoing: OutgoingRequest, deadlines: Deadlines
) -> ProxiedResponse:
    """Send a request through the proxy of its route and wait for the head of the response."""
    failure: Exception
    try:
        response = await _find_session(pool).request(
            outgoing.method,
            route.address,
            data=outgoing.body,
            headers=outgoing.headers,
            allow_redirects=False,
            proxy=route.proxy,
            timeout=aiohttp.ClientTimeout(total=None, connect=deadlines.connect_seconds),
        )
    except aiohttp.ConnectionTimeoutError:
        failure = ConnectTimeout()
    except AIOHTTP_ERRORS as error:
        failure = translate_error(error)
    else:
        return ProxiedResponse(response)
    raise failure


def translate_error(error: Exception) -> Exception:
    """The error of network_failures.py that says the same, without the request."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return CertificateRejected(f"{error.host}:{error.port}", error.certificate_error)
    if isinstance(error, aiohttp.ClientConnectorError):
        made = next(ours for theirs, ours in _CONNECT_ERRORS if isinstance(error, theirs))
        return made(f"{error.host}:{error.port}", error.os_error)
    if isinstance(error, aiohttp.ClientHttpProxyError):
        return ProxyRefused(error.message)
    if isinstance(error, aiohttp.ClientPayloadError):
        return BrokenOff()
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return ClosedEarly()
    if isinstance(error, aiohttp.ClientResponseError | HttpProcessingError):
        return NotHttp(error.message)
    return OSError(str(error))


def _find_session(pool: ConnectionPool) -> aiohttp.ClientSession:
    key = id(pool)
    if key not in _sessions:
        session = _sessions[key] = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"user-agent": USER_AGENT, "accept-encoding": "identity"},
        )

        async def close() -> None:
            del _sessions[key]
            await session.close()

        pool.on_close.append(close)
    return _sessions[key]
