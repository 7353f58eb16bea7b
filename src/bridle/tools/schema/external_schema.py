"""Validates JSON Schemas from outside.

The text is kept unchanged: it is sent with every request, and arguments are validated against it.  Nothing is
fetched: a schema that refers to a network address is rejected.
"""

import functools
import importlib
from collections.abc import Mapping
from typing import Any

import msgspec

from .document import Schema, encode_schema


def parse_schema(schema: Mapping[str, Any] | str) -> tuple[Schema, str]:
    """The schema as data and as text; raises ValueError with one line if it is invalid."""
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
    """The text of a schema for arguments; raises ValueError unless it describes an object."""
    data, text = parse_schema(schema)
    if data.get("type") != "object":
        raise ValueError('must have "type": "object" at the top, because arguments are an object')
    return text


@functools.lru_cache(maxsize=512)
def _check_schema(text: str) -> None:
    # Imported on first use: it takes as long as the rest of this package together.
    validators = importlib.import_module("jsonschema_rs")
    try:
        validators.validator_for(text, offline=True)
    except (validators.ValidationError, validators.ReferencingError) as error:
        where = "".join(f"[{step!r}]" for step in getattr(error, "instance_path", ()))
        raise ValueError(f"is not a JSON Schema{f' at {where}' if where else ''}: {error.message}") from None
