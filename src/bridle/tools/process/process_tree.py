"""A program and everything it started, as one thing that can be ended.

The program leads a session of its own, so whatever it starts stays in it unless it takes
steps to leave: one signal to the group reaches all of them, and none of ours.  What leads
a group of its own inside the session (the jobs of an interactive shell) is found where the
system lists its processes.  What makes itself a session of its own is a service, and stays.

A number is only signalled while it must be theirs: the program is not reaped before its
group was told to end, and after that a group's number stays taken while anybody is in it.

Trees that are alive when the interpreter ends are ended with it; when it is killed, by its
guard (guard.py).  Nothing here awaits.
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
"""At the end of the interpreter, between TERM and KILL, for all trees together."""
PROC_FOLDER = Path("/proc")
DEAD_STATES = ("Z", "X", "x")


class SessionProcess(NamedTuple):
    pid: int
    state: str
    parent: int
    group: int


class ProcessTree:
    def __init__(self, start: Callable[[], "subprocess.Popen[bytes]"]) -> None:
        """`start` makes the leader, of a session of its own."""
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
        """The leader's, once it was reaped; minus a signal's number if one ended it."""
        return self.leader.returncode

    @property
    def is_own(self) -> bool:
        """Whether it was started by this process, and not by the one this was forked from."""
        return self._owner == os.getpid()

    def signal(self, number: int, *, look: bool = True) -> None:
        """To the program's group and, with a `look` at what the system lists, to others in its session.

        The look costs about 20 µs a process of the machine.
        """
        if self._is_gone:
            return
        if look:
            self._groups = {self.leader.pid, *(member.group for member in self._members())}
        for group in self._groups:
            with suppress(ProcessLookupError, PermissionError):
                # Not permitted: only the dead are left (on some systems), or it became another user.
                os.killpg(group, number)

    def check_gone(self) -> bool:
        """Reaps the leader if it has ended; true when nobody is left."""
        if not self._is_gone and self.leader.poll() is not None:
            self._is_gone = not self._has_living()
            if self._is_gone:
                _live_trees.discard(self)
                _get_guard().remove(self.leader.pid)
        return self._is_gone

    def abandon(self) -> None:
        """KILL, and whoever has not gone by now is waited for by nobody but a thread."""
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
                # Left to us, as everything orphaned is where we are the first process of a container.
                with suppress(ChildProcessError):
                    os.waitpid(member.pid, os.WNOHANG)
        return alive

    def _members(self) -> Iterator[SessionProcess]:
        """Whoever else is in the session, where the system says so."""
        leader = self.leader.pid
        with suppress(OSError):
            for entry in PROC_FOLDER.iterdir():
                if not entry.name.isdigit() or int(entry.name) == leader:
                    continue
                with suppress(OSError, ValueError, IndexError):
                    # The name of a program stands in brackets and may hold anything, brackets too.
                    said = (entry / "stat").read_bytes().rpartition(b")")[2].split()
                    if int(said[3]) == leader:
                        yield SessionProcess(int(entry.name), said[0].decode(), int(said[1]), int(said[2]))


def _has_members(group: int) -> bool:
    """Whether anybody is in it; the dead count until they are reaped."""
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
    """This process's; what a forked child inherits is its parent's business."""
    pid = os.getpid()
    if pid not in _guards:  # not when the module is loaded: that does nothing
        _guards[pid] = CrashGuard()
        atexit.register(end_all_trees)
    return _guards[pid]


def end_all_trees() -> None:
    """TERM to every tree of this process, a grace for all of them, KILL."""
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
