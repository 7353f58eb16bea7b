"""Reads a raw Responses request without trusting its shape."""

from collections.abc import Mapping

from bridle.sim.request_forms import ANY_OBJECT
from bridle.sim.rules.engine import RawRequest
from bridle.sim.rules.raw_request import JsonObject, as_list, as_mapping, field


def items(request: RawRequest) -> list[JsonObject]:
    return [as_mapping(item) for item in as_list(field(request, "input"))]


def requested_effort(request: RawRequest) -> object:
    return as_mapping(field(request, "reasoning")).get("effort")


def is_reasoning(request: RawRequest) -> bool:
    """True if the model reasons for this request; with effort `none` it accepts what other models accept."""
    return bool(request.abilities and request.abilities.thinking) and requested_effort(request) != "none"


# `text.format`: a schema, or any JSON object.


def find_schema(body: Mapping[str, object]) -> object:
    wanted = as_mapping(as_mapping(body.get("text")).get("format"))
    return ANY_OBJECT if wanted.get("type") == "json_object" else wanted.get("schema")
