"""Properties over random types: schema, loader and JSON form agree."""

import dataclasses
import enum
import keyword
import typing
import uuid
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from bridle.core.calls.validation import ArgumentProblem, check_arguments
from bridle.tools.schema.builder import SchemaBuilder
from bridle.tools.schema.document import encode_schema
from bridle.tools.schema.json_form import to_json_form, to_json_text
from bridle.tools.schema.json_types import JsonMismatch
from bridle.values.request import ToolSpec


class Size(enum.Enum):
    SMALL = "s"
    LARGE = "l"
    NONE = 0


class Pair(NamedTuple):
    left: int
    right: str | None = None


class Kind(NamedTuple):
    """A type and how to draw its values."""

    type: Any
    values: st.SearchStrategy


LEAVES = st.sampled_from([
    Kind(str, st.text()),
    Kind(int, st.integers()),
    Kind(float, st.floats(allow_nan=False, allow_infinity=False)),
    Kind(bool, st.booleans()),
    Kind(Size, st.sampled_from(Size)),
    Kind(Literal["a", 1, True], st.sampled_from(["a", 1, True])),
    Kind(date, st.dates()),
    Kind(datetime, st.datetimes(timezones=st.just(UTC))),
    Kind(uuid.UUID, st.uuids()),
    Kind(Decimal, st.decimals(allow_nan=False, allow_infinity=False)),
    Kind(Pair, st.builds(Pair, st.integers(), st.text() | st.none())),
    Kind(Annotated[int, msgspec.Meta(ge=1, le=9)], st.integers(1, 9)),
    Kind(Annotated[str, msgspec.Meta(min_length=2), "a word"], st.text(min_size=2)),
])  # fmt: skip
NAMES = st.text("abcdefgh_", min_size=1, max_size=4).filter(
    lambda name: name.isidentifier() and not keyword.iskeyword(name) and not name.startswith("_")
)


def made_of(kinds):
    return st.one_of(
        kinds.map(lambda kind: Kind(list[kind.type], st.lists(kind.values, max_size=3))),  # type: ignore[name-defined]
        kinds.map(
            lambda kind: Kind(dict[str, kind.type], st.dictionaries(st.text(), kind.values, max_size=3))  # type: ignore[name-defined]
        ),
        kinds.map(lambda kind: Kind(typing.Optional[kind.type], kind.values | st.none())),  # noqa: UP045
        st.lists(kinds, min_size=1, max_size=3).map(
            lambda several: Kind(
                tuple[*(kind.type for kind in several)],  # type: ignore[misc]
                st.tuples(*(kind.values for kind in several)),
            )
        ),
        st.dictionaries(NAMES, kinds, min_size=1, max_size=3).map(dataclass_of),
    )


def dataclass_of(fields):
    made = dataclasses.make_dataclass("Made", [(name, kind.type) for name, kind in fields.items()])
    return Kind(made, st.builds(made, **{name: kind.values for name, kind in fields.items()}))


KINDS = st.recursive(LEAVES, made_of, max_leaves=5)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 12) | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(["", "a", "s", "12", "2026-05-01", "2026-05-01T10:00:00Z", "ab"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["left", "right"]), inner),
    max_leaves=5,
)  # fmt: skip


def tool_for(kind):
    shapes = SchemaBuilder()
    shape = shapes.read_type(kind.type)
    root = {"type": "object", "properties": {"it": shape.schema}, "required": ["it"]}
    return ToolSpec(name="t", parameters=encode_schema(shapes.make_document(root))), shape.load


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_what_a_type_holds_its_schema_accepts_and_its_loader_brings_back(data):
    kind = data.draw(KINDS)
    value = data.draw(kind.values)
    spec, load = tool_for(kind)
    checked = check_arguments(spec, to_json_text({"it": value}))
    assert not isinstance(checked, ArgumentProblem), checked.text
    assert load(checked["it"]) == value
    assert load(to_json_form(value)) == value


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_the_schema_and_the_loader_refuse_the_same(data):
    spec, load = tool_for(data.draw(KINDS))
    value = data.draw(JSON)
    checked = check_arguments(spec, to_json_text({"it": value}))
    try:
        load(value)
    except JsonMismatch:
        loaded = False
    else:
        loaded = True
    assert loaded == (not isinstance(checked, ArgumentProblem))


@settings(max_examples=100, deadline=None)
@given(KINDS)
def test_a_schema_is_said_in_the_same_words_every_time(kind):
    assert tool_for(kind)[0] == tool_for(kind)[0]
