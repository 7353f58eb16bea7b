"""Show spending of one session or all, grouped by session, agent, model, day, tenant, caller, step, call or tool.

Failed, cancelled and lost attempts are included and shown separately. The cost of a tool is an estimate: its
share, by size, of every prompt that contained its schema or results. Nested runs are part of the session that
started them; every call counts once.
"""

import argparse
import asyncio
import csv
import sys
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from decimal import Decimal

import msgspec

from bridle.cli.format.columns import display_width, fit_line, pad_text, screen_width
from bridle.cli.format.printing import print_error, print_json, print_line
from bridle.cli.log_access import (
    add_caller_option,
    add_log_options,
    belongs_to_tenant,
    read_session,
    tenant_of,
    use_log,
)
from bridle.cli.option_values import parse_time
from bridle.cli.session_names import add_session_argument
from bridle.core.budget.ledger import (
    CONVERSATION_SHARE,
    OTHER_STORE,
    LedgerEntry,
    list_entries,
    list_nested_charges,
)
from bridle.ports.store import Store
from bridle.run.archive.sessions import list_sessions
from bridle.values.budget import REMAINDER_SUFFIX, SubrunStarted
from bridle.values.errors import Corrupt, MisuseError
from bridle.values.record import Record
from bridle.values.text import escape_text
from bridle.values.usage import HOSTED_COUNTS, Usage

from . import cache

SIMULATED_PREFIX = "sim:"
ALL_SESSIONS = 1_000_000_000
NUMBERS_WIDTH = 50
"""Columns after the name of a row."""


def _format_day(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).date().isoformat()


def _step_name(entry: LedgerEntry) -> str:
    return f"{entry.run}.{entry.step}" if entry.run else OTHER_STORE


def _outcome_mark(entry: LedgerEntry) -> str:
    return "" if entry.outcome == "answered" else f" {entry.outcome}"


COST_GROUP_KEYS: dict[str, Callable[[LedgerEntry], str]] = {
    "session": lambda entry: entry.session,
    "agent": lambda entry: entry.agent,
    "model": lambda entry: entry.model,
    "day": lambda entry: _format_day(entry.at),
    "tenant": lambda entry: entry.tenant or "(none)",
    "caller": lambda entry: entry.caller or "(none)",
    "step": lambda entry: f"{entry.session} {_step_name(entry)}",
    "call": lambda entry: f"{entry.session} {_step_name(entry)}#{entry.attempt}{_outcome_mark(entry)}",
}
BY_TOOL = "tool"


class CostRow(msgspec.Struct):
    """Sums of one group of model calls.

    With --by tool, `calls` counts runs of the tool and `tokens` is an estimate of its share;
    otherwise `calls` counts requests to a model and `tokens` is what the provider counted.
    """

    name: str
    calls: int = 0
    failed: int = 0
    cancelled: int = 0
    lost: int = 0
    """Attempts interrupted by a crash; their cost is unknown and not included."""
    input: int = 0
    cache_read: int = 0
    cache_write: int = 0
    output: int = 0
    tokens: int = 0
    searches: int = 0
    file_searches: int = 0
    containers: int = 0
    images: int = 0
    pages: int = 0
    """Uses of hosted tools that are charged individually."""
    usd: Decimal | None = Decimal(0)
    wasted_usd: Decimal | None = Decimal(0)
    """Part of `usd` for attempts that failed or were cancelled."""

    def add(self, entry: LedgerEntry, usd: Decimal | None, usage: Usage, tokens: int, calls: int) -> None:
        self.calls += calls
        if entry.outcome == "lost":
            self.lost += 1
            return
        self.usd = _add_usd(self.usd, usd)
        if entry.outcome not in ("answered", "stored", "program"):
            self.failed += entry.outcome == "failed"
            self.cancelled += entry.outcome == "cancelled"
            self.wasted_usd = _add_usd(self.wasted_usd, usd)
        self.input += usage.input
        self.cache_read += usage.cache_read
        self.cache_write += usage.cache_write
        self.output += usage.output
        self.tokens += tokens
        for name, count in usage.hosted_counts:
            setattr(self, name, getattr(self, name) + count)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add_session_argument(parser, nargs="?", help_="only this session, call by call unless --by is given")
    keys = [*COST_GROUP_KEYS, BY_TOOL]
    add("--by", choices=keys, metavar="KEY", help=f"group by one of {', '.join(keys)} (default: session)")
    add(
        "--cache",
        action="store_true",
        help="show prompt-cache hits and misses instead, by session, agent, tenant or model",
    )
    add(
        "--since",
        type=parse_time,
        default=0.0,
        metavar="DATE",
        help="only calls since then: 2026-11-16 (UTC), today, yesterday, 12h, 7d",
    )
    add("--json", action="store_true", help="print the rows and the total as JSON")
    add("--csv", action="store_true", help="print the rows as CSV")
    add_caller_option(parser, "only runs of this caller")
    add_log_options(parser, "only sessions of this tenant")


def execute(options: argparse.Namespace) -> int:
    if options.cache:
        return _show_cache(options)
    if options.json and options.csv:
        raise MisuseError("--json and --csv cannot be combined")
    booked = [entry for entry in asyncio.run(_read_entries(options)) if entry.at >= options.since]
    by = options.by or ("call" if options.session else "session")
    if by != BY_TOOL:
        booked = [entry for entry in booked if entry.outcome != "program"]
    table, whole = make_rows(booked, by), make_total(booked, by)
    if options.json:
        print_json({"rows": table, "total": whole})
    elif options.csv:
        writer = csv.DictWriter(sys.stdout, CostRow.__struct_fields__, lineterminator="\n")
        writer.writeheader()
        writer.writerows(_row_as_csv(row) for row in table)
    elif not booked:
        print_line("nothing spent: the log has no model call, or none that recent")
    else:
        for line in format_rows(table, whole, options.session, by):
            print_line(line)
        if simulated := [entry.usd for entry in booked if entry.model.startswith(SIMULATED_PREFIX)]:
            print_line(_explain_simulated(simulated, is_all=len(simulated) == len(booked)))
    return 0


def _show_cache(options: argparse.Namespace) -> int:
    if options.csv or options.since or options.caller is not None:
        raise MisuseError("--cache takes --by, --tenant and --json; not --csv, --since and --caller")
    if options.by not in (None, *cache.CACHE_GROUP_KEYS):
        keys = ", ".join(cache.CACHE_GROUP_KEYS)
        raise MisuseError(f"--cache groups by one of: {keys}; not by {options.by}")
    return cache.execute(options)


def _explain_simulated(costs: Sequence[Decimal | None], *, is_all: bool) -> str:
    if is_all:
        return "simulated: no real model was asked, nothing was paid"
    usd = sum((each for each in costs if each is not None), Decimal(0))
    return f"${usd:.6f} of it is simulated, and not paid"


def make_rows(booked: Iterable[LedgerEntry], by: str) -> list[CostRow]:
    """Most expensive first; days, steps and calls in their own order."""
    found: dict[str, CostRow] = {}
    for entry in booked:
        for name, usd, usage, tokens, calls in _split_entry(entry, by):
            found.setdefault(name, CostRow(name=name)).add(entry, usd, usage, tokens, calls)
    table = list(found.values())
    if by in ("day", "step", "call"):
        return table if by != "day" else sorted(table, key=lambda row: row.name)
    return sorted(table, key=lambda row: (row.usd is None, row.usd or 0, row.tokens), reverse=True)


def make_total(booked: Iterable[LedgerEntry], by: str = "") -> CostRow:
    whole = CostRow(name="total")
    for entry in booked:
        calls = entry.tool_calls if by == BY_TOOL else _count_model_calls(entry)
        whole.add(entry, entry.usd, entry.usage, entry.usage.total, calls)
    return whole


def _count_model_calls(entry: LedgerEntry) -> int:
    return int(entry.outcome != "stored")


CostShare = tuple[str, Decimal | None, Usage, int, int]


def _split_entry(entry: LedgerEntry, by: str) -> list[CostShare]:
    if by != BY_TOOL:
        return [
            (COST_GROUP_KEYS[by](entry), entry.usd, entry.usage, entry.usage.total, _count_model_calls(entry))
        ]
    pieces: list[CostShare] = []
    left_usd, left_tokens = entry.usd, entry.usage.total
    for share in entry.shares:
        tokens = share.schema_tokens + share.result_tokens + share.call_tokens
        pieces.append((share.tool, share.usd, Usage(), tokens, share.calls))
        left_usd = None if left_usd is None or share.usd is None else left_usd - share.usd
        left_tokens -= tokens
    return [*pieces, (CONVERSATION_SHARE, left_usd, Usage(), left_tokens, 0)]


async def _read_entries(options: argparse.Namespace) -> list[LedgerEntry]:
    async with use_log(options.store) as store:
        if options.session:
            await read_session(store, options.session, tenant_of(options), caller=options.caller)
            found = await list_session_entries(store, options.session, tenant_of(options))
        else:
            found = await list_all_entries(store, tenant_of(options))
        return [entry for entry in found if options.caller in (None, entry.caller)]


async def list_all_entries(store: Store, tenant: str | None = None) -> list[LedgerEntry]:
    booked: list[LedgerEntry] = []
    drawn: list[LedgerEntry] = []
    for info in await list_sessions(store, ALL_SESSIONS):
        records = await _read_records(store, info.id)
        if not belongs_to_tenant(records, tenant):
            continue
        # Records that a fork shares with its parent are charged to the parent.
        booked += [entry for entry in list_entries(info.id, records) if entry.seq > info.forked_at]
        drawn += [entry for entry in list_nested_charges(records) if entry.seq > info.forked_at]
    # The calls behind a remainder are entries of the subrun's own log.
    logged = {entry.session for entry in booked}
    drawn = [
        entry for entry in drawn if not (entry.id.endswith(REMAINDER_SUFFIX) and entry.session in logged)
    ]
    return [*booked, *_entries_without_log(drawn, booked)]


async def list_session_entries(store: Store, session: str, tenant: str | None = None) -> list[LedgerEntry]:
    """Calls of a session and of its nested runs, each from its own log."""
    records = await read_session(store, session, tenant)
    booked, drawn = list(list_entries(session, records)), list_nested_charges(records)
    ids = {entry.id for entry in drawn}
    started = (record.event.session for record in records if isinstance(record.event, SubrunStarted))
    for inner in dict.fromkeys((*started, *(entry.session for entry in drawn))):
        theirs = list_entries(inner, await _read_records(store, inner))
        booked += [entry for entry in theirs if entry.id in ids or entry.outcome == "program"]
    return [*booked, *_entries_without_log(drawn, booked)]


def _entries_without_log(drawn: Iterable[LedgerEntry], booked: Iterable[LedgerEntry]) -> list[LedgerEntry]:
    """Charges of nested runs whose own log is not in this store, each once."""
    known = {entry.id for entry in booked if entry.id}
    return list({entry.id: entry for entry in drawn if entry.id not in known}.values())


async def _read_records(store: Store, session: str) -> Sequence[Record]:
    try:
        return await store.read(session)
    except Corrupt as error:
        # One damaged session must not hide the others, and must be reported.
        print_error(f"session {session} is not included: {error}")
        return ()


def _add_usd(one: Decimal | None, other: Decimal | None) -> Decimal | None:
    return None if one is None or other is None else one + other


def _row_as_csv(row: CostRow) -> dict[str, str | int]:
    return {
        name: "" if (value := getattr(row, name)) is None else f"{value:f}" if name.endswith("usd") else value
        for name in CostRow.__struct_fields__
    } | {"name": escape_text(row.name)}


def format_rows(table: Sequence[CostRow], whole: CostRow, session: str | None, by: str) -> Iterable[str]:
    """A line per row; names that do not fit are cut, and complete in --json and --csv."""
    names = [*(escape_text(row.name).removeprefix(f"{session} ") for row in table), whole.name]
    width = min(max(map(display_width, names)), screen_width() - NUMBERS_WIDTH)
    numbers = _tool_numbers if by == BY_TOOL else _model_numbers
    yield f"{'':<{width}}  {numbers(None, whole)}"
    for name, row in zip(names, [*table, whole], strict=True):
        yield f"{pad_text(_fit_name(name, width), width)}  {numbers(row, whole)}"
        apart = [
            f"{count:,} {what}" for what in ("failed", "cancelled", "lost") if (count := getattr(row, what))
        ]
        apart += [
            f"{count:,} {name.replace('_', ' ')}" for name in HOSTED_COUNTS if (count := getattr(row, name))
        ]
        if row.wasted_usd:
            apart.append(f"${row.wasted_usd:.6f} wasted")
        elif row.wasted_usd is None:
            apart.append("wasted cost unknown")
        if apart and by != "call":  # the name of the row contains it
            told = ", ".join(apart)
            yield f"{'':<{min(width + 4, max(2, screen_width() - len(told)))}}{told}"


def _fit_name(name: str, width: int) -> str:
    """Cut a name; of a step or call the name of its session, so that its number stays."""
    session, space, step = name.rpartition(" ")
    if display_width(name) <= width or not space or display_width(step) + 2 > width:
        return fit_line(name, width)
    return f"{fit_line(session, width - display_width(step) - 1)} {step}"


def _model_numbers(row: CostRow | None, whole: CostRow) -> str:
    if row is None:
        return f"{'calls':>5} {'all tokens':>10} {'from cache':>10} {'output':>8} {'US dollars':>11}"
    counts = f"{row.calls:>5,} {row.tokens:>10,} {row.cache_read:>10,} {row.output:>8,}"
    return f"{counts} {_format_usd(row.usd):>11}"


def _tool_numbers(row: CostRow | None, whole: CostRow) -> str:
    """Tokens of a tool are its share of prompts and replies, so they are not divided further."""
    if row is None:
        return f"{'calls':>5} {'tokens':>10} {'dollars':>11} {'share':>6}"
    share = "" if row.usd is None or not whole.usd else f"{row.usd / whole.usd:.0%}"
    return f"{row.calls:>5,} {row.tokens:>10,} {_format_usd(row.usd):>11} {share:>6}"


def _format_usd(usd: Decimal | None) -> str:
    return "unknown" if usd is None else f"{usd:.6f}"
