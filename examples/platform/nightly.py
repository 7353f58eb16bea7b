"""Writes one letter for every late order. Kill it at any time and start it again: no letter is sent twice.

python examples/platform/nightly.py --date 2026-11-18
"""

import argparse
import asyncio
import datetime
import sys

from bridle.errors import SessionNotFound
from shop import ORDERS, Order
from support_agents import letters, open_desk

EXIT_UNFINISHED = 3


async def write_letter(date: str, number: int, order: Order) -> str:
    """Continue the run of this night and order, or begin it; returns how it ended."""
    session, desk = f"nightly-{date}-{order.tenant}-{number}", open_desk((order.tenant, order.customer))
    try:
        result = await letters.resume(session, context=desk)  # returns the answer if there is one
    except SessionNotFound:
        prompt = f"Order {number} is late."
        result = await letters.run(prompt, session, tenant=desk.tenant, caller=desk.customer, context=desk)
    return result.stop


async def write_letters(date: str, jobs: int) -> int:
    """Write the letters that are missing, `jobs` at a time; returns how many could not be written."""
    waiting, unfinished = iter([each for each in ORDERS.items() if each[1].is_late]), 0

    async def work() -> None:
        nonlocal unfinished
        for number, order in waiting:
            stop = await write_letter(date, number, order)
            unfinished += stop != "done"
            print(f"order {number}: {stop}", file=sys.stderr, flush=True)

    async with asyncio.TaskGroup() as group:
        for _ in range(jobs):
            group.create_task(work())
    return unfinished


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--date", default=datetime.datetime.now(datetime.UTC).date().isoformat(), help="of the night"
    )
    parser.add_argument("--jobs", type=int, default=4)
    given = parser.parse_args()
    return EXIT_UNFINISHED if asyncio.run(write_letters(given.date, given.jobs)) else 0


if __name__ == "__main__":
    sys.exit(main())
