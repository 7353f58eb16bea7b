"""Schemas that a provider can enforce as they are (`strict`), and schemas that it cannot."""

import json

import pytest

from bridle.providers.schema.compiler import is_strict_ready


def closed(**properties):
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
    "nothing": closed(),
    "every kind": closed(a=TEXT, b={"type": ["integer", "null"], "minimum": 1}, c=LIST),
    "nested": closed(a=closed(b=closed(c={"type": "boolean"}))),
    "choices": closed(a={"anyOf": [TEXT, {"type": "null"}]}, b={"type": "string", "enum": ["x"]}),
    "references": {**closed(a=SELF, b={"$ref": "#"}), "$defs": {"n": closed(next=SELF)}},
    "defaults and lengths": closed(a={**TEXT, "default": "x", "minLength": 1}),
    "a constant with its type": closed(a={"type": "integer", "const": 1}),
    "a pattern": closed(a={**TEXT, "format": "date-time", "pattern": "a"}),
    "words about it": {**closed(a={**TEXT, "description": "d", "format": "date"}), "title": "T"},
}
LOOSE = {
    "no object": {"type": "array", "items": TEXT},
    "a choice at the root": {"type": "object", "anyOf": [closed()]},
    "open": {"type": "object", "properties": {}},
    "optional property": {**closed(a=TEXT), "required": []},
    "open inside": closed(a={"type": "object", "properties": {}}),
    "any object": closed(a={"type": "object", "additionalProperties": TEXT}),
    "all of": closed(a={"allOf": [TEXT]}),
    "no two alike": closed(a={**LIST, "uniqueItems": True}),
    "patterns of names": {**closed(), "patternProperties": {}},
    "anything": closed(a={}),
    "a list of anything": closed(a={"type": "array"}),
    "unknown format": closed(a={**TEXT, "format": "uri"}),
    "format that is no word": closed(a={**TEXT, "format": []}),
    "words beside a reference": closed(a={"$ref": "#", "description": "d"}),
    "a reference to nowhere": closed(a={"$ref": "#/$defs/x"}),
    "a reference to another page": closed(a={"$ref": "https://example.com/x"}),
    "a constant without its type": closed(a={"const": 1}),
    "one of": closed(a={"oneOf": [TEXT]}),
    "a list of anything, said": closed(a={"type": "array", "items": {}}),
    "open by name": closed(a={**closed(), "additionalProperties": True}),
    "unknown type": closed(a={"type": "float"}),
    "anything, said": closed(a=True),
    "a choice with a reference to nowhere": closed(a={"anyOf": [TEXT, {"$ref": "#/$defs/x"}]}),
    "no choices": closed(a={"anyOf": []}),
    "too many values": closed(a={"type": "string", "enum": [str(n) for n in range(1_001)]}),
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
        nested = closed(a=nested)
    assert not is_strict_ready(json.dumps(closed(a=chosen)))
    assert not is_strict_ready(json.dumps(nested))
    assert not is_strict_ready("{")
