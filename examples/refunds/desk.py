"""A support desk: refunds up to 100 dollars are paid, larger ones wait for a person, failed tickets are undone.

    python examples/refunds/desk.py T-1 "Orders 4411 and 4412 arrived damaged. Refund them."
    python examples/refunds/desk.py T-1            # continue after an approval, Ctrl-C or a crash

The ticket is the session, so a second process never starts it again. State is in the current folder: desk.db (the
log), ledger.txt (the bank) and stock.txt (the warehouse).
"""

import argparse
import asyncio
import os
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec

from bridle import (
    Agent,
    BridleError,
    Budget,
    Compensation,
    Model,
    ModelConnection,
    PermissionRule,
    Policy,
    Result,
)
from bridle.messages import escape_text
from bridle.testing import simulated
from desk_model import answer_ticket
from tools import find_order, refund
from warehouse import book_courier, reserve_replacement

HANDBOOK = Path(__file__).with_name("handbook.md").read_text(encoding="utf-8")
POLICY = Policy(
    version="2026-11",
    rules=(
        PermissionRule(
            decision="allow", name="small refunds", tools=("refund",), arguments={"usd": "<= 100"}
        ),
        PermissionRule(decision="ask", name="refunds above 100 USD", tools=("refund",)),
    ),
)
EXIT_FAILED, EXIT_WAITING, EXIT_UNDONE, EXIT_NOT_UNDONE = 1, 3, 4, 5


class Outcome(msgspec.Struct, frozen=True):
    resolved: bool
    """False if a step failed; what was done before it is then undone."""
    message: str
    """What the customer reads."""


def choose_model(name: str) -> str | ModelConnection:
    """The offline model for `sim:…`, else the model of that name."""
    return simulated(answer_ticket, model=name) if name.startswith("sim:") else name


def make_agent(model: str | Model | ModelConnection = "sim:", **options: Any) -> Agent[object, Outcome]:
    """Build the agent; `options` are further ones of `Agent`."""
    return Agent(
        choose_model(model) if isinstance(model, str) else model,
        name="desk",
        tools=[find_order, refund, reserve_replacement, book_courier],
        instructions=HANDBOOK,
        output=Outcome,
        policy=POLICY,
        budget=Budget(usd=Decimal("0.25"), steps=12),
        **{"store": "desk.db", **options},
    )


async def work_on(
    agent: Agent[object, Outcome], ticket: str, text: str | None, folder: Path = Path()
) -> tuple[Result[Outcome], tuple[Compensation, ...]]:
    """Start a ticket, or continue it if `text` is None; returns what is to be undone if it could not be resolved.

    `folder` has the files of the bank and the warehouse.
    """
    if text is None:
        result = await agent.resume(ticket, context=folder)
    else:
        result = await agent.run(text, ticket, context=folder)
    if result.output is None or result.output.resolved:
        return result, ()
    return result, await agent.compensate(ticket, context=folder)


async def show_result(agent: Agent[object, Outcome], result: Result[Outcome]) -> int:
    if result.stop == "waiting":
        for question in await agent.approvals(result.session):
            print(
                escape_text(f"waits for approval: {question.tool}({question.complete_arguments})", exact=True)
            )
            print(
                f"  bridle approvals approve {question.id} --store desk.db --by NAME, then run this ticket again"
            )
        return EXIT_WAITING
    if result.output is None:
        print(escape_text(f"{result.session}: {result.stop}: {result.reason}", exact=True), file=sys.stderr)
        return EXIT_FAILED
    print(escape_text(result.output.message, exact=True))
    return 0 if result.output.resolved else EXIT_UNDONE


async def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("ticket", help="number of the ticket; the name of its session")
    parser.add_argument(
        "text", nargs="?", help="message of the customer; leave it out to continue the ticket"
    )
    parser.add_argument(
        "--model", default=os.environ.get("BRIDLE_MODEL", "sim:"), help="default: $BRIDLE_MODEL or sim:"
    )
    given = parser.parse_args()
    agent = make_agent(given.model)
    result, undone = await work_on(agent, given.ticket, given.text)
    for item in undone:
        call = f"{item.tool}({item.arguments})"
        is_done = item.state == "done"
        line = f"undone: {call}" if is_done else f"NOT undone ({item.state}): {call} {item.result}"
        print(escape_text(line.rstrip(), exact=True))
    code = await show_result(agent, result)
    if any(item.state != "done" for item in undone):
        print("Not everything was undone. Run the ticket again, or undo the rest by hand.", file=sys.stderr)
        return EXIT_NOT_UNDONE
    return code


if __name__ == "__main__":
    try:
        sys.exit(asyncio.run(main()))
    except BridleError as error:
        sys.exit(escape_text(str(error), exact=True))
    except KeyboardInterrupt:
        sys.exit("interrupted; run the ticket again to continue it")
