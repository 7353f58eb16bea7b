"""`response_format`: a schema, or any JSON object."""

from collections.abc import Mapping

from ._rules_reading import mapping
from .answer_shape import ANY_OBJECT


def find_schema(body: Mapping[str, object]) -> object:
    wanted = mapping(body.get("response_format"))
    if wanted.get("type") == "json_object":
        return mapping(wanted.get("schema")) or ANY_OBJECT
    return mapping(wanted.get("json_schema")).get("schema")
