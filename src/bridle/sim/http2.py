"""HTTP/2 without TLS, for clients that ask in it only: the AWS SDK for JavaScript speaks it to Bedrock.

The server of HTTP/1.1 hands a connection over that begins with the preface of HTTP/2. Frames and header compression are
those of the package `h2`; without it, a connection is closed with an error that names the package.
"""

import asyncio
import logging
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from bridle.ports.transport import ConnectionCut, OutgoingRequest, ResponseTimeline, SilentPause

from .server_limits import ServerLimits

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
STREAMS_MAX = 100
"""Requests that a client may have open at once on one connection."""
PACKAGE_MISSING = "the simulator needs a package for HTTP/2: pip install 'bridle[http2]'"
HTTP_1_1_REQUIRED, GO_AWAY, SETTINGS = 13, 7, 4
"""An error code and two types of frames."""
NOT_SENT = frozenset({"connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade"})
"""Headers about a connection, which HTTP/2 does not have."""
RESET_LINGER = struct.pack("ii", 1, 0)
"""SO_LINGER with a timeout of 0: closing resets the connection."""
AnswerRequest = Callable[[OutgoingRequest, AsyncIterator[bytes]], Awaitable[ResponseTimeline]]


def is_available() -> bool:
    return find_spec("h2") is not None


def refuse_connection(transport: asyncio.Transport) -> None:
    """Close a connection with an error of HTTP/2: the package is not installed."""
    told = struct.pack(">II", 0, HTTP_1_1_REQUIRED) + PACKAGE_MISSING.encode()
    transport.write(_make_frame(SETTINGS, b"") + _make_frame(GO_AWAY, told))
    transport.close()
    logging.getLogger(__name__).warning(PACKAGE_MISSING)


def _make_frame(kind: int, payload: bytes) -> bytes:
    """A frame of the connection itself: length, type, no flags, stream 0."""
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, 0, 0) + payload


class _Body:
    """The body of one request while it arrives."""

    def __init__(self) -> None:
        self._pieces: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.is_wanted, self.has_ended = True, False

    def add(self, piece: bytes | None) -> None:
        """Add a piece, or None at the end; nothing once the request has been answered."""
        self.has_ended = self.has_ended or piece is None
        if self.is_wanted:
            self._pieces.put_nowait(piece)

    async def read(self) -> AsyncIterator[bytes]:
        while (piece := await self._pieces.get()) is not None:
            yield piece


class Http2Connection(asyncio.Protocol):
    """One connection; each of its requests is answered by a task."""

    def __init__(
        self, answer: AnswerRequest, limits: ServerLimits, connections: set["Http2Connection"]
    ) -> None:
        self._answer, self._limits, self._connections = answer, limits, connections
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._bodies: dict[int, _Body] = {}
        self._window, self._writable = asyncio.Event(), asyncio.Event()
        self._writable.set()
        self._timer: asyncio.TimerHandle | None = None
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._connections.add(self)
        h2 = import_module("h2.connection")
        config = import_module("h2.config").H2Configuration(client_side=False, header_encoding="utf-8")
        codes = import_module("h2.settings").SettingCodes
        self._events, self._error = import_module("h2.events"), import_module("h2.exceptions").H2Error
        self._http = h2.H2Connection(config)
        self._http.local_settings[codes.MAX_CONCURRENT_STREAMS] = STREAMS_MAX
        self._http.local_settings[codes.MAX_HEADER_LIST_SIZE] = self._limits.header_bytes
        self._http.initiate_connection()
        self._flush()
        # guard: simulator-http2-timer
        self._wait(self._limits.header_seconds)

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.discard(self)
        self._stop_waiting()
        for task in self._tasks.values():
            task.cancel()
        self._window.set()
        self._writable.set()

    def close(self) -> None:
        """End the connection and what it is being told."""
        self._transport.abort()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def data_received(self, data: bytes) -> None:
        try:
            events = self._http.receive_data(data)
        except self._error:  # the client gets the reason
            self._flush()
            self._transport.close()
            return
        kinds = self._events
        for event in events:
            match event:
                case kinds.RequestReceived(stream_id=stream, headers=headers):
                    self._begin(stream, headers)
                case kinds.DataReceived(stream_id=stream, data=piece, flow_controlled_length=size):
                    if stream in self._bodies:
                        self._bodies[stream].add(bytes(piece))
                    self._http.acknowledge_received_data(size, stream)
                case kinds.StreamEnded(stream_id=stream) if stream in self._bodies:
                    self._bodies[stream].add(None)
                case kinds.StreamReset(stream_id=stream) if stream in self._tasks:
                    self._tasks[stream].cancel()
                case kinds.WindowUpdated() | kinds.RemoteSettingsChanged():
                    self._window.set()
                case kinds.ConnectionTerminated():
                    self._transport.close()
        self._flush()

    def _begin(self, stream: int, headers: list[tuple[str, str]]) -> None:
        self._stop_waiting()
        about = {name: value for name, value in headers if name.startswith(":")}
        given = [(name, value) for name, value in headers if not name.startswith(":")]
        if ":authority" in about:
            given.append(("host", about[":authority"]))
        outgoing = OutgoingRequest(
            method=about[":method"], url=about.get(":path", "/"), headers=tuple(given), body=b""
        )
        self._bodies[stream] = _Body()
        task = asyncio.get_running_loop().create_task(self._serve(stream, outgoing))
        self._tasks[stream] = task
        task.add_done_callback(lambda done: self._end(stream, done))

    def _end(self, stream: int, done: asyncio.Task[None]) -> None:
        del self._tasks[stream], self._bodies[stream]
        if not self._tasks and not self._transport.is_closing():
            self._wait(self._limits.idle_seconds)
        if not done.cancelled() and (error := done.exception()) is not None:
            self._transport.abort()
            asyncio.get_running_loop().call_exception_handler(
                {"message": "a request over HTTP/2 failed", "exception": error, "task": done}
            )

    async def _serve(self, stream: int, outgoing: OutgoingRequest) -> None:
        body = self._bodies[stream]
        timeline = await self._answer(outgoing, body.read())
        body.is_wanted = False
        if timeline.delay_seconds:
            await asyncio.sleep(timeline.delay_seconds)
        steps = timeline.steps
        if steps and isinstance(steps[0], ConnectionCut):
            self._cut(steps[0])
            return
        named = ((name.lower(), value) for name, value in timeline.headers)
        kept = [(name, value) for name, value in named if name not in NOT_SENT]
        try:
            self._http.send_headers(stream, [(":status", str(timeline.status)), *kept])
            self._flush()
            for step in steps:
                if isinstance(step, SilentPause):
                    await asyncio.sleep(step.seconds)
                elif isinstance(step, bytes):
                    await self._send(stream, step)
                else:
                    self._cut(step)
                    return
            self._http.end_stream(stream)
            if not body.has_ended:  # no more of a body that was refused
                self._http.reset_stream(stream)
        except self._error:  # the client has reset the stream, or left
            return
        self._flush()

    async def _send(self, stream: int, data: bytes) -> None:
        """Send data in frames, as far as the client's windows allow."""
        while data:
            room = min(self._http.local_flow_control_window(stream), self._http.max_outbound_frame_size)
            if room <= 0:
                self._window.clear()
                await self._window.wait()
                continue
            self._http.send_data(stream, data[:room])
            data = data[room:]
            self._flush()
            await self._writable.wait()

    def _cut(self, cut: ConnectionCut) -> None:
        connection = self._transport.get_extra_info("socket")
        if cut.reset and connection is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_LINGER)
        self._transport.abort()

    def _flush(self) -> None:
        if data := self._http.data_to_send():
            self._transport.write(data)

    def _wait(self, seconds: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(seconds, self._give_up)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _give_up(self) -> None:
        """Close a connection that asks for nothing."""
        self._http.close_connection()
        self._flush()
        self._transport.close()
