"""Hosted tools of the Messages API, and the servers that a remote MCP tool set refers to."""

from collections.abc import Iterable

from bridle.providers.wire.hosted import Block, HostedForm, encode_hosted_tool, read_hosted_options
from bridle.values.model import Model
from bridle.values.request import ToolSpec

REMOTE_MCP = "remote_mcp"
_DOMAINS = (("allowed_domains", "allowed_domains"), ("blocked_domains", "blocked_domains"))
_DISPLAY = (("width", "display_width_px"), ("height", "display_height_px"), ("environment", ""))

HOSTED = (
    HostedForm(
        concept="web_search",
        json='{"type":"web_search_20250305","name":"web_search"}',
        options=(("max_uses", "max_uses"), *_DOMAINS, ("location", "user_location")),
    ),
    HostedForm(
        concept="web_fetch",
        json='{"type":"web_fetch_20250910","name":"web_fetch"}',
        options=(
            ("max_uses", "max_uses"),
            *_DOMAINS,
            ("max_content_tokens", "max_content_tokens"),
            ("citations", "citations.enabled"),
        ),
    ),
    HostedForm(concept="code_execution", json='{"type":"code_execution_20250825","name":"code_execution"}'),
    HostedForm(
        concept=REMOTE_MCP,
        json='{"type":"mcp_toolset"}',
        # The address and the token are in the list of servers; calls are never put to the client.
        options=(
            ("name", "mcp_server_name"),
            ("url", ""),
            ("authorization", ""),
            ("allowed_tools", ""),
            ("require_approval", ""),
        ),
        beta="mcp-client-2025-11-20",
    ),
    HostedForm(
        concept="computer_use",
        models=r"(?:sonnet|haiku)-4-5",
        json='{"type":"computer_20250124","name":"computer"}',
        options=_DISPLAY,
        beta="computer-use-2025-01-24",
    ),
    HostedForm(
        concept="computer_use",
        json='{"type":"computer_20251124","name":"computer"}',
        options=_DISPLAY,
        beta="computer-use-2025-11-24",
    ),
)


def encode_own_hosted_tool(spec: ToolSpec, model: Model) -> Block:
    tool = encode_hosted_tool(spec, HOSTED, model)
    options = read_hosted_options(spec)
    if allowed := options.get("allowed_tools"):
        tool["default_config"] = {"enabled": False}
        tool["configs"] = {name: {"enabled": True} for name in allowed}
    return tool


def encode_mcp_servers(specs: Iterable[ToolSpec]) -> list[Block]:
    """Encode the remote MCP servers of a request."""
    servers: list[Block] = []
    for spec in specs:
        if spec.hosted is not None and spec.hosted.concept == REMOTE_MCP:
            options = read_hosted_options(spec)
            server = {"type": "url", "url": options["url"], "name": options["name"]}
            if token := options.get("authorization"):
                server["authorization_token"] = token
            servers.append(server)
    return servers
