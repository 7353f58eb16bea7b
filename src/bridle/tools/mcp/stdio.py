"""An MCP server as a child process that reads and writes lines of JSON.

The process and everything it starts form a tree (tools/process/process_tree.py): it is ended when the connection
ends, when the interpreter exits, and by the crash guard if this process is killed.

Lines on standard output that are not messages are ignored, because many programs print a greeting there.  A line
longer than `MESSAGE_BYTES_MAX` ends the connection.  The end of standard error is kept for error messages.
"""

import asyncio
import os
import signal
import subprocess
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress

import anyio
import mcp_types as types
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage

from bridle.tools.process.process_tree import POLL_SECONDS, ProcessTree
from bridle.tools.process.run_process import CapturedOutput, start_in_turn

MESSAGE_BYTES_MAX = 64 * 1024 * 1024
READ_BYTES = 64 * 1024
STDERR_BYTES_MAX = 8 * 1024
# not from outside: our own text, shown to a person or a model
GREETING_CHARACTERS_MAX = 200
EXIT_SECONDS = 2.0
"""Time for a server to exit after its input was closed, and again after TERM."""
REAP_SECONDS = 5.0
DRAIN_SECONDS = 0.5
"""Time between the end of the output and the exit, in either order; a process left behind may keep the pipe open."""

Incoming = MemoryObjectSendStream[SessionMessage | Exception]
Streams = tuple[MemoryObjectReceiveStream[SessionMessage | Exception], MemoryObjectSendStream[SessionMessage]]


class ServerLog:
    """Output and exit code of a server process, for error messages."""

    def __init__(self) -> None:
        self.stderr = CapturedOutput(STDERR_BYTES_MAX)
        self.stray_line = ""
        """The first line on standard output that is not a message."""
        self.problem = ""
        """Reason why this side ended the connection."""
        self.exit_code: int | None = None


@asynccontextmanager
async def open_process(
    argv: Sequence[str],
    *,
    environment: Mapping[str, str],
    cwd: str | os.PathLike[str] | None,
    log: ServerLog,
    on_end: Callable[[], None],
    is_marked: bool,
) -> AsyncGenerator[Streams]:
    """Start a server; `on_end` is called when no more messages can come from it.

    With `is_marked`, what leaves its session is found and ended too; in a sandbox nothing can leave.
    """
    async with start_in_turn():
        process = ServerProcess(argv, environment, cwd, log, is_marked=is_marked)
    # Nothing is awaited between the start and the try block: a cancellation there would leave the server running.
    incoming, read_stream = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    write_stream, outgoing = anyio.create_memory_object_stream[SessionMessage](0)
    tasks: list[asyncio.Task[None]] = []
    try:
        await process.open_pipes()
        tasks += [
            asyncio.create_task(process.read_messages(incoming, on_end)),
            asyncio.create_task(process.write_messages(outgoing)),
            asyncio.create_task(process.read_stderr()),
        ]
        yield read_stream, write_stream
    finally:
        try:
            await process.stop()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            process.close()
            for stream in (incoming, read_stream, write_stream, outgoing):
                stream.close()


class ServerProcess:
    def __init__(
        self,
        argv: Sequence[str],
        environment: Mapping[str, str],
        cwd: str | os.PathLike[str] | None,
        log: ServerLog,
        *,
        is_marked: bool,
    ) -> None:
        self._log, self._loop = log, asyncio.get_running_loop()
        self._exited = asyncio.Event()
        self._tree = ProcessTree(
            lambda marks: subprocess.Popen(  # noqa: S603 - running a program is the purpose; no shell is involved
                list(argv),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                cwd=cwd,
                env={**environment, **marks},
                start_new_session=True,
            ),
            ends_services=True,
            is_marked=is_marked,
        )
        self._popen = self._tree.leader
        self._transports: list[asyncio.BaseTransport] = []
        self._pidfd = -1

    async def open_pipes(self) -> None:
        stdin, stdout, stderr = self._popen.stdin, self._popen.stdout, self._popen.stderr
        assert stdin is not None and stdout is not None and stderr is not None
        self._stdout, self._stderr = (
            asyncio.StreamReader(limit=READ_BYTES),
            asyncio.StreamReader(limit=READ_BYTES),
        )
        for reader, pipe in ((self._stdout, stdout), (self._stderr, stderr)):
            protocol = asyncio.StreamReaderProtocol(reader)
            transport, _ = await self._loop.connect_read_pipe(lambda made=protocol: made, pipe)  # type: ignore[misc]
            self._transports.append(transport)
        writing, flow = await self._loop.connect_write_pipe(asyncio.streams.FlowControlMixin, stdin)
        self._stdin = asyncio.StreamWriter(writing, flow, None, self._loop)
        self._transports.append(writing)
        with suppress(
            AttributeError, OSError
        ):  # without it, the end of standard output shows that it has exited
            self._pidfd = os.pidfd_open(self._popen.pid)
            self._loop.add_reader(self._pidfd, self._on_exit)

    async def read_messages(self, incoming: Incoming, on_end: Callable[[], None]) -> None:
        """Pass on the messages until the output or the process ends."""
        reading = asyncio.create_task(self._read_lines(incoming))
        exiting = asyncio.create_task(self._exited.wait())
        try:
            await asyncio.wait((reading, exiting), return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait((reading, exiting), timeout=DRAIN_SECONDS)
        finally:
            for task in (reading, exiting):
                task.cancel()
            await asyncio.gather(reading, exiting, return_exceptions=True)
            incoming.close()
            on_end()

    async def _read_lines(self, incoming: Incoming) -> None:
        buffer = bytearray()
        while data := await self._stdout.read(READ_BYTES):
            buffer += data
            if b"\n" not in data:
                # guard: mcp-stdio-message-limit
                if len(buffer) > MESSAGE_BYTES_MAX:
                    self._log.problem = f"it sent a message of more than {MESSAGE_BYTES_MAX:,} bytes"
                    return
                continue
            *lines, rest = bytes(buffer).split(b"\n")
            buffer = bytearray(rest)
            for line in lines:
                if line.strip():
                    await self._pass_on(line, incoming)

    async def _pass_on(self, line: bytes, incoming: Incoming) -> None:
        try:
            message = types.jsonrpc_message_adapter.validate_json(line, by_name=False)
        except ValueError:
            if not self._log.stray_line:
                self._log.stray_line = line[:GREETING_CHARACTERS_MAX].decode(errors="replace")
            return
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):  # the connection is being closed
            await incoming.send(SessionMessage(message))

    async def write_messages(self, outgoing: MemoryObjectReceiveStream[SessionMessage]) -> None:
        try:
            async for item in outgoing:
                text = item.message.model_dump_json(by_alias=True, exclude_unset=True)
                self._stdin.write(f"{text}\n".encode())
                await self._stdin.drain()
        except OSError:
            outgoing.close()  # the server has closed its input: the next write fails

    async def read_stderr(self) -> None:
        while data := await self._stderr.read(READ_BYTES):
            self._log.stderr.take(data)

    async def stop(self) -> None:
        """Close its input, then TERM, then KILL; a cancellation sends KILL at once."""
        try:
            if hasattr(self, "_stdin"):
                self._stdin.close()
            for number, seconds in (
                (0, EXIT_SECONDS),
                (signal.SIGTERM, EXIT_SECONDS),
                (signal.SIGKILL, REAP_SECONDS),
            ):
                if number:
                    self._tree.signal(number)
                if await self._wait_until_gone(seconds, leader_only=not number):
                    break
            else:
                return
            # The server has exited; what it started and left behind ends too.
            if not self._tree.check_gone():
                self._tree.signal(signal.SIGTERM)
                await self._wait_until_gone(EXIT_SECONDS)
        finally:
            self._tree.abandon()
            self._log.exit_code = self._tree.exit_code

    async def _wait_until_gone(self, seconds: float, *, leader_only: bool = False) -> bool:
        until = self._loop.time() + seconds
        while not (gone := self._tree.check_gone()):
            if leader_only and self._tree.exit_code is not None:
                return True
            if self._loop.time() >= until:
                break
            await asyncio.sleep(POLL_SECONDS)
        return gone

    def _on_exit(self) -> None:
        self._loop.remove_reader(self._pidfd)
        os.close(self._pidfd)
        self._pidfd = -1
        self._tree.check_gone()
        self._log.exit_code = self._tree.exit_code
        self._exited.set()

    def close(self) -> None:
        if self._pidfd >= 0:
            self._on_exit()
        for transport in self._transports:
            transport.close()
        for pipe in (self._popen.stdin, self._popen.stdout, self._popen.stderr):
            if pipe is not None and not pipe.closed:
                pipe.close()
