"""Copy the log to a new file while it is in use, and verify the copy."""

import argparse
import asyncio
from pathlib import Path

from bridle.cli.format.printing import print_json, print_line
from bridle.cli.log_access import add_store_option, use_log
from bridle.ports.store import PrunableStore, supports
from bridle.run.recovery.verification import verify_store
from bridle.stores.sqlite.maintenance import seal_file
from bridle.stores.sqlite.store import SqliteStore
from bridle.values.errors import Corrupt, MisuseError, Unusable
from bridle.watchers.console import format_count


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", help="file to create; it must not exist")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    add_store_option(parser)


def execute(options: argparse.Namespace) -> int:
    target = Path(options.file).absolute()
    sessions, records = asyncio.run(_back_up(options.store, target))
    size = target.stat().st_size
    if options.json:
        print_json({"file": str(target), "bytes": size, "sessions": sessions, "records": records})
    else:
        counts = f"{format_count(sessions, 'session')}, {format_count(records, 'record')}"
        print_line(f"{target}: {counts}, {size:,} bytes; verified")
    return 0


async def _back_up(given: str | None, target: Path) -> tuple[int, int]:
    async with use_log(given) as store:
        if not supports(store, PrunableStore):
            raise MisuseError("this store is not a file; back it up with the tools of its database")
        await store.back_up(target)
    return await verify_copy(target)


async def verify_copy(target: Path) -> tuple[int, int]:
    """The sessions and records of a copy; raises `Corrupt` if it is damaged, and removes one that cannot be read."""
    try:
        copy = SqliteStore(target)
        try:
            sessions, problems = await verify_store(copy, {})
        finally:
            await copy.close()
        seal_file(target)
    except Unusable:
        # A full disk, perhaps: a copy that could not be verified is none.
        for ending in ("", "-wal", "-shm"):
            target.with_name(target.name + ending).unlink(missing_ok=True)
        raise
    if found := [*problems, *(each for session in sessions for each in session.problems)]:
        raise Corrupt(
            f"the copy {target} has {format_count(len(found), 'problem')}, the first: {found[0].text}"
        )
    return len(sessions), sum(session.length for session in sessions)
