"""`JsonType`: a JSON Schema with the loader that turns such JSON into a Python value.

Schema and loader are created together, so that they never disagree.  `load` is strict: "3" is not 3, True is not
1, an unknown field is an error.  The one exception is JSON's own: 3.0 is an integer.  It raises only
`JsonMismatch`.  `dump` is its inverse.

This module has the types of single values and their combinations; builder.py maps Python types to them.
"""

import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

import msgspec

from .annotations import NoJsonForm
from .document import Schema
from .json_form import to_json_form
from .open_values import OPEN_TYPES, OpenText, remove_marks
from .overlap import JsonSketch, is_plain, may_become

JsonLoader = Callable[[Any], Any]
JsonDumper = Callable[[Any], Any]
# not from outside: our own text, shown to a person or a model
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
    dump: JsonDumper = to_json_form
    """The JSON of a value, which `load` turns into an equal one; raises TypeError for a value of another type."""
    combine: Callable[[Sequence["JsonType"]], "JsonType"] | None = None
    """Makes the union of other members in place of these."""


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
    return remove_marks(value) if isinstance(value, OPEN_TYPES) else value


def load_text(value: Any) -> str:
    if type(value) is OpenText:
        return str.__str__(value)
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
        for constant, member in members if type(value) is not OpenText else ():
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

    def dump(value: Any) -> Any:
        form = [item.dump(held) for held in _check_instance(value, Collection)]
        return sorted(form, key=msgspec.json.encode) if make in (set, frozenset) else form

    return JsonType(schema, load, "array", dump=dump)


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

    def dump(value: Any) -> Any:
        held = _check_instance(value, Collection)
        if len(held) != count:
            raise TypeError(f"{len(held)} items, where {count} are expected")
        return [item.dump(each) for item, each in zip(items, held, strict=True)]

    return JsonType(schema, load, dump=dump)


def _check_instance(value: Any, wanted: type) -> Any:
    if isinstance(value, wanted) and not isinstance(value, str | bytes):
        return value
    raise TypeError(f"a {type(value).__name__}, which is not of the expected type")


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

    def dump(value: Any) -> Any:
        held = _check_instance(value, Mapping)
        names = to_json_form(dict.fromkeys(held))
        assert isinstance(names, dict), "a mapping is an object"
        return dict(zip(names, map(item.dump, held.values()), strict=True))

    return JsonType(schema, load, "object", dump=dump)


class UnionTag(NamedTuple):
    """The field that names the type of an object in a union."""

    field: str
    names: tuple[str, ...]
    """Name of each option; empty for one without the field."""


def union_type(
    options: Sequence[JsonType], sketches: Sequence[JsonSketch], tag: UnionTag | None = None
) -> JsonType:
    """A union; a value is loaded by the option that its tag names, else by the narrowest that accepts it.

    `sketches` describe the options.  The loader of an option may accept more: pydantic takes 1 for `Literal[True]`,
    and a validator converts what it likes.  Such a value is one of another option.  An open value is loaded only
    once the sketches leave no doubt which it will be.
    """
    narrow_first = sorted(options, key=lambda option: _schema_breadth(option.schema))
    # 3.0 is a float where both are possible.
    floats_first = sorted(narrow_first, key=lambda option: option.schema.get("type") != "number")
    tagged = {name: option for name, option in zip(tag.names, options, strict=True) if name} if tag else {}
    untagged = [option for option in narrow_first if not any(option is each for each in tagged.values())]

    def find_options(value: Any) -> Sequence[JsonType]:
        if isinstance(value, float):
            return floats_first
        if tag is not None and isinstance(value, Mapping):
            name = value.get(tag.field)
            if type(name) is not OpenText and isinstance(name, str) and name in tagged:
                return [tagged[name]]
            if untagged and not isinstance(value, OPEN_TYPES):
                return untagged
            raise JsonMismatch(f"expected one of {', '.join(tagged)}", (tag.field,))
        return _list_open_options(options, sketches, value) if isinstance(value, OPEN_TYPES) else narrow_first

    def may_be(option: JsonType, value: Any) -> bool:
        if any(option is each for each in tagged.values()):
            return True
        return any(
            option is each and may_become(sketch, value)
            for each, sketch in zip(options, sketches, strict=True)
        )

    def load(value: Any) -> Any:
        closest: JsonMismatch | None = None
        for option in find_options(value):
            try:
                loaded = option.load(value)
            except JsonMismatch as mismatch:
                if closest is None or len(mismatch.path) > len(closest.path):
                    closest = mismatch
            else:
                if may_be(option, value):
                    return loaded
        if closest is not None and closest.path:
            raise closest
        raise make_mismatch("another type", value)

    def dump(value: Any) -> Any:
        forms = [(option, _try_dump(option, value)) for option in floats_first]
        for is_exact in (True, False):
            for option, form in forms:
                if form is not None and _is_dump_of(option, form[0], value, is_exact=is_exact):
                    return form[0]
        raise TypeError(f"a {type(value).__name__}, which is none of the types of the union")

    def combine(others: Sequence[JsonType]) -> JsonType:
        return union_type(others, sketches, tag)

    bare = [option.schema["type"] for option in options if set(option.schema) == {"type"}]
    if len(bare) == len(options):
        # Shorter than anyOf, and errors name all types at once.
        schema: Schema = {"type": list(dict.fromkeys(bare))}
        return JsonType(schema, load, "", tuple(options), "", dump, combine)
    schema = {"anyOf": [option.schema for option in options]}
    hint = " ".join(option.hint for option in options if option.hint)
    return JsonType(schema, load, "", tuple(options), hint, dump, combine)


def _list_open_options(
    options: Sequence[JsonType], sketches: Sequence[JsonSketch], value: Any
) -> Sequence[JsonType]:
    """The options that load an open value as what it will be; raises `JsonMismatch` while that is not certain."""
    possible = [
        (option, sketch)
        for option, sketch in zip(options, sketches, strict=True)
        if may_become(sketch, value)
    ]
    if len(possible) == 1 or (possible and all(is_plain(sketch) for _, sketch in possible)):
        return [option for option, _ in possible]
    raise JsonMismatch("not enough of it has arrived to tell its type")


def _try_dump(option: JsonType, value: Any) -> tuple[Any] | None:
    try:
        return (option.dump(value),)
    except (TypeError, ValueError, AttributeError):
        return None


def _is_dump_of(option: JsonType, form: Any, value: Any, *, is_exact: bool) -> bool:
    """True if the option loads the JSON as a value of the same type; unless exact, of a base of it."""
    try:
        loaded = option.load(form)
    except JsonMismatch:
        return False
    return _has_same_types(loaded, value) if is_exact else isinstance(value, type(loaded))


_FIELD_MARKS = ("__dataclass_fields__", "__struct_fields__", "__pydantic_fields__")
"""Where classes keep the names of their fields."""


def _has_same_types(loaded: Any, value: Any) -> bool:
    """True if two values, and what their containers and fields hold, have the same types."""
    if type(loaded) is not type(value):
        return False
    fields = next((found for mark in _FIELD_MARKS if (found := getattr(type(value), mark, None))), ())
    if fields:
        return all(
            _has_same_types(getattr(loaded, name, None), getattr(value, name, None)) for name in fields
        )
    if isinstance(value, dict):
        return loaded.keys() == value.keys() and all(
            _has_same_types(held, value[name]) for name, held in loaded.items()
        )
    if isinstance(value, list | tuple):
        return all(map(_has_same_types, loaded, value))
    if isinstance(value, set | frozenset):
        return Counter(map(type, loaded)) == Counter(map(type, value))
    return True


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
    return shape.combine(limited) if shape.combine is not None else limited[0]


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
