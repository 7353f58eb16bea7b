"""What a reply has that comes from a server of certain manners.

A server that refuses a request for want of something hands that something out itself: one that wants
reasoning back with every call thinks before it calls, one whose ids are short makes short ones.  Otherwise a
client that sends back just what it got would be refused, which happens nowhere in life.
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


def add_reasoning_before_calls(asked: RawRequest, reply: Reply) -> Reply:
    """The reply with a thought in front of its calls, unless it has one or may not think."""
    able, thinking = asked.abilities, asked.body.get("thinking")
    thinks = able is not None and (bool(able.thinking) or not able.sampling)
    told_not_to = isinstance(thinking, dict) and thinking.get("type") == "disabled"
    thought = any(isinstance(part, Reasoning) for part in reply.parts)
    if not thinks or told_not_to or thought or not reply.calls:
        return reply
    names = " and ".join(dict.fromkeys(call.name for call in reply.calls))
    return replace(reply, parts=(Reasoning(text=f"I need {names} for this."), *reply.parts))


def shorten_call_ids(asked: RawRequest, reply: Reply) -> Reply:
    """The reply with ids of nine letters and digits."""
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


def apply_quirks(profile: str, asked: RawRequest, reply: Reply) -> Reply:
    """The reply as a server with this profile would give it."""
    shaped = QUIRKS.get(profile)
    return shaped(asked, reply) if shaped else reply
