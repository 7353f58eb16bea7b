"""Schemas of answers: `outputConfig.textFormat`, and the model's own field beside it."""

from collections.abc import Iterator

import msgspec

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
from ._rules_bedrock_converse_shape import MODEL_SAYS, asked, more, offering, rule, specs, tool
from ._rules_reading import Block, field, mapping
from .rules import Asked, Found

AT = "output_config.format.schema"
"""The model behind the service names its own field, whichever of the two was sent."""


def answer_schema(body: Block) -> object:
    """The schema that `outputConfig` asks the answer to fit; None when its text is not JSON."""
    shape = mapping(mapping(mapping(body.get("outputConfig")).get("textFormat")).get("structure"))
    text = mapping(shape.get("jsonSchema")).get("schema")
    try:
        return msgspec.json.decode(text) if isinstance(text, str) else None
    except msgspec.DecodeError:
        return None


def _answers(request: Asked) -> Iterator[Placed]:
    given = answer_schema(request.body)
    own = mapping(more(request, "output_config").get("format")).get("schema")
    yield from ((AT, mapping(schema)) for schema in (given, own) if isinstance(schema, dict))


def _unreadable(request: Asked) -> Found | None:
    shape = mapping(mapping(field(request, "outputConfig")).get("textFormat"))
    wanted = shape.get("type") == "json_schema"
    return {} if wanted and not isinstance(answer_schema(request.body), dict) else None


def _open_object(request: Asked) -> Found | None:
    return find_open_object(_answers(request))


def _bound(request: Asked) -> Found | None:
    return find_bound(_answers(request))


def _circle(request: Asked) -> Found | None:
    return find_circle(_answers(request))


def _strict_tools(request: Asked) -> Iterator[Placed]:
    for index, spec in specs(request):
        if spec.get("strict") is True:
            yield f"tools.{index}", mapping(mapping(spec.get("inputSchema")).get("json"))


def _many_optional(request: Asked) -> Found | None:
    return find_many_optional((*_strict_tools(request), *_answers(request)))


def _many_unions(request: Asked) -> Found | None:
    return find_many_unions((*_strict_tools(request), *_answers(request)))


def _formatted(schema: str, **changes: object) -> Asked:
    shape = {"type": "json_schema", "structure": {"jsonSchema": {"schema": schema, "name": "answer"}}}
    return asked(outputConfig={"textFormat": shape}, **changes)


def _answering(schema: Block, **changes: object) -> Asked:
    return _formatted(msgspec.json.encode(schema).decode(), **changes)


def _answering_to_model(schema: Block) -> Asked:
    config = {"format": {"type": "json_schema", "schema": schema}}
    return asked(additionalModelRequestFields={"output_config": config})


def _strict(schema: Block) -> dict[str, object]:
    return offering(tool(strict=True, inputSchema={"json": schema}))


_UNREADABLE = "The value at outputConfig.textFormat.structure.jsonSchema.schema is not a valid JSON schema."
_OPEN = MODEL_SAYS + OPEN.format(at=AT)

FORMAT_RULES = (
    rule(
        "format-schema",
        _unreadable,
        _UNREADABLE,
        evidence="K",
        passes=_answering(closed()),
        offends=_formatted("{type: object}"),
        also=(
            (_formatted("[]"), _UNREADABLE),
            (asked(outputConfig={"textFormat": {"type": "json_schema"}}), _UNREADABLE),
            (asked(outputConfig={"effort": "low"}), ""),
        ),
    ),
    rule(
        "format-closed",
        _open_object,
        MODEL_SAYS + OPEN,
        evidence="S",
        passes=_answering(closed(inner={"type": "string"})),
        offends=_answering(closed(inner={"type": "object"})),
        says=_OPEN,
        also=(
            (_answering({"type": "object", "additionalProperties": {"type": "string"}}), _OPEN),
            (_answering_to_model({"type": "object"}), _OPEN),
        ),
    ),
    rule(
        "format-bounds",
        _bound,
        MODEL_SAYS + BOUNDED,
        evidence="S",
        passes=_answering(closed(age={"type": "integer"})),
        offends=_answering(closed(age={"type": "integer", "maximum": 1})),
        says=MODEL_SAYS + BOUNDED.format(at=AT, type="integer", bound="maximum"),
    ),
    rule(
        "format-circle",
        _circle,
        MODEL_SAYS + CIRCULAR,
        evidence="F",
        passes=_answering(defining(a="b", b="")),
        offends=_answering(defining(a="b", b="a")),
        says=MODEL_SAYS + CIRCULAR.format(at=AT, circle="a -> b -> a"),
        also=((_answering_to_model(defining(a="a")), MODEL_SAYS + CIRCULAR.format(at=AT, circle="a -> a")),),
    ),
    rule(
        "optional-most",
        _many_optional,
        MODEL_SAYS + OPTIONAL,
        evidence="F",
        passes=_answering(with_optional(24)),
        offends=_answering(with_optional(25)),
        says=MODEL_SAYS + OPTIONAL.format(count=25),
        also=(
            (
                _answering(with_optional(24), **_strict(with_optional(1))),
                MODEL_SAYS + OPTIONAL.format(count=25),
            ),
            (
                _answering(with_optional(24), **offering(tool(inputSchema={"json": dict(with_optional(1))}))),
                "",
            ),
        ),
    ),
    rule(
        "unions-most",
        _many_unions,
        MODEL_SAYS + UNIONS,
        evidence="S",
        passes=_answering(with_unions(16)),
        offends=_answering(with_unions(17)),
        says=MODEL_SAYS + UNIONS.format(count=17),
        also=(
            (_answering(with_unions(16), **_strict(with_unions(1))), MODEL_SAYS + UNIONS.format(count=17)),
        ),
    ),
)
