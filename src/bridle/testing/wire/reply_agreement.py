"""Compares a decoded reply with what a reference decoder reads in the same bytes.

Text, reasoning, calls, every count and the class of the stop reason are compared separately. Values that the
reference decoder cannot determine are skipped, and its exceptions give the reason where values need not
agree. A difference is one line that shows both sides.
"""

import json
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from bridle.values.base import Value
from bridle.values.message import Reasoning, Reply, Stop

from .reference_decoder import ReferenceReply

EXCERPT_LENGTH = 60
_CUT_CALL = "the reply was cut before the arguments of its last call, so they are not known to be empty"


class WireDifference(Value, kw_only=True):
    description: str
    reason: str = ""
    """Reason why the difference is right; empty if there is none."""


def find_disagreements(reference: ReferenceReply, reply: Reply) -> Iterator[WireDifference]:
    """Yield the differences between the reference reply and the decoded reply."""
    reasoning = "".join(part.text for part in reply.parts if isinstance(part, Reasoning))
    for name, theirs, ours in (
        ("text", replace_lone_surrogates(reference.text), reply.text),
        ("reasoning", replace_lone_surrogates(reference.reasoning), reasoning),
        ("stop", reference.stop or reply.stop.value, reply.stop.value),
    ):
        if theirs != ours:
            yield _make_difference(reference, name, _show_divergence(theirs, ours))
    if reference.calls is not None:
        theirs_called = [
            (replace_lone_surrogates(name), canonical_arguments(arguments))
            for name, arguments in reference.calls
        ]
        ours_called = [(call.name, canonical_arguments(call.arguments)) for call in reply.calls]
        if theirs_called != ours_called:
            difference = _make_difference(
                reference, "calls", f"{_shorten(theirs_called)} became {_shorten(ours_called)}"
            )
            if reply.stop is Stop.LENGTH and _only_last_is_open(theirs_called, ours_called):
                difference = replace(difference, reason=difference.reason or _CUT_CALL)
            yield difference
    for name, count in reference.counts.items():
        if count != getattr(reply.usage, name):
            yield _make_difference(reference, name, f"{count} tokens became {getattr(reply.usage, name)}")


def canonical_arguments(arguments: str) -> str:
    """Normalize arguments that are JSON; other text stays unchanged."""
    try:
        return json.dumps(json.loads(arguments), sort_keys=True)
    except (ValueError, RecursionError):
        return replace_lone_surrogates(arguments)


def replace_lone_surrogates(text: str) -> str:
    """Replace every lone surrogate with the replacement character."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _make_difference(reference: ReferenceReply, name: str, what: str) -> WireDifference:
    return WireDifference(description=f"reply {name}: {what}", reason=reference.exceptions.get(name, ""))


def _only_last_is_open(theirs: Sequence[tuple[str, str]], ours: Sequence[tuple[str, str]]) -> bool:
    """True if the calls differ only in the last one, which has no arguments."""
    if not theirs or not ours:
        return False
    (their_name, their_arguments), (our_name, our_arguments) = theirs[-1], ours[-1]
    are_both_empty = (their_arguments, our_arguments) == ("{}", "")
    return are_both_empty and their_name == our_name and theirs[:-1] == ours[:-1]


def _show_divergence(theirs: str, ours: str) -> str:
    """Show both texts from the first difference on."""
    pairs = enumerate(zip(theirs, ours, strict=False))
    at = next((place for place, (one, other) in pairs if one != other), min(len(theirs), len(ours)))
    return f"{_shorten(theirs[at:])} became {_shorten(ours[at:])} at [{at}]"


def _shorten(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= EXCERPT_LENGTH else text[: EXCERPT_LENGTH - 1] + "…"
