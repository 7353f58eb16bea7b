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

from .guard import Guard

POLL_SECONDS = 0.01
EXIT_GRACE_SECONDS = 1.0
"""At the end of the interpreter, between TERM and KILL, for all trees together."""
PROC = Path("/proc")
DEAD = ("Z", "X", "x")


class Member(NamedTuple):
    pid: int
    state: str
    parent: int
    group: int


class Tree:
    def __init__(self, start: Callable[[], "subprocess.Popen[bytes]"]) -> None:
        """`start` makes the leader, of a session of its own."""
        guard = _guard()
        guard.ready()
        self.leader = leader = start()
        self._owner = os.getpid()
        self._groups = {leader.pid}
        self._gone = False
        _live.add(self)
        guard.add(leader.pid)

    @property
    def exit_code(self) -> int | None:
        """The leader's, once it was reaped; minus a signal's number if one ended it."""
        return self.leader.returncode

    @property
    def owned(self) -> bool:
        """Whether it was started by this process, and not by the one this was forked from."""
        return self._owner == os.getpid()

    def signal(self, number: int, *, look: bool = True) -> None:
        """To the program's group and, with a `look` at what the system lists, to others in its session.

        The look costs about 20 µs a process of the machine.
        """
        if self._gone:
            return
        if look:
            self._groups = {self.leader.pid, *(member.group for member in self._members())}
        for group in self._groups:
            with suppress(ProcessLookupError, PermissionError):
                # Not permitted: only the dead are left (on some systems), or it became another user.
                os.killpg(group, number)

    def gone(self) -> bool:
        """Reaps the leader if it has ended; true when nobody is left."""
        if not self._gone and self.leader.poll() is not None:
            self._gone = not self._is_there()
            if self._gone:
                _live.discard(self)
                _guard().remove(self.leader.pid)
        return self._gone

    def abandon(self) -> None:
        """KILL, and whoever has not gone by now is waited for by nobody but a thread."""
        if self.gone():
            return
        self.signal(signal.SIGKILL)
        if not self.gone() and self.leader.returncode is None:
            threading.Thread(target=self._reap, name="bridle-reaper", daemon=True).start()

    def _reap(self) -> None:
        self.leader.wait()
        self.gone()

    def _is_there(self) -> bool:
        if not any(_answers(group) for group in self._groups):
            return False
        if not PROC.is_dir():
            return True
        alive = False
        for member in self._members():
            if member.state not in DEAD:
                alive = True
            elif member.parent == os.getpid():
                # Left to us, as everything orphaned is where we are the first process of a container.
                with suppress(ChildProcessError):
                    os.waitpid(member.pid, os.WNOHANG)
        return alive

    def _members(self) -> Iterator[Member]:
        """Whoever else is in the session, where the system says so."""
        leader = self.leader.pid
        with suppress(OSError):
            for entry in PROC.iterdir():
                if not entry.name.isdigit() or int(entry.name) == leader:
                    continue
                with suppress(OSError, ValueError, IndexError):
                    # The name of a program stands in brackets and may hold anything, brackets too.
                    said = (entry / "stat").read_bytes().rpartition(b")")[2].split()
                    if int(said[3]) == leader:
                        yield Member(int(entry.name), said[0].decode(), int(said[1]), int(said[2]))


def _answers(group: int) -> bool:
    """Whether anybody is in it; the dead count until they are reaped."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


_live: set[Tree] = set()
_guards: dict[int, Guard] = {}


def _guard() -> Guard:
    """This process's; what a forked child inherits is its parent's business."""
    pid = os.getpid()
    if pid not in _guards:  # not when the module is loaded: that does nothing
        _guards[pid] = Guard()
        atexit.register(end_all)
    return _guards[pid]


def end_all() -> None:
    """TERM to every tree of this process, a grace for all of them, KILL."""
    trees = [tree for tree in tuple(_live) if tree.owned and not tree.gone()]
    for number, seconds in ((signal.SIGTERM, EXIT_GRACE_SECONDS), (signal.SIGKILL, EXIT_GRACE_SECONDS)):
        for tree in trees:
            tree.signal(number)
        until = time.monotonic() + seconds
        while trees := [tree for tree in trees if not tree.gone()]:
            if time.monotonic() > until:
                break
            time.sleep(POLL_SECONDS)
    guard = _guards.get(os.getpid())
    if guard is not None:
        guard.close()
