"""Pydantic's types, when the user has pydantic: never imported by us, always strict."""

import asyncio
import json
import subprocess
import sys
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any, Literal

import annotated_types
import msgspec
import pydantic.dataclasses
import pytest
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, HttpUrl, PositiveInt, field_validator

from bridle.core.calls.validation import ArgumentProblem, check_arguments
from bridle.ports.run_context import RunContext
from bridle.tools import TypedTool, make_output_type, tool
from bridle.tools.schema.json_types import JsonMismatch
from bridle.values.errors import BadTool

CONTEXT = RunContext(context=None, session="s", call_id="c1", idempotency_key="k")


class Address(BaseModel):
    """Where somebody lives."""

    title: str = Field(description="the house's name")
    number: int = Field(default=1, alias="houseNumber")


class Person(BaseModel):
    name: str
    address: Address
    parent: "Person | None" = None

    @field_validator("name")
    @classmethod
    def must_not_be_nobody(cls, name: str) -> str:
        if name == "nobody":
            raise ValueError("nobody is not a person")
        return name


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int = 9


class Dog(BaseModel):
    kind: Literal["dog"]


def schema(made):
    return json.loads(made.spec.parameters)


def run(made, **arguments):
    checked = check_arguments(made.spec, json.dumps(arguments))
    assert not isinstance(checked, ArgumentProblem), checked.text
    (part,) = asyncio.run(made.run(checked, CONTEXT))
    return part.text


def describe_mismatch(made, **arguments):
    checked = check_arguments(made.spec, json.dumps(arguments))
    assert isinstance(checked, ArgumentProblem)
    return checked.text


def test_models_are_parameters():
    @tool
    def greet(person: Person, other: Address | None = None) -> str:
        return f"{person.name} of {person.address.title} {person.address.number}, {type(person).__name__}"

    home = {"title": "Hill", "houseNumber": 3.0}
    assert run(greet, person={"name": "Ann", "address": home}) == "Ann of Hill 3, Person"
    assert "unknown field `person.nme`; did you mean `name`?" in describe_mismatch(greet, person={"nme": "a"})
    assert "`person.address.houseNumber`: expected integer" in describe_mismatch(
        greet, person={"name": "a", "address": {"title": "t", "houseNumber": "3"}}
    )
    shown = schema(greet)
    assert shown["$defs"]["Address"] == {
        "type": "object",
        "description": "Where somebody lives.",
        "properties": {
            "title": {"type": "string", "description": "the house's name"},
            "houseNumber": {"type": "integer", "default": 1},
        },
        "required": ["title"],
        "additionalProperties": False,
    }
    assert '"title":"' not in greet.spec.parameters, "titles are noise"


def test_an_objection_of_a_validator_reaches_the_model():
    @tool
    def greet(people: list[Person]) -> str:
        return "hello"

    given: Any = {"people": [{"name": "nobody", "address": {"title": "t"}}]}
    with pytest.raises(JsonMismatch, match=r"`people\[0\]\.name`: nobody is not a person"):
        asyncio.run(greet.run(given, CONTEXT))


def test_a_union_of_models_takes_the_one_that_fits():
    @tool
    def feed(pet: Annotated[Cat | Dog, Field(discriminator="kind", description="who")]) -> str:
        return type(pet).__name__

    assert run(feed, pet={"kind": "dog"}) == "Dog"
    assert run(feed, pet={"kind": "cat", "lives": 3}) == "Cat"
    assert '`pet.kind`: expected "cat" or "dog", got "cow"' in describe_mismatch(feed, pet={"kind": "cow"})
    assert schema(feed)["properties"]["pet"]["description"] == "who"


def test_a_model_that_allows_unknown_fields_keeps_them():
    class Open(BaseModel):
        model_config = ConfigDict(extra="allow")
        a: int

    @tool
    def keep(it: Open) -> Open:
        return it

    assert run(keep, it={"a": 1, "b": 2}) == '{"a":1,"b":2}'


def test_constrained_types():
    @tool
    def order(
        count: PositiveInt,
        price: Annotated[Decimal, Field(ge=0, description="each")],
        code: Annotated[str, pydantic.StringConstraints(to_upper=True, min_length=2)],
        sizes: Annotated[list[int], annotated_types.Len(1, 3)],
        site: HttpUrl,
        even: Annotated[int, AfterValidator(lambda value: value - value % 2)] = 4,
    ) -> str:
        return f"{count} {price} {code} {sizes} {site} {even}"

    good: Any = {"count": 1, "price": "2.50", "code": "ab", "sizes": [1], "site": "https://example.org"}
    assert run(order, **good) == "1 2.50 AB [1] https://example.org/ 4"
    assert run(order, **good, even=7).endswith(" 6")
    assert "`count`: must be more than 0" in describe_mismatch(order, **(good | {"count": 0}))
    assert "`sizes`: must have at least 1 items" in describe_mismatch(order, **(good | {"sizes": []}))
    assert schema(order)["properties"]["price"]["description"] == "each Must be at least 0."
    with pytest.raises(JsonMismatch, match="`price`: expected at least 0"):
        asyncio.run(order.run(good | {"price": "-1"}, CONTEXT))


def test_a_field_in_the_place_of_a_default():
    @tool
    def search(
        words: str = Field(description="what for"),
        limit: int = Field(10, ge=1),
        tags: list[str] = Field(default_factory=lambda: ["new"]),  # noqa: B008
    ) -> str:
        return f"{words} {limit} {tags}"

    assert run(search, words="x") == "x 10 ['new']"
    shown = schema(search)
    assert shown["required"] == ["words"]
    assert shown["properties"]["limit"] == {"type": "integer", "minimum": 1, "default": 10}
    assert "must be at least 1" in describe_mismatch(search, words="x", limit=0)


def test_models_inside_other_types_and_the_other_way_round():
    @pydantic.dataclasses.dataclass
    class Shelf:
        size: Annotated[int, Field(ge=1)]

    @dataclass
    class Room:
        shelf: Shelf
        owner: Person | None = None

    @tool
    def furnish(room: Room) -> Room:
        return room

    assert json.loads(run(furnish, room={"shelf": {"size": 2}})) == {"shelf": {"size": 2}, "owner": None}
    assert "`room.shelf.size`: must be at least 1" in describe_mismatch(furnish, room={"shelf": {"size": 0}})


def test_two_models_of_one_name_stay_two():
    other = pydantic.create_model("Address", street=(str, ...))

    def move(a: Address, b: Address, c: other, d: other, e: Person) -> str:
        return ""

    shown = schema(tool(move))
    assert {"Address", "Address_2", "Person"} == set(shown["$defs"])
    assert shown["$defs"]["Address_2"]["properties"] == {"street": {"type": "string"}}
    assert shown["$defs"]["Person"]["properties"]["address"] == {"$ref": "#/$defs/Address"}


def test_a_tool_and_an_output_from_a_model():
    made = TypedTool(Person, run=lambda person: person.name)
    assert made.spec.name == "Person"
    assert run(made, name="Ann", address={"title": "t"}) == "Ann"
    answer = make_output_type(Address)
    assert (answer.name, answer.description) == ("Address", "Where somebody lives.")
    assert answer.convert({"title": "t"}) == Address(title="t")
    with pytest.raises(ValueError, match="houseNumber"):
        answer.convert({"title": "t", "houseNumber": "1"})


class Oak(BaseModel):
    name: str


class Elm(BaseModel):
    name: str
    age: int = 0


class Rose(BaseModel):
    kind: Literal["rose"]
    name: str


class Lily(BaseModel):
    kind: Literal["lily"]
    name: str


@dataclass
class Moss:
    name: str


UNIONS = [
    (Oak | Elm, "`Oak` and `Elm`"),
    (Oak | Moss, "`Oak` and `Moss`"),
    (list[Oak | Elm], "`Oak` and `Elm`"),
    (list[Oak] | list[Elm], "`list[Oak]` and `list[Elm]`"),
    (dict[str, Oak] | dict[str, Elm], "`dict[str, Oak]` and `dict[str, Elm]`"),
    (Oak | Elm | None, "`Oak` and `Elm`"),
    (Rose | Lily, ""),
    (Annotated[Rose | Lily, Field(discriminator="kind")], ""),
    (Oak | None, ""),
    (int | str, ""),
    (Decimal | str, ""),
    (Oak | dict[str, int], ""),
]
"""The field of a model that is a parameter, and the types that cannot be told apart."""


@pytest.mark.parametrize(("field", "confused"), UNIONS)
def test_a_union_of_objects_in_a_model_that_cannot_be_decided_is_refused(field, confused):
    class Order(BaseModel):
        held: field

    def buy(order: Order) -> str:
        return type(order.held).__name__

    if not confused:
        assert tool(buy).spec.name == "buy"
        return
    with pytest.raises(BadTool, match=r"parameter `order.held` is a union in which") as caught:
        tool(buy)
    assert confused in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("field", [list[Moss] | list[Oak], tuple[Moss, int] | tuple[Oak, int]])
def test_a_union_of_lists_of_objects_that_cannot_be_decided_is_refused(field):
    def buy(them: field) -> str:
        return ""

    with pytest.raises(BadTool, match=r"parameter `them` is a union in which .* can be the same JSON"):
        tool(buy)


def test_a_type_pydantic_cannot_describe():
    class Odd:
        @classmethod
        def __get_pydantic_core_schema__(cls, source, handler):
            return handler.generate_schema(msgspec.Struct)

    def odd(it: Odd) -> str:
        return ""

    with pytest.raises(BadTool, match="tool `odd`: parameter `it` is a type pydantic cannot describe"):
        tool(odd)


def test_pydantic_is_never_imported_by_us():
    script = (
        "import sys, bridle.tools, bridle.core.calls.validation\n"
        "from bridle.tools import tool\n"
        "@tool\n"
        "def f(a: int) -> str: return ''\n"
        "print('pydantic' in sys.modules, 'jsonschema_rs' in sys.modules)"
    )
    seen = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert seen.stdout.split() == ["False", "False"]
