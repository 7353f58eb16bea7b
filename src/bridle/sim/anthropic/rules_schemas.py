"""Schemas that are compiled: those of strict tools and of answers.

An answer's schema is in `output_config.format`, or in `output_format`, which older clients send.
"""

from collections.abc import Iterator

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

from .request import custom_tools, example, rule, tool


def _list_answer_schemas(request: RawRequest) -> Iterator[PlacedSchema]:
    yield from (
        (f"{place}.schema", as_mapping(format_.get("schema")))
        for place, format_ in (
            ("output_config.format", as_mapping(as_mapping(field(request, "output_config")).get("format"))),
            ("output_format", as_mapping(field(request, "output_format"))),
        )
        if "schema" in format_
    )


def _list_strict_schemas(request: RawRequest) -> Iterator[PlacedSchema]:
    for place, item in custom_tools(request):
        if item.get("strict") is True:
            yield place, as_mapping(item.get("input_schema"))


def _check_format_closed(request: RawRequest) -> RuleFinding | None:
    return find_open_object(_list_answer_schemas(request))


def _check_format_bounds(request: RawRequest) -> RuleFinding | None:
    return find_bound(_list_answer_schemas(request))


def _check_tool_schema_circle(request: RawRequest) -> RuleFinding | None:
    return find_circle(_list_strict_schemas(request))


def _check_format_circle(request: RawRequest) -> RuleFinding | None:
    return find_circle(_list_answer_schemas(request))


def _check_tools_optional_most(request: RawRequest) -> RuleFinding | None:
    return find_many_optional((*_list_strict_schemas(request), *_list_answer_schemas(request)))


def _check_tools_unions_most(request: RawRequest) -> RuleFinding | None:
    return find_many_unions((*_list_strict_schemas(request), *_list_answer_schemas(request)))


def _example_with_schema(schema: JsonObject, **changes: object) -> RawRequest:
    return example(output_config={"format": {"type": "json_schema", "schema": schema}}, **changes)


def _example_with_old_field(schema: JsonObject) -> RawRequest:
    return example(output_format={"type": "json_schema", "schema": schema})


def _strict_tools_of(*schemas: JsonObject) -> list[JsonObject]:
    return [tool(f"t{number}", strict=True, input_schema=schema) for number, schema in enumerate(schemas)]


_AT = "output_config.format.schema"
_OPEN = OPEN_MESSAGE.format(at=_AT)

FORMAT_RULES = (
    rule(
        "tools-optional-most",
        _check_tools_optional_most,
        OPTIONAL_MESSAGE,
        evidence="S",
        passes=example(tools=_strict_tools_of(schema_with_optional(24))),
        offends=example(tools=_strict_tools_of(schema_with_optional(24), schema_with_optional(1))),
        says=OPTIONAL_MESSAGE.format(count=25),
        also=(
            (example(tools=[tool(input_schema=schema_with_optional(25))]), ""),
            (_example_with_schema(schema_with_optional(25)), OPTIONAL_MESSAGE.format(count=25)),
            (
                _example_with_schema(
                    schema_with_optional(23), tools=_strict_tools_of(schema_with_optional(1))
                ),
                "",
            ),
            (
                _example_with_schema(
                    schema_with_optional(24), tools=_strict_tools_of(schema_with_optional(1))
                ),
                OPTIONAL_MESSAGE.format(count=25),
            ),
        ),
    ),
    rule(
        "tools-unions-most",
        _check_tools_unions_most,
        UNIONS_MESSAGE,
        evidence="S",
        passes=example(tools=_strict_tools_of(schema_with_unions(16))),
        offends=_example_with_schema(schema_with_unions(17)),
        says=UNIONS_MESSAGE.format(count=17),
        also=(
            (example(tools=[tool(input_schema=schema_with_unions(17))]), ""),
            (
                _example_with_schema(schema_with_unions(16), tools=_strict_tools_of(schema_with_unions(1))),
                UNIONS_MESSAGE.format(count=17),
            ),
            (
                _example_with_schema(
                    closed_schema(a={"anyOf": [closed_schema(**schema_with_unions(16)), {}]})
                ),
                "",
            ),
        ),
    ),
    rule(
        "tool-schema-circle",
        _check_tool_schema_circle,
        CIRCULAR_MESSAGE,
        evidence="S",
        passes=example(tools=_strict_tools_of(schema_with_definitions(a="b", b=""))),
        offends=example(tools=_strict_tools_of(schema_with_definitions(a="b", b="a"))),
        says=CIRCULAR_MESSAGE.format(at="tools.0.custom", circle="a -> b -> a"),
        also=((example(tools=[tool(input_schema=schema_with_definitions(a="a"))]), ""),),
    ),
    rule(
        "format-closed",
        _check_format_closed,
        OPEN_MESSAGE,
        evidence="S",
        passes=_example_with_schema(closed_schema()),
        offends=_example_with_schema(closed_schema(inner={"type": "object"})),
        says=_OPEN,
        also=(
            (_example_with_schema(closed_schema(inner={"type": "string"})), ""),
            (_example_with_schema({"type": "object", "additionalProperties": {"type": "string"}}), _OPEN),
            (
                _example_with_schema(
                    closed_schema(inner={"type": "array", "prefixItems": [{"type": "object"}]})
                ),
                _OPEN,
            ),
            (_example_with_old_field({"type": "object"}), OPEN_MESSAGE.format(at="output_format.schema")),
        ),
    ),
    rule(
        "format-bounds",
        _check_format_bounds,
        BOUND_MESSAGE,
        evidence="S",
        passes=_example_with_schema(closed_schema(age={"type": "integer"})),
        offends=_example_with_schema(closed_schema(age={"type": "integer", "minimum": 1})),
        says=BOUND_MESSAGE.format(at=_AT, type="integer", bound="minimum"),
        also=(
            (_example_with_schema(closed_schema(age={"minimum": 1})), ""),
            (
                _example_with_old_field({"type": "string", "maxLength": 1}),
                BOUND_MESSAGE.format(at="output_format.schema", type="string", bound="maxLength"),
            ),
        ),
    ),
    rule(
        "format-circle",
        _check_format_circle,
        CIRCULAR_MESSAGE,
        evidence="S",
        passes=_example_with_schema(schema_with_definitions(a="b", b="")),
        offends=_example_with_schema(schema_with_definitions(a="a")),
        says=CIRCULAR_MESSAGE.format(at=_AT, circle="a -> a"),
        also=(
            (
                _example_with_schema(closed_schema(next={"$ref": "#"})),
                CIRCULAR_MESSAGE.format(at=_AT, circle="# -> #"),
            ),
            (
                _example_with_old_field(schema_with_definitions(a="b", b="a")),
                CIRCULAR_MESSAGE.format(at="output_format.schema", circle="a -> b -> a"),
            ),
        ),
    ),
)
