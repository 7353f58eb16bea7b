"""A real server on this machine for the tests of the network, and what it can be told to answer.

It runs in a thread with a loop of its own, so that loops can be closed around it.  An
answer is a coroutine over a reader and a writer that is called once for every request.
"""

import asyncio
import os
import threading
import time
from collections import Counter
from contextlib import contextmanager, suppress
from pathlib import Path

from bridle.ports.transport import OutgoingRequest
from bridle.transports.http import HttpTransport
from tests.suite.patience import PATIENCE_SECONDS

KEY = "sk-secret-0123456789"


class Server:
    def __init__(self, answer, *, listens=True, tls=None):
        self._answer, self._listens = answer, listens
        self._changed = threading.Condition()
        self._answering = set()
        self.requests, self.opened, self.open = [], 0, 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        listening = asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=tls)
        self._server = asyncio.run_coroutine_threadsafe(listening, self._loop).result(PATIENCE_SECONDS)
        self.port = self._server.sockets[0].getsockname()[1]
        self.url = f"http{'s' if tls else ''}://127.0.0.1:{self.port}/v1/messages"

    async def _serve(self, reader, writer):
        self._answering.add(asyncio.current_task())
        self._count(opened=1, open=1)
        try:
            while not self._listens or (request := await read_request(reader)):
                if self._listens:
                    self.requests.append(request)
                await self._answer(reader, writer)
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.transport.abort()
            self._answering.discard(asyncio.current_task())
            self._count(open=-1)

    def _count(self, **changes):
        with self._changed:
            for name, change in changes.items():
                setattr(self, name, getattr(self, name) + change)
            self._changed.notify_all()

    def wait_until(self, condition):
        with self._changed:
            assert self._changed.wait_for(lambda: condition(self), PATIENCE_SECONDS), (self.opened, self.open)

    def close(self):
        async def finish():
            self._server.close()
            while tasks := asyncio.all_tasks() - {asyncio.current_task()}:  # some may just be accepting
                for task in self._answering:
                    task.cancel()
                await asyncio.wait(tasks, timeout=0.01)

        asyncio.run_coroutine_threadsafe(finish(), self._loop).result(PATIENCE_SECONDS)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@contextmanager
def start_server(answer, **options):
    server = Server(answer, **options)
    try:
        yield server
    finally:
        server.close()


async def read_request(reader):
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return b""
    length = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    return head + await reader.readexactly(int(length[0].split(b":")[1]) if length else 0)


async def answer_whole(reader, writer):
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-Two: a\r\nX-Two: b\r\n\r\nhello")


async def answer_streamed(reader, writer):
    writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    for word in (b"one ", b"two ", b"three"):
        writer.write(b"%x\r\n%b\r\n" % (len(word), word))
        await writer.drain()
    writer.write(b"0\r\n\r\n")


async def answer_without_end(reader, writer):
    """Half an answer, then silence until the client is gone."""
    writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n")
    assert await reader.read() == b""
    raise ConnectionError


async def answer_nothing(reader, writer):
    assert await reader.read() == b""
    raise ConnectionError


def make_answer(*pieces):
    """Says these bytes and hangs up."""

    async def answer(reader, writer):
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
        writer.close()
        raise ConnectionError

    return answer


def make_outgoing(url, body=b"{}", headers=()):
    return OutgoingRequest(
        method="POST", url=url, headers=(("Authorization", f"Bearer {KEY}"), *headers), body=body
    )


async def read(url, deadlines=None, **request):
    async with HttpTransport(deadlines).open(make_outgoing(url, **request)) as answer:
        return answer.status, answer.headers, b"".join([chunk async for chunk in answer.chunks()])


def files_open():
    return len(list(Path("/dev/fd").iterdir()))


def list_left_open(before, seconds=10.0):
    """Files that are open now and were not before. An earlier test's thread may have one open for a moment."""
    until = time.monotonic() + seconds
    while (left := list_open_files() - before) and time.monotonic() < until:
        os.sched_yield()
    return left


def list_open_files():
    """Count the open descriptors by what they lead to; a socket or a pipe has a number that is its own."""
    found = Counter()
    for each in Path("/dev/fd").iterdir():
        with suppress(FileNotFoundError):  # the one that lists the folder
            found[str(each.readlink())] += 1
    return found
