"""Blocks and tools in the shapes of other wires: a member of a union that Converse does not have."""

from collections.abc import Sequence

from ._rules_bedrock_converse_shape import asked, messages, rule, text, tool, tools, user
from ._rules_reading import listed, mapping
from .rules import Asked, Found

SHOWN = (
    "text", "image", "toolUse", "toolResult", "document", "video", "cachePoint", "reasoningContent",
    "citationsContent", "searchResult",
)  # fmt: skip
"""The keys of a block that a refusal lists."""
BLOCKS = (*SHOWN, "audio", "guardContent", "toolAddition", "toolRemoval")
TOOLS = ("toolSpec", "systemTool", "cachePoint")
_WORDS = "{kind} object at {at} must set one of the following keys: {keys}."


def _lacks(item: object, keys: Sequence[str]) -> bool:
    return all(mapping(item).get(key) is None for key in keys)


def _odd_block(request: Asked) -> Found | None:
    for index, message in enumerate(messages(request)):
        for inner, block in enumerate(listed(message.get("content"))):
            if _lacks(block, BLOCKS):
                at = f"messages.{index}.content.{inner}"
                return {"kind": "ContentBlock", "at": at, "keys": ", ".join(SHOWN)}
    return None


def _odd_tool(request: Asked) -> Found | None:
    for index, item in enumerate(tools(request)):
        if _lacks(item, TOOLS):
            return {"kind": "Tool", "at": f"toolConfig.tools.{index}", "keys": ", ".join(TOOLS)}
    return None


_FOREIGN_TOOL = {"name": "look", "input_schema": {"type": "object"}}

FOREIGN_RULES = (
    rule(
        "block-member",
        _odd_block,
        _WORDS,
        evidence="S",
        passes=asked(messages=[user(text("Hello"))]),
        offends=asked(messages=[user(text("Hello"), {"type": "thinking", "thinking": "Hm."})]),
        says=_WORDS.format(kind="ContentBlock", at="messages.0.content.1", keys=", ".join(SHOWN)),
        also=((asked(messages=[user(text("Hello"), {"guardContent": {"text": {"text": "Hm."}}})]), ""),),
    ),
    rule(
        "tool-member",
        _odd_tool,
        _WORDS,
        evidence="K",
        passes=asked(toolConfig={"tools": [tool(), {"cachePoint": {"type": "default"}}]}),
        offends=asked(toolConfig={"tools": [tool(), _FOREIGN_TOOL]}),
        says=_WORDS.format(kind="Tool", at="toolConfig.tools.1", keys=", ".join(TOOLS)),
    ),
)
