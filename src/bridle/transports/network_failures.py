"""Explains network errors in one line that says what to check.

The first matching row of a table wins. Header values never appear in a message, even if an error quotes one.
"""

import os
import re
from typing import NamedTuple
from urllib.parse import urlsplit

from bridle.ports.transport import OutgoingRequest
from bridle.values.errors import Failure, FailureKind

from .deadlines import Deadlines

# not from outside: our own text, shown to a person or a model
CAUSE_LENGTH_MAX = 200
SECRET_LENGTH_MIN = 6
"""Shorter header values are words such as `POST` or `*/*`, which any message may contain."""

NETWORK_ERRORS = (OSError, ValueError, RuntimeError)
"""Exceptions of the classes below, of the operating system and of a malformed address."""


class InvalidAddress(ValueError):
    """The text is not a URL of a web server."""


class ConnectFailed(OSError):
    """There is no connection to `place`, a host with its port."""

    def __init__(self, place: str, cause: Exception) -> None:
        super().__init__(str(cause))
        self.place, self.cause = place, cause


class HostNotFound(ConnectFailed):
    """The host has no address."""


class ProxyUnreachable(ConnectFailed):
    """There is no connection to the proxy."""


class ProxyRefused(OSError):
    """The proxy answered, and made no connection to the server."""


class TlsFailed(ConnectFailed):
    """The server does not speak TLS as this side does."""


class CertificateRejected(TlsFailed):
    """The server's certificate is not trusted."""


class ConnectTimeout(TimeoutError):
    """The connection took longer than `connect_seconds`."""


class TotalDeadlineExceeded(TimeoutError):
    """The response was still arriving when the total deadline passed."""


class BrokenOff(ConnectionError):
    """The connection ended in the middle of the response."""


class ClosedEarly(ConnectionError):
    """The connection ended before the response."""


class NotHttp(RuntimeError):
    """The server's bytes are not an HTTP/1.1 response."""


class _ErrorRow(NamedTuple):
    error: type[Exception]
    kind: FailureKind
    message: str
    should_retry: bool | None = None


_ERROR_ROWS = (
    _ErrorRow(HostNotFound, "unreachable",
         "cannot find {place}: {cause}; are you online, and is the base URL right?"),
    _ErrorRow(ProxyUnreachable, "unreachable",
         "cannot reach the proxy {place}: {cause}; check HTTP_PROXY, HTTPS_PROXY and NO_PROXY"),
    _ErrorRow(ProxyRefused, "unreachable",
         "the proxy would not connect to {place}: {cause}; check HTTPS_PROXY and NO_PROXY"),
    _ErrorRow(CertificateRejected, "unreachable",
         "{place} is not trusted: {cause}; if it is yours, name its certificate in SSL_CERT_FILE", False),
    _ErrorRow(TlsFailed, "unreachable",
         "no TLS with {place}: {cause}; should the base URL start with http:// instead?"),
    _ErrorRow(ConnectTimeout, "timeout",
         "no connection to {place} within {connect} (connect_seconds);"
         " is the base URL right, and is a firewall or proxy in the way?"),
    _ErrorRow(ConnectFailed, "unreachable",
         "cannot reach {place}: {cause}; is the server running, and is the base URL right?"),
    _ErrorRow(InvalidAddress, "unreachable",
         "{url!r} is not a web address; a base URL looks like https://host/path", False),
    _ErrorRow(TotalDeadlineExceeded, "timeout",
         "{place} had not finished after {total} (total_seconds) and was given up;"
         " ask for less, or allow more time with Deadlines(total_seconds=…)", False),
    _ErrorRow(TimeoutError, "timeout",
         "{place} sent nothing for {silence} ({deadline}) and was given up;"
         " try again, or allow more time with Deadlines({deadline}=…)"),
    _ErrorRow(BrokenOff, "cut", "{place} broke off {when}; try again"),
    _ErrorRow(ClosedEarly, "cut", "{place} closed the connection {when}; try again"),
    _ErrorRow(NotHttp, "garbled", "{place} does not speak HTTP/1.1: {cause}; is the base URL right?"),
    _ErrorRow(ValueError, "invalid",
         "cannot send to {place}: {cause}; look for stray characters in the base URL and in the key", False),
    _ErrorRow(Exception, "cut", "the connection to {place} broke {when}: {cause}; try again"),
)  # fmt: skip


def explain_network_error(
    error: Exception, outgoing: OutgoingRequest, deadlines: Deadlines, *, answered: bool
) -> Failure:
    row = next(row for row in _ERROR_ROWS if isinstance(error, row.error))
    message = row.message.format(
        place=_describe_host(error, outgoing.url),
        url=re.sub(r"//[^/@]*@", "//", outgoing.url.partition("?")[0]),
        cause=_describe_cause(error, outgoing),
        when="in the middle of its answer" if answered else "before it answered",
        connect=_format_seconds(deadlines.connect_seconds),
        total=_format_seconds(deadlines.total_seconds),
        silence=_format_seconds(deadlines.idle_seconds if answered else deadlines.first_byte_seconds),
        deadline="idle_seconds" if answered else "first_byte_seconds",
    )
    return Failure(kind=row.kind, message=message, should_retry=row.should_retry)


def _format_seconds(limit: float | None) -> str:
    return "too long" if limit is None else f"{limit:g} s"


def _describe_host(error: Exception, url: str) -> str:
    if isinstance(error, ConnectFailed):
        return error.place
    try:
        parts = urlsplit(url)
        port = parts.port or {"http": 80, "https": 443}.get(parts.scheme, 0)
    except ValueError:
        return "the server"
    return f"{parts.hostname}:{port}"


def _describe_cause(error: Exception, outgoing: OutgoingRequest) -> str:
    text = str(error)
    if isinstance(error, ConnectFailed) and isinstance(error.cause, OSError):
        reason = error.cause
        number = 0 if isinstance(error, TlsFailed) else reason.errno or 0
        text = os.strerror(number) if number > 0 else reason.strerror or str(reason)
    text = re.sub(r"^\[SSL[^]]*\] | \(_ssl\.c:\d+\)$", "", text)
    if any(len(value) >= SECRET_LENGTH_MIN and value in text for _, value in outgoing.headers):
        text = ""
    return " ".join(text.split())[:CAUSE_LENGTH_MAX].lower() or type(error).__name__
