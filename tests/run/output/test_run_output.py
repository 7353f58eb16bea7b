"""`run(output=…)`: any type or JSON Schema for one run, with the type of the result; what cannot work is refused before
anything is sent."""

import dataclasses
from typing import Any

import msgspec
import pytest
from pydantic import BaseModel

from bridle import Agent, MisuseError, tool
from bridle.run.sync import run_in_background
from bridle.stores.memory import MemoryStore
from bridle.testing import scripted
from bridle.testing.scripted_model import call_reply

WIRES = (
    "sim:anthropic/claude-sonnet-5-5",
    "sim:openai/gpt-6-sol",
    "sim:openai-chat/gpt-5.4",
    "sim:gemini/gemini-3.5-flash",
    "sim:bedrock_converse/global.anthropic.claude-sonnet-4-6",
)


@dataclasses.dataclass
class City:
    name: str


class Country(BaseModel):
    name: str


class River(msgspec.Struct):
    name: str


def find(name: str) -> River:
    return River(name)


SCHEMA = {"title": "Town", "type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
NAMED = '{"name": "Oslo"}'
ROWS = {
    "dataclass": (City, NAMED, City("Oslo")),
    "pydantic": (Country, NAMED, Country(name="Oslo")),
    "struct": (River, NAMED, River("Oslo")),
    "list": (list[int], '{"value": [1, 2]}', [1, 2]),
    "union": ([City, int], '{"value": 3}', 3),
    "equal fields": ([City, River], '{"value": {"type": "River", "name": "Oslo"}}', River("Oslo")),
    "schema": (SCHEMA, NAMED, {"name": "Oslo"}),
    "text": (None, "Oslo", "Oslo"),
    "function": (find, call_reply(("find", {"name": "Oslo"})), River("Oslo")),
}
"""What `output=` takes, an answer of the model, and the output of the result."""
OWN: dict[str, Any] = {
    "text": None,
    "type": City,
    "other type": River,
    "schema": {**SCHEMA, "title": "Place"},
}


@pytest.mark.parametrize("own", OWN)
@pytest.mark.parametrize("row", ROWS)
def test_every_type_works_for_one_run(own, row):
    """Whole, streamed, and read while it arrives, whatever the output of the agent itself."""
    wanted, answer, expected = ROWS[row]
    agent = Agent(scripted(answer, answer, answer), output=OWN[own])  # type: ignore[arg-type]
    assert agent.run_sync("?", output=wanted).raise_for_stop().output == expected  # type: ignore[call-overload]

    async def read():
        stream = agent.stream("?", output=wanted)  # type: ignore[call-overload]
        last = [partial async for partial in stream.partial()][-1]
        return last.output, (await stream.result()).output

    assert run_in_background(read()) == (expected, expected)
    items = agent.stream("?", output=wanted)  # type: ignore[call-overload]

    async def finish():
        return (await items.start().result()).output

    assert run_in_background(finish()) == expected


@pytest.mark.parametrize("model", WIRES)
def test_a_type_for_one_run_on_every_wire(model):
    line = scripted(NAMED, "Oslo", model=model)
    agent = Agent(line)
    assert agent.run_sync("?", "s", output=City).output == City("Oslo")
    assert agent.run_sync("?", "s").output == "Oslo"
    assert line.script.requests[0].output is not None and line.script.requests[1].output is None


def test_what_cannot_work_is_refused_before_anything_is_sent():
    def check(answer: City) -> None: ...

    other = Agent(scripted(), name="other", output=City)
    refused = [
        (Agent(scripted(NAMED), output=City, validate=check), River, "validators"),
        (Agent(scripted(NAMED), output=City, handover=[other]), int, "'other', which may take it over"),
        (Agent(scripted(NAMED), output=City), object(), "no JSON form"),
        (Agent(scripted(NAMED), output=City), [], "empty list"),
        (Agent(scripted(NAMED), output=City), {"type": "nonsense"}, "not a JSON Schema"),
    ]
    for agent, wanted, words in refused:
        for start in (agent.run_sync, agent.stream):
            with pytest.raises(MisuseError, match=words):
                start("?", output=wanted)  # type: ignore[call-overload]
    same = Agent(scripted(NAMED), output=City, handover=[other])
    assert same.run_sync("?", output=City).output == City("Oslo")


@tool(approve=lambda: True)
def look() -> str:
    return "seen"


def test_a_resumed_run_needs_a_type_again_and_has_a_schema_from_the_log():
    store = MemoryStore()
    for wanted, name in ((City, "a"), (SCHEMA, "b")):
        line = scripted(call_reply(("look", {})), NAMED)
        agent = Agent(line, tools=[look], output=River, store=store)
        assert agent.run_sync("?", name, output=wanted).stop == "waiting"  # type: ignore[arg-type]
        (approval,) = run_in_background(agent.approvals(name))
        run_in_background(agent.approve(name, approval.id))
        if wanted is City:
            with pytest.raises(
                MisuseError, match=r"output=… \(City\).*pass it again: agent.resume\(…, output=…\)"
            ):
                agent.resume_sync(name)
            assert agent.resume_sync(name, output=City).output == City("Oslo")
        else:
            assert agent.resume_sync(name).output == {"name": "Oslo"}


PLACES: dict[str, Any] = {
    "type": "object",
    "properties": {"places": {"type": "array", "items": {"type": "string"}}},
}


@pytest.mark.parametrize("own", OWN)
def test_the_partial_answers_of_a_resumed_run_have_the_type_in_the_log(own):
    line = scripted(call_reply(("look", {})), '{"places": ["Oslo", "Rome", "Bern"]}')
    agent = Agent(line, tools=[look], output=OWN[own], store=MemoryStore())
    assert agent.run_sync("?", "s", output=PLACES).stop == "waiting"
    (approval,) = run_in_background(agent.approvals("s"))
    run_in_background(agent.approve("s", approval.id))

    async def read():
        stream = agent.resume_stream("s")
        return [partial.output async for partial in stream.partial()], (await stream.result()).output

    partials, last = run_in_background(read())
    assert last == {"places": ["Oslo", "Rome", "Bern"]} == partials[-1]
    assert {"places": ["Oslo"]} in partials and all(each is None or type(each) is dict for each in partials)
