"""`bridle`, or another program, on a terminal of its own, and what stands on its screen."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import threading
from contextlib import contextmanager, suppress

from tests.suite.command import open_warm_command
from tests.suite.cpu_time import add_cpu_seconds
from tests.suite.patience import PATIENCE_SECONDS

STYLES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
SCREEN_PIECE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r|\n|[^\x1b\r\n]+")
ON_TERMINAL = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0);"
    "os.execvp(sys.argv[1], sys.argv[1:])"
)
BRIDLE = (sys.executable, "-m", "bridle.cli.main")


class Terminal:
    """A program on a terminal of its own."""

    def __init__(self, master, running):
        self.master, self.running, self.raw, self._at = master, running, "", 0

    @property
    def seen(self):
        """Everything shown so far, without styles and movements of the cursor."""
        return STYLES.sub("", self.raw)

    def type(self, keys):
        os.write(self.master, keys.encode())

    def wait_for(self, text):
        """Everything shown since the last call, up to this text."""
        while text not in self.seen[self._at :]:
            assert self._read(), f"no {text!r} in {self.seen!r}"
        start, self._at = self._at, self.seen.index(text, self._at) + len(text)
        return self.seen[start : self._at]

    def wait_for_end(self):
        while self._read():
            pass
        return self.running.wait(PATIENCE_SECONDS)

    def screen(self):
        """The lines that stand on the screen now, if it is long enough for all of them."""
        lines, row, column = [""], 0, 0
        for piece in SCREEN_PIECE.findall(self.raw):
            if piece == "\n":
                row += 1
                lines += [""] * (row == len(lines))
            elif piece == "\r":
                column = 0
            elif piece == "\x1b[2K":
                lines[row] = ""
            elif piece == "\x1b[1A":
                row -= 1
            elif piece.startswith("\x1b"):
                assert piece.endswith("m"), f"{piece!r} is not known here"
            else:
                line = lines[row].ljust(column)
                lines[row] = line[:column] + piece + line[column + len(piece) :]
                column += len(piece)
        return lines

    def _read(self):
        ready, _, _ = select.select([self.master], [], [], PATIENCE_SECONDS)
        assert ready, f"nothing more after {self.seen!r}"
        try:
            data = os.read(self.master, 65_536)
        except OSError:  # the program has closed the terminal
            return False
        self.raw += data.decode(errors="replace")
        return bool(data)


class WarmProgram:
    """A copy of the imported command (`warm_process.py`) on a terminal."""

    def __init__(self, words, cwd, env, slave):
        self._command = open_warm_command()
        self._process = self._command.start(words, env, cwd, [slave] * 3, on_terminal=True)
        self._has_ended = False

    def wait(self, timeout):
        if not self._has_ended:
            killer = threading.Timer(timeout, self._send_kill)
            killer.start()
            self.returncode, cpu_seconds = self._command.wait(self._process)
            killer.cancel()
            self._has_ended = True
            add_cpu_seconds(cpu_seconds)
        return self.returncode

    def kill(self):
        if not self._has_ended:
            self._send_kill()
            self.wait(PATIENCE_SECONDS)

    def _send_kill(self):
        with suppress(ProcessLookupError):
            os.kill(self._process, signal.SIGKILL)


@contextmanager
def open_terminal(*arguments, cwd, env, columns=80, program=None):
    """Start the command, or another program, on a new terminal."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    with closing_descriptor(master):
        with closing_descriptor(slave):
            if program is None and env.get("PYTHONPATH") in (None, os.environ.get("PYTHONPATH")):
                running: WarmProgram | subprocess.Popen[bytes] = WarmProgram(arguments, cwd, env, slave)
            else:
                running = subprocess.Popen(
                    [sys.executable, "-c", ON_TERMINAL, *(program or BRIDLE), *arguments],
                    stdin=slave,
                    stdout=slave,
                    stderr=slave,
                    cwd=cwd,
                    env=env,
                    start_new_session=True,
                )
        try:
            yield Terminal(master, running)
        finally:
            running.kill()
            running.wait(PATIENCE_SECONDS)


@contextmanager
def closing_descriptor(descriptor):
    try:
        yield
    finally:
        os.close(descriptor)
