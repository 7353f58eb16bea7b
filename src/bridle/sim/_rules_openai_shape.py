"""Reading a raw body of these two wires without trusting it, and the checks they have in common.

Both wires come from one validator.  It names a place (`tools[0].name`), a demand and what it got, always in
the same few sentences; each sentence is a function here that makes a rule of a path and a limit.  A path is
written like the places, with `[]` for every member of a list: `input[].content[].type`.

Nothing here may fail on a body of the wrong shape: a rule that cannot find its field finds nothing, and the
rule about that field's shape speaks instead.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeGuard

from .rules import Asked, Found, Rule

INVALID = "invalid_request_error"
"""What the provider calls an error that has no code of its own."""
Block = Mapping[str, object]
Finder = Callable[[Asked], Found | None]
Also = tuple[tuple[Asked, str], ...]
Which = Callable[[Block], bool]


class Spot(NamedTuple):
    at: str
    value: object
    """None when it is not there."""
    holder: Block
    """What it stands in."""


def field(request: Asked, name: str) -> object:
    return request.body.get(name)


def mapping(value: object) -> Block:
    return value if isinstance(value, dict) else {}


def listed(value: object) -> Sequence[object]:
    return value if isinstance(value, list | tuple) else ()


def number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def spots(body: Block, path: str) -> Iterator[Spot]:
    """Every place in a body that a path means, whether or not something stands there."""
    found = [Spot("", body, {})]
    for step in path.split("."):
        name = step.removesuffix("[]")
        found = [
            Spot(f"{spot.at}.{name}".lstrip("."), spot.value.get(name), spot.value)
            for spot in found
            if isinstance(spot.value, dict)
        ]
        if step != name:
            found = [
                Spot(f"{spot.at}[{index}]", value, spot.holder)
                for spot in found
                for index, value in enumerate(listed(spot.value))
            ]
    yield from found


def listing(values: Sequence[object], last: str = "and") -> str:
    quoted = [f"'{value}'" for value in values]
    if len(quoted) < 3:
        return f" {last} ".join(quoted)
    return f"{', '.join(quoted[:-1])}, {last} {quoted[-1]}"


KINDS: tuple[tuple[type, str], ...] = (
    (bool, "a boolean"),
    (int, "an integer"),
    (float, "a decimal number"),
    (str, "a string"),
    (dict, "an object"),
)


def kind(value: object) -> str:
    """A value's kind in the validator's words."""
    if value is None:
        return "null"
    return next((word for type_, word in KINDS if isinstance(value, type_)), "an array")


def rule(
    id: str,  # noqa: A002  the word of `Rule`
    find: Finder,
    wording: str,
    *,
    evidence: str,
    passes: Asked,
    offends: Asked,
    says: str = "",
    models: str = "all",
    code: str = INVALID,
    also: Also = (),
) -> Rule:
    """A rule of this provider's usual kind; `says` may be left out where the wording has no blanks."""
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
    )


class Example(NamedTuple):
    """What shows a rule: a request that passes, one that offends and what it is told, and others."""

    passes: Asked
    offends: Asked
    says: str
    also: Also = ()


def _any(holder: Block) -> bool:
    return True


def _made(
    id: str,  # noqa: A002  the word of `Rule`
    find: Finder,
    wording: str,
    code: str,
    example: Example,
    evidence: str,
) -> Rule:
    return rule(
        id,
        find,
        wording,
        evidence=evidence,
        passes=example.passes,
        offends=example.offends,
        says=example.says,
        code=code,
        also=example.also,
    )


def required(id: str, path: str, example: Example, *, which: Which = _any, evidence: str = "S") -> Rule:  # noqa: A002
    def find(request: Asked) -> Found | None:
        for spot in spots(request.body, path):
            if spot.value is None and which(spot.holder):
                return {"at": spot.at}
        return None

    return _made(
        id, find, "Missing required parameter: '{at}'.", "missing_required_parameter", example, evidence
    )


def typed(
    id: str,  # noqa: A002
    path: str,
    kinds: tuple[str, ...],
    expected: str,
    example: Example,
    *,
    which: Which = _any,
    evidence: str = "S",
) -> Rule:
    """A value that is there has one of these kinds; `null` has to be allowed by name."""

    def find(request: Asked) -> Found | None:
        for spot in spots(request.body, path):
            name = path.rpartition(".")[2]
            there = name.endswith("[]") or name in spot.holder
            if there and kind(spot.value) not in kinds and which(spot.holder):
                return {"at": spot.at, "got": kind(spot.value)}
        return None

    return _made(
        id,
        find,
        f"Invalid type for '{{at}}': expected {expected}, but got {{got}} instead.",
        "invalid_type",
        example,
        evidence,
    )


def one_of(
    id: str,  # noqa: A002
    path: str,
    values: Sequence[str],
    example: Example,
    *,
    which: Which = _any,
    evidence: str = "S",
) -> Rule:
    def find(request: Asked) -> Found | None:
        for spot in spots(request.body, path):
            if isinstance(spot.value, str) and spot.value not in values and which(spot.holder):
                return {"value": spot.value}
        return None

    wording = f"Invalid value: '{{value}}'. Supported values are: {listing(values)}."
    return _made(id, find, wording, "invalid_value", example, evidence)


def shorter(id: str, path: str, most: int, example: Example, *, evidence: str = "S") -> Rule:  # noqa: A002
    def find(request: Asked) -> Found | None:
        for spot in spots(request.body, path):
            if isinstance(spot.value, str) and len(spot.value) > most:
                return {"at": spot.at, "length": len(spot.value)}
        return None

    wording = (
        f"Invalid '{{at}}': string too long. Expected a string with maximum length {most},"
        " but got a string with length {length} instead."
    )
    return _made(id, find, wording, "string_above_max_length", example, evidence)


def fewer(id: str, path: str, most: int, example: Example, *, evidence: str = "S") -> Rule:  # noqa: A002
    def find(request: Asked) -> Found | None:
        for spot in spots(request.body, path):
            if len(listed(spot.value)) > most:
                return {"at": spot.at, "length": len(listed(spot.value))}
        return None

    wording = (
        f"Invalid '{{at}}': array too long. Expected an array with maximum length {most},"
        " but got an array with length {length} instead."
    )
    return _made(id, find, wording, "array_above_max_length", example, evidence)


def some(id: str, path: str, example: Example, *, evidence: str = "S") -> Rule:  # noqa: A002
    def find(request: Asked) -> Found | None:
        for spot in spots(request.body, path):
            if spot.value == []:
                return {"at": spot.at}
        return None

    wording = (
        "Invalid '{at}': empty array. Expected an array with minimum length 1, but got an empty array"
        " instead."
    )
    return _made(id, find, wording, "empty_array", example, evidence)


def at_most(id: str, path: str, most: float, example: Example, *, evidence: str = "S") -> Rule:  # noqa: A002
    noun = "integer" if isinstance(most, int) else "decimal"

    def find(request: Asked) -> Found | None:
        for spot in spots(request.body, path):
            if number(spot.value) and spot.value > most:
                return {"at": spot.at, "value": spot.value}
        return None

    wording = (
        f"Invalid '{{at}}': {noun} above maximum value. Expected a value <= {most:g},"
        " but got {value} instead."
    )
    return _made(id, find, wording, f"{noun}_above_max_value", example, evidence)


def at_least(id: str, path: str, least: float, example: Example, *, evidence: str = "S") -> Rule:  # noqa: A002
    noun = "integer" if isinstance(least, int) else "decimal"

    def find(request: Asked) -> Found | None:
        for spot in spots(request.body, path):
            if number(spot.value) and spot.value < least:
                return {"at": spot.at, "value": spot.value}
        return None

    wording = (
        f"Invalid '{{at}}': {noun} below minimum value. Expected a value >= {least:g},"
        " but got {value} instead."
    )
    return _made(id, find, wording, f"{noun}_below_min_value", example, evidence)


def matching(id: str, path: str, pattern: str, example: Example, *, evidence: str = "S") -> Rule:  # noqa: A002
    regex = re.compile(pattern)

    def find(request: Asked) -> Found | None:
        for spot in spots(request.body, path):
            if isinstance(spot.value, str) and not regex.search(spot.value):
                return {"at": spot.at, "pattern": pattern}
        return None

    wording = (
        "Invalid '{at}': string does not match pattern. Expected a string that matches the pattern"
        " '{pattern}'."
    )
    return _made(id, find, wording, "invalid_value", example, evidence)


def known(
    id: str,  # noqa: A002
    path: str,
    names: Sequence[str],
    example: Example,
    *,
    which: Which = _any,
    evidence: str = "S",
) -> Rule:
    """Nothing but these names in the objects at a path; an empty path is the body itself."""

    def find(request: Asked) -> Found | None:
        for spot in spots(request.body, path) if path else (Spot("", request.body, {}),):
            for name in mapping(spot.value):
                if name not in names and which(mapping(spot.value)):
                    return {"at": f"{spot.at}.{name}".lstrip(".")}
        return None

    return _made(id, find, "Unknown parameter: '{at}'.", "unknown_parameter", example, evidence)
