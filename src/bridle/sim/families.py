"""The simulated wire families, listed once.

Each row loads its family on first use: building the rules of a family takes up to 130 ms, and most runs use one.
"""

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from typing import cast

from bridle.sim.cache.prompt_layout import PromptReader, PromptText
from bridle.sim.rules.engine import ProviderRule
from bridle.sim.rules.profiles import ServerProfile
from bridle.values.errors import MisuseError
from bridle.values.model import Abilities

from .family import SimulatedFamily

FAMILIES: Mapping[str, str] = {
    "anthropic": "bridle.sim.anthropic.family",
    "bedrock_converse": "bridle.sim.bedrock.family",
    "gemini": "bridle.sim.gemini.family",
    "openai_chat": "bridle.sim.openai_chat.family",
    "openai_responses": "bridle.sim.openai_responses.family",
}
"""Module of each family's `FAMILY`, by the id that logs and tables use."""
_FAMILIES_WITHOUT_RULES = {"scripted": "bridle.sim.scripted"}
"""Families that accept every request; no list shows them."""


@cache
def find_family(name: str) -> SimulatedFamily:
    """The family of this name; `MisuseError` if there is none."""
    module = _FAMILIES_WITHOUT_RULES.get(name) or FAMILIES.get(name)
    if module is None:
        raise MisuseError(f"unknown wire family {name!r}; choose one of: {', '.join(FAMILIES)}")
    return cast("SimulatedFamily", import_module(module).FAMILY)


def list_families() -> tuple[str, ...]:
    return tuple(FAMILIES)


def list_profiles(family: str) -> tuple[ServerProfile, ...]:
    """The kinds of server that speak this family's wire; the first one is the provider itself."""
    return find_family(family).profiles


def list_profile_names() -> tuple[str, ...]:
    return tuple(dict.fromkeys(each.name for family in FAMILIES for each in list_profiles(family)))


def list_rules(family: str, profile: str = "") -> tuple[ProviderRule, ...]:
    """The rules that a server of this family and profile enforces, those about prompt length last.

    A family that does not have the profile uses its first one, because one name serves all families of a
    simulator. Raises `MisuseError` for a profile that no family has.
    """
    found = find_family(family)
    profiles = {each.name: each for each in found.profiles}
    if profile and profile not in profiles and profile not in list_profile_names():
        raise MisuseError(f"unknown profile {profile!r}; choose one of: {', '.join(list_profile_names())}")
    chosen = profiles.get(profile, found.profiles[0])
    window = found.window_rules_by_profile.get(chosen.name, found.window_rules)
    return (*(rule for rule in found.rules if chosen.includes(rule.id)), *window)


def signature_rules(family: str) -> tuple[ProviderRule, ...]:
    return find_family(family).signature_rules


def find_prompt_reader(family: str) -> PromptReader | None:
    return find_family(family).prompt_reader


def lay_out_for_family(
    family: str, body: Mapping[str, object], abilities: Abilities | None
) -> PromptText | None:
    """Lay out the prompt of a request; None if the family has no prompt reader."""
    reader = find_prompt_reader(family)
    return reader.lay_out(body, abilities or Abilities()) if reader else None
