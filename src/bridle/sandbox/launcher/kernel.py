"""Calls of the kernel that Python has no function for."""

import ctypes
import os
import signal

LIBC = ctypes.CDLL(None, use_errno=True)
LANDLOCK_CREATE, LANDLOCK_ADD, LANDLOCK_RESTRICT = 444, 445, 446
LANDLOCK_VERSION_FLAG, LANDLOCK_PATH_BENEATH = 1, 1
READ_RIGHTS = 0b1101
"""Execute, read file, read folder."""
WRITE_RIGHTS_BY_VERSION = {1: 0b1_1111_1111_0010, 2: 1 << 13, 3: 1 << 14, 5: 1 << 15}
"""Rights added by each version: write, remove, make …; refer (rename between folders); truncate; device ioctl."""
SCOPE_VERSION, SCOPES = 6, 0b11
"""Abstract Unix sockets and signals end at the sandbox."""
CAPABILITIES_MAX = 64
PR_CAPBSET_DROP, PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 24, 1, 36
CAPSET = {"x86_64": 126, "aarch64": 91}
CAPABILITY_VERSION_3 = 0x20080522


class LaunchError(Exception):
    """Isolation failed; the command must not run."""


def check_call(what: str, result: int) -> int:
    # guard: kernel-call-failed
    if result < 0:
        raise LaunchError(f"{what}: {os.strerror(ctypes.get_errno())}")
    return result


def read_landlock_version() -> int:
    """The version of Landlock in the kernel; 0 if it has none or it is off."""
    return max(0, int(LIBC.syscall(LANDLOCK_CREATE, None, ctypes.c_size_t(0), LANDLOCK_VERSION_FLAG)))


def restrict_writes(writable: list[str]) -> None:
    """Let this process and all it starts write below these folders only, and read everywhere (Landlock)."""
    version = read_landlock_version()
    if version == 0:
        return
    writes = sum(rights for since, rights in WRITE_RIGHTS_BY_VERSION.items() if since <= version)
    scoped = SCOPES if version >= SCOPE_VERSION else 0
    words = (ctypes.c_uint64 * 3)(READ_RIGHTS | writes, 0, scoped)
    size = ctypes.sizeof(words) if version >= SCOPE_VERSION else 16 if version >= 4 else 8
    rules = check_call("landlock", LIBC.syscall(LANDLOCK_CREATE, words, ctypes.c_size_t(size), 0))
    for path, rights in (("/", READ_RIGHTS), *((each, READ_RIGHTS | writes) for each in writable)):
        folder = os.open(path, os.O_PATH | os.O_CLOEXEC)
        rule = ctypes.create_string_buffer(rights.to_bytes(8, "little") + folder.to_bytes(4, "little"), 12)
        check_call("landlock rule", LIBC.syscall(LANDLOCK_ADD, rules, LANDLOCK_PATH_BENEATH, rule, 0))
        os.close(folder)
    check_call("no_new_privs", LIBC.prctl(38, 1, 0, 0, 0))
    # guard: landlock-rules
    check_call("landlock", LIBC.syscall(LANDLOCK_RESTRICT, rules, 0))
    os.close(rules)


def drop_capabilities() -> None:
    """Give up all rights of a namespace's owner, for good."""
    for number in range(CAPABILITIES_MAX):
        LIBC.prctl(PR_CAPBSET_DROP, number, 0, 0, 0)  # fails for numbers that the kernel does not have
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION_3, 0)
    check_call("capset", LIBC.syscall(CAPSET[os.uname().machine], header, (ctypes.c_uint32 * 6)()))


def adopt_orphans() -> None:
    """Become the parent of processes below whose own parent ends, so that their end can be awaited."""
    check_call("subreaper", LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))


def die_with_parent(parent: int, number: int = signal.SIGKILL) -> None:
    """Get a signal, normally KILL, when the parent ends."""
    check_call("parent-death signal", LIBC.prctl(PR_SET_PDEATHSIG, int(number), 0, 0, 0))
    if os.getppid() not in (parent, 0):
        raise LaunchError("the parent process has ended")
