"""Who ends our programs when we are killed ourselves and can end nothing any more.

One small shell for each interpreter that runs programs, started with the first of them.  It
reads from a pipe which groups there are; when the pipe closes, we are gone, however that came
about, and it ends what is still on its list: TERM, a second, KILL.  Without it a run that was
killed would leave its programs running, and whoever resumes it might start them a second time.

The kernel's own way (a signal at the parent's death) is not used: it comes when the *thread*
that started a program ends, reaches no grandchild, and needs code between fork and exec.

It is an addition: where no shell can be started, everything else is as it was.
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
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._groups: set[int] = set()
        self._shell: subprocess.Popen[bytes] | None = None

    def ensure_running(self) -> None:
        """Before a program is started, so that it is never long without."""
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
        """Let it go: it ends at once when nothing is on its list."""
        with self._lock:
            shell, self._shell = self._shell, None
        if shell is not None and shell.stdin is not None:
            shell.stdin.close()
            with suppress(subprocess.TimeoutExpired):
                shell.wait(CLOSE_SECONDS)

    def _start(self) -> None:
        """Anew, when somebody ended it."""
        if self._shell is not None and self._shell.stdin is not None:
            self._shell.stdin.close()
        self._shell = None
        with suppress(OSError):
            self._shell = subprocess.Popen(  # noqa: S603 - our own words, none from outside
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
            with suppress(OSError):  # it is gone, or hears nothing: the next one is told everything
                self._shell.stdin.write(f"{sign} {group}\n".encode())
