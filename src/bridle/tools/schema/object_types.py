"""Reads the types that are JSON objects: dataclasses, TypedDicts, NamedTuples and msgspec structs.

They differ only in where they store their fields; here all of them become an `ObjectType`, so that the schema has
one rule for required fields, defaults and unknown names.  A new kind is one function here and one line in
`_OBJECT_READERS`.
"""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, NamedTuple, get_args, get_origin

import msgspec

from .annotations import NoJsonForm, resolve_hints
from .docstring import read_docstring

NO_DEFAULT: Any = object()
_CONTAINER_TYPES = (list, dict, set, tuple, frozenset)


class ObjectField(NamedTuple):
    name: str
    """Name in JSON."""
    annotation: Any
    required: bool = True
    default: Any = NO_DEFAULT
    """Shown in the schema; values of a default factory are not."""
    description: str = ""
    attribute: str = ""
    """Name in Python, if different."""
    may_be_absent: bool = False
    """If left out, the field is absent instead of having a default."""


class ObjectType(NamedTuple):
    name: str
    fields: tuple[ObjectField, ...]
    make: Callable[[dict[str, Any]], Any]
    description: str = ""
    constants: Mapping[str, str | int] = {}
    """Tag fields with their fixed values, which distinguish this type from others."""
    get_value: Callable[[Any, str], Any] = getattr
    """The field of a value, by its name in Python; `NO_DEFAULT` if it is absent."""
    instance_of: type | None = None
    """Class of the values."""

    @property
    def makes_dict(self) -> bool:
        """True if the values are plain dicts, which do not tell their type."""
        return self.instance_of is dict


def read_object_type(annotation: Any, names: Mapping[str, Any]) -> ObjectType | None:
    """The annotation as an object type; None if it is not one.  `names`: see `resolve_hints`."""
    cls = get_origin(annotation) or annotation
    if not isinstance(cls, type):
        return None
    for matches, read in _OBJECT_READERS:
        if matches(cls):
            form = read(cls, annotation, names)
            doc = read_docstring(_own_docstring(cls))
            described = (
                field._replace(description=field.description or doc.parameters.get(field.name, ""))
                for field in form.fields
            )
            return form._replace(fields=tuple(described), description=doc.description)
    return None


def _read_dataclass(cls: Any, annotation: Any, names: Mapping[str, Any]) -> ObjectType:
    hints = _resolve_generic_hints(cls, annotation, names)
    dataclasses = import_module("dataclasses")  # slow to load; the type that is read has loaded it
    fields = []
    for field in dataclasses.fields(cls):
        if field.init:
            default = _normalize_default(field.default, dataclasses.MISSING)
            factory = _normalize_default(field.default_factory, dataclasses.MISSING)
            required = default is NO_DEFAULT and factory is NO_DEFAULT
            fields.append(
                ObjectField(field.name, hints[field.name], required, _visible_default(default, factory))
            )
    return ObjectType(_type_name(annotation), tuple(fields), lambda given: cls(**given), instance_of=cls)


def _read_typed_dict(cls: Any, annotation: Any, names: Mapping[str, Any]) -> ObjectType:
    hints = _resolve_generic_hints(cls, annotation, names)
    fields = (
        ObjectField(name, hint, name in cls.__required_keys__, may_be_absent=True)
        for name, hint in hints.items()
    )
    return ObjectType(
        _type_name(annotation), tuple(fields), dict,
        get_value=lambda value, name: value.get(name, NO_DEFAULT), instance_of=dict,
    )  # fmt: skip


def _read_named_tuple(cls: Any, annotation: Any, names: Mapping[str, Any]) -> ObjectType:
    hints = _resolve_generic_hints(cls, annotation, names)
    defaults = cls._field_defaults
    fields = []
    for name in cls._fields:
        if name not in hints:
            raise NoJsonForm("has no annotation; make it a `typing.NamedTuple` with annotated fields", name)
        fields.append(ObjectField(name, hints[name], name not in defaults, defaults.get(name, NO_DEFAULT)))
    return ObjectType(_type_name(annotation), tuple(fields), lambda given: cls(**given), instance_of=cls)


def _read_struct(cls: Any, annotation: Any, _: Mapping[str, Any]) -> ObjectType:
    config = cls.__struct_config__
    if config.array_like:
        raise NoJsonForm("is an array_like struct, whose fields have no names; leave array_like out")
    try:
        infos = msgspec.structs.fields(annotation)
    except NameError as error:
        raise NoJsonForm(
            f"`{error.name}` is not defined where the annotation is read; define it at the top of a module"
        ) from None
    fields = tuple(
        ObjectField(
            info.encode_name, info.type, info.required,
            _visible_default(
                _normalize_default(info.default, msgspec.NODEFAULT),
                _normalize_default(info.default_factory, msgspec.NODEFAULT),
            ), "", info.name,
        )
        for info in infos
    )  # fmt: skip
    constants = {} if config.tag is None else {str(config.tag_field): config.tag}
    return ObjectType(
        _type_name(annotation), fields, lambda given: cls(**given), "", constants, _get_struct_field, cls
    )


def _get_struct_field(value: Any, name: str) -> Any:
    held = getattr(value, name)
    return NO_DEFAULT if held is msgspec.UNSET else held


def _is_typed_dict(cls: type) -> bool:
    return issubclass(cls, dict) and hasattr(cls, "__required_keys__")


def _is_named_tuple(cls: type) -> bool:
    return issubclass(cls, tuple) and hasattr(cls, "_field_defaults")


_OBJECT_READERS: tuple[
    tuple[Callable[[type], bool], Callable[[Any, Any, Mapping[str, Any]], ObjectType]], ...
] = (
    (lambda cls: issubclass(cls, msgspec.Struct), _read_struct),
    (lambda cls: hasattr(cls, "__dataclass_fields__"), _read_dataclass),
    (_is_typed_dict, _read_typed_dict),
    (_is_named_tuple, _read_named_tuple),
)


def _normalize_default(default: Any, missing: object) -> Any:
    return NO_DEFAULT if default is missing else default


def _visible_default(default: Any, factory: Any) -> Any:
    """The default to show; a factory's value only if it is an empty container, which never varies."""
    return factory() if default is NO_DEFAULT and factory in _CONTAINER_TYPES else default


def _resolve_generic_hints(cls: Any, annotation: Any, names: Mapping[str, Any]) -> dict[str, Any]:
    """The annotations of a class, with type variables replaced as in `Box[int]`."""
    hints = resolve_hints(cls, names)
    given = dict(zip(getattr(cls, "__parameters__", ()), get_args(annotation), strict=False))
    return {name: _fill_type_variables(hint, given) for name, hint in hints.items()} if given else hints


def _fill_type_variables(hint: Any, given: dict[Any, Any]) -> Any:
    if hint in given:
        return given[hint]
    open_ones = getattr(hint, "__parameters__", ())
    if not open_ones or isinstance(hint, type):
        return hint
    return hint[tuple(given.get(variable, variable) for variable in open_ones)]


def _type_name(annotation: Any) -> str:
    origin = get_origin(annotation)
    if origin is None:
        return str(annotation.__name__)
    return "_".join([origin.__name__, *(getattr(arg, "__name__", str(arg)) for arg in get_args(annotation))])


def _own_docstring(cls: type) -> str:
    """The class's own docstring: neither an inherited one nor the signature that Python generates."""
    written = cls.__dict__.get("__doc__") or ""
    return "" if written.startswith(f"{cls.__name__}(") else written
