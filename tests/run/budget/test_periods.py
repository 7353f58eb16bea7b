"""Budgets of hours, days and months, and of callers: counted per period, in a time zone, by every process."""

import asyncio
import json
import random
from contextlib import ExitStack
from datetime import datetime
from decimal import Decimal
from zoneinfo import ZoneInfo

import msgspec
import pytest

from bridle import Agent, Budget, Limits, MisuseError, StoredBudget, tool
from bridle.cli.commands.cost import list_all_entries
from bridle.cli.main import main
from bridle.run.budget import stored
from bridle.run.budget.periods import find_period, load_zone
from bridle.run.budget.source import CallCost
from bridle.run.budget.stored import BudgetLog, PeriodReserver
from bridle.stores import open_store
from bridle.stores.memory import MemoryStore
from bridle.testing import FakeClock
from bridle.values import events as e
from bridle.values.budget import (
    Amount,
    BudgetSettled,
    budget_log_name,
    caller_budget_name,
    parse_budget_log_name,
    period_budget_name,
    strip_period,
)
from bridle.values.usage import LIMIT_PERIODS, Reservation, Usage, join_limits
from tests.run.budget.till_processes import PROCESSES, RUNS, child, kill
from tests.suite.campaign import list_seeds

BERLIN = ZoneInfo("Europe/Berlin")
ZONES = (
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "America/Havana",  # the hour before 1 o'clock is repeated
    "America/Sao_Paulo",  # until 2019 days began at 1 o'clock, or at 23 o'clock the day before
    "Africa/Cairo",  # days that begin at 1 o'clock
    "Asia/Kathmandu",  # 5:45 ahead
    "Pacific/Apia",  # 30 December 2011 is missing
)


def read_time(text, zone=BERLIN):
    return datetime.fromisoformat(text).replace(tzinfo=zone).timestamp()


def find_account(store, name):
    return asyncio.run(BudgetLog(store, name).catch_up())


def list_accounts(store):
    names = {parse_budget_log_name(info.id) for info in asyncio.run(store.sessions(limit=1_000))}
    return {name: find_account(store, name) for name in sorted(filter(None, names))}


@tool(effect="read")
def look(city: str) -> str:
    """Look at a city."""
    return f"sun in {city}"


@pytest.mark.parametrize(
    ("kind", "at", "label", "start", "hours"),
    [
        ("day", "2026-03-29T12:00", "2026-03-29", "2026-03-29T00:00", 23),
        ("day", "2026-10-25T23:59", "2026-10-25", "2026-10-25T00:00", 25),
        ("day", "2026-11-18T00:00", "2026-11-18", "2026-11-18T00:00", 24),
        ("month", "2026-03-31T23:59", "2026-03", "2026-03-01T00:00", 31 * 24 - 1),
        ("month", "2028-02-29T12:00", "2028-02", "2028-02-01T00:00", 29 * 24),
        ("month", "2026-12-31T23:59", "2026-12", "2026-12-01T00:00", 31 * 24),
        ("hour", "2026-11-18T09:59", "2026-11-18T09+0100", "2026-11-18T09:00", 1),
    ],
)
def test_periods_follow_the_calendar_of_the_zone(kind, at, label, start, hours):
    begin = read_time(start)
    assert find_period(kind, read_time(at), BERLIN) == (label, begin, begin + hours * 3_600)


def test_an_hour_that_is_repeated_is_two_periods():
    first = read_time("2026-10-25T02:30")
    labels = [find_period("hour", first + later, BERLIN).label for later in (0, 3_600, 7_200)]
    assert labels == ["2026-10-25T02+0200", "2026-10-25T02+0100", "2026-10-25T03+0100"]


@pytest.mark.parametrize("seed", list_seeds(100))
@pytest.mark.parametrize("kind", LIMIT_PERIODS)
def test_every_time_is_in_exactly_one_period(seed, kind):
    dice = random.Random(seed)
    for _ in range(50):
        zone = load_zone(dice.choice(ZONES))
        at = dice.uniform(1_262_304_000, 2_000_000_000)
        if dice.random() < 0.5:  # near a midnight, where clocks change
            at -= at % 86_400 - dice.choice((-1, 0, 1, 3_599, 3_600)) - dice.randrange(-12, 13) * 3_600
        period = find_period(kind, at, zone)
        assert period.start <= at < period.end
        assert find_period(kind, period.start, zone) == period
        assert find_period(kind, period.end - 0.001, zone).label == period.label
        following, before = find_period(kind, period.end, zone), find_period(kind, period.start - 0.001, zone)
        assert (following.start, before.end) == (period.end, period.start)
        assert len({before.label, period.label, following.label}) == 3


def test_a_day_of_a_tenant_begins_at_midnight_of_its_zone():
    clock, store = FakeClock(read_time("2026-10-25T22:30")), MemoryStore()
    limits = Limits(steps=2, period="day", zone="Europe/Berlin")
    agent = Agent("sim:", store=store, clock=clock, budget=Budget(tenant=limits))
    stops = []
    for _ in range(4):
        stops += [agent.run_sync("!say Hi", tenant="acme").stop]
        clock.advance(600)
    assert stops == ["done", "done", "budget", "budget"]
    clock.advance(read_time("2026-10-26T00:00") - clock.now() - 1)
    stopped = agent.run_sync("!say Hi", "s", tenant="acme")
    assert "'day:2026-10-25:Europe/Berlin:tenant:acme', 2 of 2 steps taken" in stopped.reason
    clock.advance(2)
    assert asyncio.run(agent.resume("s")).stop == "done"
    assert {name: each.spent.steps for name, each in list_accounts(store).items()} == {
        "day:2026-10-25:Europe/Berlin:tenant:acme": 2,
        "day:2026-10-26:Europe/Berlin:tenant:acme": 1,
    }


def test_limits_of_several_periods_hold_at_once():
    clock, store = FakeClock(read_time("2026-11-29T12:00", load_zone("UTC"))), MemoryStore()
    limits = Limits(steps=2, period="day"), Limits(steps=3, period="month"), Limits(steps=5)
    agent = Agent("sim:", store=store, clock=clock, budget=Budget(tenant=limits))
    stops = []
    for _ in range(4):
        stops.append([agent.run_sync("!say Hi", tenant="acme").stop for _ in range(3)].count("done"))
        clock.advance(86_400)
    assert stops == [2, 1, 2, 0], "by the day, the month, the day of another month, and in total"
    spent = {name: each.spent.steps for name, each in list_accounts(store).items()}
    assert spent == {
        "day:2026-11-29:UTC:tenant:acme": 2,
        "day:2026-11-30:UTC:tenant:acme": 1,
        "day:2026-12-01:UTC:tenant:acme": 2,
        "month:2026-11:UTC:tenant:acme": 3,
        "month:2026-12:UTC:tenant:acme": 2,
        "tenant:acme": 5,
    }


def test_a_run_across_midnight_draws_from_both_days():
    clock, store = FakeClock(read_time("2026-11-18T23:59:59")), MemoryStore()

    @tool(effect="read")
    def wait(number: int) -> str:
        """Wait."""
        clock.advance(2)
        return "waited"

    day = Limits(steps=1, tool_calls=1, period="day", zone="Europe/Berlin")
    pool = StoredBudget(name="all", steps=1, period="day", zone="Europe/Berlin")
    agent = Agent("sim:", tools=[wait], store=store, clock=clock, budget=Budget(tenant=day), pool=pool)
    prompt = '!call wait {"number": 1}\n!then\n!call wait {"number": 2}\n!then\n!say done'
    result = agent.run_sync(prompt, "s", tenant="acme")
    assert (result.stop, result.steps) == ("budget", 2)
    spent = {name: (each.spent.steps, each.reserved) for name, each in list_accounts(store).items()}
    days = [f"day:2026-11-{day}:Europe/Berlin:" for day in (18, 19)]
    assert spent == {f"{day}{name}": (1, Amount()) for day in days for name in ("tenant:acme", "all")}
    clock.advance(86_400)
    assert agent.resume_sync("s").stop == "done"


def make_reserver(store, clock, session, **given):
    limits = Limits(tokens=100, period="day", zone="Europe/Berlin")
    return PeriodReserver(store, "q4", limits, clock, session, 0, **given)


def test_a_call_is_settled_in_the_period_in_which_it_was_reserved():
    clock, store = FakeClock(read_time("2026-11-18T23:59")), MemoryStore()

    async def reserve_and_settle():
        reserver = make_reserver(store, clock, "a")
        held = await reserver.reserve(Reservation(pool="", tokens=80, id="a#1"), lambda usd, tokens: None)
        clock.advance(120)
        async with store.lease("a"):
            other = await make_reserver(store, clock, "b").reserve(
                Reservation(pool="", tokens=90, id="b#1"), lambda usd, tokens: None
            )
            assert other is not None, "the day before does not count"
        await held.settle(CallCost(Usage(input=30), Decimal(0), 1))
        await other.settle(CallCost(Usage(input=40), Decimal(0), 1))

    asyncio.run(reserve_and_settle())
    assert [each.spent.tokens for each in list_accounts(store).values()] == [30, 40]


def test_a_call_that_waits_for_room_gets_it_in_the_next_period():
    clock, store = FakeClock(read_time("2026-11-18T23:59:50")), MemoryStore()

    async def wait():
        async with store.lease("a"):
            held = await make_reserver(store, clock, "a").reserve(
                Reservation(pool="", tokens=80, id="a#1"), lambda usd, tokens: None
            )
            waiting = make_reserver(store, clock, "b")
            got = await waiting.reserve(Reservation(pool="", tokens=90, id="b#1"), lambda usd, tokens: None)
            assert clock.now() == read_time("2026-11-19T00:00")
            await held.release()
        return got.reservation.pool

    assert asyncio.run(wait()) == "day:2026-11-19:Europe/Berlin:q4"


def test_a_process_forgets_the_logs_of_periods_that_ended():
    clock, store = FakeClock(), MemoryStore()
    agent = Agent("sim:", store=store, clock=clock, pool=StoredBudget(name="q4", steps=9, period="hour"))
    for _ in range(20):
        assert agent.run_sync("!say Hi").stop == "done"
        clock.advance(3_600)
    assert len(stored._budget_logs[store]) <= 2
    assert len(list_accounts(store)) == 20


@pytest.mark.parametrize("moment", ["before", "during"])
def test_what_a_killed_process_left_in_a_period_is_settled_by_its_log(shared_log, moment):
    """Killed between reservation and settlement; another process draws from the same period, then from the next."""
    store = open_store(shared_log)
    kill(shared_log, "dies", moment, "0.010", "month")
    ((name, left),) = list_accounts(store).items()
    assert left.reserved.usd > 0
    clock = FakeClock(asyncio.run(store.read(budget_log_name(name, 1)))[0].at)
    pool = StoredBudget(usd="0.010", name="q4", period="month")
    agent = Agent("sim:", store=store, pool=pool, max_tokens=1_000, clock=clock)
    result = agent.run_sync("!say Well.")
    account = list_accounts(store)[name]
    assert account.reserved == Amount()
    lost = left.reserved.usd if moment == "during" else Decimal(0)
    assert float(account.spent.usd) == pytest.approx(float(lost) + result.cost)
    asyncio.run(store.close())


def test_what_a_killed_process_left_is_settled_by_the_first_call_of_the_next_period(tmp_path):
    store = open_store(tmp_path / "log.db")
    kill(tmp_path / "log.db", "dies", "during", "0.010", "hour")
    ((name, left),) = list_accounts(store).items()
    clock = FakeClock(asyncio.run(store.read(budget_log_name(name, 1)))[0].at + 3_600)
    pool = StoredBudget(usd="0.010", name="q4", period="hour")
    assert Agent("sim:", store=store, pool=pool, clock=clock).run_sync("!say Well.").stop == "done"
    account = list_accounts(store)[name]
    assert (account.spent.usd, account.reserved) == (left.reserved.usd, Amount())
    (settled,) = [
        record.event
        for record in asyncio.run(store.read(budget_log_name(name, 1)))
        if isinstance(record.event, BudgetSettled)
    ]
    assert settled.source == "presumed"
    asyncio.run(store.close())


@pytest.mark.slow
def test_processes_never_exceed_one_period(shared_log):
    open_store(shared_log)
    with ExitStack() as running:
        children = [
            running.enter_context(child(shared_log, "runs", RUNS, "0.012", "month")) for _ in range(PROCESSES)
        ]
        results = [one for each in children for one in json.loads(each.communicate(timeout=120)[0])]
    accounts = list_accounts(open_store(shared_log))
    assert {strip_period(name) for name in accounts} == {"q4", "tenant:acme", "caller:acme/ann"}
    for account in accounts.values():
        assert 0 < account.spent.usd <= Decimal("0.012")
        assert account.reserved == account.excess == Amount()
        assert float(account.spent.usd) == pytest.approx(sum(one["cost"] for one in results))
    assert "budget" in {one["stop"] for one in results} <= {"done", "budget"}


def test_callers_have_a_budget_of_their_own_within_their_tenant():
    store = MemoryStore()
    agent = Agent("sim:", store=store, budget=Budget(caller=Limits(steps=1)))
    who = ("ann", "acme"), ("bob", "acme"), ("ann", "bolt"), ("ann", ""), ("acme/ann", "")
    for caller, tenant in who:
        stops = [agent.run_sync("!say Hi", caller=caller, tenant=tenant).stop for _ in range(2)]
        assert stops == ["done", "budget"]
    assert list(list_accounts(store)) == [
        "caller:acme%2Fann", "caller:acme/ann", "caller:acme/bob", "caller:ann", "caller:bolt/ann",
    ]  # fmt: skip
    with pytest.raises(MisuseError, match="needs a caller"):
        agent.run_sync("!say Hi", tenant="acme")
    assert agent.run_sync("!say Hi", caller="eve", budget=Budget(caller=Limits(steps=9))).stop == "done"
    assert agent.run_sync("!say Hi", caller="eve", budget=Budget(caller=Limits(steps=9))).stop == "budget"


def test_names_of_budgets_are_told_apart():
    names = [
        caller_budget_name(tenant, caller)
        for tenant in ("", "a", "a/b", "%2F")
        for caller in ("b", "a/b", "/")
    ]
    assert len({*names}) == len(names)
    for name in (*names, "tenant:day:2026-11-18:UTC:x", "q4"):
        assert strip_period(name) == name
        assert strip_period(period_budget_name(name, "day", "2026-11-18", "Europe/Berlin")) == name


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: Limits(usd=1, period="week"), "period is 'hour', 'day', 'month' or None, not 'week'"),  # type: ignore[arg-type]
        (lambda: Limits(usd=1, zone="Europe/Berlin"), "needs a period"),
        (lambda: Limits(usd=1, period="day", zone="a:b"), "name of a time zone"),
        (lambda: Budget(usd=1, period="day"), "a run has no period"),  # type: ignore[call-arg]
        (lambda: Budget(session=Limits(usd=1, period="day")), "a session has no period"),
        (lambda: Budget(session=(Limits(usd=1),)), "takes Limits"),  # type: ignore[arg-type]
        (lambda: Budget(tenant=(Limits(usd=1), 5)), "takes Limits"),  # type: ignore[arg-type]
        (lambda: StoredBudget(name="x", usd=1, period="day", zone="Mars/Base"), "'Mars/Base' is not known"),
        (lambda: StoredBudget(name="day:x", usd=1), "reserved for the budget of a day"),
        (lambda: StoredBudget(name="caller:x", usd=1), "reserved for the budget of a caller"),
        (
            lambda: Agent(
                "sim:", budget=Budget(tenant=Limits(usd=1, period="day", zone="Mars/Base"))
            ).run_sync("!say Hi", tenant="acme"),
            "'Mars/Base' is not known",
        ),
        (
            lambda: Agent("sim:", budget=Budget(caller=Limits(seconds=1, period="day"))).run_sync(
                "!say Hi", caller="ann"
            ),
            "does not support seconds",
        ),
    ],
)
def test_periods_that_cannot_work_are_refused(make, problem):
    with pytest.raises(MisuseError, match=problem):
        make()


def test_limits_without_a_period_are_recorded_as_before():
    store = MemoryStore()
    Agent("sim:", store=store, budget=Budget(tenant=[Limits(usd=5)])).run_sync("!say Hi", "s", tenant="acme")
    prompted = next(r for r in asyncio.run(store.read("s")) if isinstance(r.event, e.Prompted))
    assert msgspec.to_builtins(prompted.event)["budget"] == {"tenant": {"usd": "5"}}


def test_the_command_shows_a_budget_with_its_periods_and_agrees_with_the_costs(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("BRIDLE_STORE", str(tmp_path / "log.db"))
    monkeypatch.setenv("COLUMNS", "120")
    agent = Agent(
        "sim:",
        store=str(tmp_path / "log.db"),
        budget=Budget(
            tenant=(Limits(usd=5, period="day"), Limits(usd=50)), caller=Limits(usd=1, period="month")
        ),
    )
    for tenant, budget in (("acme", None), ("acme", Budget(usd=1)), ("bolt", Budget(steps=1))):
        agent.run_sync("!say Hi", tenant=tenant, caller="ann", budget=budget)
    asyncio.run(agent.store.close())
    assert main(["budgets", "tenant:acme", "--json"]) == 0
    shown = {each["name"]: Decimal(each["spent"]["usd"]) for each in json.loads(capsys.readouterr().out)}
    assert main(["cost", "--json", "--by", "tenant"]) == 0
    rows = {each["name"]: Decimal(each["usd"]) for each in json.loads(capsys.readouterr().out)["rows"]}
    assert len(shown) == 2
    assert set(shown.values()) == {rows["acme"]}
    assert main(["budgets", "--json"]) == 0
    everything = json.loads(capsys.readouterr().out)
    assert {strip_period(each["name"]) for each in everything} == {
        "tenant:acme", "tenant:bolt", "caller:acme/ann", "caller:bolt/ann",
    }  # fmt: skip
    assert main(["budgets"]) == 0
    printed = capsys.readouterr().out
    assert all(f"{each['name']} " in printed for each in everything)


def test_an_agent_file_limits_several_periods(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BRIDLE_STORE", str(tmp_path / "log.db"))
    (tmp_path / "clerk.toml").write_text(
        'model = "sim:"\n[[budget.tenant]]\nsteps = 1\nperiod = "month"\nzone = "Asia/Kathmandu"\n'
        "[[budget.tenant]]\nsteps = 9\n"
    )
    given = "-a", "clerk.toml", "--tenant", "acme", "--json"
    stops = []
    for options in ((), ("--steps", "50")):
        main(["run", "!say Hi", *given, *options])
        stops.append(json.loads(capsys.readouterr().out)["stop"])
    assert stops == ["done", "budget"]
    store = open_store(tmp_path / "log.db")
    names = {name: account.spent.steps for name, account in list_accounts(store).items()}
    asyncio.run(store.close())
    assert sorted(map(strip_period, names)) == ["tenant:acme", "tenant:acme"]
    assert {*names.values()} == {1}


def make_random_scope(dice):
    kinds = {"usd": ("0.002", "0.01", "1"), "tokens": (200, 800, 100_000), "steps": (1, 3, 10, 100)}
    given = {kind: dice.choice(sizes) for kind, sizes in kinds.items() if dice.random() < 0.3}
    period = dice.choice((None, *LIMIT_PERIODS))
    return Limits(**given, period=period, zone=dice.choice(ZONES) if period else "")


@pytest.mark.parametrize("seed", list_seeds(30))
def test_each_period_counts_the_runs_that_it_covers(seed):
    """Random limits of tenants, callers and pools in random periods and zones, over days with clock changes."""
    dice = random.Random(seed)
    clock, store = FakeClock(read_time("2026-10-24T20:00")), MemoryStore()
    scopes = {
        name: [make_random_scope(dice) for _ in range(dice.randrange(1, 4))] for name in ("tenant", "caller")
    }
    period = dice.choice(LIMIT_PERIODS)
    pool = StoredBudget(name="all", usd="0.05", period=period, zone="Europe/Berlin")
    agent = Agent(
        "sim:",
        tools=[look],
        store=store,
        clock=clock,
        pool=pool,
        budget=Budget(tenant=scopes["tenant"], caller=scopes["caller"]),
    )
    whos = [("ann", "acme"), ("bob", "acme"), ("ann", "bolt")]

    async def run_some():
        for _ in range(12):
            for caller, tenant in dice.sample(whos, 2):
                prompt = '!call look {"city": "Rome"}\n!then\n' * dice.randrange(3) + "!say Sunny"
                budget = Budget(usd=1, tenant=Limits(steps=50)) if dice.random() < 0.3 else None
                await agent.run(prompt, tenant=tenant, caller=caller, budget=budget)
            clock.advance(dice.choice((60, 1_800, 3_600, 7_200, 40_000)))
        return await list_all_entries(store)

    entries = asyncio.run(run_some())
    expected = {}
    counted = {name: join_limits(limits) for name, limits in scopes.items()}
    declared = [
        *((lambda entry: f"tenant:{entry.tenant}", limits) for limits in periods_of(counted["tenant"])),
        *(
            (lambda entry: f"caller:{entry.tenant}/{entry.caller}", limits)
            for limits in periods_of(counted["caller"])
        ),
        (lambda entry: "all", pool.limits),
    ]
    lowest = {}
    for name_budget, limits in declared:
        for entry in entries:
            name = name_budget(entry)
            if limits.period is not None:
                label = find_period(limits.period, entry.at, load_zone(limits.zone)).label
                name = period_budget_name(name, limits.period, label, limits.zone)
            usd, tokens = expected.get(name, (Decimal(0), 0))
            expected[name] = usd + entry.usd, tokens + entry.usage.total
            lowest[name] = limits
    accounts = {name: each for name, each in list_accounts(store).items() if each.spent != Amount()}
    accounts = {name: each for name, each in accounts.items() if name in expected or "tenant:" not in name}
    assert {name: (each.spent.usd, each.spent.tokens) for name, each in accounts.items()} == expected
    for name, account in accounts.items():
        assert account.reserved == account.excess == Amount()
        for kind in lowest[name].kinds:
            assert getattr(account.spent, kind) <= getattr(lowest[name], kind), (name, kind)


def periods_of(limits):
    return limits if isinstance(limits, tuple) else (limits,)
