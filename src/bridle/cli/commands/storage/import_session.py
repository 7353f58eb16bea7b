"""Read a session that `bridle session export` wrote into the log.

Every record is verified against the hash chain before anything is written. A session that exists is not changed.
"""

import argparse
import asyncio
import sys
from pathlib import Path
from typing import BinaryIO

from bridle.cli.format.printing import print_json, print_line
from bridle.cli.log_access import add_store_option, use_log
from bridle.run.archive.transfer import ImportedSession, import_session, limit_lines
from bridle.values.errors import MisuseError

STANDARD_INPUT = "-"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", help="file that `bridle session export` wrote; `-` is standard input")
    parser.add_argument("--as", dest="name", default="", metavar="NAME", help="name of the session here")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    add_store_option(parser)


def execute(options: argparse.Namespace) -> int:
    if options.file == STANDARD_INPUT:
        imported = asyncio.run(_read(options, sys.stdin.buffer))
    else:
        try:
            with Path(options.file).open("rb") as file:
                imported = asyncio.run(_read(options, file))
        except OSError as error:
            raise MisuseError(f"{options.file} cannot be read: {error.strerror}") from None
    if options.json:
        print_json(imported)
    else:
        shared = f", {imported.shared} of them shared with {imported.parent}" if imported.shared else ""
        print_line(f"{imported.session}: {imported.records:,} records verified and imported{shared}")
        if subruns := ", ".join(imported.subruns):
            print_line(f"imported with it: {subruns} (runs inside its tools)")
        if missing := ", ".join(imported.missing_subruns):
            print_line(f"not in this store: {missing} (runs inside its tools; export and import them too)")
    return 0


async def _read(options: argparse.Namespace, file: BinaryIO) -> ImportedSession:
    async with use_log(options.store, to_read=False) as store:
        return await import_session(store, limit_lines(file), name=options.name)
