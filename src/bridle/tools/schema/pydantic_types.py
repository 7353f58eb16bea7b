"""Reads pydantic's types, which have their own schema and validation.

Pydantic is never imported here.  Its types are recognized by their methods, and code that uses them has imported
it, so it is found in `sys.modules`.

Validation is strict, on JSON: a string never becomes a number, but a date may be a string.  Pydantic ignores
unknown fields by default; schemas made here forbid them, unless the model allows them explicitly.
"""

import json
import sys
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, NamedTuple, get_args

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
            name, schema, lambda data: _check_strictness(model.model_validate_json(data, strict=True), data)
        )
    if by_notes or any(hasattr(annotation, mark) for mark in _PYDANTIC_METHODS):
        pydantic = sys.modules.get("pydantic")
        if pydantic is not None:
            schema = _describe_schema(lambda: pydantic.TypeAdapter(annotation).json_schema())
            check = pydantic.TypeAdapter(annotation).validate_json
            return PydanticType(
                name, schema, lambda data: _check_strictness(check(data, strict=True), data, annotation)
            )
    return None


def _check_strictness(made: Any, data: bytes, annotation: Any = Any) -> Any:
    """Return the model; raises ValueError for what pydantic accepts although the schema does not allow it.

    A field by another name: a model that allows unknown fields may accept a second name for a field
    (`populate_by_name`, `AliasChoices`).  Permission rules check the schema's names only, so other names are
    rejected.

    `true` for the number 1 of an enum or a literal: in a union it would be taken for a value of another type.
    """
    waiting: list[tuple[Any, Any, Any]] = [(made, msgspec.json.decode(data), annotation)]
    while waiting:
        value, given, declared = waiting.pop()
        fields = getattr(type(value), "model_fields", None)
        if isinstance(given, bool):
            _check_boolean(value, given, declared)
        elif isinstance(given, list) and isinstance(value, list | tuple):
            waiting.extend((*pair, declared) for pair in zip(value, given, strict=False))
        elif isinstance(given, list) and isinstance(value, set | frozenset):
            waiting.extend((each, held, declared) for held in given for each in value if each == held)
        elif isinstance(given, dict) and isinstance(value, Mapping):
            waiting.extend((value[name], held, declared) for name, held in given.items() if name in value)
        elif isinstance(given, dict) and isinstance(fields, Mapping):
            names = {_schema_name(name, field): name for name, field in fields.items()}
            extra = getattr(value, "model_extra", None)
            for name, held in given.items():
                if name in names:
                    field = fields[names[name]]
                    waiting.append((getattr(value, names[name]), held, getattr(field, "annotation", Any)))
                elif extra is not None and name not in extra:
                    # guard: unknown-field-refused
                    raise ValueError(f"unknown field `{name}`; the fields are {', '.join(names)}")
    return made


def _check_boolean(value: Any, given: bool, annotation: Any) -> None:  # noqa: FBT001 - the value itself
    """Raise ValueError if a boolean became a number, or a member of an enum, that no boolean is declared for."""
    plain = value.value if isinstance(value, Enum) else value
    if isinstance(plain, int | float) and not isinstance(plain, bool) and not _allows_booleans(annotation):
        raise ValueError(f"expected {plain!r}, not {json.dumps(given)}")


def _allows_booleans(annotation: Any) -> bool:
    """True if a boolean may be a value of the annotation, also if that is unknown."""
    if inner := get_args(annotation):
        return any(_allows_booleans(each) for each in inner if each is not ...)
    if isinstance(annotation, type):
        return annotation in (bool, object)
    return isinstance(annotation, bool) or not isinstance(annotation, int | str | bytes | Enum | None)


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


def check_strictly(check: Callable[[bytes], Any], value: Any) -> Any:
    """Validate a JSON value; integral floats may be integers, so 3.0 becomes 3 where only 3 is accepted."""
    data, whole = msgspec.json.encode(value), _integers_from_floats(value)
    try:
        return check(data)
    except ValueError:
        if (other := msgspec.json.encode(whole)) == data:
            raise
    return check(other)


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
