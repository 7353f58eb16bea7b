"""Limits of a run and a session: enforced before they are exceeded, announced to the model, raised and resumed."""

import asyncio
import re
from decimal import Decimal

import pytest

from bridle import Agent, Budget, Limits, MisuseError, Policy, tool
from bridle.core.budget.limits import worst_case_reservation
from bridle.core.budget.shared import settled_amount
from bridle.core.recovery.log_repair import fold_log
from bridle.stores.memory import MemoryStore
from bridle.testing import FakeClock, scripted
from bridle.testing.scripted_model import call_reply
from bridle.values import events as e
from bridle.values.budget import Amount, Spending
from bridle.values.calls import PermissionRule
from bridle.values.request import Extra
from bridle.values.usage import Usage
from tests.sim.sim_families import FAMILIES, MODELS

ran: list[str] = []


@tool(effect="read")
def look(city: str) -> str:
    """Look at a city."""
    ran.append(city)
    return f"sun in {city}"


@tool(effect="exclusive")
def walk(city: str) -> str:
    """Walk through a city."""
    ran.append(city)
    return f"walked {city}"


@tool(effect="write")
def ride(city: str) -> str:
    """Ride through a city."""
    ran.append(city)
    return f"rode {city}"


@pytest.fixture(autouse=True)
def nothing_ran():
    ran.clear()


def look_reply(*cities, name="look"):
    return call_reply(*((name, {"city": city}) for city in cities))


def outcomes(result):
    return [part.outcome for message in result.messages if message.role == "tool" for part in message.parts]


def log(store, session):
    return [record.event for record in asyncio.run(store.read(session))]


@pytest.mark.parametrize("name", ["look", "walk"])
@pytest.mark.parametrize("stream", [False, True])
def test_calls_beyond_the_limit_are_answered_as_not_run_and_end_the_run(name, stream):
    store = MemoryStore()
    line = scripted(look_reply("a", "b", "c", "d", name=name), "and that is it")
    agent = Agent(line, tools=[look, walk], store=store)

    async def run():
        if not stream:
            return await agent.run("?", session="s", budget=Budget(tool_calls=3))
        shown = [event async for event in agent.stream("?", session="s", budget=Budget(tool_calls=3))]
        return shown[-1].result

    result = asyncio.run(run())
    assert (result.stop, sorted(ran)) == ("budget", ["a", "b", "c"])
    assert result.reason == "3 of 3 tool calls made, and the model asked for more"
    assert outcomes(result) == ["ok", "ok", "ok", "cancelled"]
    assert "not run" in result.messages[-1].parts[-1].text
    assert [event.rule for event in log(store, "s") if isinstance(event, e.ToolFinished)].count(
        "limit of tool calls"
    ) == 1
    # Nobody is asked as long as the limit is what it was.
    assert asyncio.run(agent.resume("s")).stop == "budget"
    assert len(line.script.requests) == 1
    raised = asyncio.run(agent.resume("s", budget=Budget(tool_calls=4)))
    assert (raised.stop, raised.text) == ("done", "and that is it")


def test_a_run_that_needs_exactly_what_it_may_have_is_done():
    agent = Agent(
        scripted(look_reply("a"), look_reply("b"), "fine"), tools=[look], budget=Budget(tool_calls=2)
    )
    assert agent.run_sync("?").stop == "done"
    none = Agent(scripted("fine"), tools=[look], budget=Budget(tool_calls=0))
    assert none.run_sync("?").stop == "done"


def test_denied_and_wrong_calls_do_not_count():
    policy = Policy(rules=(PermissionRule(decision="deny", name="no walks", tools=("walk",)),))
    first = call_reply(
        ("walk", {"city": "x"}), ("nothing", {}), ("look", {"town": 1}), ("look", {"city": "a"})
    )
    agent = Agent(
        scripted(first, look_reply("b"), "fine"),
        tools=[look, walk],
        policy=policy,
        budget=Budget(tool_calls=2),
    )
    result = agent.run_sync("?")
    assert (result.stop, sorted(ran)) == ("done", ["a", "b"])
    assert outcomes(result) == ["denied", "invalid", "invalid", "ok", "ok"]


@pytest.mark.parametrize("answer", ["approve", "reject"])
def test_a_call_that_waits_for_a_person_keeps_its_place(answer):
    policy = Policy(rules=(PermissionRule(decision="ask", name="rides", tools=("ride",)),))
    batch = call_reply(("ride", {"city": "a"}), ("look", {"city": "b"}), ("look", {"city": "c"}))
    agent = Agent(scripted(batch, "fine"), tools=[look, ride], policy=policy, budget=Budget(tool_calls=2))

    async def run():
        waiting = await agent.run("?", session="s")
        assert (waiting.stop, ran) == ("waiting", ["b"])
        (question,) = await agent.approvals("s")
        await (agent.approve if answer == "approve" else agent.reject)("s", question.id)
        return await agent.resume("s")

    result = asyncio.run(run())
    assert sorted(ran) == (["a", "b"] if answer == "approve" else ["b", "c"])
    assert result.stop == ("budget" if answer == "approve" else "done")


SESSION_LIMITS = {
    "usd": (Limits(usd="0.0005"), Limits(usd=1), "budget"),
    "tokens": (Limits(tokens=250), Limits(tokens=100_000), "budget"),
    "steps": (Limits(steps=1), Limits(steps=9), "steps"),
    "tool_calls": (Limits(tool_calls=0), Limits(tool_calls=9), "budget"),
}
RUN_LIMITS = {
    "usd": (Budget(usd="0.0005"), Budget(usd=1), "budget"),
    "tokens": (Budget(tokens=250), Budget(tokens=100_000), "budget"),
    "steps": (Budget(steps=1), Budget(steps=9), "steps"),
    "tool_calls": (Budget(tool_calls=0), Budget(tool_calls=9), "budget"),
}


@pytest.mark.parametrize("limit", RUN_LIMITS)
@pytest.mark.parametrize("whose", ["run", "session"])
def test_every_limit_leaves_everything_and_can_be_raised(limit, whose):
    tight, wide, stop = (RUN_LIMITS if whose == "run" else SESSION_LIMITS)[limit]
    if whose == "session":
        tight, wide = Budget(session=tight), Budget(session=wide)
    agent = Agent("sim:", tools=[look], max_tokens=50)
    stopped = agent.run_sync('!call look {"city": "Paris"}\n!then\n!say It is sunny.', budget=tight)  # type: ignore[call-overload]
    assert stopped.stop == stop
    assert stopped.reason
    assert ("session" in stopped.reason) == (whose == "session")
    assert stopped.messages
    again = asyncio.run(agent.resume(stopped.session))
    assert again.stop == stop, "nothing has changed"
    result = asyncio.run(agent.resume(stopped.session, budget=wide))  # type: ignore[arg-type]
    assert (result.stop, result.text) == ("done", "It is sunny.")


def test_time_is_a_limit_of_the_session_too():
    clock = FakeClock()

    @tool(effect="read")
    async def nap() -> str:
        """Sleep for six seconds."""
        clock.advance(6)
        return "slept"

    line, store = scripted(call_reply(("nap", {})), "one", call_reply(("nap", {})), "two"), MemoryStore()

    def make_agent(seconds):
        budget = Budget(seconds=8, session=Limits(seconds=seconds))
        return Agent(line, tools=[nap], clock=clock, store=store, budget=budget)

    agent = make_agent(10)
    assert agent.run_sync("?", session="s").stop == "done"
    clock.advance(1_000)  # nobody was driving
    second = agent.run_sync("?", session="s")
    assert (second.stop, second.reason) == ("seconds", "12.0 of the session's 10 seconds used")
    raised = asyncio.run(make_agent(20).resume("s"))
    assert (raised.stop, raised.text) == ("done", "two")


def test_a_session_adds_up_over_its_runs():
    agent = Agent("sim:", budget=Budget(session=Limits(steps=2)))
    assert [agent.run_sync("!say hi", session="s").stop for _ in range(3)] == ["done", "done", "steps"]
    assert agent.run_sync("!say hi", session="other").stop == "done"


@pytest.mark.parametrize("family", FAMILIES)
def test_the_model_is_told_once_to_finish_on_every_family(family):
    """And no provider refuses it, nor does the beginning of a prompt move."""
    store = MemoryStore()
    agent = Agent(
        MODELS[family], tools=[look], store=store, budget=Budget(steps=8, wrap_up=0.25), prefix="strict"
    )
    turn = '!call look {{"city": "{}"}}\n!call look {{"city": "Oslo"}}\n!then\n'
    result = agent.run_sync("".join(map(turn.format, ("Paris", "Rome", "Bern"))) + "!say bye", session="s")
    told = [event for event in log(store, "s") if isinstance(event, e.Reprompted)]
    assert [event.why for event in told] == ["wrap up"]
    assert told[0].message.startswith("2 of 8 steps used. Finish now")
    roles = [message.role for message in result.messages]
    assert roles[:6] == ["user", "assistant", "tool", "assistant", "tool", "user"]
    assert (result.stop, result.reason) == ("done", "wrapped up: 2 of 8 steps used")
    assert fold_log(asyncio.run(store.read("s"))).repairs == ()


@pytest.mark.parametrize(
    ("budget", "used"),
    [
        (Budget(tool_calls=4, wrap_up=0.5), "2 of 4 tool calls used"),
        (Budget(tokens=30_000, wrap_up=0.001), r"[0-9,]+ of 30,000 tokens used"),
        (Budget(usd=1, wrap_up=0.00001), r"\$0.[0-9]+ of \$1 used"),
        (Budget(session=Limits(steps=5, wrap_up=0.4)), "2 of the session's 5 steps used"),
    ],
    ids=str,
)
def test_any_limit_may_be_the_one(budget, used):
    agent = Agent(scripted(look_reply("a"), look_reply("b"), "fine"), tools=[look], budget=budget)
    result = agent.run_sync("?", session="s")
    (told,) = [event.message for event in log(agent.store, "s") if isinstance(event, e.Reprompted)]
    assert re.fullmatch(f"{used}[.] Finish now: .+", told)
    assert result.text == "fine"


def test_a_raised_budget_has_a_threshold_of_its_own():
    line = scripted(look_reply("a"), look_reply("b"), look_reply("c"), "fine")
    agent = Agent(line, tools=[look], store=MemoryStore())
    first = agent.run_sync("?", session="s", budget=Budget(steps=2, wrap_up=0.5))
    assert first.stop == "steps"
    done = asyncio.run(agent.resume("s", budget=Budget(steps=6, wrap_up=0.5)))
    told = [event.message for event in log(agent.store, "s") if isinstance(event, e.Reprompted)]
    assert (done.stop, len(told)) == ("done", 2)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Budget(wrap_up=1.5),
        lambda: Budget(wrap_up=0),
        lambda: Budget(tool_calls=1.5),  # type: ignore[arg-type]
        lambda: Budget(session=Budget(usd=1)),
        lambda: Budget(tenant=5),  # type: ignore[arg-type]
        lambda: Limits(usd=-1),
    ],
)
def test_what_is_no_limit_is_refused(wrong):
    with pytest.raises(MisuseError):
        wrong()


@pytest.mark.parametrize(
    ("settings", "dearest"),
    [
        ({}, "cache_write"),
        ({"cache_ttl": "1h"}, "cache_write_1h"),
        (
            {"extras": (Extra(name="cache_control", json='{"type":"ephemeral","ttl":"1h"}'),)},
            "cache_write_1h",
        ),
    ],
    ids=["five minutes", "an hour", "asked for by hand"],
)
def test_a_prompt_that_may_be_kept_for_an_hour_is_reserved_at_that_price(settings, dearest):
    model = MODELS["anthropic"]
    store = MemoryStore()
    Agent(model, store=store, **settings).run_sync("!say x", session="s")
    state = fold_log(asyncio.run(store.read("s"))).state
    rates = model.price.rates(0, state.now)
    whole = worst_case_reservation(state, 100, "p")
    prompt = Decimal(getattr(rates, dearest)) * state.estimate.prompt_tokens
    assert whole.usd == (prompt + rates.output * 100) / 1_000_000


def test_a_budget_that_cannot_be_held_is_refused_before_the_run_goes_on_with_it():
    agent = Agent(scripted(look_reply("Rome"), "done"), tools=[look], budget=Budget(steps=1))
    stopped = agent.run_sync("go")
    with pytest.raises(MisuseError, match="needs a tenant"):
        asyncio.run(agent.resume(stopped.session, budget=Budget(tenant=Limits(tokens=9_999))))
    again = asyncio.run(agent.resume(stopped.session))
    assert (again.stop, again.reason) == (stopped.stop, stopped.reason), "it is as it was"
    assert asyncio.run(agent.resume(stopped.session, budget=Budget(steps=2))).text == "done"


@pytest.mark.parametrize(
    "wrong",
    [
        lambda agent: agent.run_sync("go", budget=5),
        lambda agent: agent.stream("go", budget={"usd": 1}),
        lambda agent: asyncio.run(agent.resume("s", budget=5)),
        lambda agent: agent.resume_stream("s", budget=Limits(usd=1)),
        lambda agent: agent.run_sync("go", tenant=None),
        lambda agent: agent.run_sync("go", caller=7),
        lambda agent: Agent(scripted("x"), pool=Budget(usd=1)),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_budget_or_nobodys_is_said_in_one_line(wrong):
    with pytest.raises(MisuseError):
        wrong(Agent(scripted("x")))


@pytest.mark.parametrize(
    "model", ["sim:anthropic/claude-sonnet-4-6", "sim:openai_chat/gpt-5.4", "sim:gemini/gemini-3.5-flash"]
)
def test_a_model_asked_to_finish_is_not_forced_to_call(model):
    agent = Agent(
        model, tools=[look], tool_choice="any", budget=Budget(steps=8, wrap_up=0.25), repeats_max=None
    )
    steps = "\n!then\n".join(f'!call look {{"city":"{place}"}}' for place in "ab")
    result = agent.run_sync(f"{steps}\n!then\n!say never played")
    assert (result.stop, result.steps) == ("done", 3)
    assert result.reason == "wrapped up: 2 of 8 steps used"


def test_spending_adds_up_in_every_kind():
    one = Spending(steps=1, usage=Usage(input=3), usd=Decimal(2), tool_calls=4)
    assert one + one == Spending(steps=2, usage=Usage(input=6), usd=Decimal(4), tool_calls=8)
    assert (one + Spending(usd=None)).usd is None


def test_an_unknown_price_or_count_is_settled_as_reserved():
    reserved = Amount(usd=Decimal(5), tokens=70, steps=1)
    assert settled_amount(reserved, Usage(), None, steps=0) == Amount(usd=Decimal(5), tokens=70)
    assert settled_amount(reserved, Usage(input=3), Decimal(1), steps=1) == Amount(
        usd=Decimal(1), tokens=3, steps=1
    )
