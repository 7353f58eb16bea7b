"""Hosted tools of the Responses API, and the uses of them that a reply reports.

The wire limits all hosted calls of a reply together (`max_tool_calls`), not those of one tool.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bridle.providers.wire.hosted import HostedForm
from bridle.providers.wire.json import count_or_zero, object_or_empty, text_or_empty
from bridle.values.message import Message, Opaque
from bridle.values.request import ToolSpec
from bridle.values.usage import Usage

WEB_SEARCH, FILE_SEARCH, CODE, IMAGE, MCP = HOSTED_ITEMS = (
    "web_search_call",
    "file_search_call",
    "code_interpreter_call",
    "image_generation_call",
    "mcp_call",
)
"""Items of tools that the provider ran."""
USES_MAX_FIELD = "max_tool_calls"
_LIMITED = ("max_uses", "")
"""`max_uses` becomes a part of `max_tool_calls`."""

HOSTED = (
    HostedForm(
        concept="web_search",
        json='{"type":"web_search"}',
        options=(
            _LIMITED,
            ("allowed_domains", "filters.allowed_domains"),
            ("location", "user_location"),
            ("context_size", "search_context_size"),
        ),
    ),
    HostedForm(
        concept="file_search",
        json='{"type":"file_search"}',
        options=(_LIMITED, ("stores", "vector_store_ids"), ("max_results", "max_num_results")),
    ),
    HostedForm(
        concept="code_execution",
        json='{"type":"code_interpreter","container":{"type":"auto"}}',
        options=(_LIMITED,),
    ),
    HostedForm(
        concept="image_generation",
        json='{"type":"image_generation"}',
        options=(_LIMITED, ("size", "size"), ("quality", "quality"), ("output_format", "output_format")),
    ),
    HostedForm(
        concept="remote_mcp",
        json='{"type":"mcp"}',
        options=(
            _LIMITED,
            ("name", "server_label"),
            ("url", "server_url"),
            ("authorization", "authorization"),
            ("headers", "headers"),
            ("allowed_tools", "allowed_tools"),
            ("require_approval", "require_approval"),
        ),
    ),
    HostedForm(
        concept="computer_use",
        models=r"computer-use-preview",
        json='{"type":"computer_use_preview"}',
        options=(("width", "display_width"), ("height", "display_height"), ("environment", "environment")),
    ),
    # Screenshots show the size of the display.
    HostedForm(
        concept="computer_use",
        json='{"type":"computer"}',
        options=(("width", ""), ("height", ""), ("environment", "")),
    ),
)


def count_hosted_uses(specs: Iterable[ToolSpec]) -> int:
    """Hosted calls that one reply may make; 0 if no tool runs at the provider."""
    return sum(
        spec.hosted.max_uses
        for spec in specs
        if spec.hosted is not None and spec.hosted.concept != "computer_use"
    )


def decode_hosted_uses(
    response: Mapping[str, Any], items: Iterable[object], messages: Sequence[Message]
) -> Usage:
    """Charged uses of hosted tools in a reply; `messages` came before it."""
    made = [item for item in items if isinstance(item, dict) and item.get("type") in HOSTED_ITEMS]
    kinds = [item["type"] for item in made]
    searched = sum(
        item["type"] == WEB_SEARCH and object_or_empty(item.get("action")).get("type", "search") == "search"
        for item in made
    )
    reported = object_or_empty(object_or_empty(response.get("tool_usage")).get("web_search"))
    containers = {text_or_empty(item.get("container_id")) for item in made if item["type"] == CODE}
    return Usage(
        searches=count_or_zero(reported.get("num_requests")) or searched,
        file_searches=kinds.count(FILE_SEARCH),
        # A container is charged when it starts, and later replies use it again.
        containers=sum(not _is_in_use(each, messages) for each in containers),
        images=sum(item["type"] == IMAGE and bool(item.get("result")) for item in made),
    )


def _is_in_use(container: str, messages: Sequence[Message]) -> bool:
    return bool(container) and any(
        isinstance(part, Opaque) and part.kind == CODE and container in part.native
        for message in messages
        for part in message.parts
    )
