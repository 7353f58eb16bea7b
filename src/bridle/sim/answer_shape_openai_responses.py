"""`text.format`: a schema, or any JSON object."""

from collections.abc import Mapping

from ._rules_reading import mapping
from .answer_shape import ANY_OBJECT


def find_schema(body: Mapping[str, object]) -> object:
    wanted = mapping(mapping(body.get("text")).get("format"))
    return ANY_OBJECT if wanted.get("type") == "json_object" else wanted.get("schema")
