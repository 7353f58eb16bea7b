"""One JSON Schema in, what a wire takes of it out, and a list of what was lost on the way.

Wires take different parts of JSON Schema, and one shape that a provider does not know refuses the whole
request.  So every schema goes through `compile_schema` before it is sent.

  - A schema that is fine comes out as it went in, byte for byte.
  - Otherwise it is said again in the words there are.  A rewrite only ever lets the model write more than
    the source allows, because the arguments are checked against the source, never against what was
    sent.  Every rewrite that loses something is listed, with its place.
  - A strict dialect that cannot say a schema without forbidding what it allows does not get it: the
    schema goes out in the dialect's fallback, `strict` is false, and the first loss says why.
  - Two things are read as they are commonly meant, and listed: an object that names fields and is silent
    about others has no others, and a shape without a type has the type its words are about.

`restore` is the way back for arguments: it undoes what only the rewrite made the model write.

The same text gives the same text, in every process.
"""

from collections.abc import Sequence
from functools import lru_cache

from msgspec.structs import replace

from bridle.providers.wire.json import dumps, loads
from bridle.values.base import Value
from bridle.values.errors import BadTool

from .dialect import SchemaDialect, all_dialects, default_strict_dialect, find_dialect
from .full_writer import FullWriter
from .losses import SchemaLosses, UnfitSchema
from .narrow_writer import NarrowWriter
from .restore import restore_tree
from .root import build_root
from .source import SchemaSource, SchemaTree
from .strict_check import SchemaSize, explain_excess, is_strict_ready_tree, measure_schema
from .values import value_key

__all__ = [
    "CompiledSchema",
    "SchemaDialect",
    "all_dialects",
    "compile_schema",
    "compile_together",
    "explain_joint_limit",
    "find_dialect",
    "is_strict_ready",
    "restore_arguments",
]

COMPILED_MAX = 1_024
"""How many schemas are remembered; a session sends the same ones with every request."""


class CompiledSchema(Value):
    text: str
    """JSON, to be sent as it is."""
    losses: tuple[str, ...] = ()
    """Place, word, and what became of it."""
    strict: bool = False
    """Whether it may be marked as strict."""
    dialect: str = ""
    renamed: tuple[tuple[str, str], ...] = ()
    """Names of fields at the top as they go out, each with its name in the source."""
    unfit: str = ""
    """Reason why the dialect asked for could not carry it, so that it is in that dialect's fallback."""


def compile_schema(text: str, dialect: SchemaDialect) -> CompiledSchema:
    """`text` as the dialect takes it; `BadTool` when it is no JSON or no schema."""
    return _compile_cached(text, dialect)


def compile_together(texts: Sequence[str], dialect: SchemaDialect) -> tuple[CompiledSchema, ...]:
    """The schemas of one request: as many of them strict, the first ones first, as may be so together."""
    chosen: list[CompiledSchema] = []
    for text in texts:
        compiled = compile_schema(text, dialect)
        if compiled.strict and (why := explain_joint_limit([*chosen, compiled])):
            compiled = _compile_fallback(text, dialect, why, f"#: schema is sent as not strict: {why}")
        chosen.append(compiled)
    return tuple(chosen)


def explain_joint_limit(compiled: Sequence[CompiledSchema]) -> str | None:
    """Why these cannot be in one request; None when they can."""
    strict = [one for one in compiled if one.strict]
    for name in dict.fromkeys(one.dialect for one in strict):
        spoken = find_dialect(name)
        sizes = [_schema_size(one.text, spoken) for one in strict if one.dialect == name]
        limits = (
            ("strict schemas", len(sizes), spoken.tools_max),
            ("optional fields", sum(size.optional for size in sizes), spoken.optional_max),
            ("unions", sum(size.unions for size in sizes), spoken.unions_max),
        )
        for what, count, most in limits:
            if most is not None and count > most:
                return (
                    f"together they have {count} {what}, and {most} are the most; make fewer of them strict"
                )
    return None


def restore_arguments(arguments_json: str, source: str, dialect: SchemaDialect) -> str:
    """Arguments written to fit `source` as compiled for `dialect`, made to fit `source` itself."""
    compiled = compile_schema(source, dialect)
    nulls = compiled.strict and dialect.all_required and compiled.text != source
    if not nulls and not compiled.renamed:
        return arguments_json
    return restore_tree(arguments_json, source, _parse_schema(source), compiled.renamed, nulls=nulls)


def is_strict_ready(text: str, dialect: SchemaDialect | None = None) -> bool:
    """Whether a schema may be marked as strict without any rewriting."""
    try:
        return is_strict_ready_tree(_parse_schema(text), dialect or default_strict_dialect())
    except BadTool:
        return False


@lru_cache(maxsize=COMPILED_MAX)
def _compile_cached(text: str, spoken: SchemaDialect) -> CompiledSchema:
    tree = _parse_schema(text)
    if spoken.strict and is_strict_ready_tree(tree, spoken):
        return CompiledSchema(text=text, strict=True, dialect=spoken.name)
    losses = SchemaLosses()
    try:
        source = SchemaSource(tree, losses)
        top = build_root(source, spoken, losses)
        writer = (
            NarrowWriter(source, spoken, losses) if spoken.is_narrow else FullWriter(source, spoken, losses)
        )
        written = writer.write_document(top)
        if why := explain_excess(written, spoken):
            raise UnfitSchema("#", "schema", why)
    except UnfitSchema as unfit:
        return _compile_fallback(text, spoken, str(unfit), f"{unfit}, so the schema is sent as not strict")
    same = value_key(written) == value_key(tree)
    return CompiledSchema(
        text=text if same else dumps(written).decode(),
        losses=losses.to_lines(),
        strict=spoken.strict,
        dialect=spoken.name,
        renamed=top.renamed,
    )


@lru_cache(maxsize=COMPILED_MAX)
def _schema_size(text: str, spoken: SchemaDialect) -> SchemaSize:
    return measure_schema(loads(text), spoken)


def _compile_fallback(text: str, spoken: SchemaDialect, why: str, loss: str) -> CompiledSchema:
    loose = compile_schema(text, find_dialect(spoken.fallback))
    return replace(loose, losses=(loss, *loose.losses), unfit=why)


def _parse_schema(text: str) -> SchemaTree:
    try:
        tree = loads(text)
    except ValueError as error:
        raise BadTool(f"a schema is not JSON ({error}): give JSON Schema as text") from None
    if not isinstance(tree, dict | bool):
        raise BadTool("a schema must be a JSON object: give JSON Schema as text")
    return tree
