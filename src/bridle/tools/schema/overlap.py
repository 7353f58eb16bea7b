"""Decides which types of a union could be mistaken for one another, from their annotations.

    find_confusable([list[int], set[int], None], names)     [(0, 1)]

Two types are confusable if a JSON value may satisfy both and would become different Python values.  A `JsonSketch`
describes the JSON of a type roughly, and only ever too widely: what is called distinct is distinct.  `str` and a
`Literal` overlap and are not confusable, because both leave the value as it is.
"""

import collections.abc
import enum
import os
import re
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from itertools import combinations
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin

from .annotations import NoJsonForm, unwrap_annotation
from .document import REFERENCE_PREFIX, Schema
from .json_form import qualified_type_name, to_json_form
from .object_types import ObjectType, read_object_type
from .open_values import OpenArray, OpenObject, OpenText
from .pydantic_types import read_pydantic_type

DEPTH_MAX = 4
OBJECT_DEPTH = 2
"""Part of the depth that an object uses up, which has many fields."""


class JsonSketch(NamedTuple):
    kind: str
    """`null`, `boolean`, `integer`, `number`, `string`, `array`, `object`, `any`, or `union`."""
    made: str = ""
    """Python form of the value; empty if the JSON value is left as it is."""
    constants: tuple[Any, ...] | None = None
    text: str = ""
    """Kind of the string, a key of `_TEXT_PATTERNS`; empty for any."""
    fields: Mapping[str, "JsonSketch"] = {}
    required: frozenset[str] = frozenset()
    is_closed: bool = False
    """An object without other fields than the named."""
    item: "JsonSketch | None" = None
    """Of the items of an array, or of the values of a map."""
    items: tuple["JsonSketch", ...] | None = None
    """Of an array of a fixed length."""
    options: tuple["JsonSketch", ...] = ()
    is_dict: bool = False
    """The Python value is a plain dict, which does not tell its type."""


UNKNOWN = JsonSketch("any", "unknown")
TAGGED = JsonSketch("object", "tagged", item=UNKNOWN)
"""A value with the name of its type, in a field that none of the types of the union has."""
_SCALARS: dict[Any, JsonSketch] = {
    Any: JsonSketch("any"),
    object: JsonSketch("any"),
    str: JsonSketch("string"),
    int: JsonSketch("integer"),
    float: JsonSketch("number", "float"),
    bool: JsonSketch("boolean"),
    None: JsonSketch("null"),
    type(None): JsonSketch("null"),
}
_TEXTS = {
    "datetime.datetime": "moment",
    "datetime.date": "date",
    "datetime.time": "time",
    "uuid.UUID": "uuid",
    "decimal.Decimal": "decimal",
}
_FORMATS = {"date-time": "moment", "date": "date", "time": "time", "uuid": "uuid"}
_TEXT_PATTERNS = {
    "moment": re.compile(r"\d{4}-\d\d-\d\d[Tt ]"),
    "date": re.compile(r"\d{4}-\d\d-\d\d$"),
    "time": re.compile(r"\d\d:\d\d"),
    "uuid": re.compile(r"[0-9a-fA-F-]{32,36}$"),
    "decimal": re.compile(r"-?\d"),
}
"""What texts of these kinds begin with, or are."""
_DISTINCT_TEXTS = {
    frozenset(pair) for pair in (*combinations(("moment", "date", "time", "uuid"), 2),
                                 ("decimal", "moment"), ("decimal", "date"), ("decimal", "time"))
}  # fmt: skip
_ARRAYS: dict[Any, str] = {
    list: "", tuple: "tuple", set: "set", frozenset: "frozenset",
    collections.abc.Set: "frozenset", collections.abc.MutableSet: "set",
    collections.abc.Sequence: "", collections.abc.MutableSequence: "",
    collections.abc.Collection: "", collections.abc.Iterable: "",
}  # fmt: skip
_MAPS = (dict, collections.abc.Mapping, collections.abc.MutableMapping)
_KINDS: dict[type, str] = {
    str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null", list: "array", dict: "object",
}  # fmt: skip


def find_confusable(sketches: Sequence[JsonSketch]) -> list[tuple[int, int]]:
    """The pairs of types that could be mistaken for one another, by their places."""
    places = range(len(sketches))
    return [pair for pair in combinations(places, 2) if _is_union_confusable(*(sketches[at] for at in pair))]


def _is_union_confusable(first: JsonSketch, second: JsonSketch) -> bool:
    # Directly in a union, 3 is an int and 3.0 a float.
    numbers = {first.kind, second.kind} == {"integer", "number"}
    return not (numbers and {first.made, second.made} == {"", "float"}) and is_confusable(first, second)


def is_confusable(first: JsonSketch, second: JsonSketch) -> bool:
    """True if one JSON value may satisfy both and become different values."""
    if first.options or second.options:
        return any(
            is_confusable(a, b) for a in first.options or (first,) for b in second.options or (second,)
        )
    if first == second or (is_plain(first) and is_plain(second)):
        return False
    if not overlaps(first, second):
        return False
    if first.item and second.item and (first.kind, first.made) == (second.kind, second.made):
        return is_confusable(first.item, second.item)
    return True


def is_plain(sketch: JsonSketch) -> bool:
    """True if loading leaves the JSON value as it is."""
    inner = (*((sketch.item,) if sketch.item else ()), *(sketch.items or ()), *sketch.options)
    return not sketch.made and all(map(is_plain, inner))


def overlaps(first: JsonSketch, second: JsonSketch) -> bool:
    """True if one JSON value may satisfy both."""
    if first.options or second.options:
        return any(overlaps(a, b) for a in first.options or (first,) for b in second.options or (second,))
    if "any" in (first.kind, second.kind):
        return True
    if first.kind != second.kind:
        return {first.kind, second.kind} == {"integer", "number"}
    if first.constants is not None or second.constants is not None:
        given, other = (first, second) if first.constants is not None else (second, first)
        return any(_accepts_constant(other, constant) for constant in given.constants or ())
    compare = _OVERLAPS.get(first.kind)
    return compare is None or compare(first, second)


def _accepts_constant(sketch: JsonSketch, constant: Any) -> bool:
    if sketch.constants is not None:
        return constant in sketch.constants
    pattern = _TEXT_PATTERNS.get(sketch.text)
    return pattern is None or bool(pattern.match(str(constant)))


def _overlap_texts(first: JsonSketch, second: JsonSketch) -> bool:
    return frozenset((first.text, second.text)) not in _DISTINCT_TEXTS


def _overlap_arrays(first: JsonSketch, second: JsonSketch) -> bool:
    if first.items is None and second.items is None:
        return True  # empty ones
    count = len(first.items if first.items is not None else second.items or ())
    pair = [
        sketch.items if sketch.items is not None else (sketch.item or UNKNOWN,) * count
        for sketch in (first, second)
    ]
    return len(pair[0]) == len(pair[1]) and all(map(overlaps, *pair))


def _overlap_objects(first: JsonSketch, second: JsonSketch) -> bool:
    for name in first.required | second.required:
        held = [_find_field(sketch, name) for sketch in (first, second)]
        if held[0] is None or held[1] is None or not overlaps(held[0], held[1]):
            return False
    return True


def _find_field(sketch: JsonSketch, name: str) -> JsonSketch | None:
    """The field of that name; None if the object cannot have one."""
    return sketch.fields.get(name) or (None if sketch.is_closed else sketch.item or UNKNOWN)


_OVERLAPS: dict[str, Callable[[JsonSketch, JsonSketch], bool]] = {
    "string": _overlap_texts,
    "array": _overlap_arrays,
    "object": _overlap_objects,
}


def may_become(sketch: JsonSketch, value: Any) -> bool:
    """True if a value whose open parts are still arriving may become one of this type."""
    if sketch.options:
        return any(may_become(option, value) for option in sketch.options)
    if sketch.kind == "any" or isinstance(value, OpenText):
        return sketch.kind in ("string", "any")
    kind = next((kind for type_, kind in _KINDS.items() if isinstance(value, type_)), "any")
    if sketch.kind != kind and {sketch.kind, kind} != {"integer", "number"}:
        return False
    if isinstance(value, dict):
        return _may_become_object(sketch, value)
    if isinstance(value, list):
        return _may_become_array(sketch, value)
    return sketch.constants is None or value in sketch.constants


def _may_become_object(sketch: JsonSketch, value: Mapping[str, Any]) -> bool:
    if not isinstance(value, OpenObject) and not sketch.required <= value.keys():
        return False
    known = ((_find_field(sketch, name), held) for name, held in value.items())
    return all(field is not None and may_become(field, held) for field, held in known)


def _may_become_array(sketch: JsonSketch, value: Sequence[Any]) -> bool:
    if sketch.items is None:
        return all(may_become(sketch.item or UNKNOWN, held) for held in value)
    count = len(sketch.items)
    if len(value) > count or (len(value) < count and not isinstance(value, OpenArray)):
        return False
    return all(map(may_become, sketch.items, value))


class Sketcher:
    """Sketches annotations; `names` resolves those that are strings."""

    def __init__(
        self, names: Mapping[str, Any], *, exact_unions: bool = False, in_pydantic: bool = False
    ) -> None:
        """`exact_unions`: as for the builder of the schema.

        `in_pydantic`: types as pydantic reads them, to which a number is a `Decimal` too, and 1 is `Literal[True]`.
        """
        self._names, self._exact_unions, self._in_pydantic = names, exact_unions, in_pydantic

    def sketch(self, annotation: Any, depth: int = DEPTH_MAX) -> JsonSketch:
        bare, notes = unwrap_annotation(annotation)
        if notes.needs_pydantic or (self._in_pydantic and bare is Decimal):
            return UNKNOWN
        if isinstance(bare, collections.abc.Hashable) and bare in _SCALARS:
            return _SCALARS[bare]
        for read in (_sketch_text, _sketch_constants):
            found = read(bare)
            if found is not None:
                return _add_numbers(found) if self._in_pydantic else found
        if depth <= 0:
            return UNKNOWN
        return self._sketch_container(bare, depth) or self._sketch_named(bare, depth) or UNKNOWN

    def find_tagged(self, options: Sequence[JsonSketch]) -> list[tuple[int, int]]:
        """The pairs of types of a union for whose sake its values are sent with the names of their types."""
        objects = [sketch.is_closed and not sketch.options and not sketch.is_dict for sketch in options]
        return [
            pair for pair in find_confusable(options) if self._exact_unions or all(objects[at] for at in pair)
        ]

    def _sketch_container(self, bare: Any, depth: int) -> JsonSketch | None:
        origin, args = get_origin(bare) or bare, get_args(bare)
        if origin in (Union, types.UnionType):
            options = [self.sketch(arg, depth) for arg in args]
            is_tagged = not self._in_pydantic and bool(self.find_tagged(options))
            return _sketch_union((*options, TAGGED) if is_tagged else options)
        if not isinstance(origin, collections.abc.Hashable):
            return None
        if origin in _ARRAYS:
            if origin is tuple and args[1:] != (...,) and bare is not tuple:
                return JsonSketch("array", "tuple", items=tuple(self.sketch(arg, depth - 1) for arg in args))
            return JsonSketch("array", _ARRAYS[origin], item=self.sketch(args[0] if args else Any, depth - 1))
        if origin in _MAPS:
            key, item = args or (str, Any)
            made = "" if is_plain(self.sketch(key, 0)) else "keys"
            return JsonSketch("object", made, item=self.sketch(item, depth - 1), is_dict=True)
        return None

    def _sketch_named(self, bare: Any, depth: int) -> JsonSketch | None:
        if hasattr(bare, "__value__"):
            return self.sketch(bare.__value__, depth - 1)
        met = read_pydantic_type(bare)
        if met is not None:
            schema = sketch_schema(met.schema, met.schema.get("$defs", {}), depth)
            return (_add_numbers(schema) if self._in_pydantic else schema)._replace(made=_name_type(bare))
        form = read_object_type(bare, self._names)
        return None if form is None else self.sketch_object(form, _name_type(bare), depth)

    def sketch_object(self, form: ObjectType, made: str, depth: int = DEPTH_MAX) -> JsonSketch:
        constants = {name: _sketch_values([held], "") for name, held in form.constants.items()}
        fields = {field.name: self.sketch(field.annotation, depth - OBJECT_DEPTH) for field in form.fields}
        return JsonSketch(
            "object", made,
            fields={**constants, **fields},
            required=frozenset((*constants, *(field.name for field in form.fields if field.required))),
            is_closed=True, is_dict=form.makes_dict,
        )  # fmt: skip


def _sketch_text(bare: Any) -> JsonSketch | None:
    if not isinstance(bare, type):
        return None
    if issubclass(bare, os.PathLike) and bare is not os.PathLike:
        return JsonSketch("string", _name_type(bare))
    kind = _TEXTS.get(qualified_type_name(bare))
    return None if kind is None else JsonSketch("string", _name_type(bare), text=kind)


def _sketch_constants(bare: Any) -> JsonSketch | None:
    if get_origin(bare) is Literal:
        members = get_args(bare)
        # A Literal may hold members of an enum, which are not their JSON.
        made = next((_name_type(type(each)) for each in members if isinstance(each, enum.Enum)), "")
        return _sketch_values([to_json_form(member) for member in members], made)
    if isinstance(bare, type) and issubclass(bare, enum.Enum):
        return _sketch_values([member.value for member in bare], _name_type(bare))
    return None


def _sketch_values(values: Iterable[Any], made: str) -> JsonSketch:
    by_kind: dict[str, list[Any]] = {}
    for value in values:
        by_kind.setdefault(_KINDS.get(type(value), "any"), []).append(value)
    return _sketch_union(JsonSketch(kind, made, constants=tuple(held)) for kind, held in by_kind.items())


def _add_numbers(sketch: JsonSketch) -> JsonSketch:
    """The type with 0 and 1 where it has the constants false and true."""
    if sketch.kind == "boolean" and sketch.constants is not None:
        numbers = tuple(map(int, sketch.constants))
        return _sketch_union((sketch, JsonSketch("integer", "boolean", constants=numbers)))
    return sketch._replace(
        fields={name: _add_numbers(field) for name, field in sketch.fields.items()},
        item=sketch.item and _add_numbers(sketch.item),
        items=sketch.items and tuple(map(_add_numbers, sketch.items)),
        options=tuple(map(_add_numbers, sketch.options)),
    )


def _sketch_union(options: Iterable[JsonSketch]) -> JsonSketch:
    listed = tuple(options)
    return listed[0] if len(listed) == 1 else JsonSketch("union", options=listed)


def _name_type(bare: Any) -> str:
    # Two classes may have the same name.
    return f"{bare} {id(get_origin(bare) or bare)}"


def sketch_schema(schema: Schema, definitions: Mapping[str, Schema], depth: int) -> JsonSketch:
    """Sketch a JSON Schema of pydantic, whose values are objects of its own."""
    for _ in definitions:
        if "$ref" not in schema:
            break
        schema = definitions.get(str(schema["$ref"]).removeprefix(REFERENCE_PREFIX), {})
    alternatives = schema.get("anyOf") or schema.get("oneOf")
    if alternatives:
        return _sketch_union(sketch_schema(each, definitions, depth) for each in alternatives)
    constants = [schema["const"]] if "const" in schema else schema.get("enum")
    if constants:
        return _sketch_values(constants, "pydantic")
    kind = schema.get("type")
    if not isinstance(kind, str) or depth <= 0:
        return UNKNOWN
    fields = {
        name: sketch_schema(held, definitions, depth - OBJECT_DEPTH)
        for name, held in (schema.get("properties") or {}).items()
    }
    open_fields = schema.get("additionalProperties", True)
    return JsonSketch(
        kind,
        "pydantic",
        text=_FORMATS.get(schema.get("format", ""), ""),
        fields=fields,
        required=frozenset(schema.get("required") or ()),
        is_closed=kind == "object" and open_fields is False,
        item=UNKNOWN if kind in ("array", "object") else None,
    )


def holds_objects(sketch: JsonSketch) -> bool:
    """True if a value is an object of a class, or a list or map of such."""
    if sketch.fields:
        return not sketch.is_dict
    held = (*sketch.options, *(sketch.items or ()), *((sketch.item,) if sketch.item is not None else ()))
    return any(map(holds_objects, held))


def find_pydantic_confusion(model: Any, names: Mapping[str, Any], *, objects_only: bool = False) -> None:
    """Raise `NoJsonForm` for a union inside a pydantic model whose types could be mistaken for one another.

    `objects_only`: other types than objects may be; then the narrowest one is meant.
    """
    sketcher, seen = Sketcher(names, in_pydantic=True), set[Any]()

    def look(annotation: Any, path: str) -> None:
        bare, _ = unwrap_annotation(annotation)
        args = get_args(bare)
        if get_origin(bare) in (Union, types.UnionType) and not _has_discriminator(annotation):
            sketches = [sketcher.sketch(arg) for arg in args]
            found = [
                pair
                for pair in find_confusable(sketches)
                if not objects_only or all(holds_objects(sketches[at]) for at in pair)
            ]
            if found:
                first, second = (describe_type(args[at]) for at in found[0])
                raise NoJsonForm(
                    f"is a union in which `{first}` and `{second}` can be the same JSON; tell them apart by a"
                    " `Literal` field with `Field(discriminator=…)`, or use types with other fields",
                    path,
                )
        for arg in args:
            look(arg, path)
        if isinstance(bare, type) and bare not in seen:
            seen.add(bare)
            for name, held in _list_fields(bare, names):
                look(held, f"{path}.{name}".lstrip("."))

    look(model, "")


def _list_fields(bare: type, names: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """The fields of an object type of pydantic or of Python, without those that pydantic tells apart by a tag."""
    fields = getattr(bare, "__pydantic_fields__", None)
    if isinstance(fields, Mapping):
        return [
            (name, field.annotation)
            for name, field in fields.items()
            if not _is_discriminator(field) and not any(map(_is_discriminator, field.metadata))
        ]
    form = read_object_type(bare, names)
    return [] if form is None else [(field.name, field.annotation) for field in form.fields]


def has_pydantic_union(schema: Schema) -> bool:
    """True if a schema of pydantic has a choice between several types besides null."""

    def count(part: Any) -> bool:
        if isinstance(part, list):
            return any(map(count, part))
        if not isinstance(part, dict):
            return False
        options = [each for each in part.get("anyOf") or part.get("oneOf") or () if each != {"type": "null"}]
        return len(options) > 1 or any(map(count, part.values()))

    return count(schema)


def _has_discriminator(annotation: Any) -> bool:
    return any(map(_is_discriminator, getattr(annotation, "__metadata__", ())))


def _is_discriminator(note: Any) -> bool:
    return getattr(note, "discriminator", None) is not None


def describe_type(annotation: Any) -> str:
    """The type as it is written, without its modules."""
    annotation, _ = unwrap_annotation(annotation)
    if annotation in (None, type(None)):
        return "None"
    args = get_args(annotation)
    name = getattr(annotation, "__name__", "") or str(annotation).replace("typing.", "")
    if not args or get_origin(annotation) is Literal:
        return str(annotation).replace("typing.", "") if args else str(name)
    if get_origin(annotation) in (Union, types.UnionType):
        return " | ".join(map(describe_type, args))
    inner = ", ".join("..." if arg is ... else describe_type(arg) for arg in args)
    return f"{name}[{inner}]"
