"""Isolates a command without other programs: namespaces of users, mounts, processes, network, IPC and host name.

The new root is an empty file system with the folders of the layout mounted into it.  The old root is then unmounted, so
nothing else can be named.  /proc belongs to the new process namespace, and its settings of the kernel are read-only:
for the user root they would be writable without any capability.
"""

import ctypes
import fcntl
import os
import socket
import struct
from pathlib import Path

from .kernel import LIBC, LaunchError, check_call

CLONE_FLAGS = 0x00020000 | 0x02000000 | 0x04000000 | 0x08000000 | 0x10000000 | 0x20000000
"""Mounts, cgroup, host name, IPC, users, processes."""
CLONE_NETWORK = 0x40000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 1, 2, 4, 8
MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 32, 4096, 16384, 1 << 18
MNT_DETACH = 2
PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
MOUNT_SETATTR, AT_FDCWD, AT_RECURSIVE = 442, -100, 0x8000
ATTR_RDONLY, ATTR_NOSUID, ATTR_NODEV = 1, 2, 4
DEVICES = ("null", "zero", "full", "random", "urandom")
KERNEL_SETTINGS = ("sys", "sysrq-trigger", "irq", "bus", "fs", "acpi", "scsi")
SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 1
BASE = "/tmp"  # noqa: S108 - a mount point that exists everywhere; the mount is private
USER_INSIDE = 1000


def enter_namespaces(*, network: bool) -> None:
    """Move this process to new namespaces; its next child is the first process of the new process namespace."""
    user, group = os.getuid(), os.getgid()
    check_call("namespaces", LIBC.unshare(CLONE_FLAGS | (0 if network else CLONE_NETWORK)))
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{USER_INSIDE} {user} 1")
    Path("/proc/self/gid_map").write_text(f"{USER_INSIDE} {group} 1")


def raise_loopback() -> None:
    """Switch on the loopback interface of a new network namespace."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        request = struct.pack("16sH14x", b"lo", 0)
        flags = struct.unpack("16sH14x", fcntl.ioctl(control, SIOCGIFFLAGS, request))[1]
        fcntl.ioctl(control, SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", flags | IFF_UP))


def build_root(mounts: list[list[str]], tmp_bytes: int) -> None:
    """Make the file system of the sandbox from the layout and move to it."""
    _mount("none", "/", None, MS_REC | MS_PRIVATE)
    _mount("tmpfs", BASE, "tmpfs", MS_NOSUID | MS_NODEV, "mode=755")
    new, old = f"{BASE}/new", f"{BASE}/old"
    for folder in (new, old):
        Path(folder).mkdir()
    _pivot(BASE, old)
    os.chdir("/")
    _mount("/new", "/new", None, MS_BIND)
    for kind, source, target in mounts:
        _add_mount(kind, f"/old{source}", source, f"/new{target}", tmp_bytes)
    _add_devices()
    _add_processes()
    _mount(None, "/new", None, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV)
    os.chdir("/new")
    _pivot(".", ".")  # the old root is now mounted on top of the new one
    check_call("unmount", LIBC.umount2(b".", MNT_DETACH))
    os.chdir("/")


def _add_mount(kind: str, source: str, link_target: str, target: str, tmp_bytes: int) -> None:
    if kind == "link":
        _make_parent(target)
        Path(target).symlink_to(link_target)
    elif kind == "folder":
        Path(target).mkdir(parents=True, exist_ok=True)
        Path(target).chmod(0o1777)
    elif kind == "tmp":
        Path(target).mkdir(parents=True, exist_ok=True)
        # guard: namespaces-tmp-size
        _mount("tmpfs", target, "tmpfs", MS_NOSUID | MS_NODEV, f"mode=1777,size={tmp_bytes}")
    else:
        _make_target(source, target)
        _mount(source, target, None, MS_BIND | MS_REC)
        _set_attributes(target, ATTR_NOSUID | ATTR_NODEV | (ATTR_RDONLY if kind == "read" else 0))


def _add_devices() -> None:
    Path("/new/dev").mkdir()
    _mount("tmpfs", "/new/dev", "tmpfs", MS_NOSUID | MS_NOEXEC, "mode=755")
    for name in DEVICES:
        Path(f"/new/dev/{name}").touch()
        _mount(f"/old/dev/{name}", f"/new/dev/{name}", None, MS_BIND)
    for name, number in (("stdin", 0), ("stdout", 1), ("stderr", 2)):
        Path(f"/new/dev/{name}").symlink_to(f"/proc/self/fd/{number}")
    Path("/new/dev/fd").symlink_to("/proc/self/fd")
    Path("/new/dev/shm").mkdir()
    _mount("tmpfs", "/new/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777,size=64m")


def _add_processes() -> None:
    Path("/new/proc").mkdir()
    _mount("proc", "/new/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    for name in KERNEL_SETTINGS:
        path = f"/new/proc/{name}"
        if Path(path).exists():
            _mount(path, path, None, MS_BIND | MS_REC)
            _set_attributes(path, ATTR_RDONLY | ATTR_NOSUID | ATTR_NODEV)


def _make_parent(target: str) -> None:
    Path(target).parent.mkdir(parents=True, exist_ok=True)


def _make_target(source: str, target: str) -> None:
    """An empty folder or file to mount on, unless a mount before has it."""
    if Path(source).is_dir():
        Path(target).mkdir(parents=True, exist_ok=True)
    elif not Path(target).exists():
        _make_parent(target)
        Path(target).touch()


def _mount(source: str | None, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    words = [None if word is None else os.fsencode(word) for word in (source, target, kind)]
    check_call(
        f"mount {target}", LIBC.mount(*words, ctypes.c_ulong(flags), None if data is None else data.encode())
    )


def _set_attributes(path: str, attributes: int) -> None:
    """Set attributes of a mount and of all mounts below it."""
    words = (ctypes.c_uint64 * 4)(attributes, 0, 0, 0)
    result = LIBC.syscall(
        MOUNT_SETATTR, AT_FDCWD, os.fsencode(path), AT_RECURSIVE, words, ctypes.c_size_t(ctypes.sizeof(words))
    )
    check_call(f"mount attributes of {path}", result)


def _pivot(new: str, old: str) -> None:
    number = PIVOT_ROOT.get(os.uname().machine)
    if number is None:
        raise LaunchError(f"this machine ({os.uname().machine}) is not supported")
    check_call("pivot_root", LIBC.syscall(number, os.fsencode(new), os.fsencode(old)))
