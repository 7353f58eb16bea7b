"""Replay a session from its log: nothing is sent, no tool runs, and every event must come out the same.

With -a, -i, -m or --tools the session is compared with that agent: the first request that would differ is shown,
with the layer and the words that changed. --continue forks the session there and goes on live with that agent; only
then is anything sent. --as-test writes a regression test with the log as its fixture.
"""

import argparse
import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path
from shlex import quote

import msgspec
from msgspec.structs import replace

from bridle.cli.agent_builder import AgentBuilder
from bridle.cli.agent_options import add_agent_options, make_toolkit
from bridle.cli.commands.fork import format_fork_place
from bridle.cli.commands.run import exit_code, open_resumed_stream, watch_stream
from bridle.cli.format.printing import print_json, print_line, print_text
from bridle.cli.log_access import add_log_options, fold_state, read_session, tenant_of, use_log
from bridle.cli.session_names import add_session_argument
from bridle.config.agent_file import load_agent, read_agent_file
from bridle.config.tool_loader import load_tools
from bridle.core.lineage.replay import ChangedSettings
from bridle.core.recovery.fallback import set_model
from bridle.core.state import State
from bridle.ports.store import Store
from bridle.run.agent import Agent
from bridle.run.archive.transfer import read_with_evidence
from bridle.run.model_connection import find_model_by_name
from bridle.run.replay.changed_settings import AgentSettingsNow
from bridle.run.replay.replay_session import describe_difference, fork_at_difference, replay_session
from bridle.testing.replay_tests import write_replay_test
from bridle.values.errors import MisuseError
from bridle.values.events import Configured
from bridle.values.lineage import Replay
from bridle.values.settings import Settings
from bridle.watchers.console import Console, format_count

DIFFERENT = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add_session_argument(parser)
    add("--until", metavar="PLACE", help="stop after this record (12) or message (m4)")
    add("-i", "--instructions", default="", help="compare with this system prompt")
    add("--diff", action="store_true", help="also print the differing lines of both requests")
    add("--continue", dest="goes_on", action="store_true", help="go on live from the first difference")
    add(
        "--as",
        dest="name",
        metavar="NAME",
        help="with --continue: id of the new session (default: generated)",
    )
    add("--as-test", metavar="FILE.py", help="write a test that replays this session, and its fixture")
    add_agent_options(parser)
    add_log_options(parser)


def execute(options: argparse.Namespace) -> int:
    changed = _read_changes(options)
    if changed is None and (options.diff or options.goes_on):
        option = "--diff" if options.diff else "--continue"
        raise MisuseError(
            f"{option} needs an agent to compare with: -a FILE, -i TEXT, -m MODEL or --tools FILE"
        )
    if options.name and not options.goes_on:
        raise MisuseError("--as names the session that --continue creates")
    return asyncio.run(_replay(options, changed))


def load_session_agent(options: argparse.Namespace) -> Agent[object, object] | None:
    """The agent of -a, with the model of the session if the file names none; None without -a.

    Code is loaded outside the event loop: a tools file may run its own.
    """
    if not options.agent:
        return None
    before = asyncio.run(_read_settings(options))
    own = read_agent_file(options.agent).models
    return load_agent(options.agent, model=None if own else before.models or before.model)


async def _read_settings(options: argparse.Namespace) -> Settings:
    async with use_log(options.store) as store:
        return fold_state(await read_session(store, options.session, tenant_of(options))).settings


def _read_changes(options: argparse.Namespace) -> "OptionChanges | None":
    """The changes that the options ask for; None if there are none."""
    tools = [*load_tools(options.tools), *make_toolkit(options)]
    if not (options.agent or options.instructions or options.model or tools):
        return None
    return OptionChanges(
        options, load_session_agent(options), Agent("sim:", tools=tools).settings if tools else None
    )


class OptionChanges:
    """Settings of a session as the options of the command change them."""

    def __init__(
        self, options: argparse.Namespace, agent: Agent[object, object] | None, tools: Settings | None
    ) -> None:
        self._instructions, self._tools = options.instructions, tools
        self._model = find_model_by_name(options.model, needs_address=False) if options.model else None
        self.now = AgentSettingsNow(agent) if agent is not None else None

    def __call__(self, event: Configured, state: State) -> Settings:
        settings = self.now(event, state) if self.now is not None else event.settings
        if self._instructions:
            settings = replace(settings, instructions=self._instructions, templates=())
        if self._tools is not None:
            shown, hidden = self._tools.tools, self._tools.hidden_tools
            settings = replace(settings, tools=shown, hidden_tools=hidden, catalogue=self._tools.catalogue)
        if self._model is not None:
            settings = replace(set_model(settings, self._model), models=())
        return settings


async def _replay(options: argparse.Namespace, changed: OptionChanges | None) -> int:
    async with use_log(options.store, to_read=True) as store:
        now, settings = (changed.now, changed) if changed is not None else (None, None)
        report = await _read_report(store, options, now, settings)
        if options.as_test:
            return await _write_test(store, options, report)
        if options.goes_on and report.divergence is not None:
            return await _continue(store, options, report)
    if options.json:
        print_json({**msgspec.to_builtins(report), "is_equal": report.is_equal})
    else:
        for line in _format_report(report, options):
            print_line(line)
    return 0 if report.is_equal else DIFFERENT


async def _read_report(
    store: Store, options: argparse.Namespace, now: AgentSettingsNow | None, changed: ChangedSettings | None
) -> Replay:
    until = int(options.until) if options.until and options.until.isdigit() else options.until
    tenant = tenant_of(options)
    return await replay_session(store, options.session, now=now, changed=changed, until=until, tenant=tenant)


def _format_report(report: Replay, options: argparse.Namespace, indent: str = "") -> Iterator[str]:
    calls = f"{format_count(report.model_calls, 'model call')}, {format_count(report.tool_runs, 'tool run')}"
    if report.divergence is None:
        part = "" if report.records == report.length else f" of {report.length}"
        yield f"{indent}{report.session}: equal, {report.records}{part} records, {calls}, {report.end}"
        if not report.is_identical:
            yield f"{indent}  the records are no chain of hashes"
    else:
        yield from (indent + line for line in describe_difference(replace(report, subruns=())))
        yield f"{indent}  {report.divergence.seq - 1} records before it are equal, {calls}"
        request = report.divergence.request
        if options.diff and request is not None:
            yield from (f"{indent}  {line}" for line in request.diff)
        if request is not None and not indent:
            yield f"  try it live from there: add --continue --as {quote(report.session + '-2')}"
    yield from (f"{indent}  not checked: {sentence}" for sentence in report.unchecked)
    for inner in report.subruns:
        yield from _format_report(inner, options, indent + "  ")


async def write_log_test(options: argparse.Namespace) -> int:
    """Make a test of a session that replays; `bridle session export --as-test` is the other way to it."""
    async with use_log(options.store) as store:
        report = await replay_session(store, options.session, tenant=tenant_of(options))
        return await _write_test(store, options, report)


async def _write_test(store: Store, options: argparse.Namespace, report: Replay) -> int:
    if not report.is_equal:
        for line in describe_difference(report):
            print_line(line, file=sys.stderr)
        raise MisuseError("the session does not replay, so a test of it would fail from the start")
    names = [report.session, *_list_subruns(report)]
    sessions = {name: await read_with_evidence(store, name) for name in names}
    path = Path(options.as_test)
    model = ""
    if options.agent and not read_agent_file(options.agent).models:
        model = fold_state(sessions[report.session]).settings.model.name
    fixture = write_replay_test(path, sessions, options.agent or "", model)
    if options.json:
        print_json({"test": str(path), "fixture": str(fixture), "sessions": names})
    else:
        print_line(f"written: {path} and {fixture} ({report.length} records, with the whole conversation)")
        print_line(f"run it:  python -m pytest {quote(str(path))}")
    return 0


def _list_subruns(report: Replay) -> Iterator[str]:
    for inner in report.subruns:
        yield inner.session
        yield from _list_subruns(inner)


async def _continue(store: Store, options: argparse.Namespace, report: Replay) -> int:
    """Fork the session at the difference, and go on with the agent of the options."""
    console = Console(None, sys.stderr, animated=not options.json)
    builder = AgentBuilder(options, console)
    before = fold_state(await read_session(store, report.session)).settings
    if not options.agent:
        builder.check_tools(before)
    made = await fork_at_difference(report, options.name, store=store, tenant=tenant_of(options))
    if not options.json:
        for line in (*describe_difference(replace(report, subruns=())), *format_fork_place(made)):
            console.note(line)
    agent = builder.build(store, before, new_run=True)
    stream = open_resumed_stream(agent, builder, made.session, before, options)
    result = await watch_stream(stream, console)
    if options.json:
        print_json({"session": result.session, "fork": made, "stop": result.stop, "text": result.text})
    else:
        print_text(result.text)
        console.note(f"compare: bridle session diff {quote(report.session)} {quote(made.session)}")
    return exit_code(result)
