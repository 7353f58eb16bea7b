"""Put a backup in the place of the log, after it was verified; the old log is kept under another name."""

import argparse
import asyncio
from pathlib import Path

from bridle.cli.format.printing import print_json, print_line
from bridle.cli.log_access import add_store_option, store_path
from bridle.stores.sqlite.restore import restore_file
from bridle.values.errors import Corrupt, MisuseError
from bridle.watchers.console import format_count

from .backup import verify_copy


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", help="copy that bridle store backup has made")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    add_store_option(parser)


def execute(options: argparse.Namespace) -> int:
    backup, given = Path(options.file).absolute(), store_path(options.store)
    if "://" in given:
        raise MisuseError("this store is not a file; restore it with the tools of its database")
    store = Path(given).absolute()

    def verify(copy: Path) -> tuple[int, int]:
        try:
            return asyncio.run(verify_copy(copy))
        except Corrupt as error:
            raise Corrupt(f"{backup} is damaged, and was not put in place: {error}") from error

    (sessions, records), kept = restore_file(backup, store, verify)
    if options.json:
        old = None if kept is None else str(kept)
        print_json({"file": str(store), "old": old, "sessions": sessions, "records": records})
        return 0
    counts = f"{format_count(sessions, 'session')}, {format_count(records, 'record')}"
    print_line(f"{store}: {counts}; verified")
    if kept is not None:
        print_line(f"the log that was here is {kept}; remove it when you do not need it")
    return 0
