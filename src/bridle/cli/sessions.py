"""List what was run, newest first."""

import argparse
import asyncio
from collections.abc import Iterator, Sequence

from ..core.comparing import ending
from ..ports.store import SessionInfo, Store
from ..values.errors import Corrupt
from ..watchers.console import dollars, plural
from .columns import cells, cut, padded, screen_width, table, trimmed
from .logs import first_words, fold, listed, local_time
from .numbers import count_of
from .places import add_store_option, open_log
from .printing import say, say_json

WORDS_LEAST = 24
"""Columns for what was said, below which it has a line of its own."""
Row = dict[str, str | int | float | None]


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--limit", type=count_of(1), default=20, metavar="N", help="how many at most (default 20)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON list")
    add_store_option(parser)


def execute(options: argparse.Namespace) -> int:
    rows = asyncio.run(_rows(options))
    if options.json:
        say_json(rows)
    elif not rows:
        say('no sessions yet; start one with: bridle run "What is 17 * 23 minus 100?"')
    else:
        for line in _listed(rows):
            say(line)
    return 0


def _listed(rows: Sequence[Row]) -> Iterator[str]:
    """A line each; on a narrow screen two, so that nothing but what was said is ever cut short."""
    width = screen_width()
    heads = table([*map(_facts, rows)], right=(3, 4))
    models = max(cells(str(row["model"])) for row in rows)
    room = width - max(map(cells, heads)) - 2
    for head, row in zip(heads, rows, strict=True):
        told = f"{padded(str(row['model']), models)}  {cut(str(row['prompt']), width)}"
        if room >= models + 2 + WORDS_LEAST:
            yield f"{head}  {trimmed(told, room)}"
        else:
            yield trimmed(head, width)
            yield trimmed(f"  {told}", width)


def _facts(row: Row) -> tuple[str, ...]:
    cost = dollars(None if row["cost"] is None else float(str(row["cost"])))
    when = local_time(float(str(row["updated_at"])))
    return str(row["session"]), when, str(row["ended"]), plural(int(str(row["steps"])), "step"), cost


async def _rows(options: argparse.Namespace) -> list[Row]:
    store = open_log(options.store, to_read=True)
    try:
        return [await _row(store, info) for info in await listed(store, options.limit)]
    finally:
        await store.close()


async def _row(store: Store, info: SessionInfo) -> Row:
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
            "prompt": str(error),
        }
    state = fold(records)
    usd = state.total.usd
    return {
        "session": info.id,
        "updated_at": info.updated_at,
        "ended": ending(state),
        "steps": state.total.steps,
        "tokens": state.total.usage.total,
        "cost": None if usd is None else float(usd),
        "model": state.settings.model.name,
        "parent": info.parent or None,
        "prompt": first_words(records),
    }
