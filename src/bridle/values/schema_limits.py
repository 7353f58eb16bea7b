"""Limits the work that a JSON Schema from outside can cause.

A schema of 2 kB can stand for more work than a process can do: definitions that refer twice to the next one
double the work at each step.  So a schema is measured before anything reads it: its characters, values,
nesting, references and numbers, and how many schemas apply to one value when all references are followed.  The
measurement is linear in the size of the schema.  A schema over a limit is refused with one line.

`count_validation_steps` bounds the explanation of a mismatch in the same way.  A validator answers yes or no in
polynomial time, but lists the errors of every alternative of a recursive schema, which is exponential in the
depth of the value.
"""

import re
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

CHARACTERS_MAX = 500_000
"""Characters of the JSON text."""
VALUES_MAX = 30_000
"""JSON values in the schema: objects, lists, texts, numbers."""
NESTING_MAX = 400
"""Levels of objects and lists."""
REFERENCES_MAX = 1_000
"""Different targets of `$ref`."""
APPLIED_MAX = 50_000
"""Schemas that apply together, summed over all subschemas, with every reference followed."""
FIELDS_MAX = 100_000
"""Fields of the schemas that apply together, summed over all subschemas, with every reference followed.

A check that rejects undeclared fields lists them at each reference: a thousand references to three thousand fields.
"""
NUMBER_BITS_MAX = 1_024
"""Size of a whole number, that of the largest float."""
STEPS_MAX = 50_000
"""Steps of a validator that lists all errors."""
COPIED_MAX = 500_000
"""Values that the errors of a validator may hold together: each has a copy of the value that it is about."""
BACKTRACKS_MAX = 20_000
"""Steps back of one `pattern` on one text; a pattern that needs more does not match."""

TEXT_CHARACTERS = 64
"""Characters of a text that cost as much as a value."""

_APPLIED_LISTS = ("allOf", "anyOf", "oneOf")
_APPLIED_SCHEMAS = ("not", "if", "then", "else")
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_ITEM_KEYWORDS = ("items", "prefixItems", "additionalItems", "unevaluatedItems", "contains")
_MEMBER_KEYWORDS = ("additionalProperties", "unevaluatedProperties")

_PERCENT = re.compile("%([0-9a-fA-F]{2})")

Schema = dict[str, Any]


def check_schema_limits(tree: object, characters: int = 0) -> None:
    """Raise ValueError with one line if the work on this schema has no acceptable bound.

    `characters` is the length of its JSON text, if there is one.
    """
    if characters > CHARACTERS_MAX:
        raise ValueError(f"has {characters:,} characters; the limit is {CHARACTERS_MAX:,}")
    graph = SchemaGraph(tree)
    graph.check_applied()
    graph.check_fields()


def count_validation_steps(tree: object, value: object, limit: int = STEPS_MAX) -> int:
    """Steps of a validator that lists all errors of this value; counting ends above `limit`.

    It is above the limit too if the errors could hold more than `COPIED_MAX` values together.
    """
    graph = SchemaGraph(tree, limited=False)
    waiting: list[tuple[object, object]] = [(graph.tree, value)]
    steps = copied = 0
    while waiting and steps <= limit:
        schema, held = waiting.pop()
        if not isinstance(schema, dict):
            continue
        steps += 1
        copied += (1 + _count_missing(schema, held)) * _count_values(held)
        # guard: error-copy-limit
        if copied > COPIED_MAX:
            return limit + 1
        waiting.extend(islice(_list_inner_steps(graph, schema, held), limit + 1))
        if len(waiting) > limit:
            return limit + 1
    return steps


def _count_missing(schema: Schema, held: object) -> int:
    """Errors about required fields, of which each is one of its own."""
    required = schema.get("required")
    if not isinstance(required, list) or not isinstance(held, dict):
        return 0
    return sum(isinstance(name, str) and name not in held for name in required)


def _count_values(held: object) -> int:
    """Number of JSON values in this one, a long text counting as several; counting ends above `COPIED_MAX`."""
    count, waiting = 0, [held]
    while waiting and count <= COPIED_MAX:
        each = waiting.pop()
        count += 1
        if isinstance(each, dict):
            waiting.extend(each.values())
        elif isinstance(each, list):
            waiting.extend(each)
        elif isinstance(each, str):
            count += len(each) // TEXT_CHARACTERS
    return count


def _list_inner_steps(graph: "SchemaGraph", schema: Schema, held: object) -> Iterator[tuple[object, object]]:
    """Each schema that is applied next, with its value."""
    for inner in graph.list_applied(schema):
        yield inner, held
    if isinstance(held, dict):
        yield from (pair for pair in _list_member_pairs(schema, held) if isinstance(pair[0], dict))
    elif isinstance(held, list):
        for keyword in _ITEM_KEYWORDS:
            for inner in _list_schemas(schema.get(keyword)):
                if isinstance(inner, dict):
                    yield from ((inner, item) for item in held)


class SchemaGraph:
    """The objects of a schema and the ones that each applies to the same value."""

    def __init__(self, tree: object, *, limited: bool = True) -> None:
        self.tree = self._tree = tree
        self._names: dict[str, Schema] = {}
        """Schemas by their anchors."""
        self._names_by_end: dict[str, list[Schema]] = {}
        """Schemas by the last step of their `$id`."""
        self._bases: dict[Any, Schema] = {}
        """The nearest enclosing schema with an `$id`, by the identity of a schema inside it."""
        self._schemas: list[Schema] = []
        if limited:
            _check_values(tree)
        self.tree = self._tree = _own_tree(tree)
        self._read_values()

    def _read_values(self) -> None:
        waiting: list[tuple[object, int, Schema | None]] = [(self._tree, 1, None)]
        while waiting:
            held, level, base = waiting.pop()
            if isinstance(held, list):
                waiting.extend((inner, level + 1, base) for inner in held)
            elif isinstance(held, dict):
                if self._note_names(held) and level > 1:
                    base = held
                if base is not None:
                    self._bases[held] = base
                self._schemas.append(held)
                waiting.extend((inner, level + 1, base) for inner in held.values())

    def _note_names(self, held: Schema) -> bool:
        """Record the `$id` and the anchors of a schema; True if it is the base of references inside it."""
        is_base = False
        for key in ("$id", "id"):
            if isinstance(name := held.get(key), str):
                self._names_by_end.setdefault(_end_of_url(name.removesuffix("#")), []).append(held)
                is_base |= key == "$id" and not name.startswith("#")
        for key in ("$anchor", "$dynamicAnchor"):
            if isinstance(name := held.get(key), str):
                self._names.setdefault(f"#{name}", held)
        return is_base

    def list_applied(self, schema: Schema) -> Iterator[Schema]:
        """The schemas that apply to the same value, one step away."""
        for keyword in _APPLIED_LISTS:
            yield from (each for each in _list_schemas(schema.get(keyword)) if isinstance(each, dict))
        for keyword in _APPLIED_SCHEMAS:
            if isinstance(inner := schema.get(keyword), dict):
                yield inner
        for keyword in ("dependentSchemas", "dependencies"):
            if isinstance(inner := schema.get(keyword), dict):
                yield from (each for each in inner.values() if isinstance(each, dict))
        for keyword in _REFERENCES:
            if isinstance(reference := schema.get(keyword), str):
                yield from self.resolve_reference(schema, reference)

    def resolve_reference(self, schema: Schema, reference: str) -> list[Schema]:
        """The targets that readers may find for a reference: relative to its base, and to the document."""
        resource, _, fragment = reference.partition("#")
        fragment = _PERCENT.sub(lambda found: chr(int(found[1], 16)), fragment)
        starts: list[object] = [self._bases.get(schema, self._tree), self._tree]
        if resource:
            # A reference may be relative: every schema whose `$id` ends in the same name could be meant.
            starts = list(self._names_by_end.get(_end_of_url(resource), ()))
        if fragment and not fragment.startswith("/"):
            starts, fragment = [self._names.get(f"#{fragment}")], ""
        found = [_follow_pointer(start, fragment) for start in starts if start is not None]
        return list({target: target for target in found if isinstance(target, dict)}.values())

    def check_applied(self) -> None:
        """Raise ValueError if too many references lead somewhere, or too many schemas apply together."""
        targets = {
            reference
            for schema in self._schemas
            for keyword in _REFERENCES
            if isinstance(reference := schema.get(keyword), str)
        }
        if len(targets) > REFERENCES_MAX:
            raise ValueError(f"has references to {len(targets):,} schemas; the limit is {REFERENCES_MAX:,}")
        counts: dict[Any, int] = {}
        total = 0
        for schema in self._schemas:
            total += self._count_applied(schema, counts)
            # guard: schema-applied-limit
            if total > APPLIED_MAX:
                raise ValueError(
                    f"combines more than {APPLIED_MAX:,} schemas when its references are followed"
                )

    def check_fields(self) -> None:
        """Raise ValueError if the schemas that apply together list too many fields.

        Each schema counts as a field, too: the schemas of a cycle all apply to the value of each of them.
        """
        weights: dict[Any, int] = {each: 1 + _count_fields(each) for each in self._schemas}
        if len(weights) * sum(weights.values()) <= FIELDS_MAX:
            return
        total = 0
        for schema in self._schemas:
            found, waiting = {schema}, [schema]
            while waiting:
                each = waiting.pop()
                total += weights[each]
                if total > FIELDS_MAX:
                    raise ValueError(
                        f"lists more than {FIELDS_MAX:,} fields when its references are followed"
                    )
                for inner in self.list_applied(each):
                    if inner not in found:
                        found.add(inner)
                        waiting.append(inner)

    def _count_applied(self, schema: Schema, counts: dict[Any, int]) -> int:
        """Number of schemas that apply to the value of this one; a reference back to it counts once."""
        if schema in counts:
            return counts[schema]
        counts[schema] = 1
        path: list[tuple[Schema, Iterator[Schema]]] = [(schema, self.list_applied(schema))]
        while path:
            current, inner = path[-1]
            target = next(inner, None)
            if target is None:
                path.pop()
                if path:
                    counts[path[-1][0]] += counts[current]
            elif target in counts:
                counts[current] += counts[target]
            else:
                counts[target] = 1
                path.append((target, self.list_applied(target)))
        return counts[schema]


def _count_fields(schema: Schema) -> int:
    fields = schema.get("properties")
    return len(fields) if isinstance(fields, dict) else 0


class _OwnObject(dict[str, Any]):
    """An object of a schema that is the same only as itself, so that it can be a key."""

    __hash__ = object.__hash__  # type: ignore[assignment]
    __eq__ = object.__eq__


def _own_tree(held: object) -> Any:
    if isinstance(held, dict):
        return _OwnObject({name: _own_tree(inner) for name, inner in held.items()})
    return [_own_tree(inner) for inner in held] if isinstance(held, list) else held


def _check_values(tree: object) -> None:
    count, waiting = 0, [(tree, 1)]
    while waiting:
        held, level = waiting.pop()
        count += 1
        _check_value(held, level, count)
        inner = held.values() if isinstance(held, dict) else held if isinstance(held, list) else ()
        waiting.extend((each, level + 1) for each in inner)


def _check_value(held: object, level: int, count: int) -> None:
    if level > NESTING_MAX:
        raise ValueError(f"is nested more than {NESTING_MAX} levels deep")
    if count > VALUES_MAX:
        raise ValueError(f"has more than {VALUES_MAX:,} values")
    if isinstance(held, int) and held.bit_length() > NUMBER_BITS_MAX:
        raise ValueError(f"has a number of more than {NUMBER_BITS_MAX:,} bits")


def _list_member_pairs(schema: Schema, value: Mapping[str, object]) -> Iterator[tuple[object, object]]:
    properties, patterns = schema.get("properties"), schema.get("patternProperties")
    for name, held in value.items():
        if isinstance(properties, dict) and name in properties:
            yield properties[name], held
        if isinstance(patterns, dict):
            yield from ((inner, held) for inner in patterns.values())
        yield from ((schema.get(keyword), held) for keyword in _MEMBER_KEYWORDS)
        yield schema.get("propertyNames"), name


def _list_schemas(held: object) -> list[Any]:
    """The schemas of a keyword that holds one or a list."""
    return held if isinstance(held, list) else [held]


def _end_of_url(url: str) -> str:
    return url.rstrip("/").rpartition("/")[2]


def _follow_pointer(start: object, pointer: str) -> object:
    held = start
    for step in pointer.split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(held, dict):
            held = held.get(name)
        elif isinstance(held, list) and name.isdecimal() and len(name) < 9 and int(name) < len(held):
            held = held[int(name)]
        else:
            return None
    return held
