"""Receipts of calls whose tool says that equal arguments are the same action (`ToolSpec.once_per`).

A model that repeats such a call gets the earlier result, and the tool does not run again: within the run,
within the session, or for a stated time after the first call was done.  Only a call that was done counts.
One that failed, timed out or was cancelled may be tried again, and one that was undone is no longer done.

A call that was started and interrupted leaves a doubt.  An equal call of the same span is then in doubt as
well: the tool's `on_unknown` decides about it, and it runs, if at all, under the key of the first one.

Receipts and doubts are folded from the log, so a resumed session and a fork know them too.
"""

import msgspec
from msgspec.structs import replace

from ..values.event import How
from ..values.json_text import parse_json
from ..values.parts import ToolResult
from ..values.request import ToolSpec
from ..values.value import Value
from ..values.whole import Whole
from .opencall import OpenCall
from .schema_values import fill_defaults, read_schema

SAME_ACTION = "This call equals an earlier one ({call_id}) that is done, so it was not run again. Its result:"
SAME_IN_DOUBT = (
    "This call equals an earlier one ({call_id}) that was started and then interrupted. Whether that one took"
    " effect is unknown, so this one was not run. Find out in another way."
)
LOOKED_UP = ("probe", "person")
"""How the result of a call in doubt is known without running it."""


class Receipt(Value):
    """A call that was done, and what it brought."""

    tool: str
    arguments: bytes
    """In canonical form, defaults filled in."""
    result: ToolResult
    whole: Whole | None = None
    at: float = 0.0
    run: int = 0
    """Which run of the session it was done in."""


class Doubt(Value):
    """A call that was started and interrupted, so that nobody knows whether it took effect."""

    call_id: str
    tool: str
    arguments: str
    """As the call was started with them."""
    key: str
    """What it was started under."""
    at: float = 0.0
    run: int = 0


def find_receipt(
    receipts: tuple[Receipt, ...], item: OpenCall, spec: ToolSpec, *, run: int, now: float
) -> Receipt | None:
    """The newest receipt that answers this call; None when it has to run."""
    if spec.once_per is None or not receipts:
        return None
    wanted = canonical_arguments(item.arguments, spec)
    for receipt in reversed(receipts):
        if (receipt.tool, receipt.arguments) == (spec.name, wanted):
            return receipt if _holds(receipt, spec, run, now) else None
    return None


def share_doubt(
    doubts: tuple[Doubt, ...], item: OpenCall, spec: ToolSpec, *, run: int, now: float
) -> OpenCall:
    """The call as one in doubt, under the earlier key, if it was never started and equals one that was."""
    if not doubts or item.attempt or item.key:
        return item
    same = _same_doubts(doubts, item, spec)
    if not same or not _holds(same[-1], spec, run, now):
        return item
    return replace(item, in_doubt=True, key=same[-1].key, same_action=same[-1].call_id)


def add_doubt(doubts: tuple[Doubt, ...], item: OpenCall, *, run: int, at: float) -> tuple[Doubt, ...]:
    """The doubts with this call's, if it was started.

    Its tool may be missing now, so whether equal arguments are the same action is decided later.
    """
    if item.attempt == 0:
        return doubts
    new = Doubt(
        call_id=item.call.id, tool=item.call.name, arguments=item.arguments, key=item.key, at=at, run=run
    )
    kept = (old for old in doubts if (old.key, old.tool, old.arguments) != (new.key, new.tool, new.arguments))
    return (*kept, new)


def settle_doubts(doubts: tuple[Doubt, ...], item: OpenCall, spec: ToolSpec) -> tuple[Doubt, ...]:
    """The doubts without those of the action of this call, of which it is known now what became."""
    same = _same_doubts(doubts, item, spec)
    return tuple(doubt for doubt in doubts if doubt not in same) if same else doubts


def drop_doubt(doubts: tuple[Doubt, ...], call_id: str) -> tuple[Doubt, ...]:
    """The doubts without that of a call which was undone."""
    return tuple(doubt for doubt in doubts if doubt.call_id != call_id)


def is_still_unknown(item: OpenCall, how: How) -> bool:
    """Whether a call has a result that does not say what became of it."""
    result = item.result
    # A call in doubt that was neither run again nor looked up was refused: that answers nothing.
    return result is not None and (result.outcome == "unknown" or (item.in_doubt and how not in LOOKED_UP))


def add_receipt(
    receipts: tuple[Receipt, ...], item: OpenCall, spec: ToolSpec, whole: Whole | None, *, run: int, at: float
) -> tuple[Receipt, ...]:
    """The receipts with that of a call that was run or looked up, if it is done; expired ones are dropped."""
    result = item.result
    if spec.once_per is None or result is None or result.outcome != "ok":
        return receipts
    arguments = canonical_arguments(item.arguments, spec)
    new = Receipt(tool=spec.name, arguments=arguments, result=result, whole=whole, at=at, run=run)
    kept = (old for old in receipts if old.tool != spec.name or _holds(old, spec, run, at))
    return (*kept, new)


def drop_receipt(receipts: tuple[Receipt, ...], call_id: str) -> tuple[Receipt, ...]:
    """The receipts without that of a call which is being undone."""
    return tuple(receipt for receipt in receipts if receipt.result.call_id != call_id)


def canonical_arguments(arguments: str, spec: ToolSpec) -> bytes:
    """Equal for equal arguments: in any order, with defaults written or left out, 5 written as 5.0."""
    try:
        given = parse_json(arguments.strip() or "{}")
    except ValueError:
        return arguments.encode()
    filled = fill_defaults(read_schema(spec.parameters), given)
    return msgspec.json.encode(_unify_numbers(filled), order="sorted")


def _unify_numbers(value: object) -> object:
    """The value with every whole number as an integer, as JSON Schema compares them."""
    match value:
        case dict():
            return {name: _unify_numbers(member) for name, member in value.items()}
        case list():
            return [_unify_numbers(member) for member in value]
        case float() if value.is_integer():
            return int(value)
    return value


def _same_doubts(doubts: tuple[Doubt, ...], item: OpenCall, spec: ToolSpec) -> list[Doubt]:
    found = [doubt for doubt in doubts if doubt.tool == spec.name] if spec.once_per is not None else []
    if not found:
        return []
    wanted = canonical_arguments(item.arguments, spec)
    return [doubt for doubt in found if canonical_arguments(doubt.arguments, spec) == wanted]


def _holds(receipt: Receipt | Doubt, spec: ToolSpec, run: int, now: float) -> bool:
    match spec.once_per:
        case "session":
            return True
        case "run":
            return receipt.run == run
        case float(seconds):
            return now - receipt.at < seconds
    return False
