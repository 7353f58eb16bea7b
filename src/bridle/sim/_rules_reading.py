"""What the rules of every family begin with: reading a raw body without trusting it, and writing a rule down.

Nothing here may fail on a body of the wrong shape: a rule that cannot find its field
finds nothing, and the rule about that field's shape speaks instead.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeGuard

from msgspec.structs import replace

from ..values.model import Abilities
from .rules import Asked, Found, Rule

Block = Mapping[str, object]
Finder = Callable[[Asked], Found | None]
Also = tuple[tuple[Asked, str], ...]
"""Further examples, each with what it is told; nothing when it passes."""


def field(request: Asked, name: str) -> object:
    return request.body.get(name)


def mapping(value: object) -> Block:
    return value if isinstance(value, dict) else {}


def listed(value: object) -> Sequence[object]:
    return value if isinstance(value, list | tuple) else ()


def number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def to(abilities: Abilities | None, request: Asked) -> Asked:
    """The request to another model; None is one nobody knows."""
    return replace(request, abilities=abilities)


def small(path: str, body: Block, abilities: Abilities, headers: Mapping[str, str] | None = None) -> Asked:
    """A small legal request for examples; a field that is None is not in it."""
    return Asked(
        path=path,
        headers=headers or {},
        body={name: value for name, value in body.items() if value is not None},
        abilities=abilities,
    )


def written(
    id: str,  # noqa: A002  the word of `Rule`
    find: Finder,
    wording: str,
    *,
    code: str,
    evidence: str,
    passes: Asked,
    offends: Asked,
    says: str = "",
    models: str = "all",
    also: Also = (),
    param: str = "",
) -> Rule:
    """A rule of the usual kind; `says` may be left out where the wording has no blanks."""
    return Rule(
        id=id,
        find=find,
        wording=wording,
        evidence=evidence,
        passes=passes,
        offends=offends,
        says=says or wording,
        models=models,
        type=code,
        also=also,
        param=param,
    )
