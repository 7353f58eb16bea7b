"""Late steps cost no more than early ones, in function calls and in instructions of the interpreter.

Both are counted by `bench/steps.py`, in a program of its own without the guard: the counts are the same on every run and
every machine, which seconds are not.
"""

import json
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[2] / "bench" / "steps.py"
STEPS, STEPS_MORE = 24, 96
KINDS = [
    f"{family}/{way}"
    for family in ("anthropic", "openai_responses", "openai_chat", "gemini", "bedrock_converse")
    for way in ("whole", "streamed")
]


@cache
def count_instructions(steps: int, *options: str) -> dict[str, dict[str, int]]:
    command = [sys.executable, "-I", str(BENCH), "--json", "--steps", str(steps), *options]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_late_step_takes_no_more_calls_than_an_early_one(kind):
    early, late = count_instructions(STEPS)[kind], count_instructions(STEPS_MORE)[kind]
    assert late["all"] <= early["all"] * 1.005


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.endswith("/whole")])
def test_a_late_step_takes_no_more_instructions_than_an_early_one(kind):
    """A search of all messages is one call, and does not show among them."""
    found = count_instructions(120, "--growth", kind)[kind]
    assert found["late"] <= found["early"] * 1.025
