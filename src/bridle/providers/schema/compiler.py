"""Compiles a JSON Schema for a wire and lists what was lost.

Wires accept different parts of JSON Schema, and one unsupported keyword makes a provider refuse the whole
request. So every schema passes through `compile_schema` before it is sent.

  - An acceptable schema is returned byte for byte.
  - Otherwise it is rewritten with the available keywords. A rewrite only ever accepts more than the
    source, because arguments are checked against the source, never against what was sent. Every rewrite
    that loses something is listed, with its location.
  - If a strict dialect cannot express a schema without forbidding values it allows, the schema is sent
    in the dialect's fallback, `strict` is false, and the first loss gives the reason.
  - Two omissions are read as commonly meant, and listed: an object that names fields and does not
    mention others has no others, and a schema without a type has the type its keywords apply to.

`restore_arguments` converts arguments back: it undoes what only the rewrite made the model write.

Compilation is deterministic: the same text gives the same result in every process.
"""

from functools import lru_cache

from msgspec.structs import replace

from bridle.providers.wire.json import dumps, loads
from bridle.values.base import Value
from bridle.values.errors import BadTool
from bridle.values.schema_limits import check_schema_limits

from .dialect import SchemaDialect, all_dialects, default_strict_dialect, find_dialect
from .full_writer import FullWriter
from .losses import SchemaLosses, UnfitSchema
from .narrow_writer import NarrowWriter
from .restore import restore_tree
from .root import build_root
from .source import SchemaSource, SchemaTree
from .strict_check import explain_excess, is_strict_ready_tree
from .values import is_same_value

__all__ = [
    "CompiledSchema",
    "SchemaDialect",
    "all_dialects",
    "compile_schema",
    "find_dialect",
    "is_strict_ready",
    "restore_arguments",
]

COMPILED_MAX = 1_024
"""Compiled schemas to cache; a session sends the same ones with every request."""


class CompiledSchema(Value, kw_only=True):
    text: str
    """JSON, to be sent unchanged."""
    losses: tuple[str, ...] = ()
    """Location, keyword and result of each loss."""
    strict: bool = False
    """True if it may be marked as strict."""
    dialect: str = ""
    renamed: tuple[tuple[str, str], ...] = ()
    """Names of root fields as sent, each with its name in the source."""
    unfit: str = ""
    """Reason why the requested dialect cannot express it, so that its fallback was used."""


def compile_schema(text: str, dialect: SchemaDialect) -> CompiledSchema:
    """Compile `text` for the dialect; raise `BadTool` if it is not JSON or not a schema."""
    return _compile_cached(text, dialect)


def restore_arguments(arguments_json: str, source: str, dialect: SchemaDialect) -> str:
    """Convert arguments that match `source` as compiled for `dialect` so that they match `source`."""
    compiled = compile_schema(source, dialect)
    nulls = compiled.strict and dialect.all_required and compiled.text != source
    if not nulls and not compiled.renamed:
        return arguments_json
    return restore_tree(arguments_json, source, _parse_schema(source), compiled.renamed, nulls=nulls)


def is_strict_ready(text: str, dialect: SchemaDialect | None = None) -> bool:
    """Return True if a schema may be marked as strict without rewriting."""
    try:
        return is_strict_ready_tree(_parse_schema(text), dialect or default_strict_dialect())
    except BadTool:
        return False


@lru_cache(maxsize=COMPILED_MAX)
def _compile_cached(text: str, dialect: SchemaDialect) -> CompiledSchema:
    tree = _parse_schema(text)
    if dialect.strict and is_strict_ready_tree(tree, dialect):
        return CompiledSchema(text=text, strict=True, dialect=dialect.name)
    losses = SchemaLosses()
    try:
        source = SchemaSource(tree, losses)
        top = build_root(source, dialect, losses)
        writer = (
            NarrowWriter(source, dialect, losses)
            if dialect.is_narrow
            else FullWriter(source, dialect, losses)
        )
        written = writer.write_document(top)
        if why := explain_excess(written, dialect):
            raise UnfitSchema("#", "schema", why)
    except RecursionError:
        raise BadTool(
            "a schema has definitions that lead too deep into one another: make it flatter"
        ) from None
    except UnfitSchema as unfit:
        return _compile_fallback(text, dialect, str(unfit), f"{unfit}, so the schema is sent as not strict")
    same = is_same_value(written, tree)
    return CompiledSchema(
        text=text if same else dumps(written).decode(),
        losses=losses.to_lines(),
        strict=dialect.strict,
        dialect=dialect.name,
        renamed=top.renamed,
    )


def _compile_fallback(text: str, dialect: SchemaDialect, why: str, loss: str) -> CompiledSchema:
    loose = compile_schema(text, find_dialect(dialect.fallback))
    return replace(loose, losses=(loss, *loose.losses), unfit=why)


def _parse_schema(text: str) -> SchemaTree:
    try:
        tree = loads(text)
    except ValueError as error:
        raise BadTool(f"a schema is not JSON ({error}): give JSON Schema as text") from None
    if not isinstance(tree, dict | bool):
        raise BadTool("a schema must be a JSON object: give JSON Schema as text")
    try:
        check_schema_limits(tree, len(text))
    except ValueError as error:
        raise BadTool(f"a schema {error}: make it smaller") from None
    return tree
