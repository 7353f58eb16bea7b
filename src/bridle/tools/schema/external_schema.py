"""A JSON Schema somebody else wrote, checked before anybody relies on it.

Its text is kept as it is: it is sent with every request, and arguments are checked
against what its author said, not against a reading of it.  Nothing is fetched: a schema
that refers to an address on the network is refused.
"""

import functools
import importlib
from collections.abc import Mapping
from typing import Any

import msgspec

from .document import Schema, encode_schema


def parse_schema(schema: Mapping[str, Any] | str) -> tuple[Schema, str]:
    """The schema as data and as text; ValueError with one line when it is not one."""
    try:
        text = schema if isinstance(schema, str) else encode_schema(dict(schema))
        data = msgspec.json.decode(text)
    except (msgspec.MsgspecError, TypeError) as error:
        raise ValueError(f"is not JSON: {error}") from None
    if not isinstance(data, dict):
        raise ValueError("must be a JSON object")
    _check_schema(text)
    return data, text


def parse_parameters_schema(schema: Mapping[str, Any] | str) -> str:
    """The text of a schema for arguments, which must be an object at the top."""
    data, text = parse_schema(schema)
    if data.get("type") != "object":
        raise ValueError('must have "type": "object" at the top, because arguments are an object')
    return text


@functools.lru_cache(maxsize=512)
def _check_schema(text: str) -> None:
    # Loaded when first needed: it costs as much as everything else in this package together.
    validators = importlib.import_module("jsonschema_rs")
    try:
        validators.validator_for(text, offline=True)
    except (validators.ValidationError, validators.ReferencingError) as error:
        where = "".join(f"[{step!r}]" for step in getattr(error, "instance_path", ()))
        raise ValueError(f"is not a JSON Schema{f' at {where}' if where else ''}: {error.message}") from None
