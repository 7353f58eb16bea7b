"""A program and everything it started, which can be signalled and ended together.

The program leads its own session, so its descendants stay in it unless they leave on purpose: one signal to the
group reaches all of them, and none of our processes.  Process groups inside the session (the jobs of an interactive
shell) are found in /proc.

A process that starts its own session is found there by a variable of its environment, which all descendants inherit,
or as a child of a process that was found.  It ends too if we end the program, and with an MCP server.  If a command
exits by itself, it is a service that the command was to start, and is left running.  A process can hide if it erases
its environment (a program that sets its title may do so) and its parent ends before we look; in a sandbox it cannot.

A number is signalled only while it must belong to the tree.  The kernel gives the leader's number to no other process
while the leader is not reaped, or its group or session has members; after that the number is never used again.  A
process outside the session is held by a descriptor, and its start is compared, before it is signalled.

Trees that are alive when the interpreter exits are ended with it; if it is killed, crash_guard.py ends them.
Nothing here awaits.
"""

import atexit
import os
import secrets
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from .crash_guard import CrashGuard

POLL_SECONDS = 0.01
EXIT_GRACE_SECONDS = 1.0
"""Time between TERM and KILL at interpreter exit, for all trees together."""
PROC_FOLDER = Path("/proc")
DEAD_STATES = ("Z", "X", "x")
MARK_VARIABLE = "BRIDLE_PROCESS_TREE"
"""Marks of the trees that a process belongs to: a program may be a harness that starts programs of its own."""
MARK_BYTES = 8
FLAGS_FIELD, START_FIELD = 6, 19
KERNEL_THREAD_FLAG = 0x0020_0000
EXEC_SECONDS = 0.05
"""Time in which a process that is starting a program now gets its environment; until then it counts as living."""


class SessionProcess(NamedTuple):
    pid: int
    state: str
    parent: int
    group: int
    started: int
    """Ticks since the start of the machine."""
    is_inside: bool
    """False if it has left the session."""


class ProcessTree:
    """A session leader and its descendants."""

    def __init__(
        self,
        start: Callable[[dict[str, str]], "subprocess.Popen[bytes]"],
        *,
        ends_services: bool = False,
        is_marked: bool = True,
    ) -> None:
        """`start` starts the leader in a new session, with these variables in addition to its own.

        With `ends_services`, processes that have left the session end with the leader in any case.  A tree without
        a mark has none that can be found; a sandbox ends its own.
        """
        guard = _get_guard()
        guard.ensure_running()
        self._mark = secrets.token_hex(MARK_BYTES) if is_marked else ""
        marks = f"{os.environ.get(MARK_VARIABLE, '')}:{self._mark}".lstrip(":")
        self._owner = os.getpid()
        self.ends_services = ends_services
        starting = (self._owner, self)
        _starting_trees.add(starting)
        try:
            self.leader = start({MARK_VARIABLE: marks} if is_marked else {})
            self._register(guard)
        finally:
            _starting_trees.discard(starting)

    def _register(self, guard: CrashGuard) -> None:
        leader = self.leader
        self._groups = {leader.pid}
        self._started = _read_start(leader.pid)
        self._is_gone = False
        self._has_number = True
        """False once another process may have the leader's number."""
        self._last_signal = 0
        self._services: dict[int, int] = {}
        """Processes outside the session that the last look found, with their starts."""
        self._unread: dict[tuple[int, int], float] = {}
        """Processes without a readable environment, by number and start, and the end of the wait for it."""
        self._watched = f"{leader.pid}/{self._mark}"
        _live_trees.add(self)
        guard.add(self._watched)

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
        self._last_signal = number
        members = self._list_own_members() if look else []
        groups = {member.group for member in members if member.is_inside}
        if self._keep_number(members):
            groups.add(self.leader.pid)
        if look:
            self._groups = groups
        for group in groups:
            with suppress(ProcessLookupError, PermissionError):
                # PermissionError: only zombies are left (on some systems), or it changed its user.
                os.killpg(group, number)
        for member in members:
            if not member.is_inside:
                self._unread.pop((member.pid, member.started), None)
                _signal_process(member, number)

    def check_gone(self) -> bool:
        """Reap the leader if it has ended; True if no process is left."""
        if not self._is_gone and self.leader.poll() is not None:
            self._is_gone = not self._has_living()
            if self._is_gone:
                _live_trees.discard(self)
                _get_guard().remove(self._watched)
        return self._is_gone

    def abandon(self) -> None:
        """Send KILL; a thread reaps the leader if it does not end at once."""
        if self.check_gone():
            return
        self.signal(signal.SIGKILL)
        if not self.check_gone() and (self.leader.returncode is None or self._has_undecided()):
            threading.Thread(target=self._reap_leader, name="bridle-reaper", daemon=True).start()

    def _reap_leader(self) -> None:
        self.leader.wait()
        while not self.check_gone() and self._has_undecided():
            time.sleep(POLL_SECONDS)

    def _keep_number(self, members: Sequence[SessionProcess]) -> bool:
        """True while the leader's number belongs to the tree; the members are those of a look just now."""
        if self._has_number and self.leader.returncode is not None:
            number = self.leader.pid
            is_used = _is_found(os.killpg, number) or any(member.is_inside for member in members)
            # guard: reaped-group-signalled
            if not is_used or _is_found(os.kill, number):  # the leader was reaped: this is another process
                self._has_number = False
                guard = _get_guard()
                guard.remove(self._watched)
                if self._mark:
                    self._watched = f"/{self._mark}"
                    guard.add(self._watched)
        return self._has_number

    def _has_living(self) -> bool:
        if not self.ends_services and not any(_is_found(os.killpg, group) for group in self._groups):
            return False
        members = self._list_own_members()
        if not PROC_FOLDER.is_dir():
            return self._has_number
        alive = self._has_undecided()
        for member in members:
            if member.state not in DEAD_STATES:
                alive = True
                if self._last_signal and self._unread.pop((member.pid, member.started), 0.0):
                    _signal_process(member, self._last_signal)  # it could not be recognized at that time
            elif member.parent == os.getpid():
                # Orphans become our children if we are the first process of a container.
                with suppress(ChildProcessError):
                    os.waitpid(member.pid, os.WNOHANG)
        return alive

    def _list_own_members(self) -> list[SessionProcess]:
        members = self._list_members()
        if not self._keep_number(members):  # the session of this number may be another's
            members = [member for member in members if not member.is_inside]
        return members

    def _list_members(self) -> list[SessionProcess]:
        """The other processes of the session, and with `ends_services` those that left it; none without /proc."""
        # guard: service-left-session
        leader, looks_further = self.leader.pid, self.ends_services and bool(self._mark)
        found: list[SessionProcess] = []
        others: list[SessionProcess] = []
        with suppress(OSError):
            for entry in PROC_FOLDER.iterdir():
                if not entry.name.isdigit() or int(entry.name) == leader:
                    continue
                with suppress(OSError, ValueError, IndexError):
                    fields = _read_fields(entry)
                    parent, group, session, started = (int(fields[each]) for each in (1, 2, 3, START_FIELD))
                    is_inside = self._has_number and session == leader
                    process = SessionProcess(
                        int(entry.name), fields[0].decode(), parent, group, started, is_inside
                    )
                    if is_inside:
                        found.append(process)
                    elif looks_further and started >= self._started and _is_program(fields):
                        (found if self._is_service(entry, process) else others).append(process)
        if looks_further:
            parents = {leader} if self.leader.returncode is None else set()
            parents.update(process.pid for process in found)
            while children := [process for process in others if process.parent in parents]:
                found += children
                others = [process for process in others if process.parent not in parents]
                parents = {process.pid for process in children}
            self._services = {process.pid: process.started for process in found if not process.is_inside}
        return found

    def _is_service(self, entry: Path, process: SessionProcess) -> bool:
        """True if a process was found before, or has the mark of this tree in its environment."""
        if self._services.get(process.pid) == process.started:
            return True
        with suppress(OSError):
            environment = (entry / "environ").read_bytes()
            if not environment and not (entry / "cmdline").read_bytes():
                # Both are empty during execve; a process can also unmap them, so the wait is limited.
                self._unread.setdefault((process.pid, process.started), time.monotonic() + EXEC_SECONDS)
            return self._mark.encode() in environment
        return False

    def _has_undecided(self) -> bool:
        """True if the last look found processes whose environment may become readable."""
        now = time.monotonic()
        return any(until > now and _read_start(pid) == start for (pid, start), until in self._unread.items())


def _read_fields(process: Path) -> list[bytes]:
    """State, parent, group, session and more of a process; its name is in brackets and may itself contain brackets."""
    return (process / "stat").read_bytes().rpartition(b")")[2].split()


def _is_program(fields: list[bytes]) -> bool:
    """True for a program that has not ended, False for a thread of the kernel."""
    return fields[0].decode() not in DEAD_STATES and not int(fields[FLAGS_FIELD]) & KERNEL_THREAD_FLAG


def _read_start(pid: int) -> int:
    """Time of a start, in ticks since the machine's; 0 without /proc."""
    with suppress(OSError):
        return int(_read_fields(PROC_FOLDER / str(pid))[START_FIELD])
    return 0


def _is_found(send: Callable[[int, int], None], number: int) -> bool:
    """True if a process (`os.kill`) or group (`os.killpg`) has this number; zombies count until they are reaped."""
    try:
        send(number, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _signal_process(process: SessionProcess, number: int) -> None:
    """Signal a process, unless another has its number by now."""
    held = -1
    with suppress(AttributeError, OSError):  # not on this system, or it has ended
        held = os.pidfd_open(process.pid)
    try:
        if _read_start(process.pid) == process.started:
            with suppress(ProcessLookupError, PermissionError):
                if held >= 0:
                    signal.pidfd_send_signal(held, number)
                else:
                    os.kill(process.pid, number)
    finally:
        if held >= 0:
            os.close(held)


_live_trees: set[ProcessTree] = set()
_starting_trees: set[tuple[int, ProcessTree]] = set()
"""Trees whose leader is being started, with the process that starts them: they are not in `_live_trees` yet."""
_guards: dict[int, CrashGuard] = {}


def _get_guard() -> CrashGuard:
    """The guard of this process; a forked child does not use its parent's."""
    pid = os.getpid()
    if pid not in _guards:  # created on first use: importing this module has no effects
        _guards[pid] = CrashGuard()
        atexit.register(end_all_trees)
    return _guards[pid]


def end_all_trees() -> None:
    """Send TERM to every tree of this process, wait, then send KILL.

    Waits first for trees that another thread is starting: a leader that runs but is not registered would stay alive.
    """
    until = time.monotonic() + EXIT_GRACE_SECONDS
    while any(owner == os.getpid() for owner, _ in tuple(_starting_trees)) and time.monotonic() < until:
        time.sleep(POLL_SECONDS)
    trees = [tree for tree in tuple(_live_trees) if tree.is_own and not tree.check_gone()]
    for tree in trees:
        tree.ends_services = True
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
