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

from ..run.approving import Approver
from ..run.logged_models import ForeignEndpoint, resolve_logged_model
from ..run.logged_settings import take_logged_extras, take_logged_policy
from ..run.policy import read_policy
from ..values.model import Model
from ..values.policy import PermissionRule, Policy
from ..values.request import Effect, Extra
from ..values.settings import Settings
from ..values.text import escape_text
from ..values.usage import STEPS_DEFAULT, Budget
from ..watchers.console import Console, plural
from .asking import Asking
from .numbers import amount, count_of, share
from .printing import say

MUTATING: tuple[Effect, ...] = ("write", "exclusive", "undeclared")


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
        type=amount,
        metavar="N",
        help="stop before this many dollars are spent (a conservative estimate)",
    )
    add("--tokens", type=count_of(1), metavar="N", help="stop before this many tokens are used (likewise)")
    add(
        "--steps",
        type=count_of(1),
        metavar="N",
        help=f"model calls at most (default {STEPS_DEFAULT})",
    )
    add("--seconds", type=amount, metavar="N", help="stop after this long")
    add("--tool-calls", type=count_of(0), metavar="N", help="tool calls that may be run at most")
    add(
        "--wrap-up",
        type=share,
        metavar="SHARE",
        help="tell the model to finish when this much of any limit is used, such as 0.8",
    )
    add("--json", action="store_true", help="print the result as JSON")
    add("--reasoning", action="store_true", help="show the model's reasoning where it is given")


def models_of(
    options: argparse.Namespace, model: str | Model | None, before: Settings
) -> Sequence[str | Model]:
    """Who is asked, and who goes on after them; a session goes on with those it had.

    Of those its log names nothing but the names is taken: a log may come from elsewhere.
    """
    if model is None and not options.fallback:
        return tuple(_resolve(options, each) for each in before.models or (before.model,))
    return (model or _resolve(options, before.model), *options.fallback)


def _resolve(options: argparse.Namespace, logged: Model) -> Model:
    try:
        return resolve_logged_model(logged, os.environ, options.trust_endpoint)
    except ForeignEndpoint as error:
        if not somebody_is_there():
            raise
        say(f"{escape_text(str(error))}\ngo there now? [y/N] ", file=sys.stderr, end="", flush=True)
        if input().strip().lower() not in ("y", "yes"):
            raise
        return resolve_logged_model(logged, os.environ, error.host)


def budget_of(options: argparse.Namespace) -> Budget:
    return Budget(
        usd=options.usd,
        tokens=options.tokens,
        steps=STEPS_DEFAULT if options.steps is None else options.steps,
        seconds=options.seconds,
        tool_calls=options.tool_calls,
        wrap_up=options.wrap_up,
    )


def policy_of(options: argparse.Namespace) -> Policy | None:
    """The policy of the file; None where no file is named."""
    return read_policy(options.policy) if options.policy else None


def logged_policy_of(options: argparse.Namespace, before: Settings, console: Console) -> Policy:
    """The policy that a session goes on with: its rules that allow count only when somebody says so here."""
    allowing = sum(rule.decision == "allow" for rule in before.policy.rules)
    if options.trust_policy:
        return replace(before.policy, allow_rules_hold=True)
    if allowing:
        console.note(
            f"{plural(allowing, 'rule')} of the session's log would allow calls; they do not count here:"
            " name the policy again with --policy FILE, or say --trust-policy",
            "yellow",
        )
    return take_logged_policy(before.policy)


def logged_extras_of(before: Settings, console: Console) -> tuple[Extra, ...]:
    kept, left_out = take_logged_extras(before.extras)
    for told in left_out:
        console.note(told, "yellow")
    return kept


def with_default(policy: Policy, options: argparse.Namespace) -> Policy:
    """The policy with the command line's own default, which depends on who can be asked here."""
    if options.yes:
        own = PermissionRule(decision="allow", name="--yes")
    elif somebody_is_there():
        own = PermissionRule(decision="ask", name="it may change something", effects=MUTATING)
    else:
        own = PermissionRule(
            decision="deny",
            name="it may change something and nobody can be asked; see --yes",
            effects=MUTATING,
        )
    return replace(policy, otherwise=own)


def approver_of(console: Console) -> Approver | None:
    return Asking(console).ask if somebody_is_there() else None


def somebody_is_there() -> bool:
    return sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()
