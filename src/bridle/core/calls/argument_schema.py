"""Close a JSON Schema for validation, so that undeclared fields are rejected.

JSON Schema allows objects to have undeclared fields, so a misspelled argument would pass validation and be
lost. Here an object that lists `properties` accepts no others, unless its author says otherwise:
`additionalProperties`, `unevaluatedProperties` or `patternProperties` on it, or on a schema that applies to
the same object (`allOf`, `anyOf`, `$ref`, …), leave it as it is. An object without `properties` is free-form
and stays open.

Only validation uses the closed schema; the model receives the author's text. `ProblemWording` holds the
sentences that report a violation to the model.
"""

from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from bridle.values.base import Value

from .argument_matching import list_schemas, resolve_reference

Schema = dict[str, Any]

_OPENING_KEYWORDS = ("additionalProperties", "unevaluatedProperties", "patternProperties")
"""Keywords with which an author has already decided about other fields."""
_SAME_OBJECT_LISTS = ("allOf", "anyOf", "oneOf")
_SAME_OBJECT = ("if", "then", "else")
_SAME_OBJECT_MAPS = ("dependentSchemas",)
_INNER_KEYWORDS = (
    "items",
    "additionalItems",
    "unevaluatedItems",
    "additionalProperties",
    "unevaluatedProperties",
)
_INNER_LISTS = ("prefixItems",)
_INNER_MAPS = ("properties", "patternProperties")
_DEFINITIONS = ("$defs", "definitions")


def close_schema(schema: Schema) -> Schema:
    """The schema with every object that lists its fields closed."""
    closed: Schema = _SchemaCloser(schema).close(schema)
    return closed


class _SchemaCloser:
    def __init__(self, root: Schema) -> None:
        self._root = root
        self._shared_fields = frozenset(
            name for schema in _list_objects(root) for name in self._fields_declared_twice(schema)
        )
        """Fields that several schemas describe together; their inner objects stay open."""

    def close(self, schema: Any) -> Any:
        """Close a schema that describes a separate value: the arguments, a field, an item."""
        if not isinstance(schema, dict):
            return schema
        applied = list(self._applied_schemas(schema))
        names = {name: None for each in applied for name in _declared_fields(each)}
        closed = self._descend(schema)
        lists_fields = any("properties" in each for each in applied)
        if not lists_fields or any(keyword in each for each in applied for keyword in _OPENING_KEYWORDS):
            return closed
        reference = closed.pop("$ref", None)
        if reference is not None:
            # Older drafts ignore keywords beside a reference.
            closed["allOf"] = [*closed.get("allOf", ()), {"$ref": reference}]
        own = closed.get("properties", {})
        closed["properties"] = {**own, **{name: {} for name in names if name not in own}}
        closed["additionalProperties"] = False
        return closed

    def _descend(self, schema: Any) -> Any:
        """Close only the inner values of a schema that applies to an object together with others."""
        if not isinstance(schema, dict):
            return schema
        closed = dict(schema)
        for name in _INNER_KEYWORDS:
            if isinstance(inner := closed.get(name), list):
                closed[name] = [self.close(each) for each in inner]
            elif isinstance(inner, dict):
                closed[name] = self.close(inner)
        for name in _INNER_LISTS:
            if isinstance(inner := closed.get(name), list):
                closed[name] = [self.close(each) for each in inner]
        for name in _INNER_MAPS:
            if isinstance(inner := closed.get(name), dict):
                closed[name] = {
                    key: value if key in self._shared_fields else self.close(value)
                    for key, value in inner.items()
                }
        for name in _SAME_OBJECT_LISTS:
            if isinstance(inner := closed.get(name), list):
                closed[name] = [self._descend(each) for each in inner]
        for name in _SAME_OBJECT:
            if isinstance(inner := closed.get(name), dict):
                closed[name] = self._descend(inner)
        for name in (*_SAME_OBJECT_MAPS, *_DEFINITIONS):
            if isinstance(inner := closed.get(name), dict):
                closed[name] = {key: self._descend(value) for key, value in inner.items()}
        return closed

    def _fields_declared_twice(self, schema: Schema) -> Iterator[str]:
        counted = Counter(name for each in self._applied_schemas(schema) for name in _declared_fields(each))
        return (name for name, count in counted.items() if count > 1)

    def _applied_schemas(self, schema: Any) -> Iterator[Schema]:
        """This schema and all others that apply to the same object, each once."""
        followed: set[str] = set()
        waiting = [schema]
        while waiting:
            each = waiting.pop()
            if not isinstance(each, dict):
                continue
            yield each
            inner: list[Any] = []
            for name in (*_SAME_OBJECT_LISTS, *_SAME_OBJECT_MAPS):
                inner.extend(list_schemas(each.get(name)))
            inner.extend(each.get(name) for name in _SAME_OBJECT)
            for name in ("$ref", "$dynamicRef"):
                if isinstance(reference := each.get(name), str) and reference not in followed:
                    followed.add(reference)
                    found = resolve_reference(self._root, reference)
                    # An unresolvable reference may allow anything.
                    inner.append(_UNKNOWN if found is None else found)
            waiting.extend(reversed(inner))


_UNKNOWN: Schema = {"additionalProperties": True}


def _list_objects(data: Any) -> Iterator[Schema]:
    if isinstance(data, dict):
        yield data
    inner = data.values() if isinstance(data, dict) else data if isinstance(data, list) else ()
    for each in inner:
        yield from _list_objects(each)


def _declared_fields(schema: Schema) -> tuple[str, ...]:
    return tuple(schema["properties"]) if isinstance(schema.get("properties"), dict) else ()


class ProblemWording(Value, kw_only=True):
    subject: str
    """Plural, followed by verbs."""
    mismatch: str
    mismatch_end: str
    malformed_end: str
    truncated: str


@lru_cache(maxsize=1024)
def argument_wording(name: str) -> ProblemWording:
    return ProblemWording(
        subject=f"The arguments of `{name}`",
        mismatch="are wrong, so nothing was run:",
        mismatch_end="Correct them and call again.",
        malformed_end="Nothing was run; send them again.",
        truncated="were cut off before their end (arguments truncated), so nothing was run. Send the whole"
        " call again; if the content is long, split it over several calls.",
    )


ANSWER_WORDING = ProblemWording(
    subject="The contents of the answer",
    mismatch="do not fit the schema:",
    mismatch_end="Correct them.",
    malformed_end="Answer with one JSON object that fits the schema, and nothing else.",
    truncated="were cut off before their end.",
)
