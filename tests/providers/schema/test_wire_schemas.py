"""Compiled schemas on every wire: accepted by the provider, no valid value excluded, every loss listed."""

import functools
import json
import os
import random
import subprocess
import sys

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridle.core.calls.validation import ArgumentProblem, check_arguments
from bridle.providers.schema import compiler
from bridle.providers.schema.compiler import (
    all_dialects,
    compile_schema,
    find_dialect,
    is_strict_ready,
    restore_arguments,
)
from bridle.values.errors import BadTool, MisuseError
from bridle.values.request import ToolSpec
from tests.providers.schema.compiled_schemas import compile_for, digest
from tests.providers.schema.schema_rules import (
    RULES,
    as_json_schema,
    messages_strict_request,
    messages_strict_tool,
    walk,
)
from tests.providers.schema.schema_samples import (
    common_reading,
    documents,
    fill_nulls,
    lists_in_lists,
    samples,
    validator,
)
from tests.suite.campaign import scale
from tests.wire.wire import corpus, needs_recordings

ALL = [row.name for row in all_dialects()]
KEEPING = [row.name for row in all_dialects() if not row.is_narrow]
STRICT = [row.name for row in all_dialects() if row.strict]


def compile_to_json(schema, name):
    return json.loads(compile_for(schema, name).text)


def compile_field(schema, name, **more):
    """The compiled form of a required field with this schema."""
    return compile_to_json(make_object({"it": schema}, **more), name)["properties"]["it"]


def make_object(properties, **more):
    return {
        "type": "object", "properties": properties, "required": list(properties),
        "additionalProperties": False, **more,
    }  # fmt: skip


NODE = {
    "type": "object", "additionalProperties": False, "required": ["name"],
    "properties": {"name": {"type": "string"}, "children": {"type": "array", "items": {"$ref": "#/$defs/Node"}}},
}  # fmt: skip
TREE = make_object({"root": {"$ref": "#/$defs/Node"}}, **{"$defs": {"Node": NODE}})


# ── laws, over schemas nobody wrote ─────────────────────────────────────────


def check_compiled(schema, name, chance, count):
    """The compiled schema breaks no rule, accepts all that the source accepts, and its arguments can be restored."""
    row, text = find_dialect(name), json.dumps(schema)
    made = compile_schema(text, row)
    sent = json.loads(made.text)
    assert not list(RULES[made.dialect](sent)), (schema, made)
    assert made.strict == find_dialect(made.dialect).strict
    try:
        source = validator(schema)
    except ValueError:
        return 0  # broken: no arguments can be checked against it, and none are
    judged = validator(as_json_schema(sent) if find_dialect(made.dialect).types == "upper" else sent)
    read = validator(common_reading(schema))
    meant = any("only the named fields" in loss or "; read as " in loss for loss in made.losses)
    flat = any("lists of lists" in loss for loss in made.losses)
    names = {old: new for new, old in made.renamed}
    tried = 0
    for value in samples(schema, chance, count):
        if not source.is_valid(value) or (row.root_object and not isinstance(value, dict)):
            continue
        if (meant and not read.is_valid(value)) or (flat and lists_in_lists(value) > 2):
            continue
        if isinstance(value, dict):
            value = {names.get(name, name): held for name, held in value.items()}
        if made.strict and row.all_required:
            value = fill_nulls(value, sent, sent)
        assert judged.is_valid(value), (schema, made, value)
        assert source.is_valid(json.loads(restore_arguments(json.dumps(value), text, row))), (
            schema,
            made,
            value,
        )
        tried += 1
    return tried


@settings(max_examples=scale(40), deadline=None)
@given(documents(), st.randoms(use_true_random=False))
def test_what_the_source_allows_can_be_written_and_no_rule_is_broken(schema, chance):
    for name in ALL:
        check_compiled(schema, name, chance, count=5)


@settings(max_examples=scale(40), deadline=None)
@given(documents())
def test_a_compiled_schema_is_not_changed_again(schema):
    for name in (*KEEPING, *STRICT):
        once = compile_for(schema, name)
        again = compile_schema(once.text, find_dialect(once.dialect))
        assert again.text == once.text or once.losses, (schema, once, again)
        assert again.strict == once.strict


# ── laws, over recorded tools ───────────────────────────────────────────────

FAMILIES = ("anthropic", "openai-chat", "openai-responses", "gemini", "bedrock-converse")


@functools.cache
def load_recorded_schemas():
    """The distinct schemas of all recorded tools and answers, as text."""
    found = {}
    for family in FAMILIES:
        for recording in corpus(family):
            if recording.request is not None:
                body = json.loads(recording.request.body)
                for schema in list_request_schemas(body):
                    found.setdefault(json.dumps(schema, sort_keys=True), recording.id)
    return sorted(found)


def list_request_schemas(body):
    """The schemas in a request of any family."""
    tools = [tool for tool in body.get("tools") or [] if isinstance(tool, dict)]
    tools += [
        tool["toolSpec"] for tool in (body.get("toolConfig") or {}).get("tools", []) if "toolSpec" in tool
    ]
    for held in list(tools):
        tools += held.get("functionDeclarations") or held.get("function_declarations") or []
    for held in tools:
        held = held.get("function") if isinstance(held.get("function"), dict) else held  # type: ignore[assignment]
        for word in ("input_schema", "parametersJsonSchema", "parameters_json_schema", "parameters"):
            if isinstance(held.get(word), dict) and held.get("type", "function") in ("function", "custom"):
                yield lower_types(held[word])
        if isinstance(held.get("inputSchema"), dict):
            yield held["inputSchema"].get("json", {})
    shapes = [body.get("response_format"), body.get("text"), body.get("output_config"), body]
    for shape in (shape for shape in shapes if isinstance(shape, dict)):
        for word in ("json_schema", "format", "output_format"):
            if isinstance(shape.get(word), dict) and isinstance(shape[word].get("schema"), dict):
                yield shape[word]["schema"]


def lower_types(schema):
    """The schema with type names in lower case; capitals are a spelling of the wire."""
    if isinstance(schema, list):
        return [lower_types(held) for held in schema]
    if not isinstance(schema, dict):
        return schema
    made = {word: lower_types(held) for word, held in schema.items()}
    if isinstance(made.get("type"), str):
        made["type"] = made["type"].lower()
    return made


@needs_recordings
def test_there_are_enough_recorded_tools():
    assert len(load_recorded_schemas()) >= 200


@pytest.mark.parametrize("name", ALL)
def test_every_recorded_tool_goes_to_every_provider(name):
    chance = random.Random(7)
    tried = sum(check_compiled(json.loads(text), name, chance, count=3) for text in load_recorded_schemas())
    assert tried > len(load_recorded_schemas())


@needs_recordings
@pytest.mark.parametrize("name", KEEPING)
def test_acceptable_recorded_tools_are_sent_unchanged(name):
    fine = [text for text in load_recorded_schemas() if not list(RULES[name](json.loads(text)))]
    assert len(fine) > 400
    changed = [compile_for(text, name) for text in fine if compile_for(text, name).text != text]
    assert all("refers to itself" in made.losses[0] for made in changed), "which says nothing"
    assert len(changed) <= 1


@needs_recordings
@pytest.mark.parametrize("name", STRICT)
def test_most_recorded_tools_can_be_strict(name):
    strict = [text for text in load_recorded_schemas() if compile_for(text, name).strict]
    assert len(strict) > 0.9 * len(load_recorded_schemas())
    for text in load_recorded_schemas():
        if not compile_for(text, name).strict:
            assert "not strict" in compile_for(text, name).losses[0]


def strict_functions(family):
    for recording in corpus(family):
        body = json.loads(recording.request.body) if recording.request else {}
        for held in body.get("tools") or []:
            function = held.get("function", held) if isinstance(held, dict) else {}
            if isinstance(function, dict) and function.get("strict") is True and "parameters" in function:
                yield recording, function["parameters"]


@needs_recordings
def test_what_was_accepted_as_strict_is_ready():
    accepted = [
        parameters
        for recording, parameters in strict_functions("openai-chat")
        if recording.status == 200 and recording.host == "openai"
    ]
    assert len(accepted) > 30
    assert all(is_strict_ready(json.dumps(parameters)) for parameters in accepted)


@needs_recordings
@pytest.mark.parametrize(
    ("family", "words"),
    [
        ("openai-chat", "is required to be supplied"),
        ("openai-responses", "is required to be supplied"),
        ("anthropic", "input_schema"),
        ("anthropic", "'additionalProperties' must be explicitly set to false"),
        ("anthropic", "is not supported"),
        ("anthropic", "Circular reference"),
        ("anthropic", "optional parameters"),
        ("anthropic", "Too many strict tools"),
    ],
)
def test_what_was_refused_for_its_schema_breaks_a_rule(family, words):
    """The rules refuse exactly what the providers refused."""
    rule = RULES["openai_strict"] if family != "anthropic" else messages_strict_tool
    refused = [
        [
            schema
            for schema in list_request_schemas(json.loads(recording.request.body))
            if isinstance(schema, dict)
        ]
        for recording in corpus(family)
        if recording.status == 400
        and recording.request
        and words in recording.body.decode("utf-8", "replace")
        if "schema" in recording.body.decode("utf-8", "replace").lower() or "strict" in words
    ]
    refused = [shapes for shapes in refused if shapes]
    assert refused
    for shapes in refused:
        found = [line for schema in shapes for line in rule(schema)] + list(messages_strict_request(shapes))
        assert found, shapes


# ── what is fine is not touched ─────────────────────────────────────────────


@pytest.mark.parametrize("name", KEEPING)
@pytest.mark.parametrize(
    "schema",
    [
        '{ "type":"object",\n "properties":{ "a":{"type":"string","minLength":1.0} } }',
        '{"type":"object","properties":{"a":{"$ref":"#/$defs/A"}},"$defs":{"A":{"type":"null"}}}',
        '{"$schema":"http://json-schema.org/draft-07/schema#","type":"object","properties":{"a":{"x-note":1}}}',
        '{"type":"object","properties":{},"if":{"required":["a"]},"then":{"required":["b"]}}',
    ],
)
def test_an_acceptable_schema_keeps_its_bytes(name, schema):
    if find_dialect(name).references == "inline" and "$ref" in schema:
        pytest.skip("this dialect follows no references, so they are written out")
    made = compile_for(schema, name)
    assert made.text is schema
    assert made.losses == ()


@pytest.mark.parametrize("name", STRICT)
def test_a_strict_schema_keeps_its_bytes(name):
    schema = json.dumps(
        make_object({"a": {"type": "string"}, "b": make_object({"c": {"type": ["integer", "null"]}})}),
        indent=1,
    )
    assert compile_for(schema, name).text is schema
    assert compile_for(schema, name).strict
    assert is_strict_ready(schema, find_dialect(name))


# ── the top ─────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", [name for name in ALL if find_dialect(name).root_object])
@pytest.mark.parametrize(
    "schema",
    [
        True, False, {}, {"type": "string"}, {"type": ["object", "null"]}, {"properties": {"a": {"type": "string"}}},
        {"$ref": "#/$defs/A", "$defs": {"A": make_object({"a": {"type": "string"}})}}, {"enum": [{"a": 1}]},
        {"anyOf": [make_object({"a": {"type": "string"}}), make_object({"b": {"type": "string"}})]}, {"not": {"required": ["a"]}},
        {"allOf": [{"properties": {"a": {"type": "string"}}}, {"properties": {"b": {"type": "integer"}}}]},
        {"type": "array", "items": {"type": "string"}}, {"const": {"a": 1}},
    ],
    ids=str,
)  # fmt: skip
def test_the_root_is_always_an_object(name, schema):
    made = compile_for(schema, name)
    assert json.loads(made.text)["type"] in ("object", "OBJECT")
    assert not list(RULES[made.dialect](json.loads(made.text)))


def test_a_union_at_the_top_becomes_one_object():
    schema = {
        "oneOf": [
            make_object({"kind": {"const": "circle"}, "radius": {"type": "number"}}),
            make_object({"kind": {"const": "square"}, "side": {"type": "number"}}),
        ]
    }
    made = compile_for(schema, "anthropic_strict")
    assert json.loads(made.text) == {
        "type": "object",
        "properties": {
            "kind": {"type": "string", "enum": ["circle", "square"]},
            "radius": {"type": "number"},
            "side": {"type": "number"},
        },
        "required": ["kind"],
        "additionalProperties": False,
    }
    assert made.losses == ("#: oneOf became one object: what only some of its alternatives need is optional",)


def test_a_choice_of_required_fields_at_the_top_is_the_only_thing_lost():
    schema = make_object({"a": {"type": "string"}, "b": {"type": "string"}}, required=[])
    made = compile_for({**schema, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]}, "plain")
    assert json.loads(made.text) == {
        "type": "object", "properties": schema["properties"], "additionalProperties": False,
    }  # fmt: skip
    assert len(made.losses) == 1


def test_refused_names_of_root_fields_are_changed_and_restored():
    names = ["$top", "filter[name]", "filter.name", "ключ", "x" * 70, "_top"]
    schema = make_object(
        {name: {"type": "integer"} for name in names} | {"inner": make_object({"$deep": {"type": "null"}})}
    )
    made = compile_for(schema, "plain")
    sent = json.loads(made.text)["properties"]
    assert list(sent) == ["_top_2", "filter_name_", "filter.name", "_", "x" * 64, "_top", "inner"]
    assert list(sent["inner"]["properties"]) == ["$deep"], "only the top is checked"
    assert json.loads(made.text)["required"] == list(sent)

    written_by_model = json.dumps({name: n for n, name in enumerate(sent)})
    back = json.loads(restore_arguments(written_by_model, json.dumps(schema), find_dialect("plain")))
    assert back == {name: n for n, name in enumerate([*names, "inner"])}


def test_an_answer_may_be_any_shape_where_the_wire_allows_it():
    schema = {"type": "array", "items": {"type": "string"}}
    assert compile_to_json(schema, "gemini_schema_output") == {"type": "ARRAY", "items": {"type": "STRING"}}
    assert compile_for(json.dumps(schema), "gemini_json_output").losses == ()


# ── references ──────────────────────────────────────────────────────────────

PLACES = [
    ("#/$defs/A", {"$defs": {"A": {"type": "integer"}}}),
    ("#/definitions/A", {"definitions": {"A": {"type": "integer"}}}),
    ("#/definitions/A~1B%20C", {"definitions": {"A/B C": {"type": "integer"}}}),
    ("#/properties/other", {}),
    ("#/properties/pair/prefixItems/0", {}),
    ("#word", {"$defs": {"A": {"$anchor": "word", "type": "integer"}}}),
    ("https://example.org/a", {"$defs": {"A": {"$id": "https://example.org/a", "type": "integer"}}}),
    ("#/x-parts/A", {"x-parts": {"A": {"type": "integer"}}}),
]


@pytest.mark.parametrize(("reference", "more"), PLACES, ids=[reference for reference, _ in PLACES])
@pytest.mark.parametrize("name", ALL)
def test_a_reference_leads_to_the_same_shape_wherever_that_stands(name, reference, more):
    schema = make_object(
        {
            "it": {"$ref": reference, "description": "how many"},
            "other": {"type": "integer"},
            "pair": {"type": "array", "prefixItems": [{"type": "integer"}], "items": False},
        },
        **more,
    )
    made = compile_for(schema, name)
    sent = json.loads(made.text)
    judged = validator(as_json_schema(sent) if find_dialect(made.dialect).types == "upper" else sent)
    assert judged.is_valid({"it": 3, "other": 1, "pair": [1]})
    assert not judged.is_valid({"it": "3", "other": 1, "pair": [1]})
    assert not [loss for loss in made.losses if "$ref" in loss]
    assert "how many" in made.text


def test_a_shape_that_contains_itself():
    assert compile_for(TREE, "plain").losses == ()
    assert compile_for(TREE, "openai_strict").strict
    assert compile_to_json(TREE, "openai_strict")["$defs"]["Node"]["properties"]["children"]["anyOf"][0][
        "items"
    ] == {"$ref": "#/$defs/Node"}
    refused = compile_for(TREE, "anthropic_strict")
    assert (refused.strict, refused.dialect) == (False, "plain")
    assert refused.losses[0].startswith("#/properties/root: $ref makes the schema contain itself")

    cut = compile_for(TREE, "gemini_schema")
    assert "$ref" not in cut.text
    assert cut.text.count('"name"') >= 4, "it is written out twice before it is cut"
    assert any("is recursive" in loss for loss in cut.losses)


def test_a_shape_may_contain_itself_only_where_it_can_be_left_out():
    node = {**NODE, "required": ["name", "children"]}
    made = compile_for({**TREE, "$defs": {"Node": node}}, "gemini_json")
    assert json.loads(made.text)["$defs"]["Node"]["required"] == ["name"]
    assert made.losses == ("#/$defs/Node: required no longer names ['children']: they are recursive",)


def test_definitions_are_written_out_unless_they_contain_themselves():
    schema = make_object({"a": {"$ref": "#/$defs/A"}, "b": {"$ref": "#/$defs/A", "minimum": 3}}, **{"$defs": {
        "A": {"type": "integer", "title": "A"}}})  # fmt: skip
    assert compile_to_json(schema, "bedrock")["properties"] == {
        "a": {"type": "integer", "title": "A"},
        "b": {"allOf": [{"type": "integer", "title": "A"}], "minimum": 3},
    }
    assert compile_for(TREE, "bedrock").text == json.dumps(TREE)


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ({"$ref": "https://example.org/elsewhere.json"}, "points outside the schema"),
        ({"$ref": "#/$defs/Missing"}, "points outside the schema"),
        ({"$ref": 3}, "points outside the schema"),
        ({"$ref": "#/properties/it"}, "refers to itself with nothing in between"),
    ],
)
def test_a_reference_that_leads_nowhere_is_listed(schema, why):
    made = compile_for(make_object({"it": schema}), "gemini_schema")
    assert any(why in loss for loss in made.losses)
    assert not list(RULES["gemini_schema"](json.loads(made.text)))


# ── words ───────────────────────────────────────────────────────────────────

FIELDS = [
    ("gemini_schema", {"const": "x"}, {"type": "STRING", "enum": ["x"]}),
    ("gemini_schema", {"type": ["string", "null"]}, {"type": "STRING", "nullable": True}),
    ("gemini_schema", {"anyOf": [{"type": "integer"}, {"type": "null"}], "title": "T", "description": "d"},
     {"type": "INTEGER", "nullable": True, "title": "T", "description": "d"}),
    ("gemini_schema", {"type": ["string", "integer"], "description": "d"},
     {"anyOf": [{"type": "STRING", "description": "d"}, {"type": "INTEGER"}]}),
    ("gemini_schema", {"enum": [1, 2, 3]}, {"type": "INTEGER", "minimum": 1, "maximum": 3}),
    ("gemini_schema", {"type": "integer", "enum": [1, 5]},
     {"type": "INTEGER", "minimum": 1, "maximum": 5, "description": "One of 1, 5"}),
    ("gemini_schema", {"enum": ["a", None]}, {"type": "STRING", "enum": ["a"], "nullable": True}),
    ("gemini_schema", {"enum": ["", "a"]}, {"type": "STRING", "description": 'One of "", "a"'}),
    ("gemini_schema", {"enum": [True, False]}, {"type": "BOOLEAN"}),
    ("gemini_schema", {"type": "string", "format": "date-time"}, {"type": "STRING", "format": "date-time"}),
    ("gemini_schema", {"type": "string", "format": "uri", "description": "where"},
     {"type": "STRING", "description": "where (in the format uri)"}),
    ("gemini_schema", {"type": "integer", "exclusiveMinimum": 0, "exclusiveMaximum": 9.5},
     {"type": "INTEGER", "minimum": 1, "maximum": 9}),
    ("gemini_schema", {"type": "number", "exclusiveMinimum": 0},
     {"type": "NUMBER", "minimum": 0, "description": "More than 0"}),
    ("gemini_schema", {"type": "object"}, {"type": "OBJECT"}),
    ("gemini_schema", {"type": "object", "properties": {}}, {"type": "OBJECT"}),
    ("gemini_schema", {"type": "null"}, {"type": "STRING", "nullable": True}),
    ("gemini_schema", {"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}], "items": False},
     {"type": "ARRAY", "items": {"anyOf": [{"type": "STRING"}, {"type": "INTEGER"}]}, "maxItems": 2}),
    ("gemini_schema", {"type": "object", "additionalProperties": {"type": "integer"}},
     {"type": "OBJECT", "description": 'Other fields like {"type": "integer"}'}),
    ("gemini_schema", {"type": "object", "properties": {"b": {"type": "null"}, "a": {"type": "boolean"}}},
     {"type": "OBJECT", "properties": {"b": {"type": "STRING", "nullable": True}, "a": {"type": "BOOLEAN"}},
      "propertyOrdering": ["b", "a"]}),
    ("gemini_json", {"const": 1}, {"enum": [1]}),
    ("openai_strict", {"oneOf": [{"const": "a", "description": "first"}, {"const": "b"}]},
     {"type": "string", "enum": ["a", "b"], "description": '"a": first'}),
    ("openai_strict", {"allOf": [{"type": "integer", "minimum": 1}, {"maximum": 9}]},
     {"type": "integer", "minimum": 1, "maximum": 9}),
    ("openai_strict", {"allOf": [{"$ref": "#/$defs/A"}], "default": "a"},
     {"type": "string", "description": "A if left out"}),
    ("openai_strict", {"type": "string", "pattern": "(?=a)b", "maxLength": 3},
     {"type": "string", "description": "At most 3 long; matching the pattern (?=a)b"}),
    ("openai_strict", {"type": "integer", "minimum": -(2**53) + 1, "not": {"const": 3}},
     {"type": "integer", "minimum": -(2**53) + 1, "description": 'Must fit not: {"const": 3}'}),
    ("anthropic_strict", {"type": "array", "items": {"type": "string"}, "minItems": 2, "maxItems": 4},
     {"type": "array", "items": {"type": "string"}, "minItems": 1,
      "description": "At least 2 of them; at most 4 of them"}),
    ("anthropic_strict", {"type": "integer", "minimum": 1, "maximum": 2**53 - 1},
     {"type": "integer", "description": "At least 1"}),
    ("anthropic_strict", {"type": "string", "format": "uri"}, {"type": "string", "format": "uri"}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "source", "wanted"), FIELDS, ids=[f"{n}-{s}" for n, s, _ in FIELDS])
def test_a_shape_is_written_with_the_available_keywords(name, source, wanted):
    sent = compile_field(source, name, **{"$defs": {"A": {"type": "string"}}})
    assert sent == wanted
    assert list(sent.get("properties", {})) == list(wanted.get("properties", {}))


@pytest.mark.parametrize(
    ("source", "loss"),
    [
        ({"type": ["string"], "minLength": 2, "not": {}}, "#/properties/it: minLength 2 cannot be expressed; moved to the description"),
        ({"type": "object", "properties": {"a": {"type": "null"}}, "required": ["a"]},
         "#/properties/it: additionalProperties was left out and is now false: only the named fields can be written"),
        ({"minimum": 3}, "#/properties/it: type was left out; read as number"),
        ({"type": "array", "items": {"type": "string"}, "uniqueItems": True},
         "#/properties/it: uniqueItems true cannot be expressed; moved to the description"),
        ({"type": "string", "if": {"minLength": 3}, "then": {"pattern": "^a"}}, "#/properties/it: if is left out"),
        ({"oneOf": [{"type": "string"}, {"type": ["string", "null"]}]},
         "#/properties/it: oneOf became anyOf: more than one may fit"),
        ({"allOf": [{"type": "string", "pattern": "^a"}, {"pattern": "b$"}]},
         "#/properties/it/allOf/1: pattern cannot be combined with another one; left out"),
        ({"type": "integer", "x-unit": "m", "widget": "slider"}, "#/properties/it: widget is left out"),
    ],
)  # fmt: skip
def test_what_is_lost_is_listed_with_its_place(source, loss):
    made = compile_for(make_object({"it": source}), "openai_strict")
    assert made.strict
    assert loss in made.losses


def test_a_union_that_cannot_overlap_loses_nothing():
    shapes = [make_object({"kind": {"const": kind}, kind: {"type": "string"}}) for kind in ("a", "b")]
    for options in (shapes, [{"type": "string"}, {"type": "integer"}]):
        assert compile_for(make_object({"it": {"oneOf": options}}), "openai_strict").losses == ()


@pytest.mark.parametrize(
    "source",
    [
        {}, True, {"description": "anything"}, {"type": "object"}, {"type": "object", "additionalProperties": True},
        {"type": "object", "properties": {"a": {"type": "null"}}, "additionalProperties": {"type": "string"}},
        {"type": "object", "patternProperties": {"^a": {"type": "string"}}, "additionalProperties": False},
        {"type": "array"}, {"type": "array", "prefixItems": [{"type": "string"}]}, {"enum": [{"a": 1}]},
        {"type": "object", "properties": {"a": {"type": "null"}}, "required": ["b"]}, {"type": ["object", "string"]},
    ],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("name", STRICT)
def test_a_strict_dialect_does_not_narrow_what_it_cannot_express(name, source):
    made = compile_for(make_object({"it": source}), name)
    assert not made.strict
    assert made.dialect == find_dialect(name).fallback
    assert made.losses[0].startswith("#/properties/it")
    assert made.losses[0].endswith("so the schema is sent as not strict")


# ── older drafts, and what is no schema ─────────────────────────────────────

OLDER = [
    ({"type": "array", "items": [{"type": "string"}, {"type": "integer"}], "additionalItems": False},
     "http://json-schema.org/draft-07/schema#", ["a", 1], ["a", "b"]),
    ({"type": "integer", "minimum": 3, "exclusiveMinimum": True}, "http://json-schema.org/draft-04/schema#", 4, 3),
    ({"type": "object", "dependencies": {"a": ["b"]}}, "http://json-schema.org/draft-07/schema#",
     {"a": 1, "b": 1}, {"a": 1}),
    ({"type": "object", "dependencies": {"a": {"required": ["b"]}}}, "http://json-schema.org/draft-06/schema#",
     {"b": 1}, {"a": 1}),
    ({"$ref": "#/definitions/S", "maxLength": 1}, "http://json-schema.org/draft-07/schema#", "long", 3),
]  # fmt: skip


@pytest.mark.parametrize(("source", "draft", "good", "bad"), OLDER, ids=[str(source) for source, *_ in OLDER])
@pytest.mark.parametrize("name", KEEPING)
def test_older_drafts_are_written_in_current_keywords(name, source, draft, good, bad):
    schema = make_object({"it": source}, **{"$schema": draft, "definitions": {"S": {"type": "string"}}})
    made = compile_for(schema, name)
    assert not list(RULES[name](json.loads(made.text)))
    assert made.losses == ()
    today = validator({**json.loads(made.text), "$schema": "https://json-schema.org/draft/2020-12/schema"})
    for judged in (validator(schema), today):
        assert judged.is_valid({"it": good})
        assert not judged.is_valid({"it": bad})


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize(
    "source",
    [
        {"type": "any"}, {"type": ["string", "file"]}, {"type": 3}, {"type": []}, {"minimum": "3", "type": "integer"},
        {"enum": "a"}, {"required": True, "type": "string"}, {"properties": {"a": None}}, {"properties": ["a"]},
        {"anyOf": []}, {"items": 3, "type": "array"}, {"maxLength": -1, "type": "string"}, {"description": 3},
        {"required": ["a", "a"], "type": "object"}, {"multipleOf": 0, "type": "number"}, None, "string", 3,
        {"not": {"$ref": "#/nowhere"}, "type": "string"}, {"oneOf": [{"type": "string"}, {"$ref": "#/nowhere"}]},
        {"exclusiveMinimum": True, "type": "integer"}, {"type": "STRING"}, {"dependentRequired": {"a": 3}},
    ],
    ids=str,
)  # fmt: skip
def test_an_invalid_schema_is_still_sent(name, source):
    """One bad tool does not fail the request; its calls fail when their arguments are checked."""
    made = compile_for(make_object({"it": source, "other": {"type": "string"}}), name)
    assert not list(RULES[made.dialect](json.loads(made.text)))
    assert "other" in made.text


@pytest.mark.parametrize(
    ("text", "why"), [("{", "not JSON"), ("", "not JSON"), ("[]", "a JSON object"), ("3", "a JSON object")]
)
def test_text_that_is_not_json_is_an_error_of_the_tool(text, why):
    with pytest.raises(BadTool, match=why):
        compile_for(text, "plain")
    assert not is_strict_ready(text)


# ── sizes ───────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", ALL)
def test_definitions_that_double_do_not_explode(name):
    defined = {
        f"D{n}": make_object({"l": {"$ref": f"#/$defs/D{n + 1}"}, "r": {"$ref": f"#/$defs/D{n + 1}"}})
        for n in range(40)
    }
    schema = make_object({"d": {"$ref": "#/$defs/D0"}}, **{"$defs": {**defined, "D40": {"type": "string"}}})
    made = compile_for(schema, name)
    assert len(made.text) < 600_000
    assert not list(RULES[made.dialect](json.loads(made.text)))


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("levels", [12, 63, 64, 150])
def test_shapes_nested_deep(name, levels):
    schema = {"type": "string"}
    for _ in range(levels):
        schema = make_object({"a": schema})
    made = compile_for(schema, name)
    assert not list(RULES[made.dialect](json.loads(made.text)))
    if levels == 12 and name == "openai_strict":
        assert made.losses[0].startswith("#: schema has 12 levels of nested schemas; the limit is 10")


def test_limits_of_size_are_kept():
    many = make_object({"it": {"type": "string", "enum": [f"value {n}" for n in range(1001)]}})
    assert not compile_for(many, "openai_strict").strict
    assert "1001 values in enums" in compile_for(many, "openai_strict").losses[0]
    long = make_object({"it": {"type": "string", "enum": ["x" * 100 + str(n) for n in range(251)]}})
    assert not is_strict_ready(json.dumps(long))
    assert "characters in one enum" in compile_for(long, "openai_strict").losses[0]


def test_many_alternatives_are_merged_or_dropped():
    listed = {"anyOf": [{"const": f"v{n}"} for n in range(300)]}
    assert len(compile_field(listed, "openai_strict")["enum"]) == 300
    both = {
        "allOf": [
            {"anyOf": [make_object({f"{word}{n}": {"type": "null"}}) for n in range(20)]} for word in "ab"
        ]
    }
    made = compile_for(make_object({"it": both}), "gemini_schema")
    assert any("more than 64 combinations" in loss for loss in made.losses)


# ── together ────────────────────────────────────────────────────────────────


def options(count):
    return json.dumps(make_object({f"f{n}": {"type": "string"} for n in range(count)}, required=[]))


def test_a_schema_with_too_many_optional_fields_is_not_strict():
    assert not compile_schema(options(25), find_dialect("anthropic_strict")).strict


# ── the way back ────────────────────────────────────────────────────────────

SETTINGS = make_object(
    {
        "name": {"type": "string"}, "limit": {"type": "integer"}, "note": {"type": ["string", "null"]},
        "where": {"anyOf": [make_object({"city": {"type": "string"}, "zip": {"type": "string"}}, required=["city"]),
                            make_object({"lat": {"type": "number"}, "lon": {"type": ["number", "null"]}})]},
        "tags": {"type": "array", "items": make_object({"tag": {"type": "string"}}, required=[])},
    },
    required=["name"],
)  # fmt: skip


@pytest.mark.parametrize(
    ("given_by_model", "meant"),
    [
        ({"name": "a", "limit": None, "note": None, "where": None, "tags": None}, {"name": "a", "note": None}),
        ({"name": "a", "limit": 0, "note": "", "where": {"city": "b", "zip": None}, "tags": []},
         {"name": "a", "limit": 0, "note": "", "where": {"city": "b"}, "tags": []}),
        ({"name": "a", "where": {"lat": 1, "lon": None}, "tags": [{"tag": None}, {"tag": "x"}]},
         {"name": "a", "where": {"lat": 1, "lon": None}, "tags": [{}, {"tag": "x"}]}),
        ({"name": None, "limit": None}, {"name": None}),
        ({"name": "a", "extra": {"limit": None}}, {"name": "a", "extra": {"limit": None}}),
    ],
)  # fmt: skip
def test_nulls_that_only_the_rewrite_allowed_are_removed(given_by_model, meant):
    back = restore_arguments(json.dumps(given_by_model), json.dumps(SETTINGS), find_dialect("openai_strict"))
    assert json.loads(back) == meant


def test_a_field_left_out_by_null_passes_the_check_of_arguments():
    spec = ToolSpec(name="set", parameters=json.dumps(SETTINGS))
    arguments = '{"name":"é","limit":null,"note":null,"where":null,"tags":null}'
    assert isinstance(check_arguments(spec, arguments), ArgumentProblem)
    back = restore_arguments(arguments, spec.parameters, find_dialect("openai_strict"))
    assert check_arguments(spec, back) == {"name": "é", "note": None}
    assert "é" in back


@pytest.mark.parametrize(
    "arguments",
    [
        '{"limit":null',
        "",
        "[]",
        "null",
        '{"limit":null,"limit":1}',
        '{"limit":NaN}',
        '{ "name" : "a" }',
        "{" * 5000,
    ],
)
def test_arguments_with_nothing_to_undo_come_back_as_they_are(arguments):
    assert restore_arguments(arguments, json.dumps(SETTINGS), find_dialect("openai_strict")) is arguments


def test_a_null_the_source_forbids_out_of_sight_is_removed_too():
    schema = make_object({"it": {"type": ["string", "null"], "not": {"type": "null"}}}, required=[])
    assert restore_arguments('{"it":null}', json.dumps(schema), find_dialect("openai_strict")) == "{}"


def test_half_a_surrogate_pair_survives_the_way_back():
    back = restore_arguments(
        '{"name":"\\ud83d","limit":null}', json.dumps(SETTINGS), find_dialect("openai_strict")
    )
    assert back == '{"name":"\\ud83d"}'


@pytest.mark.parametrize("name", [name for name in ALL if name != "openai_strict"])
def test_nothing_is_undone_that_was_not_done(name):
    arguments = '{"name": "a", "limit": null}'
    assert restore_arguments(arguments, json.dumps(SETTINGS), find_dialect(name)) is arguments


# ── the same everywhere ─────────────────────────────────────────────────────

EXAMPLES = [
    *(make_object({"it": source}) for _, source, _ in FIELDS), TREE, SETTINGS, *(make_object({"it": held[0]}) for held in OLDER),
]  # fmt: skip


def test_no_process_writes_a_schema_differently():
    code = "import json, sys; from tests.providers.schema.compiled_schemas import digest; print(digest(*json.load(sys.stdin)))"
    digests = {
        subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            input=json.dumps([EXAMPLES, ALL]),
            env={**os.environ, "PYTHONHASHSEED": seed},
        ).stdout.strip()
        for seed in ("1", "2")
    }
    assert digests == {digest(EXAMPLES, ALL)}


def test_a_schema_is_compiled_once_and_not_kept_forever():
    schema = json.dumps(make_object({"only": {"type": "string"}}))
    assert compile_for(schema, "gemini_schema") is compile_for(schema, "gemini_schema")
    assert compiler._compile_cached.cache_info().maxsize == compiler.COMPILED_MAX
    same_name = msgspec.structs.replace(find_dialect("gemini_schema"), types="lower")
    assert compile_schema(schema, same_name).text != compile_for(schema, "gemini_schema").text


# ── the tables, and the rules themselves ────────────────────────────────────


def test_every_dialect_has_rules_and_a_way_out():
    assert set(RULES) == set(ALL)
    for row in all_dialects():
        assert row.about
        assert not row.strict or not find_dialect(row.fallback).strict
    with pytest.raises(MisuseError, match="no schema dialect 'klingon': there are plain, "):
        find_dialect("klingon")


@pytest.mark.parametrize(
    ("name", "schema"),
    [
        ("plain", {"type": "string"}), ("plain", {"type": "object", "anyOf": [{}]}),
        ("plain", make_object({"a b": {}})), ("plain", make_object({"a": {"type": "text"}})), ("plain", make_object({"a": {"$ref": "#/x"}})),
        ("bedrock", make_object({"a": {"$ref": "#/$defs/A"}}, **{"$defs": {"A": {}}})),
        ("anthropic_strict", make_object({"a": {"type": "object"}})), ("anthropic_strict", TREE),
        ("anthropic_strict", make_object({"a": {"type": "integer", "minimum": 1}})),
        ("anthropic_strict", make_object({"a": {"type": "array", "items": {"type": "null"}, "minItems": 2}})),
        ("anthropic_strict", make_object({"a": {"type": "string", "format": "cuid"}})),
        ("anthropic_strict", make_object({"a": {"type": "string", "pattern": "(?=a)"}})),
        ("anthropic_strict", make_object({"a": {"type": "object", "enum": [{}], "additionalProperties": False}})),
        ("anthropic_strict", json.loads(options(25))), ("anthropic_strict", make_object({"a": {"description": "d"}})),
        ("anthropic_strict", make_object({f"f{n}": {"type": ["null", "string"]} for n in range(17)})),
        ("openai_loose", {"type": "object"}), ("openai_loose", make_object({"a": {"type": "array"}})),
        ("openai_loose", {**make_object({}), "not": {}}),
        ("openai_strict", make_object({"a": {"type": "null"}}, required=[])), ("openai_strict", make_object({"a": {}})),
        ("openai_strict", make_object({"a": {"type": "object", "properties": {}, "required": []}})),
        ("openai_strict", make_object({"a": {"type": "string", "format": "uri"}})),
        ("openai_strict", make_object({"a": {"oneOf": [{"type": "null"}], "type": "null"}})),
        ("openai_strict", make_object({"a": {"type": "string", "enum": [1]}})), ("openai_strict", make_object({"a": True})),
        ("openai_strict", make_object({"a": {"$ref": "#/$defs/A", "title": "t"}}, **{"$defs": {"A": {"type": "null"}}})),
        ("openai_strict", functools.reduce(lambda inner, _: make_object({"a": inner}), range(11), {"type": "null"})),
        ("openai_strict", make_object({"a": {"type": "integer", "enum": list(range(1001))}})),
        ("gemini_schema", {"type": "object"}), ("gemini_schema", {"type": "OBJECT", "additionalProperties": False}),
        ("gemini_schema", {"type": "OBJECT", "properties": {}}), ("gemini_schema", {"type": "OBJECT", "required": ["a"]}),
        *(("gemini_schema", {"type": "OBJECT", "properties": {"a": held}}) for held in [
            {}, {"type": "ARRAY"}, {"type": ["STRING"]}, {"type": "INTEGER", "enum": ["1"]},
            {"type": "STRING", "enum": [""]}, {"type": "STRING", "format": "uri"}, {"type": "NULL"},
            {"type": "STRING", "items": {"type": "STRING"}}, {"anyOf": [{"type": "STRING"}], "description": "d"},
            {"type": "STRING", "const": "a"}, {"type": "STRING", "properties": {"b": {"type": "STRING"}}},
        ]),
        ("gemini_json", {**TREE, "$defs": {"Node": {**NODE, "required": ["name", "children"]}}}),
        ("gemini_json", {"type": "string"}), ("gemini_json", make_object({"a": {"const": 1}})),
        ("gemini_json", make_object({"a": {"$ref": "#/$defs/A", "minimum": 1}}, **{"$defs": {"A": {}}})),
    ],
    ids=str,
)  # fmt: skip
def test_each_rule_can_fail(name, schema):
    assert list(RULES[name](schema))
    made = compile_for(schema, name)
    assert not list(RULES[made.dialect](json.loads(made.text)))


def test_no_dialect_is_asked_for_a_word_it_lacks():
    for row in all_dialects():
        if row.is_narrow:
            for schema in EXAMPLES:
                made = compile_schema(json.dumps(schema), row)
                words = {
                    word for _, part in walk(json.loads(made.text)) if isinstance(part, dict) for word in part
                }
                assert not made.strict or words <= {*row.keywords, "$ref", "$defs"}


def test_what_was_said_once_is_said_the_same_way_again():
    """A request of ours that is read again holds schemas that go out as they are."""
    for row in all_dialects():
        for schema in EXAMPLES:
            once = compile_schema(json.dumps(schema), row)
            again = compile_schema(once.text, find_dialect(once.dialect))
            assert row.types == "upper" or again.text == once.text, (row.name, schema)
