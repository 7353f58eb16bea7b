"""A run that is handed over and comes back: bounded, resumable, with options, hooks, budgets and compensation."""

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest

from bridle import Agent, Budget, Handover, MisuseError, RateLimit, StoreError, tool
from bridle.errors import BadTool
from bridle.stores.memory import MemoryStore
from bridle.testing import FakeClock, scripted
from bridle.testing.scripted_model import call_reply
from bridle.values import events as e
from tests.suite.crashes import CrashingStore, kill_after_every_record, kill_after_record
from tests.suite.wire_models import MODELS

PROMPT = (
    "!call transfer_to_booking\n!then\n"
    '!call book {"seat": 4}\n!then\n'
    "!call transfer_to_desk\n!then\n"
    '!call greet {"name": "Ann"}\n!then\n'
    "!say Booked, Ann."
)
AGENTS = ["", "booking", "desk"]


class CountingHook:
    """Records the points at which it decides."""

    def __init__(self, name, write):
        self.name, self._write = name, write

    def before_model(self, run, request):
        self._write(f"{self.name} before_model {run.step}")

    def after_tool(self, run, call, result):
        self._write(f"{self.name} after_tool {call.name}")

    def on_end(self, run, end):
        self._write(f"{self.name} on_end")


def make_desk(store, write=lambda line: None, model="sim:", first=(), second=(), **options):
    """A desk and a booking agent that hand over to one another; `first` and `second` are options of each."""

    def undo_greet(name: str) -> str:
        write(f"undo greet {name}")
        return "undone"

    def undo_book(seat: int) -> str:
        write(f"undo book {seat}")
        return "undone"

    @tool(effect="write", on_unknown="retry", compensate=undo_greet)
    def greet(name: str) -> str:
        """Greet a customer."""
        write(f"greet {name}")
        return f"hello {name}"

    @tool(effect="write", on_unknown="retry", compensate=undo_book)
    def book(seat: int) -> str:
        """Book a seat."""
        write(f"book {seat}")
        return f"seat {seat}"

    booking = Agent(
        model, name="booking", tools=[book], handover=["desk"], instructions="You book seats.", **dict(second)
    )
    own = {"instructions": "You greet.", **dict(first), **options}
    return Agent(model, name="desk", tools=[greet], handover=[booking], store=store, **own)


def read(store, kind=object):
    return [record.event for record in asyncio.run(store.read("s")) if isinstance(record.event, kind)]


def list_agents(store):
    return [event.handed_over_to for event in read(store, e.Configured)]


@pytest.mark.parametrize("model", MODELS)
def test_a_run_goes_back_to_the_agent_that_had_it(model):
    store, lines = MemoryStore(), []
    result = make_desk(store, lines.append, model).run_sync(PROMPT, "s")
    assert (result.stop, result.text, lines) == ("done", "Booked, Ann.", ["book 4", "greet Ann"])
    configured = read(store, e.Configured)
    assert [event.handed_over_to for event in configured] == AGENTS
    assert [event.settings.instructions for event in configured] == [
        "You greet.",
        "You book seats.",
        "You greet.",
    ]
    assert len(read(store, e.RunEnded)) == 1


def test_peers_hand_over_to_one_another_by_name():
    store = MemoryStore()
    billing = Agent("sim:", name="billing", handover=["support", "desk"])
    support = Agent("sim:", name="support", handover=["billing"])
    desk = Agent("sim:", name="desk", handover=[billing, support], store=store)
    steps = ["support", "billing", "support", "billing", "desk"]
    prompt = "".join(f"!call transfer_to_{name}\n!then\n" for name in steps) + "!say Done."
    assert desk.run_sync(prompt, "s").text == "Done."
    assert list_agents(store) == ["", *steps]


@pytest.mark.parametrize(("limit", "hops"), [(None, 8), (3, 3), (1, 1)])
def test_a_run_is_handed_over_only_so_often(limit, hops):
    store = MemoryStore()
    options = {} if limit is None else {"handovers_max": limit}
    back = "!call transfer_to_booking\n!then\n!call transfer_to_desk\n!then\n" * 6
    desk = make_desk(store, first={**options, "repeats_max": None}, second={**options, "repeats_max": None})
    result = desk.run_sync(back + "!say End.", "s")
    assert result.stop == "no_progress"
    assert f"handed over {hops} times" in result.reason and f"handovers_max={hops}" in result.reason
    assert len(list_agents(store)) == hops + 1
    (ended,) = read(store, e.RunEnded)
    assert ended.reason == result.reason, "the end is in the log"
    unlimited = {"handovers_max": None, "repeats_max": None}
    assert make_desk(store, first=unlimited, second=unlimited).resume_sync("s").text == "End."
    assert [name for name in list_agents(store) if name] == ["booking", "desk"] * 6


@pytest.mark.parametrize("limit", [0, -1, "three"])
def test_a_wrong_limit_is_refused(limit):
    with pytest.raises(MisuseError, match="handovers_max"):
        Agent("sim:", handovers_max=limit)


def test_a_name_that_no_agent_of_the_run_has_is_refused_at_the_start():
    booking = Agent("sim:", name="booking", handover=["desk"])
    with pytest.raises(MisuseError, match="'booking' hands over to 'desk', and no agent of this run"):
        booking.run_sync("hi")
    with pytest.raises(MisuseError, match="'booking' hands over to 'desk', and no agent of this run"):
        Agent("sim:", name="lobby", handover=[booking]).run_sync("hi")
    with pytest.raises(MisuseError, match="has the name of this agent"):
        Agent("sim:", name="desk", handover=["desk"])


def test_the_returning_agent_sees_what_was_chosen():
    store = MemoryStore()
    booking = Agent("sim:", name="booking", handover=[Handover(agent="desk", sees=lambda _: "!say Short.")])
    desk = Agent("sim:", name="desk", handover=[booking], store=store)
    assert desk.run_sync(PROMPT.replace('!call book {"seat": 4}\n!then\n', ""), "s").text == "Short."
    (compacted,) = read(store, e.Compacted)
    assert (compacted.why, compacted.summary) == ("handed over to desk", "!say Short.")


def die_at_every_write(make, start, finish):
    """Yield the store of each run that ends with its n-th write and is then resumed."""
    death = 1
    while True:
        store = CrashingStore(death)
        with suppress(StoreError):
            asyncio.run(start(make(store)))
        if store.left:
            assert death > 12
            return
        store.left = None
        ended = read(store, e.RunEnded)
        agent = make(store)
        asyncio.run(finish(agent) if ended or read(store, e.Prompted) else start(agent))
        yield death, store
        death += 1


@pytest.mark.parametrize("model", MODELS[:2])
def test_options_of_a_run_hold_again_when_it_comes_back_also_after_a_crash(model):
    def start(agent):
        return agent.run(PROMPT, "s", instructions="Only today.", sampling=None)

    deaths = die_at_every_write(
        lambda store: make_desk(store, model=model), start, lambda agent: agent.resume("s")
    )
    for death, store in deaths:
        handed = [event for event in read(store, e.Configured) if event.handed_over_to]
        assert [event.handed_over_to for event in handed] == AGENTS[1:], death
        assert handed[0].settings.instructions == "You book seats.", death
        assert handed[1].settings.instructions == "Only today.", death
        assert read(store, e.RunEnded)[-1].stop == "done", death


def test_code_of_an_option_is_asked_for_when_the_run_comes_back():
    @tool(effect="read")
    def extra() -> str:
        """Extra."""
        return "extra"

    prompt = "!call transfer_to_booking\n!then\n!call transfer_to_desk\n!then\n!call extra\n!then\n!say End."
    whole = MemoryStore()
    desk = make_desk(whole)
    assert desk.run_sync(prompt, "s", tools=[*desk.tools.values(), extra]).text == "End."
    started = read(whole).index(read(whole, e.Configured)[1]) + 2
    store = CrashingStore(started)
    desk = make_desk(store)
    with pytest.raises(StoreError):
        desk.run_sync(prompt, "s", tools=[*desk.tools.values(), extra])
    store.left = None
    assert list_agents(store) == ["", "booking"], "it ended while the second agent had the run"
    again = make_desk(store)
    with pytest.raises(MisuseError, match="pass it again"):
        again.resume_sync("s")
    assert again.resume_sync("s", tools=[*again.tools.values(), extra]).text == "End."


def test_a_message_to_the_run_reaches_the_agent_that_has_it_next():
    store, handles = MemoryStore(), []

    @tool
    async def book(seat: int) -> str:
        """Book a seat."""
        await handles[0].steer("An aisle seat, please.")
        return f"seat {seat}"

    both = call_reply(("book", {"seat": 4}), ("transfer_to_desk", {}))
    first = scripted(call_reply(("transfer_to_booking", {})), "unused", "An aisle seat it is.")
    second = scripted("unused", both)
    booking = Agent(second, name="booking", tools=[book], handover=["desk"])
    desk = Agent(first, name="desk", handover=[booking], store=store)

    async def run():
        handles.append(desk.stream("go", "s").start())
        return await handles[0].result()

    result = asyncio.run(run())
    assert result.text == "An aisle seat it is."
    assert [event.handed_over_to for event in read(store, e.Configured)] == AGENTS
    assert len(second.script.requests) == 1, "the desk answers it"
    assert "aisle" in first.script.requests[-1].messages[-1].text


def test_a_call_beside_the_hand_over_that_waits_for_a_person_stays_with_its_agent():
    store, paid = MemoryStore(), []

    def make():
        @tool(effect="write", approve=True)
        def pay(amount: int) -> str:
            """Pay."""
            paid.append(amount)
            return "paid"

        booking = Agent("sim:", name="booking")
        return Agent("sim:", name="desk", tools=[pay], handover=[booking], store=store)

    prompt = '!call transfer_to_booking\n!call pay {"amount": 5}\n!then\n!say Here.'
    assert make().run_sync(prompt, "s").stop == "waiting"
    assert list_agents(store) == [""], "the hand-over waits as well"

    async def approve():
        agent = make()
        (question,) = await agent.approvals("s")
        await agent.approve("s", question.id, by="ann")

    asyncio.run(approve())
    assert (make().resume_sync("s").text, paid) == ("Here.", [5])
    assert list_agents(store) == ["", "booking"]


def test_one_budget_holds_for_all_agents_of_the_run():
    store = MemoryStore()
    whole = make_desk(MemoryStore()).run_sync(PROMPT, "s")
    assert whole.steps == 5
    result = make_desk(store).run_sync(PROMPT, "s", budget=Budget(steps=3))
    assert (result.stop, result.steps) == ("steps", 3)
    assert list_agents(store) == AGENTS, "the third step handed the run back"
    assert make_desk(store).resume_sync("s", budget=Budget(steps=9)).text == "Booked, Ann."
    half = whole.cost / 2
    result = make_desk(MemoryStore()).run_sync(PROMPT, "s", budget=Budget(usd=f"{half:.9f}"))
    assert result.stop == "budget" and result.cost <= half


def test_the_rate_limits_of_each_agent_hold_while_it_has_the_run():
    clock, store = FakeClock(at=1_800_000_000.0), MemoryStore()
    limits = [RateLimit(per="tool", tool="book", requests=1, seconds=30)]
    hops = 'transfer_to_booking\n!then\n!call book {"seat": 4}\n!then\n!call transfer_to_desk\n!then\n!call '
    prompt = f'!call {hops}{hops}greet {{"name": "Ann"}}\n!then\n!say End.'.replace("4}", "5}", 1)
    desk = make_desk(store, first={"clock": clock}, second={"clock": clock, "rate_limits": limits})
    assert desk.run_sync(prompt, "s").text == "End."
    waits = [
        (event.call_id, event.wait_seconds) for event in read(store, e.ToolStarted) if event.wait_seconds
    ]
    assert [seconds for _, seconds in waits] == [30.0], "only the second booking waited"


def test_compensation_finds_the_tools_of_every_agent_of_the_run():
    store, lines = MemoryStore(), []
    make_desk(store, lines.append).run_sync(PROMPT, "s")
    undone = asyncio.run(make_desk(store, lines.append).compensate("s"))
    assert [item.state for item in undone] == ["done", "done"]
    assert lines == ["book 4", "greet Ann", "undo greet Ann", "undo book 4"]


def test_two_compensations_of_one_name_are_refused_at_construction():
    def make_tool(name):
        def undo() -> str:
            return "undone"

        @tool(name=name, effect="write", compensate=undo)
        def act() -> str:
            """Act."""
            return "done"

        return act

    inner = Agent("sim:", name="inner", tools=[make_tool("act")])
    middle = Agent("sim:", name="middle", handover=[inner])
    with pytest.raises(BadTool, match="another tool has a different compensation"):
        Agent("sim:", name="outer", tools=[make_tool("other")], handover=[middle])


def make_killed(folder):
    def write(line):
        with (folder / "calls").open("a") as file:
            file.write(f"{line}\n")

    hooks = {name: {"hooks": [CountingHook(name, write)]} for name in ("desk", "booking")}
    return make_desk(folder / "log.db", write, first=hooks["desk"], second=hooks["booking"])


def run_and_kill(folder, count):
    """Run in this process, which is killed after its `count`th record."""
    agent = make_killed(Path(folder))
    kill_after_record(count)
    asyncio.run(agent.run(PROMPT, "s", instructions="Only today."))


def facts(folder):
    async def gather():
        agent = make_killed(folder)
        records = await agent.store.read("s")
        await agent.store.close()
        return records

    # Of a request or a call that was cut, there are two; a resumed run is configured again.
    skipped = (e.Resumed, e.ModelAsked, e.ToolStarted, e.PrefixMoved)
    events = [record.event for record in asyncio.run(gather()) if not isinstance(record.event, skipped)]
    events = [event for event in events if not isinstance(event, e.Configured) or event.handed_over_to]
    return [event.reply.parts if isinstance(event, e.ModelReplied) else event for event in events]


@pytest.mark.slow
def test_killed_after_every_event_the_run_goes_back_and_no_hook_decides_twice(tmp_path):
    whole = tmp_path / "whole"
    whole.mkdir()
    assert make_killed(whole).run_sync(PROMPT, "s", instructions="Only today.").text == "Booked, Ann."
    expected, called = facts(whole), (whole / "calls").read_text().splitlines()
    assert [line for line in called if "before_model" in line] == [
        "desk before_model 1", "booking before_model 2", "booking before_model 3", "desk before_model 4",
        "desk before_model 5",
    ]  # fmt: skip
    for count, folder in kill_after_every_record(tmp_path, __file__):

        async def resume(folder=folder):
            agent = make_killed(folder)
            ended = await agent.resume("s")
            await agent.store.close()
            return ended

        assert asyncio.run(resume()).text == "Booked, Ann.", f"killed after record {count}"
        assert facts(folder) == expected, f"killed after record {count}"
        assert (folder / "calls").read_text().splitlines() == called, f"killed after record {count}"
