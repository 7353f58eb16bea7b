"""Whether a decoded reply says what a plain reading of the same bytes says.

Each thing that matters is compared by itself: the words, the thoughts, the calls, every count, the
class of the stop.  What the plain reading cannot tell is not compared; what need not agree has its
reason from there.  A difference is one line that shows both sides.
"""

import json
from collections.abc import Iterator

from bridle.values.base import Value
from bridle.values.message import Reasoning, Reply

from .reference_decoder import ReferenceReply

EXCERPT_LENGTH = 60


class WireDifference(Value):
    description: str
    reason: str = ""
    """Why it is right; empty when nobody can say."""


def find_disagreements(told: ReferenceReply, reply: Reply) -> Iterator[WireDifference]:
    """Where the reply does not say what was told; none is best."""
    thought = "".join(part.text for part in reply.parts if isinstance(part, Reasoning))
    for name, theirs, ours in (
        ("text", replace_lone_surrogates(told.text), reply.text),
        ("reasoning", replace_lone_surrogates(told.reasoning), thought),
        ("stop", told.stop or reply.stop.value, reply.stop.value),
    ):
        if theirs != ours:
            yield _make_difference(told, name, _show_divergence(theirs, ours))
    if told.calls is not None:
        theirs_called = [
            (replace_lone_surrogates(name), canonical_arguments(arguments)) for name, arguments in told.calls
        ]
        ours_called = [(call.name, canonical_arguments(call.arguments)) for call in reply.calls]
        if theirs_called != ours_called:
            yield _make_difference(told, "calls", f"{_shorten(theirs_called)} became {_shorten(ours_called)}")
    for name, count in told.counts.items():
        if count != getattr(reply.usage, name):
            yield _make_difference(told, name, f"{count} tokens became {getattr(reply.usage, name)}")


def canonical_arguments(arguments: str) -> str:
    """Arguments in one spelling; what is no JSON stays as it is."""
    try:
        return json.dumps(json.loads(arguments), sort_keys=True)
    except (ValueError, RecursionError):
        return replace_lone_surrogates(arguments)


def replace_lone_surrogates(text: str) -> str:
    """Text in which every half of a character stands for one that cannot be shown."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _make_difference(told: ReferenceReply, name: str, what: str) -> WireDifference:
    return WireDifference(description=f"reply {name}: {what}", reason=told.exceptions.get(name, ""))


def _show_divergence(theirs: str, ours: str) -> str:
    """Both sides from where they part."""
    pairs = enumerate(zip(theirs, ours, strict=False))
    at = next((place for place, (one, other) in pairs if one != other), min(len(theirs), len(ours)))
    return f"{_shorten(theirs[at:])} became {_shorten(ours[at:])} at [{at}]"


def _shorten(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= EXCERPT_LENGTH else text[: EXCERPT_LENGTH - 1] + "…"
