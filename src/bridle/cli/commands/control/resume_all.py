"""Continues every session whose process ended, or that has an answer, and reports each.

There is no queue and no schedule: the command looks once, at the newest sessions, and works on one at a time. Two of
them may run at the same time, because the lease of a session decides. Runs inside tools are continued by the run
that started them.
"""

import argparse
import asyncio
import sys
from typing import Literal

from bridle.cli.agent_builder import AgentBuilder
from bridle.cli.commands.run import open_resumed_stream, watch_stream
from bridle.cli.format.printing import print_json, print_line
from bridle.cli.log_access import belongs_to_tenant, find_parent_session, fold_state, list_sessions, use_log
from bridle.core.state import Phase, State
from bridle.ports.store import LeaseInspectable, Store
from bridle.values.base import Value
from bridle.values.errors import BridleError, Conflict
from bridle.watchers.console import Console, format_dollars

SESSIONS_SEARCHED_MAX = 10_000


class ResumedSession(Value):
    session: str
    status: Literal["done", "ended", "in use", "waiting", "failed"]
    """`ended`: without an answer; `failed`: it could not be continued."""
    stop: str = ""
    reason: str = ""
    cost: float | None = None


def resume_all(options: argparse.Namespace) -> int:
    """Continue the sessions and print what became of each; 1 if one of them has no answer now."""
    console = Console(None, sys.stderr, animated=False)
    builder = AgentBuilder(options, console)
    found = asyncio.run(_resume_sessions(options, builder, console))
    if options.json:
        print_json(found)
    elif not found:
        print_line("nothing to resume")
    for each in found if not options.json else ():
        cost = f"  {format_dollars(each.cost)}" if each.cost is not None else ""
        reason = f"  {each.reason}" if each.reason else ""
        print_line(f"{each.session}  {each.status}{cost}{reason}")
    return 1 if any(each.status in ("ended", "failed") for each in found) else 0


async def _resume_sessions(
    options: argparse.Namespace, builder: AgentBuilder, console: Console
) -> list[ResumedSession]:
    found: list[ResumedSession] = []
    async with use_log(options.store) as store:
        for info in await list_sessions(store, SESSIONS_SEARCHED_MAX):
            outcome = await _resume_if_due(options, builder, console, store, info.id)
            if outcome is not None:
                found.append(outcome)
                if outcome.stop == "cancelled":
                    break  # with Ctrl-C, which ends the command
    return found


async def _resume_if_due(
    options: argparse.Namespace, builder: AgentBuilder, console: Console, store: Store, session: str
) -> ResumedSession | None:
    """Continue a session if it is due; None if it is not. A failure is reported, and the next session follows."""
    try:
        records = await store.read(session)
        if not belongs_to_tenant(records, options.tenant) or find_parent_session(records):
            return None
        state = fold_state(records)
        due = await _find_due(store, state)
        if not due:
            return None
        if isinstance(store, LeaseInspectable) and await store.is_leased(session):
            return ResumedSession(session=session, status="in use")
        if due == "waiting":
            return ResumedSession(session=session, status="waiting", reason=state.run.end.reason)
        builder.check_tools(state.settings)
        agent = builder.build(store, state.settings, new_run=False)
        stream = open_resumed_stream(agent, builder, session, state.settings, options)
        result = await watch_stream(stream, console)
    except Conflict:
        return ResumedSession(session=session, status="in use")
    except BridleError as error:
        return ResumedSession(session=session, status="failed", reason=str(error))
    status: Literal["done", "waiting", "ended"] = "done" if result.done else "ended"
    return ResumedSession(
        session=session,
        status="waiting" if result.stop == "waiting" else status,
        stop=result.stop,
        reason=result.reason,
        cost=result.cost,
    )


async def _find_due(store: Store, state: State) -> str:
    """Why a session is continued: its process ended, or a question was answered. `waiting`: no question was."""
    if state.phase in (Phase.NEW, Phase.IDLE):
        return ""
    if state.phase is not Phase.AWAITING_APPROVAL:
        return "interrupted"
    for item in state.calls.batch.pending:
        if item.result is not None or item.unanswered_question is not None:
            continue
        if item.question is not None:
            return "answered"
        # The answer to a question of a run inside a tool is in that run's log.
        if (
            item.waiting_session
            and await _find_due(store, fold_state(await store.read(item.waiting_session))) != "waiting"
        ):
            return "answered"
    return "waiting"
