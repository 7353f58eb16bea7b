"""The shape of a final answer: from a type, or from a JSON Schema, to what a provider wants and back.

Providers want an object at the top.  A type that is something else (`list[int]`, a
`Literal`, a union) is wrapped as `{"value": …}` for the model and unwrapped on the way
back, so that nobody sees the wrapping but the wire.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, Generic, NamedTuple, TypeVar, overload

from ..ports.tool import Json
from ..values.errors import MisuseError
from .annotations import NoJsonForm
from .document import Schema, referring, schema_text
from .given import given_schema
from .schema import Shapes
from .shapes import Mismatch, keyed

T = TypeVar("T")

NAME_DEFAULT = "final_answer"
NAME_CHARS_MAX = 64
_SHARED = ("$defs", "definitions")
_SHARED_REFERENCE = re.compile(r"#/(\$defs|definitions)/")


class OutputType(NamedTuple, Generic[T]):
    schema: str
    """JSON Schema as text, an object at the top."""
    name: str
    description: str
    convert: Callable[[Json], T]
    """From JSON that satisfies the schema; ValueError, in words for the model, when the type refuses it."""


@overload
def output_type(wanted: type[T]) -> OutputType[T]: ...


@overload
def output_type(wanted: Mapping[str, object]) -> OutputType[Json]: ...


@overload
def output_type(wanted: object) -> OutputType[object]: ...


def output_type(wanted: object) -> OutputType[Any]:
    """`wanted`: any type a tool's parameter may have, or a JSON Schema as a dict."""
    if isinstance(wanted, Mapping):
        return _from_schema(wanted)
    named = str(getattr(wanted, "__name__", ""))
    try:
        shapes = Shapes()
        shape = shapes.of(wanted)
        schema = shapes.document(shape.schema)
    except NoJsonForm as refusal:
        where = f"field `{refusal.path}` " if refusal.path else "it "
        raise MisuseError(f"output type `{named or wanted}`: {where}{refusal.what}") from None
    return _output(schema, named, shape.load)


def _from_schema(wanted: Mapping[str, object]) -> OutputType[Any]:
    try:
        schema, _ = given_schema(wanted)
    except ValueError as error:
        raise MisuseError(f"output schema {error}") from None
    title = schema.get("title")
    return _output(schema, title if isinstance(title, str) else "", lambda value: value)


def _output(schema: Schema, name: str, load: Callable[[Any], Any]) -> OutputType[Any]:
    description = schema.get("description", "")
    if schema.get("type") == "object":
        return OutputType(schema_text(schema), _legal(name), description, load)

    def unwrapped(value: Json) -> Any:
        held = keyed(value)
        if set(held) != {"value"}:
            raise Mismatch("expected an object with the one field `value`")
        try:
            return load(held["value"])
        except Mismatch as mismatch:
            raise mismatch.under("value") from None

    return OutputType(schema_text(_wrapped(schema)), NAME_DEFAULT, description, unwrapped)


def _wrapped(schema: Schema) -> Schema:
    """One level down; references from the top are lengthened, shared definitions stay at the top."""

    def deeper(reference: str) -> str:
        own = reference.startswith("#") and not _SHARED_REFERENCE.match(reference)
        return "#/properties/value" + reference.removeprefix("#") if own else reference

    moved = referring(schema, deeper)
    inner = {key: held for key, held in moved.items() if key not in (*_SHARED, "$schema")}
    outer: Schema = {
        "type": "object",
        "properties": {"value": inner},
        "required": ["value"],
        "additionalProperties": False,
    }
    return outer | {key: moved[key] for key in ("$schema", *_SHARED) if key in moved}


def _legal(name: str) -> str:
    return re.sub(r"[^a-zA-Z0-9_-]+", "_", name).strip("_")[:NAME_CHARS_MAX] or NAME_DEFAULT
