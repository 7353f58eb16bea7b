"""Follow a session while another process runs it: print its events as they are recorded.

Starts with the latest prompt, or after record SEQ with --since. Ends with the run;
with --follow it waits for the next one. Ctrl-C ends the command, not the run. On a
terminal, one line shows the end of a reply that a worker is receiving.
"""

import argparse
import asyncio
import sys
from collections.abc import Sequence

from bridle.cli.format.columns import is_color_output, screen_width
from bridle.cli.format.printing import print_line
from bridle.cli.log_access import (
    add_across_option,
    add_store_option,
    add_tenant_option,
    fold_state,
    open_log,
    read_session,
    tenant_of,
)
from bridle.cli.option_values import make_count_parser
from bridle.cli.session_names import add_session_argument
from bridle.core.recovery.log_repair import LogReader
from bridle.ports.store import Store, WatchableStore, supports
from bridle.run.control.live import LiveView
from bridle.values import events as e
from bridle.values.record import Record
from bridle.values.result import Delta
from bridle.values.text import escape_text
from bridle.watchers.jsonl import encode_record_line

from .transcript import SessionPrinter, format_head, format_totals

# not from outside: time that we wait for our own work
POLL_SECONDS_MIN, POLL_SECONDS_MAX = 0.1, 1.0
"""Time between two looks at the log of a store that cannot be watched: doubled while nothing is new."""
PAGE_RECORDS = 1000
"""Records that are read and printed at once."""
LIVE_CHARACTERS, CLEAR_LINE = 1_000, "\r\x1b[K"
FOLLOWING = "waiting for more; Ctrl-C ends the command, not the run"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add_session_argument(parser)
    add("--since", type=make_count_parser(0), metavar="SEQ", help="start after this record (0: all of them)")
    add("--follow", action="store_true", help="stay when the run ends, until Ctrl-C")
    add("--json", action="store_true", help="print every record as a line of JSON")
    add_tenant_option(parser)
    add_across_option(parser)
    add_store_option(parser)


def execute(options: argparse.Namespace) -> int:
    asyncio.run(_follow_session(options))
    return 0


async def _follow_session(options: argparse.Namespace) -> None:
    store = open_log(options.store, to_read=True)
    try:
        records = await read_session(store, options.session, tenant_of(options))
        follower = SessionFollower(options, records, LiveView(store, options.session))
        while options.follow or follower.is_running:
            follower.show_deltas(await _wait_for_more(store, follower))
            follower.take(await store.read(options.session, follower.length, PAGE_RECORDS))
        follower.finish()
    finally:
        await store.close()


async def _wait_for_more(store: Store, follower: "SessionFollower") -> Sequence[Delta]:
    """Wait for records of another process; returns the deltas of a reply if these come first."""
    if supports(store, WatchableStore):
        return await follower.view.wait(follower.length)
    pause = POLL_SECONDS_MIN
    while not await store.read(follower.session, follower.length, 1):
        await asyncio.sleep(pause)
        pause = min(2 * pause, POLL_SECONDS_MAX)
    return ()


class SessionFollower:
    """Prints records as they arrive, and knows whether the run goes on."""

    def __init__(self, options: argparse.Namespace, records: Sequence[Record], view: LiveView) -> None:
        """Print the records to start with."""
        self.session, self._as_json, self.view = options.session, options.json, view
        self._is_live = not options.json and sys.stdout.isatty() and sys.stderr.isatty()
        self._live_text = ""
        self._reader, self.length, self.is_running = LogReader(), 0, False
        self._printer = SessionPrinter(colour=is_color_output(), wraps=sys.stdout.isatty())
        self._printer.begin(self.session, records[0].at)
        after = _latest_prompt(records) if options.since is None else options.since
        self._read([record for record in records if record.seq <= after], shown=False)
        if not self._as_json:
            colour = is_color_output()
            head = format_head(self.session, fold_state(records), records[0].at, colour=colour)
            print_line(head, styles=colour)
        self.take([record for record in records if record.seq > after])
        if sys.stderr.isatty() and (self.is_running or options.follow):
            print_line(FOLLOWING, file=sys.stderr)

    def take(self, records: Sequence[Record]) -> None:
        """Print new records, in place of the text that is shown of a reply."""
        if records and self._live_text:
            self._live_text = ""
            sys.stderr.write(CLEAR_LINE)
            sys.stderr.flush()
        self._read(records, shown=True)

    def show_deltas(self, deltas: Sequence[Delta]) -> None:
        """Show the end of the reply that is being written, in one line of the terminal that changes."""
        self._live_text = (self._live_text + "".join(delta.text for delta in deltas))[-LIVE_CHARACTERS:]
        if deltas and self._is_live:
            line = escape_text(" ".join(self._live_text.split()))[-(screen_width() - 1) :]
            sys.stderr.write(f"{CLEAR_LINE}{line}")
            sys.stderr.flush()

    def finish(self) -> None:
        """Print the totals of the session."""
        if not self._as_json:
            for line in ("", *format_totals(self._reader.state)):
                print_line(line)

    def _read(self, records: Sequence[Record], *, shown: bool) -> None:
        for record in records:
            self._reader.apply_record(record)
            self.view.take(record)
            self.length = record.seq
            if isinstance(record.event, e.Prompted | e.Resumed | e.RunEnded):
                self.is_running = not isinstance(record.event, e.RunEnded)
            if self._as_json and shown:
                print_line(encode_record_line(self.session, record))
        if not self._as_json:
            self._printer.print_records(records, self._reader.state, shown=shown)
        sys.stdout.flush()


def _latest_prompt(records: Sequence[Record]) -> int:
    """Number of the record before the latest prompt."""
    prompts = [record.seq for record in records if isinstance(record.event, e.Prompted)]
    return prompts[-1] - 1 if prompts else 0
