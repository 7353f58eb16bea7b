"""Teams of agents in a process that is killed after every record: nothing is decided or paid for twice.

Each scenario counts the calls of user code in a file, and the answers of the provider in another one.  The run is
resumed here and compared with one that was not interrupted: the logs of all its sessions, the calls, and the money.
"""

import asyncio
import json
import time
from decimal import Decimal
from pathlib import Path

import pytest

from bridle import Budget, Handover, StoredBudget, per_turn, tool
from bridle.hooks import Change
from bridle.run.budget.stored import BudgetLog
from bridle.stores import open_store
from bridle.values import events as e
from bridle.values.budget import BUDGET_LOG_PREFIX, BudgetSettled
from tests.run.calls.team_facts import Side, list_facts
from tests.suite.bills import read_bill
from tests.suite.crashes import kill_after_every_record, kill_after_record

BOOK = '!call book {"seat": 4}\n!then\n!say Booked.'
POOL = "team"


class CountingHook:
    """Counts its decisions and changes something at every point."""

    def __init__(self, name, side, script=""):
        self.name, self._side, self._script = name, side, script

    def _count(self, point):
        self._side.write(f"{self.name} {point}")

    def before_model(self, run, request):
        self._count(f"before_model {run.step}")
        return Change(text=self._script) if self._script and run.step == 1 else None

    async def after_model(self, run, reply):
        self._count(f"after_model {run.step}")
        return Change(text="Well, booked.") if reply.text == "Booked." else None

    def before_tool(self, run, call):
        self._count(f"before_tool {call.name}")
        return Change(arguments={"seat": 5}) if call.name == "book" else None

    async def after_tool(self, run, call, result):
        self._count(f"after_tool {call.name}")
        return Change(text=f"{result.text}, by the window") if call.name == "book" else None

    def on_end(self, run, end):
        self._count("on_end")
        return Change(text=f"{end.answer} Signed {self.name}.")


def make_hooked(side, store):
    hooks = [CountingHook("first", side, BOOK), CountingHook("second", side)]
    return side.make_agent(
        tools=[side.make_book()], hooks=hooks, store=store, pool=StoredBudget(usd=1, name=POOL)
    )


def make_nested(side, store):
    inner = side.make_agent(name="travel", tools=[side.make_book()], hooks=[CountingHook("inner", side)])
    return side.make_agent(
        tools=[inner.as_tool()],
        hooks=[CountingHook("outer", side)],
        store=store,
        pool=StoredBudget(usd=1, name=POOL),
    )


def make_fan_out(side, store):
    @tool(effect="read")
    async def look(at: str) -> str:
        """Look at a shelf."""
        side.write(f"look {at}")
        return f"{at}: full"

    inner = side.make_agent(name="shop", tools=[look])
    return side.make_agent(
        tools=[inner.as_tool(effect="read")],
        store=store,
        budget=Budget(usd=1),
        pool=StoredBudget(usd=1, name=POOL),
    )


def make_handed_over(side, store):
    def choose_view(messages):
        side.write(f"view {len(messages)}")
        return "A customer wants a seat."

    def write_rules():
        side.write("rules of booking")
        return '!call book {"seat": 4}\n!then\n!call transfer_to_desk\n!then\n!say Booked.'

    def describe_desk():
        side.write("description of desk")
        return "You greet."

    booking = side.make_agent(
        name="booking",
        tools=[side.make_book()],
        handover=["desk"],
        instructions=["You book seats.", per_turn(write_rules)],
        hooks=[CountingHook("booking", side)],
    )
    return side.make_agent(
        name="desk",
        handover=[Handover(agent=booking, sees=choose_view)],
        instructions=describe_desk,
        hooks=[CountingHook("desk", side)],
        store=store,
        pool=StoredBudget(usd=1, name=POOL),
    )


NESTED = f"!call travel {json.dumps({'prompt': BOOK})}\n!then\n!say All done."
LOOKS = [json.dumps({"prompt": f'!call look {{"at": "{n}"}}\n!then\n!say Shelf {n}.'}) for n in range(3)]
FAN_OUT = "\n".join(f"!call shop {look}" for look in LOOKS) + "\n!then\n!say All seen."
SCENARIOS = {
    "hooks": (make_hooked, "A seat, please.", "Well, booked. Signed first. Signed second."),
    "as_tool": (make_nested, NESTED, "All done. Signed outer."),
    "fan_out": (make_fan_out, FAN_OUT, "All seen."),
    "handover": (make_handed_over, "!call transfer_to_booking", "Well, booked. Signed desk."),
}


def run_and_kill(folder, count, scenario):
    """Run in this process, which is killed after its `count`th record."""
    make, prompt, _ = SCENARIOS[scenario]
    agent = make(Side(Path(folder)), f"{folder}/log.db")
    kill_after_record(count)
    asyncio.run(agent.run(prompt, "s"))


def finish(folder, scenario):
    """Run or resume the session; returns its result."""

    async def run():
        make, prompt, _ = SCENARIOS[scenario]
        agent = make(Side(folder), str(folder / "log.db"))
        records = await agent.store.read("s")
        begun = any(isinstance(record.event, e.Prompted) for record in records)
        result = await (agent.resume("s") if begun else agent.run(prompt, "s"))
        await agent.store.close()
        return result

    return asyncio.run(run())


def read_sessions(folder):
    """The events of every session, and what was spent of the pool without calls that were cut."""

    async def read():
        store = open_store(str(folder / "log.db"))
        pool = BudgetLog(store, POOL)
        await pool.catch_up()
        await pool.settle_abandoned("", 0, time.time)
        ids = [each.id for each in await store.sessions()]
        logs = {id_: [record.event for record in await store.read(id_)] for id_ in ids}
        await store.close()
        of_pool = [event for id_ in ids if id_.startswith(BUDGET_LOG_PREFIX) for event in logs.pop(id_)]
        settled = [event for event in of_pool if isinstance(event, BudgetSettled)]
        presumed = [event.amount.usd for event in settled if event.source == "presumed"]
        assert not pool.account.open_reservations
        return logs, pool.account.spent.usd - sum(presumed)

    return asyncio.run(read())


def sum_replies(logs):
    events = [event for log in logs.values() for event in log]
    return sum((event.usd for event in events if isinstance(event, e.ModelReplied)), Decimal())  # type: ignore[type-var]


@pytest.mark.slow
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_killed_after_every_event_nothing_is_decided_or_paid_for_twice(tmp_path, scenario):
    whole = tmp_path / "whole"
    whole.mkdir()
    answer = SCENARIOS[scenario][2]
    result = finish(whole, scenario)
    assert (result.stop, result.text) == ("done", answer), result.reason
    logs, counted = read_sessions(whole)
    expected, called = list_facts(logs), Side(whole).calls
    bill = sum(read_bill(whole / "bill"))
    assert sum_replies(logs) == counted == bill and result.cost == pytest.approx(float(bill))
    for count, folder in kill_after_every_record(tmp_path, __file__, scenario):
        killed = f"killed after record {count}"
        result = finish(folder, scenario)
        assert (result.stop, result.text) == ("done", answer), killed
        logs, counted = read_sessions(folder)
        assert list_facts(logs) == expected, killed
        assert sum_replies(logs) == counted, killed
        assert result.cost == pytest.approx(float(counted)), killed
        bill = sum(read_bill(folder / "bill"))
        if scenario == "fan_out":
            # The kill may cut a call of another run, whose answer the provider has sent.
            assert bill >= counted and sorted({*Side(folder).calls}) == sorted(called), killed
        else:
            assert bill == counted and Side(folder).calls == called, killed
