"""A program and everything it started, which can be signalled and ended together.

The program leads its own session, so its descendants stay in it unless they leave on purpose: one signal to the
group reaches all of them, and none of our processes.  Process groups inside the session (the jobs of an interactive
shell) are found in /proc.  A process that starts its own session is a service and is left running.

A number is signalled only while it must belong to the tree: the program is not reaped before its group was
signalled, and after that a group's number stays in use while the group has members.

Trees that are alive when the interpreter exits are ended with it; if it is killed, crash_guard.py ends them.
Nothing here awaits.
"""

import atexit
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from .crash_guard import CrashGuard

POLL_SECONDS = 0.01
EXIT_GRACE_SECONDS = 1.0
"""Time between TERM and KILL at interpreter exit, for all trees together."""
PROC_FOLDER = Path("/proc")
DEAD_STATES = ("Z", "X", "x")


class SessionProcess(NamedTuple):
    pid: int
    state: str
    parent: int
    group: int


class ProcessTree:
    """A session leader and its descendants."""

    def __init__(self, start: Callable[[], "subprocess.Popen[bytes]"]) -> None:
        """`start` starts the leader in a new session."""
        guard = _get_guard()
        guard.ensure_running()
        self.leader = leader = start()
        self._owner = os.getpid()
        self._groups = {leader.pid}
        self._is_gone = False
        _live_trees.add(self)
        guard.add(leader.pid)

    @property
    def exit_code(self) -> int | None:
        """The leader's exit code once it was reaped; negative for a signal."""
        return self.leader.returncode

    @property
    def is_own(self) -> bool:
        """True if this process started the tree, False if the process it was forked from did."""
        return self._owner == os.getpid()

    def signal(self, number: int, *, look: bool = True) -> None:
        """Signal the program's group and, with `look`, other groups of its session.

        Looking them up costs about 20 µs per process on the machine.
        """
        if self._is_gone:
            return
        if look:
            self._groups = {self.leader.pid, *(member.group for member in self._members())}
        for group in self._groups:
            with suppress(ProcessLookupError, PermissionError):
                # PermissionError: only zombies are left (on some systems), or it changed its user.
                os.killpg(group, number)

    def check_gone(self) -> bool:
        """Reap the leader if it has ended; True if no process is left."""
        if not self._is_gone and self.leader.poll() is not None:
            self._is_gone = not self._has_living()
            if self._is_gone:
                _live_trees.discard(self)
                _get_guard().remove(self.leader.pid)
        return self._is_gone

    def abandon(self) -> None:
        """Send KILL; a thread reaps the leader if it does not end at once."""
        if self.check_gone():
            return
        self.signal(signal.SIGKILL)
        if not self.check_gone() and self.leader.returncode is None:
            threading.Thread(target=self._reap_leader, name="bridle-reaper", daemon=True).start()

    def _reap_leader(self) -> None:
        self.leader.wait()
        self.check_gone()

    def _has_living(self) -> bool:
        if not any(_has_members(group) for group in self._groups):
            return False
        if not PROC_FOLDER.is_dir():
            return True
        alive = False
        for member in self._members():
            if member.state not in DEAD_STATES:
                alive = True
            elif member.parent == os.getpid():
                # Orphans become our children if we are the first process of a container.
                with suppress(ChildProcessError):
                    os.waitpid(member.pid, os.WNOHANG)
        return alive

    def _members(self) -> Iterator[SessionProcess]:
        """The other processes of the session; none on systems without /proc."""
        leader = self.leader.pid
        with suppress(OSError):
            for entry in PROC_FOLDER.iterdir():
                if not entry.name.isdigit() or int(entry.name) == leader:
                    continue
                with suppress(OSError, ValueError, IndexError):
                    # The program name is in brackets and may itself contain brackets.
                    fields = (entry / "stat").read_bytes().rpartition(b")")[2].split()
                    if int(fields[3]) == leader:
                        yield SessionProcess(
                            int(entry.name), fields[0].decode(), int(fields[1]), int(fields[2])
                        )


def _has_members(group: int) -> bool:
    """True if the group has members; zombies count until they are reaped."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


_live_trees: set[ProcessTree] = set()
_guards: dict[int, CrashGuard] = {}


def _get_guard() -> CrashGuard:
    """The guard of this process; a forked child does not use its parent's."""
    pid = os.getpid()
    if pid not in _guards:  # created on first use: importing this module has no effects
        _guards[pid] = CrashGuard()
        atexit.register(end_all_trees)
    return _guards[pid]


def end_all_trees() -> None:
    """Send TERM to every tree of this process, wait, then send KILL."""
    trees = [tree for tree in tuple(_live_trees) if tree.is_own and not tree.check_gone()]
    for number, seconds in ((signal.SIGTERM, EXIT_GRACE_SECONDS), (signal.SIGKILL, EXIT_GRACE_SECONDS)):
        for tree in trees:
            tree.signal(number)
        until = time.monotonic() + seconds
        while trees := [tree for tree in trees if not tree.check_gone()]:
            if time.monotonic() > until:
                break
            time.sleep(POLL_SECONDS)
    guard = _guards.get(os.getpid())
    if guard is not None:
        guard.close()
