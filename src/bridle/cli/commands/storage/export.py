"""Write a session as lines of JSON, byte for byte as it was recorded.

`bridle session import` reads the file into another store and verifies it. Forks are written with the records that they
share. Importing and exporting again gives the same bytes. `--as-test` writes a regression test of the session.
"""

import argparse
import asyncio
import errno
import os
import sys
from pathlib import Path
from typing import BinaryIO

from bridle.cli.commands.replay.replay import write_log_test
from bridle.cli.format.printing import print_line
from bridle.cli.log_access import add_caller_option, add_log_options, read_session, tenant_of, use_log
from bridle.cli.session_names import add_session_argument
from bridle.run.archive.transfer import export_session
from bridle.values.errors import MisuseError, Unusable

STANDARD_OUTPUT = "-"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add_session_argument(parser)
    add(
        "-o",
        "--output",
        metavar="FILE",
        default=STANDARD_OUTPUT,
        help="file to write (default: standard output)",
    )
    add(
        "--no-blobs", action="store_true", help="leave out long tool results, which are stored beside the log"
    )
    add(
        "--as-test",
        metavar="FILE.py",
        help="write a test that replays the session, with its log beside it, instead of an export",
    )
    add("-a", "--agent", metavar="FILE.toml", help="with --as-test: the agent file that the test uses")
    parser.set_defaults(json=False)
    add_caller_option(parser)
    add_log_options(parser)


def execute(options: argparse.Namespace) -> int:
    if options.caller is not None:
        asyncio.run(_check_caller(options))
    if options.as_test:
        return asyncio.run(write_log_test(options))
    if options.output == STANDARD_OUTPUT:
        asyncio.run(_write(options, sys.stdout.buffer))
        sys.stdout.buffer.flush()
        return 0
    try:
        # O_EXCL: an existing file is never overwritten, because it may be the only copy of a session.
        descriptor = os.open(options.output, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise MisuseError(f"{options.output} exists; choose another file with -o") from None
    except OSError as error:
        raise _explain(options.output, error) from error
    try:
        with os.fdopen(descriptor, "wb") as file:
            count = asyncio.run(_write(options, file))
            file.flush()
            os.fsync(file.fileno())
    except BaseException as error:
        Path(options.output).unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise _explain(options.output, error) from error
        raise
    print_line(f"{options.session}: {count:,} lines written to {options.output}", file=sys.stderr)
    return 0


def _explain(path: str, error: OSError) -> Unusable:
    remedy = "the disk is full; make room, or " if error.errno == errno.ENOSPC else ""
    return Unusable(f"{path} cannot be written ({error.strerror}); {remedy}choose another file with -o")


async def _check_caller(options: argparse.Namespace) -> None:
    async with use_log(options.store) as store:
        await read_session(store, options.session, tenant_of(options), caller=options.caller)


async def _write(options: argparse.Namespace, out: BinaryIO) -> int:
    count = 0
    async with use_log(options.store) as store:
        await read_session(store, options.session, tenant_of(options))
        async for line in export_session(store, options.session, blobs=not options.no_blobs):
            out.write(line)
            count += 1
    return count
