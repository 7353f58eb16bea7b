"""Is the run going anywhere?

A batch of calls that equals the one before it, results and all, has taught the model
nothing; nor has a cycle of several batches that comes round again.  First the model is told
so; when it goes on, the run ends.  No model is needed to see this, and none should be paid
for it.
"""

from hashlib import sha256

import msgspec

from ..values.json_text import parse_json
from ..values.parts import ToolCall, ToolResult
from ..values.value import Value

NOTICE_BEFORE_END = 2
"""How many repetitions before the last one the model is told."""
PERIOD_MAX = 8
"""The longest cycle that is looked for: so many batches in turn, repeated with equal results."""
SHOWN_CHARACTERS_MAX = 120
"""Of a call's arguments, where the calls are listed."""


class Cycle(Value):
    """The shortest cycle that the latest batches repeat most often."""

    repeats: int = 0
    """How often the cycle was completed in a row; 1 when nothing is repeated."""
    period: int = 1
    """How many batches it has."""
    complete: bool = False
    """Whether the latest batch is the last one of a cycle, counted from its first appearance."""


def find_cycle(batches: tuple[str, ...]) -> Cycle:
    """Look for cycles of up to `PERIOD_MAX` batches at the end of `batches`."""
    if not batches or batches[-1] not in batches[-1 - PERIOD_MAX : -1]:
        return Cycle(repeats=len(batches[-1:]), complete=bool(batches))
    found = (_cycle_of(batches, period) for period in range(1, PERIOD_MAX + 1))
    return max(found, key=lambda cycle: cycle.repeats)


def _cycle_of(batches: tuple[str, ...], period: int) -> Cycle:
    """Count how much of the end repeats with this period."""
    if len(batches) < period:
        return Cycle(period=period)
    length = period
    while length < len(batches) and batches[-length - 1] == batches[period - length - 1]:
        length += 1
    return Cycle(repeats=length // period, period=period, complete=length % period == 0)


def batch_signature(answered: tuple[tuple[ToolCall, ToolResult], ...]) -> str:
    """Equal exactly when the same calls brought the same results."""
    digest = sha256()
    for call, result in answered:
        brought = msgspec.json.encode(result.parts)  # pictures too: a new screenshot is news
        for piece in (call.name, _canonical(call.arguments), result.outcome):
            digest.update(piece.encode("utf-8", "surrogatepass"))
            digest.update(b"\0")
        digest.update(brought)
        digest.update(b"\0")
    return digest.hexdigest()


def listed(calls: tuple[ToolCall, ...]) -> str:
    return ", ".join(f"{call.name}({_short(call.arguments)})" for call in calls)


def notice(repeats: int, calls: tuple[ToolCall, ...]) -> str:
    return (
        f"You have now called {listed(calls)} {repeats} times with the same arguments and got the same"
        " result each time. Do something different, or give your answer with what you have."
    )


def _short(arguments: str) -> str:
    flat = " ".join(arguments.split())
    return flat if len(flat) <= SHOWN_CHARACTERS_MAX else f"{flat[:SHOWN_CHARACTERS_MAX]}…"


def _canonical(arguments: str) -> str:
    try:
        parsed = parse_json(arguments or "{}")
    except ValueError:
        return arguments
    return msgspec.json.encode(parsed, order="sorted").decode()
