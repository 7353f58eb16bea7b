"""Schemas from outside are refused before the work on them begins, with one line; useful ones are not."""

import json
import time
import tracemalloc
from typing import Any

import pytest

from bridle import Agent
from bridle.core.calls.argument_matching import SchemaValue, list_members
from bridle.core.calls.validation import ArgumentProblem, check_arguments
from bridle.providers.schema.compiler import compile_schema, find_dialect
from bridle.tools.external import external_tool
from bridle.values.errors import BadTool, MisuseError
from bridle.values.request import ToolSpec
from bridle.values.schema_limits import (
    APPLIED_MAX,
    CHARACTERS_MAX,
    NESTING_MAX,
    REFERENCES_MAX,
    STEPS_MAX,
    VALUES_MAX,
    check_schema_limits,
    count_validation_steps,
)
from tests.suite.growth import assert_growth, measure_slowness


def make_doubling_schema(keyword, levels):
    """2 kB of definitions that refer twice to the next."""
    defs = {f"d{n}": {keyword: [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(levels)}
    return {
        "type": "object",
        "properties": {"x": {"$ref": "#/$defs/d0"}},
        "$defs": {**defs, f"d{levels}": {"type": "string"}},
    }


@pytest.mark.parametrize("keyword", ["allOf", "anyOf", "oneOf"])
def test_definitions_that_refer_twice_to_the_next_are_refused_at_once(keyword):
    schema = make_doubling_schema(keyword, 30)
    text = json.dumps(schema)
    assert len(text) < 3_000
    with pytest.raises(BadTool, match="combines more than 50,000 schemas"):
        external_tool("t", "", schema)
    with pytest.raises(BadTool, match="combines more than 50,000 schemas"):
        compile_schema(text, find_dialect("openai_strict"))
    with pytest.raises(MisuseError, match="combines more than 50,000 schemas"):
        Agent("sim:", output=schema)
    found = check_arguments(ToolSpec(name="t", description="", parameters=text), '{"x": {}}')
    assert isinstance(found, ArgumentProblem) and found.kind == "broken_tool"


CASES = {
    "characters": ({"description": "x" * CHARACTERS_MAX}, "characters; the limit"),
    "values": ({"enum": list(range(VALUES_MAX))}, f"more than {VALUES_MAX:,} values"),
    "number": ({"minimum": 10**400}, "a number of more than"),
    "references": (
        {
            "properties": {f"p{n}": {"$ref": f"#/$defs/d{n}"} for n in range(REFERENCES_MAX + 1)},
            "$defs": {f"d{n}": True for n in range(REFERENCES_MAX + 1)},
        },
        "references to 1,001 schemas",
    ),
    "combinations": (make_doubling_schema("allOf", 20), f"combines more than {APPLIED_MAX:,}"),
}


FIELDS = {"type": "object", "properties": {f"p{n}": {"type": "string"} for n in range(3_000)}}
REFERRING: dict[str, Any] = {
    "to the root": {**FIELDS, "$defs": {f"d{n}": {"items": {"$ref": "#"}} for n in range(900)}},
    "to a definition": {
        "type": "object",
        "properties": {f"f{n}": {"$ref": "#/$defs/wide"} for n in range(900)},
        "$defs": {"wide": FIELDS},
    },
    "through combinations": {
        "type": "object",
        "properties": {f"f{n}": {"anyOf": [{"$ref": "#/$defs/all"}, {}]} for n in range(900)},
        "$defs": {"wide": FIELDS, "all": {"allOf": [{"$ref": "#/$defs/wide"}]}},
    },
    "in a cycle": {
        "type": "object",
        "properties": {"f": {"$ref": "#/$defs/d0"}},
        "$defs": {
            **{f"d{n}": {"anyOf": [{"$ref": f"#/$defs/d{(n + 1) % 120}"}]} for n in range(1, 120)},
            "d0": {"anyOf": [{"$ref": "#/$defs/d1"}, FIELDS]},
        },
    },
    "through an address": {
        "type": "object",
        "properties": {f"f{n}": {"$ref": "http://x/wide"} for n in range(900)},
        "$defs": {"wide": {**FIELDS, "$id": "http://x/wide"}},
    },
    "under many spellings": {
        "type": "object",
        "allOf": [
            {
                "$ref": "#/"
                + "".join(f"%{ord(c):02x}" if n >> at & 1 else c for at, c in enumerate("$defs/wide"))
            }
            for n in range(900)
            if not n >> 5 & 1
        ],
        "$defs": {"wide": FIELDS},
    },
}


@pytest.mark.parametrize("case", REFERRING)
def test_many_references_to_many_fields_end_in_bounded_time(case):
    """Undeclared fields are rejected by a list of the fields at each reference: millions of them."""
    text = json.dumps(REFERRING[case])
    assert len(text) < 200_000
    limit, began = 1.0 * measure_slowness(), time.process_time()
    found = check_arguments(ToolSpec(name="t", description="", parameters=text), '{"f0": {"p1": 3}}')
    assert time.process_time() - began < limit
    assert isinstance(found, ArgumentProblem)
    if case != "under many spellings":  # one list
        with pytest.raises(BadTool, match="lists more than 100,000 fields"):
            external_tool("t", "", REFERRING[case])


@pytest.mark.parametrize("case", CASES)
def test_each_limit_is_checked(case):
    schema, words = CASES[case]
    with pytest.raises(ValueError, match=words) as raised:
        check_schema_limits(schema, len(json.dumps(schema)))
    assert "\n" not in str(raised.value)


def test_nesting_has_a_limit():
    schema = {"type": "string"}
    for _ in range(NESTING_MAX):
        schema = {"not": schema}
    with pytest.raises(ValueError, match=f"nested more than {NESTING_MAX} levels"):
        check_schema_limits(schema)


@pytest.mark.parametrize("levels", [5, 10])
def test_shared_and_recursive_definitions_of_ordinary_schemas_are_accepted(levels):
    node = {"type": "object", "properties": {"left": {"$ref": "#"}, "right": {"$ref": "#"}}}
    for schema in (node, make_doubling_schema("anyOf", levels)):
        check_schema_limits(schema, len(json.dumps(schema)))


def test_the_measurement_is_linear():
    def prepare(count):
        chain = {
            f"d{n}": {"properties": {"a": {"$ref": f"#/$defs/d{n + 1}"}, "b": {"$ref": f"#/$defs/d{n + 1}"}}}
            for n in range(count)
        }
        schema = {"$defs": {**chain, f"d{count}": True}}
        return lambda: [check_schema_limits(schema) for _ in range(5)]

    assert_growth(prepare, 150, 900, 20.0)


def test_errors_of_a_recursive_union_are_not_listed_when_that_is_exponential():
    """A validator lists the errors of both branches at each level: 3 ** 40 of them."""
    branch = [
        {
            "type": "object",
            "required": ["op"],
            "properties": {"op": {"const": op}, "x": {"$ref": "#/$defs/a"}},
        }
        for op in ("and", "or")
    ]
    schema = {
        "type": "object",
        "properties": {"x": {"$ref": "#/$defs/a"}},
        "$defs": {"a": {"oneOf": [*branch, {"const": 1}]}},
    }
    value: Any = 1
    wrong = 1
    for _ in range(40):
        value = {"op": "or", "x": value}
    wrong = json.loads(json.dumps(value).replace("1}", "2}", 1))
    spec = ToolSpec(name="t", description="", parameters=json.dumps(schema))
    assert check_arguments(spec, json.dumps({"x": value})) == {"x": value}
    found = check_arguments(spec, json.dumps({"x": wrong}))
    assert isinstance(found, ArgumentProblem) and found.kind == "mismatch"
    assert "too complex for the errors to be listed" in found.text
    assert count_validation_steps(schema, {"x": wrong}) > STEPS_MAX


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"prefixItems": [{"type": "string"}] * 20_000}, [1] * 20_000),
        (
            {"patternProperties": {f"a{n}": {"type": "string"} for n in range(20_000)}},
            {f"a{n}": 1 for n in range(20_000)},
        ),
        ({"anyOf": [{"type": "string"}] * 20_000, "items": {"$ref": "#"}}, [[1] * 5_000]),
    ],
    ids=["items", "patterns", "recursion"],
)
def test_a_wide_schema_and_a_wide_value_are_counted_up_to_the_limit_only(schema, value):
    """Their product is 400 million steps, which are neither made nor kept."""
    tracemalloc.start()
    try:
        assert count_validation_steps(schema, value) == STEPS_MAX + 1
        assert tracemalloc.get_traced_memory()[1] < 100_000_000
    finally:
        tracemalloc.stop()


def test_errors_that_each_hold_a_large_value_are_not_listed():
    """A validator makes 3,000 errors at once, each with a copy of the whole value: 33 seconds."""
    names = [f"p{number}" for number in range(3_000)]
    schema = {"type": "object", "properties": {"x": {"type": "object", "required": names}}}
    spec = ToolSpec(name="t", description="", parameters=json.dumps(schema))
    value = {"x": {f"a{number}": [1] * 10 for number in range(1_000)}}
    began = time.process_time()
    found = check_arguments(spec, json.dumps(value))
    assert isinstance(found, ArgumentProblem) and "too complex for the errors" in found.text
    assert time.process_time() - began < 2 * measure_slowness()
    few = check_arguments(spec, json.dumps({"x": {}}))
    assert isinstance(few, ArgumentProblem) and "missing field `x.p0`" in few.text


def test_a_pattern_for_names_cannot_backtrack_without_end():
    """`re` would need 2 ** 40 steps for this name."""
    schema = {"patternProperties": {"(a+)+$": {"default": 1}}}
    name = "a" * 40 + "!"
    assert dict(list_members(schema, SchemaValue({name: 1}, (schema,))))[name].value == 1
