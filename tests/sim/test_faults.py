"""Every simulated fault, on every wire, streamed and whole."""

import asyncio
import re
from typing import Any

import pytest
from msgspec.structs import replace

from bridle import Agent, FinalAnswer
from bridle.ports.transport import ConnectionCut, SilentPause
from bridle.providers import load_codec
from bridle.run.model_connection import ModelConnection
from bridle.sim.faults.catalogue import FAULTS, parse_faults
from bridle.sim.simulator import Simulator
from bridle.testing import FakeClock
from bridle.transports.inprocess import InProcessTransport
from bridle.values.errors import Failure, MisuseError
from bridle.values.message import Reply, Stop
from tests.sim.sim_families import FAMILIES, MODELS, decode_answer, question, send_request

PROMPT = '!say Let me look.\n!call look {"city": "Oslo"}\n!call look {"city": "Rome"}\n!then\n!say Done.'
SSE = tuple(family for family in FAMILIES if family != "bedrock_converse")
NAMED_EVENTS = ("anthropic", "openai_responses")
STREAM_ONLY = {"overloaded-in-stream", "overflow-in-stream", "stall-midway", "missing-end"}
EXISTS = {
    **dict.fromkeys(("comments", "comments-only", "crlf"), SSE),
    "unknown-event": NAMED_EVENTS,
    "paused": ("anthropic", "openai_responses"),
    "continuation": ("gemini",),
}
"""Where a fault is one of some wires only."""


def can_happen(name: str, family: str, *, stream: bool) -> bool:
    if name in STREAM_ONLY:
        return stream
    if name == "truncated-json":
        return not stream or family in SSE
    if name in ("comments", "comments-only", "crlf", "unknown-event"):
        return stream and family in EXISTS[name]
    return family in EXISTS.get(name, FAMILIES)


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_happens_once_where_it_can_and_then_all_is_well(name, family, stream):
    simulator, request = Simulator(faults=[name]), question(family, PROMPT, stream=stream)
    plain: Any = decode_answer(request, send_request(Simulator(), request))
    timeline = send_request(simulator, request)
    assert simulator.injected_faults == ([name] if can_happen(name, family, stream=stream) else [])
    heard = decode_answer(request, timeline)
    assert isinstance(heard, Reply | Failure)
    if not simulator.injected_faults or FAULTS[name].is_harmless:
        assert heard == plain
    else:
        pauses = (
            any(isinstance(beat, SilentPause | ConnectionCut) for beat in timeline.steps)
            or timeline.delay_seconds
        )
        assert heard != plain or pauses or name == "wrong-finish"
    if simulator.injected_faults:
        reply: Any = decode_answer(request, send_request(simulator, request))
        assert drop_cache_counts(reply) == drop_cache_counts(plain)
        simulator.check_finished()


def drop_cache_counts(heard: Reply) -> Reply:
    """The reply as if nothing had been cached: an answer that was cut had begun, and wrote its prompt."""
    usage = replace(heard.usage, input=heard.usage.prompt, cache_read=0, cache_write=0)
    return replace(heard, usage=usage)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("status", [429, 500, 503, 529])
def test_statuses_come_with_and_without_a_wait(family, status):
    request = question(family, PROMPT)
    bare = decode_answer(request, send_request(Simulator(faults=[f"error-{status}"]), request))
    wait = decode_answer(request, send_request(Simulator(faults=[f"error-{status}-wait:9"]), request))
    assert (bare.status, bare.retry_after_seconds) == (status, None)
    assert (wait.status, wait.retry_after_seconds) == (status, 9)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_wait_may_be_told_as_a_date(family):
    request, simulator = question(family, PROMPT), Simulator(faults=["error-429-date:90"], clock=FakeClock())
    timeline = send_request(simulator, request)
    assert dict(timeline.headers)["retry-after"] == "Fri, 15 Jan 2027 08:01:30 GMT"
    heard = decode_answer(request, timeline)
    assert (heard.kind, heard.status, heard.retry_after_seconds) == ("rate_limited", 429, 90)


def attempts(family: str, fault: str) -> tuple[int, str]:
    """How often a run asked that met a fault at first, and how it ended."""
    asked, simulator, clock = [], Simulator(faults=[fault]), FakeClock()

    async def answer(outgoing):
        asked.append(outgoing)
        return await simulator.answer(outgoing)

    transport = InProcessTransport(answer, clock=clock)
    line = ModelConnection(model=MODELS[family], codec=load_codec(family), transport=transport)
    result = asyncio.run(Agent(line, clock=clock).run("!say Hi"))
    return len(asked), result.stop


@pytest.mark.parametrize("family", FAMILIES)
def test_a_client_waits_until_the_date_and_gives_up_at_the_word(family):
    assert attempts(family, "error-429-date:90") == (2, "done")
    assert attempts(family, "error-500") == (2, "done")
    assert attempts(family, "error-500-final") == (1, "failed")


EXPECTED = {
    "overflow-in-stream": lambda heard: heard.kind == "context",
    "overloaded-in-stream": lambda heard: heard.kind == "overloaded",
    "quota": lambda heard: heard.kind == "quota",
    "missing-end": lambda heard: heard.kind == "cut",
    "comments-only": lambda heard: heard.kind in ("cut", "garbled"),
    "truncated-json": lambda heard: heard.kind in ("cut", "garbled"),
    "out-of-room": lambda heard: heard.stop is Stop.LENGTH,
    "refusal": lambda heard: heard.stop is Stop.REFUSED,
    "paused": lambda heard: heard.stop is Stop.PAUSED,
    "continuation": lambda heard: heard.stop is Stop.PAUSED,
    "empty-reply": lambda heard: heard.parts == () and heard.stop is Stop.DONE,
    "duplicate-call": lambda heard: len(heard.calls) == 3,
    "empty-call": lambda heard: (
        heard.kind == "garbled"
        if isinstance(heard, Failure)
        else [c.name for c in heard.calls].count("look") == 1
    ),
    "malformed-call": lambda heard: heard.stop is Stop.MALFORMED or "Oslo, " in heard.calls[-1].arguments,
}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("name", EXPECTED)
def test_a_fault_is_heard_as_what_it_is(name, family):
    if not can_happen(name, family, stream=True):
        return
    request = question(family, PROMPT)
    heard = decode_answer(request, send_request(Simulator(faults=[name]), request))
    assert EXPECTED[name](heard), heard


@pytest.mark.parametrize("family", FAMILIES)
def test_a_reset_breaks_the_connection_at_that_byte(family):
    timeline = send_request(Simulator(faults=["reset:25"]), question(family, PROMPT))
    assert len(timeline.body) == 25
    assert timeline.steps[-1] == ConnectionCut(reset=True)


def test_faults_come_in_the_order_planned_one_an_answer():
    simulator = Simulator(faults=["error-500", "quota", "refusal"])
    request = question("anthropic", PROMPT)
    heard = [decode_answer(request, send_request(simulator, request)) for _ in range(4)]
    assert [getattr(each, "kind", None) or each.stop for each in heard] == [
        "server", "quota", Stop.REFUSED, Stop.TOOLS,
    ]  # fmt: skip


def test_a_fault_waits_for_an_answer_it_can_happen_to():
    simulator = Simulator(faults=["duplicate-call"])
    words, calls = question("anthropic", "!say no call"), question("anthropic", "!call look {}")
    assert decode_answer(words, send_request(simulator, words)).text == "no call"
    assert len(decode_answer(calls, send_request(simulator, calls)).calls) == 2


def list_struck(seed: int, prompts: list[str]) -> dict[str, str]:
    simulator = Simulator(faults=["error-500=0.3", "reset=0.3"], seed=seed)
    found = {}
    for prompt in prompts:
        before = len(simulator.injected_faults)
        send_request(simulator, question("anthropic", f"!say {prompt}"))
        found[prompt] = "".join(simulator.injected_faults[before:])
    return found


def test_chance_follows_the_seed_and_the_conversation_not_the_order():
    prompts = [f"number {number}" for number in range(60)]
    found = list_struck(1, prompts)
    assert found == list_struck(1, prompts[::-1])
    assert found != list_struck(2, prompts)
    counts = {name: list(found.values()).count(name) for name in ("error-500", "reset", "")}
    assert all(count >= 5 for count in counts.values()), counts


@pytest.mark.parametrize("name", [name for name in FAULTS if name not in ("quota", "refusal")])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_run_outlives_any_fault_but_those_that_are_the_end(name, family):
    simulator, clock, looked = Simulator(faults=[name]), FakeClock(), []
    line = ModelConnection(
        model=MODELS[family],
        codec=load_codec(family),
        transport=InProcessTransport(simulator.answer, clock=clock),
    )

    def look(city: str = "") -> str:
        """Look at a city."""
        looked.append(city)
        return "fine"

    async def main():
        return [event async for event in Agent(line, tools=[look], clock=clock).stream(PROMPT)]

    *_, last = asyncio.run(main())
    assert isinstance(last, FinalAnswer)
    result = last.result
    assert result.stop in ("done", "failed", "context"), result
    assert all(isinstance(city, str) for city in looked)
    assert simulator.refusals == []


@pytest.mark.parametrize("text", ["nothing", "reset:x", "reset=2", "RESET", "", "reset:1:2"])
def test_an_unknown_fault_is_misuse(text):
    with pytest.raises(MisuseError, match=re.escape(repr(text))):
        parse_faults([text])
