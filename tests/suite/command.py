"""The command `bridle` in a process of its own, with no terminal on any side."""

import os
import subprocess
import sys
from typing import NamedTuple

from patience import PATIENCE_SECONDS


class Ended(NamedTuple):
    code: int
    out: str
    err: str


def bridle(*words, cwd=None, **variables) -> Ended:
    done = subprocess.run(
        [sys.executable, "-m", "bridle.cli.main", *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env={**os.environ, **variables},
        cwd=cwd,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    return Ended(done.returncode, done.stdout, done.stderr)
