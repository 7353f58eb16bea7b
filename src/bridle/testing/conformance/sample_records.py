"""Sample records to write to a store, and the assertions about what it returns.

The events are real and the records properly sealed; only their texts are meaningless. The assertions raise
`AssertionError` themselves, because `python -O` removes `assert`.
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
    """Seal records of these events that continue `prefix`, which is not repeated."""
    records = list(prefix)
    for event in events:
        seq = len(records) + 1
        records.append(seal_record(seq, at + seq / 7, event, records[-1].hash if records else GENESIS))
    return records[len(prefix) :]


def expect_true(condition: bool, message: str) -> None:  # noqa: FBT001 - a claim
    if not condition:
        raise AssertionError(message)


def expect_same(found: Sequence[Record], expected: Sequence[Record], what: str) -> None:
    seqs = [record.seq for record in found]
    expect_true(
        list(found) == list(expected),
        f"{what} gave records {seqs}, not those {len(expected)} that were written",
    )


async def expect_session(store: Store, session: str, line: Sequence[Record]) -> None:
    expect_same(await store.read(session), line, f"reading {session!r}")


async def expect_refusal(act: Awaitable[object], kind: type[BridleError], what: str) -> None:
    try:
        await act
    except kind:
        return
    except BridleError as error:
        raise AssertionError(f"{what} must raise {kind.__name__}, not {type(error).__name__}") from error
    raise AssertionError(f"{what} was let through")
