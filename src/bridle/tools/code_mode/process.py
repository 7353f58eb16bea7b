"""The process of one program: starts it, passes calls and results, ends it with everything it started.

A program is not trusted: it may write anything into its pipe.  A message that is too large, not a message, or not
expected ends the program.  All that a valid message can do is to ask for tool calls.

Each message to the program has random bytes (`turn`), with which its next message must begin.  So each message follows
the answer before it, and the outcome of a program that writes ahead does not depend on which of two processes is
faster: its first message counts, and it is ended for the first byte that follows too early, unless it guessed it.
"""

import asyncio
import secrets
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from bridle.ports.sandbox import Sandbox
from bridle.tools.process.run_process import GRACE_SECONDS, RunningProcess, make_environment, start_in_turn
from bridle.values.base import Value

from .functions import ProgramFunction

MESSAGE_BYTES_MAX = 4 * 1024 * 1024
"""Size of one batch of calls."""
BATCH_CALLS_MAX = 32
TURN_BYTES = 8
HEADER_BYTES = TURN_BYTES + 4
"""A message of a program begins with its turn and its length."""
PROGRAM_SOURCE = Path(__file__).with_name("program.py").read_text(encoding="utf-8")
PASSED_VARIABLES = ("PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TMPDIR", "TZ")
ENVIRONMENT = {"PYTHONHASHSEED": "0", "PYTHONUTF8": "1"}
FOREIGN_MESSAGE = "it wrote something into the channel of the harness that is not a message"


class ProgramCall(Value, kw_only=True, gc=True):
    name: str
    arguments: msgspec.Raw


class ProgramMessage(Value, kw_only=True, gc=True, forbid_unknown_fields=True):
    """A message of a program: the calls whose results it waits for, or its end."""

    calls: tuple[ProgramCall, ...] = ()
    done: bool = False
    failed: str = ""
    """The traceback."""


class ProgramStopped(Exception):
    """The program ended, or was ended, without saying so; the message is for the model."""


_decode_message = msgspec.json.Decoder(ProgramMessage).decode


class ProgramProcess:
    """A running program.  `receive` waits for its next message; `stop` must be awaited in the end."""

    def __init__(
        self,
        sandbox: Sandbox | None,
        cwd: Path,
        output_bytes_max: int,
        on_output: Callable[[bytes], None] | None = None,
    ) -> None:
        self._sandbox, self._cwd, self._output_bytes_max = sandbox, cwd, output_bytes_max
        self._on_output = on_output
        self._buffer, self._loop = bytearray(), asyncio.get_running_loop()
        self._awaited: asyncio.Future[ProgramMessage] | None = None
        self._turn = b""
        self._problem = ""
        """Reason why the process cannot be used any more."""
        self._running: RunningProcess | None = None
        self._ending: asyncio.Task[object] | None = None

    async def start(self, code: str, functions: Sequence[ProgramFunction]) -> None:
        """Start the program; raises OSError if it cannot be started."""
        async with start_in_turn():
            running = self._running = RunningProcess(
                [sys.executable, "-s", "-P", "-B", "-c", PROGRAM_SOURCE],
                stdin=None,
                cwd=self._cwd,
                environment=make_environment(PASSED_VARIABLES, ENVIRONMENT),
                output_bytes_max=self._output_bytes_max,
                grace=GRACE_SECONDS,
                on_output=self._on_output,
                on_message=self._take,
                sandbox=self._sandbox,
            )
            self._ending = asyncio.create_task(self._wait_for_end(running))
            # A task that is cancelled before its first step does not end the process itself.
            self._ending.add_done_callback(lambda _: running.close())
        sources = [function.source for function in functions]
        self.send({"code": code, "functions": sources, "batch_max": BATCH_CALLS_MAX})

    def send(self, message: Mapping[str, object]) -> None:
        self._turn = secrets.token_bytes(TURN_BYTES)
        data = msgspec.json.encode({**message, "turn": self._turn.hex()})
        assert self._running is not None
        self._running.send(len(data).to_bytes(HEADER_BYTES - TURN_BYTES, "big") + data)

    async def receive(self, seconds: float) -> ProgramMessage:
        """The next message; raises `ProgramStopped` if none comes within these seconds."""
        if self._problem:
            raise ProgramStopped(self._problem)
        self._awaited = self._loop.create_future()
        done, _ = await asyncio.wait((self._awaited,), timeout=seconds)
        if not done:
            raise ProgramStopped("it used up its time")
        return self._awaited.result()

    async def stop(self) -> str:
        """End the program and everything it started; returns what it has printed."""
        if self._running is None or self._ending is None:
            return ""
        self._ending.cancel()  # nothing is awaited before: a cancellation there would leave the process running
        await asyncio.wait((self._ending,))
        return self._running.result(timed_out=False).stderr

    async def _wait_for_end(self, running: RunningProcess) -> None:
        ended = await running.wait_for_end(None)
        why = f"the sandbox could not run Python: {ended.not_run}" if ended.not_run else ""
        self._fail(why or f"its process ended with exit code {ended.exit_code}")

    def _take(self, data: bytes) -> None:
        if self._problem:
            return
        self._buffer += data
        if self._awaited is None or self._awaited.done():
            # A program waits for its results: nothing may follow a message, and nothing more is kept.
            self._fail(FOREIGN_MESSAGE)
        else:
            self._parse(self._awaited)

    def _parse(self, awaited: "asyncio.Future[ProgramMessage]") -> None:
        # guard: program-turn
        if not self._turn.startswith(self._buffer[:TURN_BYTES]):
            self._fail(FOREIGN_MESSAGE)
            return
        if len(self._buffer) < HEADER_BYTES:
            return
        length = int.from_bytes(self._buffer[TURN_BYTES:HEADER_BYTES], "big")
        end = HEADER_BYTES + length
        # guard: program-message-limit
        if length > MESSAGE_BYTES_MAX:
            self._fail(FOREIGN_MESSAGE)
        elif len(self._buffer) >= end:
            try:
                message = _decode_message(bytes(self._buffer[HEADER_BYTES:end]))
            except (ValueError, RecursionError):
                self._fail(FOREIGN_MESSAGE)
                return
            awaited.set_result(message)
            if len(self._buffer) > end:
                self._fail(FOREIGN_MESSAGE)
            self._buffer.clear()

    def _fail(self, why: str) -> None:
        self._problem = self._problem or why
        if self._awaited is not None and not self._awaited.done():
            self._awaited.set_exception(ProgramStopped(why))
        if self._ending is not None:
            self._ending.cancel()
