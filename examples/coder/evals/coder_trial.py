"""The agent of a trial, and the check that the tests of its folder pass."""

import subprocess
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from bridle import Agent
from bridle.evals import Trial, TrialSetup
from coder import make_agent


def make_trial_agent(setup: TrialSetup) -> Agent[Any, Any]:
    return make_agent(setup.models[0], setup.folder, asks=False, store=setup.store, pool=setup.pool)


def check_tests_pass(trial: Trial) -> str | bool:
    command = [sys.executable, "-B", "-m", "unittest", "-q"]
    done = subprocess.run(command, cwd=trial.folder, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode == 0 or done.stderr[-300:]
