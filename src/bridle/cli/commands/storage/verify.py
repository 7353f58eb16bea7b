"""Check that the log is what was written: hash chain, stored content, events, anchored heads.

Without SESSION it checks every session and the file itself. Anchors are heads of sessions, written outside the
log ($BRIDLE_ANCHORS); without them a log that was rewritten as a whole, or cut off, cannot be told from a real one.
"""

import argparse
import asyncio
from collections.abc import Sequence
from pathlib import Path

from msgspec import to_builtins

from bridle.cli.format.printing import print_json, print_line
from bridle.cli.log_access import add_store_option, use_log
from bridle.ports.store import Store
from bridle.run.recovery.verification import (
    Problem,
    VerifiedSession,
    group_anchors,
    list_anchored_heads,
    list_unreadable_anchors,
    verify_session,
    verify_store,
)
from bridle.stores.anchors import find_anchor_file, read_anchors
from bridle.values.errors import SessionNotFound
from bridle.watchers.console import format_count

NOT_INTACT = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("session", nargs="?", help="only this session")
    parser.add_argument(
        "--anchors", metavar="FILE", help="file or folder with anchors (default: $BRIDLE_ANCHORS)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    add_store_option(parser)


def execute(options: argparse.Namespace) -> int:
    path, sessions, problems = asyncio.run(_verify(options))
    found = [*problems, *(each for session in sessions for each in session.problems)]
    if options.json:
        print_json(
            {
                "intact": not found,
                "anchors": str(path) if path is not None else None,
                "sessions": [to_builtins(session) for session in sessions],
                "problems": [to_builtins(problem) for problem in found],
            }
        )
    else:
        _print_report(sessions, found, path)
    return NOT_INTACT if found else 0


async def _verify(
    options: argparse.Namespace,
) -> tuple[Path | None, Sequence[VerifiedSession], Sequence[Problem]]:
    async with use_log(options.store) as store:
        path = _find_anchors(store, options.anchors)
        lines = [*read_anchors(path)] if path is not None else []
        anchors, lost = group_anchors(lines), list_unreadable_anchors(lines)
        if options.session is None:
            sessions, problems = await verify_store(store, anchors)
            return path, sessions, [*lost, *problems]
        known = anchors.get(options.session, ())
        session = await verify_session(store, options.session, known, list_anchored_heads(anchors))
        if not session.length and not session.problems:
            raise SessionNotFound(f"no session {options.session!r} in this log; `bridle sessions` lists them")
        return path, [session], lost


def _find_anchors(store: Store, given: str | None) -> Path | None:
    if given is not None:
        return find_anchor_file(Path(getattr(store, "path", "log")), given)
    return getattr(store, "anchor_file", None)


def _print_report(sessions: Sequence[VerifiedSession], found: Sequence[Problem], path: Path | None) -> None:
    for problem in found:
        place = f"{problem.session}: " if problem.session else ""
        print_line(f"✗ {place}{problem.text}")
    for session in sessions:
        for note in (*session.repairs, *session.redactions):
            print_line(f"  {session.session}: {note}")
    records = sum(session.length for session in sessions)
    checked = f"{format_count(len(sessions), 'session')}, {format_count(records, 'record')}"
    anchored = sum(bool(session.anchored) for session in sessions)
    proof = f"{format_count(anchored, 'session')} anchored in {path}" if path is not None else "no anchors"
    verdict = format_count(len(found), "problem") if found else "intact"
    print_line(f"{verdict}: {checked}; {proof}")
