"""The JSON Schema of an answer in a client's request, read for a model of any wire.

Decoding keeps a format as the client wrote it wherever our own encoder would write it differently, so that the same
wire gets it unchanged. Another model gets its schema: a format is then an `OutputSpec`, and is no longer an extra.
"""

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from bridle.values.request import OutputSpec, Request

from .json import dumps, loads

Members = dict[str, Any]


def move_format(
    request: Request, field: str, read: Callable[[Members], tuple[OutputSpec | None, Members]]
) -> Request:
    """The request with the format that `read` finds in a field; it also returns what remains of that field."""
    found = next((extra for extra in request.extras if extra.name == field), None)
    value = loads(found.json) if found is not None else None
    if found is None or not isinstance(value, dict):
        return request
    output, rest = read(value)
    kept = tuple(
        replace(extra, json=dumps(rest).decode()) if extra is found else extra
        for extra in request.extras
        if extra is not found or rest
    )
    return replace(request, output=request.output or output, extras=kept)


def read_schema(name: object, schema: object, description: object = "") -> OutputSpec | None:
    """The output of these members; None if there is no schema."""
    if not isinstance(schema, dict):
        return None
    return OutputSpec(
        name=name if isinstance(name, str) else "",
        parameters=dumps(schema).decode(),
        description=description if isinstance(description, str) else "",
    )


def take_json_schema(shape: Members) -> tuple[OutputSpec | None, Members]:
    """The output of a `json_schema` of OpenAI, and its members that have no counterpart.

    `strict` has one: every answer is validated here, and the model is asked again.
    """
    output = read_schema(shape.get("name"), shape.get("schema"), shape.get("description"))
    taken = {"strict", *(("type", "name", "schema", "description") if output is not None else ())}
    return output, {name: value for name, value in shape.items() if name not in taken}
