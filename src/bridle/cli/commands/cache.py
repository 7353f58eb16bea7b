"""Show prompt-cache hits of a session, call by call, or of all sessions, and explain misses.

Each bar is one prompt: █ read from the cache, ▒ missed although it could have been read, · new.
"""

import argparse
import asyncio
from collections.abc import Callable, Iterable, Sequence

from bridle.cli.format.columns import display_width, fit_line, pad_text, screen_width, wrap_text
from bridle.cli.format.printing import print_error, print_json, print_line
from bridle.cli.log_access import (
    add_log_options,
    belongs_to_tenant,
    read_session,
    tenant_of,
    use_log,
)
from bridle.cli.session_names import add_session_argument
from bridle.core.cache.report import (
    CACHE_OUTCOMES,
    CacheCall,
    CacheSum,
    list_alarmed_calls,
    list_cache_calls,
    sum_cache_calls,
)
from bridle.ports.store import Store
from bridle.run.archive.sessions import list_sessions
from bridle.values.base import Value
from bridle.values.errors import Corrupt
from bridle.values.record import Record
from bridle.values.text import escape_text
from bridle.watchers.console import format_dollars, shorten

BAR_WIDTH = 24
REASON_LINES_MAX = 4
RATES_WIDTH = 55
"""Columns after the name in a table of rates."""
ALL_SESSIONS = 1_000_000_000
NO_TENANT = "(none)"


class SeenCall(Value, kw_only=True):
    """A call, and whether it raised an alarm."""

    session: str
    call: CacheCall
    alarm: bool


class CacheRow(Value, kw_only=True):
    name: str
    sum: CacheSum
    hit_rate: float | None
    sessions: int
    alarms: int


CACHE_GROUP_KEYS: dict[str, Callable[[SeenCall], str]] = {
    "session": lambda seen: seen.session,
    "agent": lambda seen: seen.call.agent,
    "tenant": lambda seen: seen.call.tenant or NO_TENANT,
    "model": lambda seen: seen.call.model,
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add_session_argument(parser, nargs="?", help_="only this session, call by call unless --by is given")
    add("--by", choices=[*CACHE_GROUP_KEYS], help="group by (default: session)")
    add("--json", action="store_true", help="print calls or rows, and totals, as JSON")
    add_log_options(parser, "only sessions of this tenant")


def execute(options: argparse.Namespace) -> int:
    seen = asyncio.run(_read_calls(options))
    calls = [each.call for each in seen]
    if options.session and not options.by:
        told, lines = _calls_as_data(options.session, calls), [*_format_calls(calls), *_format_summary(calls)]
    else:
        table, whole = make_rows(seen, options.by or "session"), _make_row("total", seen)
        told, lines = {"rows": table, "total": whole}, _format_rates([*table, whole])
    if options.json:
        print_json(told)
        return 0
    for line in lines:
        print_line(escape_text(line).rstrip())
    return 0


def make_rows(seen: Iterable[SeenCall], by: str) -> list[CacheRow]:
    """Largest losses first."""
    groups: dict[str, list[SeenCall]] = {}
    for each in seen:
        groups.setdefault(CACHE_GROUP_KEYS[by](each), []).append(each)
    table = [_make_row(name, group) for name, group in groups.items()]
    return sorted(
        table, key=lambda row: (row.sum.usd or 0, row.sum.missed_tokens, row.sum.calls), reverse=True
    )


def _make_row(name: str, group: Sequence[SeenCall]) -> CacheRow:
    total = sum_cache_calls([each.call for each in group])
    return CacheRow(
        name=name,
        sum=total,
        hit_rate=total.hit_rate,
        sessions=len({each.session for each in group}),
        alarms=sum(each.alarm for each in group),
    )


def _calls_as_data(session: str, calls: Sequence[CacheCall]) -> dict[str, object]:
    total = sum_cache_calls(calls)
    return {"session": session, "hit_rate": total.hit_rate, "sum": total, "calls": calls}


async def _read_calls(options: argparse.Namespace) -> list[SeenCall]:
    async with use_log(options.store) as store:
        if options.session:
            return _list_seen_calls(
                options.session, await read_session(store, options.session, tenant_of(options))
            )
        infos = await list_sessions(store, ALL_SESSIONS)
        return [
            each for info in infos for each in await _read_session_calls(store, info.id, tenant_of(options))
        ]


async def _read_session_calls(store: Store, session: str, tenant: str | None) -> list[SeenCall]:
    try:
        records = await store.read(session)
        return _list_seen_calls(session, records) if belongs_to_tenant(records, tenant) else []
    except Corrupt as error:
        # One damaged session must not hide the others, and must be reported.
        print_error(f"session {session} is not included: {error}")
        return []


def _list_seen_calls(session: str, records: Sequence[Record]) -> list[SeenCall]:
    loud = {call.index for call in list_alarmed_calls(records)}
    return [
        SeenCall(session=session, call=call, alarm=call.index in loud) for call in list_cache_calls(records)
    ]


def _format_rates(table: Sequence[CacheRow]) -> list[str]:
    if table[-1].sum.calls == 0:
        return ["no call was answered in this log"]
    longest = max(display_width(escape_text(row.name)) for row in table)
    width = min(longest, screen_width() - RATES_WIDTH)
    head = f"{'':<{width}} {'calls':>6} {'expected':>11} {'read':>11} {'rate':>6} {'lost':>9} alarms"
    return [head, *(_format_rate(row, width) for row in table)]


def _format_rate(row: CacheRow, width: int) -> str:
    rate = "-" if row.hit_rate is None else f"{row.hit_rate:.1%}"
    usd = None if row.sum.usd is None else float(row.sum.usd)
    lost = "-" if not row.sum.missed_tokens else "unknown" if usd is None else format_dollars(usd)
    name = pad_text(fit_line(row.name, width), width)
    return (
        f"{name} {row.sum.calls:>6,} {row.sum.expected_tokens:>11,} {row.sum.read_tokens:>11,}"
        f" {rate:>6} {lost:>9} {row.alarms or '':>6}"
    )


def _format_calls(calls: Sequence[CacheCall]) -> list[str]:
    if not calls:
        return ["no call was answered in this session"]
    head = f"{'call':>4} {'prompt':>9} {'expected':>9} {'read':>9} {'written':>9}  {'':{BAR_WIDTH}}  outcome"
    return [head, *(line for call in calls for line in _format_call(call))]


def _format_call(call: CacheCall) -> list[str]:
    counts = " ".join(
        f"{count:>9,}"
        for count in (call.prompt_tokens, call.expected_tokens, call.read_tokens, call.written_tokens)
    )
    line = f"{call.index:>4} {counts}  {_draw_bar(call)}  {call.outcome}"
    if not call.why and not call.missed_tokens:
        return [line]
    cost = format_dollars(None if call.usd is None else float(call.usd)) if call.missed_tokens else ""
    told = " ".join(shorten("  ".join(filter(None, (cost, call.why)))).split())
    return [line, *(f"     {each}" for each in wrap_text(told, screen_width() - 5, REASON_LINES_MAX))]


def _draw_bar(call: CacheCall) -> str:
    if not call.prompt_tokens:
        return " " * BAR_WIDTH
    read = round(BAR_WIDTH * call.read_tokens / call.prompt_tokens)
    missed = min(BAR_WIDTH - read, round(BAR_WIDTH * call.missed_tokens / call.prompt_tokens))
    return "█" * read + "▒" * missed + "·" * (BAR_WIDTH - read - missed)


def _format_summary(calls: Sequence[CacheCall]) -> list[str]:
    total = sum_cache_calls(calls)
    if not total.calls:
        return []
    lost = format_dollars(None if total.usd is None else float(total.usd))
    missed = f" · {total.missed_tokens:,} missed, {lost}" if total.missed_tokens else ""
    told = [
        f"  {verdict:<10} {total.outcomes[verdict]:>4}  {what}"
        for verdict, what in CACHE_OUTCOMES.items()
        if verdict in total.outcomes
    ]
    return ["", f"{_describe_rate(calls, total)}{missed}", *told]


def _describe_rate(calls: Sequence[CacheCall], total: CacheSum) -> str:
    if total.hit_rate is not None:
        return (
            f"hit rate {total.hit_rate:.1%} · {total.read_tokens:,} of {total.expected_tokens:,} tokens read"
        )
    if read := sum(call.read_tokens for call in calls):
        return f"{read:,} of {sum(call.prompt_tokens for call in calls):,} tokens read, none expected"
    return "no call could have read from the cache"
