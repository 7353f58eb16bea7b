"""Repeats a test of a campaign with the seed for which it failed once."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def repeat_test(test: str, *, seed: int, one_seed: bool = False, campaign: float | None = None) -> None:
    """Fail with the output of the test if it fails again."""
    environment = {**os.environ, "BRIDLE_SEED": str(seed)}
    if one_seed:
        environment["BRIDLE_ONE_SEED"] = "1"
    if campaign is not None:
        environment["BRIDLE_CAMPAIGN"] = str(campaign)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", test]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
