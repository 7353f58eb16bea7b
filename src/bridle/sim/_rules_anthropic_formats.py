"""Schemas that are compiled: those of strict tools and of answers.

An answer's schema is in `output_config.format`, or in `output_format`, which older clients send.
"""

from collections.abc import Iterator

from ._rules_answer_schema import (
    BOUNDED,
    CIRCULAR,
    OPEN,
    OPTIONAL,
    UNIONS,
    Placed,
    closed,
    defining,
    find_bound,
    find_circle,
    find_many_optional,
    find_many_unions,
    find_open_object,
    with_optional,
    with_unions,
)
from ._rules_anthropic_shape import asked, custom_tools, rule, tool
from ._rules_reading import Block, field, mapping
from .rules import Asked, Found


def _answers(request: Asked) -> Iterator[Placed]:
    yield from (
        (f"{place}.schema", mapping(format_.get("schema")))
        for place, format_ in (
            ("output_config.format", mapping(mapping(field(request, "output_config")).get("format"))),
            ("output_format", mapping(field(request, "output_format"))),
        )
        if "schema" in format_
    )


def _strict_tools(request: Asked) -> Iterator[Placed]:
    for place, item in custom_tools(request):
        if item.get("strict") is True:
            yield place, mapping(item.get("input_schema"))


def _open_object(request: Asked) -> Found | None:
    return find_open_object(_answers(request))


def _bound(request: Asked) -> Found | None:
    return find_bound(_answers(request))


def _circle(request: Asked) -> Found | None:
    return find_circle(_strict_tools(request))


def _circular_answer(request: Asked) -> Found | None:
    return find_circle(_answers(request))


def _many_optional(request: Asked) -> Found | None:
    return find_many_optional((*_strict_tools(request), *_answers(request)))


def _many_unions(request: Asked) -> Found | None:
    return find_many_unions((*_strict_tools(request), *_answers(request)))


def _answering(schema: Block, **changes: object) -> Asked:
    return asked(output_config={"format": {"type": "json_schema", "schema": schema}}, **changes)


def _answering_by_old_name(schema: Block) -> Asked:
    return asked(output_format={"type": "json_schema", "schema": schema})


def _strict(*schemas: Block) -> list[Block]:
    return [tool(f"t{number}", strict=True, input_schema=schema) for number, schema in enumerate(schemas)]


_AT = "output_config.format.schema"
_OPEN = OPEN.format(at=_AT)

FORMAT_RULES = (
    rule(
        "tools-optional-most",
        _many_optional,
        OPTIONAL,
        evidence="S",
        passes=asked(tools=_strict(with_optional(24))),
        offends=asked(tools=_strict(with_optional(24), with_optional(1))),
        says=OPTIONAL.format(count=25),
        also=(
            (asked(tools=[tool(input_schema=with_optional(25))]), ""),
            (_answering(with_optional(25)), OPTIONAL.format(count=25)),
            (_answering(with_optional(23), tools=_strict(with_optional(1))), ""),
            (_answering(with_optional(24), tools=_strict(with_optional(1))), OPTIONAL.format(count=25)),
        ),
    ),
    rule(
        "tools-unions-most",
        _many_unions,
        UNIONS,
        evidence="S",
        passes=asked(tools=_strict(with_unions(16))),
        offends=_answering(with_unions(17)),
        says=UNIONS.format(count=17),
        also=(
            (asked(tools=[tool(input_schema=with_unions(17))]), ""),
            (_answering(with_unions(16), tools=_strict(with_unions(1))), UNIONS.format(count=17)),
            (_answering(closed(a={"anyOf": [closed(**with_unions(16)), {}]})), ""),
        ),
    ),
    rule(
        "tool-schema-circle",
        _circle,
        CIRCULAR,
        evidence="S",
        passes=asked(tools=_strict(defining(a="b", b=""))),
        offends=asked(tools=_strict(defining(a="b", b="a"))),
        says=CIRCULAR.format(at="tools.0.custom", circle="a -> b -> a"),
        also=((asked(tools=[tool(input_schema=defining(a="a"))]), ""),),
    ),
    rule(
        "format-closed",
        _open_object,
        OPEN,
        evidence="S",
        passes=_answering(closed()),
        offends=_answering(closed(inner={"type": "object"})),
        says=_OPEN,
        also=(
            (_answering(closed(inner={"type": "string"})), ""),
            (_answering({"type": "object", "additionalProperties": {"type": "string"}}), _OPEN),
            (_answering(closed(inner={"type": "array", "prefixItems": [{"type": "object"}]})), _OPEN),
            (_answering_by_old_name({"type": "object"}), OPEN.format(at="output_format.schema")),
        ),
    ),
    rule(
        "format-bounds",
        _bound,
        BOUNDED,
        evidence="S",
        passes=_answering(closed(age={"type": "integer"})),
        offends=_answering(closed(age={"type": "integer", "minimum": 1})),
        says=BOUNDED.format(at=_AT, type="integer", bound="minimum"),
        also=(
            (_answering(closed(age={"minimum": 1})), ""),
            (
                _answering_by_old_name({"type": "string", "maxLength": 1}),
                BOUNDED.format(at="output_format.schema", type="string", bound="maxLength"),
            ),
        ),
    ),
    rule(
        "format-circle",
        _circular_answer,
        CIRCULAR,
        evidence="S",
        passes=_answering(defining(a="b", b="")),
        offends=_answering(defining(a="a")),
        says=CIRCULAR.format(at=_AT, circle="a -> a"),
        also=(
            (_answering(closed(next={"$ref": "#"})), CIRCULAR.format(at=_AT, circle="# -> #")),
            (
                _answering_by_old_name(defining(a="b", b="a")),
                CIRCULAR.format(at="output_format.schema", circle="a -> b -> a"),
            ),
        ),
    ),
)
