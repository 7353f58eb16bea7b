"""List the unfinished sessions of the store that the code in a file cannot continue, and why.

For a deployment: `bridle check waiting -a FILE` exits with 1 if there is such a session, and changes nothing.
Unfinished are sessions that wait for a person or for their caller, whose run was interrupted (or works now) or paused,
and those with calls in doubt. A session whose question would only be asked again is listed too, and does not count.
Tools of MCP servers are not compared, because no server is started.
"""

import argparse
import asyncio
from collections.abc import Mapping
from typing import Any, Literal

from bridle.cli.format.printing import print_error, print_json, print_line
from bridle.cli.log_access import add_store_option, add_tenant_option, belongs_to_tenant, fold_state, use_log
from bridle.config.agent_loader import find_first_agent, load_agents
from bridle.core.calls.compatibility import is_unfinished
from bridle.core.state import Phase, State
from bridle.run.agent import Agent
from bridle.run.archive.sessions import find_parent_session, list_sessions
from bridle.run.calls.continuation import check_waiting
from bridle.run.context.resources import copy_agent
from bridle.run.recovery.session_log import read_intact_records
from bridle.values.base import Value
from bridle.values.calls import CallUpgrade, Obstacle
from bridle.values.errors import Corrupt, MisuseError

SESSIONS_SEARCHED_MAX = 100_000
"""Unfinished sessions are few; a store with more sessions is checked in its newest ones, and a line says so."""


SessionStatus = Literal["waiting", "interrupted", "paused", "in doubt"]


class SessionCheck(Value, kw_only=True):
    """One unfinished session beside the code."""

    session: str
    agent: str
    status: SessionStatus
    """`interrupted` may also mean that a process runs it now."""
    obstacles: tuple[Obstacle, ...]
    asked_again: tuple[CallUpgrade, ...]
    """Calls whose question or approval the code voids, each with the reason."""


class CheckReport(Value, kw_only=True):
    waiting: int
    """Sessions that wait for a person or for their caller."""
    unfinished: int
    """Other unfinished sessions: interrupted or running, paused, or with calls in doubt."""
    refused: int
    """Those that the code cannot continue."""
    is_complete: bool
    """False if the store has more sessions than were looked at."""
    unreadable: tuple[str, ...]
    sessions: tuple[SessionCheck, ...]
    """Those that the code cannot continue, or asks about again."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-a", "--agent", action="append", default=[], metavar="FILE",
        help="Python file or module of agents (FILE.py, MODULE:NAME), or an agent file; may be repeated",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    add_tenant_option(parser, "only sessions of this tenant")
    add_store_option(parser)


def execute(options: argparse.Namespace) -> int:
    if not options.agent:
        raise MisuseError("name the code to compare with: bridle check waiting -a FILE.py")
    given = options.agent if isinstance(options.agent, list) else [options.agent]
    agents = load_agents(given)
    if not agents:
        raise MisuseError(f"{', '.join(given)}: there is no agent in it")
    report = asyncio.run(_check_sessions(options, agents))
    if options.json:
        print_json(report)
    else:
        _print_report(report)
    return 1 if report.refused or report.unreadable else 0


def _print_report(report: CheckReport) -> None:
    for each in report.sessions:
        for obstacle in each.obstacles:
            print_line(f"{each.session}: {obstacle.reason}; {obstacle.remedy}")
        for upgrade in each.asked_again if not each.obstacles else ():
            print_line(f"{each.session}: the call {upgrade.call_id} is asked about again: {upgrade.voids}")
    for session in report.unreadable:
        print_line(f"{session}: its log is damaged; see: bridle store verify {session}")
    if not report.is_complete:
        print_error(f"only the newest {SESSIONS_SEARCHED_MAX:,} sessions were looked at")
    print_line(
        f"{report.waiting} sessions wait and {report.unfinished} are unfinished otherwise; this code cannot continue"
        f" {report.refused} of them"
    )


async def _check_sessions(options: argparse.Namespace, agents: Mapping[str, Agent[Any, Any]]) -> CheckReport:
    found: list[SessionCheck] = []
    unreadable: list[str] = []
    async with use_log(options.store) as store:
        own = {name: copy_agent(agent, store=store, name=name) for name, agent in agents.items()}
        infos = await list_sessions(store, SESSIONS_SEARCHED_MAX)
        for info in infos:
            try:
                records = await read_intact_records(store, info.id)
            except Corrupt:
                unreadable.append(info.id)
                continue
            state = fold_state(records)
            is_inner = bool(find_parent_session(records))  # compared with the run around it
            if not is_unfinished(state) or is_inner:
                continue
            if belongs_to_tenant(records, options.tenant):
                found.append(await _check_session(own, info.id, state))
    waiting = sum(each.status == "waiting" for each in found)
    return CheckReport(
        waiting=waiting,
        unfinished=len(found) - waiting,
        refused=sum(bool(each.obstacles) for each in found),
        is_complete=len(infos) < SESSIONS_SEARCHED_MAX,
        unreadable=tuple(unreadable),
        sessions=tuple(each for each in found if each.obstacles or each.asked_again),
    )


async def _check_session(agents: Mapping[str, Agent[Any, Any]], session: str, state: State) -> SessionCheck:
    name = (state.run.origin.first_settings or state.settings).name
    status = _name_status(state)
    agent = find_first_agent(agents, state)
    if agent is None:
        missing = Obstacle(
            kind="agent",
            name=name,
            reason=f"it belongs to the agent {name!r}, which is not in this code",
            remedy="add its file with -a FILE",
        )
        return SessionCheck(session=session, agent=name, status=status, obstacles=(missing,), asked_again=())
    obstacles, asked_again = await check_waiting(agent.open_session(session), state)
    return SessionCheck(
        session=session, agent=name, status=status, obstacles=obstacles, asked_again=asked_again
    )


def _name_status(state: State) -> SessionStatus:
    if state.phase is Phase.AWAITING_APPROVAL:
        return "waiting"
    if state.phase is not Phase.IDLE:
        return "interrupted"
    return "paused" if state.run.end.stop == "paused" else "in doubt"
