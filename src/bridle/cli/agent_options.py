"""The agent a command drives: its tools, who is asked about them, and what it may spend.

On the command line a tool that changes something is asked about when there is a terminal to
ask on, and denied when there is none; `--yes` or a policy says otherwise.  In a library,
whoever registers a tool has agreed to it; whoever types a command has only named a file.
"""

import argparse
import os
import sys
from collections.abc import Sequence

from msgspec.structs import replace

from bridle.cli.format.printing import print_line
from bridle.run.agent_settings import read_policy
from bridle.run.calls.approval import Approver
from bridle.run.logged_settings import (
    ForeignEndpoint,
    resolve_logged_model,
    take_logged_extras,
    take_logged_policy,
)
from bridle.values.calls import PermissionRule, Policy
from bridle.values.model import Model
from bridle.values.request import Extra, ToolEffect
from bridle.values.settings import Settings
from bridle.values.text import escape_text
from bridle.values.usage import STEPS_DEFAULT, Budget
from bridle.watchers.console import Console, format_count

from .option_values import make_count_parser, parse_amount, parse_share
from .terminal_approver import TerminalApprover

MUTATING_EFFECTS: tuple[ToolEffect, ...] = ("write", "exclusive", "undeclared")


def add_agent_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "-m",
        "--model",
        help="vendor:model (default: $BRIDLE_MODEL, a vendor whose key is set, or the simulator, sim:)",
    )
    add(
        "--trust-endpoint",
        metavar="HOST",
        default="",
        help="let a session go on at this host, where its log names it and the tables do not",
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
        help="take the @tool functions in there; may be given more than once",
    )
    add("--policy", metavar="FILE.toml", help="rules about which calls are allowed, asked about or denied")
    add(
        "--trust-policy",
        action="store_true",
        help="let the rules of a session's log allow calls too; without it they only deny and ask",
    )
    add("--yes", action="store_true", help="allow every tool that no rule of the policy is about")
    add(
        "--usd",
        type=parse_amount,
        metavar="N",
        help="stop before this many dollars are spent (a conservative estimate)",
    )
    add(
        "--tokens",
        type=make_count_parser(1),
        metavar="N",
        help="stop before this many tokens are used (likewise)",
    )
    add(
        "--steps",
        type=make_count_parser(1),
        metavar="N",
        help=f"model calls at most (default {STEPS_DEFAULT})",
    )
    add("--seconds", type=parse_amount, metavar="N", help="stop after this long")
    add("--tool-calls", type=make_count_parser(0), metavar="N", help="tool calls that may be run at most")
    add(
        "--wrap-up",
        type=parse_share,
        metavar="SHARE",
        help="tell the model to finish when this much of any limit is used, such as 0.8",
    )
    add("--json", action="store_true", help="print the result as JSON")
    add("--reasoning", action="store_true", help="show the model's reasoning where it is given")


def choose_models(
    options: argparse.Namespace, model: str | Model | None, before: Settings
) -> Sequence[str | Model]:
    """Who is asked, and who goes on after them; a session goes on with those it had.

    Of those its log names nothing but the names is taken: a log may come from elsewhere.
    """
    if model is None and not options.fallback:
        return tuple(_resolve_logged(options, each) for each in before.models or (before.model,))
    return (model or _resolve_logged(options, before.model), *options.fallback)


def _resolve_logged(options: argparse.Namespace, logged: Model) -> Model:
    try:
        return resolve_logged_model(logged, os.environ, options.trust_endpoint)
    except ForeignEndpoint as error:
        if not is_interactive():
            raise
        print_line(f"{escape_text(str(error))}\ngo there now? [y/N] ", file=sys.stderr, end="", flush=True)
        if input().strip().lower() not in ("y", "yes"):
            raise
        return resolve_logged_model(logged, os.environ, error.host)


def make_budget(options: argparse.Namespace) -> Budget:
    return Budget(
        usd=options.usd,
        tokens=options.tokens,
        steps=STEPS_DEFAULT if options.steps is None else options.steps,
        seconds=options.seconds,
        tool_calls=options.tool_calls,
        wrap_up=options.wrap_up,
    )


def read_policy_option(options: argparse.Namespace) -> Policy | None:
    """The policy of the file; None where no file is named."""
    return read_policy(options.policy) if options.policy else None


def take_policy_from_log(options: argparse.Namespace, before: Settings, console: Console) -> Policy:
    """The policy that a session goes on with: its rules that allow count only when somebody says so here."""
    allowing = sum(rule.decision == "allow" for rule in before.policy.rules)
    if options.trust_policy:
        return replace(before.policy, allow_rules_hold=True)
    if allowing:
        console.note(
            f"{format_count(allowing, 'rule')} of the session's log would allow calls; they do not count here:"
            " name the policy again with --policy FILE, or say --trust-policy",
            "yellow",
        )
    return take_logged_policy(before.policy)


def take_extras_from_log(before: Settings, console: Console) -> tuple[Extra, ...]:
    kept, left_out = take_logged_extras(before.extras)
    for told in left_out:
        console.note(told, "yellow")
    return kept


def add_default_rule(policy: Policy, options: argparse.Namespace) -> Policy:
    """The policy with the command line's own default, which depends on who can be asked here."""
    if options.yes:
        own = PermissionRule(decision="allow", name="--yes")
    elif is_interactive():
        own = PermissionRule(decision="ask", name="it may change something", effects=MUTATING_EFFECTS)
    else:
        own = PermissionRule(
            decision="deny",
            name="it may change something and nobody can be asked; see --yes",
            effects=MUTATING_EFFECTS,
        )
    return replace(policy, otherwise=own)


def make_approver(console: Console) -> Approver | None:
    return TerminalApprover(console).ask if is_interactive() else None


def is_interactive() -> bool:
    return sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()
