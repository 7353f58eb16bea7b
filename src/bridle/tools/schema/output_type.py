"""The shape of a final answer: from a type, or from a JSON Schema, to what a provider wants and back.

Providers want an object at the top.  A type that is something else (`list[int]`, a
`Literal`, a union) is wrapped as `{"value": …}` for the model and unwrapped on the way
back, so that nobody sees the wrapping but the wire.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, Generic, NamedTuple, TypeVar, overload

from bridle.ports.tool import Json
from bridle.values.errors import MisuseError

from .annotations import NoJsonForm
from .builder import SchemaBuilder
from .document import Schema, encode_schema, rewrite_references
from .external_schema import parse_schema
from .json_types import JsonMismatch, load_object

T = TypeVar("T")

OUTPUT_NAME_DEFAULT = "final_answer"
OUTPUT_NAME_LENGTH_MAX = 64
_DEFINITION_KEYWORDS = ("$defs", "definitions")
_DEFINITION_REFERENCE = re.compile(r"#/(\$defs|definitions)/")


class OutputType(NamedTuple, Generic[T]):
    schema: str
    """JSON Schema as text, an object at the top."""
    name: str
    description: str
    convert: Callable[[Json], T]
    """From JSON that satisfies the schema; ValueError, in words for the model, when the type refuses it."""


@overload
def make_output_type(wanted: type[T]) -> OutputType[T]: ...


@overload
def make_output_type(wanted: Mapping[str, object]) -> OutputType[Json]: ...


@overload
def make_output_type(wanted: object) -> OutputType[object]: ...


def make_output_type(wanted: object) -> OutputType[Any]:
    """`wanted`: any type a tool's parameter may have, or a JSON Schema as a dict."""
    if isinstance(wanted, Mapping):
        return _output_from_schema(wanted)
    named = str(getattr(wanted, "__name__", ""))
    try:
        shapes = SchemaBuilder()
        shape = shapes.read_type(wanted)
        schema = shapes.make_document(shape.schema)
    except NoJsonForm as refusal:
        where = f"field `{refusal.path}` " if refusal.path else "it "
        raise MisuseError(f"output type `{named or wanted}`: {where}{refusal.what}") from None
    return _make_output(schema, named, shape.load)


def _output_from_schema(wanted: Mapping[str, object]) -> OutputType[Any]:
    try:
        schema, _ = parse_schema(wanted)
    except ValueError as error:
        raise MisuseError(f"output schema {error}") from None
    title = schema.get("title")
    return _make_output(schema, title if isinstance(title, str) else "", lambda value: value)


def _make_output(schema: Schema, name: str, load: Callable[[Any], Any]) -> OutputType[Any]:
    description = schema.get("description", "")
    if schema.get("type") == "object":
        return OutputType(encode_schema(schema), _legal_name(name), description, load)

    def unwrapped(value: Json) -> Any:
        held = load_object(value)
        if set(held) != {"value"}:
            raise JsonMismatch("expected an object with the one field `value`")
        try:
            return load(held["value"])
        except JsonMismatch as mismatch:
            raise mismatch.prefix_path("value") from None

    return OutputType(encode_schema(_wrap_schema(schema)), OUTPUT_NAME_DEFAULT, description, unwrapped)


def _wrap_schema(schema: Schema) -> Schema:
    """One level down; references from the top are lengthened, shared definitions stay at the top."""

    def deeper(reference: str) -> str:
        own = reference.startswith("#") and not _DEFINITION_REFERENCE.match(reference)
        return "#/properties/value" + reference.removeprefix("#") if own else reference

    moved = rewrite_references(schema, deeper)
    inner = {key: held for key, held in moved.items() if key not in (*_DEFINITION_KEYWORDS, "$schema")}
    outer: Schema = {
        "type": "object",
        "properties": {"value": inner},
        "required": ["value"],
        "additionalProperties": False,
    }
    return outer | {key: moved[key] for key in ("$schema", *_DEFINITION_KEYWORDS) if key in moved}


def _legal_name(name: str) -> str:
    return re.sub(r"[^a-zA-Z0-9_-]+", "_", name).strip("_")[:OUTPUT_NAME_LENGTH_MAX] or OUTPUT_NAME_DEFAULT
