"""Receipts of calls whose tool says that equal arguments are the same action (`ToolSpec.once_per`).

A model that repeats such a call gets the earlier result, and the tool does not run again: within the run,
within the session, or for a stated time after the first call was done.  Only a call that was done counts.
One that failed, timed out or was cancelled may be tried again, and one that was undone is no longer done.

Receipts are folded from the log, so a resumed session and a fork know them too.
"""

import msgspec

from ..values.json_text import parse_json
from ..values.parts import ToolResult
from ..values.request import ToolSpec
from ..values.value import Value
from ..values.whole import Whole
from .opencall import OpenCall
from .schema_values import fill_defaults, read_schema

SAME_ACTION = "This call equals an earlier one ({call_id}) that is done, so it was not run again. Its result:"


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


def add_receipt(
    receipts: tuple[Receipt, ...], item: OpenCall, spec: ToolSpec, whole: Whole | None, *, run: int, at: float
) -> tuple[Receipt, ...]:
    """The receipts with this call's, if it was really run and done; those that hold no more are dropped."""
    result = item.result
    if spec.once_per is None or result is None or result.outcome != "ok" or item.attempt == 0:
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


def _holds(receipt: Receipt, spec: ToolSpec, run: int, now: float) -> bool:
    match spec.once_per:
        case "session":
            return True
        case "run":
            return receipt.run == run
        case float(seconds):
            return now - receipt.at < seconds
    return False
