"""Every model call is timed: to the first byte, to the first word, to the end."""

import asyncio
import json

import pytest
from msgspec.structs import replace

from bridle import Agent
from bridle.cli.main import main
from bridle.ports.transport import ConnectionCut, SilentPause
from bridle.providers import load_codec
from bridle.run.model_connection import ModelConnection, find_model_by_name
from bridle.sim.simulator import Simulator
from bridle.stores.memory import MemoryStore
from bridle.testing import FakeClock
from bridle.transports.inprocess import InProcessTransport
from bridle.values import events as e
from bridle.values.errors import Failure
from tests.suite.wire_models import MODELS


class Slow:
    """The simulator, slowly: its answer begins after two seconds, and before each piece it is silent for one."""

    def __init__(self, model, clock, *, broken=0):
        self.model, self.clock, self.broken = find_model_by_name(model), clock, broken
        self.simulator = Simulator(clock=clock)

    def agent(self, store):
        transport = InProcessTransport(self.answer, clock=self.clock)
        line = ModelConnection(
            model=self.model, codec=load_codec(self.model.endpoint.family), transport=transport
        )
        return Agent(line, store=store, clock=self.clock)

    async def answer(self, outgoing):
        told = await self.simulator.answer(outgoing)
        beats = [each for beat in told.steps for each in (SilentPause(seconds=1.0), beat)]
        if self.broken:
            self.broken -= 1
            beats = [beats[0], beats[1][:20], ConnectionCut()]
        return replace(told, steps=tuple(beats), delay_seconds=2.0)


async def run_agent(agent, store, *, stream):
    if stream:
        async for _ in agent.stream("!say one two three", session="s"):
            pass
    else:
        await agent.run("!say one two three", session="s")
    return [record.event for record in await store.read("s")]


def time_run(model, *, stream, broken=0):
    store, clock = MemoryStore(), FakeClock()
    events = asyncio.run(run_agent(Slow(model, clock, broken=broken).agent(store), store, stream=stream))
    return [event for event in events if isinstance(event, e.ModelReplied | e.ModelFailed)]


@pytest.mark.parametrize("model", MODELS)
def test_a_streamed_reply_is_timed_at_three_points(model):
    (reply,) = time_run(model, stream=True)
    latency = reply.latency
    assert latency.first_byte_seconds == 2.0
    assert latency.first_byte_seconds < latency.first_token_seconds <= latency.total_seconds
    assert latency.total_seconds >= 3.0


@pytest.mark.parametrize("model", MODELS)
def test_the_first_word_of_a_whole_reply_comes_with_its_last(model):
    (reply,) = time_run(model, stream=False)
    assert reply.latency.first_byte_seconds == 2.0
    assert reply.latency.first_token_seconds == reply.latency.total_seconds == 3.0


@pytest.mark.parametrize("stream", [True, False])
def test_a_failed_attempt_is_timed_as_well(stream):
    failed, replied = time_run(MODELS[0], stream=stream, broken=1)
    assert isinstance(failed, e.ModelFailed)
    assert failed.latency.first_byte_seconds == 2.0
    assert failed.latency.total_seconds >= 2.0
    assert replied.latency.first_byte_seconds == 2.0


def test_a_cancelled_call_is_timed():
    async def main():
        store, clock = MemoryStore(), FakeClock()
        stream = Slow(MODELS[0], clock).agent(store).stream("!say one two three", session="s")
        async for event in stream:
            if event.text:
                stream.cancel()
        return [record.event for record in await store.read("s")][-1]

    ended = asyncio.run(main())
    assert (ended.stop, ended.latency.first_byte_seconds) == ("cancelled", 2.0)
    assert ended.latency.first_token_seconds is not None


def test_what_was_never_sent_has_no_time():
    never = e.ModelFailed(failure=Failure(kind="unavailable", message="at rest"))
    assert never.latency is None


def test_the_command_shows_it(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("BRIDLE_STORE", str(tmp_path / "log.db"))
    assert main(["run", "!say hi", "--json"]) == 0
    session = json.loads(capsys.readouterr().out)["session"]
    assert main(["show", session]) == 0
    shown = capsys.readouterr().out
    assert "first byte after" in shown
    assert "first token after" in shown
    assert main(["show", session, "--json"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    (latency,) = [line["event"]["latency"] for line in lines if line["event"]["type"] == "model_replied"]
    assert 0 <= latency["first_byte_seconds"] <= latency["first_token_seconds"] <= latency["total_seconds"]
