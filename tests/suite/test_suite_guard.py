"""The guard of the suite finds violations, and every test that makes its own bytes is listed by kind."""

import os
import subprocess
import sys
from pathlib import Path
from zlib import crc32

import pytest

from bridle.providers.catalogue import known_models
from bridle.run.model_connection import find_model_by_name
from tests.suite import guard, listening

HERE = Path(__file__).parent
TESTS = HERE.parent
PLANTED = '''
import subprocess
import sys

import pytest
from msgspec.structs import replace

from bridle import Agent, Text
from bridle.run.model_connection import ModelConnection
from bridle.sim.simulator import Simulator
from bridle.testing import scripted
from bridle.testing.scripted_model import text_reply
from bridle.transports.inprocess import InProcessTransport
from tests.sim.sim_families import question, send_request

TOO_MUCH = """
from bridle.sim.simulator import Simulator
from tests.sim.sim_families import question, send_request
send_request(Simulator(), question("anthropic", "hi", max_tokens=10**9))
"""

SENT = """
import json, os, signal, sys
body = {"model": "claude-sonnet-5-5", "max_tokens": 9, "messages": [{"role": "user", "content": "?"}]}
sys.audit("bridle.asked", "", "/v1/messages", json.dumps(body).encode())
"""


def test_sent_by_a_program():
    subprocess.run([sys.executable, "-c", SENT], check=True)


def test_killed_before_it_was_heard():
    subprocess.run([sys.executable, "-c", SENT + "os.kill(os.getpid(), signal.SIGKILL)"], check=False)


def test_fine():
    assert Agent(scripted("yes")).run_sync("?").text == "yes"


def test_refused():
    exec(TOO_MUCH)


def test_refused_in_a_program():
    subprocess.run([sys.executable, "-c", TOO_MUCH], check=True)


@pytest.mark.refusals
def test_refused_and_meant():
    exec(TOO_MUCH)


@pytest.mark.refusals("max-tokens-limit")
def test_refused_by_another_rule():
    send_request(Simulator(), question("anthropic", " "))


@pytest.mark.refusals
def test_meant_in_vain():
    assert Agent(scripted("yes")).run_sync("?").text == "yes"


def answered_by(answer):
    line = scripted("yes")
    Agent(ModelConnection(model=line.model, codec=line.codec, transport=InProcessTransport(answer(line)))).run_sync("?")


def test_lenient():
    answered_by(lambda line: Simulator(strict=False).answer)


def test_elsewhere():
    def elsewhere(line):
        async def answer(outgoing):
            return line.codec.speak(text_reply("yes"), stream=False)

        return answer

    answered_by(elsewhere)


class Turning:
    """A codec that has every request begin with other words than the last."""

    def __init__(self, codec):
        self.codec, self.asked = codec, 0

    def __getattr__(self, name):
        return getattr(self.codec, name)

    def encode(self, request, kept=None):
        self.asked += 1
        return self.codec.encode(replace(request, system=(Text(text=f"{self.asked}"),)), kept)


def test_moved():
    line = scripted("yes", "yes")
    agent = Agent(ModelConnection(model=line.model, codec=Turning(line.codec), transport=line.transport))
    agent.run_sync("?", session="s")
    agent.run_sync("?", session="s")


def test_moved_and_told():
    line = scripted("yes", "yes")
    first = Agent(line, instructions="Be quick.")
    first.run_sync("?", session="s")
    Agent(line, instructions="Be kind.", store=first.store).run_sync("?", session="s")
'''
OUTCOMES = {
    "test_fine": "",
    "test_sent_by_a_program": "no strict simulator heard",
    "test_killed_before_it_was_heard": "",
    "test_refused": "anthropic max-tokens-limit: max_tokens: 1000000000",
    "test_refused_in_a_program": "anthropic max-tokens-limit: max_tokens: 1000000000",
    "test_refused_and_meant": "",
    "test_refused_by_another_rule": "the simulated provider refused 1 requests",
    "test_meant_in_vain": "nothing was refused",
    "test_lenient": "no strict simulator heard",
    "test_elsewhere": "no strict simulator heard",
    "test_moved": "1 prefixes moved and no event says so",
    "test_moved_and_told": "",
}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The planted tests, run by a pytest of their own."""
    place = tmp_path_factory.mktemp("planted")
    (place / "test_planted.py").write_text(PLANTED)
    paths = (str(HERE), os.environ.get("PYTHONPATH", ""))
    alone = {name: value for name, value in os.environ.items() if name != listening.FILE}
    plugins = ("-p", "bridle.testing.pytest_plugin", "-p", "tests.suite.guard")
    return subprocess.run(
        [sys.executable, "-m", "pytest", *plugins, "-rA", "test_planted.py"],
        cwd=place,
        env={**alone, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    ).stdout


@pytest.mark.parametrize("name", OUTCOMES)
def test_what_is_planted_is_found(run, name):
    wanted = OUTCOMES[name]
    assert f"{'FAILED' if wanted else 'PASSED'} test_planted.py::{name}" in run, run
    if wanted:
        told = run.partition(f"_ {name} _")[2].partition("\n____")[0]
        assert wanted in told, told


def test_the_totals_are_told(run):
    assert "1 refusals asked for, 3 unasked" in run, run
    assert "2 prefixes compared, 1 moves told, 1 untold" in run, run


def test_scripts_are_played_on_every_wire():
    files = [path.name for path in TESTS.rglob("test_*.py") if "scripted(" in path.read_text()]
    assert {guard.WIRES[crc32(file.encode()) % len(guard.WIRES)] for file in files} == set(guard.WIRES)
    families = {find_model_by_name(model).endpoint.family for model in guard.WIRES}
    assert families == {model.endpoint.family for model in known_models({})}


def test_whoever_sends_elsewhere_is_there():
    for place in guard.ELSEWHERE:
        file, _, function = place.partition("::")
        assert f"\ndef {function}(" in next(TESTS.rglob(file)).read_text(), place
