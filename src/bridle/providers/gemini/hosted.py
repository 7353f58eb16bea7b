"""Hosted tools of the Gemini API: each is an entry of its own, named by its member."""

from bridle.providers.wire.hosted import Block, HostedForm, encode_hosted_tool
from bridle.values.model import Model
from bridle.values.request import ToolSpec

_TRANSPORT = "mcpServers.streamableHttpTransport"

HOSTED = (
    HostedForm(concept="web_search", json='{"googleSearch":{}}'),
    HostedForm(concept="web_fetch", json='{"urlContext":{}}'),
    HostedForm(concept="code_execution", json='{"codeExecution":{}}'),
    HostedForm(
        concept="file_search",
        json='{"fileSearch":{}}',
        options=(("stores", "fileSearch.fileSearchStoreNames"), ("max_results", "fileSearch.topK")),
    ),
    HostedForm(
        concept="remote_mcp",
        json='{"mcpServers":{}}',
        options=(
            ("name", "mcpServers.name"),
            ("url", f"{_TRANSPORT}.url"),
            ("headers", f"{_TRANSPORT}.headers"),
            ("authorization", f"{_TRANSPORT}.headers.Authorization"),
            ("require_approval", ""),
        ),
    ),
)


def encode_own_hosted_tool(spec: ToolSpec, model: Model) -> Block:
    tool = encode_hosted_tool(spec, HOSTED, model)
    if (server := tool.get("mcpServers")) is not None:
        headers = server["streamableHttpTransport"].get("headers", {})
        if token := headers.get("Authorization"):
            headers["Authorization"] = f"Bearer {token}"
        tool["mcpServers"] = [server]
    return tool
