"""Types that bring their own schema and their own check: pydantic's.

Pydantic is never imported here.  Whoever annotates with its types has imported it, so
it is recognised by its methods, and found among the loaded modules where more is needed.

Its checks run in strict mode on JSON, where a string never becomes a number but a date
may be a string.  Its models ignore unknown fields unless told otherwise; ours say in the
schema that there are none, except for a model that allows them expressly.
"""

import sys
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec

from .annotations import NoJsonForm
from .document import Schema, map_schema

_PYDANTIC_METHODS = ("__get_pydantic_core_schema__", "__pydantic_validator__")
_DROPPED_KEYWORDS = ("title", "discriminator")


class PydanticType(NamedTuple):
    name: str
    schema: Schema
    """With its own `$defs`."""
    check: Callable[[bytes], Any]
    """From JSON text; raises what `complaint` can read."""


def read_pydantic_type(annotation: Any, *, by_notes: bool = False) -> PydanticType | None:
    """None when it is no such type.  `by_notes`: only what is written around it makes it one."""
    name = str(getattr(annotation, "__name__", "Value"))
    if isinstance(annotation, type) and hasattr(annotation, "model_json_schema"):
        model: Any = annotation
        schema = _describe_schema(model.model_json_schema)
        return PydanticType(
            name, schema, lambda data: _check_field_names(model.model_validate_json(data, strict=True), data)
        )
    if by_notes or any(hasattr(annotation, mark) for mark in _PYDANTIC_METHODS):
        pydantic = sys.modules.get("pydantic")
        if pydantic is not None:
            schema = _describe_schema(lambda: pydantic.TypeAdapter(annotation).json_schema())
            check = pydantic.TypeAdapter(annotation).validate_json
            return PydanticType(name, schema, lambda data: _check_field_names(check(data, strict=True), data))
    return None


def _check_field_names(made: Any, data: bytes) -> Any:
    """What was made; raises ValueError for a field given by another name than the schema has for it.

    A model that allows unknown fields may take a field by a second name (`populate_by_name`,
    `AliasChoices`).  Permission rules know the names of the schema only, so no other name counts.
    """
    waiting: list[tuple[Any, Any]] = [(made, msgspec.json.decode(data))]
    while waiting:
        value, given = waiting.pop()
        fields = getattr(type(value), "model_fields", None)
        if isinstance(given, list) and isinstance(value, list | tuple):
            waiting.extend(zip(value, given, strict=False))
        elif isinstance(given, dict) and isinstance(value, Mapping):
            waiting.extend((value[name], held) for name, held in given.items() if name in value)
        elif isinstance(given, dict) and isinstance(fields, Mapping):
            names = {_schema_name(name, field): name for name, field in fields.items()}
            extra = getattr(value, "model_extra", None)
            for name, held in given.items():
                if name in names:
                    waiting.append((getattr(value, names[name]), held))
                elif extra is not None and name not in extra:
                    raise ValueError(f"unknown field `{name}`; the fields are {', '.join(names)}")
    return made


def _schema_name(name: str, field: Any) -> str:
    """The name that pydantic's own schema has for a field."""
    alias = getattr(field, "validation_alias", None)
    choices = getattr(alias, "choices", None)
    first = choices[0] if choices else alias
    return first if isinstance(first, str) else str(getattr(field, "alias", None) or name)


def _describe_schema(describe: Callable[[], Schema]) -> Schema:
    try:
        return _normalize_schema(describe())
    except _pydantic_errors() as error:
        raise NoJsonForm(
            f"is a type pydantic cannot describe: {_first_line(error)}; use another type"
        ) from None


def _pydantic_errors() -> tuple[type[Exception], ...]:
    pydantic = sys.modules.get("pydantic")
    names = ("PydanticUserError", "PydanticUndefinedAnnotation")
    return tuple(getattr(pydantic, name) for name in names if hasattr(pydantic, name))


def encode_strict_json(value: Any) -> bytes:
    """JSON text in which 3.0 is 3: a number without a fraction is an integer, however it was written."""
    return msgspec.json.encode(_integers_from_floats(value))


def list_validation_errors(error: ValueError) -> list[tuple[tuple[str | int, ...], str]]:
    """Where and what: the errors of a validation in plain words."""
    errors = getattr(error, "errors", None)
    if not callable(errors):
        return [((), str(error))]
    return [(tuple(one["loc"]), str(one["msg"]).removeprefix("Value error, ")) for one in errors()]


def list_unknown_fields(schema: Schema, value: Any) -> list[str]:
    if schema.get("additionalProperties") is not False or not isinstance(value, Mapping):
        return []
    return [name for name in value if name not in schema.get("properties", {})]


def _integers_from_floats(value: Any) -> Any:
    if isinstance(value, float):
        return int(value) if value.is_integer() else value
    if isinstance(value, Mapping):
        return {key: _integers_from_floats(held) for key, held in value.items()}
    return [_integers_from_floats(held) for held in value] if isinstance(value, list | tuple) else value


def _normalize_schema(schema: Schema) -> Schema:
    def change(part: Schema) -> Schema:
        first = {key: part[key] for key in ("type", "description") if key in part}
        kept = first | {key: held for key, held in part.items() if key not in _DROPPED_KEYWORDS}
        if "properties" in kept:
            kept.setdefault("required", [])
            kept.setdefault("additionalProperties", False)
        return kept

    return map_schema(schema, change)


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0].rstrip(".")
