"""The agent of a trial."""

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from bridle import Agent
from bridle.evals import TrialSetup
from shop_agents import make_shop


def make_trial_agent(setup: TrialSetup) -> Agent[Any, Any]:
    return make_shop(
        setup.models[0], store=setup.store, clock=setup.clock, pool=setup.pool, approver=setup.approver
    )
