"""Lines of records to put into a store, and what to ask of it afterwards.

The events are real ones and the records properly sealed; only their words mean nothing.
The questions raise `AssertionError` themselves: `assert` is left out by `python -O`.
"""

from collections.abc import Awaitable, Sequence

from bridle.ports.store import Store
from bridle.values.errors import BridleError
from bridle.values.events import Event, Prompted, ToolFinished, ToolStarted
from bridle.values.message import Text, ToolResult
from bridle.values.record import GENESIS, Record, seal_record


def make_prompt(text: str) -> Prompted:
    return Prompted(parts=(Text(text=text),))


def make_tool_start(call: str, attempt: int = 1) -> ToolStarted:
    return ToolStarted(call_id=call, name="tool", key=call, attempt=attempt)


def make_tool_finish(call: str) -> ToolFinished:
    return ToolFinished(result=ToolResult(call_id=call))


def make_records(*events: Event, prefix: Sequence[Record] = (), at: float = 0.0) -> list[Record]:
    """Sealed records of these events, going on from the end of `prefix`, which is not repeated."""
    line = list(prefix)
    for event in events:
        seq = len(line) + 1
        line.append(seal_record(seq, at + seq / 7, event, line[-1].hash if line else GENESIS))
    return line[len(prefix) :]


def expect_true(kept: bool, otherwise: str) -> None:  # noqa: FBT001 - a claim
    if not kept:
        raise AssertionError(otherwise)


def expect_same(found: Sequence[Record], expected: Sequence[Record], what: str) -> None:
    seqs = [record.seq for record in found]
    expect_true(
        list(found) == list(expected),
        f"{what} gave records {seqs}, not those {len(expected)} that were written",
    )


async def expect_session(store: Store, session: str, line: Sequence[Record]) -> None:
    expect_same(await store.read(session), line, f"reading {session!r}")


async def expect_refusal(act: Awaitable[None], kind: type[BridleError], what: str) -> None:
    try:
        await act
    except kind:
        return
    except BridleError as error:
        raise AssertionError(f"{what} must raise {kind.__name__}, not {type(error).__name__}") from error
    raise AssertionError(f"{what} was let through")
