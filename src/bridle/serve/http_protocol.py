"""The HTTP protocol of the server, with limits for what arrives before a token can be checked.

The server reads the head of a request before any of our code sees it, and keeps all of it.  Here a head has a size and
a time limit; so have trailers, which arrive after the body.  A client beyond one gets status 431, 400 or 408, and its
connection is closed.
"""

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_BYTES_MAX = 2**17
"""Bytes of a head, or of the trailers, of one request."""
HEADERS_MAX = 500
"""Headers and trailers of one request."""
HEAD_SECONDS_MAX = 30.0
"""Time from the first byte of a head to its end."""
_ANSWERS = {
    431: b"HTTP/1.1 431 Request Header Fields Too Large",
    408: b"HTTP/1.1 408 Request Timeout",
}


class LimitedHttpProtocol(HttpToolsProtocol):
    """A connection of a client."""

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self._header_count = 0
        self._head_bytes = 0
        """Bytes since the last byte of a body or the end of a request."""
        self._is_progress = self._is_refused = False
        self._head_timer: asyncio.TimerHandle | None = None

    def data_received(self, data: bytes) -> None:
        if self._is_refused:
            return
        self._is_progress = False
        self._head_bytes += len(data)
        if self._head_timer is None and self._head_bytes == len(data):
            # guard: head-timer
            self._head_timer = self.loop.call_later(HEAD_SECONDS_MAX, self._refuse, 408)
        super().data_received(data)
        if self._is_progress:
            self._head_bytes = 0
        # guard: head-size-limit
        elif self._head_bytes > HEAD_BYTES_MAX:
            self._refuse(431)

    def on_message_begin(self) -> None:
        self._header_count = 0
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        self._header_count += 1
        if self._header_count > HEADERS_MAX:
            raise ValueError("too many headers")  # the parser stops, and the client gets status 400
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._stop_timer()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._is_progress = True
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._is_progress = True
        self._stop_timer()
        super().on_message_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def _stop_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _refuse(self, status: int) -> None:
        self._is_refused = True
        self._stop_timer()
        if self.cycle is None or self.cycle.response_complete:
            self.transport.write(_ANSWERS[status] + b"\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        self.transport.close()
