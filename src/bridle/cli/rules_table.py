"""The tables of what simulated providers refuse, for people and for programs.

A row stands once, with the profiles that have it: the same rule is often a rule of several kinds of servers.
"""

from ..sim.rules import Rule, blanks_shown, families, profile_names, profiles_of, rules_of, table
from ..values.errors import MisuseError
from .printing import say_json, say_lines

Row = dict[str, str | int | list[str]]


def print_rules(family: str | None, profile: str, *, as_json: bool) -> int:
    if family is not None and family not in families():
        raise MisuseError(f"no rules are known for {family!r}; there are {', '.join(families())}")
    if profile and profile not in profile_names():
        raise MisuseError(f"there is no profile {profile!r}; there are {', '.join(profile_names())}")
    wanted = families() if family is None else (family,)
    if as_json:
        say_json([row for each in wanted for row in _rows(each, profile)])
        return 0
    for each in wanted:
        for manners in profiles_of(each):
            if profile in ("", manners.name):
                rules = rules_of(each, manners.name)
                say_lines(f"{each}, {manners.name}: {manners.about} ({len(rules)} rules)\n\n{table(rules)}\n")
    return 0


def _rows(family: str, profile: str) -> list[Row]:
    having: dict[str, list[str]] = {}
    found: dict[str, Rule] = {}
    for manners in profiles_of(family):
        for rule in rules_of(family, manners.name) if profile in ("", manners.name) else ():
            found[rule.id] = rule
            having.setdefault(rule.id, []).append(manners.name)
    return [
        {
            "family": family,
            "id": rule.id,
            "profiles": having[rule.id],
            "models": rule.models,
            "status": rule.status,
            "type": rule.type,
            "message": blanks_shown(rule),
            "evidence": rule.evidence,
        }
        for rule in found.values()
    ]
