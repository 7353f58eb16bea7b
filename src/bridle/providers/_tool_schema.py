"""Schemas on their way out: said in the words a wire takes, with a remark for everything that was lost.

A codec asks for the schema of a tool by the name of its dialect and sends what it gets.  What the
rewriting lost is no secret: `schema_remarks` says it, once for every tool, to whoever keeps the log.
Arguments are checked against the source in any case, never against what was sent.
"""

from msgspec import Raw

from ..values.request import Request
from ._json import raw
from .schemas import compile_schema, dialect


def sendable(schema: str, wire: str) -> Raw:
    """The schema as this wire takes it; the very same text when there is nothing to say otherwise."""
    return raw(compile_schema(schema, dialect(wire)).text)


def schema_remarks(request: Request, wire: str) -> tuple[str, ...]:
    spoken = dialect(wire)
    return tuple(
        f"schema of tool `{spec.name}`: {loss}"
        for spec in request.tools
        if spec.native is None
        for loss in compile_schema(spec.parameters, spoken).losses
    )
