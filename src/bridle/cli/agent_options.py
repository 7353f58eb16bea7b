"""Options shared by `run` and `resume`: model, tools, permissions and budget.

A tool that may change something needs confirmation on a terminal and is denied without one, unless `--yes` or
a policy allows it; a call whose tool requires approval waits for it. A library user who registers a tool has agreed
to it; a command-line user has only named a file.
"""

import argparse
import os
import sys
from collections.abc import Collection, Iterable
from importlib import import_module
from pathlib import Path

from msgspec.structs import replace

from bridle.cli.format.printing import print_line
from bridle.config.toml_file import read_policy_file
from bridle.ports.tool import Tool
from bridle.run.calls.approval import Approver
from bridle.run.calls.code_mode import CodeMode
from bridle.run.logged_settings import (
    ForeignEndpoint,
    resolve_logged_model,
    take_logged_extras,
    take_logged_policy,
)
from bridle.sandbox.local import find_sandbox
from bridle.values.calls import PermissionRule, Policy
from bridle.values.errors import MisuseError
from bridle.values.model import Model
from bridle.values.request import Extra, ToolEffect
from bridle.values.settings import Settings
from bridle.values.text import escape_text
from bridle.values.usage import LIMIT_KINDS, STEPS_DEFAULT, Budget
from bridle.watchers.console import Console, format_count

from .option_values import make_count_parser, parse_amount, parse_share
from .terminal_approver import TerminalApprover, WaitingApprover

MUTATING_EFFECTS: tuple[ToolEffect, ...] = ("write", "exclusive", "undeclared")


def add_context_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--context",
        metavar="FILE.py:NAME",
        help="function that makes the context of a run from its owner (tenant, caller), for tools that need one",
    )


def add_agent_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "-m",
        "--model",
        help="vendor:model (default: $BRIDLE_MODEL, else a vendor whose API key is set, else the simulator)",
    )
    add(
        "--trust-endpoint",
        metavar="HOST",
        default="",
        help="allow this host, which the session's log names and the model tables do not list",
    )
    add(
        "--fallback",
        action="append",
        default=[],
        metavar="MODEL",
        help="model to try next if this one fails; repeat the option for more, in order",
    )
    add(
        "--tools",
        action="append",
        default=[],
        metavar="FILE.py|module",
        help="load the @tool functions of this file or module; repeatable",
    )
    add_server_options(parser)
    add_toolkit_options(parser)
    add(
        "--code-mode",
        action="store_true",
        help="let the model write Python programs that call the tools (docs/code_mode.md)",
    )
    add("-a", "--agent", metavar="FILE.toml", help="agent file: model, instructions, tools, budget and more")
    add("--policy", metavar="FILE.toml", help="rules that allow, ask about or deny tool calls")
    add(
        "--trust-policy",
        action="store_true",
        help="also apply the allow rules of the session's log (default: only its deny and ask rules)",
    )
    add("--yes", action="store_true", help="allow every tool call that no policy rule covers")
    add(
        "--wait",
        action="store_true",
        help="wait for answers from elsewhere (`bridle approvals approve`) instead of ending",
    )
    add_limit_options(parser)
    add("--json", action="store_true", help="print the result as JSON")
    add("--reasoning", action=argparse.BooleanOptionalAction, help="show the model's reasoning")


def add_limit_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--usd",
        type=parse_amount,
        metavar="N",
        help="stop before spending this many US dollars",
    )
    add(
        "--tokens",
        type=make_count_parser(1),
        metavar="N",
        help="stop before using this many tokens",
    )
    add(
        "--steps",
        type=make_count_parser(1),
        metavar="N",
        help=f"maximum number of model replies (default {STEPS_DEFAULT})",
    )
    add("--seconds", type=parse_amount, metavar="N", help="stop after this many seconds")
    add("--tool-calls", type=make_count_parser(0), metavar="N", help="maximum number of tool calls")
    add(
        "--wrap-up",
        type=parse_share,
        metavar="SHARE",
        help="tell the model to finish at this share of any limit, such as 0.8",
    )


def add_server_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--mcp",
        action="append",
        default=[],
        metavar="FILE.json",
        help="use the MCP servers in this file (mcpServers); repeatable",
    )


def add_toolkit_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--toolkit",
        action="store_true",
        help="tools for files, commands, Python, web pages and a plan; add --memory for lasting notes",
    )
    add("--workspace", metavar="FOLDER", help="folder that --toolkit reads and writes (default: this one)")
    add(
        "--allow-host",
        action="append",
        default=[],
        metavar="HOST",
        help="host that --toolkit and its commands may reach: pypi.org, *.example.com, a.org:8080; repeatable",
    )
    add(
        "--no-sandbox",
        action="store_true",
        help="run commands and programs with all your rights, without a sandbox",
    )
    add(
        "--skills",
        action="append",
        default=[],
        metavar="FOLDER",
        help="let the model read the skills of this folder (NAME/SKILL.md); repeatable",
    )


def make_toolkit(options: argparse.Namespace) -> list[Tool]:
    """The tools of `--toolkit` and `--skills`; raises `MisuseError` for other options without `--toolkit`."""
    skills: list[str] = options.skills
    if not options.toolkit:
        runs_programs = getattr(options, "code_mode", False)
        for option in ("workspace", "allow_host", *(() if runs_programs else ("no_sandbox",))):
            if getattr(options, option):
                raise MisuseError(f"--{option.replace('_', '-')} needs --toolkit")
        return [import_module("bridle.toolkit").skills(*skills)] if skills else []
    toolkit = import_module("bridle.toolkit")
    sandbox = None if options.no_sandbox else "auto"
    tools: list[Tool] = toolkit.tools(
        options.workspace or ".", sandbox=sandbox, allow=options.allow_host, skills=skills
    )
    return tools


def describe_toolkit(options: argparse.Namespace) -> str:
    """One line about the tools of `--toolkit`: the folder, the isolation, the network."""
    folder = Path(options.workspace or ".").resolve()
    if options.no_sandbox:
        place = "commands run without a sandbox, with all your rights"
    else:
        hosts = ", ".join(options.allow_host)
        reach = f"that reaches only {hosts}" if hosts else "without network"
        place = f"commands run in a sandbox ({find_sandbox(options.workspace or '.').name}) {reach}"
    notes = "" if options.memory else "; --memory adds lasting notes"
    return f"toolkit: files of {folder}; {place}{notes}"


def resolve_logged(options: argparse.Namespace, logged: Model) -> Model:
    """The model that a log names; on a terminal, a host that the tables do not list is asked about."""
    try:
        return resolve_logged_model(logged, os.environ, options.trust_endpoint)
    except ForeignEndpoint as error:
        if not is_interactive():
            raise
        print_line(f"{escape_text(str(error))}\nuse it now? [y/N] ", file=sys.stderr, end="", flush=True)
        if input().strip().lower() not in ("y", "yes"):
            raise
        return resolve_logged_model(logged, os.environ, error.host)


def make_budget(options: argparse.Namespace, defaults: Budget) -> Budget:
    """The limits given as options, and the defaults of other kinds; an option has the name of its kind."""
    kinds = (*LIMIT_KINDS, "wrap_up")
    given = {kind: limit for kind in kinds if (limit := getattr(options, kind, None)) is not None}
    return replace(defaults, **given)


def read_policy_option(options: argparse.Namespace) -> Policy | None:
    """The policy in the file, or None if no file is given."""
    return read_policy_file(options.policy) if options.policy else None


def take_policy_from_log(options: argparse.Namespace, before: Settings, console: Console) -> Policy:
    """The session's policy; its allow rules apply only with --trust-policy."""
    allowing = sum(rule.decision == "allow" for rule in before.policy.rules)
    if options.trust_policy:
        return replace(before.policy, allow_rules_hold=True)
    if allowing:
        console.note(
            f"{format_count(allowing, 'rule')} in the session's log would allow calls and is ignored:"
            " pass --policy FILE, or --trust-policy",
            "yellow",
        )
    return take_logged_policy(before.policy)


def take_extras_from_log(before: Settings, console: Console) -> tuple[Extra, ...]:
    kept, left_out = take_logged_extras(before.extras)
    for told in left_out:
        console.note(told, "yellow")
    return kept


def report_hosted_tools(before: Settings, given: Collection[str], console: Console) -> None:
    """Name the hosted tools of the log that are not among the given tools and so are not offered."""
    for spec in before.all_tools:
        if spec.native is not None and spec.name not in given:
            held = (
                "has values that the log does not hold and" if spec.native_digest else "comes from a log and"
            )
            console.note(f"the hosted tool {spec.name!r} of the log {held} is not offered", "yellow")


def add_default_rule(policy: Policy, options: argparse.Namespace, tools: Iterable[Tool]) -> Policy:
    """The policy with a default for tools that may change something: allow, ask or deny.

    A call of a tool that requires approval itself is not denied: without a terminal it waits.
    """
    tool_asks_first = False
    if options.yes:
        own = PermissionRule(decision="allow", name="--yes")
    elif is_interactive() or getattr(options, "wait", False):
        own = PermissionRule(decision="ask", name="it may change something", effects=MUTATING_EFFECTS)
    else:
        own = PermissionRule(
            decision="deny",
            name="it may change something and there is no terminal to ask on; --yes allows it",
            effects=MUTATING_EFFECTS,
        )
        tool_asks_first = any(tool.spec.approve != "never" for tool in tools)
    return replace(policy, otherwise=own, tool_asks_first=tool_asks_first)


def make_code_mode(options: argparse.Namespace, defined: CodeMode | None) -> CodeMode | None:
    """Code mode as the option asks for it, else that of the agent file."""
    return CodeMode(sandbox=None if options.no_sandbox else "auto") if options.code_mode else defined


def make_approver(options: argparse.Namespace, console: Console) -> Approver | None:
    """The person at the terminal; with --wait, people elsewhere (who may answer in both cases)."""
    if is_interactive() and not getattr(options, "wait", False):
        return TerminalApprover(console).ask
    return WaitingApprover(console).ask if getattr(options, "wait", False) else None


def is_interactive() -> bool:
    return sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()
