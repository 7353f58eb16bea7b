"""A tool that reads pages of allowed hosts over HTTP.

sandbox/host_rules.py decides about hosts and resolves their names.  Every redirect is checked like a first request.
Proxies and credentials of the environment are not used, and no cookies are kept.
"""

import html
import http.client
import io
import re
import socket
import ssl
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING
from urllib.parse import urljoin

from bridle.ports.forbidden_requests import check_request
from bridle.ports.tool import ANY_ERROR, Tool
from bridle.sandbox.host_rules import PORTS, HostRefused, HostRules
from bridle.tools.function.function_tool import FunctionTool
from bridle.values.errors import MisuseError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

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

MARKUP_START = re.compile(r"<[a-zA-Z/!?]")
TAG_NAME = re.compile(r"<(/?)([a-zA-Z][^\s/>]*+)")
TAG_REST = re.compile(r"""(?:=\s*+(?:"[^"]*+"|'[^']*+')|[^>])*+>""")
"""The attributes and the end of a tag; a quote without an end is an ordinary character."""
RAW_ENDS = {tag: re.compile(f"</{tag}(?![a-z0-9])", re.IGNORECASE) for tag in ("script", "style")}
LONG_NUMBER = re.compile(r"&#(?:[0-9]{9}|[xX][0-9a-fA-F]{9})[0-9a-fA-F]*+;?")
"""Numbers of no character, which are slow to read, and refused above some thousand digits."""


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
        # guard: redirect-limit
        for _ in range(REDIRECTS_MAX + 1):
            try:
                answer = self._request(url, deadline)
            except TimeoutError:
                raise TimeoutError(f"the page was not complete after {SECONDS_MAX:g} s") from None
            if isinstance(answer, str):
                return answer
            # guard: redirect-checked
            url = urljoin(url, answer.location)
        raise HostRefused(f"more than {REDIRECTS_MAX} redirects; the last one is to {url!r}")

    def _request(self, url: str, deadline: float) -> "str | Redirect":
        parts, host, port = self._hosts.parse_url(url)
        check_request(url)
        address = self._hosts.resolve_host(host, port)
        connection = http.client.HTTPConnection(host, port)
        # guard: fetch-checked-address
        with _connect(address, port, host, parts.scheme, deadline) as stream:
            connection.sock = DeadlineSocket(stream, deadline)
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
                return _read_reply(url, reply)
            except http.client.HTTPException as error:
                raise ConnectionError(f"{host} sent an invalid answer: {error!r}") from None


class Redirect:
    def __init__(self, location: str) -> None:
        self.location = location


def make_fetch_tool(allow: Sequence[str], allow_private: Sequence[str]) -> Tool:
    fetcher = PageFetcher(allow, allow_private)
    return FunctionTool(fetcher.fetch_page, effect="read", timeout=SECONDS_MAX + 5, errors=ANY_ERROR)


class DeadlineSocket:
    """The end of a connection that `http.client` uses; all that it does has one deadline.

    A timeout of the socket alone starts again with every byte, and a server may send them slowly.
    """

    def __init__(self, stream: socket.socket, deadline: float) -> None:
        self._stream, self._deadline = stream, deadline

    def sendall(self, data: bytes) -> None:
        self._stream.settimeout(_seconds_left(self._deadline))
        self._stream.sendall(data)

    def makefile(self, mode: str) -> io.BufferedReader:
        assert mode == "rb"
        return io.BufferedReader(DeadlineReader(self._stream, self._deadline), READ_BYTES)

    def close(self) -> None:
        """Do nothing: the reply is still read, and then the stream is closed where it was opened."""


class DeadlineReader(io.RawIOBase):
    def __init__(self, stream: socket.socket, deadline: float) -> None:
        self._stream, self._deadline = stream, deadline

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "WriteableBuffer") -> int:
        # guard: fetch-read-deadline
        self._stream.settimeout(_seconds_left(self._deadline))
        return self._stream.recv_into(buffer)


def _connect(address: str, port: int, host: str, scheme: str, deadline: float) -> socket.socket:
    stream = socket.create_connection((address, port), timeout=_seconds_left(deadline))
    if scheme == "http":
        return stream
    try:
        context = ssl.create_default_context()
        stream.settimeout(_seconds_left(deadline))  # for the whole handshake
        return context.wrap_socket(stream, server_hostname=host)
    except BaseException:
        stream.close()
        raise


def _read_reply(url: str, reply: http.client.HTTPResponse) -> str:
    kind = reply.headers.get_content_type()
    if not kind.startswith(TEXT_TYPES):
        return f"[{url}: status {reply.status}, {kind}, not text]"
    body, cut = bytearray(), False
    while not cut:
        data = reply.read1(READ_BYTES)
        if not data:
            break
        body += data
        # guard: page-size-limit
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
        raise TimeoutError
    return left


def extract_text(page: str) -> str:
    """The text of an HTML page, one line per block.

    It takes time in proportion to the page, for any page.  `html.parser` does not: 30 KB of `<a ` take it minutes.
    """
    reader = _TextReader()
    at = 0
    while at >= 0:
        found = MARKUP_START.search(page, at)
        reader.add_text(page[at : found.start() if found else len(page)])
        at = reader.read_markup(page, found.start()) if found else -1
    lines = (" ".join(line.split()) for line in "".join(reader.pieces).split("\n"))
    return "\n".join(line for line in lines if line)


class _TextReader:
    def __init__(self) -> None:
        self.pieces: list[str] = []
        self._skipped: list[str] = []

    def read_markup(self, page: str, at: int) -> int:
        """Read what starts with the `<` at this place; returns the place after it, negative if it has no end."""
        if page.startswith("<!--", at):
            return _find_end(page, "-->", at + 4)
        name = TAG_NAME.match(page, at)
        if name is None:
            return _find_end(page, ">", at + 2)
        rest = TAG_REST.match(page, name.end())
        if rest is None:
            return -1
        tag, is_empty = name[2].lower(), page[rest.end() - 2] == "/"
        if name[1]:
            self._end_tag(tag)
        else:
            self._start_tag(tag)
            if is_empty:
                self._end_tag(tag)
            elif tag in RAW_ENDS:
                end = RAW_ENDS[tag].search(page, rest.end())
                return end.start() if end else -1
        return rest.end()

    def _start_tag(self, tag: str) -> None:
        if tag in SKIPPED_ELEMENTS:
            self._skipped.append(tag)
        elif tag == "body":
            self._skipped.clear()  # a head may be left open
        elif tag in BLOCK_ELEMENTS:
            self.pieces.append("\n")

    def _end_tag(self, tag: str) -> None:
        if self._skipped and tag == self._skipped[-1]:
            self._skipped.pop()
        elif tag in BLOCK_ELEMENTS:
            self.pieces.append("\n")

    def add_text(self, text: str) -> None:
        if text and not self._skipped:
            self.pieces.append(html.unescape(LONG_NUMBER.sub("\ufffd", text)))


def _find_end(page: str, mark: str, at: int) -> int:
    found = page.find(mark, at)
    return found if found < 0 else found + len(mark)
