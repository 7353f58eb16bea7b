"""List the calls that wait for a person's answer, in all sessions or in one.

Answer with `bridle approve ID` or `bridle reject ID`, then go on with `bridle resume SESSION`.
"""

import argparse
import asyncio

from ..core.argument_changes import list_changes, show_arguments
from ..ports.store import Store
from ..run.approving import pending
from ..values.approval import PendingApproval
from ..values.errors import Corrupt
from .logs import fold, is_of_tenant, listed, local_time, read_session
from .places import add_across_option, add_store_option, add_tenant_option, open_log, tenant_of
from .printing import say, say_json

SESSIONS_MAX = 1_000


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("session", nargs="?", help="only of this session")
    parser.add_argument("--json", action="store_true", help="print one JSON list")
    add_tenant_option(parser, "only of this tenant's sessions; another's is refused")
    add_across_option(parser)
    add_store_option(parser)


def execute(options: argparse.Namespace) -> int:
    found = asyncio.run(_open_questions(options))
    if options.json:
        say_json(found)
    elif not found:
        say("nothing waits for an answer")
    for item in found if not options.json else ():
        until = f", until {local_time(item.expires_at)}" if item.expires_at is not None else ""
        doubt = "started and never finished: " if item.question == "in_doubt" else ""
        say(f"{item.id}  {local_time(item.asked_at)}  session {item.session}{until}")
        say(f"    {doubt}{show_call(item)}  — {item.rule}")
        for line in show_defaults(item):
            say(f"    {line}")
    return 0


def show_call(question: PendingApproval) -> str:
    """The call with all that it runs with: nobody can agree to what is not shown."""
    return f"{question.tool}({show_arguments(question.complete or question.arguments)})"


def show_defaults(question: PendingApproval) -> list[str]:
    """What of it the model did not write."""
    added = list_changes(question.arguments, question.complete or question.arguments)
    return [f"by default: {'; '.join(line.replace(': + ', ' = ', 1) for line in added)}"] if added else []


async def _open_questions(options: argparse.Namespace) -> list[PendingApproval]:
    store = open_log(options.store, to_read=True)
    try:
        return await questions(store, options.session, tenant_of(options))
    finally:
        await store.close()


async def questions(
    store: Store, session: str | None = None, tenant: str | None = None
) -> list[PendingApproval]:
    """What waits in one session, or in those touched last; for a `tenant`, only in his."""
    if session is not None:
        return list(pending(session, fold(await read_session(store, session, tenant))))
    found: list[PendingApproval] = []
    for info in await listed(store, SESSIONS_MAX):
        try:
            records = await store.read(info.id)
        except Corrupt:
            continue  # `bridle sessions` tells; one damaged session must not hide the others
        if is_of_tenant(records, tenant):
            found += pending(info.id, fold(records))
    return found
