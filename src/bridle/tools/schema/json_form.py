"""Converts Python values to plain JSON; the inverse of the loaders in builder.py.

The result satisfies the schema of the value's type, so that a model can pass on what a tool returned.  Hence a
NamedTuple is an object, a set is a sorted array, a Decimal is a string, and dates and times are RFC 3339.

Dicts keep their order.  Sets are sorted, because their order differs between processes and equal results must
have equal text.  A value without a JSON form raises a TypeError that names its type.
"""

import enum
import math
import os
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextvars import ContextVar
from datetime import date, datetime, time
from decimal import Decimal
from importlib import import_module
from typing import cast

import msgspec

from bridle.ports.tool import Json
from bridle.values.message import Media
from bridle.values.text import repair_surrogates

qualified_type_name = "{0.__module__}.{0.__qualname__}".format


def to_json_form(value: object) -> Json:
    try:
        return _convert(value)
    except RecursionError:
        # guard: cyclic-result-refused
        raise TypeError(f"a {type(value).__name__} that is nested too deeply, or contains itself") from None


def lift_media(value: object) -> tuple[Json, tuple[Media, ...]]:
    """The value as JSON in which a short text stands for each `Media`, and these media in order."""
    found: list[Media] = []
    token = _LIFTED.set(found)
    try:
        return to_json_form(value), tuple(found)
    finally:
        _LIFTED.reset(token)


_LIFTED: ContextVar[list[Media] | None] = ContextVar("lifted_media", default=None)
"""The media found so far, while they are taken out of a value."""


def _convert_media(value: object) -> Json:
    """A reference to a medium that is sent beside the JSON; as base64 in it, it would be paid for as text."""
    found, media = _LIFTED.get(), cast("Media", value)
    if found is None:
        raise TypeError("a Media, which has no JSON form")
    if media not in found:
        found.append(media)
    described = " ".join(filter(None, (media.media_type, media.name)))
    return f"[{media.kind} {found.index(media) + 1} of this result{': ' if described else ''}{described}]"


def to_json_text(value: object) -> str:
    """Compact JSON text, identical for equal values in every process."""
    return msgspec.json.encode(to_json_form(value)).decode()


def _convert(value: object) -> Json:
    read = _EXACT_CONVERTERS.get(type(value))
    if read is not None:
        return read(value)
    for matches, read in _KIND_CONVERTERS:
        if matches(value):
            return read(value)
    raise TypeError(f"a {qualified_type_name(type(value)).removeprefix('builtins.')}, which has no JSON form")


def _convert_float(value: object) -> Json:
    number = cast("float", value)
    # JSON cannot represent these, and null would mean "no value".
    return (
        number if math.isfinite(number) else {"inf": "Infinity", "-inf": "-Infinity"}.get(str(number), "NaN")
    )


def _convert_sequence(value: object) -> Json:
    return [_convert(item) for item in cast("Sequence[object]", value)]


def _convert_set(value: object) -> Json:
    return sorted((_convert(item) for item in cast("AbstractSet[object]", value)), key=msgspec.json.encode)


def _convert_mapping(value: object) -> Json:
    return {_convert_key(key): _convert(item) for key, item in cast("Mapping[object, object]", value).items()}


def _convert_key(key: object) -> str:
    form = _convert(key)
    if isinstance(form, str):
        return form
    if form is None or isinstance(form, bool | int | float):
        return msgspec.json.encode(form).decode()
    raise TypeError(f"a dict with a key of type {type(key).__name__}, which JSON does not allow")


def _convert_dataclass(value: object) -> Json:
    fields = import_module("dataclasses").fields(value)
    return {field.name: _convert(getattr(value, field.name)) for field in fields}


def _convert_named_tuple(value: object) -> Json:
    names = cast("tuple[str, ...]", getattr(value, "_fields", ()))
    return {name: _convert(getattr(value, name)) for name in names}


def _convert_struct(value: object) -> Json:
    struct = cast("msgspec.Struct", value)
    config = struct.__struct_config__
    tag: dict[str, Json] = {} if config.tag is None else {str(config.tag_field): config.tag}
    names = zip(struct.__struct_encode_fields__, struct.__struct_fields__, strict=True)
    held = ((encoded, getattr(struct, name)) for encoded, name in names)
    return tag | {name: _convert(item) for name, item in held if item is not msgspec.UNSET}


def _convert_model(value: object) -> Json:
    """Convert a pydantic model, which is recognized by its method; pydantic is never imported."""
    dump = cast("Callable[..., object]", getattr(value, "model_dump"))  # noqa: B009
    held = dump(mode="python", by_alias=True)
    return _convert(held if _has_binary(held) else dump(mode="json", by_alias=True))


def _has_binary(value: object) -> bool:
    """True if a dumped model holds media, or bytes that are not text."""
    if isinstance(value, Mapping):
        return any(map(_has_binary, value.values()))
    if isinstance(value, list | tuple | AbstractSet):
        return any(map(_has_binary, value))
    if isinstance(value, bytes | bytearray | memoryview):
        try:
            bytes(value).decode()
        except UnicodeDecodeError:
            return True
    return isinstance(value, Media)


def _is_byte_array(value: object) -> bool:
    """True for a sequence of single bytes, such as `array("B")`."""
    try:
        return memoryview(value).itemsize == 1  # type: ignore[arg-type]
    except TypeError:
        return False


def _is_struct(value: object) -> bool:
    # An array_like struct is encoded without field names, which no schema here describes.
    return isinstance(value, msgspec.Struct) and not value.__struct_config__.array_like


_EXACT_CONVERTERS: dict[type, Callable[[object], Json]] = {
    str: lambda value: repair_surrogates(cast("str", value)),
    int: lambda value: cast("int", value),
    bool: lambda value: cast("bool", value),
    type(None): lambda _: None,
    float: _convert_float,
    dict: _convert_mapping,
    list: _convert_sequence,
    tuple: _convert_sequence,
    set: _convert_set,
    frozenset: _convert_set,
}
_KIND_CONVERTERS: tuple[tuple[Callable[[object], bool], Callable[[object], Json]], ...] = (
    (lambda value: isinstance(value, enum.Enum), lambda value: _convert(cast("enum.Enum", value).value)),
    (lambda value: isinstance(value, str), lambda value: repair_surrogates(str.__str__(cast("str", value)))),
    (lambda value: isinstance(value, int), lambda value: int(cast("int", value))),
    (lambda value: isinstance(value, float), lambda value: _convert_float(float(cast("float", value)))),
    (lambda value: isinstance(value, datetime | date | time), lambda value: cast("date", value).isoformat()),
    (
        lambda value: (
            isinstance(value, Decimal | os.PathLike) or qualified_type_name(type(value)) == "uuid.UUID"
        ),
        str,
    ),
    (lambda value: isinstance(value, Media), _convert_media),
    (_is_struct, _convert_struct),
    (lambda value: hasattr(type(value), "__dataclass_fields__"), _convert_dataclass),
    (lambda value: not isinstance(value, type) and hasattr(value, "model_dump"), _convert_model),
    (lambda value: isinstance(value, tuple) and hasattr(value, "_fields"), _convert_named_tuple),
    (lambda value: isinstance(value, Mapping), _convert_mapping),
    (lambda value: isinstance(value, AbstractSet), _convert_set),
    (
        lambda value: isinstance(value, Sequence) and not _is_byte_array(value),
        _convert_sequence,
    ),
)
