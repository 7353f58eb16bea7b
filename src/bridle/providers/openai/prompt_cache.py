"""Prompt cache fields of the two OpenAI wires: key, breakpoints and lifetime."""

from typing import Any

from bridle.providers.wire.breakpoints import end_breakpoint_ttl, message_breakpoint_ttls
from bridle.providers.wire.json import dumps
from bridle.values.model import Abilities, Ttl
from bridle.values.request import Request

BREAKPOINT, OPTIONS, RETENTION, KEY = (
    "prompt_cache_breakpoint",
    "prompt_cache_options",
    "prompt_cache_retention",
    "prompt_cache_key",
)
COMPARISON_ID = "comparison_response_id"
EXPLICIT_BREAKPOINT: dict[str, Any] = {"mode": "explicit"}
NO_CACHE_OPTIONS: dict[str, Any] = {"mode": "explicit"}
"""Caches only at explicit breakpoints, of which there are none."""
EXTENDED_TTL: Ttl = "24h"
"""The only longer lifetime of models without breakpoints."""
_BREAKPOINT_BYTES = b',"%b":%b' % (BREAKPOINT.encode(), dumps(EXPLICIT_BREAKPOINT))


def takes_breakpoints(abilities: Abilities) -> bool:
    return abilities.cache == "points" and abilities.cache_marks > 0


def message_breakpoints(request: Request) -> dict[int, bytes]:
    places = message_breakpoint_ttls(request)
    return dict.fromkeys(places, _BREAKPOINT_BYTES) if takes_breakpoints(request.model.abilities) else {}


def cache_fields(request: Request) -> dict[str, Any]:
    """Return the request fields for cache key, lifetime and comparison."""
    fields: dict[str, Any] = {KEY: request.cache_key} if request.cache_key else {}
    ttl = end_breakpoint_ttl(request)
    if takes_breakpoints(request.model.abilities):
        options = {"ttl": ttl, COMPARISON_ID: request.compare_reply_id or None}
        if said_options := {name: value for name, value in options.items() if value is not None}:
            fields[OPTIONS] = said_options
    elif ttl == EXTENDED_TTL:
        fields[RETENTION] = ttl
    return fields
