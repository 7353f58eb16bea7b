"""Without recorded traffic, as in a fresh clone, decoders are fuzzed and compared on the simulator's replies, and the run says so."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.parametrize("file", ["tests/campaigns/test_fuzz.py", "tests/wire/test_bedrock_wire.py"])
def test_the_tests_run_on_replies_of_the_simulator_and_say_so(file):
    command = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", file]
    environment = {**os.environ, "BRIDLE_WIRE": "/nonexistent"}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=600
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    assert (
        "There is no recorded traffic of anthropic, openai-responses, openai-chat, gemini, bedrock-converse in"
        in done.stdout
    )
    assert "with replies of the simulator instead" in done.stdout
    assert "SKIPPED" not in done.stdout and "100%" in done.stdout
