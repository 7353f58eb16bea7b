"""Python types as JSON Schema and back: what is said to the model, and what it may answer."""

import enum
import os
import subprocess
import sys
import typing
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, NamedTuple, NewType, NotRequired, TypedDict, TypeVar

import msgspec
import pytest

from bridle.core.calls.validation import ArgumentProblem, check_arguments
from bridle.tools.schema.annotations import NoJsonForm
from bridle.tools.schema.builder import SchemaBuilder
from bridle.tools.schema.document import encode_schema
from bridle.tools.schema.json_types import JsonMismatch
from bridle.values.request import ToolSpec


class Unit(enum.Enum):
    CELSIUS = "celsius"
    FAHRENHEIT = "fahrenheit"


@dataclass
class Stop:
    """One stop of a trip.

    Args:
        city: Where.
    """

    city: str
    nights: Annotated[int, msgspec.Meta(ge=1)] = 1
    tags: list[str] = field(default_factory=list)
    id: uuid.UUID = field(default_factory=uuid.uuid4)
    seen: bool = field(default=False, init=False)


@dataclass
class Node:
    value: int
    children: list["Node"] = field(default_factory=list)


class Person(TypedDict):
    name: str
    age: NotRequired[Annotated[int, "in years"]]


class Point(NamedTuple):
    x: float
    y: float = 0.0


class Circle(msgspec.Struct, tag="circle", rename="camel"):
    the_radius: float


class Square(msgspec.Struct, tag="square"):
    side: float = 1.0


T = TypeVar("T")


@dataclass
class Box(Generic[T]):
    held: T
    others: list[T]


UserId = NewType("UserId", int)


def read(annotation):
    shapes = SchemaBuilder()
    shape = shapes.read_type(annotation)
    return shapes.make_document(shape.schema), shape.load


def schema_of(annotation):
    return read(annotation)[0]


@pytest.mark.parametrize(("annotation", "schema"), [
    (str, {"type": "string"}),
    (int, {"type": "integer"}),
    (float, {"type": "number"}),
    (bool, {"type": "boolean"}),
    (None, {"type": "null"}),
    (Any, {}),
    (UserId, {"type": "integer"}),
    (Literal["a", "b"], {"type": "string", "enum": ["a", "b"]}),
    (Literal[2, "a"], {"enum": [2, "a"]}),
    (Literal[Unit.CELSIUS], {"type": "string", "enum": ["celsius"]}),
    (Unit, {"type": "string", "enum": ["celsius", "fahrenheit"]}),
    (int | None, {"type": ["integer", "null"]}),
    (typing.Optional[str], {"type": ["string", "null"]}),  # noqa: UP045
    (int | Literal["auto"], {"anyOf": [{"type": "integer"}, {"type": "string", "enum": ["auto"]}]}),
    (list, {"type": "array"}),
    (list[int], {"type": "array", "items": {"type": "integer"}}),
    (Sequence[int], {"type": "array", "items": {"type": "integer"}}),
    (set[str], {"type": "array", "items": {"type": "string"}, "uniqueItems": True}),
    (tuple[int, ...], {"type": "array", "items": {"type": "integer"}}),
    (tuple[int, str], {"type": "array", "minItems": 2, "maxItems": 2,
                       "prefixItems": [{"type": "integer"}, {"type": "string"}], "items": False}),
    (dict, {"type": "object", "additionalProperties": True}),
    (Mapping[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}),
    (dict[Literal["a"], int], {"type": "object", "propertyNames": {"enum": ["a"]},
                               "additionalProperties": {"type": "integer"}}),
    (date, {"type": "string", "format": "date"}),
    (datetime, {"type": "string", "format": "date-time"}),
    (uuid.UUID, {"type": "string", "format": "uuid"}),
    (Path, {"type": "string"}),
    (Annotated[str, "the city"], {"type": "string", "description": "the city"}),
    (Annotated[int, msgspec.Meta(gt=0, le=9, description="how many")],
     {"type": "integer", "exclusiveMinimum": 0, "maximum": 9, "description": "how many"}),
    (Annotated[str, msgspec.Meta(min_length=1, max_length=5, pattern="^a")],
     {"type": "string", "minLength": 1, "maxLength": 5, "pattern": "^a"}),
    (Annotated[list[int], msgspec.Meta(max_length=3)],
     {"type": "array", "items": {"type": "integer"}, "maxItems": 3}),
    (Annotated[int | None, msgspec.Meta(ge=1)],
     {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "null"}]}),
    (Annotated[str, msgspec.Meta(examples=["a"], extra_json_schema={"format": "email"})],
     {"type": "string", "examples": ["a"], "format": "email"}),
])  # fmt: skip
def test_schemas(annotation, schema):
    assert schema_of(annotation) == schema


def test_an_object_says_what_is_required_what_is_the_default_and_that_there_is_nothing_else():
    assert schema_of(Stop) == {
        "type": "object",
        "description": "One stop of a trip.",
        "properties": {
            "city": {"type": "string", "description": "Where."},
            "nights": {"type": "integer", "minimum": 1, "default": 1},
            "tags": {"type": "array", "items": {"type": "string"}, "default": []},
            "id": {"type": "string", "format": "uuid"},
        },
        "required": ["city"],
        "additionalProperties": False,
    }


def test_typed_dicts_named_tuples_and_structs_are_objects_too():
    assert schema_of(Person)["required"] == ["name"]
    assert schema_of(Person)["properties"]["age"] == {"type": "integer", "description": "in years"}
    assert schema_of(Point)["properties"] == {
        "x": {"type": "number"},
        "y": {"type": "number", "default": 0.0},
    }
    circle = schema_of(Circle)
    assert circle["properties"] == {
        "type": {"type": "string", "enum": ["circle"]},
        "theRadius": {"type": "number"},
    }
    assert circle["required"] == ["type", "theRadius"]
    assert all(schema_of(each)["additionalProperties"] is False for each in (Person, Point, Circle))


def test_a_type_that_contains_itself_is_a_definition_and_the_top_is_still_an_object():
    schema = schema_of(Node)
    assert schema["type"] == "object"
    assert schema["properties"]["children"]["items"] == {"$ref": "#/$defs/Node"}
    assert schema["$defs"]["Node"]["properties"]["children"]["items"] == {"$ref": "#/$defs/Node"}


def test_a_type_used_once_is_written_in_place_and_one_used_twice_is_shared():
    once = schema_of(list[Stop])
    assert "$defs" not in once
    assert once["items"]["properties"]["city"]
    twice = schema_of(tuple[Stop, Stop])
    assert twice["prefixItems"] == [{"$ref": "#/$defs/Stop"}] * 2
    assert list(twice["$defs"]) == ["Stop"]


def test_two_types_of_one_name_stay_two():
    other = dataclass(type("Stop", (), {"__annotations__": {"line": int}}))
    schema = schema_of(tuple[Stop, Stop, other, other])
    assert list(schema["$defs"]) == ["Stop", "Stop_2"]
    assert "line" in schema["$defs"]["Stop_2"]["properties"]


def test_generic_classes_take_their_arguments():
    schema = schema_of(Box[int])
    assert schema["properties"]["held"] == {"type": "integer"}
    assert schema["properties"]["others"] == {"type": "array", "items": {"type": "integer"}}


MOMENT = datetime(2026, 5, 1, 10, tzinfo=UTC)


@pytest.mark.parametrize(("annotation", "given", "expected"), [
    (int, 3, 3),
    (int, 3.0, 3),
    (int, 2**70, 2**70),
    (float, 3, 3.0),
    (Unit, "celsius", Unit.CELSIUS),
    (Literal[Unit.CELSIUS], "celsius", Unit.CELSIUS),
    (tuple[int, str], [1, "a"], (1, "a")),
    (tuple[int, ...], [1, 2], (1, 2)),
    (tuple[()], [], ()),
    (set[int], [1, 2], {1, 2}),
    (Path, "a/b", Path("a/b")),
    (Decimal, "12.50", Decimal("12.50")),
    (date, "2026-05-01", date(2026, 5, 1)),
    (time, "10:00:00", time(10)),
    (datetime, "2026-05-01T10:00:00Z", MOMENT),
    (Annotated[datetime, msgspec.Meta(tz=False)], "2026-05-01T10:00:00", datetime(2026, 5, 1, 10)),  # noqa: DTZ001
    (str | date, "2026-05-01", date(2026, 5, 1)),
    (str | date, "tomorrow", "tomorrow"),
    (float | int, 3, 3),
    (Person, {"name": "Ann"}, {"name": "Ann"}),
    (Point, {"x": 1}, Point(1.0, 0.0)),
    (Node, {"value": 1, "children": [{"value": 2}]}, Node(1, [Node(2)])),
    (Circle | Square, {"type": "square"}, Square()),
    (Circle | Square, {"type": "circle", "theRadius": 2}, Circle(2.0)),
    (Stop | Point | None, {"x": 1}, Point(1.0)),
    (Box[date], {"held": "2026-05-01", "others": []}, Box(date(2026, 5, 1), [])),
    (dict[Unit, int], {"celsius": 1}, {Unit.CELSIUS: 1}),
])  # fmt: skip
def test_loading(annotation, given, expected):
    schema, load = read(annotation)
    loaded = load(given)
    assert loaded == expected
    assert type(loaded) is type(expected)
    assert is_accepted(schema, given)


@pytest.mark.parametrize(("annotation", "given"), [
    (int, "3"), (int, True), (int, 3.5), (int, None), (float, "1"), (float, False), (bool, 1), (bool, "true"),
    (str, 1), (str, None), (None, 0), (list[int], "12"), (list[int], [1, "2"]), (set[int], [1, "2"]),
    (tuple[int, str], [1]), (tuple[int, str], [1, 2]), (dict[str, int], [["a", 1]]),
    (dict[str, int], {"a": "1"}), (Unit, "kelvin"), (Unit, "CELSIUS"), (Literal[1], True), (Literal[1], "1"),
    (Literal[True], 1), (date, "01.05.2026"), (datetime, "2026-05-01T10:00:00"), (uuid.UUID, "12"),
    (Decimal, 1.5), (Decimal, "NaN"), (time, "25:00:00"), (time, "10:00:00Z"), (int | None, "1"), (Stop, {}),
    (Stop, {"city": "a", "cty": "b"}), (Stop, {"city": 1}), (Stop, {"city": "a", "nights": 0}),
    (Stop, {"city": "a", "seen": True}), (Person, {"age": 3}), (Point, [1, 2]),
    (Person, {"name": "a", "x": 1}), (Circle, {"theRadius": 1}), (Circle, {"type": "square", "theRadius": 1}),
    (Circle | Square, {"type": "oval"}), (Node, {"value": 1, "children": [{"value": "2"}]}),
    (Annotated[str, msgspec.Meta(max_length=1)], "ab"), (Annotated[str, msgspec.Meta(pattern="^a")], "ba"),
    (Annotated[list[int], msgspec.Meta(min_length=1)], []),
    (Annotated[float, msgspec.Meta(multiple_of=0.1)], 0.25),
])  # fmt: skip
def test_nothing_is_coerced_neither_by_the_schema_nor_by_the_loader(annotation, given):
    schema, load = read(annotation)
    assert not is_accepted(schema, given)
    with pytest.raises(JsonMismatch):
        load(given)


def is_accepted(schema, given):
    wrapped = {
        "type": "object",
        "properties": {"it": {k: v for k, v in schema.items() if k != "$defs"}},
        "$defs": schema.get("$defs", {}),
    }
    spec = ToolSpec(name="t", parameters=encode_schema(wrapped))
    return not isinstance(check_arguments(spec, msgspec.json.encode({"it": given}).decode()), ArgumentProblem)


def test_a_mismatch_says_where():
    _, load = read(dict[str, list[Stop]])
    with pytest.raises(JsonMismatch, match=r"^`trip\[1\]\.nights`: expected an integer, got \"2\"$"):
        load({"trip": [{"city": "a"}, {"city": "b", "nights": "2"}]})
    _, load = read(Stop | None)
    with pytest.raises(JsonMismatch, match=r"`nights`: expected at least 1, got 0"):
        load({"city": "b", "nights": 0})


def test_what_a_class_refuses_is_a_mismatch():
    @dataclass
    class Span:
        first: int
        last: int

        def __post_init__(self):
            if self.last < self.first:
                raise ValueError("last is before first")

    _, load = read(list[Span])
    with pytest.raises(JsonMismatch, match=r"`\[0\]`: last is before first"):
        load([{"first": 2, "last": 1}])


def test_a_bound_the_schema_cannot_hold_is_told_in_words_and_kept():
    class Least(NamedTuple):
        ge: Decimal

    schema, load = read(Annotated[Decimal, Least(Decimal("0.01")), "what to pay"])
    assert schema["description"] == "what to pay Must be at least 0.01."
    assert load("0.01") == Decimal("0.01")
    with pytest.raises(JsonMismatch, match=r"expected at least 0\.01"):
        load("0")


class Permission(enum.Flag):
    READ = 1


@pytest.mark.parametrize(("annotation", "said"), [
    (bytes, "`bytes`, which has no JSON form; take a `str`"),
    (timedelta, "name its unit"),
    (list[bytes], "bytes"),
    (dict[int, str], "keys are not strings"),
    (T, "type variable"),
    (Permission, "use a list of an Enum"),
    (os.PathLike, "no JSON form"),
    (typing.Callable[[], int], "no JSON form"),
    (Annotated[str, msgspec.Meta(ge=1)], "the bound `ge`"),
    (enum.Enum("Odd", {"A": (1, 2)}), "not a JSON constant"),
    (msgspec.defstruct("Row", [("a", int)], array_like=True), "array_like"),
    (typing.ForwardRef("Nowhere"), "unresolved name"),
])  # fmt: skip
def test_types_without_json_form(annotation, said):
    with pytest.raises(NoJsonForm) as refusal:
        schema_of(annotation)
    assert said in refusal.value.what
    assert ";" in refusal.value.what, "a refusal says what to write instead"
    assert "\n" not in refusal.value.what


def test_a_refusal_names_the_field_inside():
    @dataclass
    class Inner:
        raw: list[bytes]

    @dataclass
    class Outer:
        inner: Inner

    with pytest.raises(NoJsonForm) as refusal:
        schema_of(dict[str, Outer])
    assert refusal.value.path == "[].inner.raw[]"


def test_a_default_must_be_of_its_type():
    with pytest.raises(NoJsonForm, match=r"default None, which is not of its type; write `… \| None`"):
        schema_of(dataclass(type("Sloppy", (), {"__annotations__": {"a": str}, "a": None})))


PROGRAM = """
import sys
from dataclasses import dataclass
from typing import Literal
from bridle.tools import tool
from bridle.tools.schema.json_form import to_json_text

@dataclass
class Trip:
    to: Literal["b", "a", "c"]
    tags: frozenset[str] = frozenset({"x", "yy", "zzz", "w"})

@tool
def plan(trips: list[Trip], home: Trip, kinds: set[str], note: str | None = None) -> str:
    "Plan."

print(plan.spec.parameters)
print(to_json_text({"b": {"red", "green", "blue"}, "a": {1, 2}}))
"""


def test_the_text_is_the_same_in_every_process():
    seen = {
        subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True, text=True, check=True,
        ).stdout
        for seed in ("0", "1", "42")
    }  # fmt: skip
    assert len(seen) == 1
    assert '{"b":["blue","green","red"],"a":[1,2]}' in seen.pop()
