"""An agent that pays and can be killed while it does: a program for test_kill.py, and its parts.

    kill_agent.py FOLDER POLICY MOMENT AMOUNT…

Every payment is a line in `ledger`, with the key it was made under.  At the moment asked for
it says so on standard output and waits for ever: whoever reads that can kill it exactly there.
A MOMENT of "never" waits nowhere, but tells of every step; "kept" tells of every record as well.

    kill_agent.py --serve

reads words from its input, one process to a line: FILE FOLDER POLICY AT HOW COUNT AMOUNT….  It forks each, which
writes to FILE what it tells, and answers with the process's status when it has ended.  `kill_at_write.c`, loaded
before all else, gives AT, HOW and COUNT their meaning.
"""

import asyncio
import os
import sys
import threading
from pathlib import Path
from typing import Any

from bridle import Agent, RunContext, tool
from bridle.testing import scripted
from bridle.testing.scripted_model import call_reply
from bridle.values.events import Prompted, ToolFinished
from bridle.values.record import Record

SESSION = "s"
POLICIES = ("retry", "probe", "ask", "report")
MOMENTS = ("before", "after", "receipt")
"""Before the payment is made; when it is made and nobody knows; when its receipt is written."""
AMOUNT_LONG, RESULT_LONG = 7, 60_000
"""The receipt of one amount is so long that it is kept apart from the log's records."""


class Ledger:
    def __init__(self, folder: Path) -> None:
        self._path = folder / "ledger"

    def add(self, amount: int, key: str) -> None:
        with self._path.open("a") as file:
            file.write(f"{amount} {key}\n")

    def lines(self) -> list[tuple[int, str]]:
        if not self._path.exists():
            return []
        return [(int(amount), key) for amount, key in map(str.split, self._path.read_text().splitlines())]


class Pausing:
    """Tells of every moment, and stays in the one that was asked for when the last payment comes to it."""

    def __init__(self, moment: str, last: int) -> None:
        self._moment, self._last = moment, last

    def reach(self, moment: str, amount: int) -> None:
        print(moment, amount, flush=True)
        if moment == self._moment and amount == self._last:
            threading.Event().wait()

    def on_event(self, session: str, happening: Any) -> None:
        if self._moment == "kept" and isinstance(happening, Record):
            print("kept", happening.seq, happening.hash, flush=True)
        if isinstance(happening, Record) and isinstance(happening.event, ToolFinished):
            self.reach("receipt", int(happening.event.result.call_id.split("_")[1]) + 1)


class Silent(Pausing):
    def reach(self, moment: str, amount: int) -> None:
        pass


def paying_agent(folder: Path, policy: str, amounts: list[int], pausing: Pausing | None = None) -> Agent:
    ledger, pausing = Ledger(folder), pausing or Silent("never", 0)

    def look_up(call: RunContext) -> str | None:
        found = [amount for amount, key in ledger.lines() if key == call.idempotency_key]
        return f"paid {found[0]}, as the ledger says" if found else None

    @tool(effect="write", on_unknown=policy, **({"probe": look_up} if policy == "probe" else {}))  # type: ignore[call-overload]
    def pay(amount: int, call: RunContext) -> str:
        """Pay."""
        pausing.reach("before", amount)
        ledger.add(amount, call.idempotency_key)
        pausing.reach("after", amount)
        return f"paid {amount}" + "." * (RESULT_LONG if amount == AMOUNT_LONG else 0)

    script = scripted(call_reply(*(("pay", {"amount": amount}) for amount in amounts)), "all paid")
    named = folder / "store"  # holds the URL of another store
    store = named.read_text() if named.exists() else folder / "log.db"
    return Agent(script, tools=[pay], store=store, watchers=[pausing])


async def main(folder: Path, policy: str, moment: str, amounts: list[int]) -> None:
    agent = paying_agent(folder, policy, amounts, Pausing(moment, amounts[-1]))
    prompted = any(isinstance(record.event, Prompted) for record in await agent.store.read(SESSION))
    result = await (agent.resume(SESSION) if prompted else agent.run("Pay.", session=SESSION))
    print("ended", result.stop, flush=True)


def serve() -> None:
    # What a run imports is imported once, and not by every process.
    asyncio.run(Agent(scripted("nothing to pay")).run("Pay."))
    assert threading.active_count() == 1, "a process with threads must not fork"
    for line in sys.stdin:
        told, folder, policy, at, how, count, *amounts = line.split()
        child = os.fork()
        if child == 0:
            os.dup2(os.open(told, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), 1)
            os.environ.update(KILL_PATH=f"{folder}/log.db", KILL_AT=at, KILL_HOW=how, KILL_COUNT=count)
            asyncio.run(main(Path(folder), policy, "kept", [int(word) for word in amounts]))
            return
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


if __name__ == "__main__":
    if sys.argv[1:] == ["--serve"]:
        serve()
    else:
        asyncio.run(main(Path(sys.argv[1]), sys.argv[2], sys.argv[3], [int(word) for word in sys.argv[4:]]))
