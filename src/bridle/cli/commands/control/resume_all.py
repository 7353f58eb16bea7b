"""Continues every session whose process ended, or that has an answer, and reports each.

There is no queue and no schedule: the command looks once, at the newest sessions, and works on one at a time. Two of
them may run at the same time, because the lease of a session decides. Runs inside tools are continued by the run
that started them.
"""

import argparse
import asyncio
import sys
from collections.abc import Sequence
from typing import Literal

from bridle.cli.agent_builder import AgentBuilder
from bridle.cli.commands.run import open_resumed_stream, watch_stream
from bridle.cli.format.columns import format_table
from bridle.cli.format.printing import print_json, print_line
from bridle.cli.log_access import belongs_to_tenant, fold_state, format_resume, use_log
from bridle.core.state import State
from bridle.ports.store import LeaseInspectable, Store, supports
from bridle.run.archive.sessions import find_due, find_parent_session, list_sessions
from bridle.run.context.shown_deltas import StreamItem
from bridle.values.base import Value
from bridle.values.errors import BridleError, Conflict
from bridle.watchers.console import Console, format_dollars

SESSIONS_SEARCHED_MAX = 10_000


NEXT_STEPS = {
    "in use": "another process works on it; if that does not answer:\n  {resume}",
    "waiting": "{reason}; `bridle approvals` lists it",
}
"""Next step for a session that is not done."""


class ResumedSession(Value, kw_only=True):
    session: str
    status: Literal["done", "ended", "in use", "waiting", "failed"]
    """`ended`: without an answer; `failed`: it could not be continued."""
    resumed: bool = False
    """False if the session was left as it was."""
    stop: str = ""
    reason: str = ""
    cost: float | None = None
    in_doubt: tuple[str, ...] = ()
    """Tools whose calls were started and had no result, each with its `on_unknown`."""


def resume_all(options: argparse.Namespace) -> int:
    """Continue the sessions and print what became of each; 1 if one of them has no answer now."""
    console = Console(None, sys.stderr, animated=False)
    builder = AgentBuilder(options, console, is_resume=True)
    found = asyncio.run(_resume_sessions(options, builder, console))
    if options.json:
        print_json(found)
    else:
        _print_sessions(options, found)
    return 1 if any(each.status in ("ended", "failed") for each in found) else 0


def _print_sessions(options: argparse.Namespace, found: Sequence[ResumedSession]) -> None:
    rows = [
        (
            each.session,
            "resumed" if each.resumed else "left alone",
            each.status,
            format_dollars(each.cost) if each.cost is not None else "",
        )
        for each in found
    ]
    for line, each in zip(format_table(rows, right=(3,)), found, strict=True):
        print_line(line)
        if each.in_doubt:
            print_line(f"  in doubt: {', '.join(each.in_doubt)}")
        resume = format_resume(options, each.session, "--take-over")
        words = NEXT_STEPS.get(each.status, "{reason}").replace("{resume}", resume)
        for part in words.replace("{reason}", each.reason).splitlines():
            print_line(f"  {part}")
    resumed = sum(each.resumed for each in found)
    counted = f"{resumed} resumed, {len(found) - resumed} left alone"
    print_line(counted if found else "nothing to resume")


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
    has_resumed = False  # it may be taken over after that

    def note(_item: StreamItem) -> None:
        nonlocal has_resumed
        has_resumed = True

    try:
        records = await store.read(session)
        if not belongs_to_tenant(records, options.tenant) or find_parent_session(records):
            return None
        state = fold_state(records)
        due = await find_due(store, state)
        if not due:
            return None
        if supports(store, LeaseInspectable) and await store.is_leased(session):
            return ResumedSession(session=session, status="in use")
        if due == "waiting":
            return ResumedSession(session=session, status="waiting", reason=state.run.end.reason)
        builder.check_tools(state.settings)
        agent = builder.build(store, state.settings, new_run=False)
        context = await builder.make_context(state)
        stream = open_resumed_stream(agent, builder, session, state.settings, options, context)
        result = await watch_stream(stream, console, note)
    except Conflict:
        return ResumedSession(session=session, status="in use", resumed=has_resumed)
    except BridleError as error:
        return ResumedSession(session=session, status="failed", reason=str(error))
    status: Literal["done", "waiting", "ended"] = "done" if result.done else "ended"
    return ResumedSession(
        session=session,
        resumed=True,
        in_doubt=_list_doubts(state),
        status="waiting" if result.stop == "waiting" else status,
        stop=result.stop,
        reason=result.reason,
        cost=result.cost,
    )


def _list_doubts(state: State) -> tuple[str, ...]:
    """The calls that were running when the process ended."""
    policies = {spec.name: spec.on_unknown for spec in state.settings.tools}
    started = (item.call.name for item in state.calls.batch.pending if item.attempt and item.result is None)
    return tuple(f"{name} ({policies[name]})" for name in started if name in policies)
