"""Which Python type has which shape: annotations in, JSON Schema and a strict loader out.

    shapes = Shapes()
    shape = shapes.of(dict[str, Annotated[int, "how many"]])
    shape.load({"a": 1})                 # -> {"a": 1}, or raises Mismatch
    shapes.document(shape.schema)        # the schema as one document, definitions in place

The rules of every schema made here: objects name their required fields and take no
others, defaults are told, enums keep their order, titles are left out.  A type without
JSON form is `NoJsonForm`, which says what to write instead; the caller knows whose
parameter it was.

Types of the standard library that are strings in JSON are known by their names, so that
nobody pays for importing a module whose types he does not use.
"""

import collections.abc
import enum
import os
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple, NoReturn, TypeVar, Union, get_args, get_origin

import msgspec

from . import shapes as made
from .annotations import NoJsonForm, Notes, peel
from .document import REFERENCE, Schema, optional_without_default, referring, with_definitions
from .foreign import Foreign, as_json, complaint, foreign, unknown_fields
from .objects import NO_DEFAULT, Field, Form, form_of
from .plain import json_form, type_name
from .shapes import Load, Mismatch, Shape

_SCALARS: dict[Any, Shape] = {
    Any: Shape({}, made.load_anything),
    object: Shape({}, made.load_anything),
    str: Shape({"type": "string"}, made.load_text, "string"),
    int: Shape({"type": "integer"}, made.load_integer, "number"),
    float: Shape({"type": "number"}, made.load_number, "number"),
    bool: Shape({"type": "boolean"}, made.load_boolean),
    type(None): Shape({"type": "null"}, made.load_null),
    None: Shape({"type": "null"}, made.load_null),
}


class _Written(NamedTuple):
    """A type that is a string in JSON."""

    schema: Schema
    expected: str
    kind: str = ""
    tz: bool | None = None


_CLOCK = r"([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,6})?"
_DECIMAL = r"^-?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?$"
_WRITTEN: dict[str, _Written] = {
    "datetime.datetime": _Written(
        {"type": "string", "format": "date-time"}, "a moment such as 2026-05-01T10:00:00Z", "moment", True
    ),
    "datetime.date": _Written({"type": "string", "format": "date"}, "a date such as 2026-05-01", "moment"),
    "datetime.time": _Written(
        {"type": "string", "pattern": f"^{_CLOCK}$"}, "a time such as 10:00:00", "moment", False
    ),
    "uuid.UUID": _Written({"type": "string", "format": "uuid"}, "a UUID"),
    "decimal.Decimal": _Written(
        {"type": "string", "pattern": _DECIMAL}, "a decimal number in a string, such as \"12.50\"", "decimal"
    ),
}  # fmt: skip
_NAIVE = _Written(
    {"type": "string", "pattern": f"^[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}T{_CLOCK}$"},
    "a date and time without zone such as 2026-05-01T10:00:00", "moment", False,
)  # fmt: skip

_ARRAYS: dict[Any, Callable[[list[Any]], Any]] = {
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
_MAPPINGS = (dict, collections.abc.Mapping, collections.abc.MutableMapping)

_INSTEAD = {
    "builtins.bytes": "take a `str` and decode it",
    "builtins.complex": "take two floats",
    "datetime.timedelta": "take a number and name its unit, as in `seconds: float`",
}
_KNOWN = (
    "use str, int, float, bool, None, Literal, Enum, list, dict, a dataclass, a TypedDict or a pydantic model"
)


class Shapes:
    """One document under construction: it remembers the named types met so far."""

    def __init__(self, names: Mapping[str, Any] | None = None) -> None:
        """`names`: what can be seen where the annotations were written, for those that are strings."""
        self._written_among = names or {}
        self._names: dict[Any, str] = {}
        self._met: dict[Any, Shape] = {}
        self._definitions: dict[str, Schema] = {}
        self._loads: dict[str, Load] = {}
        self._unseen_defaults: set[str] = set()

    @property
    def unseen_defaults(self) -> frozenset[str]:
        """Names of fields whose defaults are made by code when a call runs, so that no schema has them."""
        return frozenset(self._unseen_defaults)

    def document(self, schema: Schema) -> Schema:
        return with_definitions(schema, self._definitions)

    def of(self, annotation: Any) -> Shape:
        bare, notes = peel(annotation)
        if notes.foreign:
            met = foreign(annotation, by_notes=True)
            return _unsupported(bare) if met is None else self._adopted(met)
        shape = made.bounded(self._bare(bare, notes), {k: v for k, v in notes.bounds.items() if k != "tz"})
        return shape._replace(
            schema=_described({**shape.schema, **notes.keywords}, notes.description, shape.hint)
        )

    def object(self, form: Form) -> Shape:
        properties: dict[str, Schema] = {
            name: made.choice([(value, value)]).schema for name, value in form.constants.items()
        }
        loads: dict[str, tuple[str, Load]] = {}
        for field in form.fields:
            try:
                shape = self.of(field.annotation)
                properties[field.name] = _field_schema(field, shape)
            except NoJsonForm as refusal:
                raise refusal.under(field.name) from None
            loads[field.name] = (field.attribute or field.name, shape.load)
            if not (field.required or field.may_be_absent or "default" in properties[field.name]):
                self._unseen_defaults.add(field.name)
        required = [*form.constants, *(field.name for field in form.fields if field.required)]
        schema: Schema = {"type": "object"}
        if form.description:
            schema["description"] = form.description
        schema |= {"properties": properties, "required": required, "additionalProperties": False}
        return Shape(schema, _object_load(form, loads, frozenset(required)))

    def _bare(self, bare: Any, notes: Notes) -> Shape:
        if _hashable(bare) and bare in _SCALARS:
            return _SCALARS[bare]
        for read in (self._string, self._constants, self._union, self._array, self._mapping, self._named):
            shape = read(bare, notes)
            if shape is not None:
                return shape
        return _unsupported(bare)

    def _string(self, bare: Any, notes: Notes) -> Shape | None:
        if not isinstance(bare, type):
            return None
        if issubclass(bare, os.PathLike) and bare is not os.PathLike:
            path: Callable[[str], Any] = bare
            return Shape({"type": "string"}, lambda value: path(made.load_text(value)), "string")
        written = _WRITTEN.get(type_name(bare))
        if written is None:
            return None
        if written.tz is True and notes.bounds.get("tz") is False:
            written = _NAIVE
        target = bare if written.tz is None else Annotated[bare, msgspec.Meta(tz=written.tz)]
        return Shape(
            dict(written.schema),
            made.by_msgspec(target, written.expected, written.schema.get("pattern")),
            written.kind,
        )

    def _constants(self, bare: Any, _: Notes) -> Shape | None:
        if get_origin(bare) is Literal:
            members = [(json_form(member), member) for member in get_args(bare)]
            return made.choice(_constants_only(members))
        if not isinstance(bare, type) or not issubclass(bare, enum.Enum):
            return None
        if issubclass(bare, enum.Flag):
            raise NoJsonForm(f"is the flag `{bare.__name__}`; use a list of an Enum")
        shape = made.choice(_constants_only([(member.value, member) for member in bare]))
        doc = (bare.__dict__.get("__doc__") or "").strip()
        described = {"description": doc} if doc not in ("", "An enumeration.") else {}
        return shape._replace(schema={**shape.schema, **described})

    def _union(self, bare: Any, _: Notes) -> Shape | None:
        if get_origin(bare) not in (Union, types.UnionType):
            return None
        return made.union([self.of(option) for option in get_args(bare)])

    def _array(self, bare: Any, _: Notes) -> Shape | None:
        origin = get_origin(bare) or bare
        make = _ARRAYS.get(origin) if _hashable(origin) else None
        if make is None:
            return None
        args = get_args(bare)
        if origin is tuple and bare not in (tuple, typing.Tuple) and args[1:] != (...,):  # noqa: UP006
            return made.fixed_array([self._item(arg) for arg in args])
        return made.array(self._item(args[0] if args else Any), make)

    def _mapping(self, bare: Any, _: Notes) -> Shape | None:
        if (get_origin(bare) or bare) not in _MAPPINGS:
            return None
        key, item = get_args(bare) or (str, Any)
        named = self.of(str if key is Any else key)
        if named.schema.get("type") != "string":
            raise NoJsonForm(
                "is a dict whose keys are not strings, which JSON does not allow; use dict[str, …]"
            )
        return made.mapping(named, self._item(item))

    def _named(self, bare: Any, _: Notes) -> Shape | None:
        """What may refer to itself: object types, pydantic's types and aliases made by a `type` statement."""
        if _hashable(bare) and bare in self._names:
            return self._reference(self._names[bare])
        if hasattr(bare, "__value__"):
            return self._defined(bare, bare.__name__, made.load_anything, lambda: self.of(bare.__value__))
        if _hashable(bare) and bare in self._met:
            return self._met[bare]
        met = foreign(bare)
        if met is not None:
            return self._met.setdefault(bare, self._adopted(met))
        form = form_of(bare, self._written_among)
        if form is not None:
            return self._defined(bare, form.name, made.keyed, lambda: self.object(form))
        return None

    def _item(self, annotation: Any) -> Shape:
        try:
            return self.of(annotation)
        except NoJsonForm as refusal:
            raise refusal.under("[]") from None

    def _defined(self, key: Any, wanted: str, meanwhile: Load, build: Callable[[], Shape]) -> Shape:
        """`meanwhile` checks the defaults of fields that refer back, before the type is complete."""
        name = self._free_name(wanted)
        self._names[key] = name
        self._definitions[name] = {}  # the name is taken from here on
        self._loads[name] = meanwhile
        shape = build()
        self._definitions[name] = shape.schema
        self._loads[name] = shape.load
        return self._reference(name, shape.kind)

    def _reference(self, name: str, kind: str = "") -> Shape:
        def load(value: Any) -> Any:
            return self._loads[name](value)  # found when called: the type may refer to itself

        return Shape({"$ref": REFERENCE + name}, load, kind)

    def _adopted(self, met: Foreign) -> Shape:
        """A schema with definitions of its own joins ours; equal definitions of one name are one."""
        self._unseen_defaults |= optional_without_default(met.schema)
        own: dict[str, Schema] = met.schema.get("$defs", {})
        root = {key: held for key, held in met.schema.items() if key != "$defs"}
        renamed = {
            name: name if self._definitions.get(name) == held else self._free_name(name)
            for name, held in own.items()
        }

        def moved(schema: Schema) -> Schema:
            return referring(schema, lambda ref: REFERENCE + renamed.get(ref.removeprefix(REFERENCE), ref))

        self._definitions |= {renamed[name]: moved(held) for name, held in own.items()}
        top = own.get(str(root.get("$ref", "")).removeprefix(REFERENCE), root)
        schema = moved(root)
        if "properties" in root:
            name = met.name if self._definitions.get(met.name) == schema else self._free_name(met.name)
            self._definitions[name] = schema
            schema = {"$ref": REFERENCE + name}
        return Shape(schema, _foreign_load(met, top))

    def _free_name(self, wanted: str) -> str:
        plain = "".join(letter if letter.isalnum() and letter.isascii() else "_" for letter in wanted).strip(
            "_"
        )
        name, count = plain or "Value", 1
        while name in self._definitions:
            count += 1
            name = f"{plain or 'Value'}_{count}"
        return name


def _field_schema(field: Field, shape: Shape) -> Schema:
    words = peel(field.annotation)[1].description or field.description
    schema = _described(dict(shape.schema), words, shape.hint)
    if field.default is not NO_DEFAULT:
        try:
            schema["default"] = json_form(field.default)
            shape.load(schema["default"])
        except (TypeError, Mismatch):
            instead = "write `… | None`" if field.default is None else "change the default or the annotation"
            raise NoJsonForm(
                f"has the default {field.default!r}, which is not of its type; {instead}"
            ) from None
    return schema


def _described(schema: Schema, words: str, hint: str) -> Schema:
    description = " ".join(filter(None, (words, hint)))
    return {**schema, "description": description} if description else schema


def _object_load(form: Form, loads: Mapping[str, tuple[str, Load]], required: frozenset[str]) -> Load:
    def load(value: Any) -> Any:
        given: dict[str, Any] = {}
        for name, held in made.keyed(value).items():
            known = loads.get(name)
            if known is not None:
                try:
                    given[known[0]] = known[1](held)
                except Mismatch as mismatch:
                    raise mismatch.under(name) from None
            elif form.constants.get(name) != held or name not in form.constants:
                wanted = form.constants.get(name)
                raise Mismatch("unknown field" if wanted is None else f"expected {wanted!r}", (name,))
        if not required <= value.keys():
            missing = next(
                name for name in (*form.constants, *loads) if name in required and name not in value
            )
            raise Mismatch("missing field", (missing,))
        try:
            return form.make(given)
        except (TypeError, ValueError) as error:
            raise Mismatch(str(error)) from error

    return load


def _foreign_load(met: Foreign, top: Schema) -> Load:
    def load(value: Any) -> Any:
        unknown = unknown_fields(top, value)
        if unknown:
            raise Mismatch("unknown field", (unknown[0],))
        try:
            return met.check(as_json(value))
        except ValueError as error:
            first = complaint(error)[0]
            raise Mismatch(first[1], first[0]) from error

    return load


def _constants_only(members: Sequence[tuple[Any, Any]]) -> Sequence[tuple[Any, Any]]:
    for constant, member in members:
        if type(constant) not in made.CONSTANT_TYPES:
            raise NoJsonForm(f"has the choice {member!r}, which is no JSON constant; use strings or numbers")
    return members


def _hashable(bare: Any) -> bool:
    return isinstance(bare, collections.abc.Hashable)


def _unsupported(bare: Any) -> NoReturn:
    if isinstance(bare, TypeVar):
        raise NoJsonForm(f"is the type variable `{bare}`; write a concrete type")
    if isinstance(bare, str | typing.ForwardRef):
        raise NoJsonForm(f"is the unresolved name {bare!r}; define it above, or write `Any`")
    full = type_name(bare) if isinstance(bare, type) else str(bare)
    name = full.removeprefix("builtins.").removeprefix("typing.")
    raise NoJsonForm(f"is a `{name}`, which has no JSON form; {_INSTEAD.get(full, _KNOWN)}")
