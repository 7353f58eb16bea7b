"""List tool calls that need a person's approval, in all sessions or in one.

Answer with `bridle approvals approve ID` or `bridle approvals reject ID`, then continue with `bridle resume SESSION`.
Calls that are approved and have not started are listed after the questions, and with `--approved` alone:
`bridle resume SESSION` runs them, and `bridle approvals reject ID` drops them.
"""

import argparse
import asyncio
import sys

from bridle.cli.format.columns import screen_width, split_cells
from bridle.cli.format.printing import print_json, print_line
from bridle.cli.log_access import (
    add_caller_option,
    add_log_options,
    belongs_to_tenant,
    find_outer_session,
    fold_state,
    format_local_time,
    read_session,
    tenant_of,
    use_log,
)
from bridle.cli.session_names import add_session_argument
from bridle.core.calls.argument_changes import list_changes, show_arguments
from bridle.core.state import State
from bridle.ports.store import Store
from bridle.run.archive.sessions import list_sessions
from bridle.run.calls.approval import list_approved_calls, list_pending_approvals
from bridle.values.calls import PendingApproval
from bridle.values.errors import Corrupt
from bridle.values.text import escape_text

PREVIEW_LINES_MAX = 400
INDENT, CONTINUED, BAR = "    ", "… ", "│ "
SESSIONS_SEARCHED_MAX = 1_000
NOT_COMPARED = "not compared with an agent"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_session_argument(parser, nargs="?", help_="only this session")
    parser.add_argument(
        "--approved", action="store_true", help="list the approved calls that have not started instead"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON list")
    add_caller_option(parser, "only questions of this caller's runs")
    add_log_options(parser, "only sessions of this tenant")


def execute(options: argparse.Namespace) -> int:
    questions, approved, outer = asyncio.run(_read_questions(options))
    if options.json:
        print_json(approved if options.approved else questions)
        return 0
    if not questions and not options.approved:
        print_line("no pending approvals")
    elif not approved and options.approved:
        print_line("no approved call waits to run")
    for item in () if options.approved else questions:
        until = f", until {format_local_time(item.expires_at)}" if item.expires_at is not None else ""
        doubt = "interrupted: " if item.question == "in_doubt" else ""
        print_line(f"{item.id}  {format_local_time(item.asked_at)}  session {item.session}{until}")
        room = screen_width() - len(INDENT) if sys.stdout.isatty() else None
        for line in format_question(item, room, lead=doubt):
            print_line(f"{INDENT}{line}")
    for item in approved:
        by = f" by {item.approved_by}" if item.approved_by else ""
        note = f", {NOT_COMPARED}" if item.is_uncompared else ""
        print_line(f"{item.id}  approved{by}{note}, not run yet: {format_call(item)}")
        print_line(
            f"{INDENT}session {item.session}: run it with bridle resume {outer[item.session]}, or drop it with"
            f" bridle approvals reject {item.id}"
        )
    return 0


def format_question(question: PendingApproval, room: int | None, lead: str = "") -> list[str]:
    """The call, its rule, its defaults and its preview, in lines of at most `room` columns.

    A text from outside never starts a line of the screen, not even by its length: continued lines start with …, the
    rule with a dash, and lines of the preview with a bar.
    """
    made: list[str] = []
    texts = [f"{lead}{format_call(question)} — {question.rule}"]
    if len(_fold_lines(texts[0], room)) > 1:
        texts = [f"{lead}{format_call(question)}", f"— {question.rule}"]
    for line in (*texts, *format_defaults(question)):
        start, *more = _fold_lines(line, room)
        made += [start, *(f"{CONTINUED}{piece}" for piece in more)]
    return [
        *made,
        *(f"{BAR}{piece}" for line in format_preview(question) for piece in _fold_lines(line, room)),
    ]


def _fold_lines(line: str, room: int | None) -> list[str]:
    # guard: diff-line-escaped
    shown = escape_text(line, exact=True)
    # guard: diff-line-split
    return [shown] if room is None else split_cells(shown, max(1, room - len(CONTINUED)))


def format_call(question: PendingApproval) -> str:
    """The call with all arguments it runs with, defaults included."""
    return f"{question.tool}({show_arguments(question.complete_arguments or question.arguments)})"


def format_defaults(question: PendingApproval) -> list[str]:
    """The arguments that the model did not write."""
    added = list_changes(question.arguments, question.complete_arguments or question.arguments)
    return [f"by default: {'; '.join(line.replace(': + ', ' = ', 1) for line in added)}"] if added else []


def format_preview(question: PendingApproval) -> list[str]:
    """The tool's preview of the call, as it is; the arguments hold all of it."""
    lines = question.preview.split("\n") if question.preview else []
    cut = len(lines) - PREVIEW_LINES_MAX
    return (
        lines if cut <= 0 else [*lines[:PREVIEW_LINES_MAX], f"[{cut:,} more lines; the arguments have all]"]
    )


async def _read_questions(
    options: argparse.Namespace,
) -> tuple[list[PendingApproval], list[PendingApproval], dict[str, str]]:
    """The questions, the approved calls, and the sessions that continue these."""
    async with use_log(options.store) as store:
        questions, approved = await list_questions(store, options.session, tenant_of(options), options.caller)
        outer = {
            each.session: await find_outer_session(store, each.session) or each.session for each in approved
        }
        return questions, approved, outer


async def list_questions(
    store: Store, session: str | None = None, tenant: str | None = None, caller: str | None = None
) -> tuple[list[PendingApproval], list[PendingApproval]]:
    """Pending approvals, and approved calls that have not started, of one session or of the most recent ones.

    With a tenant or a caller, only those of its sessions or of that person's runs.
    """
    if session is not None:
        records = await read_session(store, session, tenant, caller=caller)
        return _list_of_caller(session, fold_state(records), caller)
    questions: list[PendingApproval] = []
    approved: list[PendingApproval] = []
    for info in await list_sessions(store, SESSIONS_SEARCHED_MAX):
        try:
            records = await store.read(info.id)
        except Corrupt:
            continue  # one damaged session must not hide the others; `bridle sessions` reports it
        if belongs_to_tenant(records, tenant):
            of_session = _list_of_caller(info.id, fold_state(records), caller)
            questions += of_session[0]
            approved += of_session[1]
    return questions, approved


def _list_of_caller(
    session: str, state: State, caller: str | None
) -> tuple[list[PendingApproval], list[PendingApproval]]:
    if caller not in (None, state.run.origin.caller):
        return [], []
    return [*list_pending_approvals(session, state)], [*list_approved_calls(session, state)]
