"""Whether a request, read and written again, still means the same; and if not, why that is right.

The codec says what its provider does not tell apart (`meaning`); every other difference is listed, with
its place.  Some differences are wanted: each has a rule that does to the recorded request what we do on
purpose.  The fewest rules that bring the two closest together are the explanation, of what they change and
of nothing else: whatever still differs after them has no reason, however many reasons stand beside it.
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
"""Members whose inside is the user's own, where null is a value like any other."""
_MESSAGE_FIELDS = ("messages", "content")
"""Members in which somebody speaks."""
_BODY_ERRORS = (KeyError, TypeError, AttributeError, ValueError, IndexError)
"""What a rule may stumble over in a body it does not fit; then it explains nothing."""


def request_differences(codec: Codec, request: HttpRequest) -> list[str]:
    """Where `encode(read(request))` does not mean what `request` means; none is best."""
    return [
        found.description
        for found in find_request_differences(codec, request, codec.encode(codec.decode_request(request)))
    ]


def find_request_differences(codec: Codec, theirs: HttpRequest, ours: HttpRequest) -> list[WireDifference]:
    """Where ours does not mean what theirs means, each with the reason if there is one."""
    if codec.family not in CANONICAL_FORMS:
        raise TypeError(f"wire family {codec.family!r} has no canonical form of requests")
    if not list(_list_differences(codec, theirs, ours)):
        return []
    # What a codec says of itself is more exact than what is said of all, so it is tried first.
    own = DELIBERATE_CHANGES.get(codec.family, ())
    rules = [*((_change_recorded(change), why) for change, why in own), *_DIFFERENCE_RULES]
    bodies = json.loads(theirs.body), json.loads(ours.body)
    rules = [(rule, why) for rule, why in rules if _has_effect(rule, *bodies)]
    tries = (_Explanation(codec, theirs, ours, chosen) for chosen in _rule_subsets(rules))
    best = min(tries, key=lambda tried: len(tried.left))
    return [*best.explained, *(WireDifference(description=what) for what in best.left)]


DifferenceRule = Callable[[Any, Any], tuple[Any, Any]]
"""Does to both bodies what makes a wanted difference vanish."""


class _Explanation:
    """What these rules explain, and what they leave."""

    def __init__(
        self,
        codec: Codec,
        theirs: HttpRequest,
        ours: HttpRequest,
        chosen: Sequence[tuple[DifferenceRule, str]],
    ) -> None:
        self.explained: list[WireDifference] = []
        for rule, why in chosen:
            body, written = json.loads(theirs.body), json.loads(ours.body)
            try:
                ruled = rule(body, written)
            except _BODY_ERRORS:
                continue
            reason = f"{why}: {describe_unpaired(body)}" if rule is drop_unpaired else why
            then = _with_body(theirs, ruled[0]), _with_body(ours, ruled[1])
            found = [*_list_differences(codec, theirs, then[0]), *_list_differences(codec, then[1], ours)]
            self.explained += [WireDifference(description=what, reason=reason) for what in found]
            theirs, ours = then
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
        return json.loads(request.body)  # of a form nobody has a meaning for: then every letter counts


def _drop_nulls(value: Any) -> Any:
    """JSON without members that are null: they say nothing, but for what is the user's own."""
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
    """The fewest first, so that no reason is given that is not needed."""
    for size in range(len(rules) + 1):
        yield from combinations(rules, size)


def _change_recorded(change: BodyChange) -> DifferenceRule:
    return lambda theirs, ours: (change(theirs), ours)


def without_blank_text(value: Any) -> Any:
    """JSON without text that says nothing, and without what then holds nothing."""
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
    said = {name for name, inner in value.items() if inner is not None and inner != []}
    plain = not said - {"type", "text", "role", "content", "cache_control"}
    return plain and isinstance(text, str) and not text.strip()


def _is_emptied(value: dict[str, Any]) -> bool:
    return not set(value) - {"role", "content", "parts"} and [] in (value.get("content"), value.get("parts"))


def with_room_to_answer(value: Any) -> Any:
    """JSON that asks for no fewer tokens than can be asked for, where they have this name."""
    asked = value.get("max_output_tokens") if isinstance(value, dict) else None
    return {**value, "max_output_tokens": 16} if isinstance(asked, int) and asked < 16 else value


def with_results_first(value: Any) -> Any:
    """JSON in which whoever gives results gives them before anything is said."""
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
    """Ours without the words a conversation begins with that began with its model."""
    listed = next((name for name in ("contents", "messages") if isinstance(ours.get(name), list)), "")
    turns = ours.get(listed) or [None]
    if theirs.get(listed) and turns[0] != theirs[listed][0] and HIDDEN_BEGINNING_TEXT in json.dumps(turns[0]):
        return theirs, {**ours, listed: turns[1:]}
    return theirs, ours


_DIFFERENCE_RULES: tuple[tuple[DifferenceRule, str], ...] = (
    (_change_recorded(without_blank_text), "blank text is never sent: providers refuse it"),
    (_change_recorded(with_room_to_answer), "at least 16 tokens are asked for: fewer are refused"),
    (_change_recorded(with_results_first), "results come before words: some providers refuse anything else"),
    (renumber_calls, "every call has an id of its own, in letters that every server takes"),
    (drop_unpaired, "every call has one result"),
    (drop_added_opening, "a conversation begins with its user: providers refuse anything else"),
)
"""What we do to requests on purpose, each as what makes the difference vanish, and the reason for it."""
