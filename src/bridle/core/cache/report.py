"""Cache report of a log: expected and actual cache reads of every call, with the cause of each miss.

The outcome of a call is part of the folded state (diagnosis.py), so that live alarms and this report cannot
disagree.
"""

from collections.abc import Iterable

from bridle.core.recovery.log_repair import iterate_states
from bridle.values import events as e
from bridle.values.cache import CacheDegraded
from bridle.values.record import Record

from .tracking import CACHE_OUTCOMES, MISS_OUTCOMES, CacheCall, CacheSum, sum_cache_calls

__all__ = [
    "CACHE_OUTCOMES",
    "MISS_OUTCOMES",
    "CacheCall",
    "CacheSum",
    "list_alarmed_calls",
    "list_cache_calls",
    "sum_cache_calls",
]


def list_cache_calls(records: Iterable[Record]) -> tuple[CacheCall, ...]:
    """Every answered call, in order."""
    calls: list[CacheCall] = []
    for record, state in iterate_states(records):
        if isinstance(record.event, e.ModelReplied) and state.cache.history.call_count > len(calls):
            calls.append(state.cache.history.recent[-1])
    return tuple(calls)


def list_alarmed_calls(records: Iterable[Record]) -> tuple[CacheCall, ...]:
    """Calls after which a cache alarm was raised."""
    return tuple(
        state.cache.history.recent[-1]
        for record, state in iterate_states(records)
        if isinstance(record.event, CacheDegraded) and state.cache.history.recent
    )
