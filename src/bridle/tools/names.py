"""Names of tools.

A name must be legal on every wire, because the model may be changed in the middle of a
conversation.  Two underscores set a namespace apart from what is in it.
"""

import re

from bridle.values.errors import BadTool

NAMESPACE_SEPARATOR = "__"
MCP_PREFIX = "mcp__"
"""In front of the namespace of tools that another process serves."""
_LEGAL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def check_tool_name(name: str) -> None:
    if not _LEGAL_NAME.fullmatch(name):
        raise BadTool(
            f"tool `{name}`: the name is not legal on every provider;"
            " give it 1 to 64 letters, digits, _ or -, with name=…"
        )


def split_tool_name(name: str) -> tuple[str, str]:
    """The namespace and the name in it: `mcp__server__tool` and `server__tool` are `tool` of `server`."""
    namespace, _, own = name.removeprefix(MCP_PREFIX).rpartition(NAMESPACE_SEPARATOR)
    return (namespace, own) if namespace and own else ("", name)
