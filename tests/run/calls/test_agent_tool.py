"""An agent as a tool of another: one session per call, also after a crash, with its events visible."""

import asyncio
import json
from dataclasses import dataclass
from datetime import date

import pytest

from bridle import Agent, Budget, MisuseError, RunContext, SharedBudget, TextDelta, to_sse, tool
from bridle.core.recovery.log_repair import fold_log
from bridle.errors import BadTool
from bridle.events import SubrunDelta, SubrunItem
from bridle.run.budget.nested import NESTED_RUNS_MAX
from bridle.stores.memory import MemoryStore
from bridle.testing import FakeClock, scripted
from bridle.testing.scripted_model import call_reply
from bridle.values import events as e
from bridle.values.budget import SubrunCharged, SubrunStarted, SubrunWaiting
from bridle.values.calls import ApprovalVerdict
from bridle.values.errors import StoreError
from tests.suite.crashes import CrashingStore
from tests.suite.wire_models import MODELS

BOOK = '!call book {\\"seat\\": 4}\\n!then\\n!say Booked.'
PROMPT = f'!call travel {{"prompt": "{BOOK}"}}\n!then\n!say All done.'


def make_agents(store, booked, model="sim:", **options):
    @tool(effect="write", on_unknown="retry")
    def book(seat: int, run: RunContext) -> str:
        """Book a seat."""
        booked.append(run.idempotency_key)
        return f"seat {seat}"

    inner = Agent(model, name="travel", tools=[book])
    return Agent(model, tools=[inner.as_tool(description="Books travel.")], store=store, **options)


def read(store, session, kind=object):
    return [record.event for record in asyncio.run(store.read(session)) if isinstance(record.event, kind)]


def inner_sessions(store):
    return [each.id for each in asyncio.run(store.sessions()) if each.id != "s"]


@pytest.mark.parametrize("model", MODELS)
def test_the_answer_is_the_result_and_the_session_is_linked(model):
    store, booked = MemoryStore(), []
    result = make_agents(store, booked, model).run_sync(PROMPT, "s", tenant="acme", caller="ann")
    assert (result.stop, result.text) == ("done", "All done.")
    (finished,) = read(store, "s", e.ToolFinished)
    assert finished.result.text == "Booked." and len(booked) == 1
    (started,) = read(store, "s", SubrunStarted)
    (prompted,) = read(store, started.session, e.Prompted)
    assert (prompted.parent_session, prompted.parent_call_id) == ("s", finished.call_id)
    assert (prompted.tenant, prompted.caller) == ("acme", "ann")
    assert [each.session for each in result.subruns] == [started.session]
    assert result.cost == pytest.approx(result.own_cost + float(result.subruns[0].usd))


@pytest.mark.parametrize("model", MODELS)
def test_a_crash_at_any_write_neither_repeats_nor_loses_the_inner_run(model):
    whole = MemoryStore()
    make_agents(whole, [], model).run_sync(PROMPT, "s")
    usual = [type(event) for event in read(whole, "s")]
    writes, death = 0, 1
    while True:
        store, booked = CrashingStore(death), []
        try:
            result = make_agents(store, booked, model).run_sync(PROMPT, "s")
        except StoreError:
            result = None
        if store.left:
            break
        store.left, writes = None, writes + 1
        if result is None or not result.done:
            again = make_agents(store, booked, model)
            prompted = any(isinstance(event, e.Prompted) for event in read(store, "s"))
            result = again.resume_sync("s") if prompted else again.run_sync(PROMPT, "s")
        assert (result.stop, result.text) == ("done", "All done."), death
        (session,) = inner_sessions(store)
        assert len(read(store, session, e.Prompted)) == 1, death
        assert len(set(booked)) == 1 and len(booked) <= 2, death
        assert len(read(store, "s", e.ToolFinished)) == 1
        extra = (e.Resumed, e.LogRepaired)
        events = [type(event) for event in read(store, "s") if not isinstance(event, extra)]
        for kind in set(usual) - {e.ModelAsked, e.ToolStarted, SubrunCharged}:
            assert events.count(kind) == usual.count(kind), (death, kind)
        spent = fold_log(asyncio.run(store.read(session))).state.run.budget.spent
        (subrun,) = result.subruns
        assert subrun.usage.total >= spent.usage.total, death
        assert subrun.steps >= spent.steps, death
        death += 1
    assert writes > 15


@pytest.mark.parametrize("model", MODELS[:3])
def test_inner_events_and_deltas_are_in_the_outer_stream(model):
    store = MemoryStore()
    agent = make_agents(store, [], model)

    async def run():
        return [item async for item in agent.stream(PROMPT, "s")]

    items = asyncio.run(run())
    inner = [item for item in items if isinstance(item, SubrunItem)]
    assert {item.call_id for item in inner} == {"c1_0"}
    (session,) = inner_sessions(store)
    assert {item.session for item in inner} == {session}
    events = [item.item for item in inner if not isinstance(item, SubrunDelta)]
    assert events == read(store, session)
    deltas = [item.item for item in inner if isinstance(item, SubrunDelta)]
    assert "".join(delta.text for delta in deltas if isinstance(delta, TextDelta)) == "Booked."
    assert "".join(item.text for item in items) == "All done.", "text of the outer run alone"
    assert all(to_sse(item, full=True).startswith("event: subrun_") for item in inner)
    assert not any(map(to_sse, inner)), "what happens inside a tool stays on the server"


@dataclass
class Shop:
    name: str


def make_shop_agents(**outer):
    seen = []

    def look(run: RunContext[Shop]) -> str:
        """Look."""
        seen.append(run.context.name)
        return run.context.name

    inner = Agent("sim:", name="shop", tools=[look])
    return Agent("sim:", tools=[inner.as_tool()], **outer), seen


SHOP = '!call shop {"prompt": "!call look\\n!then\\n!say Seen."}\n!then\n!say Good.'


def test_the_context_is_given_to_the_inner_run():
    agent, seen = make_shop_agents()
    assert agent.run_sync(SHOP, context=Shop("corner")).text == "Good."
    assert seen == ["corner"]


def test_a_missing_context_is_refused_before_anything_runs():
    agent, seen = make_shop_agents()
    with pytest.raises(MisuseError, match="tool `shop` needs a context of type Shop"):
        agent.run_sync(SHOP)
    assert not seen


def test_a_structured_answer_is_returned_as_json():
    inner = Agent("sim:", name="shop", output=Shop)
    agent = Agent("sim:", tools=[inner.as_tool()])
    result = agent.run_sync('!call shop {"prompt": "!say {\\"name\\": \\"corner\\"}"}\n!then\n!say Good.')
    (found,) = [part for message in result.messages for part in message.results]
    assert found.text == '{"name":"corner"}'


def test_an_inner_run_without_an_answer_is_an_error_that_the_model_reads():
    inner = Agent("sim:", name="shop", budget=Budget(steps=1), tools=[tool(lambda: "x", name="look")])
    agent = Agent("sim:", tools=[inner.as_tool()])
    result = agent.run_sync(SHOP)
    assert result.text == "Good."
    (found,) = [part for message in result.messages for part in message.results]
    assert found.outcome == "error" and "the agent shop stopped as 'steps'" in found.text


# ── approvals inside ─────────────────────────────────────────────────────────


def make_paying_agents(store, paid, **outer):
    @tool(effect="write", approve=True)
    def pay(amount: int) -> str:
        """Pay."""
        paid.append(amount)
        return f"paid {amount}"

    inner = Agent("sim:", name="cashier", tools=[pay])
    return inner, Agent("sim:", tools=[inner.as_tool()], store=store, **outer)


PAY = '!call cashier {"prompt": "!call pay {\\"amount\\": 5}\\n!then\\n!say Paid."}\n!then\n!say Good.'


def test_the_approver_of_the_outer_run_answers_for_an_inner_one_without():
    asked = []

    async def approve(question):
        asked.append(question)
        return ApprovalVerdict(answer="approve", by="ann")

    paid = []
    _, agent = make_paying_agents(MemoryStore(), paid, approver=approve)
    assert agent.run_sync(PAY, "s").text == "Good."
    assert paid == [5] and asked[0].session.startswith("cashier-")


def test_the_outer_run_waits_with_the_inner_one_and_goes_on_after_the_answer():
    store, paid = MemoryStore(), []
    _, agent = make_paying_agents(store, paid)
    result = agent.run_sync(PAY, "s")
    (session,) = inner_sessions(store)
    assert result.stop == "waiting" and f"cashier in session {session}" in result.reason
    (waiting,) = read(store, "s", SubrunWaiting)
    assert (waiting.session, waiting.call_id, waiting.name) == (session, "c1_0", "cashier")
    assert waiting.reason == "waiting for an answer about pay"
    assert agent.resume_sync("s").stop == "waiting", "there is no answer yet"

    async def answer():
        on_same_store = Agent("sim:", store=store, tools=())
        (question,) = await on_same_store.approvals(session)
        await on_same_store.approve(session, question.id, by="ann")

    asyncio.run(answer())
    assert not paid
    _, later = make_paying_agents(store, paid)
    assert later.resume_sync("s").text == "Good."
    assert paid == [5] and inner_sessions(store) == [session]
    assert len(read(store, "s", e.ToolFinished)) == 1


def test_a_new_prompt_closes_a_call_whose_inner_run_waits():
    store, paid = MemoryStore(), []
    _, agent = make_paying_agents(store, paid)
    agent.run_sync(PAY, "s")
    result = agent.run_sync("!say Never mind.", "s")
    assert result.text == "Never mind." and not paid
    (found,) = [part for message in result.messages for part in message.results]
    assert found.outcome == "unknown"


# ── several at once, deep, and forever ───────────────────────────────────────

FAN_OUT = "\n".join(f'!call shop {{"prompt": "!say Answer {n}."}}' for n in range(4))


def test_calls_of_a_reading_agent_run_at_the_same_time_from_one_budget():
    at_once, most = 0, 0

    async def meet(run: RunContext) -> str:
        """Meet the others."""
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        while most < 4:
            await asyncio.sleep(0)
        return "met"

    inner = Agent("sim:", name="shop", tools=[meet])
    agent = Agent("sim:", tools=[inner.as_tool(effect="read")], budget=Budget(usd=1))
    prompt = FAN_OUT.replace("!say", "!call meet\\n!then\\n!say") + "\n!then\n!say Good."
    result = agent.run_sync(prompt)
    assert result.text == "Good." and most == 4
    assert len({each.session for each in result.subruns}) == 4
    assert result.cost == pytest.approx(result.own_cost + sum(float(each.usd) for each in result.subruns))  # type: ignore[arg-type, misc]


def test_a_pool_is_shared_by_outer_and_inner_runs_without_counting_twice():
    pool = SharedBudget(usd=1)
    inner = Agent("sim:", name="shop", pool=pool)
    agent = Agent("sim:", tools=[inner.as_tool(effect="read")], pool=pool)
    result = agent.run_sync(FAN_OUT + "\n!then\n!say Good.")
    assert float(pool.spent.usd) == pytest.approx(result.cost)


def test_an_agent_that_calls_itself_is_stopped():
    depth = []

    async def again(run: RunContext) -> str:
        """Do it again."""
        depth.append(run.session)
        result = await agent.run("!call again\n!then\n!say Up.")
        return result.text

    agent = Agent("sim:", tools=[again])
    result = agent.run_sync("!call again\n!then\n!say Up.", budget=Budget(steps=100))
    assert result.text == "Up." and len(depth) == NESTED_RUNS_MAX
    assert len(result.subruns) == NESTED_RUNS_MAX - 1


def test_the_outer_deadline_ends_the_inner_run():
    clock = FakeClock()

    async def wait() -> str:
        """Wait."""
        await clock.sleep(3_600)
        return "late"

    inner = Agent("sim:", name="shop", tools=[wait], clock=clock)
    agent = Agent(
        "sim:",
        tools=[inner.as_tool()],
        clock=clock,
        budget=Budget(seconds=60),
        store=(store := MemoryStore()),
    )
    result = agent.run_sync(SHOP.replace("look", "wait"), "s")
    assert result.stop == "seconds"
    (session,) = inner_sessions(store)
    assert read(store, session, e.RunEnded)


# ── the answer of an inner agent ──


@dataclass
class Approve:
    reason: str


@dataclass
class Reject:
    reason: str


def decide(reason: str) -> Approve | Reject:
    return Reject(reason)


def find(reason: str) -> int:
    return 7


ANSWERS = {
    "equal fields": ([Approve, Reject], '{"value": {"type": "Reject", "reason": "no"}}',
                     {"type": "Reject", "reason": "no"}),
    "in a list": (list[Approve | Reject], '{"value": [{"type": "Reject", "reason": "no"}]}',
                  [{"type": "Reject", "reason": "no"}]),
    "not objects": ([date, str], '{"value": {"type": "str", "value": "2026-01-02"}}',
                    {"type": "str", "value": "2026-01-02"}),
    "no union": (Approve, '{"reason": "yes"}', {"reason": "yes"}),
    "function": (decide, call_reply(("decide", {"reason": "no"})), {"type": "Reject", "reason": "no"}),
    "one of two functions": ([decide, find], call_reply(("find", {"reason": "no"})), 7),
    "text": (None, "Hello.", "Hello."),
}  # fmt: skip


@pytest.mark.parametrize("row", ANSWERS)
def test_the_outer_model_sees_of_which_type_the_answer_is(row):
    output, answer, expected = ANSWERS[row]
    inner = Agent(scripted(answer), name="inner", output=output)  # type: ignore[arg-type]
    outer = Agent(scripted(call_reply(("inner", {"prompt": "?"})), "done"), tools=[inner.as_tool()])
    result = outer.run_sync("go").raise_for_stop()
    (found,) = [each for message in result.messages for each in message.results]
    assert (found.text if isinstance(expected, str) else json.loads(found.text)) == expected


# ── given wrongly ────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("give", "problem"),
    [
        (lambda: Agent("sim:").as_tool(), "the agent has no name"),
        (lambda: Agent("sim:").as_tool("with space"), "with space"),
        (lambda: Agent("sim:").as_tool("a", on_unknown="report"), "unknown option 'on_unknown'"),  # type: ignore[call-arg]
        (lambda: Agent("sim:").as_tool("a", effect="maybe"), "effect='maybe' is invalid"),  # type: ignore[arg-type]
    ],
)
def test_what_cannot_be_a_tool_is_refused_at_once(give, problem):
    with pytest.raises(BadTool, match=problem):
        give()


def test_a_budget_of_another_type_is_refused():
    with pytest.raises(MisuseError, match="`budget` must be a Budget"):
        Agent("sim:").as_tool("a", budget=5)  # type: ignore[arg-type]
