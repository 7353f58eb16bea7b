"""Ends our programs if this process is killed and cannot do it itself.

One small shell per interpreter that runs programs, started with the first of them.  It reads the trees from a pipe,
each as GROUP/MARK (process_tree.py), where either may be empty.  When the pipe closes, this process is gone, and the
shell ends the trees that are left: TERM, one second, KILL.  Without it the programs of a killed run would keep
running, and resuming the run could start them a second time.

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
trees=' '
while read -r sign tree; do
    case $sign in
        +) trees="$trees$tree " ;;
        -) case $trees in *" $tree "*) trees="${trees%% $tree *} ${trees#* $tree }" ;; esac ;;
    esac
done
[ -z "${trees## }" ] && exit
end_trees() {
    for tree in $trees; do
        [ -n "${tree%/*}" ] && kill "-$1" "-${tree%/*}"
        [ -z "${tree#*/}" ] && continue
        for found in $(grep -lsF -e "${tree#*/}" /proc/[0-9]*/environ); do
            found=${found#/proc/}
            # guard: crash-guard-marked-process
            kill "-$1" "${found%/environ}"
        done
    done
}
end_trees TERM
sleep 1
# guard: crash-guard-kill
end_trees KILL
"""
CLOSE_SECONDS = 1.0


class CrashGuard:
    """The shell and the trees it watches."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._trees: set[str] = set()
        self._shell: subprocess.Popen[bytes] | None = None

    def ensure_running(self) -> None:
        """Start the shell if it is not running; called before each program starts."""
        with self._lock:
            if self._shell is None or self._shell.poll() is not None:
                self._start()

    def add(self, tree: str) -> None:
        with self._lock:
            self._trees.add(tree)
            self._send_change("+", tree)

    def remove(self, tree: str) -> None:
        with self._lock:
            self._trees.discard(tree)
            self._send_change("-", tree)

    def close(self) -> None:
        """Close the pipe; the shell exits at once if no trees are left."""
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
            for tree in self._trees:
                self._send_change("+", tree)

    def _send_change(self, sign: str, tree: str) -> None:
        if self._shell is not None and self._shell.stdin is not None:
            with suppress(OSError):  # the shell is gone or blocked: the next one gets the full list
                self._shell.stdin.write(f"{sign} {tree}\n".encode())
