"""Values that fit a schema."""

from typing import Any

import jsonschema_rs
import msgspec
import pytest

from bridle.sim.responder.sample_values import fill_schema

TREE = {
    "$defs": {
        "node": {
            "type": "object",
            "properties": {
                "name": {"type": "string"},
                "left": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]},
                "children": {"type": "array", "items": {"$ref": "#/$defs/node"}},
            },
            "required": ["name", "left", "children"],
            "additionalProperties": False,
        }
    },
    "$ref": "#/$defs/node",
}
SCHEMAS = [
    {"type": "object"},
    {"type": "object", "properties": {}, "additionalProperties": False},
    {"type": "string", "minLength": 20, "maxLength": 25},
    {"type": "string", "maxLength": 3},
    {"type": "string", "format": "email"},
    {"type": ["null", "integer"], "minimum": 7},
    {"type": "integer", "exclusiveMinimum": 3, "maximum": 9},
    {"type": "integer", "maximum": -5},
    {"type": "integer", "minimum": 10, "multipleOf": 7},
    {"type": "number", "exclusiveMaximum": 0},
    {"const": {"a": [1]}},
    {"enum": [3, "four"]},
    {"type": "array", "items": {"type": "integer"}, "minItems": 3, "uniqueItems": True},
    {
        "type": "array",
        "prefixItems": [{"type": "string"}, {"type": "boolean"}],
        "minItems": 2,
        "items": False,
    },
    {"type": "array", "maxItems": 0},
    {
        "oneOf": [
            {"type": "null"},
            {"type": "object", "required": ["x"], "properties": {"x": {"type": "number"}}},
        ]
    },
    {
        "allOf": [
            {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]},
            {"properties": {"b": {"type": "integer"}}, "required": ["b"]},
        ]
    },
    {"type": "object", "minProperties": 2, "additionalProperties": {"type": "integer"}},
    {
        "type": "object",
        "properties": {"when": {"type": "string", "format": "date"}},
        "required": ["when", "extra"],
    },
    TREE,
]


@pytest.mark.parametrize("schema", SCHEMAS, ids=lambda schema: str(schema)[:60])
@pytest.mark.parametrize(
    "about", ["", "Name: Ada Lovelace, 36 years, in London. x is 5", '{"a": 1, "b": "no", "left": 3}']
)
def test_what_is_built_fits(schema, about):
    value = msgspec.json.decode(fill_schema(msgspec.json.encode(schema).decode(), about, "An answer."))
    assert jsonschema_rs.is_valid(schema, value, validate_formats=True), value


def fill_instance(properties: dict[str, Any], about: str, answer: str = "") -> object:
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return msgspec.json.decode(fill_schema(msgspec.json.encode(schema).decode(), about, answer))


def test_what_was_said_is_used_by_name():
    properties = {"first_name": {"type": "string"}, "age": {"type": "integer"}, "member": {"type": "boolean"}}
    assert fill_instance(properties, "First name: Ada, age is 36; member = yes") == {
        "first_name": "Ada",
        "age": 36,
        "member": True,
    }


def test_objects_in_results_are_known_and_the_last_one_wins():
    about = 'Look.\n{"city": "Oslo", "degrees": 3}\n{"degrees": 4}'
    assert fill_instance({"city": {"type": "string"}, "degrees": {"type": "number"}}, about) == {
        "city": "Oslo",
        "degrees": 4,
    }


def test_numbers_are_given_out_in_order_and_the_answer_fills_what_tells():
    properties = {"low": {"type": "number"}, "high": {"type": "number"}, "summary": {"type": "string"}}
    assert fill_instance(properties, "between 3.5 and 12", "Mild.") == {
        "low": 3.5,
        "high": 12,
        "summary": "Mild.",
    }


def test_what_stands_in_quotation_marks_after_a_name_is_its_value():
    assert fill_instance(
        {"search_term": {"type": "string"}}, 'Use it with search_term "red shoes", please'
    ) == {"search_term": "red shoes"}


def test_numbers_of_every_length_can_be_read():
    assert fill_instance(
        {"a": {"type": "integer"}, "b": {"type": "number"}}, f"007 and {'9' * 5000} and 2.50"
    ) == {
        "a": 7,
        "b": 2.5,
    }


def test_where_nothing_is_required_what_can_be_told_is():
    schema = '{"type":"object","properties":{"age":{"type":"integer"},"name":{"type":"string"}}}'
    assert msgspec.json.decode(fill_schema(schema, "here is John Smith, who is 42")) == {
        "age": 42,
        "name": "John Smith",
    }
    assert (
        msgspec.json.decode(
            fill_schema('{"type":"object","properties":{"age":{"type":"integer"}},"required":[]}')
        )
        == {}
    )


def test_a_schema_that_is_none_still_gets_something():
    assert msgspec.json.decode(fill_schema('{"type": "object", "required": "x", "properties": 3}')) == {}
