"""No attempt to leave a sandbox works; without a sandbox, every one of them does."""

import asyncio
import ctypes
import fcntl
import os
import secrets
import select
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import pytest

import bridle
from bridle.ports.run_context import RunContext
from bridle.ports.sandbox import SandboxLimits
from bridle.sandbox import DockerSandbox
from bridle.sandbox.launcher.groups import make_group
from bridle.sandbox.local import MECHANISMS, LocalSandbox, find_problem
from bridle.toolkit import python, shell
from docs.guard_table import BOUNDARIES
from tests.sandbox.attempts import ATTEMPTS

CONTEXT = RunContext(context=None)
LIMITS = SandboxLimits(memory_bytes=200_000_000, processes=60, file_bytes=20_000_000, tmp_bytes=50_000_000)
TOKEN = f"token-{secrets.token_hex(8)}"
IMAGE = os.environ.get("BRIDLE_DOCKER_IMAGE", "")
"""An image with the programs of the attempts (test_docker.py)."""
DOCKER_ALLOWS = (
    "read the settings of the kernel", "see the interfaces of the machine", "talk to the host of a virtual machine",
    "use io_uring", "become root", "run a set-user-ID program",
)  # fmt: skip
"""Docker 20.10 with its own filter, of a harness that runs as root; docs/sandbox.md lists them."""
NEEDS_GROUPS = "use more memory than allowed in several processes"
NAMES = [attempt.name for attempt in ATTEMPTS]
GUARDING = {
    test.partition("::")[2] for boundary in BOUNDARIES for guard in boundary.guards for test in guard.tests
}
"""Tests of the guard table, which `make test` runs whatever they cost."""
VICTIM = """
import os, sys, time
descriptor = os.open("secret.txt", os.O_RDONLY)
sys.stdout.write(f"{descriptor}\\n")
sys.stdout.flush()
sys.stdin.read()
"""


def serve(listeners, stop):
    """Answer every connection and datagram with the token until something arrives at `stop`."""
    while True:
        for ready in select.select([*listeners, stop], [], [])[0]:
            if ready is stop:
                return
            if ready.type == socket.SOCK_DGRAM:
                ready.sendto(TOKEN.encode(), ready.recvfrom(10)[1])
            else:
                with ready.accept()[0] as client:
                    client.sendall(TOKEN.encode())


def listen(family, address, kind=socket.SOCK_STREAM):
    listener = socket.socket(family, kind)
    listener.bind(address)
    if kind == socket.SOCK_STREAM:
        listener.listen()
    return listener


@pytest.fixture(scope="module")
def servers(tmp_path_factory):
    """Servers of the machine that answer with the token, and shared memory that holds it."""
    path = f"{tmp_path_factory.mktemp('s')}/s"
    ip, ip6 = listen(socket.AF_INET, ("127.0.0.1", 0)), listen(socket.AF_INET6, ("::1", 0))
    abstract, named = listen(socket.AF_UNIX, f"\0bridle-{TOKEN[-8:]}"), listen(socket.AF_UNIX, path)
    other = listen(socket.AF_INET, ("127.0.0.2", 0))
    udp = listen(socket.AF_INET, ("127.0.0.1", 0), socket.SOCK_DGRAM)
    stop, told = socket.socketpair()
    thread = threading.Thread(target=serve, args=([ip, ip6, abstract, named, other, udp], stop))
    thread.start()
    libc = ctypes.CDLL(None)
    libc.shmat.restype = ctypes.c_void_p
    key = secrets.randbelow(2**30)
    segment = libc.shmget(key, 4096, 0o1600)
    ctypes.memmove(libc.shmat(segment, None, 0), TOKEN.encode(), len(TOKEN))
    shared = Path("/dev/shm", f"bridle-{TOKEN[-8:]}")
    shared.write_text(TOKEN)
    yield {
        "port": ip.getsockname()[1],
        "other_port": other.getsockname()[1],
        "port6": ip6.getsockname()[1],
        "udp": udp.getsockname()[1],
        "abstract": f"bridle-{TOKEN[-8:]}",
        "socket": path,
        "segment": key,
        "shared": shared.name,
    }
    told.send(b"x")
    thread.join()
    for each in (ip, ip6, abstract, named, other, udp, stop, told):
        each.close()
    libc.shmctl(segment, 0, None)
    shared.unlink()


@pytest.fixture
def outside():
    """A folder outside of /tmp with a secret, a log and a file that must not change."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        folder = Path(name)
        for file in ("secret.txt", "canary.txt", "log.db"):
            (folder / file).write_text(f"{TOKEN}\n")
        (folder / "skills" / "zebra").mkdir(parents=True)
        (folder / "skills" / "zebra" / "SKILL.md").write_text("Stripes first.")
        yield folder


@pytest.fixture
def victim(outside):
    """A process of the same user, with the token in its environment and its command line."""
    with subprocess.Popen(
        [sys.executable, "-c", VICTIM, TOKEN], cwd=outside, env={"TOKEN_VARIABLE": TOKEN},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        yield process.pid, process.stdout.readline().strip()
        process.kill()


@pytest.fixture
def workspace(tmp_path):
    folder = tmp_path / "work"
    folder.mkdir()
    for each in (folder, folder / "deep" / "below"):
        subprocess.run(["git", "init", "-q", each], check=True)
    (folder / "deep" / "bridle.toml").write_text('model = "sim:"\n')
    (folder / "lock").touch()
    return folder


def read_all(folder):
    return {str(path): path.read_text() for path in sorted(folder.rglob("*")) if path.is_file()}


def limits_all_memory_together() -> bool:
    group = make_group(LIMITS.memory_bytes, LIMITS.processes)
    group.remove()
    return group.limits_memory


def list_cases():
    """Each attempt with each mechanism. `make test` tries all with the first one, and with others what the guard table names."""
    cases = []
    for mechanism in [*MECHANISMS, *(["docker"] if IMAGE else [])]:
        for attempt in ATTEMPTS:
            name = f"{attempt.name}-{mechanism}"
            is_story = mechanism == MECHANISMS[0] or f"test_nothing_leaves_a_sandbox[{name}]" in GUARDING
            marks = [] if is_story else [pytest.mark.full]
            cases.append(pytest.param(attempt, mechanism, id=name, marks=marks))
    return cases


def try_to_escape(attempt, sandbox, workspace, outside, victim, servers) -> bool:
    """True if the attempt works."""
    values = {
        **servers, "outside": outside, "pid": victim[0], "descriptor": victim[1], "token": TOKEN,
        "skills": outside / "skills", "hostname": socket.gethostname(), "home": Path.home(), "python": sys.prefix, "harness": Path(bridle.__file__).parent,
    }  # fmt: skip
    program = attempt.program
    for name, value in values.items():
        program = program.replace(f"{{{{{name}}}}}", str(value))
    tool = (shell if attempt.tool == "shell" else python)(workspace, sandbox=sandbox, timeout=60)
    argument = "command" if attempt.tool == "shell" else "code"
    before = read_all(outside)
    (part,) = asyncio.run(tool.run({argument: program}, CONTEXT))
    changed = read_all(outside) != before
    with (workspace / "lock").open() as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return changed or "ESCAPED" in part.text or TOKEN in part.text.replace(program, "")


@pytest.mark.parametrize(("attempt", "mechanism"), list_cases())
def test_nothing_leaves_a_sandbox(attempt, mechanism, workspace, outside, victim, servers):
    if mechanism == "docker" and attempt.name.removesuffix(" beside the proxy") in DOCKER_ALLOWS:
        pytest.skip("docker allows it")
    elif mechanism == "docker":
        sandbox: Any = DockerSandbox(IMAGE, workspace, limits=LIMITS)
    elif problem := find_problem(mechanism):
        pytest.skip(f"{mechanism}: {problem}")
    elif attempt.name == NEEDS_GROUPS and not limits_all_memory_together():
        pytest.skip("memory is limited per process here: no control group can be made")
    else:
        hosts = ["127.0.0.2", f"127.0.0.2:{servers['port']}"] if attempt.hosts else []
        sandbox = LocalSandbox(
            workspace,
            mechanism=mechanism,
            limits=LIMITS,
            readable=[outside / "skills"],
            allow_private=hosts,
        )
    assert not try_to_escape(attempt, sandbox, workspace, outside, victim, servers)


worked: set[str] = set()


@pytest.mark.full
@pytest.mark.skipif(os.getuid() != 0, reason="as another user, some of these need rights that the user lacks")
@pytest.mark.parametrize("attempt", ATTEMPTS, ids=NAMES)
def test_an_attempt_works_without_a_sandbox(attempt, workspace, outside, victim, servers):
    if not try_to_escape(attempt, None, workspace, outside, victim, servers):
        pytest.skip("this machine refuses it to everyone")
    worked.add(attempt.name)


@pytest.mark.full
def test_sixty_attempts_work_without_a_sandbox(request):
    """The list proves something: what the sandboxes refuse is possible on this machine."""
    assert len(set(NAMES)) == len(NAMES)
    if os.getuid() == 0 and not request.config.option.keyword:
        assert len(worked) >= 60, sorted({*NAMES} - worked)
