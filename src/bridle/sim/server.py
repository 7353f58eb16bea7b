"""The simulator on a port of this machine, for clients in any language.

It listens on the loopback address only: nobody else is to be answered by a model that is
not one.  All families are served at once, told apart by the paths their clients use.

Pieces of an answer with no pause between them go out in one write, as they would arrive
through any network; a pause is real time here.
"""

import asyncio
import logging
import re
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

from ..ports.transport import Cut, Outgoing, Pause, Timeline
from ..values.errors import MisuseError
from .simulator import Simulator

HOST = "127.0.0.1"
HEAD_BYTES_MAX = 16_384
NAMED = re.compile(rb"\r\nuser-agent:[^\r]*", re.IGNORECASE)
RESET = struct.pack("ii", 1, 0)
"""A linger of nought: closing then resets the connection instead of ending it."""


@asynccontextmanager
async def serving(simulator: Simulator, port: int = 0) -> AsyncIterator[str]:
    """The address where the simulator answers, for as long as the context lasts."""

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        outgoing = Outgoing(
            method=request.method,
            url=request.raw_path,
            headers=tuple(request.headers.items()),
            body=await request.content.read(),
        )
        return await _play(request, await simulator.answer(outgoing))

    server = _Server(handle, access_log=None)
    runner = web.ServerRunner(server, shutdown_timeout=0.1)
    # A client that leaves in the middle of an answer is what is being tried out, and no news.
    logging.getLogger("aiohttp.server").setLevel(logging.CRITICAL)
    await runner.setup()
    try:
        site = web.TCPSite(runner, HOST, port)
        try:
            await site.start()
        except (OSError, OverflowError) as error:  # the latter for a number that no port has
            why = getattr(error, "strerror", None) or str(error)
            raise MisuseError(f"cannot listen on {HOST}:{port}: {why}; choose another --port, or 0") from None
        bound: tuple[str, int] = runner.addresses[0]
        yield f"http://{bound[0]}:{bound[1]}"
    finally:
        await runner.cleanup()


class _Server(web.Server):
    """Some clients name themselves twice, which providers do not mind and the parser refuses to read."""

    def __call__(self) -> web.RequestHandler:
        # What cannot be unpacked is refused in the words of whoever was asked, not of the parser.
        return _Handler(self, loop=self._loop, auto_decompress=False, **self._kwargs)


class _Handler(web.RequestHandler):
    __slots__ = ()

    def data_received(self, data: bytes) -> None:
        if len(NAMED.findall(data, 0, HEAD_BYTES_MAX)) > 1:
            head, end, body = data.partition(b"\r\n\r\n")
            first, *rest = NAMED.split(head)
            named = NAMED.search(head)
            data = b"".join((first, named[0] if named else b"", *rest, end, body))
        super().data_received(data)


async def _play(request: web.BaseRequest, timeline: Timeline) -> web.StreamResponse:
    if timeline.delay_seconds:
        await asyncio.sleep(timeline.delay_seconds)
    beats = timeline.beats
    if all(isinstance(beat, bytes) for beat in beats):
        whole = web.Response(status=timeline.status, body=timeline.body, headers=dict(timeline.headers))
        if len(beats) > 1:
            whole.enable_chunked_encoding()
        return whole
    response = web.StreamResponse(status=timeline.status, headers=dict(timeline.headers))
    if isinstance(beats[0], Cut):
        _break(request, beats[0])
        return response
    await response.prepare(request)
    waiting = b""
    for beat in beats:
        if isinstance(beat, bytes):
            waiting += beat
            continue
        if waiting:
            await response.write(waiting)
            waiting = b""
        if isinstance(beat, Pause):
            await asyncio.sleep(beat.seconds)
        else:
            _break(request, beat)
            return response
    if waiting:
        await response.write(waiting)
    return response


def _break(request: web.BaseRequest, cut: Cut) -> None:
    transport = request.transport
    if transport is None:
        return
    connection = transport.get_extra_info("socket")
    if cut.reset and connection is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    transport.abort()
