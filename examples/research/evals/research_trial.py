"""The agent of a trial, and a conversation over two sessions of one user."""

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from bridle import Agent, Result
from bridle.evals import TrialSetup
from research import make_agent


def make_trial_agent(setup: TrialSetup) -> Agent[Any, Any]:
    return make_agent(setup.models[0], store=setup.store, clock=setup.clock, pool=setup.pool)


async def drive_two_sessions(setup: TrialSetup, agent: Agent[Any, Any]) -> list[Result[Any]]:
    """Give each prompt in a session of its own, for a user that only this trial has."""
    names = [f"{setup.session}-{number}" for number, _ in enumerate(setup.task.prompts)]
    return [
        await agent.run(prompt, name, tenant=setup.session)
        for prompt, name in zip(setup.task.prompts, names, strict=True)
    ]
