"""Output types: schema for the model, and instances from its answer."""

import asyncio
import json
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypedDict

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridle import Agent
from bridle.core.calls.validation import ArgumentProblem, check_arguments
from bridle.stores.memory import MemoryStore
from bridle.tools.schema.json_form import to_json_form
from bridle.tools.schema.output_type import make_output_type
from bridle.values.errors import MisuseError
from bridle.values.request import OutputSpec, ToolSpec


@dataclass
class Weather:
    """What the weather is like."""

    city: str
    degrees: float
    warnings: list[str]


class Tree(msgspec.Struct):
    value: int
    children: list["Tree"] = []


class Row(TypedDict):
    id: int


class Pair(NamedTuple):
    a: int
    b: str = ""


VALUES = [
    (Weather, Weather("Oslo", 3.5, ["ice"])),
    (Tree, Tree(1, [Tree(2)])),
    (Row, {"id": 3}),
    (Pair, Pair(1, "x")),
    (dict[str, int], {"a": 1}),
    (list[int], [1, 2]),
    (list[Tree], [Tree(1, [Tree(2)])]),
    (Literal["yes", "no"], "no"),
    (int, 7),
    (str | None, None),
    (Weather | Pair, Pair(2)),
    (bool, True),
]


@pytest.mark.parametrize(("wanted", "value"), VALUES, ids=str)
def test_there_and_back(wanted, value):
    output = make_output_type(wanted)
    schema = json.loads(output.schema)
    assert schema["type"] == "object", "providers want an object at the top"
    form = to_json_form(value)
    wrapped = "value" in schema.get("properties", {}) and wanted is not Tree
    sent = {"value": form} if wrapped else form
    spec = ToolSpec(name="t", parameters=output.schema)
    assert not isinstance(check_arguments(spec, json.dumps(sent)), ArgumentProblem)
    assert output.convert(sent) == value
    OutputSpec(name=output.name, parameters=output.schema, description=output.description)


def test_names_and_descriptions():
    schema, name, description, *_ = make_output_type(Weather)
    assert (name, description) == ("Weather", "What the weather is like.")
    assert json.loads(schema)["required"] == ["city", "degrees", "warnings"]
    assert make_output_type(list[int]).name == "final_answer"
    assert make_output_type(dict[str, int]).name == "dict"
    assert make_output_type({"type": "object", "title": "My  answer!", "description": "d"})[1:3] == (
        "My_answer",
        "d",
    )


def test_only_what_is_not_an_object_is_wrapped():
    assert json.loads(make_output_type(list[int]).schema) == {
        "type": "object",
        "properties": {"value": {"type": "array", "items": {"type": "integer"}}},
        "required": ["value"],
        "additionalProperties": False,
    }
    assert "value" not in json.loads(make_output_type(Weather).schema)["properties"]


def test_a_refusal_says_where():
    with pytest.raises(ValueError, match=r"`value\[1\]`: expected an integer, got \"2\""):
        make_output_type(list[int]).convert({"value": [1, "2"]})
    with pytest.raises(ValueError, match="the one field `value`"):
        make_output_type(list[int]).convert({"values": []})
    with pytest.raises(ValueError, match="`degrees`: missing field"):
        make_output_type(Weather).convert({"city": "a", "warnings": []})


def test_a_schema_gives_plain_data():
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    output = make_output_type(schema)
    assert json.loads(output.schema) == schema
    assert output.convert({"a": 1}) == {"a": 1}


def test_references_survive_the_wrapping():
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "array",
        "items": {"anyOf": [{"$ref": "#"}, {"$ref": "#/$defs/Leaf"}]},
        "$defs": {"Leaf": {"type": "integer"}},
    }
    output = make_output_type(schema)
    spec = ToolSpec(name="t", parameters=output.schema)
    assert not isinstance(check_arguments(spec, '{"value":[1,[2,[3]]]}'), ArgumentProblem)
    assert isinstance(check_arguments(spec, '{"value":[1,[2,["3"]]]}'), ArgumentProblem)
    assert output.convert({"value": [1, [2]]}) == [1, [2]]


def test_recursive_types_survive_the_wrapping():
    spec = ToolSpec(name="t", parameters=make_output_type(list[Tree]).schema)
    assert not isinstance(
        check_arguments(spec, '{"value":[{"value":1,"children":[{"value":2}]}]}'), ArgumentProblem
    )
    assert isinstance(
        check_arguments(spec, '{"value":[{"value":1,"children":[{"value":"2"}]}]}'), ArgumentProblem
    )


@pytest.mark.parametrize(("wanted", "said"), [
    (bytes, "output type `bytes`: it is a `bytes`, which has no JSON form"),
    (msgspec.defstruct("Bad", [("raw", bytes)]), "output type `Bad`: field `raw` is a `bytes`"),
    ({"type": "objct"}, "output schema is not a JSON Schema at ['type']"),
    ({"a": object()}, "output schema is not JSON"),
])  # fmt: skip
def test_what_cannot_be_an_output(wanted, said):
    with pytest.raises(MisuseError) as refusal:
        make_output_type(wanted)
    assert str(refusal.value).startswith(said)
    assert "\n" not in str(refusal.value)


@given(st.lists(st.integers()))
def test_any_list_of_integers_comes_back(numbers):
    assert make_output_type(list[int]).convert(json.loads(json.dumps({"value": numbers}))) == numbers


def test_resuming_with_another_type_is_one_clear_line():
    store = MemoryStore()
    session = Agent("sim:", output=list[int], store=store).run_sync('!say {"value": [1, 2]}').session
    with pytest.raises(MisuseError, match="does not match this agent's output type"):
        asyncio.run(Agent("sim:", output=dict[str, int], store=store).resume(session))
