"""`JsonType`: a JSON Schema with the loader that turns such JSON into a Python value.

Schema and loader are created together, so that they never disagree.  `load` is strict: "3" is not 3, True is not
1, an unknown field is an error.  The one exception is JSON's own: 3.0 is an integer.  It raises only
`JsonMismatch`.

This module has the types of single values and their combinations; builder.py maps Python types to them.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

import msgspec

from .annotations import NoJsonForm
from .document import Schema

JsonLoader = Callable[[Any], Any]
VALUE_CHARACTERS_MAX = 60


class JsonMismatch(ValueError):
    """A JSON value that its type rejects; names the field and what was expected."""

    def __init__(self, what: str, path: tuple[str | int, ...] = ()) -> None:
        super().__init__(f"`{_format_value_path(path)}`: {what}" if path else what)
        self.what = what
        self.path = path

    def prefix_path(self, step: str | int) -> "JsonMismatch":
        return JsonMismatch(self.what, (step, *self.path))


class JsonType(NamedTuple):
    schema: Schema
    load: JsonLoader
    kind: str = ""
    """Selects the bounds that apply: a key of the keyword table, or empty for none."""
    options: tuple["JsonType", ...] = ()
    """The members, if this is a union."""
    hint: str = ""
    """Added to the description, for what the schema cannot express."""


def _format_value_path(path: tuple[str | int, ...]) -> str:
    steps = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return "".join(steps).lstrip(".")


def make_mismatch(expected: str, value: Any) -> JsonMismatch:
    shown = msgspec.json.encode(value).decode() if isinstance(value, _JSON_TYPES) else type(value).__name__
    if len(shown) > VALUE_CHARACTERS_MAX:
        shown = shown[:VALUE_CHARACTERS_MAX] + "…"
    return JsonMismatch(f"expected {expected}, got {shown}")


_JSON_TYPES = (str, int, float, bool, type(None), list, dict)


def load_any(value: Any) -> Any:
    return value


def load_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    raise make_mismatch("a string", value)


def load_integer(value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, float) and value.is_integer():
        return int(value)
    raise make_mismatch("an integer", value)


def load_number(value: Any) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    raise make_mismatch("a number", value)


def load_boolean(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    raise make_mismatch("true or false", value)


def load_null(value: Any) -> None:
    if value is not None:
        raise make_mismatch("null", value)


def make_msgspec_loader(target: Any, expected: str, pattern: str | None) -> JsonLoader:
    """A loader for strings that msgspec can parse: dates, times, UUIDs, decimals.

    msgspec accepts more than the schema allows ("NaN", a time with a zone), hence the pattern.
    """
    legal = re.compile(pattern or "")

    def load(value: Any) -> Any:
        if not isinstance(value, str) or not legal.search(value):
            raise make_mismatch(expected, value)
        try:
            return msgspec.convert(value, target, strict=True)
        except msgspec.ValidationError:
            raise make_mismatch(expected, value) from None

    return load


def constant_type(members: Sequence[tuple[Any, Any]]) -> JsonType:
    """One of several JSON constants, each with its Python value."""
    names = {_TYPE_NAMES[type(constant)] for constant, _ in members}
    schema: Schema = {"type": names.pop()} if len(names) == 1 else {}
    schema["enum"] = [constant for constant, _ in members]
    expected = "one of " + ", ".join(msgspec.json.encode(constant).decode() for constant, _ in members)

    def load(value: Any) -> Any:
        for constant, member in members:
            if constant == value and isinstance(constant, bool) == isinstance(value, bool):
                return member
        raise make_mismatch(expected, value)

    return JsonType(schema, load)


_TYPE_NAMES = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}
CONSTANT_TYPES = tuple(_TYPE_NAMES)


def array_type(item: JsonType, make: Callable[[list[Any]], Any]) -> JsonType:
    load_item = item.load

    def load(value: Any) -> Any:
        return make(_load_items(_load_list(value), lambda _: load_item))

    schema: Schema = {"type": "array"}
    if item.schema:
        schema["items"] = item.schema
    if make in (set, frozenset):
        schema["uniqueItems"] = True
    return JsonType(schema, load, "array")


def fixed_array_type(items: Sequence[JsonType]) -> JsonType:
    count = len(items)

    def load(value: Any) -> Any:
        listed = _load_list(value)
        if len(listed) != count:
            raise make_mismatch(f"an array of {count}", value)
        return tuple(_load_items(listed, lambda at: items[at].load))

    schema: Schema = {"type": "array", "minItems": count, "maxItems": count}
    if items:
        schema |= {"prefixItems": [item.schema for item in items], "items": False}
    return JsonType(schema, load)


def mapping_type(key: JsonType, item: JsonType) -> JsonType:
    names = {word: held for word, held in key.schema.items() if word != "type"}
    schema: Schema = {"type": "object"}
    if names:
        schema["propertyNames"] = names
    schema["additionalProperties"] = item.schema or True

    def load(value: Any) -> Any:
        made = {}
        for name, held in load_object(value).items():
            try:
                made[key.load(name)] = item.load(held)
            except JsonMismatch as mismatch:
                raise mismatch.prefix_path(name) from None
        return made

    return JsonType(schema, load, "object")


def union_type(options: Sequence[JsonType]) -> JsonType:
    """A union; a value is loaded by the narrowest option that accepts it."""
    narrow_first = sorted(options, key=lambda option: _schema_breadth(option.schema))

    def load(value: Any) -> Any:
        closest: JsonMismatch | None = None
        for option in narrow_first:
            try:
                return option.load(value)
            except JsonMismatch as mismatch:
                if closest is None or len(mismatch.path) > len(closest.path):
                    closest = mismatch
        assert closest is not None, "a union has options"
        raise closest if closest.path else make_mismatch("another type", value)

    bare = [option.schema["type"] for option in options if set(option.schema) == {"type"}]
    if len(bare) == len(options):
        # Shorter than anyOf, and errors name all types at once.
        return JsonType({"type": list(dict.fromkeys(bare))}, load, "", tuple(options))
    schema = {"anyOf": [option.schema for option in options]}
    return JsonType(
        schema, load, "", tuple(options), " ".join(option.hint for option in options if option.hint)
    )


def _schema_breadth(schema: Schema) -> int:
    """Rough width of a schema, for ordering: a date must be tried before a plain string."""
    if not schema:
        return 3
    kind = schema.get("type")
    if kind == "string":
        return 0 if schema.keys() & {"enum", "format", "pattern"} else 2
    return 1 if kind == "number" or (kind == "object" and "properties" not in schema) else 0


def _is_multiple(value: Any, limit: Any) -> bool:
    if isinstance(value, float):
        ratio = value / float(limit)
        return abs(ratio - round(ratio)) < 1e-9  # 0.3 counts as a multiple of 0.1 despite rounding
    return bool(value % (Decimal(str(limit)) if isinstance(value, Decimal) else limit) == 0)


_NUMBER_KEYWORDS = {
    "ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum", "lt": "exclusiveMaximum",
    "multiple_of": "multipleOf",
}  # fmt: skip
_BOUND_KEYWORDS: dict[str, dict[str, str]] = {
    "number": _NUMBER_KEYWORDS,
    "string": {"min_length": "minLength", "max_length": "maxLength", "pattern": "pattern"},
    "array": {"min_length": "minItems", "max_length": "maxItems"},
    "object": {"min_length": "minProperties", "max_length": "maxProperties"},
    # JSON strings, whose value JSON Schema cannot bound: the description states the bound, `load` checks it.
    "decimal": dict.fromkeys(_NUMBER_KEYWORDS, ""),
    "moment": dict.fromkeys(("ge", "gt", "le", "lt"), ""),
}
_BOUND_CHECKS: dict[str, tuple[Callable[[Any, Any], bool], str]] = {
    "ge": (lambda value, limit: value >= limit, "at least {}"),
    "gt": (lambda value, limit: value > limit, "more than {}"),
    "le": (lambda value, limit: value <= limit, "at most {}"),
    "lt": (lambda value, limit: value < limit, "less than {}"),
    "multiple_of": (_is_multiple, "a multiple of {}"),
    "min_length": (lambda value, limit: len(value) >= limit, "at least {} long"),
    "max_length": (lambda value, limit: len(value) <= limit, "at most {} long"),
    "pattern": (lambda value, limit: re.search(limit, value) is not None, "text that matches {}"),
}
_CHECKED_BEFORE_LOADING = ("min_length", "max_length", "pattern")
"""Bounds checked on the JSON value; the others are checked on the loaded value, such as a date."""


def apply_bounds(shape: JsonType, bounds: Mapping[str, Any]) -> JsonType:
    """Add bounds to a type; on a union, to every option they apply to."""
    if not bounds:
        return shape
    options = shape.options or (shape,)
    fits = [{name for name in bounds if name in _BOUND_KEYWORDS.get(option.kind, {})} for option in options]
    misfit = [name for name in bounds if not any(name in fit for fit in fits)]
    if misfit:
        raise NoJsonForm(f"has the bound `{misfit[0]}`, which does not fit its type; remove the bound")
    limited = [
        _limit_type(option, {name: bounds[name] for name in bounds if name in fit})
        for option, fit in zip(options, fits, strict=True)
    ]
    return union_type(limited) if shape.options else limited[0]


def _limit_type(shape: JsonType, bounds: Mapping[str, Any]) -> JsonType:
    schema = dict(shape.schema)
    words = []
    for name, limit in bounds.items():
        if name == "pattern":
            _check_pattern(limit)
        keyword = _BOUND_KEYWORDS[shape.kind][name]
        if keyword:
            schema[keyword] = limit
        else:
            words.append(_BOUND_CHECKS[name][1].format(limit))
    hint = f"Must be {' and '.join(words)}." if words else ""

    def load(value: Any) -> Any:
        loaded = shape.load(value)
        for name, limit in bounds.items():
            holds, wording = _BOUND_CHECKS[name]
            if not holds(value if name in _CHECKED_BEFORE_LOADING else loaded, limit):
                raise make_mismatch(wording.format(limit), value)
        return loaded

    return shape._replace(schema=schema, load=load, hint=hint)


def _check_pattern(pattern: str) -> None:
    try:
        re.compile(pattern)
    except re.error as error:
        raise NoJsonForm(f"has a pattern that is not a regular expression ({error}); correct it") from None


def load_object(value: Any) -> Mapping[str, Any]:
    if type(value) is dict or isinstance(value, Mapping):  # most are a dict; the other test is slow
        return value
    raise make_mismatch("an object", value)


def _load_list(value: Any) -> Sequence[Any]:
    if isinstance(value, list | tuple):
        return value
    raise make_mismatch("an array", value)


def _load_items(values: Sequence[Any], load_at: Callable[[int], JsonLoader]) -> list[Any]:
    made = []
    for at, value in enumerate(values):
        try:
            made.append(load_at(at)(value))
        except JsonMismatch as mismatch:
            raise mismatch.prefix_path(at) from None
    return made
