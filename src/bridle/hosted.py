"""Tools that a model's provider runs: `hosted.web_search()` in `Agent(tools=[…])`."""

from bridle.tools.hosted import (
    HostedTool,
    Location,
    code_execution,
    computer_use,
    file_search,
    image_generation,
    remote_mcp,
    web_fetch,
    web_search,
)

__all__ = [
    "HostedTool",
    "Location",
    "code_execution",
    "computer_use",
    "file_search",
    "image_generation",
    "remote_mcp",
    "web_fetch",
    "web_search",
]
