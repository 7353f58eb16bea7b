"""List the calls that wait for a person's answer, in all sessions or in one.

Answer with `bridle approve ID` or `bridle reject ID`, then go on with `bridle resume SESSION`.
"""

import argparse
import asyncio

import msgspec

from ..ports.store import Store
from ..run.approving import pending
from ..values.approval import PendingApproval
from ..values.errors import Corrupt
from ..watchers.console import clean
from .logs import fold, listed, local_time, read_session
from .places import add_store_option, open_log

SESSIONS_MAX = 1_000


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("session", nargs="?", help="only of this session")
    parser.add_argument("--json", action="store_true", help="print one JSON list")
    add_store_option(parser)


def execute(options: argparse.Namespace) -> int:
    found = asyncio.run(_open_questions(options))
    if options.json:
        print(msgspec.json.encode(found).decode())
    elif not found:
        print("nothing waits for an answer")
    for item in found if not options.json else ():
        until = f", until {local_time(item.expires_at)}" if item.expires_at is not None else ""
        doubt = "started and never finished: " if item.question == "in_doubt" else ""
        # All of it: nobody can agree to what is not shown.
        given = clean(" ".join(item.arguments.split()))
        print(
            f"{item.id}  {local_time(item.asked_at)}  session {item.session}{until}\n"
            f"    {doubt}{item.tool}({given})  — {item.rule}"
        )
    return 0


async def _open_questions(options: argparse.Namespace) -> list[PendingApproval]:
    store = open_log(options.store, to_read=True)
    try:
        return await questions(store, options.session)
    finally:
        await store.close()


async def questions(store: Store, session: str | None = None) -> list[PendingApproval]:
    """What waits in one session, or in those touched last."""
    if session is not None:
        return list(pending(session, fold(await read_session(store, session))))
    found: list[PendingApproval] = []
    for info in await listed(store, SESSIONS_MAX):
        try:
            found += pending(info.id, fold(await store.read(info.id)))
        except Corrupt:
            continue  # `bridle sessions` tells; one damaged session must not hide the others
    return found
