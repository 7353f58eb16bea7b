"""Validation of call arguments, and the error that the model gets."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bridle.core.calls.validation import PROBLEMS_MAX, ArgumentProblem, check_arguments, explain_unknown_tool
from bridle.values.request import ToolSpec

TRIP = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "minLength": 1},
        "days": {"type": "integer", "minimum": 1, "maximum": 30},
        "unit": {"enum": ["celsius", "fahrenheit"]},
        "start": {"type": "string", "format": "date"},
        "stops": {"type": "array", "items": {"$ref": "#/$defs/Stop"}, "maxItems": 2},
        "payment": {"anyOf": [{"$ref": "#/$defs/Card"}, {"$ref": "#/$defs/Cash"}, {"type": "null"}]},
        "labels": {"type": "object", "propertyNames": {"pattern": "^[a-z]+$"}, "maxProperties": 1},
        "limit": {"type": ["integer", "null"]},
        "room_type": {"type": "string"},
    },
    "required": ["city"],
    "additionalProperties": False,
    "$defs": {
        "Stop": {
            "type": "object",
            "properties": {"name": {"type": "string"}, "next": {"$ref": "#/$defs/Stop"}},
            "required": ["name"],
            "additionalProperties": False,
        },
        "Card": {
            "type": "object",
            "properties": {"kind": {"const": "card"}, "number": {"type": "string"}},
            "required": ["kind", "number"],
            "additionalProperties": False,
        },
        "Cash": {
            "type": "object",
            "properties": {"kind": {"const": "cash"}, "amount": {"type": "number"}},
            "required": ["kind", "amount"],
            "additionalProperties": False,
        },
    },
}
SPEC = ToolSpec(name="plan_trip", parameters=json.dumps(TRIP))


def describe_mismatch(**arguments):
    checked = check_arguments(SPEC, json.dumps(arguments))
    assert isinstance(checked, ArgumentProblem)
    assert checked.kind == "mismatch"
    return checked.text.splitlines()[1:-1]


def test_good_arguments_come_back_as_data():
    given = {
        "city": "Oslo: the capital", "days": 3.0, "unit": "celsius", "start": "2026-05-01",
        "stops": [{"name": "a", "next": {"name": "b"}}], "payment": {"kind": "cash", "amount": 1},
        "limit": None,
    }  # fmt: skip
    assert check_arguments(SPEC, json.dumps(given)) == given


@pytest.mark.parametrize("nothing", ["", " \n", "{}"])
def test_no_arguments_are_an_empty_object(nothing):
    assert check_arguments(ToolSpec(name="now"), nothing) == {}


@pytest.mark.parametrize(("arguments", "lines"), [
    ({}, ["- missing field `city` (string)"]),
    ({"city": "a", "cty": 1}, ["- unknown field `cty`; did you mean `city`?"]),
    ({"city": "a", "roomType": "x"}, ["- unknown field `roomType`; did you mean `room_type`?"]),
    ({"city": "a", "stops": [{"name": "a", "zzzzz": 1}]},
     ["- unknown field `stops[0].zzzzz`; the fields are `name`, `next`"]),
    ({"city": 3}, ["- `city`: expected string, got 3"]),
    ({"city": ""}, ['- `city`: must have at least 1 characters, got ""']),
    ({"city": "a", "days": "3"}, ['- `days`: expected integer, got "3"']),
    ({"city": "a", "days": True}, ["- `days`: expected integer, got true"]),
    ({"city": "a", "days": 0}, ["- `days`: must be at least 1, got 0"]),
    ({"city": "a", "days": 31}, ["- `days`: must be at most 30, got 31"]),
    ({"city": "a", "unit": "Celcius"},
     ['- `unit`: expected "celsius" or "fahrenheit", got "Celcius"; did you mean "celsius"?']),
    ({"city": "a", "start": "1 May"}, ['- `start`: expected a date such as 2026-05-01, got "1 May"']),
    ({"city": "a", "limit": "x"}, ['- `limit`: expected integer or null, got "x"']),
    ({"city": "a", "stops": [{"name": "b", "next": {"nam": "c"}}]},
     ["- missing field `stops[0].next.name` (string)",
      "- unknown field `stops[0].next.nam`; did you mean `name`?"]),
    ({"city": "a", "stops": [{"name": "a"}] * 3},
     ['- `stops`: must have at most 2 items, got [{"name": "a"}, {"name": "a"}, {"name": "a"}]']),
    ({"city": "a", "payment": {"kind": "card", "number": 5}}, ["- `payment.number`: expected string, got 5"]),
    ({"city": "a", "payment": {"kind": "card"}}, ["- missing field `payment.number` (string)"]),
    ({"city": "a", "payment": {"kind": "gold"}}, ['- `payment.kind`: expected "card" or "cash", got "gold"']),
    ({"city": "a", "payment": 3}, ["- `payment`: expected object or null, got 3"]),
    ({"city": "a", "labels": {"A": 1}},
     ['- `labels`: has a key that is not allowed: must match the pattern "^[a-z]+$", got "A"']),
])  # fmt: skip
def test_every_mistake_is_named_with_what_was_expected(arguments, lines):
    assert describe_mismatch(**arguments) == lines


def test_all_mistakes_are_named_at_once_but_not_too_many():
    lines = describe_mismatch(cty="a", days=0, unit="k", start="x", limit="y", stops=3, payment=4)
    assert len(lines) == PROBLEMS_MAX + 1
    assert lines[0] == "- missing field `city` (string)"
    assert lines[-1] == "- and 3 more"
    assert describe_mismatch(**{f"x{number}": 1 for number in range(5_000)})[-1].startswith("- and ")


def test_a_long_value_is_shown_in_part():
    (line,) = describe_mismatch(city="a", days="x" * 10_000)
    assert len(line) < 120
    assert line.endswith("…")


@pytest.mark.parametrize(("arguments", "kind", "words"), [
    ('{"city":"Os', "truncated", "arguments truncated"),
    ('{"city":"Oslo"', "truncated", "arguments truncated"),
    ('{"city":"Oslo","days":tr', "truncated", "arguments truncated"),
    ("[1]", "malformed", "must be a JSON object, not an array"),
    ("null", "malformed", "must be a JSON object, not null"),
    ("3", "malformed", "must be a JSON object, not a number"),
    ('{"city":"a","city":"b"}', "malformed", "give the field `city` twice"),
    ('{"city":"a","stops":[{"name":"a","name":"b"}]}', "malformed", "give the field `name` twice"),
    ('{"city" : "a", "city" : "b"}', "malformed", "give the field `city` twice"),
    ('{"city":NaN}', "malformed", "are not valid JSON"),
    ('{"city":1e999}', "malformed", "are not valid JSON"),
    ('{"city":"a"} and so on', "malformed", "are not valid JSON"),
    ("city=Oslo", "malformed", "are not valid JSON"),
    ('{"city":"\\ud800"}', "malformed", "half of a surrogate pair"),
    ('{"city":' + "[" * 5_000 + "]" * 5_000 + "}", "malformed", "nested too deeply"),
    ('{"city":' + "[" * 300 + "]" * 300 + "}", "malformed", "nested too deeply"),
    ('{"city":' + "9" * 5_000 + "}", "malformed", ""),
])  # fmt: skip
def test_what_is_not_one_complete_json_object_is_never_run(arguments, kind, words):
    problem = check_arguments(SPEC, arguments)
    assert isinstance(problem, ArgumentProblem)
    assert problem.kind == kind
    assert words in problem.text
    assert "othing was run" in problem.text or "nothing was run" in problem.text
    assert "`plan_trip`" in problem.text


def test_a_field_that_is_given_twice_is_rejected_also_if_the_schema_is_not_checked():
    """Rules read one of the two values; the client that runs the call may read the other."""
    loose = ToolSpec(name="bash", parameters='{"type":"object"}', is_checked=False)
    assert check_arguments(loose, '{"command":3,"other":{"a":1}}') == {"command": 3, "other": {"a": 1}}
    for arguments in ('{"command":"rm x","command":"ls"}', '{"at":[{"a":1,"a":2}]}'):
        problem = check_arguments(loose, arguments)
        assert isinstance(problem, ArgumentProblem)
        assert "twice" in problem.text


def test_every_cut_of_a_call_is_a_truncation():
    whole = json.dumps({"city": 'Ösló \\ "x"', "days": 12, "stops": [{"name": "a"}], "limit": None})
    assert not isinstance(check_arguments(SPEC, whole), ArgumentProblem)
    for end in range(1, len(whole)):
        problem = check_arguments(SPEC, whole[:end])
        assert isinstance(problem, ArgumentProblem)
        assert problem.kind == "truncated", whole[:end]


def test_a_broken_schema_is_told_and_does_not_raise():
    problem = check_arguments(ToolSpec(name="odd", parameters='{"type":"objct"}'), "{}")
    assert isinstance(problem, ArgumentProblem)
    assert problem.kind == "broken_tool"
    assert problem.text.startswith("`odd` cannot be called: its schema is broken")


class SchemaServer(BaseHTTPRequestHandler):
    """Answers every request with a schema that accepts everything."""

    def do_GET(self):
        self.server.asked.append(self.path)  # type: ignore[attr-defined]
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_):
        pass


def test_a_schema_can_never_make_the_check_fetch_anything():
    with ThreadingHTTPServer(("127.0.0.1", 0), SchemaServer) as server:
        server.asked = []  # type: ignore[attr-defined]
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}/schema.json"
        spec = ToolSpec(name="far", parameters=json.dumps({"type": "object", "$ref": address}))
        problem = check_arguments(spec, "{}")
        server.shutdown()
    assert (problem.kind, server.asked) == ("broken_tool", [])  # type: ignore[attr-defined]


@pytest.mark.parametrize(("name", "names", "expected"), [
    ("get_wether", ["go", "get_weather"], "There is no tool named `get_wether`. Did you mean `get_weather`?"),
    ("getWater", ["get_water"], "There is no tool named `getWater`. Did you mean `get_water`?"),
    ("fly", ["send", "read"], "There is no tool named `fly`. The tools are `send`, `read`."),
    ("fly", [], "There is no tool named `fly`; there are no tools at all. Answer in words."),
])  # fmt: skip
def test_an_unknown_tool_is_answered_with_the_nearest(name, names, expected):
    assert explain_unknown_tool(name, names) == expected


def test_a_catalogue_is_not_recited():
    words = explain_unknown_tool("z" * 500, [f"tool_{number}" for number in range(500)])
    assert len(words) < 400
    assert "and 488 more" in words


KEYS = st.sampled_from([*TRIP["properties"], "kind", "x"])  # type: ignore[misc]
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.slow
@settings(deadline=None)
@given(st.dictionaries(KEYS, ANYTHING))
def test_any_object_is_either_let_through_unchanged_or_explained(arguments):
    text = json.dumps(arguments)
    checked = check_arguments(SPEC, text)
    if isinstance(checked, ArgumentProblem):
        assert len(checked.text.splitlines()) <= PROBLEMS_MAX + 3
        assert check_arguments(SPEC, text) == checked
    else:
        assert checked == arguments


@settings(deadline=None)
@given(st.text())
@example('{"city":"\x00"}')
@example("\ud800")
@example('{"\ud800":1}')
def test_any_text_is_answered(text):
    checked = check_arguments(SPEC, text)
    assert isinstance(checked, dict | ArgumentProblem)


RAW = {
    "type": "object",
    "properties": {
        "amount": {"type": "integer"},
        "customer": {"type": "object", "properties": {"name": {"type": "string"}}},
        "labels": {"type": "object"},
        "more": {"type": "object", "properties": {"a": {}}, "additionalProperties": True},
        "lines": {"type": "array", "items": {"$ref": "#/$defs/line"}},
    },
    "$defs": {
        "line": {
            "type": "object",
            "properties": {"text": {"type": "string"}, "next": {"$ref": "#/$defs/line"}},
        }
    },
}
DRAFTS = ({}, {"$schema": "http://json-schema.org/draft-07/schema#"})


@pytest.mark.parametrize("draft", DRAFTS)
@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"amuont": 5}, "unknown field `amuont`; did you mean `amount`?"),
        ({"customer": {"nmae": "x"}}, "unknown field `customer.nmae`; did you mean `name`?"),
        ({"lines": [{"txt": "x"}]}, "unknown field `lines[0].txt`; did you mean `text`?"),
        ({"lines": [{"next": {"txt": "x"}}]}, "unknown field `lines[0].next.txt`; did you mean `text`?"),
        ({"labels": {"anything": 1}, "more": {"b": 2}, "lines": [{"next": {"text": "x"}}]}, ""),
    ],
)
def test_a_raw_schema_takes_only_the_fields_it_declares(draft, given, expected):
    spec = ToolSpec(name="pay", parameters=json.dumps({**RAW, **draft}))
    checked = check_arguments(spec, json.dumps(given))
    assert checked == given if not expected else expected in checked.text


@pytest.mark.parametrize("draft", DRAFTS)
@pytest.mark.parametrize("keyword", ["allOf", "anyOf"])
def test_fields_of_schemas_that_apply_together_are_all_known(draft, keyword):
    schema = {
        "type": "object",
        "properties": {"a": {}},
        keyword: [{"properties": {"b": {}}}, {"$ref": "#/$defs/c"}],
        "$defs": {"c": {"properties": {"colour": {}}}},
        **draft,
    }
    spec = ToolSpec(name="mix", parameters=json.dumps(schema))
    assert check_arguments(spec, '{"a": 1, "b": 2, "colour": 3}') == {"a": 1, "b": 2, "colour": 3}
    assert "did you mean `colour`?" in check_arguments(spec, '{"color": 3}').text


def test_a_field_that_two_schemas_describe_may_have_what_either_says():
    schema = {
        "type": "object",
        "properties": {
            "p": {"allOf": [{"$ref": "#/$defs/one"}, {"properties": {"q": {"properties": {"b": {}}}}}]}
        },
        "$defs": {"one": {"properties": {"q": {"properties": {"a": {}}}}}},
    }
    given = {"p": {"q": {"a": 1, "b": 2}}}
    assert check_arguments(ToolSpec(name="mix", parameters=json.dumps(schema)), json.dumps(given)) == given


@pytest.mark.parametrize("word", ["additionalProperties", "unevaluatedProperties", "patternProperties"])
def test_a_schema_that_says_what_becomes_of_other_fields_is_left_alone(word):
    schema = {
        "type": "object",
        "properties": {"a": {}},
        word: {"^x": {}} if word.startswith("pattern") else {},
    }
    spec = ToolSpec(name="open", parameters=json.dumps(schema))
    assert check_arguments(spec, '{"other": 1}') == {"other": 1}
