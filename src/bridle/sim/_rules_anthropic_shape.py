"""Reading a raw Messages body without trusting it, and writing small ones for examples.

Nothing here may fail on a body of the wrong shape: a rule that cannot find its field
finds nothing, and the rule about that field's shape speaks instead.
"""

from collections.abc import Iterator
from functools import partial

from msgspec.structs import replace

from ..values.model import Abilities
from ._rules_reading import Block, field, listed, mapping, small, written
from ._tool_loop import find_loop_head
from .rules import Asked

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
ALWAYS_THINKS = replace(NEWEST, thinking=("adaptive",))
FORCEABLE = replace(NEWEST, thinking=("adaptive", "disabled"), forced_tools=True)
BUDGETS = replace(
    FORCEABLE,
    thinking=("adaptive", "enabled", "disabled"),
    efforts=("low", "medium", "high", "max"),
    sampling=True,
)
PREFILLS = replace(BUDGETS, thinking=("enabled", "disabled"), efforts=(), output_tokens=64_000, prefill=True)

rule = partial(written, code="invalid_request_error")
"""A rule of this provider's usual kind."""


def version(request: Asked) -> str:
    return request.headers.get(VERSION_HEADER, "")


def messages(request: Asked) -> list[Block]:
    return [mapping(item) for item in listed(field(request, "messages"))]


def blocks(message: Block, key: str = "content") -> list[Block]:
    """Content as blocks; a plain string is one block of text."""
    content = message.get(key)
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [mapping(item) for item in listed(content)]


def placed_blocks(request: Asked) -> Iterator[tuple[str, Block]]:
    """Every block of every message with its place."""
    for index, message in enumerate(messages(request)):
        for inner, block in enumerate(blocks(message)):
            yield f"messages.{index}.content.{inner}", block


def tools(request: Asked) -> list[Block]:
    return [mapping(item) for item in listed(field(request, "tools"))]


def custom_tools(request: Asked) -> Iterator[tuple[str, Block]]:
    """The tools somebody defined themselves; the provider's own have a dated type and other rules."""
    for index, tool in enumerate(tools(request)):
        if tool.get("type") in (None, "custom"):
            yield f"tools.{index}.custom", tool


def thinking_type(request: Asked) -> str:
    return str(mapping(field(request, "thinking")).get("type", ""))


def loop_head(request: Asked) -> int | None:
    """The place of the first assistant message of the tool loop that is being answered."""

    def kinds(message: Block) -> list[str]:
        return [str(block.get("type")) for block in blocks(message)]

    return find_loop_head(messages(request), kinds, "tool_result")


def forced(request: Asked) -> bool:
    return mapping(field(request, "tool_choice")).get("type") in ("any", "tool")


def asked(**changes: object) -> Asked:
    """A small legal request to the newest model with these fields changed; None takes one away."""
    body = {"model": MODEL, "max_tokens": 4096, "messages": [user("Hello")], **changes}
    return small(PATH, body, NEWEST, {VERSION_HEADER: NEW_VERSION})


def under(version: str, request: Asked) -> Asked:
    """The request under another version of the API; under none when it is empty."""
    return replace(request, headers={VERSION_HEADER: version} if version else {})


def user(*content: object) -> Block:
    return {"role": "user", "content": content[0] if _is_words(content) else list(content)}


def assistant(*content: object) -> Block:
    return {"role": "assistant", "content": content[0] if _is_words(content) else list(content)}


def text(words: str, **more: object) -> Block:
    return {"type": "text", "text": words, **more}


def call(id: str = "toolu_1", name: str = "look", **more: object) -> Block:  # noqa: A002  the wire's word
    return {"type": "tool_use", "id": id, "name": name, "input": {}, **more}


def result(id: str = "toolu_1", content: object = "seen") -> Block:  # noqa: A002  the wire's word
    return {"type": "tool_result", "tool_use_id": id, "content": content}


def tool(name: str = "look", **more: object) -> Block:
    return {"name": name, "input_schema": {"type": "object", "properties": {}}, **more}


def marked(ttl: str = "5m") -> dict[str, object]:
    return {"cache_control": {"type": "ephemeral", "ttl": ttl}}


def _is_words(content: tuple[object, ...]) -> bool:
    return len(content) == 1 and isinstance(content[0], str)
