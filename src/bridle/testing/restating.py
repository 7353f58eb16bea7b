"""Whether a request, read and written again, still means the same; and if not, why that is right.

The codec says what its provider does not tell apart (`meaning`); every other difference is listed, with
its place.  Some differences are wanted: each has a rule that does to the recorded request what we do on
purpose.  The fewest rules that bring the two closest together are the explanation, of what they change and
of nothing else: whatever still differs after them has no reason, however many reasons stand beside it.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations
from typing import Any, Protocol, runtime_checkable

from msgspec.structs import replace

from ..core.differing import differences
from ..ports.codec import Codec, HttpRequest
from ..providers._kept import UNSEEN
from .agreement import Difference
from .pairing import renumbered, set_aside, told

Change = Callable[[Any], Any]
_FREE = frozenset(
    {"arguments", "args", "input", "json", "labels", "metadata", "parameters", "parametersJsonSchema"}
    | {"input_schema", "properties", "response", "responseSchema", "responseJsonSchema", "schema"}
)
"""Members whose inside is the user's own, where null is a value like any other."""
_HOLDS = ("messages", "content")
"""Members in which somebody speaks."""
_ODD = (KeyError, TypeError, AttributeError, ValueError, IndexError)
"""What a rule may stumble over in a body it does not fit; then it explains nothing."""


@runtime_checkable
class Meaningful(Protocol):
    """What a codec must offer to have its requests compared."""

    def meaning(self, request: HttpRequest) -> object:
        """The request's body in one form for all bodies the provider does not tell apart."""
        ...


@runtime_checkable
class Deliberate(Protocol):
    """What a codec may offer to explain what it does to requests."""

    @property
    def changes(self) -> Sequence[tuple[Change, str]]:
        """What it changes on purpose, each as a change of a request's JSON, and the reason for it."""
        ...


def request_differences(codec: Codec, request: HttpRequest) -> list[str]:
    """Where `encode(read(request))` does not mean what `request` means; none is best."""
    return [found.what for found in restated(codec, request, codec.encode(codec.read(request)))]


def restated(codec: Codec, theirs: HttpRequest, ours: HttpRequest) -> list[Difference]:
    """Where ours does not mean what theirs means, each with the reason if there is one."""
    if not isinstance(codec, Meaningful):
        raise TypeError(f"the codec of family {codec.family!r} does not say what its requests mean")
    if not list(_between(codec, theirs, ours)):
        return []
    # What a codec says of itself is more exact than what is said of all, so it is tried first.
    rules = [*((_of_theirs(change), why) for change, why in _changes(codec)), *_RULES]
    bodies = json.loads(theirs.body), json.loads(ours.body)
    rules = [(rule, why) for rule, why in rules if _does_something(rule, *bodies)]
    tries = (_Explained(codec, theirs, ours, chosen) for chosen in _subsets(rules))
    best = min(tries, key=lambda tried: len(tried.left))
    return [*best.explained, *(Difference(what=what) for what in best.left)]


Rule = Callable[[Any, Any], tuple[Any, Any]]
"""Does to both bodies what makes a wanted difference vanish."""


class _Explained:
    """What these rules explain, and what they leave."""

    def __init__(
        self,
        codec: Codec,
        theirs: HttpRequest,
        ours: HttpRequest,
        chosen: Sequence[tuple[Rule, str]],
    ) -> None:
        self.explained: list[Difference] = []
        for rule, why in chosen:
            body, written = json.loads(theirs.body), json.loads(ours.body)
            try:
                ruled = rule(body, written)
            except _ODD:
                continue
            reason = f"{why}: {told(body)}" if rule is set_aside else why
            then = _with(theirs, ruled[0]), _with(ours, ruled[1])
            found = [*_between(codec, theirs, then[0]), *_between(codec, then[1], ours)]
            self.explained += [Difference(what=what, reason=reason) for what in found]
            theirs, ours = then
        self.left = list(_between(codec, theirs, ours))


def _does_something(rule: Rule, theirs: Any, ours: Any) -> bool:
    try:
        return rule(theirs, ours) != (theirs, ours)
    except _ODD:
        return False


def _between(codec: Codec, one: HttpRequest, other: HttpRequest) -> Iterator[str]:
    assert isinstance(codec, Meaningful)
    return differences(_said(_meant(codec, one)), _said(_meant(codec, other)))


def _meant(codec: Meaningful, request: HttpRequest) -> Any:
    try:
        return codec.meaning(request)
    except _ODD:
        return json.loads(request.body)  # of a form nobody has a meaning for: then every letter counts


def _said(value: Any) -> Any:
    """JSON without members that are null: they say nothing, but for what is the user's own."""
    if isinstance(value, list):
        return [_said(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {
        name: inner if name in _FREE else _said(inner)
        for name, inner in value.items()
        if inner is not None or name in _FREE
    }


def _with(request: HttpRequest, body: Any) -> HttpRequest:
    return replace(request, body=json.dumps(body).encode())


def _subsets(rules: Sequence[tuple[Rule, str]]) -> Iterator[Sequence[tuple[Rule, str]]]:
    """The fewest first, so that no reason is given that is not needed."""
    for size in range(len(rules) + 1):
        yield from combinations(rules, size)


def _changes(codec: Codec) -> Sequence[tuple[Change, str]]:
    return codec.changes if isinstance(codec, Deliberate) else ()


def _of_theirs(change: Change) -> Rule:
    return lambda theirs, ours: (change(theirs), ours)


def without_blank_text(value: Any) -> Any:
    """JSON without text that says nothing, and without what then holds nothing."""
    if isinstance(value, list):
        kept = [without_blank_text(each) for each in value if not _is_blank(each)]
        return [each for each in kept if not (isinstance(each, dict) and _emptied(each))]
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


def _emptied(value: dict[str, Any]) -> bool:
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
        return {name: with_results_first(each) if name in _HOLDS else each for name, each in value.items()}
    return value


def _is_result(value: Any) -> bool:
    return isinstance(value, dict) and (value.get("type") == "tool_result" or "toolResult" in value)


def begun(theirs: Any, ours: Any) -> tuple[Any, Any]:
    """Ours without the words a conversation begins with that began with its model."""
    listed = next((name for name in ("contents", "messages") if isinstance(ours.get(name), list)), "")
    turns = ours.get(listed) or [None]
    if theirs.get(listed) and turns[0] != theirs[listed][0] and UNSEEN in json.dumps(turns[0]):
        return theirs, {**ours, listed: turns[1:]}
    return theirs, ours


_RULES: tuple[tuple[Rule, str], ...] = (
    (_of_theirs(without_blank_text), "blank text is never sent: providers refuse it"),
    (_of_theirs(with_room_to_answer), "at least 16 tokens are asked for: fewer are refused"),
    (_of_theirs(with_results_first), "results come before words: some providers refuse anything else"),
    (renumbered, "every call has an id of its own, in letters that every server takes"),
    (set_aside, "every call has one result"),
    (begun, "a conversation begins with its user: providers refuse anything else"),
)
"""What we do to requests on purpose, each as what makes the difference vanish, and the reason for it."""
