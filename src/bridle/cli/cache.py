"""Show what the prompt cache gave at every call of a session, what it should have given, and why it did not.

A bar is one prompt: █ read from the cache, ▒ missed though it was there to be read, · new.
"""

import argparse
import asyncio
import sys
from collections.abc import Sequence

import msgspec

from ..core.forensics import VERDICTS, CacheCall, CacheSum, examined, summed
from ..values.record import Record
from ..watchers.console import brief, clean, dollars
from .logs import read_session
from .places import add_store_option, open_log

BAR_WIDTH = 24


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("session", help="its id, as `bridle sessions` lists it")
    parser.add_argument("--json", action="store_true", help="print the calls and their sum as JSON")
    add_store_option(parser)


def execute(options: argparse.Namespace) -> int:
    calls = examined(asyncio.run(_read(options)))
    total = summed(calls)
    if options.json:
        told = {"session": options.session, "hit_rate": total.hit_rate, "sum": total, "calls": calls}
        sys.stdout.write(msgspec.json.encode(told).decode() + "\n")
        return 0
    for line in (*_table(calls), *_ending(total)):
        print(clean(line))
    return 0


async def _read(options: argparse.Namespace) -> Sequence[Record]:
    store = open_log(options.store, to_read=True)
    try:
        return await read_session(store, options.session)
    finally:
        await store.close()


def _table(calls: Sequence[CacheCall]) -> list[str]:
    if not calls:
        return ["no call was answered in this session"]
    head = f"{'call':>4} {'prompt':>9} {'expected':>9} {'read':>9} {'written':>9}  {'':{BAR_WIDTH}}  verdict"
    return [head, *map(_row, calls)]


def _row(call: CacheCall) -> str:
    counts = " ".join(f"{count:>9,}" for count in (call.prompt, call.expected, call.read, call.written))
    cost = f" {dollars(None if call.usd is None else float(call.usd))}" if call.missed else ""
    why = f"  {brief(call.why)}" if call.why else ""
    return f"{call.number:>4} {counts}  {_bar(call)}  {call.verdict}{cost}{why}"


def _bar(call: CacheCall) -> str:
    if not call.prompt:
        return " " * BAR_WIDTH
    read = round(BAR_WIDTH * call.read / call.prompt)
    missed = min(BAR_WIDTH - read, round(BAR_WIDTH * call.missed / call.prompt))
    return "█" * read + "▒" * missed + "·" * (BAR_WIDTH - read - missed)


def _ending(total: CacheSum) -> list[str]:
    if not total.calls:
        return []
    rate = "nothing could be read" if total.hit_rate is None else f"hit rate {total.hit_rate:.1%}"
    lost = dollars(None if total.usd is None else float(total.usd))
    missed = f" · {total.missed:,} tokens missed, {lost}" if total.missed else ""
    told = [
        f"  {verdict:<10} {total.verdicts[verdict]:>4}  {what}"
        for verdict, what in VERDICTS.items()
        if verdict in total.verdicts
    ]
    return ["", f"{rate} · {total.read:,} of {total.expected:,} tokens read{missed}", *told]
