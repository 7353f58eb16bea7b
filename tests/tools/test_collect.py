"""Tools from types and from raw JSON Schema, and the collecting of tools of every kind."""

from typing import TypedDict

import msgspec
import pytest

from bridle.ports.run_context import RunContext
from bridle.tools import FunctionTool, RawTool, TypedTool, tool
from bridle.tools.collect_tools import collect_compensations, collect_tools
from bridle.tools.schema.json_types import JsonMismatch
from bridle.values.errors import BadTool
from bridle.values.message import Text
from bridle.values.request import ToolSpec
from tests.tools.tool_calls import run, schema


@tool
def known() -> None:
    pass


def missing(x):
    pass


class Booking(TypedDict):
    """A room for some nights."""

    city: str
    nights: int


def test_a_tool_from_a_type():
    def book(booking: Booking, call: RunContext) -> str:
        return f"{booking['nights']} in {booking['city']} for {call.session}"

    made = TypedTool(Booking, run=book, name="book", effect="write")
    assert (made.spec.name, made.spec.description, made.spec.effect) == (
        "book",
        "A room for some nights.",
        "write",
    )
    assert schema(made)["required"] == ["city", "nights"]
    assert run(made, city="Rome", nights=2) == "2 in Rome for s1"
    with pytest.raises(JsonMismatch, match="`nights`"):
        run(made, city="Rome", nights="2")
    with pytest.raises(BadTool, match="tool `list`: its type has no fields; use a dataclass"):
        TypedTool(list[int], run=print)
    with pytest.raises(BadTool, match="tool `Bad`: field `a` is a `bytes`"):
        TypedTool(msgspec.defstruct("Bad", [("a", bytes)]), run=print)


def test_a_tool_from_a_raw_schema():
    text = '{"type": "object",  "properties": {"q": {"type": "string"}}}'

    async def find(arguments: dict) -> dict:
        return arguments

    made = RawTool("find", "Finds.", text, find, effect="read")
    assert made.spec.parameters == text, "somebody else's text is sent as it is"
    assert run(made, q="x", more=[1]) == '{"q":"x","more":[1]}'
    from_dict = RawTool("find", "Finds.", {"type": "object", "properties": {}}, find)
    assert from_dict.spec.parameters == '{"type":"object","properties":{}}'


@pytest.mark.parametrize(("given", "said"), [
    ("{", "its schema is not JSON"),
    ("[]", "its schema must be a JSON object"),
    ({"type": "array"}, 'its schema must have "type": "object" at the top'),
    ({"type": "object", "properties": {"a": {"type": "strin"}}}, "JSON Schema at ['properties']['a']"),
    ({"type": "object", "properties": {"a": {"pattern": "("}}}, "is not a JSON Schema"),
    ({"type": "object", "properties": {"a": {"$ref": "#/$defs/none"}}}, "is not a JSON Schema"),
    ({"type": "object", "properties": {"a": {"$ref": "https://example.org/a.json"}}}, "is not a JSON Schema"),
    ({"type": "object", "default": object()}, "its schema is not JSON"),
])  # fmt: skip
def test_a_schema_that_is_none(given, said):
    with pytest.raises(BadTool) as refusal:
        RawTool("t", "", given, print)
    assert said in str(refusal.value)
    assert "\n" not in str(refusal.value)


class Foreign:
    def __init__(self, **spec):
        self.spec = ToolSpec(**spec)

    async def run(self, arguments, context):
        return (Text(text="ran"),)


def test_collecting():
    def plain(a: int) -> str:
        return "ran"

    foreign = Foreign(name="foreign")
    found = collect_tools([known, plain, foreign])
    assert list(found) == ["known", "plain", "foreign"]
    assert found["foreign"] is foreign
    assert isinstance(found["plain"], FunctionTool)


@pytest.mark.parametrize(("tools", "said"), [
    ([known, Foreign(name="known")], "tool `known`: two tools have this name"),
    ([Foreign(name="a b")], "not every provider accepts"),
    ([Foreign(name="a", parameters='{"type":"object","required":3}')], "its schema is not a JSON Schema"),
    ([3], "3 is not a tool; pass functions"),
    ([missing], "parameter `x` has no annotation"),
])  # fmt: skip
def test_what_cannot_be_collected(tools, said):
    with pytest.raises(BadTool) as refusal:
        collect_tools(tools)
    assert said in str(refusal.value)


class Hotel:
    def __init__(self):
        self.freed = []

    def free(self, room: int) -> str:
        """Free it."""
        self.freed.append(room)
        return "free"

    @tool(effect="write", compensate=free)
    def book(self, room: int) -> str:
        """Book it."""
        return "booked"


def test_what_undoes_a_method_is_a_method_of_the_same_object():
    hotel = Hotel()
    (undo,) = collect_compensations(collect_tools([hotel.book])).values()
    run(undo, room=7)
    assert hotel.freed == [7]


def test_what_undoes_must_be_fit_for_it_before_anything_runs():
    def undone_by(name, undo):
        return tool(lambda: None, name=name, effect="write", compensate=undo)

    def back(room: int) -> None: ...

    first = back

    def back(room: int) -> None: ...  # type: ignore[no-redef]

    with pytest.raises(BadTool, match="a different compensation named"):
        collect_tools([undone_by("one", first), undone_by("two", back)])
    assert set(collect_compensations(collect_tools([undone_by("one", back), undone_by("two", back)]))) == {
        "back"
    }
    with pytest.raises(BadTool, match="annotation"):
        collect_tools([undone_by("one", lambda room: None)])
    with pytest.raises(BadTool, match="unbound method"):
        collect_tools([undone_by("one", Hotel.free)])
    nameless = [undone_by("one", lambda: None), undone_by("two", lambda: None)]
    assert set(collect_compensations(collect_tools(nameless))) == {"undo_one", "undo_two"}
