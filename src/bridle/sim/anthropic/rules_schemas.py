"""Rules about schemas that are compiled: those of strict tools and of answers.

An answer's schema is in `output_config.format`, or in `output_format`, which older clients send.
"""

from collections.abc import Iterator

from bridle.sim.claude.schema_rules import PlacedSchema, make_schema_rules
from bridle.sim.rules.engine import RawRequest
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


FORMAT_RULES = make_schema_rules(
    rule,
    _list_answer_schemas,
    _list_strict_schemas,
    evidence={
        "tools-optional-most": "S",
        "tools-unions-most": "S",
        "tool-schema-circle": "S",
        "format-closed": "S",
        "format-bounds": "S",
        "format-circle": "S",
    },
)
