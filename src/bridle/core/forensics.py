"""What the prompt cache should have given at every call, what it gave, and why that was less.

A reading of the log: the verdict on a call falls when it is answered (misses.py) and is a fold like
everything else, so live alarms and this report cannot disagree.
"""

from collections.abc import Iterable

from ..values import event as e
from ..values.cached import CacheDegraded
from ..values.record import Record
from .hits import MISSES, VERDICTS, CacheCall, CacheSum, summed
from .mending import states

__all__ = ["MISSES", "VERDICTS", "CacheCall", "CacheSum", "alarmed", "examined", "summed"]


def examined(records: Iterable[Record]) -> tuple[CacheCall, ...]:
    """Every call that was answered, in order."""
    calls: list[CacheCall] = []
    for record, state in states(records):
        if isinstance(record.event, e.ModelReplied) and state.hits.number > len(calls):
            calls.append(state.hits.recent[-1])
    return tuple(calls)


def alarmed(records: Iterable[Record]) -> tuple[CacheCall, ...]:
    """The calls after which it was said that the cache gives too little."""
    return tuple(
        state.hits.recent[-1]
        for record, state in states(records)
        if isinstance(record.event, CacheDegraded) and state.hits.recent
    )
