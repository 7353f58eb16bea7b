"""A budget in a store: equal for every process that opens it, also after a kill."""

import asyncio
import json
import random
from contextlib import AsyncExitStack, ExitStack
from decimal import Decimal

import pytest
from msgspec.structs import replace

from bridle import Agent, Budget, Limits, MisuseError, SharedBudget, StoredBudget, tool
from bridle.cli.commands.cost import list_all_entries, list_session_entries
from bridle.core.budget.shared import BudgetAccount, settle_from_log
from bridle.run.budget import stored as tills
from bridle.run.budget.source import CallCost
from bridle.run.budget.stored import BudgetLog, BudgetReserver, open_budget_log
from bridle.run.model_connection import find_model_by_name
from bridle.stores import open_store
from bridle.stores.memory import MemoryStore
from bridle.testing import FakeClock, scripted
from bridle.values import events as e
from bridle.values.budget import (
    Amount,
    BudgetReserved,
    BudgetSettled,
    BudgetSnapshot,
    SubrunCharged,
    budget_log_name,
    parse_budget_log_name,
)
from bridle.values.errors import Conflict, Corrupt, Failure
from bridle.values.message import Reply, Stop
from bridle.values.model import Origin
from bridle.values.record import GENESIS, seal_record
from bridle.values.usage import Reservation, Usage
from tests.run.budget.till_agent import outer_agent
from tests.run.budget.till_processes import PROCESSES, RUNS, child, kill
from tests.suite.campaign import list_seeds
from tests.suite.leases import hold


@tool(effect="read")
def get_weather(city: str) -> str:
    """The weather in a city."""
    return "It is sunny. " * 20


def read_budget(store, name):
    """How a budget stands, as somebody finds it who has just opened the store."""
    account = asyncio.run(BudgetLog(store, name).catch_up())
    return account.spent, account.reserved


@pytest.mark.parametrize("limit", ["0.020"])
def test_fifty_runs_at_once_never_exceed_it(limit):
    store = MemoryStore()
    pool = StoredBudget(usd=limit, name="nightly")

    async def all_at_once():
        agent = Agent("sim:", tools=[get_weather], pool=pool, max_tokens=100, store=store)
        return await asyncio.gather(*(agent.run("What is the weather in Paris?") for _ in range(50)))

    results = asyncio.run(all_at_once())
    spent, reserved = read_budget(store, "nightly")
    assert spent.usd <= Decimal(limit)
    assert reserved == Amount()
    assert float(spent.usd) == pytest.approx(sum(result.cost for result in results))
    assert (spent.tokens, spent.steps) == (
        sum(result.usage.total for result in results),
        sum(result.steps for result in results),
    )
    assert "budget" in {result.stop for result in results} <= {"done", "budget"}
    assert all("'nightly'" in result.reason for result in results if result.stop == "budget")
    assert Decimal(limit) - spent.usd < Decimal("0.003"), "and what was there was used"
    account = BudgetAccount()
    for record in asyncio.run(store.read(budget_log_name("nightly", 1))):
        account.apply_event(record.event)
        assert account.spent.usd + account.reserved.usd <= Decimal(limit), "nor with what was set aside"
    assert account.excess == Amount()


def test_several_processes_never_exceed_it(shared_log):
    path = shared_log
    open_store(path)
    with ExitStack() as running:
        children = [running.enter_context(child(path, "runs", RUNS, "0.012")) for _ in range(PROCESSES)]
        told = [json.loads(each.communicate(timeout=120)[0]) for each in children]
    results = [one for each in told for one in each]
    spent, reserved = read_budget(open_store(path), "q4")
    assert len(results) == PROCESSES * RUNS
    assert 0 < spent.usd <= Decimal("0.012")
    assert reserved == Amount()
    assert float(spent.usd) == pytest.approx(sum(one["cost"] for one in results))
    assert "budget" in {one["stop"] for one in results} <= {"done", "budget"}


@pytest.mark.parametrize("moment", ["before", "during"])
def test_what_a_killed_process_had_set_aside_is_settled_by_its_log(shared_log, moment):
    """Killed before it had asked, it is given back; killed while the model spoke, all of it counts."""
    path = shared_log
    store = open_store(path)
    kill(path, "dies", moment, "0.010")
    _, reserved = read_budget(store, "q4")
    assert reserved.usd > 0
    agent = Agent("sim:", store=store, pool=StoredBudget(usd="0.010", name="q4"), max_tokens=1_000)
    result = agent.run_sync("!say Well.")
    spent, left = read_budget(store, "q4")
    assert left == Amount()
    settled = [
        record.event
        for record in asyncio.run(store.read(budget_log_name("q4", 1)))
        if isinstance(record.event, BudgetSettled) and record.event.source
    ]
    own = Decimal(str(result.cost))
    if moment == "before":
        assert [each.source for each in settled] == ["never sent"]
        assert result.stop == "done"
        assert float(spent.usd) == pytest.approx(float(own))
    else:
        assert [each.source for each in settled] == ["presumed"]
        assert float(spent.usd) == pytest.approx(float(own + reserved.usd))
    asyncio.run(store.close())


def test_a_session_that_is_resumed_settles_what_it_had_set_aside_itself(shared_log):
    path = shared_log
    store = open_store(path)
    kill(path, "dies", "before", "0.010")
    pool = StoredBudget(usd="0.010", name="q4")
    agent = Agent("sim:", store=store, pool=pool, max_tokens=1_000)
    assert asyncio.run(agent.resume("doomed")).stop == "done"
    assert read_budget(store, "q4")[1] == Amount()
    asyncio.run(store.close())


def test_it_outlives_its_process_and_is_raised_by_saying_more(shared_log):
    path = shared_log

    def agent(steps):
        return Agent("sim:", store=path, pool=StoredBudget(steps=steps, name="q4"))

    first = agent(2)
    assert [first.run_sync("!say Hello.").stop for number in range(3)] == ["done", "done", "budget"]
    asyncio.run(first.store.close())
    second = agent(2)
    stopped = second.run_sync("!say Hello.", session="last")
    assert stopped.stop == "budget"
    asyncio.run(second.store.close())
    third = agent(3)
    assert asyncio.run(third.resume("last")).stop == "done"
    asyncio.run(third.store.close())


def test_a_tenant_has_one_budget_in_all_its_sessions():
    store = MemoryStore()
    budget = Budget(tenant=Limits(steps=3))
    agents = [Agent("sim:", store=store, budget=budget) for _ in range(2)]
    stops = [agents[number % 2].run_sync("!say Hi", tenant="acme").stop for number in range(4)]
    assert stops == ["done", "done", "done", "budget"]
    assert agents[0].run_sync("!say Hi", tenant="bolt").stop == "done"
    with pytest.raises(MisuseError, match="needs a tenant"):
        agents[0].run_sync("!say Hi")
    with pytest.raises(MisuseError, match="does not support seconds"):
        agents[0].run_sync("!say Hi", tenant="acme", budget=Budget(tenant=Limits(seconds=1)))
    stopped = agents[0].run_sync("!say Hi", tenant="acme", session="s")
    assert "'tenant:acme', 3 of 3 steps taken" in stopped.reason
    raised = Agent("sim:", store=store, budget=Budget(tenant=Limits(steps=9)))
    assert asyncio.run(raised.resume("s")).stop == "done"


@pytest.mark.parametrize("kind", [SharedBudget, StoredBudget])
@pytest.mark.parametrize("stream", [False, True])
def test_calls_of_tools_are_counted_across_runs_too(kind, stream):
    pool = kind(tool_calls=3, name="q4")
    store = MemoryStore()
    prompt = '!call get_weather {"city": "Paris"}\n!call get_weather {"city": "Rome"}\n!then\n!say sunny'

    def agent(pool):
        return Agent("sim:", tools=[get_weather], store=store, pool=pool)

    async def run():
        if not stream:
            return [await agent(pool).run(prompt, session=name) for name in "ab"]
        return [await agent(pool).stream(prompt, session=name).start().result() for name in "ab"]

    first, second = asyncio.run(run())
    assert first.stop == "done"
    assert (second.stop, second.reason) == (
        "budget",
        "the shared limit of tool calls is reached, and the model asked for more",
    )
    ran, refused = second.messages[-1].parts
    assert (ran.outcome, refused.outcome) == ("ok", "cancelled")
    assert "3 of the 3 tool calls of q4" in refused.text
    raised = asyncio.run(agent(kind(tool_calls=9, name="q4")).resume("b"))
    assert raised.stop == "done"


def test_dollars_of_a_tenant_need_a_price_too():
    unpriced = replace(find_model_by_name("sim:"), price=None)
    with pytest.raises(MisuseError, match="no price is known"):
        Agent(scripted("x", model=unpriced), budget=Budget(tenant=Limits(usd=1))).run_sync(
            "Hi", tenant="acme"
        )


def test_a_shared_budget_tells_the_model_to_finish_too():
    store = MemoryStore()
    pool = StoredBudget(steps=4, wrap_up=0.5, name="q4")
    agent = Agent("sim:", tools=[get_weather], store=store, pool=pool)
    turn = '!call get_weather {"city": "Paris"}\n!then\n'
    result = agent.run_sync(turn * 2 + "!say bye", session="s")
    told = [r.event for r in asyncio.run(store.read("s")) if isinstance(r.event, e.Reprompted)]
    assert [each.message.partition(".")[0] for each in told] == ["2 of the 4 steps of q4 used"]
    assert result.stop == "done"


def test_a_long_line_is_cut_and_goes_on_in_the_next(monkeypatch):
    monkeypatch.setattr(tills, "LOG_RECORDS_MAX", 7)
    store = MemoryStore()
    pool = StoredBudget(usd=1, name="q4")

    async def many():
        agent = Agent("sim:", store=store, pool=pool)
        await asyncio.gather(*(agent.run("!say Hi") for _ in range(20)))
        return sum([(await agent.run("!say Hi")).steps for _ in range(3)])

    assert asyncio.run(many()) == 3
    spent, reserved = read_budget(store, "q4")
    assert (spent.steps, reserved) == (23, Amount())
    lines = [info.id for info in asyncio.run(store.sessions(100)) if info.id.startswith("budget:q4~")]
    assert len(lines) >= 5
    assert all(info.length <= 8 for info in asyncio.run(store.sessions(100)) if info.id in lines)
    index = [record.event for record in asyncio.run(store.read(budget_log_name("q4")))]
    assert all(isinstance(each, BudgetSnapshot) for each in index)


def test_a_line_whose_writer_died_between_two_is_gone_on_with(monkeypatch):
    """It had written the end of the old line, and not yet where it goes on."""
    monkeypatch.setattr(tills, "LOG_RECORDS_MAX", 3)
    store = MemoryStore()
    carried = BudgetSnapshot(generation=2, spent=Amount(tokens=7, steps=1), excess=Amount())
    reserved = BudgetReserved(id="a#1", session="a", driver_start=0, amount=Amount(tokens=10, steps=1))
    events, head = [reserved, BudgetSettled(id="a#1", amount=Amount(tokens=7, steps=1)), carried], GENESIS

    async def go_on():
        nonlocal head
        for number, event in enumerate(events, start=1):
            record = seal_record(number, 1.0, event, head)  # type: ignore[arg-type]
            await store.append(budget_log_name("q4", 1), number - 1, (record,))
            head = record.hash
        first = Agent("sim:", store=store, pool=StoredBudget(steps=2, name="q4"))
        return [(await first.run("!say Hi")).stop for _ in range(2)]

    assert asyncio.run(go_on()) == ["done", "budget"]


def test_somebody_else_who_was_faster_is_read_and_taken_into_account():
    store, clock = MemoryStore(), FakeClock()

    async def race():
        one, other = BudgetLog(store, "q4"), BudgetLog(store, "q4")
        limits = Limits(tokens=100)
        first = BudgetReserver(one, limits, clock, "a", 0)
        second = BudgetReserver(other, limits, clock, "b", 0)
        await asyncio.gather(one.catch_up(), other.catch_up())
        held = await first.reserve(Reservation(pool="", tokens=80, id="a#1"), lambda usd, tokens: None)
        async with store.lease("a"):
            waits = asyncio.ensure_future(
                second.reserve(Reservation(pool="", tokens=80, id="b#1"), lambda usd, tokens: None)
            )
            while not clock.slept:
                await asyncio.sleep(0)
            assert not waits.done()
            await held.settle(CallCost(Usage(input=15), Decimal(0), 1))
            got = await waits
        await got.release()
        return (await one.catch_up()).spent

    assert asyncio.run(race()) == Amount(tokens=15, steps=1)


def test_a_caller_that_gives_up_waiting_leaves_nothing_behind():
    store, clock = MemoryStore(), FakeClock()

    async def give_up():
        till = open_budget_log(store, "q4")
        drawer = BudgetReserver(till, Limits(tokens=100), clock, "a", 0)
        holding = asyncio.ensure_future(
            drawer.reserve(Reservation(pool="", tokens=80, id="a#1"), lambda usd, tokens: None)
        )
        for _ in range(30):
            holding.cancel()
            await asyncio.sleep(0)
        with pytest.raises(asyncio.CancelledError):
            await holding
        return (await till.catch_up()).open_reservations

    assert asyncio.run(give_up()) == {}


SPENT = Usage(input=30, output=12)
REPLY = Reply(parts=(), stop=Stop.DONE, origin=Origin(family="f", endpoint="e", model="m"), usage=SPENT)
ASKED = e.ModelAsked(step=1, attempt=1, digest="", reservation=Reservation(pool="q4", tokens=100, id="a#3"))
WHOLE, NOTHING = Amount(usd=Decimal(1), tokens=100, steps=1), Amount()
CAME_TO = Amount(usd=Decimal("0.2"), tokens=42, steps=1)
USD = Decimal("0.2")


@pytest.mark.parametrize(
    ("own", "its", "amount", "how"),
    [
        ([e.Resumed()], None, NOTHING, "never sent"),
        ([ASKED], None, WHOLE, "presumed"),
        ([ASKED, e.Resumed()], None, WHOLE, "presumed"),
        ([ASKED, e.ModelReplied(reply=REPLY, usd=USD)], None, CAME_TO, "by its log"),
        (
            [ASKED, e.ModelReplied(reply=REPLY, usd=USD, summarizes_until="m1")],
            None,
            Amount(usd=USD, tokens=42),
            "by its log",
        ),
        (
            [ASKED, e.ModelFailed(failure=Failure(kind="server", message=""))],
            None,
            NOTHING,
            "by its log",
        ),
        (
            [ASKED, e.ModelFailed(failure=Failure(kind="cut", message=""), usage=SPENT, usd=USD)],
            None,
            Amount(usd=USD, tokens=42),
            "by its log",
        ),
        (
            [ASKED, e.RunEnded(stop="cancelled", usage=Usage(incomplete=True))],
            None,
            WHOLE,
            "presumed",
        ),
        ([e.Resumed()], [e.Resumed()], NOTHING, "never sent"),
        ([e.Resumed()], [ASKED, e.ModelReplied(reply=REPLY, usd=USD)], CAME_TO, "by its log"),
        ([e.Resumed()], [], WHOLE, "presumed"),
        (
            [SubrunCharged(call_id="c", session="b", id="a#3", usage=SPENT, usd=USD, steps=1)],
            [],
            CAME_TO,
            "by its log",
        ),
    ],
)
def test_what_a_log_tells_of_a_call_whose_caller_is_gone(own, its, amount, how):
    reserved = BudgetReserved(
        id="a#3", session="a", driver_start=0, amount=WHOLE, nested_session="" if its is None else "b"
    )
    logs = [[seal_record(n, 1.0, event, "") for n, event in enumerate(log or (), 1)] for log in (own, its)]
    assert settle_from_log(reserved, *logs) == BudgetSettled(id="a#3", amount=amount, source=how)


def test_a_caller_whose_log_cannot_be_trusted_is_taken_to_have_spent_it_all():
    class Damaged(MemoryStore):
        async def read(self, session, after=0):  # type: ignore[override]
            if session == "dead":
                raise Corrupt("record 3 was changed")
            return await super().read(session, after)

    store, clock = Damaged(), FakeClock()

    async def go_on():
        dead = BudgetReserver(open_budget_log(store, "q4"), Limits(tokens=100), clock, "dead", 0)  # type: ignore[arg-type]
        await dead.reserve(Reservation(pool="", tokens=60, id="dead#1"), lambda usd, tokens: None)
        alive = BudgetReserver(open_budget_log(store, "q4"), Limits(tokens=100), clock, "alive", 0)  # type: ignore[arg-type]
        return await alive.reserve(Reservation(pool="", tokens=50, id="alive#1"), lambda usd, tokens: None)

    assert asyncio.run(go_on()) is None
    assert read_budget(store, "q4")[0] == Amount(tokens=60, steps=1)


def test_whoever_was_taken_for_dead_and_is_not_has_the_last_word():
    account = BudgetAccount()
    account.apply_event(BudgetReserved(id="a#1", session="a", driver_start=0, amount=WHOLE))
    account.apply_event(BudgetSettled(id="a#1", amount=WHOLE, source="presumed"))
    assert account.spent == WHOLE
    account.apply_event(BudgetSettled(id="a#1", amount=CAME_TO))
    assert (account.spent, account.excess) == (CAME_TO, NOTHING)


def test_a_session_cannot_have_the_name_of_a_budget():
    with pytest.raises(MisuseError, match="budget:"):
        Agent("sim:").run_sync("Hi", session="budget:q4")


def test_a_running_session_is_never_treated_as_crashed():
    store = MemoryStore()
    with hold(store, "a"), pytest.raises(Conflict), hold(store, "a"):
        pass


def test_what_a_killed_run_inside_a_tool_had_spent_is_in_the_log_around_it(shared_log):
    path = shared_log
    store = open_store(path)
    kill(path, "nested", "0.02")
    records = asyncio.run(store.read("outer"))
    (charged,) = [record.event for record in records if isinstance(record.event, SubrunCharged)]
    pool = StoredBudget(usd="0.02", name="q4")
    agent = outer_agent(store, pool, "!say Because.")
    result = asyncio.run(agent.resume("outer"))
    assert result.stop == "done"
    booked = asyncio.run(list_session_entries(store, "outer"))
    assert charged.id in {entry.id for entry in booked}
    assert result.cost == pytest.approx(float(sum(entry.usd for entry in booked if entry.outcome != "lost")))  # type: ignore[misc]
    account = asyncio.run(_settled_for_good(store))
    everything = asyncio.run(list_all_entries(store))
    lost = [entry for entry in everything if entry.outcome == "lost"]
    presumed = [
        record.event.amount.usd
        for record in asyncio.run(store.read(budget_log_name("q4", 1)))
        if isinstance(record.event, BudgetSettled) and record.event.source == "presumed"
    ]
    assert (len(lost), len(presumed), account.open_reservations) == (1, 1, {})
    known = sum(entry.usd for entry in everything if entry.outcome != "lost")  # type: ignore[misc]
    assert account.spent.usd == known + presumed[0]
    asyncio.run(store.close())


async def _settled_for_good(store):
    till = BudgetLog(store, "q4")
    await till.catch_up()
    await till.settle_abandoned("nobody", 0, FakeClock().now)
    return till.account


@pytest.mark.parametrize("seed", list_seeds(12))
def test_whatever_callers_do_and_wherever_they_die(seed):
    """At no moment is more spent or set aside than there is, and in the end everything is accounted for."""
    assert asyncio.run(lives(random.Random(seed))) > 0


LIMIT = 1_000


async def lives(dice):
    store, clock = MemoryStore(), FakeClock()
    limits, alive, owed = Limits(tokens=LIMIT), {}, 0

    async def begin(number):
        session, stack = f"s{number}", AsyncExitStack()
        await stack.enter_async_context(store.lease(session))
        till = dice.choice([open_budget_log(store, "q4"), BudgetLog(store, "q4")])
        wanted = Reservation(pool="", tokens=dice.randrange(50, 500), id=f"{session}#1")
        drawer = BudgetReserver(till, limits, clock, session, 0)
        holding = asyncio.ensure_future(drawer.reserve(wanted, lambda usd, tokens: None))
        for _ in range(200):
            await asyncio.sleep(0)
        if not holding.done():
            holding.cancel()
            await asyncio.gather(holding, return_exceptions=True)
        elif (held := holding.result()) is not None:
            alive[session] = held, stack
            return
        await stack.aclose()

    async def settle(session):
        held, stack = alive.pop(session)
        tokens = dice.randrange(1, held.reservation.tokens + 1)
        await held.settle(CallCost(Usage(input=tokens), Decimal(0), 1))
        await stack.aclose()
        return tokens

    async def die(session):
        held, stack = alive.pop(session)
        tokens = dice.randrange(1, held.reservation.tokens + 1)
        asked = replace(ASKED, reservation=held.reservation)
        replied = e.ModelReplied(reply=replace(REPLY, usage=Usage(input=tokens)), usd=Decimal(0))
        log, cost = dice.choice(
            [([e.Resumed()], 0), ([asked], held.reservation.tokens), ([asked, replied], tokens)]
        )
        head = GENESIS
        for number, event in enumerate(log, start=1):
            record = seal_record(number, 1.0, event, head)
            await store.append(session, number - 1, (record,))
            head = record.hash
        await stack.aclose()
        return cost

    for number in range(60):
        if alive and dice.random() < 0.55:
            tokens = await dice.choice([settle, settle, die])(dice.choice(sorted(alive)))
            owed += tokens
        else:
            await begin(number)
    for session in sorted(alive):
        owed += await settle(session)
    till = open_budget_log(store, "q4")
    await till.settle_abandoned("nobody", 0, clock.now)
    account = BudgetAccount()
    for record in await store.read(budget_log_name("q4", 1)):
        account.apply_event(record.event)
        assert account.spent.tokens + account.reserved.tokens <= LIMIT
    assert (account.spent.tokens, account.reserved, account.excess) == (owed, Amount(), Amount())
    return owed


class Interrupted(MemoryStore):
    """Whoever settles with one budget is cancelled, or told that the disk is full, while that is written."""

    def __init__(self, trouble):
        super().__init__()
        self.trouble, self.run = trouble, None

    async def append(self, session, after, records, *, epoch=None):
        if (
            session.startswith("budget:first")
            and isinstance(records[0].event, BudgetSettled)
            and self.trouble
        ):
            trouble, self.trouble = self.trouble, ""
            if trouble == "failed":
                raise OSError("no space left")
            self.run.cancel()
            await asyncio.sleep(0)
        await super().append(session, after, records, epoch=epoch)


@pytest.mark.parametrize("trouble", ["cancelled", "failed"])
def test_what_was_spent_is_settled_in_every_budget_whatever_happens_at_one(trouble):
    store = Interrupted(trouble)
    agent = Agent(
        "sim:",
        store=store,
        pool=StoredBudget(usd=5, name="first"),
        budget=Budget(tenant=Limits(usd=5)),
    )

    async def run():
        store.run = asyncio.ensure_future(agent.run("!say hello", tenant="acme"))
        with pytest.raises((asyncio.CancelledError, OSError)):
            await store.run

    asyncio.run(run())
    spent, reserved = read_budget(store, "tenant:acme")
    assert spent.usd > 0
    assert reserved == Amount()
    if trouble == "cancelled":
        assert read_budget(store, "first") == (spent, reserved)


@pytest.mark.parametrize(
    ("name", "other"), [("acme", "acme~1"), ("acme", "acme~2"), ("a~", "a~~1"), ("a", "a~1~1")]
)
def test_no_budget_is_taken_for_a_line_of_another(name, other, monkeypatch):
    monkeypatch.setattr(tills, "LOG_RECORDS_MAX", 6)
    store = MemoryStore()
    spent = {}
    for turn in range(8):
        tenant = (name, other)[turn % 2]
        agent = Agent("sim:", store=store, budget=Budget(tenant=Limits(usd=50)))
        result = agent.run_sync("!say " + "x" * turn, tenant=tenant)
        spent[tenant] = spent.get(tenant, 0) + result.usage.total
    assert {each: read_budget(store, f"tenant:{each}")[0].tokens for each in spent} == spent


def test_the_lines_of_budgets_are_told_apart():
    names = ("q4", "q~4", "~", "~~1", "a~1", "a~~", "tenant:x")
    assert [parse_budget_log_name(budget_log_name(name, 12)) for name in names] == [*names]
    assert [parse_budget_log_name(budget_log_name(name)) for name in names] == [None] * len(names)
    assert parse_budget_log_name("a session~1") is None


@pytest.mark.parametrize("name", ["", " ", None, "tenant:acme"])
def test_a_budget_in_a_store_has_a_name_of_its_own(name):
    with pytest.raises(MisuseError):
        StoredBudget(name=name, usd=1)


@pytest.mark.parametrize("shared", [True, False])
def test_a_call_that_one_budget_has_no_room_for_counts_in_no_other(shared):
    store = MemoryStore()
    made = SharedBudget if shared else StoredBudget
    pool = made(tool_calls=50, name="all")
    agent = Agent(
        "sim:", tools=[get_weather], store=store, pool=pool, budget=Budget(tenant=Limits(tool_calls=1))
    )
    calls = "\n".join(f'!call get_weather {{"city":"{city}"}}' for city in ("Rome", "Oslo", "Bern"))
    result = agent.run_sync(f"{calls}\n!then\n!say done", tenant="acme")
    assert result.stop == "budget"
    assert read_budget(store, "tenant:acme")[0].tool_calls == 1
    assert (pool.spent if shared else read_budget(store, "all")[0]).tool_calls == 1
