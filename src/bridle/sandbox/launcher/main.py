"""The stages of a launch; the package says what they do."""

import json
import os
import resource
import signal
import socket
import sys
from contextlib import suppress
from importlib import import_module
from typing import Any, NoReturn

from .groups import make_group
from .kernel import (
    LaunchError,
    adopt_orphans,
    die_with_parent,
    drop_capabilities,
    read_landlock_version,
    restrict_writes,
)
from .namespaces import build_root, enter_namespaces, raise_loopback
from .seccomp import has_filter, install_filter
from .settings_guard import SettingsGuard

FAILED_CODE = 125
"""Exit code of a launch that failed; the command did not run."""
NOT_FOUND_CODE = 127
NOT_RUN = "bridle sandbox: the command was not run: "
"""As in local.py, which this cannot import: it runs without site-packages."""
OPEN_FILES_MAX = 4096
WRITABLE_ALWAYS = ("/tmp", "/dev")  # noqa: S108 - private ones of the sandbox
PROXY_MODULE = "bridle.sandbox.launcher.proxy"
"""Imported only for a command that may reach hosts: it takes as long as everything else here."""
CONTAINER_MODULE = "bridle.sandbox.launcher.container"
END_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
Spec = dict[str, Any]


def main(stage: str, text: str) -> NoReturn:
    spec: Spec = json.loads(text)
    try:
        if stage == "outer":
            # guard: scan-outlives-launcher
            leave_session()
            os._exit(run_outer(spec))
        if stage == "container":
            guard = make_guard(spec, spec["protected"])
            run_container = import_module(CONTAINER_MODULE).run_container
            os._exit(run_container(spec["words"], spec["remove"], lambda: write_notes(*guard.undo_changes())))
        run_inner(spec)
    except (LaunchError, OSError) as error:
        sys.stderr.write(f"{NOT_RUN}{error}\n")
        sys.stderr.flush()
    os._exit(FAILED_CODE)


def leave_session() -> None:
    """Go on in a process of another session, which outlives this one if it is killed, to look for new settings.

    This one passes its signals on, and the code of the other one.
    """
    parent = os.getpid()
    other = os.fork()
    if other == 0:
        os.setsid()
        die_with_parent(parent, signal.SIGTERM)
        return
    pass_signals_on(other)
    os._exit(wait_for_signalled(other))


def run_outer(spec: Spec) -> int:
    """Start the command isolated, wait for its end and return its exit code."""
    limits = spec["limits"]
    # guard: sandbox-group-limits
    group = make_group(limits["memory_bytes"], limits["processes"])
    try:
        if os.getuid() == 0 and not group.limits_processes:
            raise LaunchError(
                "root is limited by control groups only, and none can be made here; use another user"
            )
        spec["per_process"] = not group.limits_memory
        ends = socket.socketpair() if spec["hosts"] else None
        guard = None
        if spec["workspace"]:
            protected = [target for kind, _, target in spec["mounts"] if kind == "read"]
            guard = make_guard(spec, protected)
        adopt_orphans()
        seen, spec["started"] = os.pipe()
        signal.pthread_sigmask(signal.SIG_BLOCK, END_SIGNALS)
        child = os.fork()
        if child == 0:
            if guard is not None:
                guard.close()
            os.close(seen)
            os.set_inheritable(spec["started"], True)
            if ends is not None:
                spec["control"] = ends[1].detach()
                os.set_inheritable(spec["control"], True)
            run_child(spec, group.join)
        os.close(spec["started"])
        pass_signals_on(child)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, END_SIGNALS)
        proxy = start_proxy(spec, *ends) if ends is not None else None
        status = wait_for_signalled(child)
        wait_for_rest()
        refused = proxy.describe_refusals() if proxy else ()
        settings = guard.undo_changes() if guard else ()
        if status and not os.read(seen, 1):  # bubblewrap has said why, or nothing could be said
            sys.stderr.write(f"{NOT_RUN}the sandbox ended before its first process\n")
        write_notes(*group.describe_limits_reached(), *refused, *settings)
        return status
    finally:
        group.remove()


def make_guard(spec: Spec, protected: list[str]) -> SettingsGuard:
    """Look at the settings of the workspace; fails if another folder is at its path now."""
    guard = SettingsGuard(spec["workspace"], protected)
    check_identity(spec, spec["workspace"], guard.stat_root())
    return guard


def check_identity(spec: Spec, path: str, about: os.stat_result) -> None:
    """Fail if a path of the user's folders does not lead to what the sandbox was made for."""
    wanted = spec["identities"].get(path, ())
    # guard: mount-identity
    if wanted != () and wanted != [about.st_dev, about.st_ino]:
        raise LaunchError(f"{path} was moved or replaced; put it back")


def write_notes(*notes: str) -> None:
    with suppress(BrokenPipeError):  # the harness has ended, or waits no longer
        for note in notes:
            sys.stderr.write(f"bridle sandbox: {note}\n")
        sys.stderr.flush()


def start_proxy(spec: Spec, ours: socket.socket, childs: socket.socket) -> Any:
    """Serve the port that the inner stage opens; threads start only here, after the fork."""
    childs.close()
    proxy = import_module(PROXY_MODULE).AllowListProxy(spec["hosts"]["allow"], spec["hosts"]["private"])
    proxy.start(ours)
    return proxy


def run_child(spec: Spec, join_group: "Any") -> NoReturn:
    """In the child: join the group, then become bubblewrap, or the first process of new namespaces."""
    try:
        restore_signals()
        die_with_parent(os.getppid())
        join_group()
        if spec["mechanism"] == "bubblewrap":
            words = [*spec.pop("bubblewrap"), sys.executable, *spec["boot"], "inner", json.dumps(spec)]
            os.execv(words[0], words)  # noqa: S606 - its purpose
        run_namespaces(spec)
    except (LaunchError, OSError) as error:
        sys.stderr.write(f"{NOT_RUN}{error}\n")
        sys.stderr.flush()
    os._exit(FAILED_CODE)


def run_namespaces(spec: Spec) -> NoReturn:
    if not read_landlock_version():
        raise LaunchError("the kernel has no Landlock")
    enter_namespaces(network=spec["network"])
    first = os.fork()
    if first:
        close_control(spec)
        os.close(spec["started"])
        os._exit(wait_for(first))
    die_with_parent(0)
    os.setsid()
    if not spec["network"]:
        raise_loopback()
    build_root(spec["mounts"], spec["limits"]["tmp_bytes"])
    command = os.fork()
    if command == 0:
        try:
            run_inner(spec)
        except (LaunchError, OSError) as error:
            sys.stderr.write(f"{NOT_RUN}{error}\n")
            sys.stderr.flush()
        os._exit(FAILED_CODE)
    close_control(spec)
    os.close(spec["started"])
    os._exit(wait_for(command))


def close_control(spec: Spec) -> None:
    """Only the inner stage passes a port out."""
    if "control" in spec:
        os.close(spec["control"])


def run_inner(spec: Spec) -> NoReturn:
    """Give up the last rights, then become the command."""
    os.write(spec["started"], b".")
    os.close(spec["started"])
    if not has_filter():
        raise LaunchError(f"the system calls of this machine ({os.uname().machine}) are not known")
    if spec["hosts"]:
        import_module(PROXY_MODULE).open_port(spec["control"], spec["hosts"]["private"])
    limits = spec["limits"]
    set_limit(resource.RLIMIT_CORE, 0)
    # guard: file-size-limit
    set_limit(resource.RLIMIT_FSIZE, limits["file_bytes"])
    set_limit(resource.RLIMIT_NOFILE, OPEN_FILES_MAX)
    set_limit(resource.RLIMIT_NPROC, limits["processes"])
    if spec["per_process"]:
        set_limit(resource.RLIMIT_AS, limits["memory_bytes"])
    for path in spec["identities"]:  # what was mounted can no longer change
        check_identity(spec, path, os.lstat(path))
    os.chdir(spec["cwd"])
    os.umask(0o022)
    writable = [target for kind, _, target in spec["mounts"] if kind == "write"]
    # guard: capabilities-dropped
    drop_capabilities()
    restrict_writes([*writable, *WRITABLE_ALWAYS])
    # guard: seccomp-filter
    install_filter()
    argv = spec["argv"]
    try:
        os.execvp(argv[0], argv)  # noqa: S606 - its purpose
    except OSError as error:
        sys.stderr.write(f"{NOT_RUN}{argv[0]}: {error.strerror}\n")
        sys.stderr.flush()
        os._exit(NOT_FOUND_CODE)


def set_limit(kind: int, limit: int) -> None:
    """Set a limit for good, at most what it is."""
    most = resource.getrlimit(kind)[1]
    limit = limit if most == resource.RLIM_INFINITY else min(limit, most)
    resource.setrlimit(kind, (limit, limit))


def wait_for(child: int) -> int:
    """Wait for a child, reaping others that are inherited, and return its exit code as a shell shows it."""
    while True:
        try:
            ended, status = os.wait()
        except InterruptedError:
            continue
        if ended == child:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


def wait_for_rest() -> None:
    """Wait for the first process of the sandbox, which bubblewrap does not: once it is gone, so are all others."""
    with suppress(ChildProcessError):
        while True:
            os.wait()


def pass_signals_on(child: int) -> None:
    """Send the signals that end a program to a child, and outlive it to clean up."""
    for number in END_SIGNALS:
        signal.signal(number, lambda number, _: os.kill(child, number))


def wait_for_signalled(child: int) -> int:
    """Wait for a child that signals are passed on to; they are ignored before its number is free."""
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    for number in END_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    return wait_for(child)


def restore_signals() -> None:
    for number in (*END_SIGNALS, signal.SIGPIPE, signal.SIGXFSZ):
        with suppress(OSError):
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, END_SIGNALS)
