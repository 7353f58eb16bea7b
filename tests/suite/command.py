"""The command `bridle` in a process of its own, with no terminal on any side.

`bridle` runs it to its end, `start_bridle` starts it. The process is forked from one that has imported the command
(`warm_process.py`), unless a variable is set that only a new interpreter reads.
"""

import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from typing import NamedTuple, Self

from tests.suite.cpu_time import add_cpu_seconds
from tests.suite.patience import PATIENCE_SECONDS
from tests.suite.warm_process import WarmCommand

READ_AT_START = ("PYTHON", "LC_", "LANG", "MALLOC", "LD_")
"""Variables that the interpreter reads before it runs any code; a process with one of them is started from scratch."""


class Ended(NamedTuple):
    code: int
    out: str
    err: str


@cache
def open_warm_command() -> WarmCommand:
    return WarmCommand()


def bridle(*words, cwd=None, text="", environment=None, **variables) -> Ended:
    """Run the command with `text` as its input; `environment` replaces the one of this process."""
    environment = {**(os.environ if environment is None else environment), **variables}
    if any(name.startswith(READ_AT_START) for name in variables):
        completed = subprocess.run(
            [sys.executable, "-m", "bridle.cli.main", *words],
            input=text,
            capture_output=True,
            text=True,
            env=environment,
            cwd=cwd,
            timeout=PATIENCE_SECONDS,
            check=False,
        )
        return Ended(completed.returncode, completed.stdout, completed.stderr)
    done = open_warm_command().run(words, environment, cwd, PATIENCE_SECONDS, text=text.encode())
    add_cpu_seconds(done.cpu_seconds)
    return Ended(done.code, done.out.decode(), done.err.decode())


class RunningCommand:
    """A started command; as in `subprocess.Popen`, its output can be read, and it can be killed."""

    def __init__(self, words, cwd, environment, stdin, stderr) -> None:
        reading, writing = os.pipe()
        errors, writing_errors = os.pipe() if stderr is None else (None, stderr)
        given = os.open(os.devnull, os.O_RDONLY) if stdin is None else stdin
        self._command = open_warm_command()
        self.pid = self._command.start(words, environment, cwd, [given, writing, writing_errors])
        os.close(writing)
        self.stdout = os.fdopen(reading, encoding="utf-8")
        self.stderr = None
        if stdin is None:
            os.close(given)
        if errors is not None:
            os.close(writing_errors)
            self.stderr = os.fdopen(errors, encoding="utf-8")
        self.returncode: int | None = None

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def poll(self) -> int | None:
        if self.returncode is None and (ended := self._command.poll(self.pid)):
            self._take(*ended)
        return self.returncode

    def wait(self, timeout: float = PATIENCE_SECONDS) -> int:
        """Wait for the end; a process that does not end in time is killed."""
        if self.returncode is None:
            killer = threading.Timer(timeout, self.kill)
            killer.start()
            self._take(*self._command.wait(self.pid))
            killer.cancel()
        return self.returncode  # type: ignore[return-value]

    def communicate(self, timeout: float = PATIENCE_SECONDS) -> tuple[str, str]:
        """Wait for the end; returns the output and the errors that were not read yet."""
        with ThreadPoolExecutor(2) as pool:
            read = [pool.submit(file.read) for file in (self.stdout, self.stderr) if file is not None]
            self.wait(timeout)
            out, *err = (each.result() for each in read)
        self.close()
        return out, "".join(err)

    def close(self) -> None:
        """Kill the process if it is alive, and close its pipes."""
        self.kill()
        self.wait()
        for file in (self.stdout, self.stderr):
            if file is not None:
                file.close()

    def _take(self, code: int, cpu_seconds: float) -> None:
        self.returncode = code
        add_cpu_seconds(cpu_seconds)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def start_bridle(*words, cwd=None, environment=None, stdin=None, stderr=None) -> RunningCommand:
    """Start the command; `stdin` and `stderr` are descriptors, by default an empty input and a pipe."""
    return RunningCommand(words, cwd, os.environ if environment is None else environment, stdin, stderr)
