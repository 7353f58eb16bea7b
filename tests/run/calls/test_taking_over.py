"""The agent that takes over: its instructions per prompt, the budgets that count it, and what stays hidden from it."""

import asyncio
import json
from contextlib import suppress
from decimal import Decimal

import pytest

from bridle import (
    Agent,
    Compaction,
    Handover,
    MisuseError,
    RunContext,
    SharedBudget,
    StoredBudget,
    StoreError,
    per_turn,
    tool,
)
from bridle.core.recovery.log_repair import fold_log
from bridle.memory import Chunk
from bridle.run.budget.stored import BudgetLog
from bridle.run.model_connection import find_model_by_name
from bridle.stores.memory import MemoryStore
from bridle.testing.simulated_provider import ProviderSim
from bridle.values import events as e
from bridle.values.memory import InstructionWritten
from tests.suite.bills import BilledModel, read_bill
from tests.suite.crashes import CrashingStore
from tests.suite.wire_models import MODELS

THERE = "!call transfer_to_booking\n!then\n"
BACK = "!call transfer_to_desk\n!then\n"


def make_team(store, called, model="sim:", sees="all", back="all", **options):
    """A desk and a booking agent, each with two functions that write instructions for every prompt."""

    def make_functions(agent):
        def write_hours():
            called.append(f"{agent} hours")
            return f"{agent}: open until {16 + len(called)}."

        def write_rules():
            called.append(f"{agent} rules")
            return f"{agent}: be polite."

        return [f"You are {agent}.", per_turn(write_hours), per_turn(write_rules)]

    booking = Agent(
        model,
        name="booking",
        handover=[Handover(agent="desk", sees=back)],
        instructions=make_functions("booking"),
    )
    return Agent(
        model,
        name="desk",
        handover=[Handover(agent=booking, sees=sees)],
        instructions=make_functions("desk"),
        store=store,
        **options,
    )


def read(store, kind=object):
    return [record.event for record in asyncio.run(store.read("s")) if isinstance(record.event, kind)]


def list_view(store):
    return fold_log(asyncio.run(store.read("s"))).state.conversation.view


STEPS = ["!call transfer_to_booking", "!call transfer_to_desk"]
EACH_ONCE = ["desk hours", "desk rules", "booking hours", "booking rules"]


@pytest.mark.parametrize("model", MODELS)
def test_functions_per_prompt_of_every_agent_are_called_once_per_prompt(model):
    store, called = MemoryStore(), []
    script = ProviderSim(*STEPS, "!call transfer_to_booking", "End.", "!call transfer_to_booking", "End.")
    team = make_team(store, called, script.model(model))
    assert team.run_sync("go", "s").text == "End."
    assert called == EACH_ONCE
    added = [message for message in list_view(store) if message.provenance == "harness"]
    lead = "Instructions for the task that you take over:"
    assert [message.text for message in added] == [
        f"{lead}\nbooking: open until 19.", f"{lead}\nbooking: be polite.",
    ]  # fmt: skip
    team.run_sync("again", "s")
    assert called == EACH_ONCE * 2
    script.check()


@pytest.mark.parametrize("back", ["prompt", "function"])
def test_an_agent_that_comes_back_is_shown_its_instructions_again_and_not_called_again(back):
    store, called = MemoryStore(), []
    hidden = (lambda _: "Greet Ann.") if back == "function" else "prompt"
    script = ProviderSim(*STEPS, "End.")
    assert make_team(store, called, script.model(), back=hidden).run_sync("go", "s").text == "End."
    assert called == EACH_ONCE
    texts = "\n".join(message.text for message in list_view(store))
    assert texts.count("desk: open until 17.") == 1 and texts.count("desk: be polite.") == 1
    assert "booking: " not in texts


@pytest.mark.parametrize("sees", ["all", "prompt"])
def test_a_crash_at_any_write_calls_no_function_twice(sees):
    def make(store, called, script):
        return make_team(store, called, script.model(), sees=sees, back=sees)

    whole = MemoryStore()
    make(whole, [], ProviderSim(*STEPS, "End.")).run_sync("go", "s")
    expected, texts = read(whole, InstructionWritten), [message.text for message in list_view(whole)]
    death = 1
    while True:
        store, called, script = CrashingStore(death), [], ProviderSim(*STEPS, "End.")
        with suppress(StoreError):
            make(store, called, script).run_sync("go", "s")
        if store.left:
            break
        store.left = None
        again = make(store, called, script)
        result = again.resume_sync("s") if read(store, e.Prompted) else again.run_sync("go", "s")
        assert result.text == "End.", death
        assert called == EACH_ONCE and read(store, InstructionWritten) == expected, death
        assert [message.text for message in list_view(store)] == texts, death
        death += 1
    assert death > 15


def test_a_function_per_session_is_not_called_again_when_the_run_comes_back():
    called, store = [], MemoryStore()

    def describe():
        called.append("desk")
        return "You greet."

    booking = Agent("sim:", name="booking", handover=["desk"])
    desk = Agent("sim:", name="desk", handover=[booking], instructions=describe, store=store)
    assert desk.run_sync(THERE + BACK + "!say End.", "s").text == "End."
    assert called == ["desk"]
    assert [each.instructions for each in read(store, InstructionWritten)] == ["You greet."]


def test_a_context_that_a_later_function_needs_is_asked_for_at_the_start():
    def write_hours(run: RunContext[int]) -> str:
        return f"!say Open until {run.context}."

    for functions in (write_hours, per_turn(write_hours)):
        store = MemoryStore()
        booking = Agent("sim:", name="booking", instructions=functions)
        desk = Agent("sim:", handover=[booking], store=store)
        with pytest.raises(MisuseError, match="instruction `write_hours` needs a context of type int"):
            desk.run_sync(THERE + "!say End.", "s")
        desk.run_sync(THERE + "!say End.", "s", context=17)
        assert [each.instructions for each in read(store, InstructionWritten)] == ["!say Open until 17."]


# ── budgets ──────────────────────────────────────────────────────────────────


def make_pools(kind):
    if kind == "stored":
        return [StoredBudget(usd=1, name=name) for name in ("of the run", "of booking")]
    return [SharedBudget(usd=1) for _ in range(2)]


def read_spent(pool, store):
    if isinstance(pool, SharedBudget):
        return pool.spent.usd

    return asyncio.run(BudgetLog(store, pool.name).catch_up()).spent.usd


@pytest.mark.parametrize("kind", ["shared", "stored"])
def test_the_pool_of_the_run_counts_every_agent_and_that_of_an_agent_its_own_calls(tmp_path, kind):
    bill, store = tmp_path / "bill", MemoryStore()
    billed = BilledModel(bill)
    of_run, of_booking = make_pools(kind)
    booking = Agent(billed.connect(), name="booking", handover=["desk"], pool=of_booking)
    desk = Agent(billed.connect(), name="desk", handover=[booking], store=store, pool=of_run)
    result = desk.run_sync(THERE + BACK + "!say End.", "s")
    first, second, third = read_bill(bill)
    assert result.cost == pytest.approx(float(first + second + third))
    assert read_spent(of_run, store) == first + second + third
    assert read_spent(of_booking, store) == second


@tool(effect="read")
def look() -> str:
    """Look."""
    return "seen"


def test_a_pool_that_is_used_up_ends_the_run_of_the_next_agent():
    store, pool = MemoryStore(), SharedBudget(steps=2)
    booking = Agent("sim:", name="booking", tools=[look])
    desk = Agent("sim:", name="desk", handover=[booking], store=store, pool=pool)
    result = desk.run_sync(THERE + "!call look\n!then\n!say End.", "s")
    assert (result.stop, result.steps) == ("budget", 2)
    assert [event.handed_over_to for event in read(store, e.Configured)] == ["", "booking"]


def test_a_run_inside_the_next_agents_tool_counts_in_the_pool_of_the_first(tmp_path):
    bill, pool = tmp_path / "bill", SharedBudget(usd=1)
    billed = BilledModel(bill)
    seats = Agent(billed.connect(), name="seats")
    booking = Agent(billed.connect(), name="booking", tools=[seats.as_tool()])
    desk = Agent(billed.connect(), name="desk", handover=[booking], store=MemoryStore(), pool=pool)
    prompt = THERE + '!call seats {"prompt": "!say Four."}\n!then\n!say End.'
    result = desk.run_sync(prompt, "s")
    assert result.text == "End." and len(read_bill(bill)) == 4
    assert pool.spent.usd == sum(read_bill(bill)) == Decimal(str(result.cost))


# ── compaction ───────────────────────────────────────────────────────────────


@tool(effect="read")
def read_chart(page: int) -> str:
    """Read a page."""
    return f"page {page}: " + "all is well. " * 160


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("sees", ["prompt", "function"])
def test_compaction_keeps_the_instructions_and_brings_nothing_back_that_was_hidden(model, sees):
    pages = "".join(f'!call read_chart {{"page": {page}}}\n!then\n' for page in range(12))

    def write_rules():
        return f"Name no patient.\n{pages}!say All is well."

    store, provider = MemoryStore(), ProviderSim()
    booking = Agent(
        provider.model(model),
        name="booking",
        tools=[read_chart],
        instructions=per_turn(write_rules),
        context_tokens=5_000,
        compaction=Compaction(keep=0.1),
    )
    shown = (lambda _: "About patient 7.") if sees == "function" else "prompt"
    desk = Agent(provider.model(model), handover=[Handover(agent=booking, sees=shown)], store=store)  # type: ignore[arg-type]
    desk.run_sync("!say Ann Lee, born in 1970.", "s")
    result = desk.run_sync(f"The chart of Bo Day, please.\n{THERE}", "s")
    assert (result.stop, result.text) == ("done", "All is well."), result.reason
    summaries = [event for event in read(store, e.Compacted) if event.strategies != ("handover",)]
    assert any(event.summarized_until for event in summaries), "old turns were summarized"
    bodies = [exchange.body.decode() for exchange in provider.exchanges]
    after = [body for body in bodies if "Name no patient." in body]
    assert len(after) >= 13 and "Name no patient." in bodies[-1]
    assert not [body for body in after if "Ann Lee" in body]
    assert all(("Bo Day" in body) is (sees == "prompt") for body in after)


# ── context, questions and models of the next agent ──────────────────────────


@pytest.mark.parametrize("model", MODELS)
def test_context_is_retrieved_once_with_the_first_agent_that_can(model):
    def make(name, **options):
        def find(query):
            found.append((name, query.text))
            return [Chunk(text=f"found by {name}")]

        return Agent(provider.model(model), name=name, retrieve=find, **options)

    for first in (False, True):
        store, found, provider = MemoryStore(), [], ProviderSim(*STEPS, "End.")
        booking = make("booking", handover=["desk"])
        plain = Agent(provider.model(model), name="desk", handover=[booking], store=store)
        desk = make("desk", handover=[booking], store=store) if first else plain
        assert desk.run_sync("go", "s").text == "End."
        finder = "desk" if first else "booking"
        assert found == [(finder, "go")]
        sent = [f"found by {finder}" in exchange.body.decode() for exchange in provider.exchanges]
        assert sent == [first, True, True]


@pytest.mark.parametrize("model", MODELS)
def test_a_question_of_an_agent_that_took_over_inside_a_tool_is_answered_in_another_process(model, tmp_path):
    paid = []

    def make():
        @tool(effect="write", approve=True)
        def pay(amount: int) -> str:
            """Pay."""
            paid.append(amount)
            return "paid"

        cashier = Agent(model, name="cashier", tools=[pay])
        booking = Agent(model, name="booking", handover=[cashier])
        return Agent(model, tools=[booking.as_tool()], store=str(tmp_path / "log.db"))

    inner = '!call transfer_to_cashier\n!then\n!call pay {"amount": 5}\n!then\n!say Paid.'
    waiting = make().run_sync(f"!call booking {json.dumps({'prompt': inner})}\n!then\n!say Done.", "s")
    assert waiting.stop == "waiting"

    async def answer():
        agent, session = make(), waiting.subruns[0].session
        (question,) = await agent.approvals(session)
        await agent.approve(session, question.id, arguments={"amount": 6}, by="ann")

    asyncio.run(answer())
    result = make().resume_sync("s")
    assert (result.stop, result.text, paid) == ("done", "Done.", [6]), result.reason
    assert [message.parts[0].text for message in result.messages if message.role == "tool"] == ["Paid."]


@pytest.mark.parametrize("model", MODELS)
def test_a_model_that_fails_after_the_hand_over_is_replaced_by_the_next_of_its_agent(model):
    for other in {*MODELS} - {model}:
        store, broken = MemoryStore(), ProviderSim(faults=["quota"])
        booking = Agent([broken.model(model), other], name="booking", handover=["desk"])
        desk = Agent(model, name="desk", handover=[booking], store=store)
        result = desk.run_sync("!think Hm.\n" + THERE + "!think Ho.\n" + BACK + "!say End.", "s")
        assert (result.stop, result.text) == ("done", "End."), (other, result.reason)
        (switched,) = read(store, e.ModelSwitched)
        assert switched.model.endpoint.family == find_model_by_name(other).endpoint.family
        assert [event.settings.name for event in read(store, e.Configured)] == ["desk", "booking", "desk"]
