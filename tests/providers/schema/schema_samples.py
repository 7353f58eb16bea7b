"""Random schemas, and values for them.

`documents` draws schemas with everything JSON Schema has.  `samples` draws values that are likely to fit
a schema; whether they do is for a validator to say.  The rest puts laws into code: what a schema allows
when it is read the way it is commonly meant, and what a model would write under a strict one.
"""

import functools
import json

import jsonschema_rs
from hypothesis import strategies as st

DRAFT = "https://json-schema.org/draft/2020-12/schema"
NAMES = ["a", "b", "c", "d"]
TEXTS = [
    "",
    "a",
    "ab",
    "abc",
    "red",
    "green",
    "2026-05-01",
    "2026-05-01T10:00:00Z",
    "x@example.org",
    "aaaaaa",
]
FORMATS = ["date-time", "date", "email", "uri", "uuid", "int64", "cuid"]
HINTS = {
    "object": {"properties", "required", "additionalProperties", "patternProperties", "propertyNames",
               "minProperties", "maxProperties", "dependentRequired", "dependentSchemas",
               "unevaluatedProperties"},
    "array": {"items", "prefixItems", "minItems", "maxItems", "uniqueItems", "contains"},
    "string": {"minLength", "maxLength", "pattern", "format"},
    "number": {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"},
}  # fmt: skip


# ── schemas ─────────────────────────────────────────────────────────────────

NOTES = {"title": ["T"], "description": ["d", ""], "default": [1], "examples": [["e"]]}
STRING_WORDS = {
    "minLength": [0, 1, 3], "maxLength": [1, 3, 6], "format": FORMATS, "pattern": ["^a", "b$", "(?=a)a", r"\ba"],
}  # fmt: skip
NUMBER_WORDS = {
    "minimum": [-2, 0, 2], "maximum": [2, 5, 2**53 - 1], "exclusiveMinimum": [-1, 0.5],
    "exclusiveMaximum": [4, 4.5], "multipleOf": [1, 2, 0.5], "format": ["int32", "double"],
}  # fmt: skip
LEAVES = [
    True, False, {}, {"description": "anything"}, {"type": "boolean"}, {"type": "null"},
    {"type": ["string", "null"]}, {"type": ["integer", "string"]}, {"type": ["object", "array", "null"]},
    {"type": ["number", "integer"]}, {"const": "red"}, {"const": 1}, {"const": None}, {"enum": ["red", "green"]},
    {"enum": [1, 2, 3]}, {"enum": [1, 3, "red", None]}, {"type": "string", "enum": ["", "a"]},
    {"type": "string", "enum": ["red", None, 1]}, {"enum": [True]}, {"enum": [{"a": 1}, [1]]},
    {"type": "integer", "enum": [1, 4]}, {"enum": ["a"], "const": "b"}, {"minimum": 1}, {"pattern": "^a"},
    {"maxLength": 3, "minimum": 0}, {"$ref": "#/$defs/A"}, {"$ref": "#/$defs/B"}, {"$ref": "#"},
    {"$ref": "#/$defs/A", "description": "d"}, {"$ref": "#/$defs/B", "required": ["a"]},
    {"allOf": [{"$ref": "#/$defs/A"}], "description": "d"}, {"$ref": "#/properties/a"},
    {"anyOf": [{"$ref": "#/$defs/B"}, {"type": "null"}]},
]  # fmt: skip


@st.composite
def schemas(draw, levels=2):
    """One schema; `levels` says how many may be inside one another."""
    if levels == 0 or draw(st.integers(0, 3)) == 0:
        return draw(st.sampled_from([_string, _number, _leaf, _leaf]))(draw, None)
    maker = draw(st.sampled_from([_object, _object, _odd_object, _array, _union, _combined]))
    return maker(draw, lambda: draw(schemas(levels - 1)))


@st.composite
def documents(draw):
    """A schema for the parameters of a tool, with definitions that may refer to one another."""
    root = draw(schemas()) if draw(st.integers(0, 3)) == 0 else _object(draw, lambda: draw(schemas()))
    if not isinstance(root, dict):
        return root
    if draw(st.booleans()):
        odd = draw(st.sampled_from(["$e", "f g", "ключ", "x" * 70, "a/b~c"]))
        root = {**root, "properties": {**root.get("properties", {}), odd: draw(schemas(1))}}
        if draw(st.booleans()):
            root["required"] = [*root.get("required", []), odd]
    if draw(st.booleans()):
        root = {"$schema": DRAFT, **root}
    return {**root, "$defs": {"A": draw(schemas()), "B": draw(schemas(1))}}


def _some(draw, words):
    chosen = draw(st.lists(st.sampled_from(sorted(words)), max_size=2, unique=True))
    return {word: draw(st.sampled_from(words[word])) for word in chosen}


def _leaf(draw, inner):
    return draw(st.sampled_from(LEAVES))


def _string(draw, inner):
    return {"type": "string", **_some(draw, STRING_WORDS), **_some(draw, NOTES)}


def _number(draw, inner):
    kind = draw(st.sampled_from(["integer", "number"]))
    return {"type": kind, **_some(draw, NUMBER_WORDS), **_some(draw, NOTES)}


def _fields(draw, inner):
    return {name: inner() for name in draw(st.lists(st.sampled_from(NAMES), unique=True, max_size=3))}


def _object(draw, inner):
    fields = _fields(draw, inner)
    made = {"type": "object", "properties": fields}
    needed = draw(st.sets(st.sampled_from(NAMES)))
    made["required"] = [name for name in fields if name in needed]
    return {**made, "additionalProperties": False} if draw(st.booleans()) else made


def _odd_object(draw, inner):
    words = {
        "properties": lambda: _fields(draw, inner),
        "required": lambda: draw(st.lists(st.sampled_from(NAMES), unique=True, max_size=2)),
        "additionalProperties": lambda: inner() if draw(st.booleans()) else draw(st.booleans()),
        "patternProperties": lambda: {"^a": inner()},
        "propertyNames": lambda: {"maxLength": 2},
        "minProperties": lambda: draw(st.integers(0, 1)),
        "maxProperties": lambda: draw(st.integers(2, 4)),
        "dependentRequired": lambda: {"a": ["b"]},
        "unevaluatedProperties": lambda: draw(st.booleans()),
    }
    chosen = draw(st.lists(st.sampled_from(sorted(words)), max_size=4, unique=True))
    typed = {"type": "object"} if draw(st.integers(0, 3)) else {}
    return {**typed, **{word: words[word]() for word in chosen}}


def _array(draw, inner):
    words = {
        "items": inner,
        "prefixItems": lambda: [inner() for _ in range(draw(st.integers(1, 2)))],
        "minItems": lambda: draw(st.integers(0, 2)),
        "maxItems": lambda: draw(st.integers(1, 3)),
        "uniqueItems": lambda: draw(st.booleans()),
        "contains": lambda: {"type": "integer"},
    }
    chosen = draw(st.lists(st.sampled_from(sorted(words)), max_size=3, unique=True))
    return {"type": "array", **{word: words[word]() for word in chosen}, **_some(draw, NOTES)}


def _parts(draw, inner):
    return [inner() for _ in range(draw(st.integers(1, 3)))]


def _union(draw, inner):
    word = draw(st.sampled_from(["anyOf", "anyOf", "oneOf"]))
    return {word: _parts(draw, inner), **_some(draw, NOTES)}


def _combined(draw, inner):
    base = draw(st.sampled_from([_object, _odd_object, _string, lambda draw, inner: {}]))(draw, inner)
    return base | draw(
        st.sampled_from([
            lambda: {"allOf": _parts(draw, inner)},
            lambda: {"anyOf": _parts(draw, inner)},
            lambda: {"anyOf": [{"required": ["a"]}, {"required": ["b"]}]},
            lambda: {"not": inner()},
            lambda: {"if": inner(), "then": inner(), "else": inner()},
            lambda: {"allOf": [_odd_object(draw, inner)], "unevaluatedProperties": False},
            lambda: {"anyOf": [_odd_object(draw, inner), _object(draw, inner)], "unevaluatedProperties": False},
            lambda: {"oneOf": _parts(draw, inner), "allOf": [inner()]},
        ])
    )()  # fmt: skip


# ── values ──────────────────────────────────────────────────────────────────


def samples(schema, random, count=10):
    """Values for a schema, most of which fit it if it is not too odd."""
    return [_Sampler(schema, random).value(schema, 4) for _ in range(count)]


class _Sampler:
    def __init__(self, root, random):
        self.root = root
        self.random = random

    def value(self, schema, depth):
        if isinstance(schema, bool) or depth < 0:
            return self.random.choice([None, True, 1, 2.5, "a", [], [1], {}, {"a": 1}])
        schema = self.flat(schema, depth)
        if "const" in schema:
            return schema["const"]
        if schema.get("enum"):
            return self.random.choice(schema["enum"])
        kinds = schema.get("type") or [kind for kind, hints in HINTS.items() if hints & schema.keys()]
        kinds = (
            [kinds] if isinstance(kinds, str) else kinds or ["null", "boolean", "integer", "string", "object"]
        )
        return getattr(self, self.random.choice(kinds))(schema, depth)

    def flat(self, schema, depth):
        for _ in range(6):
            more = []
            if "$ref" in schema:
                more.append(resolve_reference(schema["$ref"], self.root))
            more += schema.get("allOf", [])
            more += [self.random.choice(schema[word]) for word in ("anyOf", "oneOf") if word in schema]
            more += [
                schema[word] for word in ("then", "else") if word in schema and self.random.random() < 0.5
            ]
            if not more:
                break
            schema = {
                word: held for word, held in schema.items()
                if word not in ("$ref", "allOf", "anyOf", "oneOf", "then", "else", "if")
            }  # fmt: skip
            for part in more:
                schema = _merge_schemas(schema, part) if isinstance(part, dict) else schema
        return schema

    def null(self, schema, depth):
        return None

    def boolean(self, schema, depth):
        return self.random.random() < 0.5

    def string(self, schema, depth):
        texts = [
            text for text in TEXTS if schema.get("minLength", 0) <= len(text) <= schema.get("maxLength", 99)
        ]
        return self.random.choice(texts or TEXTS)

    def number(self, schema, depth):
        return self.random.choice([1.5, 0.5, 2.0, 4.25, self.integer(schema, depth)])

    def integer(self, schema, depth):
        low = schema.get("minimum", schema.get("exclusiveMinimum", -2))
        high = schema.get("maximum", schema.get("exclusiveMaximum", 6))
        return self.random.randint(*sorted((int(low), int(high))))

    def array(self, schema, depth):
        low, high = schema.get("minItems", 0), schema.get("maxItems", 3)
        size = self.random.randint(min(low, high), max(low, high))
        prefix, rest = schema.get("prefixItems", []), schema.get("items", True)
        size = min(size, 6)
        return [self.value(prefix[n] if n < len(prefix) else rest, depth - 1) for n in range(size)]

    def object(self, schema, depth):
        made = {}
        needed = schema.get("required", [])
        for name, held in schema.get("properties", {}).items():
            if name in needed or (depth > 0 and self.random.random() < 0.6):
                made[name] = self.value(held, depth - 1)
        more = schema.get("additionalProperties", schema.get("unevaluatedProperties", True))
        for name in needed:
            made.setdefault(name, self.value(more, depth - 1))
        if more is not False and self.random.random() < 0.25:
            name = self.random.choice([*NAMES, "other"])
            made.setdefault(name, self.value(more, depth - 1))
        return made


def resolve_reference(reference, root):
    """What a reference leads to; anything, when it leads nowhere."""
    held = root
    for name in reference.split("/")[1:]:
        held = held.get(name.replace("~1", "/").replace("~0", "~"), True) if isinstance(held, dict) else True
    return held


def _merge_schemas(one, other):
    made = {**one, **other}
    for word in ("properties",):
        if word in one and word in other:
            made[word] = {**one[word], **other[word]}
    if "required" in one and "required" in other:
        made["required"] = [*one["required"], *other["required"]]
    return made


# ── laws ────────────────────────────────────────────────────────────────────


@functools.lru_cache(maxsize=4096)
def _validator(text):
    return jsonschema_rs.validator_for(text, validate_formats=True, offline=True)


def validator(schema):
    return _validator(json.dumps(schema))


def common_reading(schema):
    """The schema, with two things said that are commonly meant: no other fields, and the obvious type."""
    read = _read(schema, schema, at_place=True)
    return {**read, "$schema": DRAFT} if isinstance(read, dict) else read


def _read(schema, root, *, at_place):
    if not isinstance(schema, dict):
        return schema
    made = dict(schema)
    for word in ("anyOf", "oneOf", "allOf"):
        if word in made:
            made[word] = [_read(part, root, at_place=False) for part in made[word]]
    for word in ("properties", "patternProperties"):
        if word in made:
            made[word] = {name: _read(part, root, at_place=True) for name, part in made[word].items()}
    if "$defs" in made:
        made["$defs"] = {name: _read(part, root, at_place=False) for name, part in made["$defs"].items()}
    if "prefixItems" in made:
        made["prefixItems"] = [_read(part, root, at_place=True) for part in made["prefixItems"]]
    for word in ("items", "additionalProperties"):
        if word in made:
            made[word] = _read(made[word], root, at_place=True)
    if not {"type", "enum", "const"} & made.keys():
        kinds = [kind for kind, hints in HINTS.items() if hints & made.keys()]
        if kinds:
            made["type"] = kinds
    if at_place and "unevaluatedProperties" not in made and _names_fields(schema, root, ()):
        made["unevaluatedProperties"] = False
    return made


def _names_fields(schema, root, seen):
    if not isinstance(schema, dict):
        return False
    reference = schema.get("$ref")
    if (
        reference
        and reference not in seen
        and _names_fields(resolve_reference(reference, root), root, (*seen, reference))
    ):
        return True
    parts = [part for word in ("anyOf", "oneOf", "allOf") for part in schema.get(word, [])]
    return bool(schema.get("properties")) or any(_names_fields(part, root, seen) for part in parts)


def fill_nulls(value, schema, root):
    """What a model writes that must give every field: the value, with null for each that is left out."""
    if "$ref" in schema:
        return fill_nulls(value, root["$defs"][schema["$ref"].rpartition("/")[2]], root)
    if "anyOf" in schema:
        for part in schema["anyOf"]:
            made = fill_nulls(value, part, root)
            if validator({**part, "$defs": root.get("$defs", {})}).is_valid(made):
                return made
        return value
    if isinstance(value, dict) and "properties" in schema:
        made = {
            name: fill_nulls(held, schema["properties"].get(name, {}), root) for name, held in value.items()
        }
        return {**made, **{name: None for name in schema.get("required", []) if name not in made}}
    if isinstance(value, list) and isinstance(schema.get("items"), dict):
        return [fill_nulls(held, schema["items"], root) for held in value]
    return value


def lists_in_lists(value):
    """How deep lists are in lists."""
    if isinstance(value, dict):
        return max(map(lists_in_lists, value.values()), default=0)
    return 1 + max(map(lists_in_lists, value), default=0) if isinstance(value, list) else 0
