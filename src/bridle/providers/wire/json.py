"""Reads JSON tolerantly and writes it strictly.

msgspec reads and writes nearly all of it. The exceptions are rare but real: half of a surrogate pair (a
character split at a token boundary), bytes that are not UTF-8, numbers beyond a double. Reading falls back to
the tolerant parser of the standard library; writing replaces what a strict reader would refuse. Both raise
only `ValueError`.
"""

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from bridle.values.text import repair_surrogates as repair_surrogates  # noqa: PLC0414 - used with the functions below

_decode = msgspec.json.Decoder().decode
_decode_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_elements = msgspec.json.Decoder(list[msgspec.Raw]).decode
_encode = msgspec.json.Encoder().encode


def loads(data: bytes | str) -> Any:
    try:
        return _decode(data)
    except (ValueError, RecursionError):  # msgspec's errors and Unicode's are ValueErrors
        return _loads_tolerant(data)


def split_object(data: bytes | str) -> dict[str, bytes]:
    """Return the members of a JSON object, each as its original text."""
    try:
        return {name: bytes(raw) for name, raw in _decode_members(data).items()}
    except (ValueError, RecursionError):
        whole = _loads_tolerant(data)
        if not isinstance(whole, dict):
            raise ValueError("not a JSON object") from None
        return {name: dumps(value) for name, value in whole.items()}


def split_array(data: bytes | str) -> list[bytes]:
    """Return the elements of a JSON array, each as its original text."""
    try:
        return [bytes(raw) for raw in _decode_elements(data)]
    except (ValueError, RecursionError):
        whole = _loads_tolerant(data)
        if not isinstance(whole, list):
            raise ValueError("not a JSON array") from None
        return [dumps(value) for value in whole]


def dumps(value: Any) -> bytes:
    """Encode as compact UTF-8 JSON, in the order given."""
    try:
        try:
            return _encode(value)
        except UnicodeEncodeError:
            return _encode(_repair_nested(value))
    except RecursionError:
        raise ValueError("nested too deep") from None


def raw_json(text: str) -> msgspec.Raw:
    """Wrap JSON text to be written unchanged; the caller guarantees that it is valid."""
    return msgspec.Raw(repair_surrogates(text))


def is_object(text: str) -> bool:
    """Return True if a strict reader accepts the text as a JSON object."""
    try:
        return isinstance(_decode(text), dict)
    except (ValueError, RecursionError):
        return False


def parse_integer(value: object) -> int | None:
    """Return a whole number, also one written as a float; None for anything else."""
    if type(value) is int:  # a bool is not a number here
        return value
    return int(value) if isinstance(value, float) and value.is_integer() else None


def parse_number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def count_or_zero(value: object) -> int:
    """A count as a provider reports it; zero for anything that is not a positive integer."""
    if value is None:
        return 0
    found = value if type(value) is int else parse_integer(value)
    return found if found is not None and found > 0 else 0


def text_or_empty(value: object) -> str:
    if type(value) is not str:
        return ""
    return value if value.isascii() else repair_surrogates(value)


def object_or_empty(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def drop_nulls(members: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in members.items() if value is not None}


def set_at_path(fields: dict[str, Any], path: str, value: object) -> None:
    """Set a member by its dotted path; without a path nothing is set."""
    if not path:
        return
    *above, last = path.split(".")
    for name in above:
        fields = fields.setdefault(name, {})
    fields[last] = value


def _loads_tolerant(data: bytes | str) -> Any:
    text = data if isinstance(data, str) else data.decode("utf-8-sig", "replace")
    try:
        return json.loads(text, strict=False)
    except RecursionError:
        raise ValueError("nested too deep") from None


def _repair_nested(value: Any) -> Any:
    if isinstance(value, str):
        return repair_surrogates(value)
    if isinstance(value, dict):
        return {repair_surrogates(str(name)): _repair_nested(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_repair_nested(inner) for inner in value]
    return value
