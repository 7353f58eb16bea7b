"""Limits memory and the number of processes of a command and all it starts together (control groups).

A group is made beside the group of this process, with version 2, or below it, with version 1.  This needs a
system that lets us: root, or a user whose session manages groups of its own.  Without groups, memory is limited
per process, and processes by the limit of the user inside the sandbox.
"""

import os
import time
from contextlib import suppress
from pathlib import Path

GROUP_PREFIX = "bridle-"
REMOVE_ATTEMPTS = 100
REMOVE_WAIT_SECONDS = 0.01


class ResourceGroup:
    """The folders of a new group: one with version 2, one per kind of limit with version 1."""

    def __init__(self, folders: dict[str, Path]) -> None:
        self._folders = folders

    @property
    def limits_memory(self) -> bool:
        return "memory" in self._folders

    @property
    def limits_processes(self) -> bool:
        return "pids" in self._folders

    def join(self) -> None:
        """Move this process into the group."""
        for folder in {*self._folders.values()}:
            (folder / "cgroup.procs").write_text("0")

    def describe_limits_reached(self) -> list[str]:
        """Limits that the command ran into."""
        found = []
        memory, pids = self._folders.get("memory"), self._folders.get("pids")
        if memory and any(
            _read_count(memory / name, "oom_kill") for name in ("memory.events", "memory.oom_control")
        ):
            found.append("the memory limit was reached and a process was ended")
        if pids and _read_count(pids / "pids.events", "max"):
            found.append("the limit of processes was reached")
        return found

    def remove(self) -> None:
        for folder in {*self._folders.values()}:
            for _ in range(REMOVE_ATTEMPTS):
                with suppress(OSError):
                    folder.rmdir()
                if not folder.exists():
                    break
                time.sleep(REMOVE_WAIT_SECONDS)  # its last process is just ending


def make_group(memory_bytes: int, processes: int) -> ResourceGroup:
    """A group with these limits; without folders, if the system does not allow one."""
    name = f"{GROUP_PREFIX}{os.getpid()}"
    folders: dict[str, Path] = {}
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, kinds, path = line.split(":", 2)
        if not kinds:
            folders = _make_unified(path, name, memory_bytes, processes) or folders
        for kind, setting, limit in (
            ("memory", "memory.limit_in_bytes", memory_bytes),
            ("pids", "pids.max", processes),
        ):
            if kind in kinds.split(","):
                made = _make_folder(Path("/sys/fs/cgroup") / kind / path.lstrip("/"), name, {setting: limit})
                if made is not None:
                    folders[kind] = made
    return ResourceGroup(folders)


def _make_unified(path: str, name: str, memory_bytes: int, processes: int) -> dict[str, Path]:
    parent = (Path("/sys/fs/cgroup") / path.lstrip("/")).parent
    with suppress(OSError):
        controllers = (parent / "cgroup.subtree_control").read_text().split()
        if {"memory", "pids"} <= {*controllers}:
            made = _make_folder(parent, name, {"memory.max": memory_bytes, "pids.max": processes})
            if made is not None:
                with suppress(OSError):
                    (made / "memory.swap.max").write_text("0")
                return {"memory": made, "pids": made}
    return {}


def _make_folder(parent: Path, name: str, settings: dict[str, int]) -> Path | None:
    folder = parent / name
    try:
        _remove_stale(parent)
        folder.mkdir()
        for setting, limit in settings.items():
            (folder / setting).write_text(str(limit))
    except OSError:
        with suppress(OSError):
            folder.rmdir()
        return None
    return folder


def _remove_stale(parent: Path) -> None:
    """Remove groups of launchers that were killed; the kernel refuses for groups in use."""
    for folder in parent.glob(f"{GROUP_PREFIX}*"):
        if not Path("/proc", folder.name.removeprefix(GROUP_PREFIX)).exists():
            with suppress(OSError):
                folder.rmdir()


def _read_count(path: Path, name: str) -> int:
    with suppress(OSError):
        for line in path.read_text().splitlines():
            if line.startswith(f"{name} "):
                return int(line.split()[1])
    return 0
