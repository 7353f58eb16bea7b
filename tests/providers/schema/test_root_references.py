"""A schema from outside whose root is a reference: accepted for tools and outputs, on every wire."""

import json

import pytest

from bridle import Agent, MisuseError
from bridle.errors import BadTool
from bridle.providers.catalogue import find_model
from bridle.testing import FakeClock, ProviderSim
from bridle.tools import RawTool
from bridle.tools.schema.external_schema import parse_parameters_schema, resolve_root

POINT = {
    "type": "object",
    "properties": {"x": {"type": "integer"}},
    "required": ["x"],
    "additionalProperties": False,
}
NODE = {
    "type": "object",
    "properties": {"x": {"type": "integer"}, "next": {"$ref": "#/$defs/node"}},
    "required": ["x"],
    "additionalProperties": False,
}
SCHEMAS = {
    "definition": {"$ref": "#/$defs/point", "$defs": {"point": POINT}},
    "old keyword": {"$ref": "#/definitions/point", "definitions": {"point": POINT}},
    "two steps": {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/point"}, "point": POINT}},
    "escaped": {"$ref": "#/$defs/a~1b%20c", "$defs": {"a/b c": POINT}},
    "recursive": {"$ref": "#/$defs/node", "$defs": {"node": NODE}},
    "annotated": {
        "$ref": "#/$defs/point",
        "title": "P",
        "description": "A point.",
        "$defs": {"point": POINT},
    },
    "narrowed": {"$ref": "#/$defs/point", "required": ["x", "y"], "$defs": {"point": POINT}},
}
WIRES = [
    "sim:anthropic/claude-sonnet-5-5", "sim:openai/gpt-6.1-sol", "sim:xai/grok-4.7",
    "sim:gemini/gemini-3.8-flash", "sim:bedrock/global.anthropic.claude-sonnet-5-5",
]  # fmt: skip


def make_agent(wire, **options):
    provider = ProviderSim(clock=FakeClock())
    return Agent(provider.model(find_model(wire, environ={})), **options)


@pytest.mark.parametrize("name", [name for name in SCHEMAS if name != "narrowed"])
@pytest.mark.parametrize("wire", WIRES)
def test_tools_and_outputs_take_a_root_reference(wire, name):
    given = []
    plot = RawTool("plot", "Plot it.", SCHEMAS[name], lambda arguments: given.append(arguments) or "ok")
    result = make_agent(wire, tools=[plot]).run_sync('!call plot {"x": 3}')
    assert (result.stop, given) == ("done", [{"x": 3}])
    answer = make_agent(wire, output=SCHEMAS[name]).run_sync("Where is it?")
    assert answer.stop == "done"
    assert isinstance(answer.output["x"], int)


def test_the_definition_is_at_the_top_and_the_others_stay():
    for name, schema in SCHEMAS.items():
        resolved = json.loads(parse_parameters_schema(schema))
        assert resolved["type"] == "object", name
        assert "$ref" not in resolved
    assert resolve_root(POINT) is POINT
    narrowed = resolve_root(SCHEMAS["narrowed"])
    assert narrowed["allOf"] == [{"$ref": "#/$defs/point"}]
    assert narrowed["required"] == ["x", "y"]


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}, "itself"),
        ({"$ref": "#"}, "itself"),
        ({"$ref": "#/$defs/list", "$defs": {"list": {"type": "array"}}}, '"type": "object" at the top'),
    ],
)
def test_a_reference_that_gives_no_object_is_refused_in_one_line(schema, words):
    with pytest.raises(BadTool, match=words) as caught:
        RawTool("plot", "Plot it.", schema, lambda arguments: "ok")
    assert "\n" not in str(caught.value)
    if words == "itself":
        with pytest.raises(MisuseError, match=words):
            Agent("sim:", output=schema)
