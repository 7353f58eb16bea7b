"""Receipts of calls whose tool says that equal arguments are the same action (`ToolSpec.once_per`).

A model that repeats such a call gets the earlier result, and the tool does not run again: within the run,
within the session, or for a stated time after the first call was done.  Only a call that was done counts.
One that failed, timed out or was cancelled may be tried again, and one that was undone is no longer done.

Receipts are folded from the log, so a resumed session and a fork know them too.
"""

import msgspec

from ..values.parts import ToolResult
from ..values.request import ToolSpec
from ..values.value import Value
from ..values.whole import Whole
from .opencall import OpenCall

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
    """Equal for equal arguments, whatever their order, and whether or not a default was spelled out."""
    given = _decoded(arguments)
    schema = _decoded(spec.parameters)
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if isinstance(given, dict) and isinstance(properties, dict):
        defaults = {
            name: about["default"]
            for name, about in properties.items()
            if isinstance(about, dict) and "default" in about
        }
        given = {**defaults, **given}
    return msgspec.json.encode(given, order="sorted")


def _holds(receipt: Receipt, spec: ToolSpec, run: int, now: float) -> bool:
    match spec.once_per:
        case "session":
            return True
        case "run":
            return receipt.run == run
        case float(seconds):
            return now - receipt.at < seconds
    return False


def _decoded(text: str) -> object:
    try:
        return msgspec.json.decode(text.strip() or "{}")
    except msgspec.DecodeError:
        return text
