"""Starts the programs of the examples as a person does, in an empty folder."""

import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

from tests.suite.command import bridle
from tests.suite.patience import PATIENCE_SECONDS

EXAMPLES = Path(__file__).parents[2] / "examples"


def surroundings(folder, **more):
    """Without the keys and the model of the person who runs the tests."""
    kept = {name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")}
    kept.pop("BRIDLE_MODEL", None)
    return {**kept, "HOME": str(folder.parent / "home"), "PYTHONIOENCODING": "utf-8", **more}


def run_program(folder, *words, code=0, text="", **more):
    """Run a program of the examples, or `bridle`, to its end; returns its standard output."""
    if words[0] == "bridle":
        done = bridle(*words[1:], cwd=folder, text=text, environment=surroundings(folder, **more))
        assert done.code == code, f"exit code {done.code}\n{done.out}{done.err}"
        assert "Traceback" not in done.err
        return done.out
    completed = subprocess.run(
        [sys.executable, EXAMPLES / words[0], *words[1:]],
        cwd=folder, capture_output=True, text=True, env=surroundings(folder, **more), input=text,
        timeout=3 * PATIENCE_SECONDS,
    )  # fmt: skip
    assert completed.returncode == code, (
        f"exit code {completed.returncode}\n{completed.stdout}{completed.stderr}"
    )
    assert "Traceback" not in completed.stderr
    return completed.stdout


@contextmanager
def start_program(folder, *words, **more):
    """Start a program of the examples in the background; it is killed at the end."""
    command = [sys.executable, str(EXAMPLES / words[0]), *words[1:]]
    with subprocess.Popen(
        command,
        cwd=folder,
        env=surroundings(folder, **more),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()
