"""List what was run, newest first."""

import argparse
import asyncio

import msgspec

from ..ports.store import SessionInfo, Store
from ..values.errors import Corrupt
from ..watchers.console import brief, clean, dollars
from .logs import ending, first_words, fold, listed, local_time
from .places import add_store_option, open_log


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--limit", type=int, default=20, metavar="N", help="how many at most (default 20)")
    parser.add_argument("--json", action="store_true", help="print one JSON list")
    add_store_option(parser)


def execute(options: argparse.Namespace) -> int:
    rows = asyncio.run(_rows(options))
    if options.json:
        print(msgspec.json.encode(rows).decode())
    elif not rows:
        print('no sessions yet; start one with: bridle run "What is 17 * 23 minus 100?"')
    else:
        for row in rows:
            cost = dollars(None if row["cost"] is None else float(str(row["cost"])))
            print(
                f"{row['session']}  {local_time(float(str(row['updated_at'])))}  {row['ended']:<11}"
                f" {row['steps']:>3} steps  {cost:>9}  {row['model']}  {brief(clean(str(row['prompt'])), 48)}"
            )
    return 0


async def _rows(options: argparse.Namespace) -> list[dict[str, str | int | float | None]]:
    store = open_log(options.store, to_read=True)
    try:
        return [await _row(store, info) for info in await listed(store, options.limit)]
    finally:
        await store.close()


async def _row(store: Store, info: SessionInfo) -> dict[str, str | int | float | None]:
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
