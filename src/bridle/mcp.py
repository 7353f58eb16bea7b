"""Tools of MCP servers: `bridle.mcp.server(…)` in `Agent(tools=[…])`.  Needs the extra `bridle[mcp]`."""

from bridle.tools.mcp.config_file import load_servers
from bridle.tools.mcp.oauth import OAuth
from bridle.tools.mcp.offers import (
    PromptArgument,
    PromptMessages,
    ResourceTemplate,
    ServerPrompt,
    ServerResource,
)
from bridle.tools.mcp.server import McpServer, server
from bridle.tools.mcp.server_settings import McpError

__all__ = [
    "McpError",
    "McpServer",
    "OAuth",
    "PromptArgument",
    "PromptMessages",
    "ResourceTemplate",
    "ServerPrompt",
    "ServerResource",
    "load_servers",
    "server",
]
