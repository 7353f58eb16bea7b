"""One HTTP/1.1 connection: sends a request and receives its response, with the parser of httptools.

A connection serves one exchange at a time and is reused after a complete response. It knows no deadlines (http.py), no
addresses (pool.py) and no proxies (proxied.py).

  - Received pieces wait in a queue; above `BUFFER_BYTES_MAX` the socket is not read.
  - What arrived before a connection broke is handed out before the error.
  - A long body is written in slices of it, without a copy. The response may arrive while the body is still being sent.
  - Compressed responses are decompressed when they are read, a bounded piece at a time.
"""

import asyncio
import zlib
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, TypeVar, cast, overload

import httptools

from .network_failures import BrokenOff, ClosedEarly, NotHttp

BUFFER_BYTES_MAX = 2**18
# not from outside: how much one of our reads takes
RECEIVED_BYTES_MAX = 2**16
"""Most that one read takes from the socket; larger pieces do not stay in the cache of a processor."""
HEAD_BYTES_MAX = 2**16
"""Longest response head, and longest trailers; above that, the server is not one for models."""
HEAD_TOO_LONG = "its headers are too long"
TRAILERS_TOO_LONG = "its trailers are too long"
KNOWN_HEADS_MAX = 64
"""Lists of header names that are remembered: a server sends the same names in the same order again and again."""
UPLOAD_THRESHOLD_BYTES = 2**15
"""Shorter bodies are faster as one write."""
FIRST_PIECE_BYTES = 2**12
PIECE_BYTES = 2**21
INFLATED_BYTES_MAX = 2**18
"""Longest piece that one read of a compressed response returns."""
COMPRESSED = frozenset({"gzip", "x-gzip", "deflate"})
ANY_ZLIB_FORMAT = 32 + zlib.MAX_WBITS

T = TypeVar("T")


class Http1Connection(asyncio.Protocol):
    """A connection to one origin."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.transport: asyncio.Transport | None = None
        self.idle_since = 0.0
        self._lost: Exception | None = None
        """Why the connection cannot be used any more."""
        self._writable: asyncio.Future[None] | None = None
        self._upload: asyncio.Task[None] | None = None
        self._idle_parser: Any = None
        """The parser of the exchange before, which has read a whole response."""
        self._pieces: list[bytes] = []
        self.on_body = self._pieces.append  # called by the parser, for each chunk of a stream
        self._begin()

    def _begin(self) -> None:
        """Reset the state of an exchange."""
        self._parser: Any = None
        self._names: list[bytes] = []
        self._values: list[bytes] = []
        self._head_bytes = 0
        """Bytes received up to the end of the head, and what came with it."""
        self._bodyless_bytes = 0
        """Bytes received after the head since the last byte of the body."""
        self._pieces.clear()
        self._buffered = 0
        """Bytes received with these pieces."""
        self._inflater: _Inflater | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._is_paused = self._has_head = self._is_interim = self._keeps_alive = False
        self.is_complete = False
        """True once the last byte of the response has arrived."""
        self.has_body = False
        """True once a byte of the body has arrived."""
        self.status = 0
        self._headers: ResponseHeaders | None = None

    # ── the exchange ──

    async def request(self, head: bytes, body: bytes) -> None:
        """Send a request and wait for the head of its response. Raises the network error if there is none."""
        assert self.transport is not None
        self._parser = self._idle_parser or httptools.HttpResponseParser(self)
        if len(body) < UPLOAD_THRESHOLD_BYTES:
            self.transport.write(head + body)
        else:
            whole = memoryview(body)
            self.transport.write(head + bytes(whole[:FIRST_PIECE_BYTES]))
            rest = whole[FIRST_PIECE_BYTES:]
            if self._writable is None:
                self.transport.write(rest[:PIECE_BYTES])
                rest = rest[PIECE_BYTES:]
            if rest:
                self._upload = self._loop.create_task(self._write_rest(rest))
        try:
            while not self._has_head:
                if self._lost is not None:
                    raise self._lost
                self._waiter = self._loop.create_future()
                await self._waiter  # not in a method: each would be entered again when the response comes
        finally:
            self._waiter = None

    async def _write_rest(self, rest: memoryview) -> None:
        for start in range(0, len(rest), PIECE_BYTES):
            if self._writable is not None:
                await self._writable
            elif start:
                await asyncio.sleep(0)  # a long upload does not delay the streams of other tasks
            if self._lost is not None:
                return
            assert self.transport is not None
            self.transport.write(rest[start : start + PIECE_BYTES])
        self._upload = None

    @property
    def headers(self) -> Mapping[str, str]:
        """Names in lower case; repeated headers are joined."""
        if self._headers is None:
            self._headers = ResponseHeaders(self._names, self._values)
        return self._headers

    async def read(self) -> bytes:
        """The next piece of the response; empty at its end. Raises the network error if it broke off."""
        try:
            while (piece := self.read_now()) is None:
                self._waiter = self._loop.create_future()
                await self._waiter
            return piece
        finally:
            self._waiter = None

    def read_now(self) -> bytes | None:
        """Return the next piece, empty at the end; None if nothing has arrived."""
        while True:
            if self._inflater is not None and (piece := self._inflater.take()):
                return piece
            if self._pieces:
                piece = self._take_piece()
                if self._inflater is not None:
                    self._inflater.feed(piece)
                elif piece:
                    return piece
            elif self.is_complete:
                if self._inflater is not None and not self._inflater.is_finished:
                    raise BrokenOff
                return b""
            elif self._lost is not None:
                raise self._lost
            else:
                return None

    def finish(self) -> bool:
        """End the exchange; True if the connection can be used again."""
        is_idle = self._upload is None and not self._is_paused
        if self.is_complete and self._keeps_alive and is_idle and self.is_open:
            self._idle_parser = self._parser
            self._begin()
            return True
        self.abort()
        return False

    @property
    def is_open(self) -> bool:
        return self._lost is None and self.transport is not None and not self.transport.is_closing()

    def abort(self, error: Exception | None = None) -> None:
        """Close the connection at once; `error` is what a waiting reader gets."""
        if self._lost is None:
            self._lost = error or ClosedEarly()
        if self._upload is not None:
            self._upload.cancel()
        if self.transport is not None:
            self.transport.abort()
        self._wake()

    def close_unread(self) -> None:
        """Close the connection of a loop that ends; a task that still waits for the response is not woken."""
        self._waiter = None
        self.abort()

    def _take_piece(self) -> bytes:
        pieces = self._pieces
        piece = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        pieces.clear()
        self._buffered = 0
        if self._is_paused and self.transport is not None and self._lost is None:
            self._is_paused = False
            self.transport.resume_reading()
        return piece

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # ── asyncio ──

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes | memoryview) -> None:
        if self._parser is None or self.is_complete:
            # A server that speaks without being asked; the connection is of no use.
            self.abort()
            return
        try:
            if not self._has_head:
                self._head_bytes += len(data)
            self._parser.feed_data(data)
            if self._head_bytes > HEAD_BYTES_MAX and not self._has_head:
                raise NotHttp(HEAD_TOO_LONG)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            cause = error.__context__  # of an error in a method below
            self.abort(cause if isinstance(cause, NotHttp) else NotHttp(str(error)))
        except NotHttp as error:
            self.abort(error)
        if self._pieces:
            self.has_body = True
            self._buffered += len(data)
            self._bodyless_bytes = 0
        elif self._has_head:
            # Trailers, or the extensions of a chunk: the parser keeps an unfinished one.
            self._bodyless_bytes += len(data)
            # guard: trailer-size-limit
            if self._bodyless_bytes > HEAD_BYTES_MAX and not self.is_complete:
                self.abort(NotHttp(TRAILERS_TOO_LONG))
        if self._has_head:
            self._wake()
        if self._buffered > BUFFER_BYTES_MAX and not self._is_paused and self._lost is None:
            assert self.transport is not None
            self._is_paused = True
            self.transport.pause_reading()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self._idle_parser = None  # it refers to this connection
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)
        if self._lost is None:
            if self._has_head and not self.is_complete and self._reads_until_close and error is None:
                self.is_complete = True
            self._lost = error or (BrokenOff() if self._has_head else ClosedEarly())
        self._wake()

    def pause_writing(self) -> None:
        self._writable = self._loop.create_future()

    def resume_writing(self) -> None:
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)
        self._writable = None

    @property
    def _reads_until_close(self) -> bool:
        return "content-length" not in self.headers and "chunked" not in self.headers.get(
            "transfer-encoding", ""
        )

    # ── httptools ──

    def on_message_begin(self) -> None:
        if self.is_complete:
            raise NotHttp("it sent a second answer")  # of no use here; the connection is not used again

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._has_head:
            return  # a trailer after the body; nothing reads it
        self._names.append(name)
        self._values.append(value)

    def on_headers_complete(self) -> None:
        if self._head_bytes > HEAD_BYTES_MAX and sum(map(len, self._names + self._values)) > HEAD_BYTES_MAX:
            raise NotHttp(HEAD_TOO_LONG)
        status: int = self._parser.get_status_code()
        self._is_interim = 100 <= status < 200
        if status == 101:
            raise NotHttp("it switched to another protocol")
        if not self._is_interim:
            self.status, self._has_head = status, True
            if self.headers.get("content-encoding", "").lower() in COMPRESSED:
                self._inflater = _Inflater()

    def on_message_complete(self) -> None:
        if self._is_interim:
            self._names, self._values = [], []
            self._headers, self._is_interim = None, False
        else:
            self.is_complete = True
            self._keeps_alive = self._parser.should_keep_alive()


class PlainConnection(Http1Connection, asyncio.BufferedProtocol):
    """A connection without TLS, which receives in a buffer that all connections of its event loop share.

    The buffer is used for the time of one callback. asyncio would allocate 256 kB for each read. With TLS, asyncio
    loses what does not fit into the buffer when the server closes the connection.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, receives_in: memoryview) -> None:
        super().__init__(loop)
        self._receives_in = receives_in

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._receives_in

    def buffer_updated(self, nbytes: int) -> None:
        self.data_received(self._receives_in[:nbytes])


class ResponseHeaders(Mapping[str, str]):
    """The headers of a response: names in lower case, repeated headers joined.

    A value is decoded when it is read: few of them ever are.
    """

    __slots__ = ("_positions", "_values")

    def __init__(self, names: list[bytes], values: list[bytes]) -> None:
        self._positions, self._values = _index_names(tuple(names)), values

    def __getitem__(self, name: str) -> str:
        positions = self._positions[name]
        if len(positions) == 1:
            return self._values[positions[0]].decode("utf-8", "replace")
        return b", ".join([self._values[position] for position in positions]).decode("utf-8", "replace")

    def __iter__(self) -> Iterator[str]:
        return iter(self._positions)

    def __len__(self) -> int:
        return len(self._positions)

    def __repr__(self) -> str:
        return repr(dict(self))

    @overload
    def get(self, name: str, /) -> str | None: ...

    @overload
    def get(self, name: str, /, default: str | T) -> str | T: ...

    def get(self, name: str, /, default: object = None) -> object:
        return self[name] if name in self._positions else default


@lru_cache(maxsize=KNOWN_HEADS_MAX)
def _index_names(names: tuple[bytes, ...]) -> dict[str, list[int]]:
    """Positions of each header, by its name in lower case; held once for all open responses."""
    positions: dict[str, list[int]] = {}
    for position, name in enumerate(names):
        positions.setdefault(name.decode("latin-1").lower(), []).append(position)
    return positions


class _Inflater:
    """Decompresses a response, a bounded piece at a time."""

    def __init__(self) -> None:
        self._stream = zlib.decompressobj(wbits=ANY_ZLIB_FORMAT)
        self._waiting = b""

    def feed(self, piece: bytes) -> None:
        self._waiting += piece

    def take(self) -> bytes:
        """The next decompressed bytes; empty if more input is needed."""
        if not self._waiting or self._stream.eof:
            return b""
        try:
            piece = self._stream.decompress(self._waiting, INFLATED_BYTES_MAX)
        except zlib.error as error:
            raise NotHttp(f"its compressed answer is damaged ({error})") from None
        self._waiting = self._stream.unconsumed_tail
        return piece

    @property
    def is_finished(self) -> bool:
        return self._stream.eof
