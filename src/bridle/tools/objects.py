"""The types that are objects in JSON, each as a list of its fields and a way to make one.

Dataclasses, TypedDicts, NamedTuples and msgspec structs differ only in where they keep
their fields; here they become one thing, so that the schema knows a single rule for
required fields, defaults and unknown names.  A further kind of object is one function
here and one line in `_READERS`.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, get_args, get_origin

import msgspec

from .annotations import NoJsonForm, hints_of
from .docstring import read_docstring

NO_DEFAULT: Any = object()
_EMPTY = (list, dict, set, tuple, frozenset)


class Field(NamedTuple):
    name: str
    """As it stands in JSON."""
    annotation: Any
    required: bool = True
    default: Any = NO_DEFAULT
    """Told to the model; a default that is made anew each time is not."""
    description: str = ""
    attribute: str = ""
    """What Python calls it, where that differs."""
    may_be_absent: bool = False
    """Left out, it has no value at all, and no default."""


class Form(NamedTuple):
    name: str
    fields: tuple[Field, ...]
    make: Callable[[dict[str, Any]], Any]
    description: str = ""
    constants: Mapping[str, str | int] = {}
    """Fields that must be there with one certain value, and tell this type from others."""


def form_of(annotation: Any, names: Mapping[str, Any]) -> Form | None:
    """None when the annotation is no object type.  `names`: see `hints_of`."""
    cls = get_origin(annotation) or annotation
    if not isinstance(cls, type):
        return None
    for matches, read in _READERS:
        if matches(cls):
            form = read(cls, annotation, names)
            doc = read_docstring(_own_docstring(cls))
            described = (
                field._replace(description=field.description or doc.parameters.get(field.name, ""))
                for field in form.fields
            )
            return form._replace(fields=tuple(described), description=doc.description)
    return None


def _dataclass(cls: Any, annotation: Any, names: Mapping[str, Any]) -> Form:
    hints = _bound_hints(cls, annotation, names)
    fields = []
    for field in dataclasses.fields(cls):
        if field.init:
            default, factory = _present(field.default), _present(field.default_factory)
            required = default is NO_DEFAULT and factory is NO_DEFAULT
            fields.append(Field(field.name, hints[field.name], required, _shown(default, factory)))
    return Form(_name(annotation), tuple(fields), lambda given: cls(**given))


def _typed_dict(cls: Any, annotation: Any, names: Mapping[str, Any]) -> Form:
    hints = _bound_hints(cls, annotation, names)
    fields = (
        Field(name, hint, name in cls.__required_keys__, may_be_absent=True) for name, hint in hints.items()
    )
    return Form(_name(annotation), tuple(fields), dict)


def _named_tuple(cls: Any, annotation: Any, names: Mapping[str, Any]) -> Form:
    hints = _bound_hints(cls, annotation, names)
    defaults = cls._field_defaults
    fields = []
    for name in cls._fields:
        if name not in hints:
            raise NoJsonForm("has no annotation; make it a `typing.NamedTuple` with annotated fields", name)
        fields.append(Field(name, hints[name], name not in defaults, defaults.get(name, NO_DEFAULT)))
    return Form(_name(annotation), tuple(fields), lambda given: cls(**given))


def _struct(cls: Any, annotation: Any, _: Mapping[str, Any]) -> Form:
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
        Field(
            info.encode_name, info.type, info.required,
            _shown(_present(info.default), _present(info.default_factory)), "", info.name,
        )
        for info in infos
    )  # fmt: skip
    constants = {} if config.tag is None else {str(config.tag_field): config.tag}
    return Form(_name(annotation), fields, lambda given: cls(**given), "", constants)


def _is_typed_dict(cls: type) -> bool:
    return issubclass(cls, dict) and hasattr(cls, "__required_keys__")


def _is_named_tuple(cls: type) -> bool:
    return issubclass(cls, tuple) and hasattr(cls, "_field_defaults")


_READERS: tuple[tuple[Callable[[type], bool], Callable[[Any, Any, Mapping[str, Any]], Form]], ...] = (
    (lambda cls: issubclass(cls, msgspec.Struct), _struct),
    (dataclasses.is_dataclass, _dataclass),
    (_is_typed_dict, _typed_dict),
    (_is_named_tuple, _named_tuple),
)


def _present(default: Any) -> Any:
    return NO_DEFAULT if default is dataclasses.MISSING or default is msgspec.NODEFAULT else default


def _shown(default: Any, factory: Any) -> Any:
    """Only empty containers are shown of what a factory makes: anything else may differ each time."""
    return factory() if default is NO_DEFAULT and factory in _EMPTY else default


def _bound_hints(cls: Any, annotation: Any, names: Mapping[str, Any]) -> dict[str, Any]:
    """The annotations of a class, with the type variables of `Box[int]` filled in."""
    hints = hints_of(cls, names)
    given = dict(zip(getattr(cls, "__parameters__", ()), get_args(annotation), strict=False))
    return {name: _filled(hint, given) for name, hint in hints.items()} if given else hints


def _filled(hint: Any, given: dict[Any, Any]) -> Any:
    if hint in given:
        return given[hint]
    open_ones = getattr(hint, "__parameters__", ())
    if not open_ones or isinstance(hint, type):
        return hint
    return hint[tuple(given.get(variable, variable) for variable in open_ones)]


def _name(annotation: Any) -> str:
    origin = get_origin(annotation)
    if origin is None:
        return str(annotation.__name__)
    return "_".join([origin.__name__, *(getattr(arg, "__name__", str(arg)) for arg in get_args(annotation))])


def _own_docstring(cls: type) -> str:
    """Not the one inherited, nor the signature that Python writes where nobody wrote anything."""
    written = cls.__dict__.get("__doc__") or ""
    return "" if written.startswith(f"{cls.__name__}(") else written
