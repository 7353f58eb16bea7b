"""The vendors' published types as data, a strict validator for them, and a generator of values.

`vendor_shapes.json` is derived by `make_vendor_shapes.py`.  It has `roots` (one node for each kind of body), `shapes`
(objects by name) and the `versions` of the packages.  A node is

    "str" "int" "num" "bool" "null" "any" "b64"    a plain type; "b64" is text in base64
    "#name"                                        a shape
    ["=", …]  ["[]", node]  ["{}", node]           literal values, a list, an object with free names
    ["|", node, …]                                 one of several

and a shape is `{"req": {member: node}, "opt": {member: node}, "more": node, "one": true}`: required and optional members,
the type of all others where others are allowed, and whether exactly one member must be there.
"""

import base64
import json
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import jsonschema_rs

FILE = Path(__file__).with_name("vendor_shapes.json")
BASE64 = "^[A-Za-z0-9+/]*={0,2}$"
TAGS = ("type", "role", "object", "stream", "status", "phase")
SHOWN = 100
PLAIN_SCHEMAS = {
    "str": {"type": "string"},
    "int": {"type": "integer"},
    "num": {"type": "number"},
    "bool": {"type": "boolean"},
    "null": {"type": "null"},
    "any": {},
    "b64": {"type": "string", "pattern": BASE64},
}
ADDED_SHAPES = {
    "x.OpenRouterSearch": {
        "req": {"type": ["=", "openrouter:web_search"]},
        "opt": {"parameters": ["{}", "any"]},
    },
    "x.GroqTool": {"req": {"type": ["=", "browser_search", "code_interpreter"]}},
    "x.DocumentUrl": {
        "req": {"type": ["=", "document_url"], "document_url": "str"},
        "opt": {"document_name": "str"},
    },
}
"""Shapes that only additions name."""
TYPES = {
    "str": lambda value: isinstance(value, str),
    "int": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "num": lambda value: isinstance(value, (int, float)) and not isinstance(value, bool),
    "bool": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "any": lambda value: True,
}


class Violation(NamedTuple):
    kind: str
    place: str
    """Without indexes, so that equal violations fall together."""
    told: str


class Addition(NamedTuple):
    """A member that may also be `node` in bodies of which `when` is true."""

    root: str
    shape: str
    member: str
    node: Any
    """None: the member may be missing."""
    why: str
    """With its source."""
    when: Callable[[dict], bool]


@cache
def load_shapes():
    return json.loads(FILE.read_text())


class Shapes:
    """The types, with members that are documented and that the published types lack (`Addition`)."""

    def __init__(self, additions=()):
        self.roots, self.shapes = load_shapes()["roots"], {**load_shapes()["shapes"], **ADDED_SHAPES}
        for each in additions:
            self.shapes[each.shape] = widen_shape(self.shapes[each.shape], each.member, each.node)
        self.validators, self.tags = {}, {}

    def shape(self, name):
        return self.shapes[name.removeprefix("#")]

    def is_valid(self, root, value):
        """Whether a value is what a root says; the same as no `violations`, and a hundred times as fast."""
        if root not in self.validators:
            self.validators[root] = self.compile(root)
        return self.validators[root].is_valid(value)

    def compile(self, root):
        """A root as a JSON Schema, with the shapes it reaches."""
        reached, left = {}, [self.roots[root]]
        while left:
            node = left.pop()
            if isinstance(node, list):
                left += [each for each in node[1:] if node[0] != "="]
            elif node.startswith("#") and node not in reached:
                reached[node] = shape_schema(self.shape(node))
                left += [each for part in ("req", "opt") for each in self.shape(node).get(part, {}).values()]
        shapes = {schema_name(each): schema for each, schema in reached.items()}
        return jsonschema_rs.Draft202012Validator({"$defs": shapes, **schema_of(self.roots[root])})

    def violations(self, root, value):
        """Everything that is wrong with a value."""
        return self.of_node(self.roots[root], value, "")

    def of_node(self, node, value, place):
        if isinstance(node, str):
            if node.startswith("#"):
                return self.of_shape(node, value, place)
            if node == "b64":
                return [] if is_base64(value) else [Violation("not base64", place, shorten_value(value))]
            return (
                []
                if TYPES[node](value)
                else [Violation("wrong type", place, f"{shorten_value(value)} is no {node}")]
            )
        kind, *inner = node
        match kind:
            case "=":
                known = value in inner and type(value) in map(type, inner)
                return [] if known else [Violation("unknown value", place, shorten_value(value))]
            case "[]":
                if not isinstance(value, list):
                    return [Violation("wrong type", place, f"{shorten_value(value)} is no list")]
                return [wrong for each in value for wrong in self.of_node(inner[0], each, f"{place}[]")]
            case "{}":
                if not isinstance(value, dict):
                    return [Violation("wrong type", place, f"{shorten_value(value)} is no object")]
                return [
                    wrong for each in value.values() for wrong in self.of_node(inner[0], each, f"{place}.*")
                ]
        return self.of_union(inner, value, place)

    def of_shape(self, name, value, place):
        if not isinstance(value, dict):
            return [Violation("wrong type", place, f"{shorten_value(value)} is no object")]
        said = self.shape(name)
        required, optional, more = said.get("req", {}), said.get("opt", {}), said.get("more")
        found = [
            Violation("missing member", f"{place}.{member}", name)
            for member in required
            if member not in value
        ]
        for member, each in value.items():
            node, inside = required.get(member) or optional.get(member) or more, f"{place}.{member}"
            unknown = [] if node else [Violation("unknown member", inside, shorten_value(each))]
            found += unknown or self.of_node(node, each, inside)
        if said.get("one") and len(value) != 1:
            found.append(Violation("not exactly one", place, shorten_value(sorted(value))))
        return found

    def of_union(self, nodes, value, place):
        """No violation when one alternative has none; else those of the alternative that was probably meant."""
        best = None
        for node in (node for node in nodes if self.could_be(node, value)):
            found = self.of_node(node, value, place)
            if not found:
                return []
            if best is None or len(found) < len(best):
                best = found
        return best or [Violation("no alternative", place, shorten_value(value))]

    def could_be(self, node, value):
        """Whether a value has the outer form of a node, and the literals that tell alternatives apart."""
        if isinstance(node, list):
            forms = {"[]": list, "{}": dict}
            return (
                isinstance(value, forms[node[0]]) if node[0] in forms else not isinstance(value, (list, dict))
            )
        if node.startswith("#"):
            return isinstance(value, dict) and all(
                member not in value or value[member] in literals for member, literals in self.tags_of(node)
            )
        return node == "any" or not isinstance(value, (list, dict))

    def tags_of(self, name):
        """The members of a shape whose values are literals, and which."""
        if name not in self.tags:
            said = self.shape(name)
            members = {**said.get("req", {}), **said.get("opt", {})}.items()
            self.tags[name] = [
                (member, node[1:])
                for member, node in members
                if isinstance(node, list) and node[0] == "=" and member in TAGS
            ]
        return self.tags[name]


def widen_shape(said, member, node):
    """A shape with a member that may also be `node`; without a node, with one that may be missing."""
    required, optional = dict(said.get("req", {})), dict(said.get("opt", {}))
    if node is None:
        optional[member] = required.pop(member)
    else:
        place = required if member in required else optional
        known = place.get(member)
        both = [*known, node] if known and known[0] == "|" else ["|", known, node]
        place[member] = both if known else node
    return {**said, "req": required, "opt": optional}


def schema_name(name):
    return name.removeprefix("#").replace("~", "_")


def schema_of(node):
    if isinstance(node, str):
        return {"$ref": f"#/$defs/{schema_name(node)}"} if node.startswith("#") else PLAIN_SCHEMAS[node]
    kind, *inner = node
    match kind:
        case "=":
            return {"enum": inner}
        case "[]":
            return {"type": "array", "items": schema_of(inner[0])}
        case "{}":
            return {"type": "object", "additionalProperties": schema_of(inner[0])}
    return {"anyOf": [schema_of(each) for each in inner]}


def shape_schema(said):
    required, more = said.get("req", {}), said.get("more")
    members = {**required, **said.get("opt", {})}
    schema = {
        "type": "object",
        "properties": {member: schema_of(node) for member, node in members.items()},
        "required": list(required),
        "additionalProperties": schema_of(more) if more else False,
    }
    return {**schema, "minProperties": 1, "maxProperties": 1} if said.get("one") else schema


def is_base64(value):
    return isinstance(value, str) and re.match(BASE64, value) is not None


def shorten_value(value):
    if isinstance(value, str):
        value = value[:SHOWN]
    told = json.dumps(value, default=str)
    return told if len(told) <= SHOWN else f"{told[:SHOWN]} …"


class Maker:
    """Values of a node, drawn at random.

    `fixed` has makers for members by their path's end, such as `usage.input_tokens`; `skip` has members never drawn.
    """

    def __init__(self, chance, fixed=(), skip=(), depth_max=5):
        self.shapes = Shapes()
        self.chance, self.fixed, self.skip, self.depth_max = chance, dict(fixed), set(skip), depth_max

    def root(self, name):
        return self.make(self.shapes.roots[name])

    def make(self, node, place="", depth=0):
        for ending, maker in self.fixed.items():
            if place == ending or place.endswith(f".{ending}"):
                return maker(node)
        if isinstance(node, str):
            return self.of_shape(node, place, depth) if node.startswith("#") else self.plain(node)
        kind, *inner = node
        match kind:
            case "=":
                return self.chance.choice(inner)
            case "[]":
                count = 0 if depth > self.depth_max else self.chance.choice((0, 1, 1, 2))
                return [self.make(inner[0], place, depth + 1) for _ in range(count)]
            case "{}":
                return {
                    f"k{n}": self.make(inner[0], f"{place}.*", depth + 1)
                    for n in range(self.chance.randrange(2))
                }
            case "|":
                return self.make(self.chance.choice(self.shallow(inner, depth)), place, depth + 1)
        raise ValueError(node)

    def shallow(self, nodes, depth):
        flat = [node for node in nodes if isinstance(node, str) and not node.startswith("#")]
        return flat if depth > self.depth_max and flat else nodes

    def of_shape(self, name, place, depth):
        said = self.shapes.shape(name)
        members = dict(said.get("req", {}))
        if said.get("one"):
            members = dict([self.chance.choice(sorted(said["opt"].items()))])
        elif depth <= self.depth_max:
            members |= {
                member: node
                for member, node in said.get("opt", {}).items()
                if self.chance.random() < 0.4 and f"{name}.{member}" not in self.skip
            }
        return {member: self.make(node, f"{place}.{member}", depth + 1) for member, node in members.items()}

    def plain(self, node):
        chance = self.chance
        match node:
            case "str":
                return chance.choice(("word", "two words", f"x{chance.randrange(10**6)}", "é\u2028"))
            case "int":
                return chance.randrange(1000)
            case "num":
                return chance.choice((0, 1.5, chance.randrange(100)))
            case "bool":
                return chance.random() < 0.5
            case "b64":
                return base64.b64encode(chance.randbytes(9)).decode()
            case "any":
                return chance.choice(({}, {"a": 1}, "thing"))
        return None
