"""Lines of records to put into a store, and what to ask of it afterwards.

The events are real ones and the records properly sealed; only their words mean nothing.
The questions raise `AssertionError` themselves: `assert` is left out by `python -O`.
"""

from collections.abc import Awaitable, Sequence

from ..ports.store import Store
from ..values.errors import BridleError
from ..values.event import Event, Prompted, ToolFinished, ToolStarted
from ..values.parts import Text, ToolResult
from ..values.record import GENESIS, Record, seal


def said(text: str) -> Prompted:
    return Prompted(parts=(Text(text=text),))


def intent(call: str, attempt: int = 1) -> ToolStarted:
    return ToolStarted(call_id=call, name="tool", key=call, attempt=attempt)


def receipt(call: str) -> ToolFinished:
    return ToolFinished(result=ToolResult(call_id=call))


def line_of(*events: Event, prefix: Sequence[Record] = (), at: float = 0.0) -> list[Record]:
    """Sealed records of these events, going on from the end of `prefix`, which is not repeated."""
    line = list(prefix)
    for event in events:
        seq = len(line) + 1
        line.append(seal(seq, at + seq / 7, event, line[-1].hash if line else GENESIS))
    return line[len(prefix) :]


def expect(kept: bool, otherwise: str) -> None:  # noqa: FBT001 - a claim
    if not kept:
        raise AssertionError(otherwise)


def expect_same(found: Sequence[Record], expected: Sequence[Record], what: str) -> None:
    seqs = [record.seq for record in found]
    expect(
        list(found) == list(expected),
        f"{what} gave records {seqs}, not those {len(expected)} that were written",
    )


async def expect_line(store: Store, session: str, line: Sequence[Record]) -> None:
    expect_same(await store.read(session), line, f"reading {session!r}")


async def expect_refusal(act: Awaitable[None], kind: type[BridleError], what: str) -> None:
    try:
        await act
    except kind:
        return
    except BridleError as error:
        raise AssertionError(f"{what} must raise {kind.__name__}, not {type(error).__name__}") from error
    raise AssertionError(f"{what} was let through")
