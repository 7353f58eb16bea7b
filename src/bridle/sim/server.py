"""Serves the simulator over HTTP on the loopback address, for clients in any language.

All families are served at once and told apart by the paths that their clients use. Parts of an answer with no
pause between them are sent in one write; a pause takes real time.

Any web page that a user opens can send requests to the loopback address. Against DNS rebinding, only requests
whose Host header names the loopback address are answered. Pages may also post text and forms without a
preflight, so only JSON bodies are accepted. A client that sends slowly or without end is cut off: request
heads and bodies are limited in time and size.
"""

import asyncio
import logging
import re
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import StreamReader, web
from msgspec.structs import replace

from bridle.ports.transport import ConnectionCut, OutgoingRequest, ResponseTimeline, SilentPause
from bridle.values.errors import MisuseError

from .http2 import PREFACE, AnswerRequest, Http2Connection, is_available, refuse_connection
from .server_limits import ServerLimits
from .simulator import Simulator

JSON_TYPE = re.compile(r"application/(?:[\w.+-]+\+)?json", re.IGNORECASE)
LOOPBACK_HOST = re.compile(r"(?:localhost|127(?:\.\d{1,3}){3}|\[::1\])(?::\d{1,5})?", re.IGNORECASE)
HOST_CHARACTERS_SHOWN = 80


class BodyRefused(Exception):
    """A body that is not read to its end. `size` is the number of bytes as far as known."""

    def __init__(self, status: int, size: int) -> None:
        super().__init__(status, size)
        self.status, self.size = status, size


def check_host(hosts: Sequence[str]) -> str:
    """Return the reason why the Host headers of a request are refused, or ""."""
    if len(hosts) == 1 and LOOPBACK_HOST.fullmatch(hosts[0]):
        return ""
    named = ", ".join(hosts)[:HOST_CHARACTERS_SHOWN]
    return f"misdirected request: the simulator answers for localhost, 127.0.0.1 and [::1], not for {named!a}"


def is_json_type(content_type: str) -> bool:
    """Accept JSON content types with any parameters; a missing content type is not JSON."""
    return JSON_TYPE.fullmatch(content_type.partition(";")[0].strip()) is not None


async def read_body(given: AsyncIterator[bytes], declared: int, bytes_max: int) -> bytes:
    """Read the whole body. Raises `BodyRefused` as soon as it is known to exceed `bytes_max`."""
    if declared > bytes_max:
        raise BodyRefused(413, declared)
    pieces, size = [], 0
    async for piece in given:
        pieces.append(piece)
        size += len(piece)
        if size > bytes_max:
            raise BodyRefused(413, size)
    return b"".join(pieces)


HOST = "127.0.0.1"
MISDIRECTED, TIMED_OUT = 421, 408
CLOSE = ("Connection", "close")
"""Header of an answer to a request whose body is not read to its end."""
LINGER_SECONDS = 2.0
"""Time during which the rest of a refused body is still read, so that the client can read the refusal."""
HEAD_END = b"\r\n\r\n"
HEAD_TOO_LONG = "431 Request Header Fields Too Large"
HEAD_TOO_SLOW = "408 Request Timeout"
# not from outside: how far a text or a schema is searched, which has its own limit
HEAD_BYTES_MAX = 16_384
USER_AGENT = re.compile(rb"\r\nuser-agent:[^\r]*", re.IGNORECASE)
RESET_LINGER = struct.pack("ii", 1, 0)
"""SO_LINGER with a timeout of 0: closing resets the connection."""


@asynccontextmanager
async def serve_simulator(
    simulator: Simulator, port: int = 0, limits: ServerLimits | None = None
) -> AsyncIterator[str]:
    """Serve the simulator while the context is open, and yield its URL."""
    limits = limits or ServerLimits()

    async def answer(outgoing: OutgoingRequest, body: AsyncIterator[bytes]) -> ResponseTimeline:
        return await _answer_request(simulator, limits, outgoing, body)

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        outgoing = OutgoingRequest(
            method=request.method, url=request.raw_path, headers=tuple(request.headers.items()), body=b""
        )
        timeline = await answer(outgoing, request.content.iter_any())
        response = await _play_timeline(request, timeline)
        if CLOSE in timeline.headers:
            response.force_close()
        return response

    server = _SimulatorServer(handle, answer, limits)
    runner = web.ServerRunner(server, shutdown_timeout=0.1)
    # Tests disconnect in the middle of an answer on purpose, so aiohttp must not log it.
    logging.getLogger("aiohttp.server").setLevel(logging.CRITICAL)
    await runner.setup()
    try:
        site = web.TCPSite(runner, HOST, port)
        try:
            await site.start()
        except (OSError, OverflowError) as error:  # OverflowError: not a valid port number
            why = getattr(error, "strerror", None) or str(error)
            raise MisuseError(f"cannot listen on {HOST}:{port}: {why}; choose another --port, or 0") from None
        bound: tuple[str, int] = runner.addresses[0]
        yield f"http://{bound[0]}:{bound[1]}"
    finally:
        for connection in [*server.http2]:
            connection.close()
        await runner.cleanup()


async def _answer_request(
    simulator: Simulator, limits: ServerLimits, outgoing: OutgoingRequest, given: AsyncIterator[bytes]
) -> ResponseTimeline:
    """Read the body of a request, if its sender may ask, and answer it."""
    named = [(name.lower(), value) for name, value in outgoing.headers]
    # guard: simulator-host-check
    if problem := check_host([value for name, value in named if name == "host"]):
        return _refuse_request(MISDIRECTED, problem)
    headers = dict(named)
    length = headers.get("content-length", "")
    declared = int(length) if length.isdecimal() else 0
    try:
        async with asyncio.timeout(limits.body_seconds):
            body = await read_body(given, declared, limits.body_bytes)
    except TimeoutError:
        return _refuse_request(TIMED_OUT, f"the body did not arrive within {limits.body_seconds:g} s")
    except BodyRefused as error:
        refused = simulator.refuse_size(outgoing, error.size)
        return replace(refused, headers=(*refused.headers, CLOSE))
    if body and not is_json_type(headers.get("content-type", "")):
        return simulator.refuse_type(outgoing)
    return await simulator.answer(replace(outgoing, body=body))


def _refuse_request(status: int, message: str) -> ResponseTimeline:
    headers = (("Content-Type", "text/plain; charset=utf-8"), CLOSE)
    return ResponseTimeline(status=status, headers=headers, steps=(f"{message}\n".encode(),))


class _SimulatorServer(web.Server):
    """An aiohttp server that tolerates a repeated User-Agent header and leaves bodies compressed."""

    def __init__(
        self,
        handle: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]],
        answer: AnswerRequest,
        limits: ServerLimits,
    ) -> None:
        super().__init__(
            handle,
            access_log=None,
            keepalive_timeout=limits.idle_seconds,
            lingering_time=min(LINGER_SECONDS, limits.body_seconds),
        )
        self.answer, self.limits = answer, limits
        self.http2: set[Http2Connection] = set()
        """Connections that were handed over."""

    def __call__(self) -> web.RequestHandler:
        # The simulator decompresses bodies, so that a family reports the error in its own words.
        return _ConnectionHandler(self, loop=self._loop, auto_decompress=False, **self._kwargs)


class _ConnectionHandler(web.RequestHandler):
    """One connection. Limits the time and size of each request head, which the aiohttp parser does not."""

    __slots__ = ("_first", "_head_bytes", "_head_tail", "_head_timer", "_limits", "_newest_body", "_server")

    def __init__(self, server: _SimulatorServer, **options: Any) -> None:
        super().__init__(server, **options)
        self._server, self._limits = server, server.limits
        self._first: bytes | None = b""
        """The first bytes, while they may be the preface of HTTP/2."""
        self._head_timer: asyncio.TimerHandle | None = None
        self._newest_body: StreamReader | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._begin_head()

    def connection_lost(self, exc: BaseException | None) -> None:
        self._end_head()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._first is not None:
            data = self._first + data
            self._first = data if PREFACE.startswith(data[: len(PREFACE)]) else None
            if self._first is not None and len(data) < len(PREFACE):
                return
            if self._first is not None:
                self._hand_over(data)
                return
        if self._head_timer is None and self._newest_body is not None and self._newest_body.is_eof():
            self._begin_head()
        if self._head_timer is not None and self._is_head_too_long(data):
            self._refuse_head(HEAD_TOO_LONG)
            return
        if len(USER_AGENT.findall(data, 0, HEAD_BYTES_MAX)) > 1:
            head, end, body = data.partition(HEAD_END)
            first, *rest = USER_AGENT.split(head)
            agent = USER_AGENT.search(head)
            data = b"".join((first, agent[0] if agent else b"", *rest, end, body))
        read = self._request_count
        super().data_received(data)
        if self._request_count > read and self._messages:
            # Only the parser knows that a head has ended: it skips empty lines before one.
            self._newest_body = self._messages[-1][1]
            self._end_head()

    def _hand_over(self, data: bytes) -> None:
        """Let the rest of a connection be one of HTTP/2."""
        transport = self.transport
        assert transport is not None
        self.transport = None  # it is not to be closed with this protocol
        self.connection_lost(None)
        if not is_available():
            refuse_connection(transport)
            return
        connection = Http2Connection(self._server.answer, self._limits, self._server.http2)
        transport.set_protocol(connection)
        connection.connection_made(transport)
        connection.data_received(data)

    def _begin_head(self) -> None:
        self._head_bytes, self._head_tail = 0, b""
        # guard: simulator-head-timer
        self._head_timer = self._loop.call_later(
            self._limits.header_seconds, self._refuse_head, HEAD_TOO_SLOW
        )

    def _end_head(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _is_head_too_long(self, data: bytes) -> bool:
        """Check the size of the head so far. Its end may be split between two chunks; the body does not
        count."""
        joined = self._head_tail + data
        end = joined.find(HEAD_END)
        size = self._head_bytes + (len(data) if end < 0 else end - len(self._head_tail))
        self._head_bytes += len(data)
        self._head_tail = joined[1 - len(HEAD_END) :]
        return size > self._limits.header_bytes

    def _refuse_head(self, status: str) -> None:
        self._end_head()
        if self.transport is not None and (self._head_bytes or self._first):
            response = f"HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
            self.transport.write(response.encode())
        self.force_close()


async def _play_timeline(request: web.BaseRequest, timeline: ResponseTimeline) -> web.StreamResponse:
    if timeline.delay_seconds:
        await asyncio.sleep(timeline.delay_seconds)
    steps = timeline.steps
    if all(isinstance(step, bytes) for step in steps):
        whole = web.Response(status=timeline.status, body=timeline.body, headers=dict(timeline.headers))
        if len(steps) > 1:
            whole.enable_chunked_encoding()
        return whole
    response = web.StreamResponse(status=timeline.status, headers=dict(timeline.headers))
    if isinstance(steps[0], ConnectionCut):
        _break_connection(request, steps[0])
        return response
    await response.prepare(request)
    pending = b""
    for step in steps:
        if isinstance(step, bytes):
            pending += step
            continue
        if pending:
            await response.write(pending)
            pending = b""
        if isinstance(step, SilentPause):
            await asyncio.sleep(step.seconds)
        else:
            _break_connection(request, step)
            return response
    if pending:
        await response.write(pending)
    return response


def _break_connection(request: web.BaseRequest, cut: ConnectionCut) -> None:
    transport = request.transport
    if transport is None:
        return
    connection = transport.get_extra_info("socket")
    if cut.reset and connection is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_LINGER)
    transport.abort()
