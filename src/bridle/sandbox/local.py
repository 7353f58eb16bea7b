"""Sandboxes of this machine: bubblewrap if it is installed, otherwise the kernel's own means.

    box = find_sandbox("~/project")
    CommandTool("tests", "Run the tests.", ["pytest", "-q"], sandbox=box)

Inside, a command sees the programs of the system and of the Python that runs it, read-only, a private /tmp, and the
workspace, which it may write.  Nothing else exists: no home folder, no keys, no log of the harness, no other
process, and no network unless it is switched on.  launcher/ holds the code that does it.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Literal

from msgspec.structs import asdict

from bridle.ports.held_folder import HeldFolder, Identity, identify_path
from bridle.ports.sandbox import Sandbox, SandboxedCommand, SandboxLimits
from bridle.values.errors import MisuseError

from .host_rules import HostRules
from .protected_paths import ProtectedPaths

Mechanism = Literal["bubblewrap", "namespaces"]
MECHANISMS: Final[tuple[Mechanism, ...]] = ("bubblewrap", "namespaces")
# guard: sandbox-system-folders
SYSTEM_FOLDERS = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
SYSTEM_SETTINGS = (
    "alternatives", "bash.bashrc", "ca-certificates", "ca-certificates.conf", "debian_version", "fonts", "gitconfig",
    "group", "hosts", "inputrc", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "locale.alias", "localtime", "magic",
    "mime.types", "nsswitch.conf", "os-release", "passwd", "pki/tls/certs", "profile", "protocols", "resolv.conf",
    "services", "ssl/certs", "ssl/openssl.cnf", "terminfo", "timezone",
)  # fmt: skip
"""Files of /etc that programs need; none of them holds a password or a key."""
PRIVATE_TMP = "/tmp"  # noqa: S108 - inside the sandbox
PRIVATE_FOLDER = f"{PRIVATE_TMP}/bridle-private"
"""Where commands run if there is no workspace.

It is a folder of its own in the private /tmp, so that it is empty: if Python or this package is installed below the
machine's /tmp, the private one shows these, read-only and at the same path.
"""
BOOT = "import sys; sys.path.append(sys.argv[1]); from bridle.sandbox.launcher.main import main; main(*sys.argv[2:])"
NOT_RUN = "bridle sandbox: the command was not run: "
"""Start of the line that the launcher writes to standard error if it could not start a command."""
PROBE_SECONDS = 60
"""A start of Python takes this long only on a machine that hangs; a shorter wait refused a sandbox that works."""
LINKS_MAX = 40
"""Links followed to the Python program, as in the kernel."""
PACKAGE = Path(__file__).resolve().parents[1]
"""The code of the harness."""


class LocalSandbox:
    """A sandbox of this machine.  `find_sandbox` makes one."""

    def __init__(
        self,
        workspace: str | os.PathLike[str] | None,
        *,
        mechanism: Mechanism = "bubblewrap",
        readable: Sequence[str | os.PathLike[str]] = (),
        network: bool = False,
        allow: Sequence[str] = (),
        allow_private: Sequence[str] = (),
        limits: SandboxLimits | None = None,
    ) -> None:
        """`workspace` is the folder to write, or None: then commands run in an empty folder of their private /tmp, and
        nothing stays.

        `readable` are more folders to show, read-only; `network` gives full access to the network.

        `allow` are hosts that commands can reach through a proxy: `example.com` at ports 80 and 443,
        `example.com:8080` at another, `*.example.com` for those below.  Hosts in private networks are refused,
        except those that `allow_private` names.
        """
        self.workspace, self._protected = Path(PRIVATE_FOLDER), None
        self._held: list[HeldFolder] = []
        """The folders of the user that commands see; a path that leads elsewhere later is not mounted."""
        if workspace is not None:
            self.workspace = Path(workspace).expanduser().resolve()
            # guard: sandbox-workspace-checked
            check_workspace(self.workspace)
            self._protected = ProtectedPaths(self.workspace)
            self._held.append(HeldFolder(self.workspace, "the workspace"))
        self._mechanism, self._network = mechanism, network
        self.hosts = check_hosts(allow, allow_private, network=network)
        self._allow, self._private = tuple(allow), tuple(allow_private)
        self._limits = limits or SandboxLimits()
        self._readable = tuple(Path(each).expanduser().resolve() for each in readable)
        for each in self._readable:
            if not each.exists():
                raise MisuseError(f"readable={str(each)!r} of the sandbox does not exist")
            self._held.append(HeldFolder(each, "the readable folder"))

    @property
    def name(self) -> str:
        return self._mechanism

    def wrap(
        self, argv: Sequence[str], *, cwd: str | None, environment: Mapping[str, str]
    ) -> SandboxedCommand:
        for held in self._held:
            held.check_path()
        folder = resolve_folder(self.workspace, cwd)
        mounts = self._list_mounts()
        python = find_python()
        # guard: sandbox-network
        spec = {
            "mechanism": self._mechanism,
            "argv": [find_program(argv[0]), *argv[1:]],
            "cwd": str(folder),
            "workspace": None if self._protected is None else str(self.workspace),
            "mounts": mounts,
            "identities": self._identify_mounts(mounts),
            "network": self._network,
            "hosts": {"allow": self._allow, "private": self._private} if self.hosts else None,
            "limits": asdict(self._limits),
            "boot": ["-I", "-S", "-c", BOOT, find_source_folder()],
        }
        if self._mechanism == "bubblewrap":
            spec["bubblewrap"] = self._make_bubblewrap_words(mounts, str(folder))
        made = (python, "-I", "-S", "-c", BOOT, find_source_folder(), "outer", json.dumps(spec))
        path = f"{Path(python).parent}:{environment.get('PATH', os.defpath)}"
        own = {"HOME": PRIVATE_TMP, "TMPDIR": PRIVATE_TMP, "PATH": path}
        # guard: sandbox-environment
        return SandboxedCommand(argv=made, environment={**environment, **own}, not_run=NOT_RUN)

    def _identify_mounts(self, mounts: Sequence[tuple[str, str, str]]) -> dict[str, Identity | None]:
        """What the launcher must find at the paths of the user's folders, once they are mounted."""
        found = {str(held.path): held.identity for held in self._held}
        if self._protected is None:
            return {**found}
        inside = [
            target
            for kind, _, target in mounts
            if kind == "read" and Path(target).is_relative_to(self.workspace)
        ]
        return {**{target: identify_path(target) for target in inside}, **found}

    def _list_mounts(self) -> list[tuple[str, str, str]]:
        """Kind, source and target of every mount, outer folders first."""
        mounts: list[tuple[str, str, str]] = [("tmp", PRIVATE_TMP, PRIVATE_TMP)]
        for folder in SYSTEM_FOLDERS:
            if Path(folder).is_symlink():
                mounts.append(("link", str(Path(folder).readlink()), folder))
            elif Path(folder).is_dir():
                mounts.append(("read", folder, folder))
        for name in SYSTEM_SETTINGS:
            if Path("/etc", name).exists():
                mounts.append(("read", str(Path("/etc", name).resolve()), f"/etc/{name}"))
        python = [Path(path).resolve() for path in (sys.prefix, sys.base_prefix, PACKAGE)]
        for path in dict.fromkeys((*python, *self._readable)):
            if not path.is_relative_to("/usr"):
                mounts.append(("read", str(path), str(path)))
        mounts += find_python_links([target for kind, _, target in mounts if kind != "tmp"])
        if self._protected is None:
            mounts.append(("folder", PRIVATE_FOLDER, PRIVATE_FOLDER))
        else:
            mounts.append(("write", str(self.workspace), str(self.workspace)))
            # guard: protected-paths-read-only
            mounts += [("read", each, each) for each in self._protected.find()]
        return sorted(mounts, key=lambda mount: mount[2].count("/"))

    def _make_bubblewrap_words(self, mounts: Sequence[tuple[str, str, str]], cwd: str) -> list[str]:
        words = [
            shutil.which("bwrap") or "bwrap", "--unshare-all", "--unshare-user", "--uid", "1000", "--gid", "1000",
            "--cap-drop", "ALL", "--die-with-parent", "--new-session", "--hostname", "sandbox",
        ]  # fmt: skip
        # guard: bubblewrap-network
        if self._network:
            words.append("--share-net")
        for kind, source, target in mounts:
            match kind:
                case "tmp":
                    # guard: bubblewrap-tmp-size
                    words += ["--perms", "1777", "--size", str(self._limits.tmp_bytes), "--tmpfs", target]
                case "folder":
                    words += ["--perms", "1777", "--dir", target]
                case "link":
                    words += ["--symlink", source, target]
                case _:
                    words += ["--bind" if kind == "write" else "--ro-bind", source, target]
        return [*words, "--proc", "/proc", "--dev", "/dev", "--remount-ro", "/", "--chdir", cwd, "--"]


def check_workspace(root: Path, what: str = "the workspace") -> None:
    """Raise `MisuseError` unless this is a folder without the keys of the user."""
    if not root.is_dir():
        raise MisuseError(f"{what} {str(root)!r} is not a folder; create it first")
    home = Path.home().resolve()
    # guard: home-folder-refused
    if home == root or root in home.parents:
        raise MisuseError(
            f"{what} {str(root)!r} holds your home folder, with your keys; choose a project folder"
        )


def check_hosts(allow: Sequence[str], private: Sequence[str], *, network: bool) -> tuple[str, ...]:
    """The hosts that commands can reach; raises `MisuseError` for what is no host."""
    if network and (allow or private):
        raise MisuseError("network=True reaches every host; leave it out if allow= lists the hosts")
    try:
        return HostRules(allow, private).allowed
    except ValueError as error:
        raise MisuseError(str(error)) from None


def resolve_folder(workspace: Path, cwd: str | None) -> Path:
    """The folder to start in; raises `MisuseError` if it is outside of the workspace."""
    folder = workspace if cwd is None or Path(cwd) == workspace else Path(cwd).resolve()
    # guard: folder-in-workspace
    if folder != workspace and workspace not in folder.parents:
        raise MisuseError(f"the folder {str(folder)!r} is outside of the workspace {str(workspace)!r}")
    return folder


def find_sandbox(
    workspace: str | os.PathLike[str] | None = ".",
    *,
    readable: Sequence[str | os.PathLike[str]] = (),
    network: bool = False,
    allow: Sequence[str] = (),
    allow_private: Sequence[str] = (),
    limits: SandboxLimits | None = None,
) -> Sandbox:
    """The first sandbox that works here; raises `MisuseError`, with what to do, if there is none."""
    problems = []
    for mechanism in MECHANISMS:
        box = LocalSandbox(
            workspace,
            mechanism=mechanism,
            readable=readable,
            network=network,
            allow=allow,
            allow_private=allow_private,
            limits=limits,
        )
        problem = find_problem(mechanism)
        # guard: sandbox-mechanism-works
        if not problem:
            return box
        problems.append(f"{mechanism}: {problem}")
    raise MisuseError(
        f"no sandbox works here ({'; '.join(problems)}). Install bubblewrap (apt-get install bubblewrap), or run"
        " without a sandbox: sandbox=None, or --no-sandbox on the command line"
    )


def find_problem(mechanism: Mechanism) -> str:
    """Empty if the mechanism works on this machine; otherwise why not.  Tried once per process."""
    if mechanism not in _problems:
        _problems[mechanism] = _probe_mechanism(mechanism)
    return _problems[mechanism]


_problems: dict[str, str] = {}


def _probe_mechanism(mechanism: Mechanism) -> str:
    if not sys.platform.startswith("linux"):
        return "needs Linux"
    if mechanism == "bubblewrap" and shutil.which("bwrap") is None:
        return "bwrap is not installed"
    probe = LocalSandbox(None, mechanism=mechanism)
    made = probe.wrap(["/bin/true"], cwd=None, environment={})
    try:
        done = subprocess.run(  # noqa: S603 - our own launcher
            made.argv,
            env=dict(made.environment),
            capture_output=True,
            timeout=PROBE_SECONDS,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return (
        ""
        if done.returncode == 0
        else done.stderr.decode(errors="replace").strip() or f"exit code {done.returncode}"
    )


def find_source_folder() -> str:
    """The folder that Python imports this package from."""
    return str(PACKAGE.parent)


def find_python() -> str:
    """The path of the running Python, as it is inside of a sandbox too: no `..`, and no link above the last name.

    The last name may be a link: that is how a virtual environment is found.  An interpreter outside of its own folders,
    such as a link in ~/bin, is named by what it leads to.
    """
    if not sys.executable:
        raise MisuseError(
            "this Python does not know its own program (sys.executable is empty); no process can be made"
        )
    given = Path(sys.executable).parent.resolve() / Path(sys.executable).name
    homes = [Path(path).resolve() for path in (sys.prefix, sys.base_prefix)]
    return str(given if any(given.is_relative_to(home) for home in homes) else given.resolve())


def find_program(given: str) -> str:
    """A program's path without `..`, whose folders may not exist inside of a sandbox; a name is looked up there."""
    if given == sys.executable:
        return find_python()
    path = Path(given)
    return str(path.parent.resolve() / path.name) if path.is_absolute() and ".." in path.parts else given


def find_python_links(shown: Sequence[str]) -> list[tuple[str, str, str]]:
    """The links on the way to the Python program that are in none of the folders shown, as mounts."""
    found: list[tuple[str, str, str]] = []

    def add(path: str) -> None:
        is_shown = any(Path(path).is_relative_to(each) for each in (*shown, *(link for _, _, link in found)))
        if not is_shown and os.path.realpath(path) != path:
            found.append(("link", os.path.realpath(path), path))

    for prefix in (sys.prefix, sys.base_prefix):
        add(os.path.normpath(prefix))
    path = Path(find_python())
    for _ in range(LINKS_MAX):
        if not path.is_symlink():
            break
        path = Path(os.path.normpath(path.parent / path.readlink()))
        add(str(path))
    return found
