"""System calls that no sandboxed command needs: refused by a filter in the kernel that cannot be removed.

Refused are calls that inspect other processes, change mounts and namespaces, load code into the kernel, use keyrings,
set the clock, or reach around the filter (io_uring); sockets of families other than Unix, IP and netlink; and input
pushed into a terminal (TIOCSTI).  They fail with EPERM, so programs that try them go on without.
"""

import ctypes
import errno
import platform
import struct

from .kernel import LIBC, check_call

PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
ALLOW, ERRNO, KILL = 0x7FFF0000, 0x00050000, 0x80000000
LOAD_WORD, JUMP_EQUAL, JUMP_GREATER_EQUAL, JUMP_ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
AT_NUMBER, AT_ARCHITECTURE, AT_FIRST_ARGUMENT, AT_SECOND_ARGUMENT = 0, 4, 16, 24
"""Offsets in the data of a call; arguments have 64 bits, and the lower half comes first."""
NAMESPACE_FLAGS = 0x7E020080
"""CLONE_NEW* of clone, all of them."""
TERMINAL_INPUT = (0x5412, 0x541C)
"""TIOCSTI and TIOCLINUX."""
# guard: socket-families
SOCKET_FAMILIES = (1, 2, 10, 16)
"""Unix, IPv4, IPv6 and netlink.  VSOCK, which no namespace isolates, is not among them."""
X32_CALLS = 0x40000000

REFUSED_EVERYWHERE = {
    "open_tree": 428, "move_mount": 429, "fsopen": 430, "fsconfig": 431, "fsmount": 432, "fspick": 433,
    "io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427, "pidfd_getfd": 438,
    "process_madvise": 440, "mount_setattr": 442, "quotactl_fd": 443, "open_tree_attr": 467,
}  # fmt: skip
"""Numbers that are the same on every architecture."""
REFUSED = {
    "x86_64": {
        "acct": 163, "add_key": 248, "adjtimex": 159, "bpf": 321, "chroot": 161, "clock_adjtime": 305,
        "clock_settime": 227, "delete_module": 176, "fanotify_init": 300, "finit_module": 313, "init_module": 175,
        "ioperm": 173, "iopl": 172, "kcmp": 312, "kexec_file_load": 320, "kexec_load": 246, "keyctl": 250,
        "mount": 165, "name_to_handle_at": 303, "open_by_handle_at": 304, "perf_event_open": 298,
        "pivot_root": 155, "process_vm_readv": 310, "process_vm_writev": 311, "ptrace": 101, "quotactl": 179,
        "reboot": 169, "request_key": 249, "setdomainname": 171, "sethostname": 170, "setns": 308,
        "settimeofday": 164, "swapoff": 168, "swapon": 167, "syslog": 103, "umount2": 166, "unshare": 272,
        "userfaultfd": 323, "vhangup": 153,
    },
    "aarch64": {
        "acct": 89, "add_key": 217, "adjtimex": 171, "bpf": 280, "chroot": 51, "clock_adjtime": 266,
        "clock_settime": 112, "delete_module": 106, "fanotify_init": 262, "finit_module": 273, "init_module": 105,
        "kcmp": 272, "kexec_file_load": 294, "kexec_load": 104, "keyctl": 219, "mount": 40,
        "name_to_handle_at": 264, "open_by_handle_at": 265, "perf_event_open": 241, "pivot_root": 41,
        "process_vm_readv": 270, "process_vm_writev": 271, "ptrace": 117, "quotactl": 60, "reboot": 142,
        "request_key": 218, "setdomainname": 162, "sethostname": 161, "setns": 268, "settimeofday": 170,
        "swapoff": 225, "swapon": 224, "syslog": 116, "umount2": 39, "unshare": 97, "userfaultfd": 282,
        "vhangup": 58,
    },
}  # fmt: skip
CLONE3 = 435
EXAMINED = {
    "x86_64": {"clone": 56, "ioctl": 16, "socket": 41},
    "aarch64": {"clone": 220, "ioctl": 29, "socket": 198},
}
"""Calls that depend on an argument."""
ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}


def has_filter() -> bool:
    """True if the calls of this machine are known."""
    return platform.machine() in ARCHITECTURES


def install_filter() -> None:
    """Refuse the calls in this process and in all it starts; also gives up set-user-ID programs."""
    program = make_filter(platform.machine())
    buffer = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(buffer))
    check_call("no_new_privs", LIBC.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    check_call("seccomp", LIBC.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, header, 0, 0))


def make_filter(machine: str) -> bytes:
    """The filter as instructions of the kernel's packet filter."""
    eperm = ERRNO | errno.EPERM
    steps = [
        (LOAD_WORD, 0, 0, AT_ARCHITECTURE),
        (JUMP_EQUAL, 1, 0, ARCHITECTURES[machine]),
        (RETURN, 0, 0, KILL),
        (LOAD_WORD, 0, 0, AT_NUMBER),
        (JUMP_GREATER_EQUAL, 0, 1, X32_CALLS),
        (RETURN, 0, 0, eperm),
        (JUMP_EQUAL, 0, 1, CLONE3),  # its flags are in memory; C libraries use clone instead
        (RETURN, 0, 0, ERRNO | errno.ENOSYS),
    ]
    # guard: refused-system-calls
    for number in (*REFUSED_EVERYWHERE.values(), *REFUSED[machine].values()):
        steps += [(JUMP_EQUAL, 0, 1, number), (RETURN, 0, 0, eperm)]
    examined = EXAMINED[machine]
    steps += [
        (JUMP_EQUAL, 0, 4, examined["clone"]),
        (LOAD_WORD, 0, 0, AT_FIRST_ARGUMENT),
        (JUMP_ANY_BIT, 0, 1, NAMESPACE_FLAGS),
        (RETURN, 0, 0, eperm),
        (RETURN, 0, 0, ALLOW),
        (JUMP_EQUAL, 0, 2 + len(TERMINAL_INPUT) * 2, examined["ioctl"]),
        (LOAD_WORD, 0, 0, AT_SECOND_ARGUMENT),
    ]
    for request in TERMINAL_INPUT:
        steps += [(JUMP_EQUAL, 0, 1, request), (RETURN, 0, 0, eperm)]
    steps += [
        (RETURN, 0, 0, ALLOW),
        (JUMP_EQUAL, 0, 2 + len(SOCKET_FAMILIES) * 2, examined["socket"]),
        (LOAD_WORD, 0, 0, AT_FIRST_ARGUMENT),
    ]
    for family in SOCKET_FAMILIES:
        steps += [(JUMP_EQUAL, 0, 1, family), (RETURN, 0, 0, ALLOW)]
    steps += [(RETURN, 0, 0, ERRNO | errno.EAFNOSUPPORT), (RETURN, 0, 0, ALLOW)]
    return b"".join(struct.pack("HBBI", *step) for step in steps)
