"""A tool that reads pages of allowed hosts over HTTP.

The name is resolved once and the connection goes to an address that was checked, so a name server cannot answer
differently in between (DNS rebinding).  Every redirect is checked like a first request.  Proxies and credentials of the
environment are not used, and no cookies are kept.
"""

import http.client
import ipaddress
import socket
import ssl
import time
from collections.abc import Sequence
from html.parser import HTMLParser
from urllib.parse import SplitResult, urljoin, urlsplit

from bridle.ports.tool import Tool
from bridle.tools.function.function_tool import FunctionTool
from bridle.values.errors import MisuseError

SECONDS_MAX = 30.0
BODY_BYTES_MAX = 2 * 1024 * 1024
REDIRECTS_MAX = 5
REDIRECT_CODES = (301, 302, 303, 307, 308)
READ_BYTES = 64 * 1024
TEXT_TYPES = (
    "text/",
    "application/json",
    "application/xml",
    "application/xhtml+xml",
    "application/javascript",
)
PORTS = {"http": 80, "https": 443}
SKIPPED_ELEMENTS = frozenset({"script", "style", "noscript", "template", "svg", "head"})
BLOCK_ELEMENTS = frozenset(
    {"p", "div", "br", "li", "ul", "ol", "tr", "table", "section", "article", "header", "footer", "pre",
     "blockquote", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "dt", "dd"}
)  # fmt: skip
MAPPED_NETWORKS = (ipaddress.ip_network("64:ff9b::/96"), ipaddress.ip_network("2002::/16"))
"""Networks whose addresses contain an IPv4 address that a gateway may reach."""


class FetchRefused(ValueError):
    """An address that must not be fetched; the message is for the model."""


class PageFetcher:
    """Fetches pages of allowed hosts."""

    def __init__(self, allow: Sequence[str], allow_private: Sequence[str]) -> None:
        for host in (*allow, *allow_private):
            if not isinstance(host, str) or not host or "/" in host or " " in host or host in ("*", "*."):
                raise MisuseError(
                    f"{host!r} is not a host; write example.com or *.example.com, without https://"
                )
        self._allow = tuple(host.lower().rstrip(".") for host in (*allow, *allow_private))
        self._private = frozenset(host.lower().rstrip(".") for host in allow_private)

    def fetch_page(self, url: str) -> str:
        """Read a web page or text file. HTML is returned as plain text.

        Args:
            url: Address that starts with https:// or http://.
        """
        deadline = time.monotonic() + SECONDS_MAX
        for _ in range(REDIRECTS_MAX + 1):
            answer = self._request(url, deadline)
            if isinstance(answer, str):
                return answer
            url = urljoin(url, answer.location)
        raise FetchRefused(f"more than {REDIRECTS_MAX} redirects; the last one is to {url!r}")

    def _request(self, url: str, deadline: float) -> "str | Redirect":
        parts, host, port = self._check_url(url)
        address = self._resolve(host, port)
        connection = http.client.HTTPConnection(host, port, timeout=_seconds_left(deadline))
        with _connect(address, port, host, parts.scheme, deadline) as stream:
            connection.sock = stream
            target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
            shown = f"[{host}]" if ":" in host else host
            name = shown if port == PORTS[parts.scheme] else f"{shown}:{port}"
            headers = {"Host": name, "User-Agent": "bridle", "Accept": "text/*, application/json;q=0.9, */*;q=0.1",
                       "Accept-Encoding": "identity", "Connection": "close"}  # fmt: skip
            try:
                connection.request("GET", target, headers=headers)
                reply = connection.getresponse()
                location = reply.getheader("Location")
                if reply.status in REDIRECT_CODES and location:
                    return Redirect(location)
                return _read_reply(url, reply, stream, deadline)
            except http.client.HTTPException as error:
                raise ConnectionError(f"{host} sent an invalid answer: {error!r}") from None

    def _check_url(self, url: str) -> tuple[SplitResult, str, int]:
        """The parts of an allowed address; raises `FetchRefused` for any other."""
        if not url.isascii() or not url.isprintable() or " " in url or "\\" in url:
            raise FetchRefused("the address has characters that must be percent-encoded")
        try:
            parts = urlsplit(url)
            host, port = (parts.hostname or "").rstrip("."), parts.port
        except ValueError as error:
            raise FetchRefused(f"{url!r} is not an address: {error}") from None
        if parts.scheme not in PORTS:
            raise FetchRefused(f"{url!r} is refused: only https:// and http:// are fetched")
        if not host or parts.username is not None or parts.password is not None:
            raise FetchRefused(f"{url!r} is refused: write the host without user and password")
        if not self._is_allowed(host):
            listed = ", ".join(self._allow) or "none"
            raise FetchRefused(
                f"the host {host!r} is not allowed (allowed: {listed}); the user can allow it with"
                f" toolkit.fetch(allow=[{host!r}]) or --allow-host {host}"
            )
        return parts, host, port or PORTS[parts.scheme]

    def _is_allowed(self, host: str) -> bool:
        return any(
            host == each or (each.startswith("*.") and host.endswith(each[1:])) for each in self._allow
        )

    def _resolve(self, host: str, port: int) -> str:
        """An address of the host that may be connected to; all of its addresses must be public."""
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            raise ConnectionError(f"the host {host!r} was not found: {error}") from None
        addresses = [str(item[4][0]) for item in found]
        if host not in self._private:
            for address in addresses:
                if not is_public(address):
                    raise FetchRefused(
                        f"the host {host!r} has the address {address} in a private network; refused"
                    )
        return addresses[0]


class Redirect:
    def __init__(self, location: str) -> None:
        self.location = location


def is_public(address: str) -> bool:
    """True for an address on the public internet; addresses that contain another are judged by that one."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address):
        if ip.ipv4_mapped is not None:
            return is_public(str(ip.ipv4_mapped))
        if any(ip in network for network in MAPPED_NETWORKS) or ip.teredo is not None:
            return False
    return ip.is_global and not ip.is_multicast


def make_fetch_tool(allow: Sequence[str], allow_private: Sequence[str]) -> Tool:
    fetcher = PageFetcher(allow, allow_private)
    return FunctionTool(fetcher.fetch_page, effect="read", timeout=SECONDS_MAX + 5)


def _connect(address: str, port: int, host: str, scheme: str, deadline: float) -> socket.socket:
    stream = socket.create_connection((address, port), timeout=_seconds_left(deadline))
    if scheme == "http":
        return stream
    try:
        return ssl.create_default_context().wrap_socket(stream, server_hostname=host)
    except BaseException:
        stream.close()
        raise


def _read_reply(url: str, reply: http.client.HTTPResponse, stream: socket.socket, deadline: float) -> str:
    kind = reply.headers.get_content_type()
    if not kind.startswith(TEXT_TYPES):
        return f"[{url}: status {reply.status}, {kind}, not text]"
    body, cut = bytearray(), False
    while not cut:
        stream.settimeout(_seconds_left(deadline))
        data = reply.read1(READ_BYTES)
        if not data:
            break
        body += data
        cut = len(body) > BODY_BYTES_MAX
    text = _decode(bytes(body[:BODY_BYTES_MAX]), reply.headers.get_content_charset())
    if kind in ("text/html", "application/xhtml+xml"):
        text = extract_text(text)
    if cut:
        text += f"\n[cut after {BODY_BYTES_MAX:,} bytes]"
    if reply.status >= 400:
        raise ConnectionError(f"{url} answered with status {reply.status}: {text[:500]}")
    return text or f"[{url}: empty]"


def _decode(data: bytes, charset: str | None) -> str:
    try:
        return data.decode(charset or "utf-8", errors="replace")
    except LookupError:
        return data.decode(errors="replace")


def _seconds_left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError(f"the page was not complete after {SECONDS_MAX:g} s")
    return left


def extract_text(page: str) -> str:
    """The text of an HTML page, one line per block."""
    reader = _TextReader()
    reader.feed(page)
    reader.close()
    lines = (" ".join(line.split()) for line in "".join(reader.pieces).split("\n"))
    return "\n".join(line for line in lines if line)


class _TextReader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.pieces: list[str] = []
        self._skipped: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in SKIPPED_ELEMENTS:
            self._skipped.append(tag)
        elif tag == "body":
            self._skipped.clear()  # a head may be left open
        elif tag in BLOCK_ELEMENTS:
            self.pieces.append("\n")

    def handle_endtag(self, tag: str) -> None:
        if self._skipped and tag == self._skipped[-1]:
            self._skipped.pop()
        elif tag in BLOCK_ELEMENTS:
            self.pieces.append("\n")

    def handle_data(self, data: str) -> None:
        if not self._skipped:
            self.pieces.append(data)
