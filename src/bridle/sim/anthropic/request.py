"""Reading a raw Messages body without trusting it, and writing small ones for examples.

Nothing here may fail on a body of the wrong shape: a rule that cannot find its field
finds nothing, and the rule about that field's shape speaks instead.
"""

from collections.abc import Iterator, Mapping
from functools import partial

from msgspec.structs import replace

from bridle.sim.rules.engine import RawRequest
from bridle.sim.rules.raw_request import (
    JsonObject,
    as_list,
    as_mapping,
    build_example,
    field,
    find_loop_head,
    make_rule,
)
from bridle.values.model import Abilities

PATH = "/v1/messages"
VERSION_HEADER = "anthropic-version"
OLD_VERSION = "2023-06-01"
NEW_VERSION = "2026-10-21"

# The models the examples speak to, by what they are examples of.
MODEL = "some-model"
NEWEST = Abilities(
    output_tokens=128_000,
    output_limited=True,
    thinking=("adaptive", "between_tools"),
    efforts=("low", "medium", "high", "xhigh", "max"),
    forced_tools=False,
    sampling=False,
    prefill=False,
)
ALWAYS_THINKING = replace(NEWEST, thinking=("adaptive",))
FORCED_TOOLS = replace(NEWEST, thinking=("adaptive", "disabled"), forced_tools=True)
THINKING_BUDGETS = replace(
    FORCED_TOOLS,
    thinking=("adaptive", "enabled", "disabled"),
    efforts=("low", "medium", "high", "max"),
    sampling=True,
)
PREFILLING = replace(
    THINKING_BUDGETS, thinking=("enabled", "disabled"), efforts=(), output_tokens=64_000, prefill=True
)

rule = partial(make_rule, code="invalid_request_error")
"""A rule of this provider's usual kind."""


def version(request: RawRequest) -> str:
    return request.headers.get(VERSION_HEADER, "")


def messages(request: RawRequest) -> list[JsonObject]:
    return [as_mapping(item) for item in as_list(field(request, "messages"))]


def blocks(message: JsonObject, key: str = "content") -> list[JsonObject]:
    """Content as blocks; a plain string is one block of text."""
    content = message.get(key)
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [as_mapping(item) for item in as_list(content)]


def list_blocks(request: RawRequest) -> Iterator[tuple[str, JsonObject]]:
    """Every block of every message with its place."""
    for index, message in enumerate(messages(request)):
        for inner, block in enumerate(blocks(message)):
            yield f"messages.{index}.content.{inner}", block


def tools(request: RawRequest) -> list[JsonObject]:
    return [as_mapping(item) for item in as_list(field(request, "tools"))]


def custom_tools(request: RawRequest) -> Iterator[tuple[str, JsonObject]]:
    """The tools somebody defined themselves; the provider's own have a dated type and other rules."""
    for index, tool in enumerate(tools(request)):
        if tool.get("type") in (None, "custom"):
            yield f"tools.{index}.custom", tool


def thinking_type(request: RawRequest) -> str:
    return str(as_mapping(field(request, "thinking")).get("type", ""))


def find_tool_loop(request: RawRequest) -> int | None:
    """The place of the first assistant message of the tool loop that is being answered."""

    def kinds(message: JsonObject) -> list[str]:
        return [str(block.get("type")) for block in blocks(message)]

    return find_loop_head(messages(request), kinds, "tool_result")


def is_tool_forced(request: RawRequest) -> bool:
    return as_mapping(field(request, "tool_choice")).get("type") in ("any", "tool")


def example(**changes: object) -> RawRequest:
    """A small legal request to the newest model with these fields changed; None takes one away."""
    body = {"model": MODEL, "max_tokens": 4096, "messages": [user("Hello")], **changes}
    return build_example(PATH, body, NEWEST, {VERSION_HEADER: NEW_VERSION})


def with_version(version: str, request: RawRequest) -> RawRequest:
    """The request under another version of the API; under none when it is empty."""
    return replace(request, headers={VERSION_HEADER: version} if version else {})


def user(*content: object) -> JsonObject:
    return {"role": "user", "content": content[0] if _is_single_text(content) else list(content)}


def assistant(*content: object) -> JsonObject:
    return {"role": "assistant", "content": content[0] if _is_single_text(content) else list(content)}


def text(words: str, **more: object) -> JsonObject:
    return {"type": "text", "text": words, **more}


def call(id: str = "toolu_1", name: str = "look", **more: object) -> JsonObject:  # noqa: A002  the wire's word
    return {"type": "tool_use", "id": id, "name": name, "input": {}, **more}


def result(id: str = "toolu_1", content: object = "seen") -> JsonObject:  # noqa: A002  the wire's word
    return {"type": "tool_result", "tool_use_id": id, "content": content}


def tool(name: str = "look", **more: object) -> JsonObject:
    return {"name": name, "input_schema": {"type": "object", "properties": {}}, **more}


def cache_control(ttl: str = "5m") -> dict[str, object]:
    return {"cache_control": {"type": "ephemeral", "ttl": ttl}}


def _is_single_text(content: tuple[object, ...]) -> bool:
    return len(content) == 1 and isinstance(content[0], str)


# `output_config.format`, and `output_format`, which older clients send.


def find_schema(body: Mapping[str, object]) -> object:
    current = as_mapping(as_mapping(body.get("output_config")).get("format"))
    return (current or as_mapping(body.get("output_format"))).get("schema")
