"""Rules about field definitions: lengths, characters, ranges and allowed values.

Each rule reports every fault of its kind at once, as the service does.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from bridle.sim.rules.engine import ProviderRule, RawRequest, RuleFinding
from bridle.sim.rules.field_rules import find_places
from bridle.sim.rules.raw_request import as_list, as_mapping

from .request import rule
from .rules_fields import FIELD_CHECKS

# not from outside: the limit of the vendor that is simulated
NAME_LENGTH_MAX = 64
STOPS_MAX = 2_500
IMAGE_FORMATS = ("png", "jpeg", "gif", "webp")
DOCUMENT_FORMATS = ("pdf", "csv", "doc", "docx", "xls", "xlsx", "html", "txt", "md")
CONSTRAINT_MESSAGE = "{count} detected: {faults}"
_SHORT = "have length greater than or equal to 1"

FieldDemand = Callable[[object], Iterator[tuple[object, str]]]
"""Yields the demands that a value breaks, each with the value as the message shows it (None: not shown)."""


class Constraint(NamedTuple):
    """Demands on fields of the objects at a path, reported together."""

    id: str
    path: str
    demands: Mapping[str, FieldDemand]
    """By path below the object."""
    evidence: str


def _demand_name(pattern: str, *, is_shown: bool = False) -> FieldDemand:
    def find(value: object) -> Iterator[tuple[object, str]]:
        word = value if isinstance(value, str) else ""
        shown = word if is_shown else None
        if len(word) > NAME_LENGTH_MAX:
            yield shown, f"have length less than or equal to {NAME_LENGTH_MAX}"
        if not re.fullmatch(pattern, word):
            yield shown, f"satisfy regular expression pattern: {pattern}"
        if not word:
            yield shown, _SHORT

    return find


def _demand_one_of(*values: str, is_required: bool = False) -> FieldDemand:
    def find(value: object) -> Iterator[tuple[object, str]]:
        if value not in values and (is_required or value is not None):
            yield value, f"satisfy enum value set: [{', '.join(values)}]"

    return find


def _demand_range(least: int, most: float = float("inf"), *, is_fraction: bool = False) -> FieldDemand:
    def find(value: object) -> Iterator[tuple[object, str]]:
        if isinstance(value, int | float) and (is_fraction or isinstance(value, int)):
            if value > most:
                yield value, f"have value less than or equal to {most}"
            elif value < least:
                yield value, f"have value greater than or equal to {least}"

    return find


def _demand_text(*, is_shown: bool = False) -> FieldDemand:
    return lambda value: iter([("" if is_shown else None, _SHORT)] if value == "" else [])


def _demand_members(value: object) -> Iterator[tuple[object, str]]:
    if not as_list(value):
        yield None, _SHORT


def _demand_few_stops(value: object) -> Iterator[tuple[object, str]]:
    if len(as_list(value)) > STOPS_MAX:
        yield None, f"have length less than or equal to {STOPS_MAX}"


_name, _id = r"[a-zA-Z0-9_-]+", r"[a-zA-Z0-9_.:-]+"
_fraction = _demand_range(0, 1, is_fraction=True)
_BLOCKS, _SPECS = "messages[].content[]", "toolConfig.tools[]"
CONSTRAINTS = (
    Constraint(
        "role",
        "messages[]",
        {"role": _demand_one_of("user", "assistant", "system", is_required=True)},
        "F",
    ),
    Constraint(
        "call-names",
        _BLOCKS,
        {"toolUse.name": _demand_name(_name), "toolUse.toolUseId": _demand_name(_id)},
        "S",
    ),
    Constraint("result-id", _BLOCKS, {"toolResult.toolUseId": _demand_name(_id)}, "S"),
    Constraint("result-status", _BLOCKS, {"toolResult.status": _demand_one_of("success", "error")}, "F"),
    Constraint("tool-name", _SPECS, {"toolSpec.name": _demand_name(_name, is_shown=True)}, "S"),
    Constraint("tool-description", _SPECS, {"toolSpec.description": _demand_text(is_shown=True)}, "S"),
    Constraint("tools-some", "", {"toolConfig.tools": _demand_members}, "S"),
    Constraint("system-empty", "system[]", {"text": _demand_text()}, "F"),
    Constraint(
        "media-format",
        _BLOCKS,
        {
            "image.format": _demand_one_of(*IMAGE_FORMATS),
            "document.format": _demand_one_of(*DOCUMENT_FORMATS),
        },
        "F",
    ),
    Constraint(
        "numbers",
        "inferenceConfig",
        {
            "stopSequences": _demand_few_stops,
            "maxTokens": _demand_range(1),
            "temperature": _fraction,
            "topP": _fraction,
        },
        "F",
    ),
)


def _list_faults(request: RawRequest, constraint: Constraint) -> Iterator[str]:
    style = FIELD_CHECKS.style
    for holder in find_places(style, request.body, constraint.path):
        for path, find in constraint.demands.items():
            for place in find_places(style, as_mapping(holder.value), path):
                at = f"{holder.path}.{place.path}".lstrip(".")
                for shown, must in find(place.value):
                    value = "" if shown is None else f"'{shown}' "
                    yield f"Value {value}at '{at}' failed to satisfy constraint: Member must {must}"


def _make_constraint_rule(constraint: Constraint) -> ProviderRule:
    def find(request: RawRequest) -> RuleFinding | None:
        faults = [*_list_faults(request, constraint)]
        count = "1 validation error" if len(faults) == 1 else f"{len(faults)} validation errors"
        return {"count": count, "faults": "; ".join(faults)} if faults else None

    return rule(constraint.id, find, CONSTRAINT_MESSAGE, evidence=constraint.evidence)


CONSTRAINT_RULES = tuple(map(_make_constraint_rule, CONSTRAINTS))
