"""Validates JSON Schemas from outside.

The text is kept unchanged: it is sent with every request, and arguments are validated against it.  Nothing is
fetched: a schema that refers to a network address is rejected.  So is one that would cause too much work
(values/schema_limits.py).
"""

import functools
import importlib
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

import msgspec

from bridle.values.schema_limits import check_schema_limits

from .document import Schema, encode_schema

_ANNOTATIONS = ("title", "description", "$comment", "examples", "default")
"""Keywords that restrict nothing."""


def parse_schema(schema: Mapping[str, Any] | str) -> tuple[Schema, str]:
    """The schema as data and as text; raises ValueError with one line if it is invalid."""
    try:
        text = schema if isinstance(schema, str) else encode_schema(dict(schema))
        data = msgspec.json.decode(text)
    except (msgspec.MsgspecError, TypeError) as error:
        raise ValueError(f"is not JSON: {error}") from None
    except RecursionError:
        raise ValueError("is nested too deep") from None
    if not isinstance(data, dict):
        raise ValueError("must be a JSON object")
    # guard: external-schema-limits
    check_schema_limits(data, len(text))
    _check_schema(text)
    return data, text


def parse_parameters_schema(schema: Mapping[str, Any] | str) -> str:
    """The text of a schema for arguments; raises ValueError unless it describes an object."""
    data, text = parse_schema(schema)
    resolved = resolve_root(data)
    if resolved.get("type") != "object":
        raise ValueError('must have "type": "object" at the top, because arguments are an object')
    return text if resolved is data else encode_schema(resolved)


def resolve_root(schema: Schema) -> Schema:
    """The schema with the definition that its root refers to at the top; the schema itself if it refers to none.

    Definitions stay where they are. Raises ValueError if the reference leads nowhere or back to itself.
    """
    root, seen = schema, set[str]()
    while isinstance(reference := root.get("$ref"), str) and reference.startswith("#"):
        if reference in seen or reference == "#":
            raise ValueError(f"refers to itself with {reference!r} at the top")
        seen.add(reference)
        target = _follow_pointer(schema, reference)
        beside = {key: held for key, held in root.items() if key != "$ref"}
        if any(
            key in target and target[key] != held for key, held in beside.items() if key not in _ANNOTATIONS
        ):
            # Both apply, and one schema has room for only one value of a keyword.
            kind = {"type": target["type"]} if "type" in target else {}
            return {**kind, **beside, "allOf": [{"$ref": reference}, *beside.get("allOf", ())]}
        root = {**target, **beside}
    return root


def _follow_pointer(schema: Schema, reference: str) -> Schema:
    found: Any = schema
    for step in unquote(reference.removeprefix("#")).split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        found = found.get(name) if isinstance(found, dict) else None
    if not isinstance(found, dict):
        raise ValueError(f"refers to {reference!r} at the top, where there is no schema")
    return found


@functools.lru_cache(maxsize=512)
def _check_schema(text: str) -> None:
    # Imported on first use: it takes as long as the rest of this package together.
    validators = importlib.import_module("jsonschema_rs")
    try:
        validators.validator_for(text, offline=True)
    except (validators.ValidationError, validators.ReferencingError) as error:
        where = "".join(f"[{step!r}]" for step in getattr(error, "instance_path", ()))
        raise ValueError(f"is not a JSON Schema{f' at {where}' if where else ''}: {error.message}") from None
