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

from ..values.parts import Opaque
from ..values.request import Request, ToolChoice
from ._anthropic_blocks import COMPACTION, FAMILY
from ._json import loads, mended

BETA_HEADER = "anthropic-beta"
ON_DEMAND, BY_THRESHOLD = "compact-2026-09-04", "compact-2026-01-12"
EDITS, EDIT = "context_management", "compact_20260112"
COMPACTS: dict[str, Any] = {"type": "summarize"}
WORDS_LENGTH_MAX = 16_384
_APART = re.compile(r"\s*,\s*")


def betas(request: Request, named: str) -> str:
    """The previews a request needs, after those that are named already."""
    wanted = [each for each in _APART.split(named.strip()) if each]
    if request.compacts or _begins_with_a_summary(request):
        wanted.append(ON_DEMAND)
    if compacts_by_itself(request):
        wanted.append(BY_THRESHOLD)
    return ",".join(dict.fromkeys(wanted))


def compacts_by_itself(request: Request) -> bool:
    """Whether the provider is asked to make the conversation short when it gets long."""
    return any(extra.name == EDITS and EDIT in extra.json for extra in request.extras)


def wish_for_a_summary(request: Request) -> dict[str, Any]:
    words = mended(request.summary_words.strip())[:WORDS_LENGTH_MAX]
    return {**COMPACTS, "instructions": words} if words else dict(COMPACTS)


def without_what_it_excludes(request: Request) -> Request:
    """A request for a summary without what has no meaning there, and is refused."""
    forced = request.tool_choice.mode in ("any", "tool")
    return replace(
        request,
        tool_choice=ToolChoice() if forced else request.tool_choice,
        output=None,
        sampling=replace(request.sampling, stop_sequences=()),
        extras=tuple(extra for extra in request.extras if extra.name != EDITS),
    )


def _begins_with_a_summary(request: Request) -> bool:
    """Only the first message is looked at: a signed block is refused everywhere else."""
    first = next(iter(request.messages), None)
    endpoint, origin = request.model.endpoint, first.origin if first else None
    if first is None or origin is None or not request.model.abilities.compaction:
        return False
    if (origin.family, origin.endpoint) != (FAMILY, endpoint.home):
        return False
    blocks = (part for part in first.parts if isinstance(part, Opaque) and part.kind == COMPACTION)
    return any(loads(block.native).get("signature") for block in blocks)
