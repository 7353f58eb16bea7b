"""Ends our programs if this process is killed and cannot do it itself.

One small shell per interpreter that runs programs, started with the first of them.  It reads the process groups
from a pipe; when the pipe closes, this process is gone, and the shell ends the groups that are left: TERM, one
second, KILL.  Without it the programs of a killed run would keep running, and resuming the run could start them a
second time.

The kernel's parent-death signal is not used: it is sent when the *thread* that started a program ends, does not
reach grandchildren, and needs code between fork and exec.

If no shell can be started, programs run without this protection.
"""

import os
import subprocess
import threading
from contextlib import suppress

GUARD_SHELL = "/bin/sh"
GUARD_SCRIPT = """
trap '' HUP INT TERM
groups=' '
while read -r sign group; do
    case $sign in
        +) groups="$groups$group " ;;
        -) case $groups in *" $group "*) groups="${groups%% $group *} ${groups#* $group }" ;; esac ;;
    esac
done
[ -z "${groups## }" ] && exit
for group in $groups; do kill -TERM "-$group"; done
sleep 1
for group in $groups; do kill -KILL "-$group"; done
"""
CLOSE_SECONDS = 1.0


class CrashGuard:
    """The shell and the process groups it watches."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._groups: set[int] = set()
        self._shell: subprocess.Popen[bytes] | None = None

    def ensure_running(self) -> None:
        """Start the shell if it is not running; called before each program starts."""
        with self._lock:
            if self._shell is None or self._shell.poll() is not None:
                self._start()

    def add(self, group: int) -> None:
        with self._lock:
            self._groups.add(group)
            self._send_change("+", group)

    def remove(self, group: int) -> None:
        with self._lock:
            self._groups.discard(group)
            self._send_change("-", group)

    def close(self) -> None:
        """Close the pipe; the shell exits at once if no groups are left."""
        with self._lock:
            shell, self._shell = self._shell, None
        if shell is not None and shell.stdin is not None:
            shell.stdin.close()
            with suppress(subprocess.TimeoutExpired):
                shell.wait(CLOSE_SECONDS)

    def _start(self) -> None:
        """Start the shell, replacing one that has ended."""
        if self._shell is not None and self._shell.stdin is not None:
            self._shell.stdin.close()
        self._shell = None
        with suppress(OSError):
            self._shell = subprocess.Popen(  # noqa: S603 - a constant command
                [GUARD_SHELL, "-c", GUARD_SCRIPT],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                bufsize=0,
                cwd="/",
                start_new_session=True,
            )
            if self._shell.stdin is not None:
                os.set_blocking(self._shell.stdin.fileno(), False)
            for group in self._groups:
                self._send_change("+", group)

    def _send_change(self, sign: str, group: int) -> None:
        if self._shell is not None and self._shell.stdin is not None:
            with suppress(OSError):  # the shell is gone or blocked: the next one gets the full list
                self._shell.stdin.write(f"{sign} {group}\n".encode())
