"""Is the run going anywhere?

A batch of calls that equals the one before it, results and all, has taught the model
nothing.  First it is told so; when it goes on, the run ends.  No model is needed to
see this, and none should be paid for it.
"""

from hashlib import sha256

import msgspec

from ..values.parts import ToolCall, ToolResult

NOTICE_BEFORE_END = 2
"""How many repetitions before the last one the model is told."""
PERIODS = (1, 2)
"""Going round in circles of one batch, or of two in turn."""
SHOWN_CHARACTERS_MAX = 120
"""Of a call's arguments, where the calls are listed."""


def repetitions(batches: tuple[str, ...]) -> tuple[int, int]:
    """How often the latest batch, or the latest two in turn, came in a row; and how many these are."""
    return max(((_in_a_row(batches, period), period) for period in PERIODS), key=lambda found: found[0])


def _in_a_row(batches: tuple[str, ...], period: int) -> int:
    latest = batches[-period:]
    count = 0
    while latest and batches[len(batches) - (count + 1) * period : len(batches) - count * period] == latest:
        count += 1
        if (count + 1) * period > len(batches):
            break
    return count


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
        parsed = msgspec.json.decode(arguments or "{}")
    except msgspec.DecodeError:
        return arguments
    return msgspec.json.encode(parsed, order="sorted").decode()
