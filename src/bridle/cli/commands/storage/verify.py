"""Check that the log is what was written: hash chain, stored content, events, anchored heads.

Without SESSION it checks every session and the file itself. Anchors are heads of sessions, written outside the
log ($BRIDLE_ANCHORS); without them a log that was rewritten as a whole, or cut off, cannot be told from a real one.
A person who can write the anchors too is found out only with a head that you kept elsewhere (--head).
"""

import argparse
import asyncio
from collections.abc import Sequence
from pathlib import Path

from msgspec import to_builtins

from bridle.cli.format.printing import print_json, print_line
from bridle.cli.log_access import add_store_option, use_log
from bridle.cli.session_names import add_session_argument
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
from bridle.stores.anchors import Anchor, find_anchor_file, read_anchors
from bridle.values.errors import MisuseError, SessionNotFound
from bridle.watchers.console import format_count

NOT_INTACT = 1
HASH_CHARACTERS = 64


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_session_argument(parser, nargs="?", help_="only this session")
    add_options(parser)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that `bridle session verify` has too."""
    parser.add_argument(
        "--anchors", metavar="FILE", help="file or folder with anchors (default: $BRIDLE_ANCHORS)"
    )
    parser.add_argument(
        "--head",
        type=_parse_head,
        metavar="SEQ:HASH",
        help="head of SESSION that you kept elsewhere; a redaction after it is reported",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    add_store_option(parser)


def _parse_head(text: str) -> tuple[int, str]:
    seq, _, head = text.partition(":")
    if not seq.isdecimal() or int(seq) < 1 or len(head) != HASH_CHARACTERS:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a head; write SEQ:HASH, as `bridle store verify SESSION` prints it"
        )
    return int(seq), head


def execute(options: argparse.Namespace) -> int:
    if options.head is not None and options.session is None:
        raise MisuseError("a head belongs to one session: bridle store verify SESSION --head SEQ:HASH")
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
        if options.session is not None and not found:
            print_line(f"head: {sessions[0].length}:{sessions[0].head}")
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
        head = (
            Anchor(session=options.session, seq=options.head[0], head=options.head[1])
            if options.head
            else None
        )
        session = await verify_session(store, options.session, known, list_anchored_heads(anchors), head)
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
        for note in (*session.repairs, *session.redactions, *session.notes):
            print_line(f"  {session.session}: {note}")
    records = sum(session.length for session in sessions)
    checked = f"{format_count(len(sessions), 'session')}, {format_count(records, 'record')}"
    anchored = sum(bool(session.anchored) for session in sessions)
    proof = f"{format_count(anchored, 'session')} anchored in {path}" if path is not None else "no anchors"
    verdict = format_count(len(found), "problem") if found else "intact"
    print_line(f"{verdict}: {checked}; {proof}")
