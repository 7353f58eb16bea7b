"""Programs of code mode in a process that is killed after every record: no completed call runs twice.

The program loops, writes, asks for approval and calls at the same time.  Each tool counts its runs in a file.  The run
is resumed here and compared with one that was not interrupted: its answer, the calls, the logs of both sessions.
"""

import asyncio
import json
from pathlib import Path

import pytest

from bridle import Agent, Budget, CodeMode, tool
from bridle.stores import open_store
from bridle.values import events as e
from bridle.values.budget import SubrunCharged
from tests.run.calls.team_facts import Side
from tests.run.calls.team_facts import list_facts as list_all_facts
from tests.suite.campaign import IS_WHOLE
from tests.suite.crashes import kill_after_every_record, kill_after_record

CODE = """
seats = []
for row in range(2):
    seats += find_seats(row=row)
print("free:", seats)
receipt = book(seat=seats[-1])
first, second = parallel(lambda: find_seats(row=7), lambda: price(seat=seats[0]))
try:
    price(seat="none")
except ToolError as error:
    print("refused:", error)
print(pay(receipt=receipt, amount=second))
len(seats)
"""
PROMPT = f"!call run_code {json.dumps({'code': CODE})}\n!then\n!say All done."
PRINTED = """\
free: ['0a', '0b', '1a', '1b']
refused: ValueError: no such seat
paid 12.5 for booked 1b
4"""
CALLS = [
    "find_seats 0", "find_seats 1", "book 1b", "find_seats 7", "price 0a", "price none", "pay booked 1b",
]  # fmt: skip


def make_agent(side, store):
    @tool(effect="read")
    def find_seats(row: int) -> list[str]:
        """Find the free seats of a row."""
        side.write(f"find_seats {row}")
        return [f"{row}a", f"{row}b"]

    @tool(effect="write", on_unknown="retry")
    def book(seat: str) -> str:
        """Book a seat."""
        side.write(f"book {seat}")
        return f"booked {seat}"

    @tool(effect="read")
    async def price(seat: str) -> float:
        """Price of a seat."""
        side.write(f"price {seat}")
        if seat == "none":
            raise ValueError("no such seat")
        return 12.5

    @tool(effect="exclusive", on_unknown="retry", approve=True)
    def pay(receipt: str, amount: float) -> str:
        """Pay for a booking."""
        side.write(f"pay {receipt}")
        return f"paid {amount} for {receipt}"

    return Agent(
        "sim:",
        tools=[find_seats, book, price, pay],
        code_mode=CodeMode(),
        store=store,
        budget=Budget(tool_calls=8),
    )


async def run_to_end(agent, result):
    """Approve and resume until the run has ended."""
    while result.stop == "waiting":
        (question,) = await agent.approvals(result.subruns[-1].session)
        await agent.approve(question.session, question.call_id)
        result = await agent.resume("s")
    return result


def run_and_kill(folder, count):
    """Run in this process, which is killed after its `count`th record."""
    agent = make_agent(Side(Path(folder)), f"{folder}/log.db")
    kill_after_record(count)

    async def run():
        await run_to_end(agent, await agent.run(PROMPT, "s"))

    asyncio.run(run())


def finish(folder):
    async def run():
        agent = make_agent(Side(folder), str(folder / "log.db"))
        begun = any(isinstance(record.event, e.Prompted) for record in await agent.store.read("s"))
        started = agent.resume("s") if begun else agent.run(PROMPT, "s")
        result = await run_to_end(agent, await started)
        await agent.store.close()
        return result

    return asyncio.run(run())


def read_sessions(folder):
    async def read():
        store = open_store(str(folder / "log.db"))
        logs = {
            each.id: [record.event for record in await store.read(each.id)] for each in await store.sessions()
        }
        await store.close()
        return logs

    return asyncio.run(read())


def read_calls(folder):
    return Side(folder).calls if (folder / "calls").exists() else []


def list_completed(folder):
    """The calls of the program whose results are recorded, as its tools write them."""
    events = (event for session, log in read_sessions(folder).items() if session != "s" for event in log)
    finished = (event for event in events if isinstance(event, e.ToolFinished))
    return {f"{each.name} {next(iter(json.loads(each.arguments).values()))}" for each in finished}


def list_results(result):
    return [part.text for message in result.messages for part in message.results]


def list_facts(logs):
    """What happened once; a run that is resumed before it has its answer waits again."""
    return [fact for fact in list_all_facts(logs) if "waiting" not in fact]


def count_charges(logs):
    return sum(event.tool_calls for event in logs["s"] if isinstance(event, SubrunCharged))


@pytest.mark.slow
def test_killed_after_every_event_no_call_of_a_program_runs_twice(tmp_path):
    whole = tmp_path / "whole"
    whole.mkdir()
    result = finish(whole)
    assert (result.stop, result.text) == ("done", "All done."), result.reason
    assert list_results(result) == [PRINTED]
    logs = read_sessions(whole)
    expected = list_facts(logs)
    # The calls at the same time have no order.
    assert sorted(Side(whole).calls) == sorted(CALLS) and count_charges(logs) == len(CALLS)
    kills = 0
    for count, folder in kill_after_every_record(tmp_path, __file__):
        killed = f"killed after record {count}"
        completed, before = list_completed(folder), read_calls(folder)
        result = finish(folder)
        assert (result.stop, result.text) == ("done", "All done."), killed
        assert list_results(result) == [PRINTED], killed
        calls = read_calls(folder)
        assert not completed.intersection(calls[len(before) :]), killed
        # The two reads at the same time may have run without a record of it.
        assert {*calls} == {*CALLS} and len(calls) <= len(CALLS) + 2, killed
        assert calls.count("book 1b") == calls.count("pay booked 1b") == 1, killed
        logs = read_sessions(folder)
        assert list_facts(logs) == expected, killed
        assert count_charges(logs) == len(CALLS), killed
        kills += 1
    assert kills > (40 if IS_WHOLE else 8)
