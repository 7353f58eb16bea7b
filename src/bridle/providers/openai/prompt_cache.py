"""What the two OpenAI wires have in common about the prompts that are kept: key, breakpoints, and how long.

How long is said once, for all of a request.  Older models have no breakpoints and one word for it.
"""

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
"""Nothing is kept but at breakpoints, and there are none."""
EXTENDED_TTL: Ttl = "24h"
"""The only longer life that models without breakpoints offer."""
_BREAKPOINT_BYTES = b',"%b":%b' % (BREAKPOINT.encode(), dumps(EXPLICIT_BREAKPOINT))


def takes_breakpoints(abilities: Abilities) -> bool:
    return abilities.cache == "points" and abilities.cache_marks > 0


def message_breakpoints(request: Request) -> dict[int, bytes]:
    places = message_breakpoint_ttls(request)
    return dict.fromkeys(places, _BREAKPOINT_BYTES) if takes_breakpoints(request.model.abilities) else {}


def cache_fields(request: Request) -> dict[str, Any]:
    """The fields that say under which key and for how long."""
    fields: dict[str, Any] = {KEY: request.cache_key} if request.cache_key else {}
    ttl = end_breakpoint_ttl(request)
    if takes_breakpoints(request.model.abilities):
        options = {"ttl": ttl, COMPARISON_ID: request.compare_reply_id or None}
        if said_options := {name: value for name, value in options.items() if value is not None}:
            fields[OPTIONS] = said_options
    elif ttl == EXTENDED_TTL:
        fields[RETENTION] = ttl
    return fields
