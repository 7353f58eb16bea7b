"""The attempts of another user than root, who can make no control groups: in a process of that user.

Needs root, to become another user, and a Python of this version that every user may run.  BRIDLE_CAMPAIGN above 1 tries all
attempts instead of some.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.suite.campaign import SCALE

ROOT = Path(__file__).parents[2]
NOBODY = 65534
SOME = "process or proxy or link or memory or root"
RACE = """
import asyncio, fcntl, sys
from bridle.tools import run_process
from bridle.sandbox.local import LocalSandbox, find_problem
if problem := find_problem("bubblewrap"):
    sys.exit(f"bubblewrap: {problem}")
box = LocalSandbox(".", mechanism="bubblewrap")
script = "for i in 1 2 3 4 5 6 7 8 9 10; do setsid sleep 30 & done; setsid flock lock sleep 30 & while flock -n lock true; do :; done"
for _ in range(8):
    with open("lock", "w") as lock:
        asyncio.run(run_process(["sh", "-c", script], sandbox=box))
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
"""


def find_python() -> str:
    """A Python of this version that another user can start; empty if there is none."""
    names = (
        sys.executable,
        shutil.which(f"python3.{sys.version_info.minor}", path="/usr/bin:/usr/local/bin"),
    )
    for name in names:
        try:
            words = [name or "", "-c", "import ssl"]
            if subprocess.run(words, user=NOBODY, check=False, capture_output=True).returncode == 0:
                return name or ""
        except OSError:
            continue  # this user may not read it
    return ""


@pytest.fixture
def run_as_nobody():
    if os.getuid() != 0:
        pytest.skip("only root can become another user; the other files run as this one")
    found = [part for part in (ROOT, *map(Path, sys.path)) if part.name == "site-packages" or part == ROOT]
    python = find_python()
    if (
        not python
        or subprocess.run(["test", "-r", ROOT / "pyproject.toml"], user=NOBODY, check=False).returncode
    ):
        pytest.skip("no Python, or not this folder, can be read by another user")
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        os.chown(folder, NOBODY, NOBODY)
        paths = [str(ROOT / "src"), *(str(part) for part in found if part != ROOT)]
        environment = {
            "HOME": folder,
            "PATH": os.defpath,
            "PYTHONPATH": ":".join(paths),
            "PYTHONDONTWRITEBYTECODE": "1",
            "BRIDLE_CAMPAIGN": f"{SCALE:g}",
        }
        work = Path(folder, "work")
        work.mkdir()
        os.chown(work, NOBODY, NOBODY)

        def run(*words, cwd=work):
            return subprocess.run(
                [python, *words], user=NOBODY, group=NOBODY, extra_groups=[], cwd=cwd, env=environment,
                capture_output=True, text=True, check=False, timeout=900,
            )  # fmt: skip

        yield run


def test_nothing_is_left_when_a_command_ends(run_as_nobody):
    done = run_as_nobody("-c", RACE)
    if done.stderr.startswith("bubblewrap:"):
        pytest.skip(done.stderr)
    assert done.returncode == 0, done.stderr


@pytest.mark.full
@pytest.mark.slow
def test_nothing_leaves_a_sandbox(run_as_nobody):
    chosen = [] if SCALE > 1 else ["-k", SOME]
    words = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/sandbox/test_escapes.py", *chosen]
    done = run_as_nobody(*words, cwd=ROOT)
    assert done.returncode == 0, done.stdout[-3000:]
    assert " passed" in done.stdout or "100%" in done.stdout
