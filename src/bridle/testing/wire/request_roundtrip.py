"""Compares a recorded request with the same request decoded and encoded again.

The canonical form of a family removes what its provider does not distinguish; every other difference is
listed, with its place. Some differences are intended: each has a rule that makes the same change to the
recorded request. The smallest set of rules that brings the two requests closest together is applied. Differences
that it removes get the reasons of its rules; the others have no reason.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations
from typing import Any

from msgspec.structs import replace

from bridle.core.json_differences import list_differences
from bridle.ports.codec import Codec, HttpRequest
from bridle.providers.wire.encoded_history import HIDDEN_BEGINNING_TEXT

from .call_pairing import describe_unpaired, drop_unpaired, renumber_calls
from .canonical_requests import CANONICAL_FORMS, DELIBERATE_CHANGES, BodyChange
from .reply_agreement import WireDifference

_USER_FIELDS = frozenset(
    {"arguments", "args", "input", "json", "labels", "metadata", "parameters", "parametersJsonSchema"}
    | {"input_schema", "properties", "response", "responseSchema", "responseJsonSchema", "schema"}
)
"""Fields whose content belongs to the user, where null is a value like any other."""
_MESSAGE_FIELDS = ("messages", "content")
"""Fields that contain messages."""
_BODY_ERRORS = (KeyError, TypeError, AttributeError, ValueError, IndexError)
"""Errors that a rule may raise on a body it does not fit; then it explains nothing."""


def find_request_differences(codec: Codec, theirs: HttpRequest, ours: HttpRequest) -> list[WireDifference]:
    """List the places where ours does not mean the same as theirs, each with its reason if there is one."""
    if codec.family not in CANONICAL_FORMS:
        raise TypeError(f"wire family {codec.family!r} has no canonical form of requests")
    if not list(_list_differences(codec, theirs, ours)):
        return []
    # A family's own rules are more exact than the general ones, so they are tried first.
    own = DELIBERATE_CHANGES.get(codec.family, ())
    rules = [*((_change_recorded(change), reason) for change, reason in own), *_DIFFERENCE_RULES]
    bodies = json.loads(theirs.body), json.loads(ours.body)
    rules = [(rule, reason) for rule, reason in rules if _has_effect(rule, *bodies)]
    tries = (_Explanation(codec, theirs, ours, chosen) for chosen in _rule_subsets(rules))
    best = min(tries, key=lambda tried: len(tried.left))
    return [*best.explained, *(WireDifference(description=what) for what in best.left)]


DifferenceRule = Callable[[Any, Any], tuple[Any, Any]]
"""Changes both bodies so that an intended difference disappears."""


class _Explanation:
    """The differences that a set of rules explains, and those it leaves."""

    def __init__(
        self,
        codec: Codec,
        theirs: HttpRequest,
        ours: HttpRequest,
        rules: Sequence[tuple[DifferenceRule, str]],
    ) -> None:
        self.explained: list[WireDifference] = []
        for rule, reason in rules:
            body, our_body = json.loads(theirs.body), json.loads(ours.body)
            try:
                changed = rule(body, our_body)
            except _BODY_ERRORS:
                continue
            stated = f"{reason}: {describe_unpaired(body)}" if rule is drop_unpaired else reason
            changed_requests = _with_body(theirs, changed[0]), _with_body(ours, changed[1])
            found = [
                *_list_differences(codec, theirs, changed_requests[0]),
                *_list_differences(codec, changed_requests[1], ours),
            ]
            self.explained += [WireDifference(description=what, reason=stated) for what in found]
            theirs, ours = changed_requests
        self.left = list(_list_differences(codec, theirs, ours))


def _has_effect(rule: DifferenceRule, theirs: Any, ours: Any) -> bool:
    try:
        return rule(theirs, ours) != (theirs, ours)
    except _BODY_ERRORS:
        return False


def _list_differences(codec: Codec, one: HttpRequest, other: HttpRequest) -> Iterator[str]:
    return list_differences(
        _drop_nulls(_canonical_request(codec, one)), _drop_nulls(_canonical_request(codec, other))
    )


def _canonical_request(codec: Codec, request: HttpRequest) -> Any:
    try:
        return CANONICAL_FORMS[codec.family](request)
    except _BODY_ERRORS:
        return json.loads(request.body)  # without a canonical form, every character counts


def _drop_nulls(value: Any) -> Any:
    """Drop null members, which mean nothing except in the user's own data."""
    if isinstance(value, list):
        return [_drop_nulls(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {
        name: inner if name in _USER_FIELDS else _drop_nulls(inner)
        for name, inner in value.items()
        if inner is not None or name in _USER_FIELDS
    }


def _with_body(request: HttpRequest, body: Any) -> HttpRequest:
    return replace(request, body=json.dumps(body).encode())


def _rule_subsets(
    rules: Sequence[tuple[DifferenceRule, str]],
) -> Iterator[Sequence[tuple[DifferenceRule, str]]]:
    """Yield all subsets of the rules, the smallest first, so that no unneeded reason is given."""
    for size in range(len(rules) + 1):
        yield from combinations(rules, size)


def _change_recorded(change: BodyChange) -> DifferenceRule:
    return lambda theirs, ours: (change(theirs), ours)


def without_blank_text(value: Any) -> Any:
    """Remove blank text, and containers that become empty by it."""
    if isinstance(value, list):
        kept = [without_blank_text(each) for each in value if not _is_blank(each)]
        return [each for each in kept if not (isinstance(each, dict) and _is_emptied(each))]
    if isinstance(value, dict):
        return {name: without_blank_text(each) for name, each in value.items()}
    return value


def _is_blank(value: object) -> bool:
    if not isinstance(value, dict):
        return False
    text = value.get("text", value.get("content"))
    present = {name for name, inner in value.items() if inner is not None and inner != []}
    is_plain_text = not present - {"type", "text", "role", "content", "cache_control"}
    return is_plain_text and isinstance(text, str) and not text.strip()


def _is_emptied(value: dict[str, Any]) -> bool:
    return not set(value) - {"role", "content", "parts"} and [] in (value.get("content"), value.get("parts"))


def with_room_to_answer(value: Any) -> Any:
    """Raise `max_output_tokens` to the minimum that providers accept."""
    requested = value.get("max_output_tokens") if isinstance(value, dict) else None
    return {**value, "max_output_tokens": 16} if isinstance(requested, int) and requested < 16 else value


def with_results_first(value: Any) -> Any:
    """Move tool results before other content within a message."""
    if isinstance(value, list):
        return sorted(map(with_results_first, value), key=lambda each: not _is_result(each))
    if isinstance(value, dict):
        return {
            name: with_results_first(each) if name in _MESSAGE_FIELDS else each
            for name, each in value.items()
        }
    return value


def _is_result(value: Any) -> bool:
    return isinstance(value, dict) and (value.get("type") == "tool_result" or "toolResult" in value)


def drop_added_opening(theirs: Any, ours: Any) -> tuple[Any, Any]:
    """Drop the opening message that we add to a conversation that starts with the model."""
    field = next((name for name in ("contents", "messages") if isinstance(ours.get(name), list)), "")
    turns = ours.get(field) or [None]
    if theirs.get(field) and turns[0] != theirs[field][0] and HIDDEN_BEGINNING_TEXT in json.dumps(turns[0]):
        return theirs, {**ours, field: turns[1:]}
    return theirs, ours


_DIFFERENCE_RULES: tuple[tuple[DifferenceRule, str], ...] = (
    (_change_recorded(without_blank_text), "blank text is never sent: providers refuse it"),
    (_change_recorded(with_room_to_answer), "at least 16 tokens are asked for: fewer are refused"),
    (_change_recorded(with_results_first), "results come before words: some providers refuse anything else"),
    (renumber_calls, "every call has an id of its own, in letters that every server takes"),
    (drop_unpaired, "every call has one result"),
    (drop_added_opening, "a conversation begins with its user: providers refuse anything else"),
)
"""Intended changes to requests, each with a rule that makes the difference disappear and the reason."""
