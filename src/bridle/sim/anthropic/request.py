"""Reads a raw Messages request without trusting its shape.

Nothing here may fail on a body of the wrong shape: a rule that does not find its field reports nothing, and
the rule about the shape of that field reports it.
"""

from collections.abc import Iterator, Mapping
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
    tools,
)

VERSION_HEADER = "anthropic-version"
OLD_VERSION = "2023-06-01"
NEW_VERSION = "2026-10-21"


rule = partial(make_rule, code="invalid_request_error")
"""Makes a rule of this provider's usual kind."""


def version(request: RawRequest) -> str:
    return request.headers.get(VERSION_HEADER, "")


def blocks(message: JsonObject, key: str = "content") -> list[JsonObject]:
    """Return content as blocks; a plain string is one text block."""
    content = message.get(key)
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [as_mapping(item) for item in as_list(content)]


def list_blocks(request: RawRequest) -> Iterator[tuple[str, JsonObject]]:
    """Yield every block of every message with its path."""
    for index, message in enumerate(messages(request)):
        for inner, block in enumerate(blocks(message)):
            yield f"messages.{index}.content.{inner}", block


def is_custom_tool(tool: JsonObject) -> bool:
    """True for a tool of the client; the provider's tools have a dated type and other rules."""
    return tool.get("type") in (None, "custom")


def custom_tools(request: RawRequest) -> Iterator[tuple[str, JsonObject]]:
    """Yield the client's own tools with their paths."""
    for index, tool in enumerate(tools(request)):
        if is_custom_tool(tool):
            yield f"tools.{index}.custom", tool


def thinking_type(request: RawRequest) -> str:
    return str(as_mapping(field(request, "thinking")).get("type", ""))


def find_tool_loop(request: RawRequest) -> int | None:
    """Return the index of the first assistant message of the current tool loop."""

    def kinds(message: JsonObject) -> list[str]:
        return [str(block.get("type")) for block in blocks(message)]

    return find_loop_head(messages(request), kinds, "tool_result")


def is_tool_forced(request: RawRequest) -> bool:
    return as_mapping(field(request, "tool_choice")).get("type") in ("any", "tool")


# `output_config.format`, and `output_format`, which older clients send.


def find_schema(body: Mapping[str, object]) -> object:
    current = as_mapping(as_mapping(body.get("output_config")).get("format"))
    return (current or as_mapping(body.get("output_format"))).get("schema")
