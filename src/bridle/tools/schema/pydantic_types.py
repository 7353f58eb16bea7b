"""Reads pydantic's types, which have their own schema and validation.

Pydantic is never imported here.  Its types are recognized by their methods, and code that uses them has imported
it, so it is found in `sys.modules`.

Validation is strict, on JSON: a string never becomes a number, but a date may be a string.  Pydantic ignores
unknown fields by default; schemas made here forbid them, unless the model allows them explicitly.
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
    """Has its own `$defs`."""
    check: Callable[[bytes], Any]
    """Validates JSON text; its errors are read by `list_validation_errors`."""


def read_pydantic_type(annotation: Any, *, by_notes: bool = False) -> PydanticType | None:
    """The annotation as a pydantic type; None if it is not one.  `by_notes`: its notes need pydantic."""
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
    """Return the model; raises ValueError for a field given by a name that is not in the schema.

    A model that allows unknown fields may accept a second name for a field (`populate_by_name`,
    `AliasChoices`).  Permission rules check the schema's names only, so other names are rejected.
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
    """The name of a field in pydantic's schema."""
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
    """JSON text in which integral floats are integers: 3.0 becomes 3."""
    return msgspec.json.encode(_integers_from_floats(value))


def list_validation_errors(error: ValueError) -> list[tuple[tuple[str | int, ...], str]]:
    """The path and message of each validation error."""
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
