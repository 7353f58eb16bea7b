"""Take settings from a log that may come from elsewhere, without giving it more access than the caller gave.

Rules that deny or ask hold as they are.  Rules that allow stay in the log and do not count until the caller
names the policy again.  Extras are fields of a request; those with an address or a credential are left out.
"""

import re
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from ..values.json_text import parse_json
from ..values.policy import Policy
from ..values.request import Extra

_ADDRESS = re.compile(r"(^|_)(url|uri|host|hostname|endpoint|address|webhook|server)s?$")
_CREDENTIAL = re.compile(
    r"(^|_)(authori[sz]ation|token|secret|password|credential|cookie|header)s?$|api_?key|^token_"
)
_NOT_CREDENTIALS = re.compile(r"(^|_)tokens$|^token_count$")
"""Counts of tokens."""
_CAPITAL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def take_logged_policy(logged: Policy) -> Policy:
    """The policy of a log, in which only the rules that deny or ask count."""
    return replace(logged, allow_rules_hold=False)


def take_logged_extras(logged: Sequence[Extra]) -> tuple[tuple[Extra, ...], tuple[str, ...]]:
    """The extras that are taken, and one sentence about each that is not."""
    kept: list[Extra] = []
    left_out: list[str] = []
    for extra in logged:
        fault = _find_fault(extra)
        if fault:
            left_out.append(f"the log's extra {extra.name!r} {fault} and is not sent")
        else:
            kept.append(extra)
    return tuple(kept), tuple(left_out)


def _find_fault(extra: Extra) -> str:
    try:
        value = parse_json(extra.json)
    except ValueError:
        return "holds no JSON"
    for name, leaf in _leaves(extra.name, value):
        words = _CAPITAL.sub("_", name).replace("-", "_").lower()
        if _CREDENTIAL.search(words) and not _NOT_CREDENTIALS.search(words):
            return f"holds a credential ({name})"
        if _ADDRESS.search(words) or (isinstance(leaf, str) and "://" in leaf):
            return f"holds an address ({name})"
    return ""


def _leaves(name: str, value: object) -> Iterator[tuple[str, object]]:
    """Each member and each value, under the name nearest to it."""
    waiting = [(name, value)]
    while waiting:
        name, value = waiting.pop()
        yield name, value
        if isinstance(value, dict):
            waiting.extend((str(inner), each) for inner, each in value.items())
        elif isinstance(value, list):
            waiting.extend((name, each) for each in value)
