"""The versions of Bridle that an evaluation compares, and the processes that run their trials."""

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import msgspec

from bridle.ports.store import Store
from bridle.tools.process.process_tree import ProcessTree
from bridle.tools.process.run_process import start_in_turn
from bridle.values.base import Value
from bridle.values.errors import MisuseError
from bridle.values.evals import TrialScored

from .peer import PROTOCOL, Peer, PeerGone
from .piped_store import StoreServer

LAUNCH_FILE = str(Path(__file__).with_name("launch.py"))

THIS = "this"
"""Names the Bridle that runs the evaluation."""
DESCRIBE_SECONDS = 120.0
EXIT_SECONDS = 2.0


class Description(Value, kw_only=True):
    """The Bridle of another Python, as `launch.py describe` prints it."""

    python: str = ""
    version: str = ""
    source: str = ""
    """Digest of the files of the package."""
    folder: str = ""
    protocol: int = 0
    missing: str = ""
    """Reason why there is no Bridle at all."""
    problem: str = ""
    """Reason why it cannot run the trials of this suite."""


class HarnessColumn(Value, kw_only=True):
    """A version of Bridle as a column of the matrix."""

    name: str
    python: str
    """Path of the Python that runs its trials."""
    folder: str = ""
    """Folder that the package is imported from; empty for the one that is installed there."""
    found: Description = Description()

    @property
    def problem(self) -> str:
        if not self.found.problem and self.found.protocol != PROTOCOL:
            spoken = f"it speaks version {self.found.protocol} of the protocol, this one {PROTOCOL}"
            return f"Bridle {self.found.version}: {spoken}"
        return f"Bridle {self.found.version}: {self.found.problem}" if self.found.problem else ""

    def make_command(self, action: str, suite: Path) -> list[str]:
        return [self.python, LAUNCH_FILE, action, str(suite.resolve()), *filter(None, [self.folder])]


def find_column(name: str, where: str, beside: Path) -> HarnessColumn:
    """The column for a Python, a virtual environment, a folder with the source, or `this`."""
    if not name.strip() or not where.strip():
        raise MisuseError(f"harness {name!r}: give a name and where its Bridle is, as NAME=PYTHON")
    if where == THIS:
        return HarnessColumn(name=name, python=sys.executable, folder=str(Path(__file__).parents[3]))
    path = beside / Path(where).expanduser()
    if path.is_dir():
        for python in (path / "bin" / "python", path / "Scripts" / "python.exe"):
            if python.is_file():
                return HarnessColumn(name=name, python=str(python.absolute()))
        for folder in (path / "src", path):
            if (folder / "bridle" / "__init__.py").is_file():
                return HarnessColumn(name=name, python=sys.executable, folder=str(folder.resolve()))
        raise MisuseError(
            f"harness {name!r}: {path} has neither a Python (bin/python) nor the source of Bridle (src/bridle)"
        )
    # The path is not resolved: the Python of a virtual environment is a link, and its place says which one it is.
    python_file = str(path.absolute()) if path.is_file() else shutil.which(where)
    if python_file is None:
        raise MisuseError(f"harness {name!r}: there is no Python {where!r}")
    return HarnessColumn(name=name, python=python_file)


async def describe_columns(given: Mapping[str, str], beside: Path, suite: Path) -> tuple[HarnessColumn, ...]:
    """Ask every version what it is; raises `MisuseError` if one is no Bridle at all, or none can run the suite."""
    columns = [find_column(name, where, beside) for name, where in given.items()]
    described = await asyncio.gather(*(asyncio.to_thread(_describe, each, suite) for each in columns))
    if described and all(each.problem for each in described):
        raise MisuseError(f"harness {described[0].name!r}: {described[0].problem}")
    return tuple(described)


def _describe(column: HarnessColumn, suite: Path) -> HarnessColumn:
    try:
        done = subprocess.run(  # noqa: S603 - the user names the program
            column.make_command("describe", suite),
            capture_output=True,
            check=False,
            timeout=DESCRIBE_SECONDS,
            stdin=subprocess.DEVNULL,
        )
        lines = done.stdout.strip().splitlines() or done.stderr.strip().splitlines() or [b""]
        found = msgspec.json.decode(lines[-1], type=Description)
    except (OSError, subprocess.SubprocessError, msgspec.MsgspecError) as error:
        said = lines[-1].decode(errors="replace") if isinstance(error, msgspec.MsgspecError) else str(error)
        raise MisuseError(
            f"harness {column.name!r}: {column.python} does not run as Python: {said}"
        ) from None
    if found.missing:
        raise MisuseError(f"harness {column.name!r}: {column.python} has no Bridle: {found.missing}")
    return msgspec.structs.replace(column, found=found)


class ColumnProcesses:
    """Processes that run trials, at most one trial at a time each; they are kept for the next trial of their column."""

    def __init__(self, store: Store, suite: Path) -> None:
        self._store, self._suite = store, suite
        self._idle: dict[str, list[TrialProcess]] = {}
        self._all: list[TrialProcess] = []

    async def run_trial(self, column: HarnessColumn, given: Mapping[str, object]) -> TrialScored:
        """The event of the other version; it lacks what only the evaluation knows."""
        idle = self._idle.setdefault(column.name, [])
        process = idle.pop() if idle else await self._start(column)
        try:
            answer = await process.peer.call("run_trial", **given)
        except PeerGone:
            await process.stop()
            raise MisuseError(
                f"the process of harness {column.name!r} ended during the trial (exit code {process.exit_code});"
                " its last lines on standard error say why"
            ) from None
        idle.append(process)
        return msgspec.convert(answer, TrialScored)

    async def _start(self, column: HarnessColumn) -> "TrialProcess":
        async with start_in_turn():
            process = TrialProcess(column.make_command("run", self._suite), self._store)
        self._all.append(process)
        await process.connect()
        return process

    @asynccontextmanager
    async def ended_together(self) -> AsyncGenerator[None]:
        """End all processes when the block ends; at once if it is cancelled."""
        try:
            yield
        except BaseException:
            for each in self._all:
                each.kill()
            raise
        finally:
            await asyncio.gather(*(each.stop() for each in self._all))


class TrialProcess:
    def __init__(self, command: Sequence[str], store: Store) -> None:
        self._tree = ProcessTree(
            lambda marks: subprocess.Popen(  # noqa: S603 - the user names the program
                list(command),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                bufsize=0,
                env={**os.environ, **marks},
                start_new_session=True,  # Ctrl-C reaches the evaluation, which ends its processes
            ),
            ends_services=True,
        )
        self._server = StoreServer(store)
        self.peer = Peer(self._server.handlers)
        self._serving: asyncio.Task[None] | None = None

    @property
    def exit_code(self) -> int | None:
        return self._tree.exit_code

    async def connect(self) -> None:
        stdin, stdout = self._tree.leader.stdin, self._tree.leader.stdout
        assert stdin is not None and stdout is not None
        await self.peer.connect(stdout, stdin)
        self._serving = asyncio.create_task(self.peer.serve())

    def kill(self) -> None:
        self._tree.abandon()

    async def stop(self) -> None:
        """Close its input and wait for its end; kill what is left of it. May be called twice."""
        if self._serving is None:
            self._tree.abandon()
            return
        self.peer.close()
        with suppress(subprocess.TimeoutExpired):
            await asyncio.to_thread(self._tree.leader.wait, EXIT_SECONDS)
        self._tree.abandon()
        self._serving.cancel()
        await asyncio.gather(self._serving, return_exceptions=True)
        await self._server.close()
