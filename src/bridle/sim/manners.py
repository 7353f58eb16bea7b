"""What a reply has that comes from a server of certain manners.

A server that refuses a request for want of something hands that something out itself: one that wants
reasoning back with every call thinks before it calls, one whose ids are short makes short ones.  Otherwise a
client that sends back just what it got would be refused, which happens nowhere in life.
"""

import string
from collections.abc import Callable
from hashlib import blake2b

from msgspec.structs import replace

from ..values.message import Reply
from ..values.parts import Part, Reasoning, ToolCall
from .profiles import MUST_ECHO, SHORT_IDS
from .rules import Asked

LETTERS = string.ascii_letters + string.digits
SHORT_ID_LENGTH = 9


def thought_through(asked: Asked, reply: Reply) -> Reply:
    """The reply with a thought in front of its calls, unless it has one or may not think."""
    able, thinking = asked.abilities, asked.body.get("thinking")
    thinks = able is not None and (bool(able.thinking) or not able.sampling)
    told_not_to = isinstance(thinking, dict) and thinking.get("type") == "disabled"
    thought = any(isinstance(part, Reasoning) for part in reply.parts)
    if not thinks or told_not_to or thought or not reply.calls:
        return reply
    names = " and ".join(dict.fromkeys(call.name for call in reply.calls))
    return replace(reply, parts=(Reasoning(text=f"I need {names} for this."), *reply.parts))


def briefly_named(asked: Asked, reply: Reply) -> Reply:
    """The reply with ids of nine letters and digits."""
    return replace(reply, parts=tuple(map(_brief, reply.parts)))


def _brief(part: Part) -> Part:
    if not isinstance(part, ToolCall):
        return part
    digest = blake2b(part.id.encode(), digest_size=SHORT_ID_LENGTH).digest()
    short = "".join(LETTERS[byte % len(LETTERS)] for byte in digest)
    return replace(part, id=short, wire_id=short)


MANNERS: dict[str, Callable[[Asked, Reply], Reply]] = {
    MUST_ECHO: thought_through,
    SHORT_IDS: briefly_named,
}


def in_the_manner_of(profile: str, asked: Asked, reply: Reply) -> Reply:
    """The reply as a server with this profile would give it."""
    shaped = MANNERS.get(profile)
    return shaped(asked, reply) if shaped else reply
