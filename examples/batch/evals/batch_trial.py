"""The agent of a trial."""

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from bridle import Agent
from bridle.evals import TrialSetup
from classify import make_agent


def make_trial_agent(setup: TrialSetup) -> Agent[Any, Any]:
    return make_agent(setup.models[0], store=setup.store, clock=setup.clock, pool=setup.pool)
