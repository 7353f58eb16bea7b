"""Show what the prompt cache gave, what it should have given, and why it did not.

Of one session, call by call.  A bar is one prompt: █ read from the cache, ▒ missed though it was there to
be read, · new.  Of all sessions, added up by whatever you ask for.
"""

import argparse
import asyncio
from collections.abc import Callable, Iterable, Sequence

from ..core.forensics import VERDICTS, CacheCall, CacheSum, alarmed, examined, summed
from ..ports.store import Store
from ..values.errors import Corrupt
from ..values.record import Record
from ..values.text import escape_text
from ..values.value import Value
from ..watchers.console import brief, dollars
from .columns import cells, cut, padded, screen_width, wrapped
from .logs import is_of_tenant, listed, read_session
from .places import add_across_option, add_store_option, add_tenant_option, open_log, tenant_of
from .printing import complain, say, say_json

BAR_WIDTH = 24
WHY_LINES_MAX = 4
NAME_WIDTH = 25
EVERY_SESSION = 1_000_000_000
NOBODY = "(none)"


class Seen(Value):
    """A call, and whether it set off an alarm."""

    session: str
    call: CacheCall
    alarm: bool


class Row(Value):
    name: str
    sum: CacheSum
    hit_rate: float | None
    sessions: int
    alarms: int


KEYS: dict[str, Callable[[Seen], str]] = {
    "session": lambda seen: seen.session,
    "agent": lambda seen: seen.call.agent,
    "tenant": lambda seen: seen.call.tenant or NOBODY,
    "model": lambda seen: seen.call.model,
}


def arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("session", nargs="?", help="only this one, call by call unless --by says otherwise")
    add("--by", choices=[*KEYS], help="what to add up by (default: session)")
    add("--json", action="store_true", help="print the calls or rows and their sum as JSON")
    add_tenant_option(parser, "only of this tenant's sessions; another's is refused")
    add_across_option(parser)
    add_store_option(parser)


def execute(options: argparse.Namespace) -> int:
    seen = asyncio.run(_read(options))
    calls = [each.call for each in seen]
    if options.session and not options.by:
        told, lines = _calls_told(options.session, calls), [*_table(calls), *_ending(calls)]
    else:
        table, whole = rows(seen, options.by or "session"), _row("total", seen)
        told, lines = {"rows": table, "total": whole}, _rates([*table, whole])
    if options.json:
        say_json(told)
        return 0
    for line in lines:
        say(escape_text(line).rstrip())
    return 0


def rows(seen: Iterable[Seen], by: str) -> list[Row]:
    """Those that lost most first."""
    groups: dict[str, list[Seen]] = {}
    for each in seen:
        groups.setdefault(KEYS[by](each), []).append(each)
    table = [_row(name, group) for name, group in groups.items()]
    return sorted(table, key=lambda row: (row.sum.usd or 0, row.sum.missed, row.sum.calls), reverse=True)


def _row(name: str, group: Sequence[Seen]) -> Row:
    total = summed([each.call for each in group])
    return Row(
        name=name,
        sum=total,
        hit_rate=total.hit_rate,
        sessions=len({each.session for each in group}),
        alarms=sum(each.alarm for each in group),
    )


def _calls_told(session: str, calls: Sequence[CacheCall]) -> dict[str, object]:
    total = summed(calls)
    return {"session": session, "hit_rate": total.hit_rate, "sum": total, "calls": calls}


async def _read(options: argparse.Namespace) -> list[Seen]:
    store = open_log(options.store, to_read=True)
    try:
        if options.session:
            return _seen(options.session, await read_session(store, options.session, tenant_of(options)))
        infos = await listed(store, EVERY_SESSION)
        return [each for info in infos for each in await _session(store, info.id, tenant_of(options))]
    finally:
        await store.close()


async def _session(store: Store, session: str, tenant: str | None) -> list[Seen]:
    try:
        records = await store.read(session)
        return _seen(session, records) if is_of_tenant(records, tenant) else []
    except Corrupt as error:
        # One damaged session must not hide the others; but it must not pass for a good one either.
        complain(f"session {session} is not in these sums: {error}")
        return []


def _seen(session: str, records: Sequence[Record]) -> list[Seen]:
    loud = {call.number for call in alarmed(records)}
    return [Seen(session=session, call=call, alarm=call.number in loud) for call in examined(records)]


def _rates(table: Sequence[Row]) -> list[str]:
    if table[-1].sum.calls == 0:
        return ["no call was answered in this log"]
    width = min(NAME_WIDTH, max(cells(escape_text(row.name)) for row in table))
    head = f"{'':<{width}} {'calls':>6} {'expected':>11} {'read':>11} {'rate':>6} {'lost':>9} alarms"
    return [head, *(_rate(row, width) for row in table)]


def _rate(row: Row, width: int) -> str:
    rate = "-" if row.hit_rate is None else f"{row.hit_rate:.1%}"
    usd = None if row.sum.usd is None else float(row.sum.usd)
    lost = "-" if not row.sum.missed else "unknown" if usd is None else dollars(usd)
    name = padded(cut(row.name, width), width)
    return (
        f"{name} {row.sum.calls:>6,} {row.sum.expected:>11,} {row.sum.read:>11,}"
        f" {rate:>6} {lost:>9} {row.alarms or '':>6}"
    )


def _table(calls: Sequence[CacheCall]) -> list[str]:
    if not calls:
        return ["no call was answered in this session"]
    head = f"{'call':>4} {'prompt':>9} {'expected':>9} {'read':>9} {'written':>9}  {'':{BAR_WIDTH}}  verdict"
    return [head, *(line for call in calls for line in _lines(call))]


def _lines(call: CacheCall) -> list[str]:
    counts = " ".join(f"{count:>9,}" for count in (call.prompt, call.expected, call.read, call.written))
    line = f"{call.number:>4} {counts}  {_bar(call)}  {call.verdict}"
    if not call.why and not call.missed:
        return [line]
    cost = dollars(None if call.usd is None else float(call.usd)) if call.missed else ""
    told = " ".join(brief("  ".join(filter(None, (cost, call.why)))).split())
    return [line, *(f"     {each}" for each in wrapped(told, screen_width() - 5, WHY_LINES_MAX))]


def _bar(call: CacheCall) -> str:
    if not call.prompt:
        return " " * BAR_WIDTH
    read = round(BAR_WIDTH * call.read / call.prompt)
    missed = min(BAR_WIDTH - read, round(BAR_WIDTH * call.missed / call.prompt))
    return "█" * read + "▒" * missed + "·" * (BAR_WIDTH - read - missed)


def _ending(calls: Sequence[CacheCall]) -> list[str]:
    total = summed(calls)
    if not total.calls:
        return []
    lost = dollars(None if total.usd is None else float(total.usd))
    missed = f" · {total.missed:,} missed, {lost}" if total.missed else ""
    told = [
        f"  {verdict:<10} {total.verdicts[verdict]:>4}  {what}"
        for verdict, what in VERDICTS.items()
        if verdict in total.verdicts
    ]
    return ["", f"{_rate_told(calls, total)}{missed}", *told]


def _rate_told(calls: Sequence[CacheCall], total: CacheSum) -> str:
    if total.hit_rate is not None:
        return f"hit rate {total.hit_rate:.1%} · {total.read:,} of {total.expected:,} tokens read"
    if read := sum(call.read for call in calls):
        return f"{read:,} of {sum(call.prompt for call in calls):,} tokens read, none of them expected"
    return "nothing could be read"
