"""Adjusts replies to the server profile that sends them.

A server that refuses requests without a certain value supplies that value itself: one that requires reasoning
with every call returns reasoning before its calls, and one with short ids makes short ids. Otherwise a client
that sends back exactly what it received would be refused.
"""

import string
from collections.abc import Callable
from hashlib import blake2b

from msgspec.structs import replace

from bridle.sim.rules.engine import RawRequest
from bridle.sim.rules.profiles import MUST_ECHO, SHORT_IDS
from bridle.values.message import Part, Reasoning, Reply, ToolCall

ID_CHARACTERS = string.ascii_letters + string.digits
SHORT_ID_LENGTH = 9


def add_reasoning_before_calls(raw: RawRequest, reply: Reply) -> Reply:
    """Add reasoning before the calls of a reply, unless it has some or reasoning is disabled."""
    abilities, thinking = raw.abilities, raw.body.get("thinking")
    can_think = abilities is not None and (bool(abilities.thinking) or not abilities.sampling)
    is_disabled = isinstance(thinking, dict) and thinking.get("type") == "disabled"
    has_reasoning = any(isinstance(part, Reasoning) for part in reply.parts)
    if not can_think or is_disabled or has_reasoning or not reply.calls:
        return reply
    names = " and ".join(dict.fromkeys(call.name for call in reply.calls))
    return replace(reply, parts=(Reasoning(text=f"I need {names} for this."), *reply.parts))


def shorten_call_ids(raw: RawRequest, reply: Reply) -> Reply:
    """Replace call ids with ids of nine letters and digits."""
    return replace(reply, parts=tuple(map(_shorten_call_id, reply.parts)))


def _shorten_call_id(part: Part) -> Part:
    if not isinstance(part, ToolCall):
        return part
    digest = blake2b(part.id.encode(), digest_size=SHORT_ID_LENGTH).digest()
    short = "".join(ID_CHARACTERS[byte % len(ID_CHARACTERS)] for byte in digest)
    return replace(part, id=short, wire_id=short)


QUIRKS: dict[str, Callable[[RawRequest, Reply], Reply]] = {
    MUST_ECHO: add_reasoning_before_calls,
    SHORT_IDS: shorten_call_ids,
}


def apply_quirks(profile: str, raw: RawRequest, reply: Reply) -> Reply:
    """Return the reply as a server with this profile would send it."""
    quirk = QUIRKS.get(profile)
    return quirk(raw, reply) if quirk else reply
