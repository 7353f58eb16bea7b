"""Reads a raw Chat Completions request without trusting its shape."""

from collections.abc import Mapping

from bridle.sim.request_forms import ANY_OBJECT
from bridle.sim.rules.engine import RawRequest
from bridle.sim.rules.raw_request import JsonObject, as_list, as_mapping, field

REASONING_FIELDS = ("reasoning_content", "reasoning", "reasoning_details")
"""Fields in which servers of this wire put reasoning."""


def calls(message: JsonObject) -> list[JsonObject]:
    return [as_mapping(item) for item in as_list(message.get("tool_calls"))]


def parts(message: JsonObject) -> list[JsonObject]:
    return [as_mapping(item) for item in as_list(message.get("content"))]


def is_reasoning(request: RawRequest) -> bool:
    """True if the model reasons for this request; with effort `none` it accepts what other models accept."""
    able = request.abilities
    return bool(able and able.thinking) and field(request, "reasoning_effort") != "none"


# `response_format`: a schema, or any JSON object.


def find_schema(body: Mapping[str, object]) -> object:
    wanted = as_mapping(body.get("response_format"))
    if wanted.get("type") == "json_object":
        return as_mapping(wanted.get("schema")) or ANY_OBJECT
    return as_mapping(wanted.get("json_schema")).get("schema")
