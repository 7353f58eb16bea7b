"""`responseJsonSchema`, `responseSchema` with its types in capitals, and JSON without a schema."""

from collections.abc import Mapping

from ._rules_gemini_shape import member
from ._rules_reading import mapping
from .answer_shape import ANY_OBJECT


def find_schema(body: Mapping[str, object]) -> object:
    config = mapping(member(body, "generationConfig"))
    if member(config, "responseMimeType") != "application/json":
        return None
    plain = member(config, "responseJsonSchema")
    return plain or _in_json_schema(member(config, "responseSchema")) or ANY_OBJECT


def _in_json_schema(schema: object) -> object:
    """A schema of the OpenAPI subset in the words of JSON Schema."""
    if isinstance(schema, list):
        return [_in_json_schema(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    made = {name: _in_json_schema(value) for name, value in schema.items() if name != "nullable"}
    kind = made.get("type")
    if isinstance(kind, str):
        made["type"] = [kind.lower(), "null"] if schema.get("nullable") is True else kind.lower()
    return made
