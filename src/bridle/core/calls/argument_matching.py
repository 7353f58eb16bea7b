r"""Matching of call arguments: glob patterns, comparisons, folded text, and values by path.

In a glob, `*` matches any run of characters (including none, and line ends) and `?` exactly one. Every other
character matches itself, `[` and `\` included; there is no escape.

A rule that allows compares text exactly. A rule that asks or denies also compares folded text, which removes
differences in case, Unicode compatibility forms (NFKC), invisible characters, runs of white space, and `//`,
`/./` and `/../` in paths.

Values are found by path: names joined by dots. A name may contain dots, so every reading of a path counts.
Omitted arguments have the defaults of the tool's schema, wherever they are: on a field, on the target of its
`$ref`, in a union member, in list items, or inside another default. A union member that the value contradicts
(other type, other constant, missing field) contributes none.
"""

import importlib
import math
import operator
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from bridle.values.schema_limits import BACKTRACKS_MAX
from bridle.values.text import IGNORABLE

if TYPE_CHECKING:
    from jsonschema_rs import Validator

COMPARISONS = {"<=": operator.le, ">=": operator.ge, "<": operator.lt, ">": operator.gt, "=": operator.eq}
CONTROL_CHARACTERS = re.compile(r"[\x00-\x1f\x7f-\x9f]")
SPACES = re.compile(r"\s+")
PATTERNS_MAX = 1024
NULL_PATTERN = "null"
Number = int | float


@lru_cache(maxsize=PATTERNS_MAX)
def _compile_glob(pattern: str) -> re.Pattern[str]:
    # Atomic groups prevent backtracking into a star, so that matching takes linear time per star.
    first, *rest = ("".join("." if c == "?" else re.escape(c) for c in piece) for piece in pattern.split("*"))
    if not rest:
        return re.compile(first, re.DOTALL)
    middle = "".join(f"(?>.*?{piece})" for piece in rest[:-1] if piece)
    return re.compile(f"{first}{middle}.*{rest[-1]}", re.DOTALL)


def matches_glob(pattern: str, text: str) -> bool:
    return _compile_glob(pattern).fullmatch(text) is not None


def matches_any(patterns: tuple[str, ...], word: str, *, exact: bool) -> bool:
    """True if one of the patterns matches; an empty tuple matches everything."""
    return not patterns or any(matches_text(pattern, word, exact=exact) for pattern in patterns)


def matches_text(pattern: str, text: str, *, exact: bool) -> bool:
    if exact:
        # `/safe/*` must not match a path that climbs out of it.
        climbs = ".." in text.replace("\\", "/").split("/") and ".." not in pattern
        return matches_glob(pattern, text) and not climbs
    if matches_glob(pattern, text):
        return True
    folded, plain = _fold_pattern(pattern), fold_text(text)
    if matches_glob(folded, plain) or matches_glob(folded, plain.strip()):
        return True
    return ("/" in plain or "\\" in plain) and matches_glob(folded.replace("\\", "/"), _direct_path(plain))


def fold_text(text: str) -> str:
    """The text without differences that a reader does not see or intend."""
    if not text.isascii():
        text = unicodedata.normalize("NFKC", IGNORABLE.sub("", text))
        text = IGNORABLE.sub("", unicodedata.normalize("NFKC", text.casefold()))
    # guard: argument-text-folded
    return CONTROL_CHARACTERS.sub("", SPACES.sub(" ", text)).casefold()


_fold_pattern = lru_cache(maxsize=PATTERNS_MAX)(fold_text)


def _direct_path(text: str) -> str:
    """The path without empty steps, `.` and `..`."""
    path = text.strip().replace("\\", "/")
    steps: list[str] = []
    for step in path.split("/"):
        if step == ".." and steps and steps[-1] != "..":
            steps.pop()
        elif step not in ("", ".") and not (step == ".." and path.startswith("/")):
            steps.append(step)
    return ("/" if path.startswith("/") else "") + "/".join(steps)


def is_wildcard(pattern: str) -> bool:
    """True if the pattern consists of stars only and so matches every value."""
    return bool(pattern) and not pattern.strip("*")


@lru_cache(maxsize=PATTERNS_MAX)
def parse_comparison(pattern: str) -> tuple[str, Number] | None:
    """Operator and number of a pattern such as `<= 50`; None for a glob."""
    sign = next((sign for sign in COMPARISONS if pattern.startswith(sign)), "")
    limit = parse_number(pattern.removeprefix(sign).strip()) if sign else None
    return None if limit is None else (sign, limit)


def parse_number(text: str) -> Number | None:
    for read in (int, float):
        try:
            return read(text)
        except ValueError:
            continue
    return None


def matches_scalar(pattern: str, value: object, *, exact: bool) -> bool:
    """True if a string, number, boolean or null matches the pattern."""
    comparison = parse_comparison(pattern)
    if comparison is not None:
        return _satisfies_comparison(*comparison, value, exact=exact)
    if value is None:
        return pattern == NULL_PATTERN or (not exact and fold_text(pattern).strip() == NULL_PATTERN)
    if isinstance(value, str):
        return matches_text(pattern, value, exact=exact)
    if matches_text(pattern, msgspec.json.encode(value).decode(), exact=exact):
        return True
    # 17 and 17.0 are the same number.
    wanted = None if exact or isinstance(value, bool) else parse_number(pattern.strip())
    return wanted is not None and wanted == value


def _satisfies_comparison(sign: str, limit: Number, value: object, *, exact: bool) -> bool:
    amount = parse_number(fold_text(value).strip()) if isinstance(value, str) and not exact else value
    # In Python True equals 1; for a rule such as `<= 50` it is not a number.
    if isinstance(amount, bool) or not isinstance(amount, int | float):
        return False
    if isinstance(amount, float) and math.isnan(amount):
        return not exact
    return bool(COMPARISONS[sign](amount, limit))


Schema = dict[str, Any]
SCHEMAS_MAX = 256
DEFAULTS_DEPTH_MAX = 16
"""Maximum nesting of defaults; a recursive schema has no end."""
UNION_KEYWORDS = ("anyOf", "oneOf")
JSON_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "null": (type(None),),
    "number": (int, float),
    "integer": (int, float),
}


class SchemaValue(NamedTuple):
    """A value, and the schemas that describe it."""

    value: object
    schemas: tuple[Any, ...] = ()
    defaults_depth: int = 0
    """Number of defaults around it."""


class BehindList:
    """Placeholder for the values inside a list, for exact matching, which does not look into lists."""


BEHIND_LIST = BehindList()


@lru_cache(maxsize=SCHEMAS_MAX)
def read_schema(text: str) -> Schema:
    """The schema as data; empty if the text is not a JSON object."""
    try:
        found = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return {}
    return found if isinstance(found, dict) else {}


def resolve_reference(root: Schema, reference: str) -> Schema | None:
    if not reference.startswith("#"):
        return None
    place: Any = root
    for step in reference.removeprefix("#").split("/")[1:]:
        key = step.replace("~1", "/").replace("~0", "~")
        place = place.get(key) if isinstance(place, Mapping) else None
    return place if isinstance(place, dict) else None


def applied_schemas(root: Schema, place: SchemaValue) -> list[Schema]:
    """All schemas that apply to the value: its own, referenced, combined."""
    found: list[Schema] = []
    waiting, followed = list(place.schemas), set[str]()
    while waiting:
        schema = waiting.pop()
        if not isinstance(schema, dict):
            continue
        found.append(schema)
        for name in ("$ref", "$dynamicRef"):
            if isinstance(reference := schema.get(name), str) and reference not in followed:
                followed.add(reference)
                waiting.append(resolve_reference(root, reference))
        waiting.extend(list_schemas(schema.get("allOf")))
        waiting.extend(schema.get(name) for name in ("then", "else"))
        waiting.extend(list_schemas(schema.get("dependentSchemas")))
        for name in UNION_KEYWORDS:
            waiting.extend(
                each
                for each in list_schemas(schema.get(name))
                if not _is_contradicted(root, each, place.value)
            )
    return found


def find_values(root: Schema, arguments: object, path: str, *, exact: bool) -> Iterator[SchemaValue]:
    """Values that the path may refer to. Unless `exact`, names are folded and lists are searched."""
    waiting = [(SchemaValue(arguments, (root,)), path if exact else fold_text(path))]
    while waiting:
        place, rest = waiting.pop()
        if not rest:
            yield place
        elif isinstance(place.value, list) and exact:
            yield SchemaValue(BEHIND_LIST)
        elif isinstance(place.value, list):
            waiting.extend((item, rest) for _, item in list_members(root, place))
        else:
            for name, member in list_members(root, place):
                label = name if exact else fold_text(name)
                if label == rest:
                    waiting.append((member, ""))
                elif rest.startswith(f"{label}."):
                    waiting.append((member, rest[len(label) + 1 :]))


def list_leaves(root: Schema, place: SchemaValue) -> Iterator[object]:
    """All strings, numbers, booleans and nulls inside a value, defaults included."""
    waiting = [place]
    while waiting:
        each = waiting.pop()
        if isinstance(each.value, dict | list):
            waiting.extend(member for _, member in list_members(root, each))
        else:
            yield each.value


def list_members(root: Schema, place: SchemaValue) -> Iterator[tuple[str, SchemaValue]]:
    """Members of an object by name, or items of a list; for omitted members, every default."""
    value = place.value
    if isinstance(value, list):
        schemas = tuple(_item_schemas(applied_schemas(root, place)))
        yield from (("", SchemaValue(item, schemas, place.defaults_depth)) for item in value)
    if not isinstance(value, dict):
        return
    applied = applied_schemas(root, place)
    for name, member in value.items():
        yield name, SchemaValue(member, tuple(_child_schemas(applied, name)), place.defaults_depth)
    if place.defaults_depth >= DEFAULTS_DEPTH_MAX:
        return
    listed = (each["properties"] for each in applied if isinstance(each.get("properties"), dict))
    for name in dict.fromkeys(name for properties in listed for name in properties if name not in value):
        schemas = tuple(_child_schemas(applied, name))
        for default in _find_defaults(root, schemas):
            yield name, SchemaValue(default, schemas, place.defaults_depth + 1)


def fill_defaults(root: Schema, arguments: object) -> object:
    """The arguments with omitted defaults filled in, for display; the first of several defaults."""
    return _fill_value(root, SchemaValue(arguments, (root,)))


def _fill_value(root: Schema, place: SchemaValue) -> object:
    if isinstance(place.value, list):
        return [_fill_value(root, item) for _, item in list_members(root, place)]
    if not isinstance(place.value, dict):
        return place.value
    filled: dict[str, object] = {}
    for name, member in list_members(root, place):
        if name not in filled:
            filled[name] = _fill_value(root, member)
    return filled


def _find_defaults(root: Schema, schemas: tuple[Any, ...]) -> list[object]:
    """Defaults of the schemas; a default beside a reference overrides that of its target."""
    own = [each["default"] for each in schemas if isinstance(each, dict) and "default" in each]
    if own:
        return own
    return [
        each["default"]
        for each in applied_schemas(root, SchemaValue(ANY_VALUE, schemas))
        if "default" in each
    ]


ANY_VALUE = object()
"""An unknown value: no union member contradicts it."""


def _child_schemas(applied: Iterable[Schema], name: str) -> Iterator[Any]:
    for schema in applied:
        properties, matched = schema.get("properties"), False
        if isinstance(properties, dict) and name in properties:
            matched = True
            yield properties[name]
        patterns = schema.get("patternProperties")
        for pattern, inner in patterns.items() if isinstance(patterns, dict) else ():
            if _matches_property_pattern(pattern, name):
                matched = True
                yield inner
        if not matched:
            yield from (schema.get(key) for key in ("additionalProperties", "unevaluatedProperties"))


def _item_schemas(applied: Iterable[Schema]) -> Iterator[Any]:
    for schema in applied:
        for key in ("items", "additionalItems", "unevaluatedItems", "prefixItems", "contains"):
            yield from (
                list_schemas(schema.get(key)) if isinstance(schema.get(key), list) else (schema.get(key),)
            )


def _is_contradicted(root: Schema, schema: Any, value: object) -> bool:
    """True if the value rules out this union member."""
    for _ in range(DEFAULTS_DEPTH_MAX):
        if not (isinstance(schema, dict) and isinstance(schema.get("$ref"), str)):
            break
        schema = resolve_reference(root, schema["$ref"])
    if not isinstance(schema, dict) or value is ANY_VALUE:
        return False
    if _is_excluded(schema, value):
        return True
    if not isinstance(value, dict):
        return False
    required = schema.get("required")
    if isinstance(required, list) and any(isinstance(name, str) and name not in value for name in required):
        return True
    properties = schema.get("properties")
    known = properties.items() if isinstance(properties, dict) else ()
    return any(
        isinstance(each, dict) and name in value and _is_excluded(each, value[name]) for name, each in known
    )


def _is_excluded(schema: Schema, value: object) -> bool:
    kinds = schema.get("type")
    kinds = [kinds] if isinstance(kinds, str) else kinds if isinstance(kinds, list) else []
    if kinds and not any(isinstance(value, JSON_TYPES.get(kind, (object,))) for kind in kinds):
        return True
    if "const" in schema:
        return bool(schema["const"] != value)
    return isinstance(schema.get("enum"), list) and value not in schema["enum"]


def _matches_property_pattern(pattern: str, name: str) -> bool:
    """True if the pattern matches, and in case of doubt: it may be invalid, or take too many steps."""
    validator = _load_pattern(pattern)
    if validator is None or validator.is_valid(name):
        return True
    return any(error.kind.name != "pattern" for error in validator.iter_errors(name))


@lru_cache(maxsize=PATTERNS_MAX)
def _load_pattern(pattern: str) -> "Validator | None":
    # The pattern is from outside: `re` has no limit for the time that a search may take.
    module = importlib.import_module("jsonschema_rs")
    options = module.FancyRegexOptions(backtrack_limit=BACKTRACKS_MAX)
    try:
        validator: Validator = module.validator_for({"pattern": pattern}, pattern_options=options)
    except ValueError:
        return None
    return validator


def list_schemas(several: Any) -> tuple[Any, ...]:
    """The schemas of a list or mapping; none otherwise."""
    if isinstance(several, dict):
        return tuple(several.values())
    return tuple(several) if isinstance(several, list) else ()
