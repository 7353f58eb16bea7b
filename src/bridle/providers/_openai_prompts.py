"""What the two OpenAI wires have in common about the prompts that are kept: key, breakpoints, and how long.

How long is said once, for all of a request.  Older models have no breakpoints and one word for it.
"""

from typing import Any

from ..values.errors import MisuseError
from ..values.model import Abilities, Ttl
from ..values.request import Request
from ._json import dumps

BREAKPOINT, OPTIONS, RETENTION, KEY = (
    "prompt_cache_breakpoint",
    "prompt_cache_options",
    "prompt_cache_retention",
    "prompt_cache_key",
)
COMPARED = "comparison_response_id"
POINT: dict[str, Any] = {"mode": "explicit"}
UNKEPT: dict[str, Any] = {"mode": "explicit"}
"""Nothing is kept but at breakpoints, and there are none."""
EXTENDED: Ttl = "24h"
"""The only longer life that models without breakpoints offer."""
_WRITTEN = b',"%b":%b' % (BREAKPOINT.encode(), dumps(POINT))


def takes_points(abilities: Abilities) -> bool:
    return abilities.cache == "points" and abilities.cache_marks > 0


def message_points(request: Request) -> dict[int, bytes]:
    count = len(request.messages)
    places = [mark.message for mark in request.marks if mark.place == "message"]
    for place in places:
        if not -count <= place < count:
            raise MisuseError(f"no message {place} to mark: the request has {count}")
    return {place % count: _WRITTEN for place in places} if takes_points(request.model.abilities) else {}


def kept_by(request: Request) -> dict[str, Any]:
    """The fields that say under which key and for how long."""
    fields: dict[str, Any] = {KEY: request.cache_key} if request.cache_key else {}
    ttl = next((mark.ttl for mark in request.marks if mark.place == "end"), None)
    if takes_points(request.model.abilities):
        options = {"ttl": ttl, COMPARED: request.compared_to or None}
        if said_options := {name: value for name, value in options.items() if value is not None}:
            fields[OPTIONS] = said_options
    elif ttl == EXTENDED:
        fields[RETENTION] = ttl
    return fields
