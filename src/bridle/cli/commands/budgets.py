"""Show what is spent and reserved in each shared budget: those of tenants, callers and pools, and their periods.

With a name, also the calls that hold a reservation. The limit shown is the one given most recently.
"""

import argparse
import asyncio

from bridle.cli.format.columns import display_width, fit_line, pad_text, screen_width
from bridle.cli.format.printing import print_json, print_line
from bridle.cli.log_access import add_store_option, use_log
from bridle.core.budget.shared import BudgetAccount
from bridle.ports.store import Store
from bridle.run.budget.stored import BudgetLog
from bridle.values.budget import Amount, parse_budget_log_name, strip_period
from bridle.values.errors import MisuseError
from bridle.values.text import escape_text
from bridle.values.usage import Limits

from .cost import ALL_SESSIONS

NAME_WIDTH = 24
"""Columns of the names at least."""
NUMBERS_WIDTH = 52
"""Columns after a name."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "name",
        nargs="?",
        help="only this budget and its periods, with open calls; tenant:NAME, caller:TENANT/NAME or a pool",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON list")
    add_store_option(parser)


def execute(options: argparse.Namespace) -> int:
    found = asyncio.run(_read_accounts(options))
    if options.name and not found:
        raise MisuseError(f"no budget {options.name!r} in this log; `bridle budgets` lists them")
    if options.json:
        print_json([_account_as_data(name, account) for name, account in found.items()])
        return 0
    if not found:
        print_line("no shared budget in this log; see StoredBudget and Budget(tenant=…, caller=…)")
        return 0
    width = max(NAME_WIDTH, min(max(map(display_width, found)), screen_width() - NUMBERS_WIDTH))
    print_line(f"{'':<{width}} {'spent':>12} {'of':>10} {'reserved':>12} {'calls':>8} {'open':>5}")
    for name, account in found.items():
        print_line(_format_account(name, account, width))
    for account in found.values() if options.name else ():
        for each in account.open_reservations.values():
            inside = f", for {each.nested_session}" if each.nested_session else ""
            print_line(
                escape_text(
                    f"  {each.id}{inside}: {_format_amount_usd(each.amount)} · {each.amount.tokens:,} tokens"
                )
            )
    return 0


async def _read_accounts(options: argparse.Namespace) -> dict[str, BudgetAccount]:
    async with use_log(options.store) as store:
        names = await _list_budget_names(store)
        if options.name:
            names = [name for name in names if options.name in (name, strip_period(name))]
        found = {name: await BudgetLog(store, name).catch_up() for name in names}
        return {
            name: account
            for name, account in found.items()
            if account.spent != Amount() or account.open_reservations
        }


async def _list_budget_names(store: Store) -> list[str]:
    names = (parse_budget_log_name(info.id) for info in await store.sessions(limit=ALL_SESSIONS))
    return sorted({name for name in names if name is not None})


def _format_account(name: str, account: BudgetAccount, width: int) -> str:
    shown = pad_text(fit_line(escape_text(name), width), width)
    return (
        f"{shown} {_format_amount_usd(account.spent):>12} {_format_limit(account.limits):>10}"
        f" {_format_amount_usd(account.reserved):>12} {account.spent.steps:>8,} {len(account.open_reservations):>5,}"
    )


def _format_amount_usd(amount: Amount) -> str:
    return f"${amount.usd:.6f}"


def _format_limit(limits: Limits) -> str:
    if limits.usd is not None:
        return f"${limits.usd:f}"
    if limits.tokens is not None:
        return f"{limits.tokens:,} tok"
    if limits.steps is not None:
        return f"{limits.steps:,} calls"
    return "-" if limits.tool_calls is None else f"{limits.tool_calls:,} tools"


def _account_as_data(name: str, account: BudgetAccount) -> dict[str, object]:
    return {
        "name": name,
        "spent": account.spent,
        "reserved": account.reserved,
        "excess": account.excess,
        "limits": account.limits,
        "open": list(account.open_reservations.values()),
    }
