"""Tools of MCP servers: `bridle.mcp.server(…)` in `Agent(tools=[…])`.  Needs the extra `bridle[mcp]`."""

from bridle.tools.mcp.config_file import load_servers
from bridle.tools.mcp.server import McpServer, server

__all__ = ["McpServer", "load_servers", "server"]
