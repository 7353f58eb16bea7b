"""Runs a program and leaves nothing behind: no process, no zombie, no open file.

    ended = await run_process(["git", "status", "--short"], timeout=10)

A command is a list of words and never passes through a shell.  The program leads its own session, and however it
ends (by itself, deadline, cancellation, interpreter exit) everything it started ends with it: TERM, a grace period,
KILL (process_tree.py).

Output is captured up to a limit; the middle is dropped, because the start shows what was
going on and the end how it turned out.  Input is written to a nameless file before the start, so that
no pipe can fill up.  The program sees only the few environment variables in `PASSED_VARIABLES`, which hold no keys or
passwords.

Starting cannot be interrupted: otherwise a program could run without a handle that can end it.
"""

import asyncio
import os
import signal
import subprocess
import threading
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from importlib import import_module
from weakref import WeakKeyDictionary

from bridle.ports.sandbox import OUTPUT_BYTES_MAX, Sandbox
from bridle.values.base import Value
from bridle.values.errors import MisuseError

from .process_tree import POLL_SECONDS, ProcessTree

GRACE_SECONDS = 1.0
"""Time between TERM and KILL.  Shorter than the time a run waits for a cancelled tool."""
REAP_SECONDS = 5.0
"""Time to wait after KILL.  Only a program that hangs in the kernel takes that long."""
READ_BYTES = 64 * 1024
FINAL_READS_MAX = 64
"""More than any pipe holds; an escaped process may write to it forever."""
UNCHECKED_NOTE = (
    "bridle sandbox: the launcher was killed before it reported new settings; those of Bridle are moved aside"
    " (…refused-…), those of other programs are not reported\n"
)
PASSED_VARIABLES = (
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LANGUAGE",
    "LC_ALL",
    "LC_CTYPE",
    "TMPDIR",
    "TZ",
)
"""Environment variables that a program sees by default."""


CONTINUATION_MASK = 0b1100_0000
CONTINUATION_BITS = 0b1000_0000
"""The first two bits of a UTF-8 continuation byte."""
# not from outside: how far a text or a schema is searched, which has its own limit
CHARACTER_BYTES_MAX = 4


class ProcessResult(Value, kw_only=True):
    """The exit code and output of a program; the caller decides which exit codes are failures."""

    exit_code: int | None
    """Negative for a signal; None if the program could not be killed."""
    stdout: str
    stderr: str
    timed_out: bool = False
    """Stopped at its deadline; the output up to then is here."""
    not_run: str = ""
    """Why the sandbox could not start the program; empty if it ran."""

    @property
    def ok(self) -> bool:
        return self.exit_code == 0 and not self.timed_out


async def run_process(
    argv: Sequence[str | os.PathLike[str]],
    *,
    timeout: float | None = None,  # noqa: ASYNC109 - a timeout is a result, with the output so far
    stdin: str | bytes | None = None,
    cwd: str | os.PathLike[str] | None = None,
    env: Mapping[str, str] | None = None,
    pass_env: Sequence[str] = PASSED_VARIABLES,
    output_bytes_max: int = OUTPUT_BYTES_MAX,
    grace: float = GRACE_SECONDS,
    sandbox: Sandbox | None = None,
) -> ProcessResult:
    """Run a program to its end, or for `timeout` seconds.

    Its environment is `env` and the variables that `pass_env` names.  With a `sandbox` it runs isolated.  Raises
    OSError if it cannot be started.  A cancellation stops the program and everything it started before it is
    raised.
    """
    async with start_in_turn():
        program = RunningProcess(
            argv,
            stdin=stdin,
            cwd=cwd,
            environment=make_environment(pass_env, env or {}),
            output_bytes_max=output_bytes_max,
            grace=grace,
            sandbox=sandbox,
        )
    return await program.wait_for_end(timeout)


@asynccontextmanager
async def start_in_turn() -> AsyncGenerator[None]:
    """Allow one start per turn of the event loop: each takes milliseconds, and a batch may start thirty.

    Nothing is awaited after the start: a cancellation there would leave the program running.
    """
    lock = _start_locks.setdefault(asyncio.get_running_loop(), asyncio.Lock())
    async with lock:
        await asyncio.sleep(0)
        yield


_start_locks: "WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock]" = WeakKeyDictionary()


def make_environment(names: Sequence[str], values: Mapping[str, str]) -> dict[str, str]:
    return {**{name: os.environ[name] for name in names if name in os.environ}, **values}


class RunningProcess:
    """A started program.  `wait_for_end` must be awaited at once: it is what stops the program."""

    def __init__(
        self,
        argv: Sequence[str | os.PathLike[str]],
        *,
        stdin: str | bytes | None,
        cwd: str | os.PathLike[str] | None,
        environment: Mapping[str, str],
        output_bytes_max: int,
        grace: float,
        on_output: Callable[[bytes], None] | None = None,
        on_message: Callable[[bytes], None] | None = None,
        sandbox: Sandbox | None = None,
    ) -> None:
        """`on_output` is called with everything that the program writes, while it runs.

        With `on_message`, standard output is not captured but passed to it, and `send` writes to standard input.
        """
        if not hasattr(os, "killpg"):
            raise MisuseError("running programs needs process groups, which this system does not have")
        if isinstance(argv, str | bytes) or not argv:
            raise MisuseError(f'a command must be a list of strings, like ["ls", "-l"], not {argv!r}')
        self._not_run_mark = ""
        if sandbox is not None:
            folder = None if cwd is None else os.fspath(cwd)
            words = [os.fspath(each) for each in argv]
            made = sandbox.wrap(words, cwd=folder, environment=environment)
            argv, environment, cwd = made.argv, made.environment, None
            self._not_run_mark = made.not_run
        self._is_sandboxed = sandbox is not None
        self._grace, self._on_output, self._on_message = grace, on_output, on_message
        self._loop = asyncio.get_running_loop()
        self._exited: asyncio.Future[None] = self._loop.create_future()
        self._pidfd = -1
        is_interactive = on_message is not None
        self._process_tree = ProcessTree(
            lambda marks: _start_process(
                argv, stdin, cwd, {**environment, **marks}, interactive=is_interactive
            ),
            is_marked=sandbox is None,
        )
        self._unsent = bytearray()
        self._popen = self._process_tree.leader
        self._streams = {
            pipe.fileno(): CapturedOutput(output_bytes_max)
            for pipe in (self._popen.stdout, self._popen.stderr)
            if pipe is not None
        }
        try:
            self._watch_streams()
        except BaseException:
            self.close()
            raise

    def send(self, data: bytes) -> None:
        """Write to the program's input, as fast as the program reads it; after its end, nothing is written."""
        pipe = self._popen.stdin
        if pipe is None or pipe.closed:
            return
        if not self._unsent:
            self._loop.add_writer(pipe.fileno(), self._write)
        self._unsent += data

    def _write(self) -> None:
        pipe = self._popen.stdin
        assert pipe is not None
        try:
            written = pipe.write(self._unsent) or 0
        except BlockingIOError:
            return
        except OSError:  # the program has closed its input
            written = len(self._unsent)
        del self._unsent[:written]
        if not self._unsent:
            self._loop.remove_writer(pipe.fileno())

    async def wait_for_end(self, seconds: float | None) -> ProcessResult:
        timed_out = False
        try:
            await asyncio.wait((self._exited,), timeout=seconds)
            timed_out = not self._exited.done()
            await self._stop()
        except asyncio.CancelledError:
            await self._stop()
            raise
        finally:
            for fd in tuple(self._streams):
                self._drain(fd)
            self.close()
        return self.result(timed_out=timed_out)

    def result(self, *, timed_out: bool) -> ProcessResult:
        """The result so far."""
        stdout, stderr = (captured.text() for captured in self._streams.values())
        not_run = ""
        if self._not_run_mark and self._process_tree.exit_code:
            lines = [line for line in stderr.split("\n") if line.startswith(self._not_run_mark)]
            not_run = lines[0].removeprefix(self._not_run_mark) if lines else ""
        if self._is_sandboxed and self._process_tree.exit_code == -signal.SIGKILL:
            stderr += UNCHECKED_NOTE
        return ProcessResult(
            exit_code=self._process_tree.exit_code,
            stdout=stdout,
            stderr=stderr,
            timed_out=timed_out,
            not_run=not_run,
        )

    async def _stop(self) -> None:
        """Send TERM, wait for the grace period, send KILL; a cancellation sends KILL at once.

        A program that has exited by itself may leave services running; one that is ended leaves nothing.
        """
        is_ended = not self._exited.done()
        self._process_tree.ends_services = self._process_tree.ends_services or is_ended
        self._process_tree.signal(signal.SIGTERM, look=is_ended)
        if await self._wait_until_gone(self._grace):
            return
        self._process_tree.signal(signal.SIGKILL)
        await self._wait_until_gone(REAP_SECONDS)

    async def _wait_until_gone(self, seconds: float) -> bool:
        until = self._loop.time() + seconds
        await asyncio.wait((self._exited,), timeout=seconds)
        while not self._process_tree.check_gone() and self._loop.time() < until:  # noqa: ASYNC110 - orphans give no notification
            await asyncio.sleep(POLL_SECONDS)
        return self._process_tree.check_gone()

    def _watch_streams(self) -> None:
        for fd in self._streams:
            os.set_blocking(fd, False)
            self._loop.add_reader(fd, self._read, fd)
        if self._popen.stdin is not None:
            os.set_blocking(self._popen.stdin.fileno(), False)
        try:
            self._pidfd = os.pidfd_open(self._popen.pid)
        except (AttributeError, OSError):
            threading.Thread(target=self._wait_in_thread, name="bridle-process", daemon=True).start()
        else:
            self._loop.add_reader(self._pidfd, self._on_exit)

    def _wait_in_thread(self) -> None:
        self._popen.wait()
        with suppress(RuntimeError):  # the loop was closed
            self._loop.call_soon_threadsafe(self._on_exit)

    def _on_exit(self) -> None:
        """Note the exit; the process is not reaped yet, so its number is still valid."""
        if self._pidfd >= 0:
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = -1
        if not self._exited.done():
            self._exited.set_result(None)

    def _read(self, fd: int) -> bool:
        """Read available output; True if there was any."""
        try:
            data = os.read(fd, READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return False
        if not data:
            self._loop.remove_reader(fd)
        if (
            self._on_message is not None
            and self._popen.stdout is not None
            and fd == self._popen.stdout.fileno()
        ):
            if data:
                self._on_message(data)
            return bool(data)
        self._streams[fd].take(data)
        if self._on_output is not None and data:
            self._on_output(data)
        return bool(data)

    def _drain(self, fd: int) -> None:
        """Read what is left in the pipe after the exit."""
        for _ in range(FINAL_READS_MAX):
            if not self._read(fd):
                return

    def close(self) -> None:
        """Kill what is left of the program and close its pipes; does nothing the second time."""
        self._process_tree.abandon()
        if self._pidfd >= 0:
            self._on_exit()
        for pipe in (self._popen.stdin, self._popen.stdout, self._popen.stderr):
            if pipe is not None and not pipe.closed:
                self._loop.remove_reader(pipe.fileno())
                self._loop.remove_writer(pipe.fileno())
                pipe.close()


def _start_process(
    argv: Sequence[str | os.PathLike[str]],
    stdin: str | bytes | None,
    cwd: str | os.PathLike[str] | None,
    environment: Mapping[str, str],
    *,
    interactive: bool,
) -> "subprocess.Popen[bytes]":
    with import_module("tempfile").TemporaryFile() as given:
        if stdin:
            given.write(stdin.encode() if isinstance(stdin, str) else stdin)
            given.seek(0)
        # guard: program-without-shell
        return subprocess.Popen(  # noqa: S603 - running a program is the purpose; no shell is involved
            [os.fspath(word) for word in argv],
            stdin=subprocess.PIPE if interactive else given if stdin else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            cwd=cwd,
            env=dict(environment),
            start_new_session=True,
        )


class CapturedOutput:
    """Captures output up to a limit: its start and its end, with a marker that counts the missing bytes."""

    def __init__(self, bytes_max: int) -> None:
        self._head_max = bytes_max // 2
        self._tail_max = bytes_max - self._head_max
        self._head = bytearray()
        self._tail = bytearray()
        self.total = 0
        """Number of bytes received."""

    def take(self, data: bytes) -> None:
        self.total += len(data)
        room = self._head_max - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        self._tail += data
        if len(self._tail) > 2 * self._tail_max:  # trimmed rarely: moving the rest is expensive
            del self._tail[: -self._tail_max]

    def text(self) -> str:
        tail = bytes(self._tail[-self._tail_max :])
        missing = self.total - len(self._head) - len(tail)
        if not missing:
            return (bytes(self._head) + tail).decode(errors="replace")
        first, last = _trim_broken_end(bytes(self._head)), _trim_broken_start(tail)
        missing = self.total - len(first) - len(last)
        return (
            f"{first.decode(errors='replace')}\n[… {missing:,} bytes left out …]\n"
            f"{last.decode(errors='replace')}"
        )


def _trim_broken_end(data: bytes) -> bytes:
    """Remove an incomplete character at the end."""
    for back in range(1, min(CHARACTER_BYTES_MAX, len(data)) + 1):
        byte = data[-back]
        if byte & CONTINUATION_MASK != CONTINUATION_BITS:
            length = 1 if byte < 0b1000_0000 else 2 if byte < 0b1110_0000 else 3 if byte < 0b1111_0000 else 4
            return data[:-back] if length > back else data
    return data


def _trim_broken_start(data: bytes) -> bytes:
    """Remove an incomplete character at the start."""
    for start in range(min(CHARACTER_BYTES_MAX, len(data))):
        if data[start] & CONTINUATION_MASK != CONTINUATION_BITS:
            return data[start:]
    return data
