"""Approve a tool call.

The answer is recorded in the log and applies only to this call with these arguments. The call runs when the
session is resumed: `bridle resume SESSION --tools FILE`. A run that waits for the answer (`bridle run --wait`) takes
it at once. A run of `bridle serve` is continued by the server, once no question is open.

Without -a FILE the answer is recorded without comparing it with the code that will run the call. If that code cannot
run it, `bridle resume` refuses and the call stays in `bridle approvals --approved`: approve it again with -a FILE, or
reject it.
"""

import argparse
import asyncio
import getpass
from collections.abc import Awaitable, Callable, Sequence

import msgspec
from msgspec.structs import replace

from bridle.cli.agent_builder import list_code_parts
from bridle.cli.format.printing import print_json, print_line
from bridle.cli.log_access import (
    add_store_option,
    add_tenant_option,
    find_outer_session,
    fold_state,
    format_resume,
    read_session,
    use_log,
)
from bridle.config.agent_loader import find_first_agent, load_agents
from bridle.core.calls.argument_changes import list_changes
from bridle.ports.store import Store
from bridle.run.agent import Agent
from bridle.run.archive.sessions import find_parent_session
from bridle.run.calls.approval import complete_call_arguments, find_pending_approval
from bridle.run.context.resources import copy_agent
from bridle.run.control.requests import is_run_elsewhere
from bridle.values.calls import PendingApproval
from bridle.values.errors import MisuseError

from .approvals import NOT_COMPARED, format_call, list_questions

PLACEHOLDER_MODEL = "sim:"
"""Model of an agent that only records answers: no request is sent and no API key is needed."""
UNCOMPARED_HINT = "the process that continues the run may lack its tool; -a FILE compares before recording"
GiveAnswer = Callable[[Agent[object, str], PendingApproval], Awaitable[PendingApproval]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_answer_options(parser)
    parser.add_argument("--arguments", metavar="JSON", help="run the call with these arguments instead")
    parser.add_argument(
        "--done", metavar="RESULT", help="record that the interrupted call completed with this result"
    )


def add_answer_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", help="approval id, as listed by `bridle approvals`; a unique prefix is enough")
    parser.add_argument(
        "--reason", default="", help="recorded in the log; for a rejection, also sent to the model"
    )
    parser.add_argument("--by", default="", help="name of the person who answers (default: your login name)")
    parser.add_argument("--json", action="store_true", help="print the answer as JSON")
    parser.add_argument(
        "-a", "--agent", metavar="FILE",
        help="file of the agent: an answer that its code cannot honour is refused and not recorded",
    )  # fmt: skip
    add_tenant_option(parser, "only sessions of this tenant")
    add_store_option(parser)


def execute(options: argparse.Namespace) -> int:
    edited = _parse_arguments(options.arguments)
    if edited is not None and options.done is not None:
        raise MisuseError(
            "--done means the call already ran, --arguments that it will run; give only one of them"
        )

    changed: list[str] = []

    async def approve(agent: Agent[object, str], question: PendingApproval) -> PendingApproval:
        if options.done is not None:
            return await agent.settle(question.session, question.id, options.done, by=answerer_name(options))
        answered = await agent.approve(
            question.session, question.id, arguments=edited, reason=options.reason, by=answerer_name(options)
        )
        # Print the arguments that will run, not those that were asked about.
        if edited is None:
            return answered
        text = edited
        state = fold_state(await read_session(agent.store, question.session))
        changed.extend(
            list_changes(question.complete_arguments, complete_call_arguments(state, question.tool, text))
        )
        # guard: edited-question-shows-defaults
        return replace(
            answered, arguments=text, complete_arguments=complete_call_arguments(state, question.tool, text)
        )

    return answer_question(options, approve, "done" if options.done is not None else "approved", changed)


def answer_question(
    options: argparse.Namespace, give: GiveAnswer, word: str, changed: Sequence[str] = ()
) -> int:
    """Record the answer and print it; `changed` is filled by `give`."""
    # Loaded before the event loop starts: a file may run its own loop while it is loaded.
    options.agents = load_agents([options.agent]) if options.agent else {}
    question, is_live, outer, needs_agent = asyncio.run(_find_and_answer(options, give))
    if options.json:
        print_json({"answered": word, "approval": question})
    else:
        print_line(f"{word}: {format_call(question)}")
        for line in changed:
            print_line(f"  changed: {line}")
        if question.is_uncompared:
            print_line(f"  {NOT_COMPARED}: {UNCOMPARED_HINT}")
        if is_live:
            print_line(f"the run of session {question.session} continues")
            return 0
        configured = any(options.configuration.get(name) for name in ("agent", "tools"))
        more = [] if configured else ["-a", "FILE.py"] if needs_agent else ["--tools", "FILE"]
        if outer is not None and not needs_agent and not options.configuration.get("agent"):
            more.append("--code-mode")
        print_line(f"continue with: {format_resume(options, outer or question.session, *more)}")
    return 0


async def _find_and_answer(
    options: argparse.Namespace, give: GiveAnswer
) -> tuple[PendingApproval, bool, str | None, bool]:
    """Answer the question; True if a live run took the answer; the session to resume for a call of a program.

    The last is True if the session is continued only with the Python file of its agent.
    """
    async with use_log(options.store) as store:
        questions, approved = await list_questions(store, tenant=options.tenant)
        question = find_pending_approval([*questions, *approved], options.id)
        # The tools' code is not loaded here; its checks run again when the call runs.
        is_live = await is_run_elsewhere(store, question.session)
        outer = await find_outer_session(store, question.session)
        settings = fold_state(await read_session(store, outer or question.session)).settings
        answered = await give(await _choose_agent(options, store, question.session), question)
        return answered, is_live, outer, any(list_code_parts(settings).values())


async def _choose_agent(options: argparse.Namespace, store: Store, session: str) -> Agent[object, str]:
    """The agent of -a that has the session; without it, one that only records answers and has no code to compare."""
    records = await read_session(store, session)
    seen = {session}
    while (parent := find_parent_session(records)) and parent not in seen:
        records = await read_session(store, parent)
        seen.add(parent)
    state = fold_state(records)
    agent = find_first_agent(options.agents, state)
    is_configured = options.agent == options.configuration.get("agent")
    if agent is None and options.agents and not is_configured:
        raise MisuseError(f"{options.agent} has no agent {state.settings.name!r}, which has this session")
    return Agent(PLACEHOLDER_MODEL, store=store) if agent is None else copy_agent(agent, store=store)


def answerer_name(options: argparse.Namespace) -> str:
    if options.by:
        return str(options.by)
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "the command line"


def _parse_arguments(text: str | None) -> str | None:
    """The arguments as they are written: a number of JSON may have more digits than one of Python."""
    if text is None:
        return None
    try:
        msgspec.json.decode(text, type=dict[str, object])
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        raise MisuseError(f"--arguments is not a JSON object: {error}") from None
    return text.strip()
