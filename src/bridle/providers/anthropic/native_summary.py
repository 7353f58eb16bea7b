"""Requests compaction of a conversation by Anthropic.

Two kinds, which exclude each other in one request:

    on demand     `Request.asks_native_summary`. The answer is one signed block with the summary, and
                  nothing else. From then on it is sent first, instead of everything it summarizes.
    by threshold  requested by the extra `context_management`. An unsigned block comes before an ordinary
                  answer and stays there; the provider reads nothing before it. It is refused in requests
                  that do not ask for the same again.

Both are previews: a header has to name them in the request and in every later one that carries a block.
"""

from typing import Any

from msgspec.structs import replace

from bridle.providers.wire.json import loads, repair_surrogates
from bridle.values.message import Opaque
from bridle.values.request import Request, ToolChoice

from .header_fields import split_list
from .parts import COMPACTION, FAMILY

ON_DEMAND, AUTOMATIC = "compact-2026-09-04", "compact-2026-01-12"
CLEARING = "context-management-2025-06-27"
EDITS, EDIT, CLEAR_PREFIX = "context_management", "compact_20260112", '"clear_'
SUMMARIZE: dict[str, Any] = {"type": "summarize"}
# not from outside: names and requests that we make
INSTRUCTIONS_LENGTH_MAX = 16_384


def required_betas(request: Request, named: str) -> str:
    """Return the beta features a request needs, after those already named."""
    betas = split_list(named)
    if request.asks_native_summary or has_leading_summary(request):
        betas.append(ON_DEMAND)
    if has_automatic_compaction(request):
        betas.append(AUTOMATIC)
    if any(extra.name == EDITS and CLEAR_PREFIX in extra.json for extra in request.extras):
        betas.append(CLEARING)
    return ",".join(dict.fromkeys(betas))


def has_automatic_compaction(request: Request) -> bool:
    """Return True if the provider is asked to compact the conversation at a threshold."""
    return any(extra.name == EDITS and EDIT in extra.json for extra in request.extras)


def encode_summary_request(request: Request) -> dict[str, Any]:
    instructions = repair_surrogates(request.summary_instructions.strip())[:INSTRUCTIONS_LENGTH_MAX]
    return {**SUMMARIZE, "instructions": instructions} if instructions else dict(SUMMARIZE)


def remove_excluded_fields(request: Request) -> Request:
    """Remove the fields that a summary request may not have."""
    forced = request.tool_choice.mode in ("any", "tool")
    return replace(
        request,
        tool_choice=ToolChoice() if forced else request.tool_choice,
        output=None,
        sampling=replace(request.sampling, stop_sequences=()),
        extras=tuple(extra for extra in request.extras if extra.name != EDITS),
    )


def has_leading_summary(request: Request) -> bool:
    """Return True if the first message has a signed summary, which is refused anywhere else."""
    first = request.messages[0] if request.messages else None
    if first is None or first.origin is None or not request.model.abilities.compaction:
        return False
    endpoint, origin = request.model.endpoint, first.origin
    if (origin.family, origin.endpoint) != (FAMILY, endpoint.endpoint_id):
        return False
    blocks = (part for part in first.parts if isinstance(part, Opaque) and part.kind == COMPACTION)
    return any(loads(block.native).get("signature") for block in blocks)
