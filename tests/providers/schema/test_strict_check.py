"""Schemas that a provider can enforce as they are (`strict`), and schemas that it cannot."""

import json

import pytest

from bridle.providers.schema.compiler import is_strict_ready


def closed_object(**properties):
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


TEXT = {"type": "string"}
LIST = {"type": "array", "items": TEXT}
SELF = {"$ref": "#/$defs/n"}
STRICT = {
    "nothing": closed_object(),
    "every kind": closed_object(a=TEXT, b={"type": ["integer", "null"], "minimum": 1}, c=LIST),
    "nested": closed_object(a=closed_object(b=closed_object(c={"type": "boolean"}))),
    "choices": closed_object(a={"anyOf": [TEXT, {"type": "null"}]}, b={"type": "string", "enum": ["x"]}),
    "references": {**closed_object(a=SELF, b={"$ref": "#"}), "$defs": {"n": closed_object(next=SELF)}},
    "defaults and lengths": closed_object(a={**TEXT, "default": "x", "minLength": 1}),
    "a constant with its type": closed_object(a={"type": "integer", "const": 1}),
    "a pattern": closed_object(a={**TEXT, "format": "date-time", "pattern": "a"}),
    "words about it": {**closed_object(a={**TEXT, "description": "d", "format": "date"}), "title": "T"},
}
LOOSE = {
    "no object": {"type": "array", "items": TEXT},
    "a choice at the root": {"type": "object", "anyOf": [closed_object()]},
    "open": {"type": "object", "properties": {}},
    "optional property": {**closed_object(a=TEXT), "required": []},
    "open inside": closed_object(a={"type": "object", "properties": {}}),
    "any object": closed_object(a={"type": "object", "additionalProperties": TEXT}),
    "all of": closed_object(a={"allOf": [TEXT]}),
    "no two alike": closed_object(a={**LIST, "uniqueItems": True}),
    "patterns of names": {**closed_object(), "patternProperties": {}},
    "anything": closed_object(a={}),
    "a list of anything": closed_object(a={"type": "array"}),
    "unknown format": closed_object(a={**TEXT, "format": "uri"}),
    "format that is no word": closed_object(a={**TEXT, "format": []}),
    "words beside a reference": closed_object(a={"$ref": "#", "description": "d"}),
    "a reference to nowhere": closed_object(a={"$ref": "#/$defs/x"}),
    "a reference to another page": closed_object(a={"$ref": "https://example.com/x"}),
    "a constant without its type": closed_object(a={"const": 1}),
    "one of": closed_object(a={"oneOf": [TEXT]}),
    "a list of anything, said": closed_object(a={"type": "array", "items": {}}),
    "open by name": closed_object(a={**closed_object(), "additionalProperties": True}),
    "unknown type": closed_object(a={"type": "float"}),
    "anything, said": closed_object(a=True),
    "a choice with a reference to nowhere": closed_object(a={"anyOf": [TEXT, {"$ref": "#/$defs/x"}]}),
    "no choices": closed_object(a={"anyOf": []}),
    "too many values": closed_object(a={"type": "string", "enum": [str(n) for n in range(1_001)]}),
}


@pytest.mark.parametrize("name", STRICT)
def test_strict_schemas(name):
    assert is_strict_ready(json.dumps(STRICT[name]))


@pytest.mark.parametrize("name", LOOSE)
def test_schemas_that_are_not_strict(name):
    assert not is_strict_ready(json.dumps(LOOSE[name]))


def test_schemas_nested_without_end_are_not_strict():
    chosen = nested = TEXT
    for _ in range(100):
        chosen = {"anyOf": [chosen]}
    for _ in range(12):
        nested = closed_object(a=nested)
    assert not is_strict_ready(json.dumps(closed_object(a=chosen)))
    assert not is_strict_ready(json.dumps(nested))
    assert not is_strict_ready("{")
