"""Whether a decoded reply says what a plain reading of the same bytes says.

Each thing that matters is compared by itself: the words, the thoughts, the calls, every count, the
class of the stop.  What the plain reading cannot tell is not compared; what need not agree has its
reason from there.  A difference is one line that shows both sides.
"""

import json
from collections.abc import Iterator

from ..values.message import Reply
from ..values.parts import Reasoning
from ..values.value import Value
from .plainly import Told

GLIMPSE = 60


class Difference(Value):
    what: str
    reason: str = ""
    """Why it is right; empty when nobody can say."""


def disagreements(told: Told, reply: Reply) -> Iterator[Difference]:
    """Where the reply does not say what was told; none is best."""
    thought = "".join(part.text for part in reply.parts if isinstance(part, Reasoning))
    for name, theirs, ours in (
        ("text", whole(told.text), reply.text),
        ("reasoning", whole(told.reasoning), thought),
        ("stop", told.stop or reply.stop.value, reply.stop.value),
    ):
        if theirs != ours:
            yield _found(told, name, _aside(theirs, ours))
    if told.calls is not None:
        theirs_called = [(whole(name), canonical(arguments)) for name, arguments in told.calls]
        ours_called = [(call.name, canonical(call.arguments)) for call in reply.calls]
        if theirs_called != ours_called:
            yield _found(told, "calls", f"{_short(theirs_called)} became {_short(ours_called)}")
    for name, count in told.counts.items():
        if count != getattr(reply.usage, name):
            yield _found(told, name, f"{count} tokens became {getattr(reply.usage, name)}")


def canonical(arguments: str) -> str:
    """Arguments in one spelling; what is no JSON stays as it is."""
    try:
        return json.dumps(json.loads(arguments), sort_keys=True)
    except (ValueError, RecursionError):
        return whole(arguments)


def whole(text: str) -> str:
    """Text in which every half of a character stands for one that cannot be shown."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _found(told: Told, name: str, what: str) -> Difference:
    return Difference(what=f"reply {name}: {what}", reason=told.excused.get(name, ""))


def _aside(theirs: str, ours: str) -> str:
    """Both sides from where they part."""
    pairs = enumerate(zip(theirs, ours, strict=False))
    at = next((place for place, (one, other) in pairs if one != other), min(len(theirs), len(ours)))
    return f"{_short(theirs[at:])} became {_short(ours[at:])} at [{at}]"


def _short(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= GLIMPSE else text[: GLIMPSE - 1] + "…"
