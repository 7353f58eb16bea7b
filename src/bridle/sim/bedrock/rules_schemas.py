"""Rules about answer schemas: `outputConfig.textFormat`, and the model's own `output_config` field."""

from collections.abc import Iterator, Mapping

import msgspec

from bridle.sim.claude.schema_rules import PlacedSchema, make_schema_rules
from bridle.sim.rules.engine import RawRequest, RuleFinding
from bridle.sim.rules.raw_request import JsonObject, as_mapping, field

from .request import MODEL_ERROR_PREFIX, list_tool_specs, model_field, rule

SCHEMA_PATH = "output_config.format.schema"
"""Path in error messages. They come from the model, which names its own field even if the other was sent."""


def find_text_format_schema(body: JsonObject) -> object:
    """Return the schema that `outputConfig` requires of the answer; None if its text is not JSON."""
    shape = as_mapping(as_mapping(as_mapping(body.get("outputConfig")).get("textFormat")).get("structure"))
    text = as_mapping(shape.get("jsonSchema")).get("schema")
    try:
        return msgspec.json.decode(text) if isinstance(text, str) else None
    except msgspec.DecodeError:
        return None


def _list_answer_schemas(request: RawRequest) -> Iterator[PlacedSchema]:
    given = find_text_format_schema(request.body)
    own = as_mapping(model_field(request, "output_config").get("format")).get("schema")
    yield from ((SCHEMA_PATH, as_mapping(schema)) for schema in (given, own) if isinstance(schema, dict))


def _check_format_schema(request: RawRequest) -> RuleFinding | None:
    shape = as_mapping(as_mapping(field(request, "outputConfig")).get("textFormat"))
    wanted = shape.get("type") == "json_schema"
    return {} if wanted and not isinstance(find_text_format_schema(request.body), dict) else None


def _list_strict_schemas(request: RawRequest) -> Iterator[PlacedSchema]:
    for index, spec in list_tool_specs(request):
        if spec.get("strict") is True:
            yield f"tools.{index}", as_mapping(as_mapping(spec.get("inputSchema")).get("json"))


_UNREADABLE = "The value at outputConfig.textFormat.structure.jsonSchema.schema is not a valid JSON schema."

FORMAT_RULES = (
    rule("format-schema", _check_format_schema, _UNREADABLE, evidence="K"),
    *make_schema_rules(
        rule,
        _list_answer_schemas,
        _list_strict_schemas,
        evidence={
            "format-closed": "S",
            "format-bounds": "S",
            "format-circle": "F",
            "optional-most": "F",
            "unions-most": "S",
        },
        prefix=MODEL_ERROR_PREFIX,
    ),
)


# `outputConfig.textFormat`, and the model's own `output_config` among the additional fields.


def find_schema(body: Mapping[str, object]) -> object:
    own = as_mapping(as_mapping(body.get("additionalModelRequestFields")).get("output_config"))
    return find_text_format_schema(body) or as_mapping(own.get("format")).get("schema")
