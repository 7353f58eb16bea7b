"""Server profiles: the subset of a family's rules that a kind of server enforces.

Many servers speak one wire and refuse different requests on it. A family's table holds the rules of all of
them; a profile selects them by id. The profiles of a family are defined beside its rules (`PROFILES` in its
`rules.py`); a family without any has one profile, the provider's own.

The table of endpoints assigns profiles to models (`profile`). A simulator can be started with another one.
"""

from functools import lru_cache

from bridle.providers.catalogue import find_open_profile
from bridle.providers.catalogue import find_profile as profile_in_tables
from bridle.values.base import Value

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


class ServerProfile(Value):
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
