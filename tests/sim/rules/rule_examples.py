"""Reads the example requests of every rule: one that the provider accepts and one that it refuses.

`examples/<family>.json` holds them by rule id. A request is written as the changes to a small legal one:
fields of the body, and these keys beside them.

    $without        fields of the legal request that are left out
    $model          name of the model's facts in `models`, null for an unknown model,
                    or an object: `like` names the facts to start from, the other keys replace some of them
    $headers, $path, $size, $malformed, $prompt_tokens
                    attributes of `RawRequest`

Inside a body, `{"$repeat": [value, count]}` is a string or list repeated, `{"$number": [count, template]}` is
a list or object made from a template in which `#` is replaced by 0, 1, …, and `{"$signature": …}` is signed
by the simulator.
"""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from bridle.sim.families import find_family
from bridle.sim.rules.engine import ProviderRule, RawRequest
from bridle.sim.signatures import sign_note
from bridle.values.model import Abilities

FOLDER = Path(__file__).with_name("examples")
ATTRIBUTES = ("headers", "path", "size", "malformed", "prompt_tokens")
ENVELOPE = frozenset({"$without", "$model", *(f"${name}" for name in ATTRIBUTES)})


class RuleExamples(NamedTuple):
    accepted: RawRequest
    refused: RawRequest
    message: str
    """The whole message that the refused request gets."""
    more: tuple[tuple[RawRequest, str], ...]
    """Further requests, most of them at a limit, each with its message; empty for an accepted one."""

    @property
    def requests(self) -> tuple[RawRequest, ...]:
        return (self.accepted, self.refused, *(request for request, _ in self.more))


@cache
def load_examples(family: str) -> Mapping[str, RuleExamples]:
    """Examples of a family's rules by rule id."""
    table = json.loads((FOLDER / f"{family}.json").read_text())
    return {id_: _read_examples(table, row) for id_, row in table["rules"].items()}


def find_examples(family: str, rule: ProviderRule) -> RuleExamples:
    return load_examples(family)[rule.id]


def list_all_rules(family: str) -> tuple[ProviderRule, ...]:
    """Every rule of a family: of all its server profiles, about prompt length, and about signatures."""
    found = find_family(family)
    by_profile = (rule for rules in found.window_rules_by_profile.values() for rule in rules)
    rules = (*found.rules, *found.window_rules, *by_profile, *found.signature_rules)
    return tuple({rule.id: rule for rule in rules}.values())


def _read_examples(table: Any, row: Any) -> RuleExamples:
    more = tuple((_read_request(table, each["request"]), each["message"]) for each in row.get("more", ()))
    accepted, refused = (_read_request(table, row[name]) for name in ("accepted", "refused"))
    return RuleExamples(accepted, refused, row["message"], more)


def _read_request(table: Any, changes: Any) -> RawRequest:
    legal = table["request"]
    body = {name: value for name, value in legal["body"].items() if name not in changes.get("$without", ())}
    body |= {name: value for name, value in changes.items() if name not in ENVELOPE}
    attributes = {name: changes[f"${name}"] for name in ATTRIBUTES if f"${name}" in changes}
    return RawRequest(
        **{"path": legal["path"], "headers": legal["headers"], **attributes},
        body=_expand(body),
        abilities=_read_model(table["models"], changes.get("$model", legal["model"])),
    )


def _read_model(models: Any, model: Any) -> Abilities | None:
    match model:
        case None:
            return None
        case {"like": name, **replaced}:
            return msgspec.convert({**models[name], **replaced}, Abilities)
    return msgspec.convert(models[model], Abilities)


def _expand(value: Any) -> Any:
    match value:
        case {"$repeat": [part, count]}:
            return _expand(part) * count
        case {"$number": [count, list() as template]}:
            return [item for number in range(count) for item in _expand(_fill(template, number))]
        case {"$number": [count, template]}:
            return {key: each for n in range(count) for key, each in _expand(_fill(template, n)).items()}
        case {"$signature": note}:
            return sign_note(note["kind"], note["family"], note["model"], **note["bound"])
        case dict():
            return {name: _expand(inner) for name, inner in value.items()}
        case list():
            return [_expand(inner) for inner in value]
    return value


def _fill(template: Any, number: int) -> Any:
    return json.loads(json.dumps(template).replace("#", str(number)))
