"""List recent sessions, newest first."""

import argparse
import asyncio
from collections.abc import Iterator, Sequence

from bridle.cli.format.columns import display_width, fit_line, format_table, pad_text, screen_width, trim_line
from bridle.cli.format.printing import print_json, print_line
from bridle.cli.log_access import (
    add_store_option,
    add_tenant_option,
    fold_state,
    format_local_time,
    use_log,
)
from bridle.cli.option_values import make_count_parser
from bridle.core.lineage.compare import describe_end
from bridle.ports.store import SessionInfo, Store
from bridle.run.archive.sessions import find_people, list_sessions_of
from bridle.run.lineage import first_prompt_text
from bridle.values.errors import Corrupt
from bridle.watchers.console import format_count, format_dollars

PROMPT_WIDTH_MIN = 24
"""Columns below which the prompt gets a line of its own."""
SessionListRow = dict[str, str | int | float | list[str] | None]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--limit",
        type=make_count_parser(1),
        default=20,
        metavar="N",
        help="maximum number of sessions (default 20)",
    )
    parser.add_argument("--caller", metavar="X", help="only sessions in which this caller prompted")
    add_tenant_option(parser, "only sessions of this tenant")
    parser.add_argument("--json", action="store_true", help="print one JSON list")
    add_store_option(parser)


def execute(options: argparse.Namespace) -> int:
    rows = asyncio.run(_read_rows(options))
    if options.json:
        print_json(rows)
    elif not rows and (options.caller is not None or options.tenant is not None):
        print_line("no session matches")
    elif not rows:
        print_line('no sessions yet; start one with: bridle run "What is 17 * 23 minus 100?"')
    else:
        for line in _format_sessions(rows):
            print_line(line)
    return 0


def _format_sessions(rows: Sequence[SessionListRow]) -> Iterator[str]:
    """One line per session, two on a narrow screen, so that only the prompt is cut."""
    width = screen_width()
    heads = format_table([*map(_row_cells, rows)], right=(3, 4))
    models = max(display_width(str(row["model"])) for row in rows)
    room = width - max(map(display_width, heads)) - 2
    for head, row in zip(heads, rows, strict=True):
        details = f"{pad_text(str(row['model']), models)}  {fit_line(str(row['prompt']), width)}"
        if room >= models + 2 + PROMPT_WIDTH_MIN:
            yield f"{head}  {trim_line(details, room)}"
        else:
            yield trim_line(head, width)
            yield trim_line(f"  {details}", width)


def _row_cells(row: SessionListRow) -> tuple[str, ...]:
    cost = format_dollars(None if row["cost"] is None else float(str(row["cost"])))
    when = format_local_time(float(str(row["updated_at"])))
    return str(row["session"]), when, str(row["ended"]), format_count(int(str(row["steps"])), "step"), cost


async def _read_rows(options: argparse.Namespace) -> list[SessionListRow]:
    async with use_log(options.store) as store:
        infos = await list_sessions_of(store, options.limit, tenant=options.tenant, caller=options.caller)
        return [await _read_row(store, info) for info in infos]


async def _read_row(store: Store, info: SessionInfo) -> SessionListRow:
    try:
        records = await store.read(info.id)
    except Corrupt as error:
        # One damaged session must not hide the others.
        return {
            "session": info.id,
            "updated_at": info.updated_at,
            "ended": "torn" if error.torn else "corrupt",
            "steps": 0,
            "tokens": 0,
            "cost": None,
            "model": "",
            "parent": info.parent or None,
            "tenant": "",
            "callers": [],
            "prompt": str(error),
        }
    state = fold_state(records)
    usd, people = state.totals.spent.usd, find_people(records)
    return {
        "session": info.id,
        "updated_at": info.updated_at,
        "ended": describe_end(state),
        "steps": state.totals.spent.steps,
        "tokens": state.totals.spent.usage.total,
        "cost": None if usd is None else float(usd),
        "model": state.settings.model.name,
        "parent": info.parent or None,
        "tenant": people.tenant,
        "callers": list(people.callers),
        "prompt": first_prompt_text(records),
    }
