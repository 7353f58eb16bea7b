"""Reads a raw Converse request without trusting its shape.

Nothing here may fail on a body of the wrong shape: a rule that does not find its field reports nothing, and
the rule about the shape of that field reports it.

The service names places in two ways. A value that breaks the definition of its field is reported with members
counted from one (`messages.1.member.content.1.member`), all such faults in one message; a request that makes no
sense is reported with places counted from zero. Errors of the model itself get a prefix.
"""

from collections.abc import Iterator
from functools import partial

from bridle.sim.rules.engine import RawRequest
from bridle.sim.rules.raw_request import (
    JsonObject,
    as_list,
    as_mapping,
    field,
    find_loop_head,
    make_rule,
    messages,
)

MODEL_ERROR_PREFIX = "The model returned the following errors: "


rule = partial(make_rule, code="ValidationException")
"""Makes a rule of this provider's usual kind."""


def inference_setting(request: RawRequest, name: str) -> object:
    return as_mapping(field(request, "inferenceConfig")).get(name)


def blocks(message: JsonObject) -> list[JsonObject]:
    return [as_mapping(item) for item in as_list(message.get("content"))]


def list_held(message: JsonObject, kind: str) -> list[tuple[int, JsonObject]]:
    """List the contents of a message's blocks of this kind, each with the index of its block."""
    return [
        (index, as_mapping(block[kind]))
        for index, block in enumerate(blocks(message))
        if isinstance(block.get(kind), dict)
    ]


def list_calls(message: JsonObject) -> list[tuple[int, JsonObject]]:
    """List the calls that the client must answer; the provider runs its own tools."""
    calls = list_held(message, "toolUse") if message.get("role") == "assistant" else []
    return [(index, item) for index, item in calls if item.get("type") in (None, "tool_use")]


def list_results(message: JsonObject) -> list[tuple[int, JsonObject]]:
    return list_held(message, "toolResult") if message.get("role") == "user" else []


def tools(request: RawRequest) -> list[JsonObject]:
    return [as_mapping(item) for item in as_list(as_mapping(field(request, "toolConfig")).get("tools"))]


def list_tool_specs(request: RawRequest) -> Iterator[tuple[int, JsonObject]]:
    """Yield the client's own tools with their indexes."""
    for index, item in enumerate(tools(request)):
        if isinstance(item.get("toolSpec"), dict):
            yield index, as_mapping(item["toolSpec"])


def tool_choice(request: RawRequest) -> JsonObject:
    return as_mapping(as_mapping(field(request, "toolConfig")).get("toolChoice"))


def is_tool_forced(request: RawRequest) -> bool:
    return any(name in tool_choice(request) for name in ("any", "tool"))


def model_field(request: RawRequest, name: str) -> JsonObject:
    return as_mapping(as_mapping(field(request, "additionalModelRequestFields")).get(name))


def thinking_config(request: RawRequest) -> JsonObject:
    return model_field(request, "thinking") or model_field(request, "reasoning_config")


def find_tool_loop(request: RawRequest) -> int | None:
    """Return the index of the first assistant message of the current tool loop."""

    def kinds(message: JsonObject) -> list[str]:
        return [kind for block in blocks(message) for kind in block if kind != "cachePoint"]

    return find_loop_head(messages(request), kinds, "toolResult")
