"""Rules about schemas that are compiled: those of strict tools and of answers.

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
    find_bound,
    find_circle,
    find_many_optional,
    find_many_unions,
    find_open_object,
)
from bridle.sim.rules.engine import RawRequest, RuleFinding
from bridle.sim.rules.raw_request import as_mapping, field

from .request import custom_tools, rule


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


FORMAT_RULES = (
    rule("tools-optional-most", _check_tools_optional_most, OPTIONAL_MESSAGE, evidence="S"),
    rule("tools-unions-most", _check_tools_unions_most, UNIONS_MESSAGE, evidence="S"),
    rule("tool-schema-circle", _check_tool_schema_circle, CIRCULAR_MESSAGE, evidence="S"),
    rule("format-closed", _check_format_closed, OPEN_MESSAGE, evidence="S"),
    rule("format-bounds", _check_format_bounds, BOUND_MESSAGE, evidence="S"),
    rule("format-circle", _check_format_circle, CIRCULAR_MESSAGE, evidence="S"),
)
