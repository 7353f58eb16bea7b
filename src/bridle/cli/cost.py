"""Tell what was spent, and on what: of one session or of all, by whatever you ask for.

Failed, cancelled and lost attempts are in the sums and shown apart.  What a tool costs is an
estimate: its share, by size, of every prompt its schema and results were in.  A session's runs inside
its tools are part of what it costs; every call counts once.
"""

import argparse
import asyncio
import csv
import sys
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from decimal import Decimal

import msgspec

from ..core.ledger import CONVERSATION, ELSEWHERE, Entry, charges, entries
from ..ports.store import Store
from ..values.errors import Corrupt, MisuseError
from ..values.record import Record
from ..values.text import escape_text
from ..values.usage import Usage
from .columns import cells, cut, padded
from .logs import is_of_tenant, listed, read_session
from .numbers import point_in_time
from .places import add_across_option, add_store_option, add_tenant_option, open_log, tenant_of
from .printing import complain, say, say_json

EVERY_SESSION = 1_000_000_000
NAME_WIDTH_MAX, SCREEN_WIDTH = 30, 80


def _day(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).date().isoformat()


def _step(entry: Entry) -> str:
    return f"{entry.run}.{entry.step}" if entry.run else ELSEWHERE


def _mark(entry: Entry) -> str:
    return "" if entry.outcome == "answered" else f" {entry.outcome}"


KEYS: dict[str, Callable[[Entry], str]] = {
    "session": lambda entry: entry.session,
    "agent": lambda entry: entry.agent,
    "model": lambda entry: entry.model,
    "day": lambda entry: _day(entry.at),
    "tenant": lambda entry: entry.tenant or "(none)",
    "caller": lambda entry: entry.caller or "(none)",
    "step": lambda entry: f"{entry.session} {_step(entry)}",
    "call": lambda entry: f"{entry.session} {_step(entry)}#{entry.attempt}{_mark(entry)}",
}
BY_TOOL = "tool"


class Row(msgspec.Struct):
    """Sums of one group of model calls.

    With --by tool, `calls` counts runs of the tool and `tokens` is an estimate of its share;
    otherwise `calls` counts requests to a model and `tokens` is what the provider counted.
    """

    name: str
    calls: int = 0
    failed: int = 0
    cancelled: int = 0
    lost: int = 0
    """Attempts of which nobody was left to say how they ended; what they cost is in no sum."""
    input: int = 0
    cache_read: int = 0
    cache_write: int = 0
    output: int = 0
    tokens: int = 0
    usd: Decimal | None = Decimal(0)
    wasted_usd: Decimal | None = Decimal(0)
    """What of it was for attempts that failed or were cancelled."""

    def add(self, entry: Entry, usd: Decimal | None, usage: Usage, tokens: int, calls: int) -> None:
        self.calls += calls
        if entry.outcome == "lost":
            self.lost += 1
            return
        self.usd = _sum(self.usd, usd)
        if entry.outcome not in ("answered", "stored"):
            self.failed += entry.outcome == "failed"
            self.cancelled += entry.outcome == "cancelled"
            self.wasted_usd = _sum(self.wasted_usd, usd)
        self.input += usage.input
        self.cache_read += usage.cache_read
        self.cache_write += usage.cache_write
        self.output += usage.output
        self.tokens += tokens


def arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("session", nargs="?", help="only this one, call by call unless --by says otherwise")
    add("--by", choices=[*KEYS, BY_TOOL], help="what to add up by (default: session)")
    add(
        "--since",
        type=point_in_time,
        default=0.0,
        metavar="DATE",
        help="only calls made then or later: 2026-11-16 (UTC), today, yesterday, 12h, 7d",
    )
    add("--json", action="store_true", help="print the rows and the total as JSON")
    add("--csv", action="store_true", help="print the rows as CSV")
    add_tenant_option(parser, "only of this tenant's sessions; another's is refused")
    add_across_option(parser)
    add_store_option(parser)


def execute(options: argparse.Namespace) -> int:
    if options.json and options.csv:
        raise MisuseError("--json and --csv exclude each other")
    booked = [entry for entry in asyncio.run(_booked(options)) if entry.at >= options.since]
    by = options.by or ("call" if options.session else "session")
    table, whole = rows(booked, by), total(booked, by)
    if options.json:
        say_json({"rows": table, "total": whole})
    elif options.csv:
        writer = csv.DictWriter(sys.stdout, Row.__struct_fields__, lineterminator="\n")
        writer.writeheader()
        writer.writerows(_plain(row) for row in table)
    elif not booked:
        say("nothing was spent: no call to a model is in this log, or none that recent")
    else:
        for line in _told(table, whole, options.session, by):
            say(line)
    return 0


def rows(booked: Iterable[Entry], by: str) -> list[Row]:
    """Dearest first, except what has an order of its own."""
    found: dict[str, Row] = {}
    for entry in booked:
        for name, usd, usage, tokens, calls in _pieces(entry, by):
            found.setdefault(name, Row(name=name)).add(entry, usd, usage, tokens, calls)
    table = list(found.values())
    if by in ("day", "step", "call"):
        return table if by != "day" else sorted(table, key=lambda row: row.name)
    return sorted(table, key=lambda row: (row.usd is None, row.usd or 0, row.tokens), reverse=True)


def total(booked: Iterable[Entry], by: str = "") -> Row:
    whole = Row(name="total")
    for entry in booked:
        calls = entry.tool_calls if by == BY_TOOL else _model_calls(entry)
        whole.add(entry, entry.usd, entry.usage, entry.usage.total, calls)
    return whole


def _model_calls(entry: Entry) -> int:
    return int(entry.outcome != "stored")


Piece = tuple[str, Decimal | None, Usage, int, int]


def _pieces(entry: Entry, by: str) -> list[Piece]:
    if by != BY_TOOL:
        return [(KEYS[by](entry), entry.usd, entry.usage, entry.usage.total, _model_calls(entry))]
    pieces: list[Piece] = []
    left_usd, left_tokens = entry.usd, entry.usage.total
    for share in entry.shares:
        tokens = share.schema_tokens + share.result_tokens + share.call_tokens
        pieces.append((share.tool, share.usd, Usage(), tokens, share.calls))
        left_usd = None if left_usd is None or share.usd is None else left_usd - share.usd
        left_tokens -= tokens
    return [*pieces, (CONVERSATION, left_usd, Usage(), left_tokens, 0)]


async def _booked(options: argparse.Namespace) -> list[Entry]:
    store = open_log(options.store, to_read=True)
    try:
        if options.session:
            return await with_inner(store, options.session, tenant_of(options))
        return await of_every_session(store, tenant_of(options))
    finally:
        await store.close()


async def of_every_session(store: Store, tenant: str | None = None) -> list[Entry]:
    booked: list[Entry] = []
    drawn: list[Entry] = []
    for info in await listed(store, EVERY_SESSION):
        records = await _records(store, info.id)
        if not is_of_tenant(records, tenant):
            continue
        # What a fork shares with its parent was spent once, and is the parent's.
        booked += [entry for entry in entries(info.id, records) if entry.seq > info.forked_at]
        drawn += [entry for entry in charges(info.id, records) if entry.seq > info.forked_at]
    return [*booked, *_out_of_reach(drawn, booked)]


async def with_inner(store: Store, session: str, tenant: str | None = None) -> list[Entry]:
    """A session's own calls and those of the runs inside its tools, each from the log it is in."""
    records = await read_session(store, session, tenant)
    booked, drawn = list(entries(session, records)), charges(session, records)
    ids = {entry.id for entry in drawn}
    for inner in dict.fromkeys(entry.session for entry in drawn):
        theirs = entries(inner, await _records(store, inner))
        booked += [entry for entry in theirs if entry.id in ids]
    return [*booked, *_out_of_reach(drawn, booked)]


def _out_of_reach(drawn: Iterable[Entry], booked: Iterable[Entry]) -> list[Entry]:
    """What was drawn by runs whose own log is not here; several runs around one call name it alike."""
    known = {entry.id for entry in booked if entry.id}
    return list({entry.id: entry for entry in drawn if entry.id not in known}.values())


async def _records(store: Store, session: str) -> Sequence[Record]:
    try:
        return await store.read(session)
    except Corrupt as error:
        # One damaged session must not hide what the others cost; but it must not pass for nothing either.
        complain(f"session {session} is not in these sums: {error}")
        return ()


def _sum(one: Decimal | None, other: Decimal | None) -> Decimal | None:
    return None if one is None or other is None else one + other


def _plain(row: Row) -> dict[str, str | int]:
    return {
        name: "" if (value := getattr(row, name)) is None else f"{value:f}" if name.endswith("usd") else value
        for name in Row.__struct_fields__
    } | {"name": escape_text(row.name)}


def _told(table: Sequence[Row], whole: Row, session: str | None, by: str) -> Iterable[str]:
    """Eighty columns wide: a name that is longer is cut; --json and --csv have all of it."""
    names = [escape_text(row.name).removeprefix(f"{session} ") for row in table]
    width = min(max(map(cells, [*names, whole.name])), NAME_WIDTH_MAX)
    yield f"{'':<{width}}  {'calls':>5} {'tokens':>10} {'cached':>10} {'output':>8} {'dollars':>11}"
    for name, row in zip([*names, whole.name], [*table, whole], strict=True):
        usd = "unknown" if row.usd is None else f"{row.usd:.6f}"
        yield (
            f"{padded(cut(name, width), width)}  {row.calls:>5,} {row.tokens:>10,} {row.cache_read:>10,}"
            f" {row.output:>8,} {usd:>11}"
        )
        apart = [
            f"{count:,} {what}" for what in ("failed", "cancelled", "lost") if (count := getattr(row, what))
        ]
        if row.wasted_usd:
            apart.append(f"${row.wasted_usd:.6f} of it for nothing")
        elif row.wasted_usd is None:
            apart.append("what that cost is unknown")
        if apart and by != "call":  # there the name says it
            told = ", ".join(apart)
            yield f"{'':<{min(width + 4, max(2, SCREEN_WIDTH - len(told)))}}{told}"
