"""Ordinary types as answers, on every wire: an instance comes back, or construction is refused in one line.

The simulator refuses what the providers refuse (open maps, circular definitions, too many optional
fields or unions), so an answer that comes back was asked for in a form the wire can carry.
"""

import json
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Annotated, Any, Literal, NamedTuple, NotRequired, TypedDict
from uuid import UUID

import msgspec
import pytest
from pydantic import BaseModel, Field, create_model

from bridle import Agent
from bridle.core.recovery.fallback import set_model
from bridle.run.model_connection import find_model_by_name
from bridle.run.sync import run_in_background
from bridle.sim.simulator import Simulator
from bridle.testing import scripted
from bridle.testing.scripted_model import call_reply
from bridle.tools.schema.output_type import make_output_type
from bridle.values.errors import MisuseError
from bridle.values.events import ModelAsked
from bridle.values.message import Message, Text
from bridle.values.request import OutputSpec, Request
from tests.sim.sim_families import send_request

MODELS = (
    "sim:anthropic/claude-sonnet-5-5",
    "sim:anthropic/claude-haiku-4-5",
    "sim:bedrock_converse/global.anthropic.claude-sonnet-4-6",
    "sim:openai/gpt-6-sol",
    "sim:openai-chat/gpt-5.4",
    "sim:gemini/gemini-3.5-flash",
)


class City(BaseModel):
    name: str
    population: int


class Tree(BaseModel):
    label: str
    children: list["Tree"] = []


class Chain(BaseModel):
    value: int
    next: "Chain | None" = None


class Left(BaseModel):
    right: "Right | None" = None


class Right(BaseModel):
    left: Left | None = None


class Loose(BaseModel):
    known: str
    more: Any = None


class Prices(BaseModel):
    by_city: dict[str, float]


class Nested(BaseModel):
    places: dict[str, list[City]]


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Level(IntEnum):
    LOW = 1
    HIGH = 2


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int


class Dog(BaseModel):
    kind: Literal["dog"]
    tricks: list[str]


class Pet(BaseModel):
    pet: Annotated[Cat | Dog, Field(discriminator="kind")]


class Bounded(BaseModel):
    share: Annotated[float, Field(ge=0, le=1)]
    code: Annotated[str, Field(min_length=2, max_length=4)]
    tags: Annotated[list[str], Field(min_length=2, max_length=5)]


class Dated(BaseModel):
    day: date
    moment: datetime
    length: timedelta
    id: UUID


class Paid(BaseModel):
    amount: Decimal


@dataclass
class Point:
    x: float
    y: float
    note: str | None = None


@dataclass
class Shelf:
    books: dict[str, Point]
    best: Point
    others: list[Point] = field(default_factory=list)


class Movie(TypedDict):
    title: str
    year: NotRequired[int]


class Pair(NamedTuple):
    first: int
    second: str


class Struct(msgspec.Struct):
    name: str
    counts: dict[str, int] = {}


Optionals = create_model("Optionals", **{f"f{n}": (str | None, None) for n in range(30)})  # type: ignore[call-overload]
Defaults = create_model("Defaults", **{f"f{n}": (int, n) for n in range(30)})  # type: ignore[call-overload]
Unions = create_model("Unions", **{f"f{n}": (int | str, ...) for n in range(20)})  # type: ignore[call-overload]
OPEN_SCHEMA = {"title": "open", "type": "object", "properties": {"a": {"type": "integer"}}}
RECURSIVE_SCHEMA = {
    "title": "node",
    "type": "object",
    "properties": {"name": {"type": "string"}, "next": {"$ref": "#"}},
    "required": ["name"],
}
LIST_SCHEMA = {"type": "array", "items": {"type": "integer"}}

TYPES: dict[str, Any] = {
    "str": str,
    "int": int,
    "bool": bool,
    "Any": Any,
    "list": list,
    "dict": dict,
    "list[int]": list[int],
    "list[City]": list[City],
    "dict[str, int]": dict[str, int],
    "dict[str, City]": dict[str, City],
    "dict[str, Any]": dict[str, Any],
    "tuple[int, str]": tuple[int, str],
    "set[str]": set[str],
    "int | None": int | None,
    "City | None": City | None,
    "Cat | Dog": Cat | Dog,
    "Literal": Literal["yes", "no"],
    "Enum": Colour,
    "IntEnum": Level,
    "datetime": datetime,
    "Decimal": Decimal,
    "Annotated": Annotated[int, Field(ge=1, le=10)],
    "City": City,
    "Tree": Tree,
    "Chain": Chain,
    "mutual": Left,
    "Loose": Loose,
    "Prices": Prices,
    "Nested": Nested,
    "Pet": Pet,
    "Bounded": Bounded,
    "Dated": Dated,
    "Paid": Paid,
    "dataclass": Point,
    "dataclass with a map": Shelf,
    "TypedDict": Movie,
    "NamedTuple": Pair,
    "Struct": Struct,
    "30 optionals": Optionals,
    "30 defaults": Defaults,
    "20 unions": Unions,
    "open schema": OPEN_SCHEMA,
    "recursive schema": RECURSIVE_SCHEMA,
    "list schema": LIST_SCHEMA,
}


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("name", TYPES)
def test_an_instance_comes_back_or_construction_is_refused_in_one_line(name, model):
    wanted = TYPES[name]
    try:
        agent = Agent(model, output=wanted)
    except MisuseError as refusal:
        assert "\n" not in str(refusal) and len(str(refusal)) < 200
        pytest.fail(f"an ordinary type is refused: {refusal}")
    result = agent.run_sync("Tell me about Oslo, a city of 700000 people.")
    assert result.stop == "done", result.reason
    if isinstance(wanted, type) and wanted is not Any and not hasattr(wanted, "__required_keys__"):
        assert isinstance(result.output, getattr(wanted, "__origin__", wanted))
    else:
        assert result.output is not None or name in ("Any", "int | None", "City | None")


def run_and_list_requests(agent, prompt="Tell me about Oslo."):
    """The result of a run and the requests it recorded."""
    result = agent.run_sync(prompt)
    records = run_in_background(agent.store.read(result.session))
    return result, [record.event for record in records if isinstance(record.event, ModelAsked)]


@pytest.mark.parametrize("model", [MODELS[0], MODELS[2]])
def test_what_the_native_form_cannot_carry_is_asked_for_by_tool_and_the_log_says_why(model):
    agent = Agent(model, output=Prices)
    output = agent.settings.output
    assert output is not None and output.mode == "tool"
    result, requests = run_and_list_requests(agent)
    assert isinstance(result.output, Prices)
    note = next(note for note in requests[0].notes if "asked for by the tool 'Prices'" in note)
    assert "accepts fields that are not named" in note


def test_what_the_native_form_can_carry_stays_native():
    for model in MODELS:
        output = Agent(model, output=City).settings.output
        assert output is not None and output.mode == "native" and output.unsupported_models == ()


def test_the_mode_follows_the_model_of_the_chain():
    models = ("sim:openai/gpt-6-sol", "sim:anthropic/claude-sonnet-5-5")
    agent = Agent([find_model_by_name(model) for model in models], output=Tree)
    output, settings = agent.settings.output, agent.settings
    assert output is not None and output.mode == "native"
    switched = set_model(settings, settings.models[1])
    assert switched.output is not None and switched.output.mode == "tool"
    back = set_model(switched, settings.models[0])
    assert back.output is not None and back.output.mode == "native"


def test_a_tool_of_the_same_name_is_refused_where_the_answer_comes_by_tool():
    def Tree() -> str:
        """Look at a tree."""
        return ""

    with pytest.raises(MisuseError, match="both named 'Tree'"):
        Agent(MODELS[0], tools=[Tree], output=globals()["Tree"])


@pytest.mark.refusals
@pytest.mark.parametrize(
    ("model", "prefix"), [(MODELS[0], ""), (MODELS[2], "The model returned the following errors: ")]
)
@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        (Prices, "For 'object' type, 'additionalProperties' must be explicitly set to false"),
        (Tree, "Circular reference detected in schema definitions: Tree -> Tree."),
        (Optionals, "too many optional parameters (30)"),
        (Unions, "too many parameters with union types (20"),
    ],
    ids=["open", "circular", "optional", "unions"],
)
def test_the_simulator_refuses_what_the_provider_cannot_compile(model, prefix, wanted, words):
    """A client that sends such a schema in the native form is turned away, on both wires alike."""
    sent = find_model_by_name(model)
    shape = make_output_type(wanted)
    output = OutputSpec(name=shape.name, parameters=shape.schema)
    message = Message(id="m1", role="user", parts=(Text(text="Hello"),))
    request = Request(model=sent, messages=(message,), output=output, stream=False)
    timeline = send_request(Simulator(), request)
    assert timeline.status == 400
    said = timeline.body.decode()
    assert prefix in said and words in json.loads(said).get("message", said)


def test_a_wrong_plain_answer_is_not_called_arguments():
    line = scripted('{"name": "Oslo"}', "Oslo", '{"name": "Oslo", "population": 1}', model=MODELS[0])
    agent = Agent(line, output=City)
    result = agent.run_sync("?")
    assert result.output == City(name="Oslo", population=1)
    told = [message.text for message in result.messages if message.role == "user"][1:]
    assert "missing field `population`" in told[0] and "not valid JSON" in told[1]
    assert not any("argument" in words or "nothing was run" in words.lower() for words in told)


class Endless(BaseModel):
    inner: "Endless"


@pytest.mark.parametrize("model", MODELS)
def test_a_shape_that_demands_itself_ends_in_words_and_not_in_a_crash(model):
    result = Agent(model, output=Endless).run_sync("?")
    assert result.stop == "failed" and "no answer matched the requested type; last problem: " in result.reason
    assert not result.reason.endswith("last problem: ")


def test_an_answer_by_tool_ends_with_the_last_problem():
    class Census(BaseModel):
        name: str
        population: dict[str, int]

    wrong = ({}, {"name": "Oslo"}, {"name": "Oslo", "population": "many"})
    line = scripted(*(call_reply(("Census", arguments)) for arguments in wrong), model=MODELS[0])
    agent = Agent(line, output=Census)
    assert agent.settings.output.mode == "tool"
    result = agent.run_sync("?")
    assert result.stop == "failed"
    assert "no answer matched the requested type; last problem: " in result.reason
    assert "population" in result.reason
    assert "missing" not in result.reason, "the last problem, not the first"
