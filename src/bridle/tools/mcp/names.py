"""Names of MCP servers and of their tools.

The model sees `mcp__SERVER__TOOL`.  A name that is too long or has characters that some provider refuses is
shortened or cleaned, and ends in a digest of the original: the same tool always has the same name, and two tools
never share one.
"""

import re
from collections.abc import Sequence
from hashlib import sha256
from pathlib import PurePosixPath
from urllib.parse import urlsplit

from bridle.tools.names import MCP_PREFIX, NAMESPACE_SEPARATOR
from bridle.values.errors import MisuseError

# not from outside: an argument of the user's program
SERVER_NAME_CHARACTERS_MAX = 24
# not from outside: names and requests that we make
TOOL_NAME_CHARACTERS_MAX = 64
DIGEST_CHARACTERS = 8
_SERVER_NAME = re.compile(r"[a-zA-Z0-9]([a-zA-Z0-9-]|_(?!_))*(?<!_)")
_REFUSED = re.compile(r"[^a-zA-Z0-9_-]+")
_RUNNERS = (
    "npx",
    "uvx",
    "uv",
    "python",
    "python3",
    "node",
    "bunx",
    "deno",
    "docker",
    "pipx",
    "run",
    "exec",
    "tool",
)
_DECORATION = re.compile(r"^(mcp[-_]server[-_]|server[-_]|mcp[-_])|([-_]mcp[-_]server|[-_]server|[-_]mcp)$")
_HOST_PREFIXES = ("www", "mcp", "api")


def check_server_name(name: str) -> str:
    """Return the name; raises `MisuseError` if it cannot be part of a tool's name."""
    if not _SERVER_NAME.fullmatch(name) or len(name) > SERVER_NAME_CHARACTERS_MAX:
        raise MisuseError(
            f"{name!r} is not a name for an MCP server; use up to {SERVER_NAME_CHARACTERS_MAX} letters, digits,"
            " - or single _, with name=…"
        )
    return name


def suggest_command_name(argv: Sequence[str]) -> str:
    """A name for the server that a command starts: `npx -y @scope/server-memory` is `memory`."""
    words = [word for word in argv if not word.startswith("-") and "=" not in word]
    named = [word for word in words if PurePosixPath(word).name not in _RUNNERS] or words or list(argv)
    return _clean_name(PurePosixPath(named[0]).name.partition("@")[0].removesuffix(".py").removesuffix(".js"))


def suggest_url_name(url: str) -> str:
    """A name for the server at an address: `https://mcp.example.com/mcp` is `example`."""
    labels = [label for label in (urlsplit(url).hostname or "").split(".") if label not in _HOST_PREFIXES]
    is_address = all(label.isdigit() for label in labels)
    return _clean_name("-".join(labels) if is_address else labels[0])


def _clean_name(text: str) -> str:
    found = _REFUSED.sub("-", text)
    while (shorter := _DECORATION.sub("", found)) and shorter != found:
        found = shorter
    found = re.sub(r"_+", "_", found).strip("-_")[:SERVER_NAME_CHARACTERS_MAX].strip("-_")
    return found or "server"


def make_prefix(server: str) -> str:
    return f"{MCP_PREFIX}{server}{NAMESPACE_SEPARATOR}"


def make_tool_name(server: str, tool: str) -> str:
    """The name of a server's tool for the model."""
    prefix, own = make_prefix(server), _REFUSED.sub("_", tool)
    if own == tool and own and len(prefix) + len(own) <= TOOL_NAME_CHARACTERS_MAX:
        return prefix + own
    digest = sha256(f"{server}\0{tool}".encode("utf-8", "surrogatepass")).hexdigest()[:DIGEST_CHARACTERS]
    room = TOOL_NAME_CHARACTERS_MAX - len(prefix) - len(digest) - 1
    return f"{prefix}{own[:room]}_{digest}"
