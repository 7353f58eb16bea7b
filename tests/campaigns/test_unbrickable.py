"""Kill, cancel, corrupt, overfeed or switch a session at any point: the next turn works.

Every seed is one life of a session (lives.py). After each life the session is prompted once more on several models, with
nothing going wrong: that turn must succeed, no request may have been refused, and nothing may have happened twice.

BRIDLE_CAMPAIGN=100 lives 20,000 lives; BRIDLE_SEED moves the seeds. A failure names its seed, and `live(seed)` is
the bug report. `python -m tests.campaigns.run_campaign unbrickable COUNT [FROM]` lives that many and prints what was drawn.
"""

import asyncio
import sys

import pytest

from bridle import Agent
from bridle.run.agent_settings import AgentOptions
from bridle.sim.faults.catalogue import FAULTS
from bridle.values.errors import MisuseError
from tests.campaigns.checked_lives import TOO_LONG, live
from tests.campaigns.lives import DRAWN, FAULT_RATES, MODELS, NOT_DRAWN, Life
from tests.suite.campaign import list_seeds

BATCHES = 20
AGENTS = 200
SEEDS = list_seeds(200, least=BATCHES)


async def live_checked(seed):
    try:
        return await live(seed)
    except MisuseError as error:
        raise AssertionError(f"seed {seed}: {error}") from error


@pytest.mark.slow
@pytest.mark.refusals(*TOO_LONG)
@pytest.mark.parametrize("batch", range(BATCHES))
def test_no_life_bricks_a_session(batch):
    async def main():
        for seed in SEEDS[batch::BATCHES]:
            await live_checked(seed)

    asyncio.run(main())


@pytest.fixture(scope="module")
def drawn_options():
    """Everything that is drawn to make the agents of many lives."""
    DRAWN.clear()
    for seed in range(AGENTS):
        life = Life(seed)
        life.agent(life.draws.pick("model", MODELS))
    return {option for option, _ in DRAWN}


def test_every_option_of_an_agent_is_in_some_life(drawn_options):
    """A new option must be drawn in lives.py, or be listed there with the reason why it is not."""
    options = {*Agent.__init__.__annotations__, *AgentOptions.__annotations__} - {"options", "return"}
    assert options - drawn_options - {*NOT_DRAWN} == set()
    assert {*NOT_DRAWN} <= options, "a reason for an option that no longer exists"


def test_rates_and_output_functions_are_in_some_life(drawn_options):
    assert {"rate of look", "rate of pay", "output function"} <= drawn_options


def test_every_fault_is_in_some_life():
    assert {*FAULT_RATES} == {*FAULTS}


def report():
    """What was drawn, by option."""
    for option in sorted({option for option, _ in DRAWN}):
        choices = {label: count for (name, label), count in DRAWN.items() if name == option}
        shown = ", ".join(f"{label or '(empty)'} {count}" for label, count in sorted(choices.items()))
        print(f"{option}: {shown}")


def main(count, first):
    failed = 0
    for seed in range(first, first + count):
        try:
            asyncio.run(live_checked(seed))
        except Exception as error:
            failed += 1
            print(f"{type(error).__name__}: {str(error)[:600]}", flush=True)
    report()
    print(f"{count} lives from seed {first}: {failed} failed")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0)
