"""The output type of an agent: a schema for providers, and the conversion of answers.

Providers require an object at the top.  Other types (`list[int]`, a `Literal`, a union) are wrapped as
`{"value": …}` for the model and unwrapped in the answer.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, Generic, NamedTuple, TypeVar, Union, overload

import msgspec

from bridle.ports.tool import Json
from bridle.values.errors import MisuseError

from .annotations import NoJsonForm
from .builder import SchemaBuilder
from .document import Schema, encode_schema, rewrite_references
from .external_schema import parse_schema, resolve_root
from .json_form import to_json_form
from .json_types import JsonMismatch, load_object

T = TypeVar("T")

OUTPUT_NAME_DEFAULT = "final_answer"
# not from outside: names and requests that we make
OUTPUT_NAME_LENGTH_MAX = 64
_DEFINITION_KEYWORDS = ("$defs", "definitions")
_DEFINITION_REFERENCE = re.compile(r"#/(\$defs|definitions)/")


class OutputType(NamedTuple, Generic[T]):
    schema: str
    """JSON Schema text with an object at the top."""
    name: str
    description: str
    convert: Callable[[Json], T]
    """Converts JSON that satisfies the schema; raises ValueError, worded for the model, if the type rejects it."""
    is_wrapped: bool = False
    """The answer is the field `value` of an object."""
    is_of_client: bool = False
    """The schema came with a request of a client, which knows nothing of the object around the answer."""
    functions: Mapping[str, "OutputType[T]"] = {}
    """Types of the answers that output functions return, by the name of the function."""
    dump: Callable[[Any], Json] = to_json_form
    """The JSON that `convert` turns into an equal value; raises TypeError for a value of another type."""
    has_unions: bool = False
    """An answer that is still arriving may be of another type than it seems."""

    def load(self, answer: str, function: str = "") -> T:
        """The answer, given as JSON text and returned by an output function or not; raises what the type raises."""
        wanted = self.functions[function] if function else self
        return wanted.convert(msgspec.json.decode(answer))

    def dump_text(self, value: object) -> str:
        """The answer as JSON text, from which `load` reads an equal value; raises TypeError if there is none."""
        return msgspec.json.encode(self.dump(value)).decode()

    def show_json(self, value: object) -> Json:
        """The answer as JSON data, without the object around it; None for None."""
        if value is None:
            return None
        for each in (self, *self.functions.values()):
            try:
                shown = each.dump(value)
            except TypeError:  # returned by another function
                continue
            return shown["value"] if each.is_wrapped and isinstance(shown, dict) else shown
        return to_json_form(value)

    def show(self, value: object) -> object:
        """The answer for a reader that knows the type by its JSON alone: with the tags of unions, and not wrapped."""
        for each in (self, *self.functions.values()):
            if each.has_unions:
                try:
                    shown = each.dump(value)
                except TypeError:  # returned by another function
                    continue
                return shown["value"] if each.is_wrapped and isinstance(shown, dict) else shown
        return value


@overload
def make_output_type(wanted: type[T]) -> OutputType[T]: ...


@overload
def make_output_type(wanted: Mapping[str, object]) -> OutputType[Json]: ...


@overload
def make_output_type(wanted: object) -> OutputType[object]: ...


def make_output_type(wanted: object) -> OutputType[Any]:
    """Make an output type from any type that a tool parameter may have, a list of types, or a JSON Schema dict."""
    if isinstance(wanted, list | tuple):
        if not wanted:
            raise MisuseError("`output` is an empty list; name at least one type")
        for each in wanted:
            if isinstance(each, Mapping | list | tuple | set):
                what = "a JSON Schema" if isinstance(each, Mapping) else f"{each!r}"
                raise MisuseError(
                    f"`output` is a list with {what} in it; a list names types and functions, a schema stands alone"
                )
        wanted = Union[tuple(wanted)]  # noqa: UP007 - of any number of types
    if isinstance(wanted, Mapping):
        return _output_from_schema(wanted)
    named = str(getattr(wanted, "__name__", ""))
    try:
        builder = SchemaBuilder(exact_unions=True)
        loadable = builder.read_type(wanted)
        schema = builder.make_document(loadable.schema)
    except NoJsonForm as error:
        where = f"field `{error.path}` " if error.path else "it "
        raise MisuseError(f"output type `{named or wanted}`: {where}{error.what}") from None
    made = _make_output(schema, named, loadable.load, loadable.dump)
    return made._replace(has_unions=builder.has_unions)


def _output_from_schema(wanted: Mapping[str, object]) -> OutputType[Any]:
    try:
        schema = resolve_root(parse_schema(wanted)[0])
    except ValueError as error:
        raise MisuseError(f"output schema {error}") from None
    title = schema.get("title")
    return _make_output(schema, title if isinstance(title, str) else "", lambda value: value, to_json_form)


def _make_output(
    schema: Schema, name: str, load: Callable[[Any], Any], dump: Callable[[Any], Json]
) -> OutputType[Any]:
    description = schema.get("description", "")
    if schema.get("type") == "object":
        return OutputType(encode_schema(schema), _legal_name(name), description, load, dump=dump)

    def unwrapped(value: Json) -> Any:
        held = load_object(value)
        if set(held) != {"value"}:
            raise JsonMismatch("expected an object with the one field `value`")
        try:
            return load(held["value"])
        except JsonMismatch as mismatch:
            raise mismatch.prefix_path("value") from None

    return OutputType(
        encode_schema(_wrap_schema(schema)), OUTPUT_NAME_DEFAULT, description, unwrapped, is_wrapped=True,
        dump=lambda value: {"value": dump(value)},
    )  # fmt: skip


def _wrap_schema(schema: Schema) -> Schema:
    """Nest the schema under `value`; references to the root are extended, definitions stay at the top."""

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
