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
import os
import types
import typing
from collections.abc import Callable, Mapping, Sequence
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
from .json_types import JsonLoader, JsonMismatch, JsonType
from .object_types import NO_DEFAULT, ObjectField, ObjectType, read_object_type
from .pydantic_types import (
    PydanticType,
    encode_strict_json,
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

    def __init__(self, names: Mapping[str, Any] | None = None) -> None:
        """`names` resolves annotations that are strings."""
        self._visible_names = names or {}
        self._names: dict[Any, str] = {}
        self._pydantic_types: dict[Any, JsonType] = {}
        self._definitions: dict[str, Schema] = {}
        self._loads: dict[str, JsonLoader] = {}
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
            return _reject_type(bare) if met is None else self._adopt_definitions(met)
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
        for field in form.fields:
            try:
                shape = self.read_type(field.annotation)
                properties[field.name] = _field_schema(field, shape)
            except NoJsonForm as refusal:
                raise refusal.prefix_path(field.name) from None
            loads[field.name] = (field.attribute or field.name, shape.load)
            if not (field.required or field.may_be_absent or "default" in properties[field.name]):
                self._unseen_defaults.add(field.name)
        required = [*form.constants, *(field.name for field in form.fields if field.required)]
        schema: Schema = {"type": "object"}
        if form.description:
            schema["description"] = form.description
        schema |= {"properties": properties, "required": required, "additionalProperties": False}
        return JsonType(schema, _make_object_loader(form, loads, frozenset(required)))

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
        return made.union_type([self.read_type(option) for option in get_args(bare)])

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
            return self._pydantic_types.setdefault(bare, self._adopt_definitions(found))
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
        return self._make_reference(name, shape.kind)

    def _make_reference(self, name: str, kind: str = "") -> JsonType:
        def load(value: Any) -> Any:
            return self._loads[name](value)  # looked up on call: the type may be recursive

        return JsonType({"$ref": REFERENCE_PREFIX + name}, load, kind)

    def _adopt_definitions(self, met: PydanticType) -> JsonType:
        """Merge the definitions of a pydantic schema; equal definitions with the same name are shared."""
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
        return JsonType(schema, _make_pydantic_loader(met, top))

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
            schema["default"] = to_json_form(field.default)
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


def _make_pydantic_loader(met: PydanticType, top: Schema) -> JsonLoader:
    def load(value: Any) -> Any:
        unknown = list_unknown_fields(top, value)
        if unknown:
            raise JsonMismatch("unknown field", (unknown[0],))
        try:
            return met.check(encode_strict_json(value))
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
