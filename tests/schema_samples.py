"""Schemas nobody thought of, and values for them.

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


def _some(**optional):
    return st.fixed_dictionaries(
        {}, optional={name.replace("_", "$"): held for name, held in optional.items()}
    )


SMALL = st.integers(0, 3)
NOTES = _some(
    title=st.just("T"), description=st.sampled_from(["d", ""]), default=st.just(1), examples=st.just(["e"])
)
SCALARS = st.one_of(
    st.builds(
        lambda words, notes: {"type": "string", **words, **notes},
        _some(minLength=SMALL, maxLength=st.integers(1, 6), format=st.sampled_from(FORMATS),
              pattern=st.sampled_from(["^a", "b$", "(?=a)a", r"\ba"])),
        NOTES,
    ),
    st.builds(
        lambda kind, words, notes: {"type": kind, **words, **notes},
        st.sampled_from(["integer", "number"]),
        _some(minimum=st.integers(-2, 2), maximum=st.integers(2, 5), exclusiveMinimum=st.sampled_from([-1, 0.5]),
              exclusiveMaximum=st.sampled_from([4, 4.5]), multipleOf=st.sampled_from([1, 2, 0.5]),
              format=st.sampled_from(["int32", "double"])),
        NOTES,
    ),
    st.sampled_from([
        {"type": "boolean"}, {"type": "null"}, True, {}, {"description": "anything"}, {"type": ["string", "null"]},
        {"type": ["integer", "string"]}, {"type": ["object", "array", "null"]}, {"const": "red"}, {"const": 1},
        {"const": None}, {"enum": ["red", "green"]}, {"enum": [1, 2, 3]}, {"enum": [1, 3, "red", None]},
        {"type": "string", "enum": ["", "a"]}, {"type": "string", "enum": ["red", None, 1]}, {"enum": [True]},
        {"enum": [{"a": 1}, [1]]}, {"type": "integer", "enum": [1, 4]}, {"minimum": 1}, {"pattern": "^a"},
        {"maxLength": 3, "minimum": 0}, {"type": ["number", "integer"]}, {"enum": ["a"], "const": "b"},
    ]),
)  # fmt: skip
REFERENCES = st.sampled_from([
    {"$ref": "#/$defs/A"}, {"$ref": "#/$defs/B"}, {"$ref": "#/$defs/A", "description": "d"}, {"$ref": "#"},
    {"$ref": "#/$defs/B", "required": ["a"]}, {"allOf": [{"$ref": "#/$defs/A"}], "description": "d"},
    {"anyOf": [{"$ref": "#/$defs/B"}, {"type": "null"}]}, {"$ref": "#/properties/a"},
])  # fmt: skip


def _composed(inner):
    named = st.dictionaries(st.sampled_from(NAMES), inner, max_size=3)
    objects = st.builds(
        lambda typed, words: ({"type": "object"} if typed else {}) | words,
        st.sampled_from([True, True, True, False]),
        _some(
            properties=named,
            required=st.lists(st.sampled_from(NAMES), unique=True, max_size=2),
            additionalProperties=st.one_of(st.just(False), st.just(False), st.just(True), inner),
            patternProperties=st.builds(lambda held: {"^a": held}, inner),
            propertyNames=st.just({"maxLength": 2}),
            minProperties=st.integers(0, 1),
            maxProperties=st.integers(2, 4),
            dependentRequired=st.just({"a": ["b"]}),
        ),
    )
    plain_objects = st.builds(
        lambda properties, closed, needed: {
            "type": "object",
            "properties": properties,
            "required": [name for name in properties if name in needed],
            **({"additionalProperties": False} if closed else {}),
        },
        named,
        st.booleans(),
        st.sets(st.sampled_from(NAMES)),
    )
    arrays = st.builds(
        lambda words, notes: {"type": "array", **words, **notes},
        _some(items=inner, prefixItems=st.lists(inner, min_size=1, max_size=2), minItems=SMALL,
              maxItems=st.integers(1, 3), uniqueItems=st.booleans(), contains=st.just({"type": "integer"})),
        NOTES,
    )  # fmt: skip
    parts = st.lists(inner, min_size=1, max_size=3)
    combined = st.one_of(
        st.builds(lambda held, notes: {"anyOf": held, **notes}, parts, NOTES),
        st.builds(lambda held: {"oneOf": held}, parts),
        st.builds(lambda held: {"allOf": held}, parts),
        st.builds(lambda held, more: {"anyOf": held} | (more if isinstance(more, dict) else {}), parts, inner),
        st.builds(lambda base: base | {"anyOf": [{"required": ["a"]}, {"required": ["b"]}]}, plain_objects),
        st.builds(lambda base, held: base | {"allOf": [held]}, plain_objects, plain_objects),
        st.builds(lambda base, held: base | {"not": held}, plain_objects, inner),
        st.builds(lambda one, two, three: {"if": one, "then": two, "else": three}, inner, inner, inner),
        st.builds(lambda base, held: {"allOf": [base, held], "unevaluatedProperties": False},
                  objects, objects),
        st.builds(lambda one, two: {"anyOf": [one, two], "unevaluatedProperties": False}, objects, objects),
    )  # fmt: skip
    return st.one_of(plain_objects, plain_objects, objects, arrays, combined)


SCHEMAS = st.recursive(st.one_of(SCALARS, SCALARS, REFERENCES), _composed, max_leaves=8)


@st.composite
def documents(draw):
    """A schema for the parameters of a tool, with definitions that may refer to one another."""
    root = draw(
        st.builds(
            lambda properties, needed, closed, more: {
                "type": "object",
                "properties": {"a": {"type": "string"}, **properties},
                "required": sorted(needed & (properties.keys() | {"a"})),
                **({"additionalProperties": False} if closed else {}),
                **more,
            },
            st.dictionaries(st.sampled_from([*NAMES, "$e", "f g", "ключ"]), SCHEMAS, max_size=3),
            st.sets(st.sampled_from([*NAMES, "$e"])),
            st.booleans(),
            _some(_schema=st.just(DRAFT), title=st.just("T")),
        )
        | SCHEMAS
    )
    if not isinstance(root, dict):
        return root
    defined = {"A": draw(SCHEMAS), "B": draw(SCHEMAS)}
    return {**root, "$defs": defined}


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
                more.append(resolved(schema["$ref"], self.root))
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
                schema = _merged(schema, part) if isinstance(part, dict) else schema
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


def resolved(reference, root):
    """What a reference leads to; anything, when it leads nowhere."""
    held = root
    for name in reference.split("/")[1:]:
        held = held.get(name.replace("~1", "/").replace("~0", "~"), True) if isinstance(held, dict) else True
    return held


def _merged(one, other):
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
    if reference and reference not in seen:
        if _names_fields(resolved(reference, root), root, (*seen, reference)):
            return True
    parts = [part for word in ("anyOf", "oneOf", "allOf") for part in schema.get(word, [])]
    return bool(schema.get("properties")) or any(_names_fields(part, root, seen) for part in parts)


def filled(value, schema, root):
    """What a model writes that must give every field: the value, with null for each that is left out."""
    if "$ref" in schema:
        return filled(value, root["$defs"][schema["$ref"].rpartition("/")[2]], root)
    if "anyOf" in schema:
        for part in schema["anyOf"]:
            made = filled(value, part, root)
            if validator({**part, "$defs": root.get("$defs", {})}).is_valid(made):
                return made
        return value
    if isinstance(value, dict) and "properties" in schema:
        made = {name: filled(held, schema["properties"].get(name, {}), root) for name, held in value.items()}
        return {**made, **{name: None for name in schema.get("required", []) if name not in made}}
    if isinstance(value, list) and isinstance(schema.get("items"), dict):
        return [filled(held, schema["items"], root) for held in value]
    return value


def lists_in_lists(value):
    """How deep lists are in lists."""
    if isinstance(value, dict):
        return max(map(lists_in_lists, value.values()), default=0)
    return 1 + max(map(lists_in_lists, value), default=0) if isinstance(value, list) else 0
