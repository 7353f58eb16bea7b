"""Schemas of answers: `outputConfig.textFormat`, and the model's own field beside it."""

from collections.abc import Iterator, Mapping

import msgspec

from bridle.sim.rules.compiled_schemas import (
    BOUND_MESSAGE,
    CIRCULAR_MESSAGE,
    OPEN_MESSAGE,
    OPTIONAL_MESSAGE,
    UNIONS_MESSAGE,
    PlacedSchema,
    closed_schema,
    find_bound,
    find_circle,
    find_many_optional,
    find_many_unions,
    find_open_object,
    schema_with_definitions,
    schema_with_optional,
    schema_with_unions,
)
from bridle.sim.rules.engine import RawRequest, RuleFinding
from bridle.sim.rules.raw_request import JsonObject, as_mapping, field

from .request import MODEL_ERROR_PREFIX, example, list_tool_specs, model_field, rule, tool, tool_config

SCHEMA_PATH = "output_config.format.schema"
"""The model behind the service names its own field, whichever of the two was sent."""


def find_text_format_schema(body: JsonObject) -> object:
    """The schema that `outputConfig` asks the answer to fit; None when its text is not JSON."""
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


def _check_format_closed(request: RawRequest) -> RuleFinding | None:
    return find_open_object(_list_answer_schemas(request))


def _check_format_bounds(request: RawRequest) -> RuleFinding | None:
    return find_bound(_list_answer_schemas(request))


def _check_format_circle(request: RawRequest) -> RuleFinding | None:
    return find_circle(_list_answer_schemas(request))


def _list_strict_schemas(request: RawRequest) -> Iterator[PlacedSchema]:
    for index, spec in list_tool_specs(request):
        if spec.get("strict") is True:
            yield f"tools.{index}", as_mapping(as_mapping(spec.get("inputSchema")).get("json"))


def _check_optional_most(request: RawRequest) -> RuleFinding | None:
    return find_many_optional((*_list_strict_schemas(request), *_list_answer_schemas(request)))


def _check_unions_most(request: RawRequest) -> RuleFinding | None:
    return find_many_unions((*_list_strict_schemas(request), *_list_answer_schemas(request)))


def _example_with_schema_text(schema: str, **changes: object) -> RawRequest:
    shape = {"type": "json_schema", "structure": {"jsonSchema": {"schema": schema, "name": "answer"}}}
    return example(outputConfig={"textFormat": shape}, **changes)


def _example_with_schema(schema: JsonObject, **changes: object) -> RawRequest:
    return _example_with_schema_text(msgspec.json.encode(schema).decode(), **changes)


def _example_with_model_field(schema: JsonObject) -> RawRequest:
    config = {"format": {"type": "json_schema", "schema": schema}}
    return example(additionalModelRequestFields={"output_config": config})


def _strict_tool_of(schema: JsonObject) -> dict[str, object]:
    return tool_config(tool(strict=True, inputSchema={"json": schema}))


_UNREADABLE = "The value at outputConfig.textFormat.structure.jsonSchema.schema is not a valid JSON schema."
_OPEN = MODEL_ERROR_PREFIX + OPEN_MESSAGE.format(at=SCHEMA_PATH)

FORMAT_RULES = (
    rule(
        "format-schema",
        _check_format_schema,
        _UNREADABLE,
        evidence="K",
        passes=_example_with_schema(closed_schema()),
        offends=_example_with_schema_text("{type: object}"),
        also=(
            (_example_with_schema_text("[]"), _UNREADABLE),
            (example(outputConfig={"textFormat": {"type": "json_schema"}}), _UNREADABLE),
            (example(outputConfig={"effort": "low"}), ""),
        ),
    ),
    rule(
        "format-closed",
        _check_format_closed,
        MODEL_ERROR_PREFIX + OPEN_MESSAGE,
        evidence="S",
        passes=_example_with_schema(closed_schema(inner={"type": "string"})),
        offends=_example_with_schema(closed_schema(inner={"type": "object"})),
        says=_OPEN,
        also=(
            (_example_with_schema({"type": "object", "additionalProperties": {"type": "string"}}), _OPEN),
            (_example_with_model_field({"type": "object"}), _OPEN),
        ),
    ),
    rule(
        "format-bounds",
        _check_format_bounds,
        MODEL_ERROR_PREFIX + BOUND_MESSAGE,
        evidence="S",
        passes=_example_with_schema(closed_schema(age={"type": "integer"})),
        offends=_example_with_schema(closed_schema(age={"type": "integer", "maximum": 1})),
        says=MODEL_ERROR_PREFIX + BOUND_MESSAGE.format(at=SCHEMA_PATH, type="integer", bound="maximum"),
    ),
    rule(
        "format-circle",
        _check_format_circle,
        MODEL_ERROR_PREFIX + CIRCULAR_MESSAGE,
        evidence="F",
        passes=_example_with_schema(schema_with_definitions(a="b", b="")),
        offends=_example_with_schema(schema_with_definitions(a="b", b="a")),
        says=MODEL_ERROR_PREFIX + CIRCULAR_MESSAGE.format(at=SCHEMA_PATH, circle="a -> b -> a"),
        also=(
            (
                _example_with_model_field(schema_with_definitions(a="a")),
                MODEL_ERROR_PREFIX + CIRCULAR_MESSAGE.format(at=SCHEMA_PATH, circle="a -> a"),
            ),
        ),
    ),
    rule(
        "optional-most",
        _check_optional_most,
        MODEL_ERROR_PREFIX + OPTIONAL_MESSAGE,
        evidence="F",
        passes=_example_with_schema(schema_with_optional(24)),
        offends=_example_with_schema(schema_with_optional(25)),
        says=MODEL_ERROR_PREFIX + OPTIONAL_MESSAGE.format(count=25),
        also=(
            (
                _example_with_schema(schema_with_optional(24), **_strict_tool_of(schema_with_optional(1))),
                MODEL_ERROR_PREFIX + OPTIONAL_MESSAGE.format(count=25),
            ),
            (
                _example_with_schema(
                    schema_with_optional(24),
                    **tool_config(tool(inputSchema={"json": dict(schema_with_optional(1))})),
                ),
                "",
            ),
        ),
    ),
    rule(
        "unions-most",
        _check_unions_most,
        MODEL_ERROR_PREFIX + UNIONS_MESSAGE,
        evidence="S",
        passes=_example_with_schema(schema_with_unions(16)),
        offends=_example_with_schema(schema_with_unions(17)),
        says=MODEL_ERROR_PREFIX + UNIONS_MESSAGE.format(count=17),
        also=(
            (
                _example_with_schema(schema_with_unions(16), **_strict_tool_of(schema_with_unions(1))),
                MODEL_ERROR_PREFIX + UNIONS_MESSAGE.format(count=17),
            ),
        ),
    ),
)


# `outputConfig.textFormat`, and the model's own `output_config` among the additional fields.


def find_schema(body: Mapping[str, object]) -> object:
    own = as_mapping(as_mapping(body.get("additionalModelRequestFields")).get("output_config"))
    return find_text_format_schema(body) or as_mapping(own.get("format")).get("schema")
