"""What a provider refuses, as data.

A rule looks at a request as it arrived, before anybody has interpreted it, because
that is what the provider looks at.  It either finds nothing or finds the words that
fill its wording.  Rules are asked in the order of their table and the first finding
is the answer, as with the real thing.

A rule brings its own proof: where its wording was seen (`evidence`), a request that
passes and one that offends, with the message it earns.  The tests are made of these,
so a rule without examples cannot be written.

    evidence  S  seen in a provider's answer, recorded or pasted in a public issue
              D  in the provider's documents
              F  in public code or fixtures only: weaker
              K  known to us, nowhere found in writing
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from pkgutil import iter_modules
from types import ModuleType

from ..values.errors import Failure, FailureKind, MisuseError
from ..values.model import Abilities
from ..values.value import Value
from .profiles import FIRST_PARTY, Profile

PREFIX, LIMITS = "rules_", "window_"
Found = Mapping[str, object]
"""What a rule found wrong, by the names its wording uses."""


class Asked(Value):
    """A request as it arrived."""

    path: str
    headers: Mapping[str, str]
    """Names in lower case."""
    body: Mapping[str, object]
    """Empty when the bytes were not a JSON object."""
    size: int = 0
    malformed: str = ""
    """Why the bytes were not a JSON object."""
    abilities: Abilities | None = None
    """Facts about the model asked for; None when nobody knows that model."""
    prompt_tokens: int = 0


class Rule(Value):
    id: str
    find: Callable[[Asked], Found | None]
    wording: str
    evidence: str
    passes: Asked
    offends: Asked
    says: str
    """The whole message the offender gets."""
    models: str = "all"
    """Which models it is about, in words; `find` asks the abilities."""
    status: int = 400
    type: str = ""
    """The provider's own word for the kind of error."""
    kind: FailureKind = "invalid"
    param: str = ""
    """Which field is at fault, where the provider tells that apart from the message; with blanks."""
    also: tuple[tuple[Asked, str], ...] = ()
    """Further examples, mostly where a limit lies: what each is told, nothing when it passes."""


class Violation(Value):
    rule: Rule
    message: str
    param: str = ""

    @property
    def failure(self) -> Failure:
        rule = self.rule
        return Failure(kind=rule.kind, message=self.message, status=rule.status, code=rule.type)


def check(rules: Sequence[Rule], asked: Asked) -> Violation | None:
    for rule in rules:
        found = rule.find(asked)
        if found is not None:
            message, param = rule.wording.format(**found), rule.param.format(**found)
            return Violation(rule=rule, message=message, param=param)
    return None


def families() -> tuple[str, ...]:
    """The families that have a table."""
    names = (module.name for module in iter_modules([str(Path(__file__).parent)]))
    return tuple(sorted(name.removeprefix(PREFIX) for name in names if name.startswith(PREFIX)))


def profiles_of(family: str) -> tuple[Profile, ...]:
    """The manners a server of this family may have; the first ones are the provider's own."""
    table = _table_of(PREFIX + family)
    listed: tuple[Profile, ...] = getattr(table, "PROFILES", ())
    return listed or (Profile(name=FIRST_PARTY, about="the provider itself"),)


def rules_of(family: str, profile: str = "") -> tuple[Rule, ...]:
    """What a server of this family with these manners refuses; a family without a table refuses nothing.

    How long a prompt is comes last: nobody counts the tokens of a request that makes no sense.
    A family that has no such manners shows its own, as it does when none are named: one name serves all
    families of a simulator.
    Raises `MisuseError` for manners that no family has.
    """
    table, limits = _table_of(PREFIX + family), _table_of(LIMITS + family)
    if table is None:
        return ()
    manners = {each.name: each for each in profiles_of(family)}
    if profile and profile not in manners and profile not in profile_names():
        raise MisuseError(f"there is no profile {profile!r}; there are {', '.join(profile_names())}")
    chosen = manners.get(profile, profiles_of(family)[0])
    rules: tuple[Rule, ...] = table.RULES
    length: tuple[Rule, ...] = limits.RULES if limits is not None else ()
    length = getattr(limits, "BY_PROFILE", {}).get(chosen.name, length)
    return (*(rule for rule in rules if chosen.has(rule.id)), *length)


def profile_names() -> tuple[str, ...]:
    return tuple(dict.fromkeys(each.name for family in families() for each in profiles_of(family)))


@cache
def _table_of(module: str) -> ModuleType | None:
    name = f"{__package__}.{module}"
    return import_module(name) if find_spec(name) else None


def table(rules: Sequence[Rule]) -> str:
    """The rules as Markdown."""
    lines = ["| rule | models | status | message | evidence |", "|---|---|---|---|---|"]
    for rule in rules:
        words = blanks_shown(rule).replace("|", "\\|")
        lines.append(f"| `{rule.id}` | {rule.models} | {rule.status} | {words} | {rule.evidence} |")
    return "\n".join(lines)


def blanks_shown(rule: Rule) -> str:
    """A rule's wording on one line, each blank by its name."""
    return " ".join(rule.wording.format_map(_Blanks()).split())


class _Blanks(dict[str, str]):
    """Fills a wording with the names of its own blanks."""

    def __missing__(self, key: str) -> str:
        return f"{{{key}}}"
