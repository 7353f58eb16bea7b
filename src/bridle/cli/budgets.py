"""Tell what is spent and what is set aside of the budgets that are kept in the log: tenants' and pools'.

With a name, also the calls that have something set aside just now.  The limit shown is the one that was
given last: whoever asks says what it is.
"""

import argparse
import asyncio

from ..core.account import Account
from ..ports.store import Store
from ..run.till import Till
from ..values.errors import MisuseError
from ..values.pooled import Amount, budget_of
from ..values.text import escape_text
from ..values.usage import Limits
from .columns import cut, padded
from .cost import EVERY_SESSION
from .places import add_store_option, open_log
from .printing import say, say_json

NAME_WIDTH = 24


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "name", nargs="?", help="only this one, with its open calls; of a tenant, tenant:NAME"
    )
    parser.add_argument("--json", action="store_true", help="print them as a JSON list")
    add_store_option(parser)


def execute(options: argparse.Namespace) -> int:
    found = asyncio.run(_accounts(options))
    if options.name and not found:
        raise MisuseError(f"there is no budget {options.name!r} here; `bridle budgets` lists them")
    if options.json:
        say_json([_as_data(name, account) for name, account in found.items()])
        return 0
    if not found:
        say("no budget is kept in this log; see StoredBudget and Budget(tenant=…)")
        return 0
    say(f"{'':<{NAME_WIDTH}} {'spent':>12} {'of':>10} {'set aside':>12} {'calls':>8} {'open':>5}")
    for name, account in found.items():
        say(_row(name, account))
    if options.name:
        for each in found[options.name].open.values():
            inside = f", for {each.by}" if each.by else ""
            say(escape_text(f"  {each.id}{inside}: {_dollars(each.amount)} · {each.amount.tokens:,} tokens"))
    return 0


async def _accounts(options: argparse.Namespace) -> dict[str, Account]:
    store = open_log(options.store, to_read=True)
    try:
        names = [options.name] if options.name else await _names(store)
        found = {name: await Till(store, name).catch_up() for name in names}
        return {name: account for name, account in found.items() if account.spent != Amount() or account.open}
    finally:
        await store.close()


async def _names(store: Store) -> list[str]:
    names = (budget_of(info.id) for info in await store.sessions(limit=EVERY_SESSION))
    return sorted({name for name in names if name is not None})


def _row(name: str, account: Account) -> str:
    shown = padded(cut(name, NAME_WIDTH), NAME_WIDTH)
    return (
        f"{shown} {_dollars(account.spent):>12} {_limit(account.limits):>10}"
        f" {_dollars(account.reserved):>12} {account.spent.steps:>8,} {len(account.open):>5,}"
    )


def _dollars(amount: Amount) -> str:
    return f"${amount.usd:.6f}"


def _limit(limits: Limits) -> str:
    if limits.usd is not None:
        return f"${limits.usd:f}"
    if limits.tokens is not None:
        return f"{limits.tokens:,} tok"
    if limits.steps is not None:
        return f"{limits.steps:,} calls"
    return "-" if limits.tool_calls is None else f"{limits.tool_calls:,} tools"


def _as_data(name: str, account: Account) -> dict[str, object]:
    return {
        "name": name,
        "spent": account.spent,
        "reserved": account.reserved,
        "excess": account.excess,
        "limits": account.limits,
        "open": list(account.open.values()),
    }
