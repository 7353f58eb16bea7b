"""Calls between two processes, in lines of JSON over two pipes. Each side may call the other at any time.

    {"id": 3, "call": "append", "given": {…}}     a call
    {"id": 3, "value": …}                         its answer
    {"id": 3, "error": "Conflict", "text": "…"}   an exception of Bridle, by the name of its class

A name or key that the other version does not know is no error of the line: a call is refused, a key is ignored.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import IO

import msgspec

from bridle.values import errors
from bridle.values.base import Value
from bridle.values.errors import BridleError, MisuseError, StoreError
from bridle.values.record import encode_item
from bridle.values.text import describe_error

PROTOCOL = 1
"""Raised when a change makes the two sides misunderstand each other."""
# not from outside: our own records and queues
LINE_BYTES_MAX = 1 << 30
Handler = Callable[[Mapping[str, object]], Awaitable[object]]


class PeerGone(BridleError):
    """The other process has ended, or closed its pipe."""


class PeerLine(Value, kw_only=True, gc=True):
    id: int
    call: str = ""
    given: dict[str, object] = {}  # noqa: RUF012 - a frozen value
    value: object = None
    error: str = ""
    text: str = ""


class Peer:
    """One end of the two pipes."""

    def __init__(self, handlers: Mapping[str, Handler]) -> None:
        self._handlers = handlers
        self._answers: dict[int, asyncio.Future[object]] = {}
        self._running: set[asyncio.Task[None]] = set()
        self._calls, self._is_gone = 0, False

    async def connect(self, incoming: IO[bytes], outgoing: IO[bytes]) -> None:
        loop = self._loop = asyncio.get_running_loop()
        self._reader = asyncio.StreamReader(limit=LINE_BYTES_MAX)
        self._reading, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(self._reader), incoming
        )
        self._writing, flow = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, outgoing)
        self._writer = asyncio.StreamWriter(self._writing, flow, None, loop)

    async def serve(self) -> None:
        """Answer calls until the other side closes its pipe; calls of this side then fail as `PeerGone`."""
        try:
            while line := await self._reader.readline():
                message = msgspec.json.decode(line, type=PeerLine)
                if message.call:
                    task = asyncio.create_task(self._answer(message))
                    self._running.add(task)
                    task.add_done_callback(self._running.discard)
                elif (waiting := self._answers.pop(message.id, None)) and not waiting.done():
                    if message.error:
                        waiting.set_exception(make_error(message.error, message.text))
                    else:
                        waiting.set_result(message.value)
        finally:
            self._is_gone = True
            self._reading.close()
            self._writing.close()
            for future in self._answers.values():
                if not future.done():
                    future.set_exception(PeerGone("the other process has ended"))
            for task in self._running:
                task.cancel()
            await asyncio.gather(*self._running, return_exceptions=True)

    async def call(self, name: str, /, **given: object) -> object:
        """The answer of the other side; may be called from any event loop of the process."""
        if asyncio.get_running_loop() is not self._loop:
            there = asyncio.run_coroutine_threadsafe(self.call(name, **given), self._loop)
            return await asyncio.wrap_future(there)
        if self._is_gone:
            raise PeerGone("the other process has ended")
        self._calls += 1
        number = self._calls
        future = self._answers[number] = self._loop.create_future()
        await self._send(PeerLine(id=number, call=name, given=given))
        return await future

    async def _answer(self, message: PeerLine) -> None:
        handler = self._handlers.get(message.call)
        try:
            if handler is None:
                raise MisuseError(f"this version of Bridle has no call {message.call!r}")
            answer = PeerLine(id=message.id, value=await handler(message.given))
        except Exception as error:  # noqa: BLE001 - the caller gets it; without an answer it would wait for ever
            answer = PeerLine(id=message.id, error=type(error).__name__, text=describe_error(error))
        with suppress(PeerGone):  # the other side has ended and waits no more
            await self._send(answer)

    async def _send(self, message: PeerLine) -> None:
        try:
            self._writer.write(encode_item(message) + b"\n")
            await self._writer.drain()
        except OSError as error:
            raise PeerGone(f"the other process has ended: {describe_error(error)}") from None

    def close(self) -> None:
        """Close the pipe to the other side, whose `serve` then ends."""
        self._writing.close()


def make_error(name: str, text: str) -> BridleError:
    """The exception of this name; one that this version lacks, or that needs more than a text, is a `StoreError`."""
    kind = getattr(errors, name, None)
    if isinstance(kind, type) and issubclass(kind, BridleError):
        with suppress(TypeError):
            return kind(text)
    return StoreError(text)
