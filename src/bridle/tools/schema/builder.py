"""Builds a JSON Schema and a strict loader from Python annotations.

    builder = SchemaBuilder()
    loadable = builder.read_type(dict[str, Annotated[int, "how many"]])
    loadable.load({"a": 1})                  # -> {"a": 1}, or raises JsonMismatch
    builder.make_document(loadable.schema)   # the schema as one document with its definitions

Objects list their required fields and allow no others, defaults are shown, enums keep their order, titles are
left out.  A type without a JSON form raises `NoJsonForm`, which says what to write instead.

Standard library types that are JSON strings are recognized by name, so that their modules are not imported.
"""

import collections.abc
import enum
import itertools
import os
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple, NoReturn, TypeVar, Union, get_args, get_origin

import msgspec

from . import json_types as made
from .annotations import AnnotationNotes, NoJsonForm, unwrap_annotation
from .document import (
    REFERENCE_PREFIX,
    Schema,
    optional_without_default,
    place_definitions,
    rewrite_references,
)
from .json_form import qualified_type_name, to_json_form
from .json_types import JsonDumper, JsonLoader, JsonMismatch, JsonType
from .object_types import NO_DEFAULT, ObjectField, ObjectType, read_object_type
from .open_values import OPEN_TYPES, remove_marks
from .overlap import (
    JsonSketch,
    Sketcher,
    describe_type,
    find_confusable,
    find_pydantic_confusion,
    has_pydantic_union,
    holds_objects,
)
from .pydantic_types import (
    PydanticType,
    check_strictly,
    list_unknown_fields,
    list_validation_errors,
    read_pydantic_type,
)

_SCALAR_TYPES: dict[Any, JsonType] = {
    Any: JsonType({}, made.load_any),
    object: JsonType({}, made.load_any),
    str: JsonType({"type": "string"}, made.load_text, "string"),
    int: JsonType({"type": "integer"}, made.load_integer, "number"),
    float: JsonType({"type": "number"}, made.load_number, "number"),
    bool: JsonType({"type": "boolean"}, made.load_boolean),
    type(None): JsonType({"type": "null"}, made.load_null),
    None: JsonType({"type": "null"}, made.load_null),
}


class _StringType(NamedTuple):
    """A Python type that is a JSON string."""

    schema: Schema
    expected: str
    kind: str = ""
    tz: bool | None = None


_TIME_PATTERN = r"([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,6})?"
_DECIMAL_PATTERN = r"^-?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?$"
_STRING_TYPES: dict[str, _StringType] = {
    "datetime.datetime": _StringType(
        {"type": "string", "format": "date-time"}, "a moment such as 2026-05-01T10:00:00Z", "moment", True
    ),
    "datetime.date": _StringType({"type": "string", "format": "date"}, "a date such as 2026-05-01", "moment"),
    "datetime.time": _StringType(
        {"type": "string", "pattern": f"^{_TIME_PATTERN}$"}, "a time such as 10:00:00", "moment", False
    ),
    "uuid.UUID": _StringType({"type": "string", "format": "uuid"}, "a UUID"),
    "decimal.Decimal": _StringType(
        {"type": "string", "pattern": _DECIMAL_PATTERN}, "a decimal number in a string, such as \"12.50\"", "decimal"
    ),
}  # fmt: skip
_NAIVE_DATETIME = _StringType(
    {"type": "string", "pattern": f"^[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}T{_TIME_PATTERN}$"},
    "a date and time without zone such as 2026-05-01T10:00:00", "moment", False,
)  # fmt: skip

_ARRAY_MAKERS: dict[Any, Callable[[list[Any]], Any]] = {
    list: list,
    tuple: tuple,
    set: set,
    frozenset: frozenset,
    collections.abc.Set: frozenset,
    collections.abc.MutableSet: set,
    **dict.fromkeys(
        (
            collections.abc.Sequence, collections.abc.MutableSequence, collections.abc.Collection,
            collections.abc.Iterable,
        ),
        list,
    ),
}  # fmt: skip
_MAPPING_TYPES = (dict, collections.abc.Mapping, collections.abc.MutableMapping)

_SUGGESTIONS = {
    "builtins.bytes": "take a `str` and decode it",
    "builtins.complex": "take two floats",
    "datetime.timedelta": "take a number and name its unit, as in `seconds: float`",
}
_SUPPORTED_TYPES = (
    "use str, int, float, bool, None, Literal, Enum, list, dict, a dataclass, a TypedDict or a pydantic model"
)


class SchemaBuilder:
    """Builds one document and collects its named types."""

    def __init__(self, names: Mapping[str, Any] | None = None, *, exact_unions: bool = False) -> None:
        """`names` resolves annotations that are strings.

        `exact_unions`: every value of a union is loaded as the type that it was written as, or the union is refused.
        Otherwise this holds for object types, and a text or a number is loaded as the narrowest type that accepts it.
        """
        self._visible_names = names or {}
        self._exact_unions = exact_unions
        self._sketcher = Sketcher(self._visible_names, exact_unions=exact_unions)
        self.has_unions = False
        """A type that was read has a choice between several types besides null."""
        self._names: dict[Any, str] = {}
        self._pydantic_types: dict[Any, JsonType] = {}
        self._definitions: dict[str, Schema] = {}
        self._loads: dict[str, JsonLoader] = {}
        self._dumps: dict[str, JsonDumper] = {}
        self._unseen_defaults: set[str] = set()

    @property
    def unseen_defaults(self) -> frozenset[str]:
        """Names of fields whose defaults are computed when a call runs, so that the schema lacks them."""
        return frozenset(self._unseen_defaults)

    def make_document(self, schema: Schema) -> Schema:
        return place_definitions(schema, self._definitions)

    def read_type(self, annotation: Any) -> JsonType:
        bare, notes = unwrap_annotation(annotation)
        if notes.needs_pydantic:
            met = read_pydantic_type(annotation, by_notes=True)
            return _reject_type(bare) if met is None else self._adopt_definitions(met, annotation)
        shape = made.apply_bounds(
            self._read_bare(bare, notes), {k: v for k, v in notes.bounds.items() if k != "tz"}
        )
        return shape._replace(
            schema=_add_description({**shape.schema, **notes.keywords}, notes.description, shape.hint)
        )

    def read_object(self, form: ObjectType) -> JsonType:
        properties: dict[str, Schema] = {
            name: made.constant_type([(value, value)]).schema for name, value in form.constants.items()
        }
        loads: dict[str, tuple[str, JsonLoader]] = {}
        dumps: dict[str, tuple[str, JsonDumper]] = {}
        for field in form.fields:
            try:
                shape = self.read_type(field.annotation)
                properties[field.name] = _field_schema(field, shape)
            except NoJsonForm as refusal:
                raise refusal.prefix_path(field.name) from None
            loads[field.name] = (field.attribute or field.name, shape.load)
            dumps[field.name] = (field.attribute or field.name, shape.dump)
            if not (field.required or field.may_be_absent or "default" in properties[field.name]):
                self._unseen_defaults.add(field.name)
        required = [*form.constants, *(field.name for field in form.fields if field.required)]
        schema: Schema = {"type": "object"}
        if form.description:
            schema["description"] = form.description
        schema |= {"properties": properties, "required": required, "additionalProperties": False}
        load = _make_object_loader(form, loads, frozenset(required))
        return JsonType(schema, load, dump=_make_object_dumper(form, dumps))

    def _read_bare(self, bare: Any, notes: AnnotationNotes) -> JsonType:
        if _is_hashable(bare) and bare in _SCALAR_TYPES:
            return _SCALAR_TYPES[bare]
        for read in (
            self._read_string_type,
            self._read_constants,
            self._read_union,
            self._read_array,
            self._read_mapping,
            self._read_named,
        ):
            shape = read(bare, notes)
            if shape is not None:
                return shape
        return _reject_type(bare)

    def _read_string_type(self, bare: Any, notes: AnnotationNotes) -> JsonType | None:
        if not isinstance(bare, type):
            return None
        if issubclass(bare, os.PathLike) and bare is not os.PathLike:
            path: Callable[[str], Any] = bare
            return JsonType({"type": "string"}, lambda value: path(made.load_text(value)), "string")
        written = _STRING_TYPES.get(qualified_type_name(bare))
        if written is None:
            return None
        if written.tz is True and notes.bounds.get("tz") is False:
            written = _NAIVE_DATETIME
        target = bare if written.tz is None else Annotated[bare, msgspec.Meta(tz=written.tz)]
        return JsonType(
            dict(written.schema),
            made.make_msgspec_loader(target, written.expected, written.schema.get("pattern")),
            written.kind,
        )

    def _read_constants(self, bare: Any, _: AnnotationNotes) -> JsonType | None:
        if get_origin(bare) is Literal:
            members = [(to_json_form(member), member) for member in get_args(bare)]
            return made.constant_type(_check_constants(members))
        if not isinstance(bare, type) or not issubclass(bare, enum.Enum):
            return None
        if issubclass(bare, enum.Flag):
            raise NoJsonForm(f"is the flag `{bare.__name__}`; use a list of an Enum")
        shape = made.constant_type(_check_constants([(member.value, member) for member in bare]))
        doc = (bare.__dict__.get("__doc__") or "").strip()
        described = {"description": doc} if doc not in ("", "An enumeration.") else {}
        return shape._replace(schema={**shape.schema, **described})

    def _read_union(self, bare: Any, _: AnnotationNotes) -> JsonType | None:
        if get_origin(bare) not in (Union, types.UnionType):
            return None
        args = get_args(bare)
        sketches = [self._sketcher.sketch(option) for option in args]
        self.has_unions |= sum(sketch.kind != "null" for sketch in sketches) > 1
        objects = [sketch.is_closed and not sketch.options for sketch in sketches]
        pairs = self._sketcher.find_tagged(sketches)
        for pair in find_confusable(sketches):
            if pair not in pairs and all(holds_objects(sketches[at]) for at in pair):
                first, second = (describe_type(args[at]) for at in pair)
                raise NoJsonForm(
                    f"is a union in which `{first}` and `{second}` can be the same JSON; make it one list or dict of"
                    " a union of classes, or use types with other fields"
                )
        if not pairs:
            shapes = [self.read_type(option) for option in args]
            if sum(objects) > 1:
                shapes = [
                    _add_title(shape, describe_type(option)) if is_object else shape
                    for shape, option, is_object in zip(shapes, args, objects, strict=True)
                ]
            return made.union_type(shapes, sketches)
        for pair in pairs:
            if all(sketches[at].is_dict for at in pair):
                first, second = (describe_type(args[at]) for at in pair)
                raise NoJsonForm(
                    f"is a union in which `{first}` and `{second}` can be the same dict; tell them apart by a"
                    " `Literal` field, or make them dataclasses"
                )
        return self._tag_union(args, sketches, {at for pair in pairs for at in pair})

    def _tag_union(self, args: Sequence[Any], sketches: Sequence[JsonSketch], confused: set[int]) -> JsonType:
        """Read a union with a field that names the type in all of its objects; other types in doubt become objects."""
        used = {name for sketch in sketches for name in sketch.fields}
        tag = next(name for name in _list_tag_fields() if name not in used)
        names = _name_options(args)
        shapes, given = [], []
        for at, (option, sketch) in enumerate(zip(args, sketches, strict=True)):
            is_open = {"any", "object"} & {each.kind for each in sketch.options or (sketch,)}
            if sketch.is_closed and not sketch.options:
                shapes.append(self._read_tagged(option, tag, names[at]))
                given.append(names[at])
            elif self._exact_unions and (at in confused or is_open):
                held = ObjectField("value", option)
                form = ObjectType(
                    names[at], (held,), lambda given: given["value"], "", {tag: names[at]},
                    lambda value, _: value,
                )  # fmt: skip
                shapes.append(self.read_object(form))
                given.append(names[at])
            else:
                shapes.append(self.read_type(option))
                given.append("")
        return made.union_type(shapes, sketches, made.UnionTag(tag, tuple(given)))

    def _read_tagged(self, annotation: Any, tag: str, name: str) -> JsonType:
        """Read an object type with a further field that holds its name."""
        bare, notes = unwrap_annotation(annotation)
        key = ("tagged", tag, name, bare)
        if key in self._names:
            shape = self._make_reference(self._names[key])
        elif read_pydantic_type(bare) is not None:
            shape = self._define(
                key, name, made.load_object, lambda: self._tag_pydantic_type(bare, tag, name)
            )
        else:
            form = read_object_type(bare, self._visible_names)
            assert form is not None, "a closed object is of pydantic or has an object type"
            tagged = form._replace(constants={tag: name, **form.constants})
            shape = self._define(key, form.name, made.load_object, lambda: self.read_object(tagged))
        return shape._replace(
            schema=_add_description({**shape.schema, **notes.keywords}, notes.description, "")
        )

    def _tag_pydantic_type(self, bare: Any, tag: str, name: str) -> JsonType:
        shape = self._read_bare(bare, AnnotationNotes())
        reference = str(shape.schema.get("$ref", "")).removeprefix(REFERENCE_PREFIX)
        schema = self._definitions.get(reference, shape.schema)
        schema = {
            **schema,
            "properties": {tag: made.constant_type([(name, name)]).schema, **schema.get("properties", {})},
            "required": [tag, *schema.get("required", ())],
        }

        def load(value: Any) -> Any:
            held = made.load_object(value)
            return shape.load(type(held)({key: each for key, each in held.items() if key != tag}))  # type: ignore[call-arg]

        return JsonType(schema, load, dump=lambda value: {tag: name, **shape.dump(value)})

    def _read_array(self, bare: Any, _: AnnotationNotes) -> JsonType | None:
        origin = get_origin(bare) or bare
        make = _ARRAY_MAKERS.get(origin) if _is_hashable(origin) else None
        if make is None:
            return None
        args = get_args(bare)
        if origin is tuple and bare not in (tuple, typing.Tuple) and args[1:] != (...,):  # noqa: UP006
            return made.fixed_array_type([self._read_item(arg) for arg in args])
        return made.array_type(self._read_item(args[0] if args else Any), make)

    def _read_mapping(self, bare: Any, _: AnnotationNotes) -> JsonType | None:
        if (get_origin(bare) or bare) not in _MAPPING_TYPES:
            return None
        key, item = get_args(bare) or (str, Any)
        named = self.read_type(str if key is Any else key)
        if named.schema.get("type") != "string":
            raise NoJsonForm(
                "is a dict whose keys are not strings, which JSON does not allow; use dict[str, …]"
            )
        return made.mapping_type(named, self._read_item(item))

    def _read_named(self, bare: Any, _: AnnotationNotes) -> JsonType | None:
        """Read a type that may be recursive: an object type, a pydantic type or a `type` alias."""
        if _is_hashable(bare) and bare in self._names:
            return self._make_reference(self._names[bare])
        if hasattr(bare, "__value__"):
            return self._define(bare, bare.__name__, made.load_any, lambda: self.read_type(bare.__value__))
        if _is_hashable(bare) and bare in self._pydantic_types:
            return self._pydantic_types[bare]
        found = read_pydantic_type(bare)
        if found is not None:
            return self._pydantic_types.setdefault(bare, self._adopt_definitions(found, bare))
        form = read_object_type(bare, self._visible_names)
        if form is not None:
            return self._define(bare, form.name, made.load_object, lambda: self.read_object(form))
        return None

    def _read_item(self, annotation: Any) -> JsonType:
        try:
            return self.read_type(annotation)
        except NoJsonForm as refusal:
            raise refusal.prefix_path("[]") from None

    def _define(
        self, key: Any, wanted: str, meanwhile: JsonLoader, build: Callable[[], JsonType]
    ) -> JsonType:
        """Define a named type; `meanwhile` loads defaults of recursive fields until it is complete."""
        name = self._free_name(wanted)
        self._names[key] = name
        self._definitions[name] = {}  # reserves the name
        self._loads[name] = meanwhile
        shape = build()
        self._definitions[name] = shape.schema
        self._loads[name] = shape.load
        self._dumps[name] = shape.dump
        return self._make_reference(name, shape.kind)

    def _make_reference(self, name: str, kind: str = "") -> JsonType:
        def load(value: Any) -> Any:
            return self._loads[name](value)  # looked up on call: the type may be recursive

        def dump(value: Any) -> Any:
            return self._dumps.get(name, to_json_form)(value)

        return JsonType({"$ref": REFERENCE_PREFIX + name}, load, kind, dump=dump)

    def _adopt_definitions(self, met: PydanticType, annotation: Any) -> JsonType:
        """Merge the definitions of a pydantic schema; equal definitions with the same name are shared."""
        has_union = has_pydantic_union(met.schema)
        self.has_unions |= has_union
        find_pydantic_confusion(annotation, self._visible_names, objects_only=not self._exact_unions)
        self._unseen_defaults |= optional_without_default(met.schema)
        own: dict[str, Schema] = met.schema.get("$defs", {})
        root = {key: held for key, held in met.schema.items() if key != "$defs"}
        renamed = {
            name: name if self._definitions.get(name) == held else self._free_name(name)
            for name, held in own.items()
        }

        def moved(schema: Schema) -> Schema:
            return rewrite_references(
                schema, lambda ref: REFERENCE_PREFIX + renamed.get(ref.removeprefix(REFERENCE_PREFIX), ref)
            )

        self._definitions |= {renamed[name]: moved(held) for name, held in own.items()}
        top = own.get(str(root.get("$ref", "")).removeprefix(REFERENCE_PREFIX), root)
        schema = moved(root)
        if "properties" in root:
            name = met.name if self._definitions.get(met.name) == schema else self._free_name(met.name)
            self._definitions[name] = schema
            schema = {"$ref": REFERENCE_PREFIX + name}
        load = _make_pydantic_loader(met, top, has_union=has_union)
        return JsonType(schema, load, dump=_make_pydantic_dumper(annotation))

    def _free_name(self, wanted: str) -> str:
        plain = "".join(letter if letter.isalnum() and letter.isascii() else "_" for letter in wanted).strip(
            "_"
        )
        name, count = plain or "Value", 1
        while name in self._definitions:
            count += 1
            name = f"{plain or 'Value'}_{count}"
        return name


def _field_schema(field: ObjectField, shape: JsonType) -> Schema:
    words = unwrap_annotation(field.annotation)[1].description or field.description
    schema = _add_description(dict(shape.schema), words, shape.hint)
    if field.default is not NO_DEFAULT:
        try:
            schema["default"] = shape.dump(field.default)
            shape.load(schema["default"])
        except (TypeError, JsonMismatch):
            instead = "write `… | None`" if field.default is None else "change the default or the annotation"
            raise NoJsonForm(
                f"has the default {field.default!r}, which is not of its type; {instead}"
            ) from None
    return schema


def _add_description(schema: Schema, words: str, hint: str) -> Schema:
    description = " ".join(filter(None, (words, hint)))
    return {**schema, "description": description} if description else schema


def _make_object_loader(
    form: ObjectType, loads: Mapping[str, tuple[str, JsonLoader]], required: frozenset[str]
) -> JsonLoader:
    def load(value: Any) -> Any:
        given: dict[str, Any] = {}
        for name, held in made.load_object(value).items():
            known = loads.get(name)
            if known is not None:
                try:
                    given[known[0]] = known[1](held)
                except JsonMismatch as mismatch:
                    raise mismatch.prefix_path(name) from None
            elif form.constants.get(name) != held or name not in form.constants:
                wanted = form.constants.get(name)
                raise JsonMismatch("unknown field" if wanted is None else f"expected {wanted!r}", (name,))
        if not required <= value.keys():
            missing = next(
                name for name in (*form.constants, *loads) if name in required and name not in value
            )
            raise JsonMismatch("missing field", (missing,))
        try:
            return form.make(given)
        except (TypeError, ValueError) as error:
            raise JsonMismatch(str(error)) from error

    return load


def _make_object_dumper(form: ObjectType, dumps: Mapping[str, tuple[str, JsonDumper]]) -> JsonDumper:
    def dump(value: Any) -> Any:
        if form.instance_of is not None and not isinstance(value, form.instance_of):
            raise TypeError(f"a {type(value).__name__}, which is not a {form.name}")
        if form.makes_dict and not value.keys() <= dumps.keys():
            raise TypeError(f"a dict with other fields than a {form.name}")
        given = (
            (name, write, form.get_value(value, attribute)) for name, (attribute, write) in dumps.items()
        )
        return {
            **form.constants,
            **{name: write(held) for name, write, held in given if held is not NO_DEFAULT},
        }

    return dump


def _add_title(shape: JsonType, name: str) -> JsonType:
    return shape._replace(schema={**shape.schema, "title": name})


def _list_tag_fields() -> Iterator[str]:
    """Names for the field that names a type, in order of preference."""
    yield from ("type", "kind", "type_name")
    yield from (f"type_name_{count}" for count in itertools.count(2))


def _name_options(args: Sequence[Any]) -> list[str]:
    """A name for each type of a union; raises `NoJsonForm` if two cannot be told apart."""
    names = [describe_type(arg) for arg in args]
    if len(set(names)) < len(names):
        full = [qualified_type_name(arg) if isinstance(arg, type) else str(arg) for arg in args]
        names = [long if names.count(name) > 1 else name for name, long in zip(names, full, strict=True)]
    for name in names:
        if names.count(name) > 1:
            raise NoJsonForm(f"is a union of two types named `{name}` that can be the same JSON; rename one")
    return names


def _make_pydantic_dumper(annotation: Any) -> JsonDumper:
    def dump(value: Any) -> Any:
        if isinstance(annotation, type) and not isinstance(value, annotation):
            raise TypeError(f"a {type(value).__name__}, which is not a {annotation.__name__}")
        return to_json_form(value)

    return dump


def _make_pydantic_loader(met: PydanticType, top: Schema, *, has_union: bool) -> JsonLoader:
    def load(value: Any) -> Any:
        if isinstance(value, OPEN_TYPES):
            if has_union:
                raise JsonMismatch("not enough of it has arrived to tell its types")
            value = remove_marks(value)
        unknown = list_unknown_fields(top, value)
        if unknown:
            raise JsonMismatch("unknown field", (unknown[0],))
        try:
            return check_strictly(met.check, value)
        except ValueError as error:
            first = list_validation_errors(error)[0]
            raise JsonMismatch(first[1], first[0]) from error

    return load


def _check_constants(members: Sequence[tuple[Any, Any]]) -> Sequence[tuple[Any, Any]]:
    for constant, member in members:
        if type(constant) not in made.CONSTANT_TYPES:
            raise NoJsonForm(
                f"has the choice {member!r}, which is not a JSON constant; use strings or numbers"
            )
    return members


def _is_hashable(bare: Any) -> bool:
    return isinstance(bare, collections.abc.Hashable)


def _reject_type(bare: Any) -> NoReturn:
    if isinstance(bare, TypeVar):
        raise NoJsonForm(f"is the type variable `{bare}`; write a concrete type")
    if isinstance(bare, str | typing.ForwardRef):
        raise NoJsonForm(f"is the unresolved name {bare!r}; define it above, or write `Any`")
    full = qualified_type_name(bare) if isinstance(bare, type) else str(bare)
    name = full.removeprefix("builtins.").removeprefix("typing.")
    raise NoJsonForm(f"is a `{name}`, which has no JSON form; {_SUGGESTIONS.get(full, _SUPPORTED_TYPES)}")
