"""Server profiles: the subset of a family's rules that a kind of server enforces.

Many servers speak one wire and refuse different requests on it. A family's table holds the rules of all of
them; a profile selects them by id. The profiles of a family are defined beside its rules (`PROFILES` in its
`rules.py`); a family without any has one profile, the provider's own.

The table of endpoints assigns profiles to models (`profile`). A simulator can be started with another one.

A server that refuses requests without a certain value supplies that value itself (`QUIRKS`): one that requires
reasoning with every call returns reasoning before its calls, and one with short ids makes short ids. Otherwise
a client that sends back exactly what it received would be refused.
"""

import string
from collections.abc import Callable
from functools import lru_cache
from hashlib import blake2b

from msgspec.structs import replace

from bridle.providers.catalogue import find_open_profile
from bridle.providers.catalogue import find_profile as profile_in_tables
from bridle.values.base import Value
from bridle.values.message import Part, Reasoning, Reply, ToolCall

from .engine import RawRequest

FIRST_PARTY = "first-party"
"""The provider that defined the wire, at its strictest."""
COMPATIBLE = "compatible"
"""Servers that adopted the wire, with the few rules that all of them have."""
ALTERNATION = "alternation"
"""Templates that require user and assistant messages to alternate."""
MUST_ECHO = "must-echo"
"""Reasoning must be sent back with the calls it led to."""
STRIP = "strip"
"""Reasoning must not be sent back."""
SHORT_IDS = "short-ids"
"""Like `strip`, and call ids have nine letters and digits."""
LOCAL = "local"
"""A local server: it accepts nearly everything, and fails inside its template."""
_ID_CHARACTERS = string.ascii_letters + string.digits
_SHORT_ID_LENGTH = 9


class ServerProfile(Value, kw_only=True):
    name: str
    description: str
    only: tuple[str, ...] = ()
    """Ids of its rules; empty for all except `without`."""
    without: tuple[str, ...] = ()

    def includes(self, rule: str) -> bool:
        return rule not in self.without and (not self.only or rule in self.only)


@lru_cache(maxsize=256)
def find_server_profile(family: str, model: str, tables: str = "", played: str = "") -> str:
    """Return the profile of the server of this model on this wire; the first party's by default.

    `tables` is a file laid over the built-in tables. `played` is an endpoint that serves any model.
    """
    environ = {"BRIDLE_MODELS": tables}
    if played and (profile := find_open_profile(played, environ=environ)) is not None:
        return profile or FIRST_PARTY
    return profile_in_tables(family, model, environ=environ) or FIRST_PARTY


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
    digest = blake2b(part.id.encode(), digest_size=_SHORT_ID_LENGTH).digest()
    short = "".join(_ID_CHARACTERS[byte % len(_ID_CHARACTERS)] for byte in digest)
    return replace(part, id=short, wire_id=short)


QUIRKS: dict[str, Callable[[RawRequest, Reply], Reply]] = {
    MUST_ECHO: add_reasoning_before_calls,
    SHORT_IDS: shorten_call_ids,
}


def apply_quirks(profile: str, raw: RawRequest, reply: Reply) -> Reply:
    """Return the reply as a server with this profile would send it."""
    quirk = QUIRKS.get(profile)
    return quirk(raw, reply) if quirk else reply
