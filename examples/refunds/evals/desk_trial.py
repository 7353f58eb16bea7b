"""The agent of a trial. The bank and the warehouse are files of the trial's folder."""

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from bridle import Agent, Result
from bridle.evals import TrialSetup
from desk import make_agent, work_on


def make_trial_agent(setup: TrialSetup) -> Agent[Any, Any]:
    return make_agent(
        setup.models[0], store=setup.store, clock=setup.clock, pool=setup.pool,
        approver=setup.approver, hooks=setup.hooks,
    )  # fmt: skip


async def drive_ticket(setup: TrialSetup, agent: Agent[Any, Any]) -> Result[Any]:
    result, _ = await work_on(agent, setup.session, setup.task.prompts[0], setup.folder)
    return result
