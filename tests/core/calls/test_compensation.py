"""Compensation: the actions of a run are undone in reverse order, durably, each once."""

import asyncio
import json

import pytest

from bridle import Agent, RunContext, tool
from bridle.cli.main import main
from bridle.stores.memory import MemoryStore
from bridle.testing import FakeClock, scripted
from bridle.testing.scripted_model import call_reply
from bridle.values import events as e
from bridle.values.errors import BadTool, Failure, MisuseError

BROKEN = Failure(kind="invalid", message="no more")


class Hotel:
    def __init__(self):
        self.booked, self.undone, self.fails = [], [], set()

    def tools(self, **options):
        @tool(name="cancel_room", **options)
        def cancel(room: int, receipt: str, context: RunContext) -> str:
            """Cancel a booking."""
            self.undone.append((room, receipt, context.idempotency_key, context.attempt))
            if room in self.fails:
                raise RuntimeError(f"room {room} is locked")
            return f"cancelled {room}"

        @tool(effect="write", compensate=cancel)
        def book(room: int, nights: int = 1) -> str:
            """Book a room."""
            if room == 13:
                raise RuntimeError("no such room")
            self.booked.append(room)
            return f"booked {room}"

        @tool(effect="read")
        def look() -> str:
            """Look."""
            return "seen"

        return [book, look]


SCRIPT = call_reply(("book", {"room": 1}), ("look", {}), ("book", {"room": 13}), ("book", {"room": 2}))


def run_failing_booking(hotel, store=None, *more, **options):
    agent = Agent(
        scripted(SCRIPT, BROKEN, BROKEN, *more), tools=hotel.tools(**options), store=store, clock=FakeClock()
    )
    return agent, agent.run_sync("?", session="s")


def test_after_a_fatal_end_the_list_is_there_and_runs_backwards_once():
    hotel = Hotel()
    agent, result = run_failing_booking(hotel)
    assert result.stop == "failed"
    assert [
        (item.tool, item.arguments, item.receipt, item.compensating_tool) for item in result.compensations
    ] == [
        ("book", '{"room":2}', "booked 2", "cancel_room"),
        ("book", '{"room":1}', "booked 1", "cancel_room"),
    ]
    left = asyncio.run(agent.compensate("s"))
    assert [item.state for item in left] == ["done", "done"]
    assert [room for room, *_ in hotel.undone] == [2, 1]
    assert hotel.undone[0][1] == "booked 2"
    assert len({key for *_, key, _ in hotel.undone}) == 2
    asyncio.run(agent.compensate("s"))
    assert len(hotel.undone) == 2


def test_of_a_long_receipt_the_undoing_gets_all():
    undone, long = [], "room\n" * 10_000

    def cancel(room: int, receipt: str) -> str:
        """Cancel a booking."""
        undone.append((room, receipt))
        return "cancelled"

    @tool(effect="write", compensate=cancel)
    def book(room: int) -> str:
        """Book a room."""
        return long

    line = scripted(call_reply(("book", {"room": 1})), BROKEN)
    agent = Agent(line, tools=[book], clock=FakeClock(), result_characters=1_000)
    (item,) = agent.run_sync("?", session="s").compensations
    assert len(item.receipt) <= 1_000
    asyncio.run(agent.compensate("s"))
    assert undone == [(1, long)]


def test_a_good_end_lists_nothing():
    result = Agent(scripted(SCRIPT, "fine"), tools=Hotel().tools()).run_sync("?")
    assert (result.stop, result.compensations) == ("done", ())


def test_it_stops_where_one_fails_and_goes_on_from_there():
    hotel = Hotel()
    hotel.fails = {1}
    agent, _ = run_failing_booking(hotel)
    left = asyncio.run(agent.compensate("s"))
    assert [(item.state, item.result) for item in left] == [
        ("done", "cancelled 2"),
        ("failed", "RuntimeError: room 1 is locked"),
    ]
    hotel.fails = set()
    left = asyncio.run(agent.compensate("s"))
    assert [item.state for item in left] == ["done", "done"]
    rooms = [(room, attempt) for room, _, _, attempt in hotel.undone]
    assert rooms == [(2, 1), (1, 1), (1, 2)]
    assert hotel.undone[1][2] == hotel.undone[2][2]


@pytest.mark.parametrize("policy", ["report", "retry"])
def test_an_undoing_that_was_cut_off_follows_its_tools_policy(policy):
    async def cut():
        records = await whole.read("s")
        at = next(i for i, r in enumerate(records) if isinstance(r.event, e.CompensationStarted))
        store = MemoryStore()
        await store.append("s", 0, records[: at + 1])
        return store

    hotel, whole = Hotel(), MemoryStore()
    agent, _ = run_failing_booking(hotel, whole, on_unknown=policy)
    asyncio.run(agent.compensate("s"))
    hotel.undone.clear()
    store = asyncio.run(cut())
    again = Agent(scripted(SCRIPT), tools=hotel.tools(on_unknown=policy), store=store, clock=FakeClock())
    left = asyncio.run(again.compensate("s"))
    if policy == "report":
        assert ([item.state for item in left], hotel.undone) == (["in_doubt", "open"], [])
    else:
        assert [item.state for item in left] == ["done", "done"]
        assert [(room, attempt) for room, _, _, attempt in hotel.undone] == [(2, 2), (1, 1)]


def test_the_model_hears_what_was_undone():
    hotel = Hotel()
    agent, _ = run_failing_booking(hotel, None, "I see.")
    asyncio.run(agent.compensate("s"))
    result = agent.run_sync("and now?", session="s")
    texts = [message.text for message in result.messages]
    told = texts[texts.index("and now?") - 1]
    assert "were undone" in told
    assert 'book({"room":2})' not in told.split("undone")[0]


def test_mistakes_are_one_line():
    with pytest.raises(BadTool, match="only reads"):
        tool(lambda: None, name="x", effect="read", compensate=print)
    agent, _ = run_failing_booking(Hotel())
    plain = Agent(scripted("x"), store=agent.store)
    with pytest.raises(MisuseError, match="cancel_room"):
        asyncio.run(plain.compensate("s"))
    with pytest.raises(MisuseError, match="no session"):
        asyncio.run(plain.compensate("nobody"))


TOOLS = """
from bridle import tool

def free(seat: str) -> str:
    "Free a seat."
    print("FREED", seat)
    return "freed"

@tool(effect="write", compensate=free)
def take(seat: str) -> str:
    "Take a seat."
    return "taken"
"""


def test_the_command(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("BRIDLE_STORE", str(tmp_path / "log.db"))
    (tmp_path / "seats.py").write_text(TOOLS)
    tools = ["--tools", str(tmp_path / "seats.py")]
    prompt = '!call take {"seat": "4A"}\n!then\n!call take {"seat": "4B"}\n!then\n!say ok'
    assert main(["run", prompt, *tools, "--yes", "--steps", "2", "--json", "-m", "sim:"]) == 1
    session = json.loads(capsys.readouterr().out)["session"]
    assert main(["session", "compensate", session, "--list"]) == 0
    assert capsys.readouterr().out.count("open") == 2
    assert main(["session", "compensate", session]) == 2
    assert main(["session", "compensate", session, *tools]) == 2
    assert "--yes" in capsys.readouterr().err
    assert main(["session", "compensate", session, *tools, "--yes", "--json"]) == 0
    out, err = capsys.readouterr()
    assert [item["state"] for item in json.loads(out)] == ["done", "done"]
    assert err.split() == ["FREED", "4B", "FREED", "4A"]
    assert main(["show", session]) == 0
    assert "compensated" in capsys.readouterr().out


def test_what_is_in_doubt_is_listed_and_a_person_may_settle_it():
    hotel = Hotel()
    book, look = hotel.tools()

    async def main():
        begun = asyncio.Event()

        @tool(effect="write", compensate=lambda: "undone")
        async def hang() -> str:
            """Wait for ever."""
            begun.set()
            await asyncio.Event().wait()

        agent = Agent(scripted(call_reply(("book", {"room": 1}), ("hang", {}))), tools=[book, look, hang])
        running = asyncio.create_task(agent.run("?", session="s"))
        await begun.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        first = await agent.compensate("s")
        return first, await agent.compensate("s", settled=["c1_1"])

    first, second = asyncio.run(main())
    assert [(item.tool, item.state) for item in first] == [("hang", "in_doubt"), ("book", "open")]
    assert [(item.tool, item.state) for item in second] == [("hang", "done"), ("book", "done")]
    assert [room for room, *_ in hotel.undone] == [1]
