"""Starts the command `bridle` in processes that are forked from one which has imported it.

A fork takes milliseconds, an interpreter that imports the package most of a second. The process is a real one: it has its own
environment, folder, files and exit code, and can be stopped and killed.

    python warm_process.py DESCRIPTOR

serves requests from a socket: a line of JSON and three open files become a process. Its id and later its end are reported
with lines of JSON.
"""

import atexit
import fcntl
import io
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import termios
import threading
import traceback
from concurrent.futures import Future
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NamedTuple

REQUEST_BYTES_MAX = 4_000_000
WARM_MODULES = (
    "asyncio", "argparse", "bridle", "bridle.sim.simulator", "bridle.stores.sqlite.store", "bridle.serve.app", "uvicorn",
    "prompt_toolkit",
)  # fmt: skip
"""Imported before the first copy; a test of what the command imports starts a new interpreter."""


class Completed(NamedTuple):
    code: int
    out: bytes
    err: bytes
    cpu_seconds: float


class WarmCommand:
    """A process with the imported command, and a socket to start copies of it."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            program = [sys.executable, "-W", "ignore::DeprecationWarning", __file__, str(theirs.fileno())]
            self._process = subprocess.Popen(program, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL)
        self._socket = ours
        self._started: SimpleQueue[int] = SimpleQueue()
        self._ended: dict[int, Future[tuple[int, float]]] = {}
        self._starting, self._known = threading.Lock(), threading.Lock()
        self._reader = threading.Thread(target=self._read_answers, daemon=True)
        self._reader.start()
        atexit.register(self.close)

    def run(self, words, environment, folder, timeout, *, text=b"") -> Completed:
        """Run the command to its end, with this text as its input."""
        with (
            tempfile.TemporaryFile() as out,
            tempfile.TemporaryFile() as err,
            tempfile.TemporaryFile() as given,
        ):
            given.write(text)
            given.seek(0)
            process = self.start(words, environment, folder, [given.fileno(), out.fileno(), err.fileno()])
            killer = threading.Timer(timeout, os.kill, (process, signal.SIGKILL))
            killer.start()
            try:
                code, cpu_seconds = self.wait(process)
            finally:
                killer.cancel()
            out.seek(0)
            err.seek(0)
            return Completed(code, out.read(), err.read(), cpu_seconds)

    def start(self, words, environment, folder, files, *, on_terminal=False) -> int:
        """Start the command with these files as input, output and errors; returns the process's id."""
        request = {
            "words": [os.fspath(word) for word in words],
            "environment": dict(environment),
            "folder": str(folder or Path.cwd()),
            "on_terminal": on_terminal,
        }
        line = json.dumps(request).encode() + b"\n"
        with self._starting:
            self._socket.sendall(len(line).to_bytes(4, "big"))
            socket.send_fds(self._socket, [b"f"], files)
            self._socket.sendall(line)
            return self._started.get()

    def wait(self, process: int) -> tuple[int, float]:
        """Wait until a process has ended; returns its exit code and its CPU seconds."""
        return self._find_end(process).result()

    def poll(self, process: int) -> tuple[int, float] | None:
        """The exit code and the CPU seconds of a process if it has ended."""
        end = self._find_end(process)
        return end.result() if end.done() else None

    def _find_end(self, process: int) -> "Future[tuple[int, float]]":
        with self._known:
            return self._ended.setdefault(process, Future())

    def _read_answers(self) -> None:
        with self._socket.makefile("rb") as answers:
            for line in answers:
                answer = json.loads(line)
                if "started" in answer:
                    with self._known:
                        self._ended[answer["started"]] = Future()  # ids are used again
                    self._started.put(answer["started"])
                else:
                    self._find_end(answer["ended"]).set_result((answer["code"], answer["cpu_seconds"]))

    def close(self) -> None:
        atexit.unregister(self.close)
        self._socket.shutdown(socket.SHUT_RDWR)
        self._reader.join()
        self._socket.close()
        self._process.wait()


def serve(connection: socket.socket) -> None:
    """Fork a process for every request, and report the end of each."""
    for name in WARM_MODULES:
        import_module(name)
    main = import_module("bridle.cli.main").main
    woken, waker = socket.socketpair()
    waker.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(waker.fileno(), warn_on_full_buffer=False)
    while True:
        ready, _, _ = select.select([connection, woken], [], [])
        if woken in ready:
            woken.recv(1_000)
            report_ended(connection)
        if connection not in ready:
            continue
        if not (size := connection.recv(4, socket.MSG_WAITALL)):
            return
        _, files, _, _ = socket.recv_fds(connection, 1, 3)
        request = json.loads(connection.recv(int.from_bytes(size, "big"), socket.MSG_WAITALL))
        process = os.fork()
        if process == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for each in (connection, woken, waker):
                each.close()
            run_child(main, request, files)
        for file in files:
            os.close(file)
        send_line(connection, {"started": process})


def report_ended(connection: socket.socket) -> None:
    """Report every process that has ended since the last call."""
    with suppress(ChildProcessError):
        while (found := os.wait4(-1, os.WNOHANG))[0]:
            process, status, usage = found
            answer = {
                "ended": process,
                "code": os.waitstatus_to_exitcode(status),
                "cpu_seconds": usage.ru_utime + usage.ru_stime,
            }
            send_line(connection, answer)


def send_line(connection: socket.socket, answer: dict) -> None:
    with suppress(BrokenPipeError):  # the tests have ended
        connection.sendall(json.dumps(answer).encode() + b"\n")


def run_child(main, request, files) -> None:
    """Become the command: take over files, environment, folder and arguments, and end the process with its code."""
    code: Any = 1
    try:
        for target, file in enumerate(files):
            os.dup2(file, target)
            os.close(file)
        if request["on_terminal"]:
            os.setsid()
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        os.environ.clear()
        os.environ.update(request["environment"])
        os.chdir(request["folder"])
        if "BRIDLE_WITNESS" in os.environ:
            sys.path.insert(0, str(Path(__file__).parents[2]))
            listening = import_module("tests.suite.listening")
            del sys.path[0]
            listening.listen(listening.Scribe(os.environ[listening.FILE]).write)
        sys.argv = ["bridle", *request["words"]]
        sys.path[0] = request["folder"]  # as `python -m` does
        sys.stdin = io.TextIOWrapper(io.BufferedReader(io.FileIO(0, closefd=False)), encoding="utf-8")
        sys.stdout = io.TextIOWrapper(
            io.BufferedWriter(io.FileIO(1, "w", closefd=False)), encoding="utf-8", line_buffering=os.isatty(1)
        )
        sys.stderr = io.TextIOWrapper(
            io.BufferedWriter(io.FileIO(2, "w", closefd=False)), encoding="utf-8", line_buffering=True,
            errors="backslashreplace",
        )  # fmt: skip
        signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            code = main()
        except SystemExit as left:
            code = left.code
            if isinstance(code, str):
                print(code, file=sys.stderr)
                code = 1
    except BaseException:
        traceback.print_exc()
    finally:
        end = threading.__dict__.get("_shutdown")
        with suppress(BaseException):
            end and end()
            atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError, AttributeError):
                stream.flush()
        os._exit(code if isinstance(code, int) else 0 if code is None else 1)


if __name__ == "__main__":
    sys.path.pop(0)  # the folder of this file
    with socket.socket(fileno=int(sys.argv[1])) as given:
        serve(given)
