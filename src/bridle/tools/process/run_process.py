"""Run a program and leave nothing behind: no process, no zombie, no open file.

    ended = await run_process(["git", "status", "--short"], timeout=10)

A program is a list of words and never passes through a shell.  It leads a session of its
own, and however its run ends (by itself, by its deadline, by cancelling, with the
interpreter) everything it started ends with it: TERM, a grace, KILL (tree.py).

What it writes is kept up to a bound (captured.py).  What it reads is there before it
starts, in a nameless file, so that no pipe can be full.  Of our environment it sees the
few names that are needed to find and show things; keys and passwords are not among them.

Starting is one step that cannot be interrupted: a moment in which a program runs that
nobody knows of would be a program that nobody ends.
"""

import asyncio
import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from weakref import WeakKeyDictionary

from bridle.values.base import Value
from bridle.values.errors import MisuseError

from .captured_output import CapturedOutput
from .process_tree import POLL_SECONDS, ProcessTree

GRACE_SECONDS = 1.0
"""Between TERM and KILL.  Shorter than the time a run waits for a tool that it has cancelled."""
REAP_SECONDS = 5.0
"""After KILL.  Only a program that hangs in the kernel takes that long."""
OUTPUT_BYTES_MAX = 64 * 1024
"""Of each stream: some 16,000 tokens, half of them from its beginning and half from its end."""
READ_BYTES = 64 * 1024
FINAL_READS_MAX = 64
"""More than any pipe holds.  Somebody who got away may be writing into it for ever."""
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
"""What a program may see of our environment unless it is told otherwise."""


class ProcessResult(Value):
    """How a program ended.  Whether an exit code is a failure is for the caller to say."""

    exit_code: int | None
    """Minus the number of a signal if one ended it; None if it could not even be killed."""
    stdout: str
    stderr: str
    timed_out: bool = False
    """It was stopped because its time was up; what it wrote until then is here."""

    @property
    def ok(self) -> bool:
        return self.exit_code == 0 and not self.timed_out


async def run_process(
    argv: Sequence[str | os.PathLike[str]],
    *,
    timeout: float | None = None,  # noqa: ASYNC109 - the end of its time is a result, with what it wrote so far
    stdin: str | bytes | None = None,
    cwd: str | os.PathLike[str] | None = None,
    env: Mapping[str, str] | None = None,
    pass_env: Sequence[str] = PASSED_VARIABLES,
    output_bytes_max: int = OUTPUT_BYTES_MAX,
    grace: float = GRACE_SECONDS,
) -> ProcessResult:
    """Run it to its end, or for `timeout` seconds.

    `env` is set for it, besides what `pass_env` names of ours.  Raises OSError when the program cannot be
    started.  When this is cancelled, the program and all it started have been stopped before it returns.
    """
    async with start_in_turn():
        program = RunningProcess(
            argv,
            stdin=stdin,
            cwd=cwd,
            environment=make_environment(pass_env, env or {}),
            output_bytes_max=output_bytes_max,
            grace=grace,
        )
    return await program.wait_for_end(timeout)


@asynccontextmanager
async def start_in_turn() -> AsyncGenerator[None]:
    """One start in a turn of the event loop: each takes milliseconds, and a batch may want thirty at once.

    Nothing is awaited after the start: who is cancelled there would leave a program that nobody ends.
    """
    lock = _start_locks.setdefault(asyncio.get_running_loop(), asyncio.Lock())
    async with lock:
        await asyncio.sleep(0)
        yield


_start_locks: "WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock]" = WeakKeyDictionary()


def make_environment(names: Sequence[str], values: Mapping[str, str]) -> dict[str, str]:
    return {**{name: os.environ[name] for name in names if name in os.environ}, **values}


class RunningProcess:
    """One that was started.  `end` must be awaited, at once: it is what stops it."""

    def __init__(
        self,
        argv: Sequence[str | os.PathLike[str]],
        *,
        stdin: str | bytes | None,
        cwd: str | os.PathLike[str] | None,
        environment: Mapping[str, str],
        output_bytes_max: int,
        grace: float,
    ) -> None:
        if not hasattr(os, "killpg"):
            raise MisuseError("programs are run in process groups, which this system does not have")
        if isinstance(argv, str | bytes) or not argv:
            raise MisuseError(f'a program is a list of words, like ["ls", "-l"], not {argv!r}')
        self._grace = grace
        self._loop = asyncio.get_running_loop()
        self._exited: asyncio.Future[None] = self._loop.create_future()
        self._pidfd = -1
        self._process_tree = ProcessTree(lambda: _start_process(argv, stdin, cwd, environment))
        self._popen = self._process_tree.leader
        self._streams = {
            pipe.fileno(): CapturedOutput(output_bytes_max)
            for pipe in (self._popen.stdout, self._popen.stderr)
            if pipe is not None
        }
        try:
            self._watch_streams()
        except BaseException:
            self._close()
            raise

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
            self._close()
        return self.result(timed_out=timed_out)

    def result(self, *, timed_out: bool) -> ProcessResult:
        """As far as it has come."""
        stdout, stderr = (captured.text() for captured in self._streams.values())
        return ProcessResult(
            exit_code=self._process_tree.exit_code, stdout=stdout, stderr=stderr, timed_out=timed_out
        )

    async def _stop(self) -> None:
        """TERM, a grace, KILL, for whoever is left.  Cancelled meanwhile: KILL at once."""
        self._process_tree.signal(signal.SIGTERM, look=not self._exited.done())
        if await self._wait_until_gone(self._grace):
            return
        self._process_tree.signal(signal.SIGKILL)
        await self._wait_until_gone(REAP_SECONDS)

    async def _wait_until_gone(self, seconds: float) -> bool:
        until = self._loop.time() + seconds
        await asyncio.wait((self._exited,), timeout=seconds)
        while not self._process_tree.check_gone() and self._loop.time() < until:  # noqa: ASYNC110 - nobody tells of orphans
            await asyncio.sleep(POLL_SECONDS)
        return self._process_tree.check_gone()

    def _watch_streams(self) -> None:
        for fd in self._streams:
            os.set_blocking(fd, False)
            self._loop.add_reader(fd, self._read, fd)
        try:
            self._pidfd = os.pidfd_open(self._popen.pid)
        except (AttributeError, OSError):
            threading.Thread(target=self._wait_in_thread, name="bridle-process", daemon=True).start()
        else:
            self._loop.add_reader(self._pidfd, self._on_exit)

    def _wait_in_thread(self) -> None:
        self._popen.wait()
        with suppress(RuntimeError):  # the loop was closed: nobody wants to know
            self._loop.call_soon_threadsafe(self._on_exit)

    def _on_exit(self) -> None:
        """It is not reaped yet, so its number is still its own."""
        if self._pidfd >= 0:
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = -1
        if not self._exited.done():
            self._exited.set_result(None)

    def _read(self, fd: int) -> bool:
        """Whether there was anything."""
        try:
            data = os.read(fd, READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return False
        if not data:
            self._loop.remove_reader(fd)
        self._streams[fd].take(data)
        return bool(data)

    def _drain(self, fd: int) -> None:
        """All that was written before the end is in the pipe by now."""
        for _ in range(FINAL_READS_MAX):
            if not self._read(fd):
                return

    def _close(self) -> None:
        self._process_tree.abandon()
        if self._pidfd >= 0:
            self._on_exit()
        for pipe in (self._popen.stdout, self._popen.stderr):
            if pipe is not None and not pipe.closed:
                self._loop.remove_reader(pipe.fileno())
                pipe.close()


def _start_process(
    argv: Sequence[str | os.PathLike[str]],
    stdin: str | bytes | None,
    cwd: str | os.PathLike[str] | None,
    environment: Mapping[str, str],
) -> "subprocess.Popen[bytes]":
    with tempfile.TemporaryFile() as given:
        if stdin:
            given.write(stdin.encode() if isinstance(stdin, str) else stdin)
            given.seek(0)
        return subprocess.Popen(  # noqa: S603 - running a program is what this is for; no shell reads it
            [os.fspath(word) for word in argv],
            stdin=given if stdin else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            cwd=cwd,
            env=dict(environment),
            start_new_session=True,
        )
