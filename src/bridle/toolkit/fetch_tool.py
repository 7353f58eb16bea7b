"""A tool that reads pages of allowed hosts over HTTP.

sandbox/host_rules.py decides about hosts and resolves their names.  Every redirect is checked like a first request.
Proxies and credentials of the environment are not used, and no cookies are kept.
"""

import http.client
import socket
import ssl
import time
from collections.abc import Sequence
from html.parser import HTMLParser
from urllib.parse import urljoin

from bridle.ports.tool import Tool
from bridle.sandbox.host_rules import PORTS, HostRefused, HostRules
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
SKIPPED_ELEMENTS = frozenset({"script", "style", "noscript", "template", "svg", "head"})
BLOCK_ELEMENTS = frozenset(
    {"p", "div", "br", "li", "ul", "ol", "tr", "table", "section", "article", "header", "footer", "pre",
     "blockquote", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "dt", "dd"}
)  # fmt: skip


class PageFetcher:
    """Fetches pages of allowed hosts."""

    def __init__(self, allow: Sequence[str], allow_private: Sequence[str]) -> None:
        try:
            self._hosts = HostRules(allow, allow_private)
        except ValueError as error:
            raise MisuseError(str(error)) from None

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
        raise HostRefused(f"more than {REDIRECTS_MAX} redirects; the last one is to {url!r}")

    def _request(self, url: str, deadline: float) -> "str | Redirect":
        parts, host, port = self._hosts.parse_url(url)
        address = self._hosts.resolve_host(host, port)
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


class Redirect:
    def __init__(self, location: str) -> None:
        self.location = location


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
