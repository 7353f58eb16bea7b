"""Hand-over to another agent in the same session: recorded, resumable, with what the next one sees chosen."""

import asyncio
from dataclasses import dataclass

import pytest

from bridle import Agent, Handover, MisuseError, RunContext, StoreError, tool
from bridle.core.recovery.log_repair import fold_log
from bridle.errors import BadTool
from bridle.stores.memory import MemoryStore
from bridle.testing import scripted
from bridle.testing.scripted_model import call_reply
from bridle.values import events as e
from tests.suite.crashes import CrashingStore
from tests.suite.wire_models import MODELS

TRANSFER = "!call transfer_to_booking\n!then\n"
PROMPT = TRANSFER + '!call book {"seat": 4}\n!then\n!say Booked.'


def make_agents(store, booked, model="sim:", sees="all", **options):
    @tool(effect="write", on_unknown="retry")
    def book(seat: int, run: RunContext) -> str:
        """Book a seat."""
        booked.append(run.idempotency_key)
        return f"seat {seat}"

    booking = Agent(model, name="booking", tools=[book], instructions="You book seats.")
    return Agent(
        model,
        handover=[Handover(agent=booking, sees=sees)],
        instructions="You greet.",
        store=store,
        **options,
    )


def read(store, kind=object):
    return [record.event for record in asyncio.run(store.read("s")) if isinstance(record.event, kind)]


@pytest.mark.parametrize("model", MODELS)
def test_the_next_agent_continues_the_run_in_the_same_session(model):
    store, booked = MemoryStore(), []
    result = make_agents(store, booked, model).run_sync(PROMPT, "s")
    assert (result.stop, result.text, len(booked)) == ("done", "Booked.", 1)
    first, second = read(store, e.Configured)
    assert (first.handed_over_to, second.handed_over_to) == ("", "booking")
    assert second.settings.instructions == "You book seats."
    assert [spec.name for spec in second.settings.tools] == ["book"]
    (moved,) = read(store, e.PrefixMoved)
    assert moved.layer, "the changed start of the prompt is explained"
    assert len(read(store, e.Prompted)) == 1 and len(read(store, e.RunEnded)) == 1


def test_models_of_other_families_take_over():
    store = MemoryStore()
    other = Agent(MODELS[0], name="booking")
    first = Agent(MODELS[1], handover=[other], store=store)
    assert first.run_sync(TRANSFER + "!say Here.", "s").text == "Here."
    families = [event.settings.model.endpoint.family for event in read(store, e.Configured)]
    assert families == ["openai_responses", "anthropic"]


@pytest.mark.parametrize("sees", ["prompt", "function"])
@pytest.mark.parametrize("model", MODELS[:3])
def test_the_next_agent_sees_what_was_chosen(model, sees):
    store, seen = MemoryStore(), []

    def summarize(messages):
        seen.append(len(messages))
        return '!call book {"seat": 5}\n!then\n!say As told.'

    agent = make_agents(store, [], model, summarize if sees == "function" else "prompt")
    result = agent.run_sync(PROMPT if sees == "function" else "!say Hello.", "s")
    if sees == "prompt":
        result = agent.run_sync(PROMPT, "s")
    state = fold_log(asyncio.run(store.read("s"))).state
    chosen, *later = state.conversation.view
    assert (chosen.role, chosen.provenance) == ("user", "summary") and later
    (compacted,) = read(store, e.Compacted)
    assert compacted.why == "handed over to booking"
    if sees == "function":
        assert (result.text, seen) == ("As told.", [3])
        assert chosen.text == compacted.summary and PROMPT not in chosen.text
    else:
        assert PROMPT in chosen.text and "Hello" not in chosen.text, "the latest prompt alone"


@pytest.mark.parametrize("model", MODELS)
def test_a_crash_at_any_write_neither_repeats_nor_loses_the_hand_over(model):
    def make(store, booked, seen):
        def summarize(messages):
            seen.append(len(messages))
            return '!call book {"seat": 5}\n!then\n!say Booked.'

        return make_agents(store, booked, model, summarize)

    whole = MemoryStore()
    make(whole, [], []).run_sync(PROMPT, "s")
    usual = [type(event) for event in read(whole)]
    death = 1
    while True:
        store, booked, seen = CrashingStore(death), [], []
        try:
            result = make(store, booked, seen).run_sync(PROMPT, "s")
        except StoreError:
            result = None
        if store.left:
            break
        store.left = None
        if result is None:
            again = make(store, booked, seen)
            result = again.resume_sync("s") if read(store, e.Prompted) else again.run_sync(PROMPT, "s")
        assert (result.stop, result.text) == ("done", "Booked."), death
        assert len(seen) == 1 and len(set(booked)) == 1, death
        events = [type(event) for event in read(store)]
        for kind in set(usual) - {e.ModelAsked, e.ToolStarted}:
            assert events.count(kind) == usual.count(kind), (death, kind)
        assert [event.handed_over_to for event in read(store, e.Configured)] == ["", "booking"]
        death += 1
    assert death > 12


def test_a_chain_of_hand_overs_is_resumed_by_the_first_agent():
    store, paid = MemoryStore(), []

    def make():
        @tool(effect="write", approve=True)
        def pay(amount: int) -> str:
            """Pay."""
            paid.append(amount)
            return "paid"

        cashier = Agent("sim:", name="cashier", tools=[pay])
        booking = Agent("sim:", name="booking", handover=[cashier])
        return Agent("sim:", handover=[booking], store=store)

    prompt = TRANSFER + '!call transfer_to_cashier\n!then\n!call pay {"amount": 5}\n!then\n!say Paid.'
    assert make().run_sync(prompt, "s").stop == "waiting"

    async def answer():
        agent = make()
        (question,) = await agent.approvals("s")
        await agent.approve("s", question.id, arguments={"amount": 6}, by="ann")

    asyncio.run(answer())
    assert make().resume_sync("s").text == "Paid." and paid == [6]
    stranger = Agent("sim:", store=store)
    assert stranger.run_sync("!say Me again.", "s").text == "Me again.", (
        "a prompt goes to the agent it is given to"
    )


def test_a_session_of_an_unknown_agent_is_not_resumed():
    store = CrashingStore(8)
    with pytest.raises(StoreError):
        make_agents(store, []).run_sync(PROMPT, "s")
    store.left = None
    with pytest.raises(MisuseError, match="handed over to the agent 'booking', which this agent does not"):
        Agent("sim:", store=store).resume_sync("s")


@dataclass
class Shop:
    name: str


def test_a_context_that_a_later_agent_needs_is_asked_for_at_the_start():
    def look(run: RunContext[Shop]) -> str:
        """Look."""
        return run.context.name

    booking = Agent("sim:", name="booking", tools=[look])
    agent = Agent("sim:", handover=[booking])
    with pytest.raises(MisuseError, match="tool `look` needs a context of type Shop"):
        agent.run_sync(TRANSFER + "!call look")
    assert "corner" in agent.run_sync(TRANSFER + "!call look", context=Shop("corner")).text


def test_the_stream_goes_on_after_the_hand_over():
    agent = make_agents(MemoryStore(), [])

    async def run():
        return [item async for item in agent.stream(PROMPT, "s")]

    items = asyncio.run(run())
    assert [item for item in items if isinstance(item, e.Configured) and item.handed_over_to]
    assert "".join(item.text for item in items) == "Booked." and items[-1].result.done


@pytest.mark.parametrize(
    ("handover", "error", "problem"),
    [
        (lambda: [Agent("sim:")], MisuseError, "has no name"),
        (lambda: [Agent("sim:", name="a", output=Shop)], MisuseError, "another output type"),
        (lambda: [5], MisuseError, "takes agents, names of agents or Handover"),
        (lambda: [""], MisuseError, "has no name"),
        (lambda: [Handover(agent=Agent("sim:", name="a"), sees="some")], MisuseError, "sees='some'"),  # type: ignore[arg-type]
        (lambda: [Agent("sim:", name="a"), Agent("sim:", name="a")], BadTool, "two tools have this name"),
    ],
)
def test_what_cannot_take_over_is_refused_at_once(handover, error, problem):
    with pytest.raises(error, match=problem):
        Agent("sim:", handover=handover())


@pytest.mark.parametrize("wrong", ["", 5, RuntimeError("no view")])
def test_a_function_that_gives_no_text_ends_the_run_and_is_called_again_on_resume(wrong):
    given = [wrong, "!say Hello."]

    def choose(_):
        found = given.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    agent = make_agents(MemoryStore(), [], sees=choose)
    ended = agent.run_sync(PROMPT, "s")
    assert ended.stop == "failed" and "the function of Handover(sees=…)" in ended.reason
    assert ("no view" if isinstance(wrong, Exception) else "must return text") in ended.reason
    assert agent.resume_sync("s").text == "Hello." and not given


def test_functions_of_two_agents_with_one_name_each_write_their_own_instructions():
    def make_function(text):
        def describe():
            called.append(text)
            return text

        return describe

    called, store = [], MemoryStore()
    second = scripted("unused", "Hello.")
    booking = Agent(second, name="booking", instructions=make_function("You book seats."))
    first = scripted(call_reply(("transfer_to_booking", {})))
    desk = Agent(first, handover=[booking], instructions=make_function("You greet."), store=store)
    assert asyncio.run(desk.run("go", "s")).text == "Hello."
    assert [request.system[-1].text for request in first.script.requests] == ["You greet."]
    assert [request.system[-1].text for request in second.script.requests] == ["You book seats."]
    assert [event.owner for event in read(store, e.InstructionWritten)] == ["", "booking"]
    first.script._replies.append(second.script._replies[1])
    asyncio.run(desk.run("again", "s"))
    assert called == ["You greet.", "You book seats."]
