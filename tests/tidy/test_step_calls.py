"""The function calls per step stay below recorded limits, and late steps cost no more than early ones.

Calls are counted by `bench/steps.py`, in a program of its own without the guard: the count is the same on every
run and every machine, which seconds are not.  Who makes a step cheaper lowers the figure; who has a reason to
make it dearer raises it, in the same commit.
"""

import json
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[2] / "bench" / "steps.py"
COUNTED_BY = (3, 11)
"""All calls are recorded for this Python alone: others count comprehensions and asyncio's own calls differently."""
TOLERANCE = 1.02
STEPS, STEPS_MORE = 24, 96
CALLS = {  # a step: all calls, those of our own functions
    "anthropic/whole": (791, 391),
    "anthropic/streamed": (2679, 935),
    "openai_responses/whole": (947, 442),
    "openai_responses/streamed": (3121, 1076),
    "openai_chat/whole": (939, 463),
    "openai_chat/whole, with a key": (950, 470),
    "openai_chat/streamed": (2529, 964),
    "openai_chat/streamed, with a key": (2846, 1123),
    "gemini/whole": (1060, 525),
    "gemini/streamed": (1610, 700),
    "bedrock_converse/whole": (1095, 535),
    "bedrock_converse/streamed": (2762, 1024),
}


@cache
def counted(steps: int, *options: str) -> dict[str, dict[str, int]]:
    command = [sys.executable, "-I", str(BENCH), "--json", "--steps", str(steps), *options]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


@pytest.mark.slow
def test_every_kind_of_step_is_recorded():
    assert counted(STEPS).keys() == CALLS.keys()


@pytest.mark.parametrize("kind", CALLS)
def test_a_step_takes_no_more_calls_than_recorded(kind):
    found, (all_calls, own) = counted(STEPS)[kind], CALLS[kind]
    assert found["own"] <= own * TOLERANCE
    if sys.version_info[:2] == COUNTED_BY:
        assert found["all"] <= all_calls * TOLERANCE


@pytest.mark.slow
@pytest.mark.parametrize("kind", CALLS)
def test_a_late_step_takes_no_more_calls_than_an_early_one(kind):
    early, late = counted(STEPS)[kind], counted(STEPS_MORE)[kind]
    assert late["all"] <= early["all"] * 1.005


@pytest.mark.parametrize("kind", [kind for kind in CALLS if kind.endswith("/whole")])
def test_a_late_step_takes_no_more_instructions_than_an_early_one(kind):
    """A search of all messages is one call, and does not show among them."""
    found = counted(120, "--growth", kind)[kind]
    assert found["late"] <= found["early"] * 1.025
