"""Manners: which of a family's rules a server has.

Many servers speak one wire and refuse different things on it.  A family's table holds the rules of all of
them; a profile says which ones a server has, by their ids.  The profiles of a family stand beside its
rules (`PROFILES` in `rules_<family>.py`); a family that lists none has one manner, the provider's own.

Whose manners a simulated model has stands in the table of endpoints (`profile`).  Whoever starts a
simulator may name others.
"""

from functools import lru_cache

from bridle.providers.catalogue import find_open_profile
from bridle.providers.catalogue import find_profile as profile_in_tables
from bridle.values.base import Value

FIRST_PARTY = "first-party"
"""The provider that the wire is from, at its strictest."""
COMPATIBLE = "compatible"
"""Servers that took the wire over, with the few rules that all of them have."""
ALTERNATION = "alternation"
"""Templates that want user and assistant to take turns."""
MUST_ECHO = "must-echo"
"""Reasoning has to come back with the calls it led to."""
STRIP = "strip"
"""Reasoning must not come back."""
SHORT_IDS = "short-ids"
"""The same, and ids of calls are nine letters and digits."""
LOCAL = "local"
"""A server on one's own machine: it takes nearly everything, and fails inside its template."""


class ServerProfile(Value):
    name: str
    description: str
    only: tuple[str, ...] = ()
    """Ids of the rules it has; empty for all but `without`."""
    without: tuple[str, ...] = ()

    def includes(self, rule: str) -> bool:
        return rule not in self.without and (not self.only or rule in self.only)


@lru_cache(maxsize=256)
def find_server_profile(family: str, model: str, tables: str = "", played: str = "") -> str:
    """The manners of whoever serves this model in this wire; the first party's when nothing else is said.

    `tables` is a file laid over the built-in tables.  `played` is an endpoint that serves any model.
    """
    environ = {"BRIDLE_MODELS": tables}
    if played and (manners := find_open_profile(played, environ=environ)) is not None:
        return manners or FIRST_PARTY
    return profile_in_tables(family, model, environ=environ) or FIRST_PARTY
