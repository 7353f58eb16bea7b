"""Makes JSON Schemas whose work explodes in a careless reader, and arguments for them.

A schema is a few shapes of `SHAPES`, each with a size of its own, nested and joined at random.
"""

import json
import random
from typing import Any

PATTERNS = (
    "(a+)+$",
    "(?=a)(a|aa)+b",
    r"(a*)*\1b",
    "((a{1,100}){1,100}){1,100}",
    "(a|b)?" * 500,
    "(" * 300 + "a" + ")" * 300,
    "[",
    r"^(?:[\w.+-]+)+@$",
)
NUMBERS = (10**400, 2**63, -(2**200), 1e308, 5e-324, 0, -1, 0.1, True)


def ref(name):
    return {"$ref": f"#/$defs/{name}"}


def make_chain(rng, defs, step, length):
    """Definitions that each use the next one as `step` says; the first."""
    name = f"c{len(defs)}_"
    for number in range(length):
        defs[f"{name}{number}"] = step(ref(f"{name}{number + 1}"))
    defs[f"{name}{length}"] = {"type": rng.choice(["string", "object", "integer"])}
    return ref(f"{name}0")


STEPS = {
    "fields": lambda n: {"type": "object", "properties": {"a": n, "b": n}, "required": ["a"]},
    "all": lambda n: {"allOf": [n, n]},
    "any": lambda n: {"anyOf": [n, n]},
    "one": lambda n: {"oneOf": [n, {"not": n}, n]},
    "not": lambda n: {"not": {"allOf": [n, n]}},
    "if": lambda n: {"if": n, "then": n, "else": n},
    "items": lambda n: {"type": "array", "items": n, "prefixItems": [n, n], "minItems": 3},
    "alone": lambda n: n,
    "patterns": lambda n: {"patternProperties": {"(a+)+$": n, "b": n}, "additionalProperties": n},
    "dependent": lambda n: {"dependentSchemas": {"a": n, "b": n}},
    "names": lambda n: {"propertyNames": n, "unevaluatedProperties": n},
}


def make_recursive(rng, defs):
    """A definition that leads back to itself, with or without a field in between, several times."""
    name, keyword = f"r{len(defs)}", rng.choice(["allOf", "anyOf", "oneOf"])
    through = rng.choice(
        [
            lambda n: {"properties": {"x": n, "op": {"const": rng.random()}}, "required": ["op"]},
            lambda n: {"items": n},
            lambda n: n,
            lambda n: {"additionalProperties": n},
        ]
    )
    defs[name] = {keyword: [through(ref(name)) for _ in range(rng.randint(1, 5))], "x": 1}
    return ref(name)


def make_clique(rng, defs):
    """Definitions that all refer to one another."""
    name, count = f"q{len(defs)}_", rng.randint(2, 40)
    keyword = rng.choice(["allOf", "anyOf", "oneOf"])
    for number in range(count):
        defs[f"{name}{number}"] = {keyword: [ref(f"{name}{other}") for other in range(count)]}
    return ref(f"{name}0")


def make_wide(rng, defs):
    count = rng.choice([10, 300, 3_000])
    return {
        "type": "object",
        "properties": {f"p{number}": {"type": "string"} for number in range(count)},
        "required": [f"p{number}" for number in range(count)],
    }


def make_product(rng, defs):
    return {
        "allOf": [
            {
                rng.choice(["anyOf", "oneOf"]): [
                    {"properties": {f"a{one}_{two}": {"enum": list(range(rng.randint(1, 20)))}}}
                    for two in range(rng.randint(2, 12))
                ]
            }
            for one in range(rng.randint(2, 12))
        ]
    }


def make_deep(rng, defs):
    made = {"type": "string"}
    for _ in range(rng.choice([20, 60, 150, 450])):
        made = rng.choice([{"properties": {"a": made}}, {"items": made}, {"allOf": [made]}, {"not": made}])
    return made


def make_named(rng, defs):
    """Definitions with `$id` and anchors, and references in every form."""
    count = rng.choice([3, 30, 900])
    for number in range(count):
        defs[f"i{number}"] = {"$id": f"http://x/{number}", "$anchor": f"a{number}", "items": {"$ref": "#"}}
    forms = [
        "#a1",
        "http://x/1",
        "http://x/1#a2",
        "http://[",
        "#/$defs/i1",
        "#/%24defs/i2",
        "#/" + "9" * 5000,
    ]
    return {"allOf": [{"$ref": rng.choice(forms)} for _ in range(rng.randint(1, 8))]}


def make_values(rng, defs):
    keyword = rng.choice(
        ["minimum", "maximum", "multipleOf", "minLength", "maxLength", "minItems", "minProperties", "const"]
    )
    count = rng.choice([3, 100, 5_000])
    return {
        "allOf": [
            {keyword: rng.choice(NUMBERS)},
            {keyword: rng.choice(NUMBERS)},
            {"enum": list(range(count))},
            {"enum": [str(number) for number in range(count)]},
            {"pattern": rng.choice(PATTERNS)},
            {"multipleOf": rng.randint(1, 10**300)},
            {"multipleOf": rng.randint(1, 10**300)},
        ][: rng.randint(1, 7)]
    }


def make_step_chain(rng, defs):
    return make_chain(rng, defs, STEPS[rng.choice(sorted(STEPS))], rng.choice([3, 12, 30, 200, 1_200]))


SHAPES = (
    make_step_chain,
    make_step_chain,
    make_recursive,
    make_clique,
    make_wide,
    make_product,
    make_deep,
    make_named,
    make_values,
)


def make_schema(seed):
    """The JSON text of a hostile schema for an object."""
    rng = random.Random(seed)
    defs: dict[str, Any] = {}
    fields = {name: rng.choice(SHAPES)(rng, defs) for name in "xyz"[: rng.randint(1, 3)]}
    schema = {"type": "object", "properties": fields, "$defs": defs}
    if rng.random() < 0.2:
        schema = {**schema, rng.choice(["allOf", "anyOf"]): [rng.choice(SHAPES)(rng, defs)]}
    if rng.random() < 0.1:
        schema["required"] = ["x"]
    return json.dumps(schema)


def make_arguments(seed):
    """Arguments that lead deep into a recursive schema, or make its patterns work."""
    rng = random.Random(seed)
    value = rng.choice(["a" * 2_000 + "!", 10**30, None, {}, [1, 2, 3]])
    for _ in range(rng.choice([0, 5, 40])):
        value = (
            rng.choice([{"x": value, "op": 1}, {"a": value, "b": value}, [value, value]])  # type: ignore[assignment]
            if rng.random() < 0.9
            else value
        )
        if len(json.dumps(value)) > 20_000:
            break
    return json.dumps({"x": value, "y": value, "a" * 40 + "!": 1})
