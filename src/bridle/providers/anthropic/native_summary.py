"""Conversations made short by Anthropic itself: what to ask for, and what to say beside it.

Two kinds, and they exclude each other in one request:

    on demand     `Request.compacts`.  The answer is one signed block with the summary in it, and nothing
                  else.  It is sent first from then on, instead of everything it was made of.
    by threshold  the extra `context_management` asks for it.  A block without a signature comes in front
                  of an ordinary answer, and stays where it came; the provider reads nothing before it.
                  It is refused in requests that do not ask for the same again.

Both are previews: a header has to name them, in the request that asks and in every one that carries a block.
"""

import re
from typing import Any

from msgspec.structs import replace

from bridle.providers.wire.json import loads, repair_surrogates
from bridle.values.message import Opaque
from bridle.values.request import Request, ToolChoice

from .parts import COMPACTION, FAMILY

BETA_HEADER = "anthropic-beta"
ON_DEMAND, AUTOMATIC = "compact-2026-09-04", "compact-2026-01-12"
EDITS, EDIT = "context_management", "compact_20260112"
SUMMARIZE: dict[str, Any] = {"type": "summarize"}
INSTRUCTIONS_LENGTH_MAX = 16_384
_LIST_SEPARATOR = re.compile(r"\s*,\s*")


def required_betas(request: Request, named: str) -> str:
    """The previews a request needs, after those that are named already."""
    wanted = [each for each in _LIST_SEPARATOR.split(named.strip()) if each]
    if request.asks_native_summary or _has_leading_summary(request):
        wanted.append(ON_DEMAND)
    if has_automatic_compaction(request):
        wanted.append(AUTOMATIC)
    return ",".join(dict.fromkeys(wanted))


def has_automatic_compaction(request: Request) -> bool:
    """Whether the provider is asked to make the conversation short when it gets long."""
    return any(extra.name == EDITS and EDIT in extra.json for extra in request.extras)


def encode_summary_request(request: Request) -> dict[str, Any]:
    words = repair_surrogates(request.summary_instructions.strip())[:INSTRUCTIONS_LENGTH_MAX]
    return {**SUMMARIZE, "instructions": words} if words else dict(SUMMARIZE)


def remove_excluded_fields(request: Request) -> Request:
    """A request for a summary without what has no meaning there, and is refused."""
    forced = request.tool_choice.mode in ("any", "tool")
    return replace(
        request,
        tool_choice=ToolChoice() if forced else request.tool_choice,
        output=None,
        sampling=replace(request.sampling, stop_sequences=()),
        extras=tuple(extra for extra in request.extras if extra.name != EDITS),
    )


def _has_leading_summary(request: Request) -> bool:
    """Only the first message is looked at: a signed block is refused everywhere else."""
    first = next(iter(request.messages), None)
    endpoint, origin = request.model.endpoint, first.origin if first else None
    if first is None or origin is None or not request.model.abilities.compaction:
        return False
    if (origin.family, origin.endpoint) != (FAMILY, endpoint.endpoint_id):
        return False
    blocks = (part for part in first.parts if isinstance(part, Opaque) and part.kind == COMPACTION)
    return any(loads(block.native).get("signature") for block in blocks)
