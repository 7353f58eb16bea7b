"""Validates tool names.

A name must be valid on every wire, because a conversation may change its model.  Two underscores separate a
namespace from the name in it.
"""

import re

from bridle.values.errors import BadTool

NAMESPACE_SEPARATOR = "__"
MCP_PREFIX = "mcp__"
"""Precedes the namespace of tools that another process serves."""
_LEGAL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def check_tool_name(name: str) -> None:
    if not _LEGAL_NAME.fullmatch(name):
        raise BadTool(
            f"tool `{name}`: not every provider accepts this name;"
            " use 1 to 64 letters, digits, _ or -, with name=…"
        )


def split_tool_name(name: str) -> tuple[str, str]:
    """Split a name into namespace and name: `mcp__server__tool` and `server__tool` are `tool` of `server`."""
    namespace, _, own = name.removeprefix(MCP_PREFIX).rpartition(NAMESPACE_SEPARATOR)
    return (namespace, own) if namespace and own else ("", name)
