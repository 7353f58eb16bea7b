"""Limits of agents are a floor: runs, clients and resumed runs can lower them and lift none."""

import asyncio
import json
import random
from decimal import Decimal

import pytest
from msgspec.structs import replace

from bridle import Agent, Budget, Limits, MisuseError, Policy, StoredBudget, tool
from bridle.cli.commands.cost import list_all_entries
from bridle.core.budget.scopes import merge_budgets, resume_budget
from bridle.run.budget.stored import BudgetLog
from bridle.run.model_connection import find_model_by_name
from bridle.serve.api import types as t
from bridle.stores.memory import MemoryStore
from bridle.testing import scripted
from bridle.testing.scripted_model import call_reply
from bridle.values import events as e
from bridle.values.budget import Amount
from bridle.values.calls import PermissionRule
from bridle.values.usage import BUDGET_SCOPES, MERGED_KINDS, BudgetParts
from tests.serve.serving import serve_agents
from tests.suite.campaign import list_seeds
from tests.suite.in_loop import in_loop


@tool(effect="read")
def look(city: str) -> str:
    """Look at a city."""
    return f"sun in {city}"


LOOK = '!call look {"city": "Rome"}\n!then\n'


def find_account(store, name):
    return asyncio.run(BudgetLog(store, name).catch_up())


def sum_costs(store, tenant=None, caller=None):
    """Dollars and tokens as `bridle cost` counts them."""
    found = asyncio.run(list_all_entries(store, tenant))
    entries = [entry for entry in found if caller in (None, entry.caller)]
    known = [entry.usd for entry in entries if entry.usd is not None]
    assert len(known) == len(entries)
    return sum(known, Decimal(0)), sum(entry.usage.total for entry in entries)


async def finish(client, run):
    return [item async for item in client.stream(run.session, after=run.after)]


def list_events(store, session, kind):
    return [each.event for each in asyncio.run(store.read(session)) if isinstance(each.event, kind)]


def test_a_budget_of_a_run_leaves_the_limits_of_the_tenant_and_the_session():
    store = MemoryStore()
    agent = Agent("sim:", store=store, budget=Budget(tenant=Limits(steps=3), session=Limits(steps=2)))
    given = Budget(usd=1), Budget(tenant=Limits(steps=99)), Budget(session=Limits(steps=99)), Budget()
    same_session = [agent.run_sync("!say Hi", "s", tenant="acme", budget=each).stop for each in given[:3]]
    assert same_session == ["done", "done", "steps"]
    stops = [agent.run_sync("!say Hi", tenant="acme", budget=each).stop for each in given]
    assert stops == ["done", "budget", "budget", "budget"]
    assert find_account(store, "tenant:acme").spent.steps == 3


def test_spending_of_runs_with_budgets_is_counted_for_the_tenant():
    store = MemoryStore()
    agent = Agent("sim:", tools=[look], store=store, budget=Budget(tenant=Limits(usd=5)))
    for given in (None, Budget(usd=1), Budget(tokens=9_000), Budget(tenant=Limits(usd=2))):
        assert agent.run_sync(f"{LOOK}!say Sunny", tenant="acme", budget=given).stop == "done"
    account = find_account(store, "tenant:acme")
    assert (account.spent.usd, account.spent.tokens) == sum_costs(store, "acme")
    assert account.spent.steps == 8
    assert account.limits == Limits(usd=2), "the last run lowered the limit for itself"


@pytest.mark.parametrize(
    ("own", "given", "stop"),
    [
        ({"steps": 1}, {"steps": 50}, "steps"),
        ({"steps": 50}, {"steps": 1}, "steps"),
        ({"tool_calls": 0}, {"tool_calls": 5}, "budget"),
        ({"usd": "0.000001"}, {"usd": 5}, "budget"),
        ({"tokens": 20}, {"usd": 5}, "budget"),
    ],
)
def test_a_run_lowers_each_limit_of_its_agent_and_lifts_none(own, given, stop):
    agent = Agent("sim:", tools=[look], budget=Budget(**own))
    assert agent.run_sync(f"{LOOK}!say Sunny", budget=Budget(**given)).stop == stop


def test_the_budget_of_a_run_holds_as_it_is_if_the_agent_has_none():
    store = MemoryStore()
    agent = Agent("sim:", store=store)
    assert agent.budget is None
    agent.run_sync("!say Hi", "s", budget=Budget(steps=200))
    (prompted,) = list_events(store, "s", e.Prompted)
    assert prompted.budget == Budget(steps=200)


def test_a_run_without_a_tenant_is_refused_if_the_agent_limits_tenants():
    agent = Agent("sim:", budget=Budget(tenant=Limits(usd=1)))
    with pytest.raises(MisuseError, match="needs a tenant"):
        agent.run_sync("!say Hi", budget=Budget(usd=1))


def test_the_merged_limits_are_in_the_log():
    store = MemoryStore()
    agent = Agent("sim:", store=store, budget=Budget(usd=2, tenant=Limits(usd=50, wrap_up=0.9)))
    given = Budget(usd=1000, steps=7, tenant=Limits(tokens=10_000))
    agent.run_sync("!say Hi", "s", tenant="acme", budget=given)
    (prompted,) = list_events(store, "s", e.Prompted)
    merged = Limits(usd=50, tokens=10_000, wrap_up=0.9)
    assert prompted.budget == Budget(usd=2, steps=7, tenant=merged)
    own, asked = Limits(usd=50, wrap_up=0.9), Limits(tokens=10_000)
    assert prompted.budget_parts == BudgetParts(
        agent=Budget(steps=None, tenant=own), run=Budget(steps=None, tenant=asked)
    )


def test_a_run_without_limits_for_its_tenant_and_session_records_no_parts():
    store = MemoryStore()
    agent = Agent("sim:", store=store, budget=Budget(tenant=Limits(usd=50)))
    agent.run_sync("!say Hi", "s", tenant="acme", budget=Budget(usd=1))
    (prompted,) = list_events(store, "s", e.Prompted)
    assert prompted.budget_parts is None


WAITING = Policy(rules=(PermissionRule(decision="ask", name="looks", tools=("look",)),))


def make_waiting(store, budget, given=None):
    """A session that waits for an answer after its first step."""
    line = scripted(call_reply(("look", {"city": "Rome"})), "Sunny.")
    agent = Agent(line, tools=[look], policy=WAITING, store=store, budget=budget)
    assert agent.run_sync("?", "s", tenant="acme", budget=given).stop == "waiting"
    (question,) = asyncio.run(agent.approvals("s"))
    asyncio.run(agent.approve("s", question.id))
    return lambda budget: Agent(line, tools=[look], policy=WAITING, store=store, budget=budget)


@pytest.mark.parametrize(
    ("recorded", "later", "given", "stop"),
    [
        # The limits of the run itself are raised by the resume, one by one.
        (Budget(steps=1), Budget(steps=1), None, "steps"),
        (Budget(steps=1), Budget(steps=1), Budget(steps=2), "done"),
        (Budget(steps=1), Budget(steps=9), None, "steps"),
        (Budget(steps=1, tool_calls=0), Budget(), Budget(steps=2), "budget"),
        # Those of the tenant and the session only by the agent.
        (Budget(tenant=Limits(steps=1)), Budget(tenant=Limits(steps=1)), Budget(usd=5), "budget"),
        (
            Budget(tenant=Limits(steps=1)),
            Budget(tenant=Limits(steps=1)),
            Budget(tenant=Limits(steps=9)),
            "budget",
        ),
        (Budget(tenant=Limits(steps=1)), None, Budget(tenant=Limits(steps=9)), "budget"),
        (Budget(tenant=Limits(steps=1)), None, None, "budget"),
        (Budget(tenant=Limits(steps=1)), Budget(tenant=Limits(steps=2)), None, "done"),
        (Budget(tenant=Limits(steps=9)), Budget(tenant=Limits(steps=1)), None, "budget"),
        (Budget(session=Limits(steps=1)), Budget(session=Limits(steps=1)), Budget(steps=50), "steps"),
        (Budget(session=Limits(steps=1)), Budget(session=Limits(steps=2)), None, "done"),
        (Budget(), Budget(tenant=Limits(steps=1)), None, "done"),  # nothing was counted before
    ],
)
def test_a_resumed_run_raises_its_own_limits_and_no_other(recorded, later, given, stop):
    store = MemoryStore()
    make_agent = make_waiting(store, recorded)
    assert asyncio.run(make_agent(later).resume("s", budget=given)).stop == stop


def test_a_lower_limit_of_a_run_for_its_tenant_survives_a_resume():
    store = MemoryStore()
    declared = Budget(tenant=Limits(steps=50))
    make_agent = make_waiting(store, declared, Budget(tenant=Limits(steps=1)))
    assert asyncio.run(make_agent(declared).resume("s")).stop == "budget"
    raised = Budget(tenant=Limits(steps=2))
    assert asyncio.run(make_agent(declared).resume("s", budget=raised)).stop == "done"


def test_a_limit_of_a_run_for_its_tenant_is_raised_by_a_resume_up_to_that_of_the_agent():
    for declared, stop in ((None, "done"), (Budget(tenant=Limits(steps=1)), "budget")):
        store = MemoryStore()
        make_agent = make_waiting(store, declared, Budget(tenant=Limits(steps=1)))
        for later in (declared, None):
            raised = Budget(tenant=Limits(steps=9))
            assert asyncio.run(make_agent(later).resume("s", budget=raised)).stop == stop


def test_a_resumed_run_whose_limits_stay_records_no_budget():
    store = MemoryStore()
    budget = Budget(usd=5, tenant=Limits(usd=50), session=Limits(usd=9))
    make_agent = make_waiting(store, budget)
    assert asyncio.run(make_agent(budget).resume("s")).stop == "done"
    assert list_events(store, "s", e.Resumed) == [e.Resumed()]


def test_resuming_without_a_price_raises_only_for_dollars_given_now():
    """The agent limits dollars of the tenant now; the run began without a limit and its model has no price."""
    store, unpriced = MemoryStore(), replace(find_model_by_name("sim:"), price=None)
    line = scripted(call_reply(("look", {"city": "Rome"})), "Sunny.", "Sunny.", model=unpriced)
    first = Agent(line, tools=[look], store=store)
    assert first.run_sync("?", "s", tenant="acme", budget=Budget(steps=1)).stop == "steps"
    later = Agent(line, tools=[look], store=store, budget=Budget(usd=1, session=Limits(usd=1)))
    with pytest.raises(MisuseError, match="no price is known"):
        asyncio.run(later.resume("s", budget=Budget(usd=1)))
    limited = asyncio.run(later.resume("s", budget=Budget(steps=5)))
    assert limited.stop == "budget"
    assert "cost unknown" in limited.reason
    assert asyncio.run(first.resume("s")).stop == "budget", "the session's limit was recorded"


def test_a_limit_of_an_inner_agent_for_the_same_tenant_holds_too():
    store = MemoryStore()
    inner = Agent("sim:", name="inner", tools=[look], store=store, budget=Budget(tenant=Limits(steps=2)))
    ask = inner.as_tool("ask", "Ask the other agent.")
    outer = Agent("sim:", tools=[ask], store=store, budget=Budget(tenant=Limits(steps=50)))
    prompt = json.dumps({"prompt": LOOK * 5 + "!say Sunny"})
    result = outer.run_sync(f"!call ask {prompt}\n!then\n!say Well.", tenant="acme")
    (subrun,) = result.subruns
    assert subrun.steps == 1, "with the outer run's step, the tenant has taken two"
    assert result.stop == "done"
    assert find_account(store, "tenant:acme").spent.steps == result.steps + subrun.steps


def test_a_pool_of_an_inner_agent_with_the_same_name_holds_too():
    store = MemoryStore()
    inner = Agent("sim:", name="inner", tools=[look], store=store, pool=StoredBudget(name="q4", steps=2))
    ask = inner.as_tool("ask", "Ask the other agent.")
    outer = Agent("sim:", tools=[ask], store=store, pool=StoredBudget(name="q4", steps=50))
    prompt = json.dumps({"prompt": LOOK * 5 + "!say Sunny"})
    result = outer.run_sync(f"!call ask {prompt}\n!then\n!say Well.")
    assert [each.steps for each in result.subruns] == [1]


@in_loop
async def test_a_client_lowers_the_limits_of_a_server_and_lifts_none():
    store = MemoryStore()
    own = Budget(usd=2, steps=1, tenant=Limits(steps=3), session=Limits(steps=50))
    agent = Agent("sim:", tools=[look], store=store, budget=own)
    everything = {"usd": "1000", "steps": 99, "tenant": {"steps": 99}, "session": {"steps": 99}}

    async with serve_agents({"a": agent}, store) as served:

        async def post(path, **body):
            data = json.dumps({**body, "budget": everything}).encode()
            headers = {"content-type": "application/json"}
            status, _, reply = await served.exchange("POST", path, headers=headers, body=data)
            assert status < 300, reply
            await finish(served.client, t.StartedRun(**json.loads(reply)))

        for name in ("s0", "s1"):
            await post("/api/sessions", prompt=f"{LOOK}!say Hi", session=name, tenant="acme")
        for _ in range(3):
            await post("/api/sessions/s0/resume")
        await post("/api/sessions", prompt="!say Hi", session="last", tenant="acme")
        await post("/api/sessions", prompt="!say Hi", session="over", tenant="acme")

    async def read_stop(session):
        records = await store.read(session)
        return [each.event.stop for each in records if isinstance(each.event, e.RunEnded)][-1]

    assert [await read_stop(name) for name in ("s0", "s1", "last", "over")] == [
        "steps",
        "steps",
        "done",
        "budget",
    ]
    assert (await BudgetLog(store, "tenant:acme").catch_up()).spent.steps == 3


@in_loop
async def test_a_client_does_not_raise_a_limit_that_a_run_was_given_elsewhere():
    store = MemoryStore()
    agent = Agent("sim:", tools=[look], store=store, name="a")
    await agent.run(f"{LOOK}!say Hi", "s", budget=Budget(tokens=1, steps=5))
    async with serve_agents({"a": agent}, store) as served:
        await finish(served.client, await served.client.resume("s", budget=Budget(tokens=1_000_000, steps=9)))
    limits = [each.event.budget for each in await store.read("s") if isinstance(each.event, e.Resumed)]
    assert limits == [Budget(tokens=1, steps=9)]


SIZES = {
    "usd": ("0.0004", "0.002", "0.01", "1"),
    "tokens": (60, 200, 800, 100_000),
    "steps": (1, 2, 3, 6, 100),
    "tool_calls": (0, 1, 3, 50),
}


def make_random_limits(dice):
    return {kind: dice.choice(sizes) for kind, sizes in SIZES.items() if dice.random() < 0.3}


def make_random_budget(dice, *, always=False):
    if not always and dice.random() < 0.3:
        return None
    given = make_random_limits(dice)
    for scope in BUDGET_SCOPES:
        if always or dice.random() < 0.4:
            given[scope] = Limits(**make_random_limits(dice))
    return Budget(**given)


@pytest.mark.parametrize("seed", list_seeds(20))
def test_each_scope_counts_the_runs_that_it_covers_and_none_exceeds_its_lowest_limit(seed):
    """Random limits of agents, runs and resumed runs, for tenants, sessions and pools at once."""
    dice = random.Random(seed)
    store = MemoryStore()
    pool = StoredBudget(name="all", usd=dice.choice((0.02, 1)), steps=dice.choice((20, 100)))
    agents = [
        Agent("sim:", tools=[look], store=store, pool=pool, budget=make_random_budget(dice, always=True))
        for _ in range(2)
    ]
    sessions = [(f"s{number}", f"t{number % 2}") for number in range(4)]
    began = set()

    async def run_one(session, tenant):
        agent = dice.choice(agents)
        given = make_random_budget(dice)
        if session in began and dice.random() < 0.3:
            return await agent.resume(session, budget=given)
        began.add(session)
        prompt = LOOK * dice.randrange(4) + "!say Sunny"
        return await agent.run(prompt, session, tenant=tenant, caller=session, budget=given)

    async def run_all():
        for _ in range(6):
            await asyncio.gather(*(run_one(*each) for each in dice.sample(sessions, 2)))

    asyncio.run(run_all())
    usd, tokens = sum_costs(store)
    everything = find_account(store, "all")
    assert (everything.spent.usd, everything.spent.tokens) == (usd, tokens)
    assert everything.spent.usd <= pool.usd
    for tenant in ("t0", "t1"):
        account = find_account(store, f"tenant:{tenant}")
        assert (account.spent.usd, account.spent.tokens) == sum_costs(store, tenant)
        assert account.reserved == account.excess == Amount()
    for session, tenant in sessions:
        account = find_account(store, f"caller:{tenant}/{session}")
        assert (account.spent.usd, account.spent.tokens) == sum_costs(store, tenant, session)
        assert account.reserved == account.excess == Amount()
    for session in began:
        check_limits(session, asyncio.run(store.read(session)))


def check_limits(session, records):
    """After each reply, the run and its session were within the limits in force."""
    spent = {"usd": Decimal(0), "tokens": 0, "steps": 0}
    run, limits = dict(spent), Budget()
    for record in records:
        match record.event:
            case e.Prompted(budget=budget):
                run, limits = dict.fromkeys(spent, 0), budget
            case e.Resumed(budget=budget):
                limits = budget or limits
            case e.ModelReplied(reply=reply, usd=usd):
                for counted in (spent, run):
                    counted["usd"] += usd
                    counted["tokens"] += reply.usage.total
                    counted["steps"] += 1
                for scope, counted in ((limits, run), (limits.session, spent)):
                    for kind, part in counted.items():
                        limit = getattr(scope, kind, None)
                        assert limit is None or part <= limit, (session, kind)


def is_within(lower, upper):
    """True if the first limits have each kind of the second, and none of them higher."""
    limited = [kind for kind in MERGED_KINDS if getattr(upper, kind) is not None]
    return all(
        getattr(lower, kind) is not None and getattr(lower, kind) <= getattr(upper, kind) for kind in limited
    )


@pytest.mark.parametrize("seed", list_seeds(200))
def test_merging_never_lifts_a_limit(seed):
    dice = random.Random(seed)

    agent, run = make_random_budget(dice, always=True), make_random_budget(dice, always=True)
    merged = merge_budgets(agent, run)
    for one in (agent, run):
        assert is_within(merged, one)
        assert is_within(merged.session, one.session)
        assert is_within(merged.tenant, one.tenant)
        assert is_within(merged.caller, one.caller)
    assert merged == merge_budgets(run, agent)
    later, given = make_random_budget(dice, always=True), make_random_budget(dice)
    resumed, _ = resume_budget(merged, None, later, given)
    for scope in BUDGET_SCOPES:
        assert is_within(getattr(resumed, scope), getattr(later, scope))
        # An agent without limits, such as that of `bridle resume` without -a, leaves the recorded ones.
        unnamed, _ = resume_budget(merged, None, None, given)
        assert is_within(getattr(unnamed, scope), getattr(merged, scope))
