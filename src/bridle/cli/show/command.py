"""Show what happened in a session: messages, tool calls, cost, and how it ended.

--as chooses the form:

  --as transcript   messages, calls and results in order, with costs (default)
  --as timeline     a bar for each model call, tool, wait and approval
  --as tree         runs, turns, calls and runs inside tools, with durations
  --as events       every record of the log
  --as log          messages with the ids that `bridle session fork --at` takes
  --as raw          the requests that were sent, proven by their digests
  --as cache        prompt-cache hits, and the reason for each miss
  --as cost         spending, call by call
  --as audit        who decided what, when, and under which policy

`bridle help show --as raw` explains the options of a view.
"""

import argparse
import asyncio
import sys
from collections.abc import Sequence

from bridle.cli.command_table import OWN_VIEWS, VIEWS
from bridle.cli.format.columns import is_color_output
from bridle.cli.format.printing import print_json, print_line, write_raw
from bridle.cli.log_access import add_log_options, fold_state, read_session, tenant_of, use_log
from bridle.cli.session_names import add_latest_argument
from bridle.ports.store import Store
from bridle.values.errors import MisuseError
from bridle.values.record import Record
from bridle.watchers.jsonl import encode_record_line

from .trace_tree import TraceNode, read_trace
from .trace_views import describe_node, describe_rows, format_timeline, format_tree
from .transcript import SessionPrinter, format_events, format_head, format_totals

TRACE_VIEWS = ("timeline", "tree")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add_latest_argument(parser)
    add(
        "--as",
        dest="view",
        choices=[*OWN_VIEWS, *VIEWS],
        default=OWN_VIEWS[0],
        metavar="VIEW",
        help="one of the forms above (default: transcript)",
    )
    add("--json", action="store_true", help="print records as lines of JSON; spans with timeline and tree")
    add("--result", metavar="HANDLE", help="print only this stored tool result, in full")
    add_log_options(parser)


def execute(options: argparse.Namespace) -> int:
    return asyncio.run(_show_session(options))


async def _show_session(options: argparse.Namespace) -> int:
    async with use_log(options.store) as store:
        records = await read_session(store, options.session, tenant_of(options))
        if options.result:
            write_raw(await _read_result(store, options, records))
        elif options.view in TRACE_VIEWS:
            _print_trace(options, records, await read_trace(store, options.session, records))
        else:
            _print_records(options, records)
    return 0


def _print_records(options: argparse.Namespace, records: Sequence[Record]) -> None:
    if options.json:
        for record in records:
            print_line(encode_record_line(options.session, record))
    elif options.view == "events":
        for line in format_events(options.session, records):
            print_line(line)
    else:
        printer = SessionPrinter(colour=is_color_output(), wraps=sys.stdout.isatty())
        printer.print_session(options.session, records)


def _print_trace(options: argparse.Namespace, records: Sequence[Record], runs: Sequence[TraceNode]) -> None:
    is_tree = options.view == "tree"
    if options.json:
        found = [*map(describe_node, runs)] if is_tree else [*describe_rows(runs)]
        print_json({"session": options.session, "runs" if is_tree else "rows": found})
        return
    state, colour = fold_state(records), is_color_output()
    print_line(format_head(options.session, state, records[0].at, colour=colour), styles=colour)
    for line in ("", *(format_tree(runs) if is_tree else format_timeline(runs)), ""):
        print_line(line, styles=colour)
    for line in format_totals(state):
        print_line(line)


async def _read_result(store: Store, options: argparse.Namespace, records: Sequence[Record]) -> str:
    """A tool result that is stored whole."""
    wholes = fold_state(records).calls.stored_results
    found = next((whole for whole in wholes if whole.hash.startswith(options.result)), None)
    data = await store.get_blob(found.hash) if found is not None else None
    if data is None:
        known = ", ".join(whole.handle for whole in wholes) or "none"
        raise MisuseError(f"session {options.session} has no long result {options.result}; it has: {known}")
    return data.decode()
