"""`RunContext`: given to tools with its type, never stored, checked before anything is recorded."""

import asyncio
import threading
from dataclasses import dataclass
from typing import Protocol

import msgspec
import pytest

from bridle import Agent, Budget, MisuseError, RunContext, per_turn, tool
from bridle.errors import SessionNotFound
from bridle.events import Progress
from bridle.stores.memory import MemoryStore
from bridle.testing import scripted
from bridle.testing.scripted_model import call_reply
from bridle.tools import CommandTool, RawTool, TypedTool


@dataclass
class Clinic:
    name: str
    seen: list


def test_sync_and_async_tools_get_the_context_and_the_run():
    @tool
    def in_thread(ctx: RunContext[Clinic], patient: str) -> str:
        """Read."""
        ctx.context.seen.append((ctx, threading.current_thread() is threading.main_thread()))
        return patient

    @tool(effect="write")
    async def on_loop(patient: str, ctx: RunContext[Clinic]) -> str:
        """Read."""
        ctx.context.seen.append((ctx, True))
        return patient

    clinic = Clinic("North", [])
    model = scripted(
        call_reply(("in_thread", {"patient": "a"})), call_reply(("on_loop", {"patient": "b"})), "done"
    )
    agent = Agent(model, tools=[in_thread, on_loop], budget=Budget(steps=5, usd=1))
    result = agent.run_sync("?", "s", context=clinic, tenant="acme", caller="ann")
    assert result.stop == "done"
    (first, in_main), (second, _) = clinic.seen
    assert not in_main
    assert first.context is clinic
    assert (first.session, first.tenant, first.caller, first.step) == ("s", "acme", "ann", 1)
    assert (first.name, first.attempt, first.cancelled, second.step) == ("in_thread", 1, False, 2)
    assert first.call_id != second.call_id
    assert len({first.idempotency_key, second.idempotency_key, ""}) == 3
    assert all("ctx" not in made.spec.parameters for made in (in_thread, on_loop))


def test_usage_and_what_is_left_of_the_budget():
    seen = []

    @tool(effect="write")
    async def look(ctx: RunContext) -> str:
        """Look."""
        seen.append((ctx.usage, ctx.budget_left))
        return "x"

    agent = Agent(
        scripted(call_reply(("look", {})), "done"), tools=[look], budget=Budget(steps=5, seconds=60)
    )
    result = agent.run_sync("?")
    usage, left = seen[0]
    assert 0 < usage.total < result.usage.total
    assert (left.steps, left.tokens, left.usd) == (4, None, None)
    assert 0 < left.seconds <= 60


def test_the_step_of_a_call_that_starts_early_is_that_of_its_reply():
    seen = []

    @tool(effect="read")
    async def look(ctx: RunContext) -> str:
        """Look."""
        seen.append(ctx.step)
        return "x"

    async def main(deltas):
        model = scripted(call_reply(("look", {})), call_reply(("look", {})), "done")
        stream = Agent(model, tools=[look]).stream("?", deltas=deltas)
        return [event async for event in stream]

    for deltas in (True, False):
        asyncio.run(main(deltas))
    assert seen == [1, 2, 1, 2]


@pytest.mark.parametrize("in_thread", [True, False])
def test_progress_is_a_live_item_and_not_in_the_log(in_thread):
    def report(ctx: RunContext, city: str) -> str:
        """Report."""
        ctx.progress("half", 0.5)
        ctx.progress("unknown share")
        return city

    async def report_later(ctx: RunContext, city: str) -> str:
        """Report."""
        return report(ctx, city)

    made = tool(name="report")(report if in_thread else report_later)
    store = MemoryStore()

    async def main():
        model = scripted(call_reply(("report", {"city": "x"})), "done")
        return [event async for event in Agent(model, tools=[made], store=store).stream("?", "s")]

    events = asyncio.run(main())
    shown = [event for event in events if isinstance(event, Progress)]
    call_id = next(event for event in events if type(event).__name__ == "ToolStarted").call_id
    assert shown == [
        Progress(name="report", message="half", fraction=0.5, call_id=call_id),
        Progress(name="report", message="unknown share", call_id=call_id),
    ]
    assert [event.text for event in shown] == ["", ""]
    kinds = [type(event).__name__ for event in events]
    assert kinds.index("ToolStarted") < kinds.index("Progress") < kinds.index("ToolFinished")
    log = asyncio.run(store.read("s"))
    assert not any(b"half" in record.data for record in log)


@pytest.mark.parametrize("fraction", [-0.1, 1.5, float("nan")])
def test_an_impossible_fraction_is_refused(fraction):
    with pytest.raises(ValueError, match="between 0 and 1"):
        RunContext(context=None).progress("x", fraction)


def test_a_thread_learns_that_it_was_abandoned():
    entered, learned = threading.Event(), threading.Event()

    @tool(timeout=0.05)
    def wait(ctx: RunContext) -> str:
        """Wait."""
        entered.set()
        while not ctx.cancelled:
            pass
        ctx.progress("too late")
        learned.set()
        return "late"

    result = Agent(scripted(call_reply(("wait", {})), "done"), tools=[wait]).run_sync("?")
    assert result.stop == "done"
    assert entered.is_set()
    assert learned.wait(30)


def test_a_context_by_hand_is_enough_for_a_test():
    ctx = RunContext(context=Clinic("North", []), tenant="acme")
    ctx.progress("nothing happens", 1)
    assert (ctx.tenant, ctx.usage.total, ctx.budget_left.steps, ctx.cancelled) == ("acme", 0, None, False)


@tool
def read_record(ctx: RunContext[Clinic], patient: str) -> str:
    """Read."""
    return f"{ctx.context.name}: {patient}"


def expect_misuse(text):
    return pytest.raises(MisuseError, match=text)


def test_a_missing_or_wrong_context_is_refused_before_anything_is_recorded():
    store = MemoryStore()
    agent = Agent(scripted("never"), tools=[read_record], store=store)
    with expect_misuse(
        r"tool `read_record` needs a context of type Clinic, .* pass it: agent\.run\(…, context=…\)"
    ):
        agent.run_sync("?", "s")
    with expect_misuse("tool `read_record` needs a context of type Clinic, not dict"):
        agent.run_sync("?", "s", context={"name": "North"})
    assert asyncio.run(store.read("s")) == ()


def test_a_stream_without_its_context_is_refused_at_the_call():
    """A web server has not sent its status yet, so it can still report the mistake."""
    agent = Agent(scripted("never"), tools=[read_record])
    with expect_misuse("tool `read_record` needs a context of type Clinic, which is never stored"):
        agent.stream("?")
    with expect_misuse("tool `read_record` needs a context of type Clinic, not int"):
        agent.stream("?", context=5)


def test_a_stream_without_the_context_of_an_agent_that_may_take_over_is_refused_at_the_call():
    @tool
    def book(ctx: RunContext[str]) -> str:
        """Book."""
        return ctx.context

    desk = Agent(
        "sim:", handover=[Agent("sim:", name="booking", handover=[Agent("sim:", tools=[book], name="seats")])]
    )
    with pytest.raises(MisuseError, match=r"tool `book` needs a context of type str"):
        desk.stream("?")


def test_a_stream_asks_for_the_context_of_instructions_only_if_they_are_due():
    def name_clinic(ctx: RunContext[Clinic]) -> str:
        return ctx.context.name

    async def main():
        agent = Agent(scripted("one", "two"), instructions=name_clinic)
        await agent.run("?", "s", context=Clinic("North", []))
        final = [item async for item in agent.stream("?", "s")][-1]
        assert final.result.text == "two"
        with expect_misuse("instruction `name_clinic` needs a context of type Clinic"):
            await anext(aiter(agent.stream("?", "new")))
        with expect_misuse("instruction `name_clinic` needs a context of type Clinic"):
            Agent(scripted("never"), instructions=per_turn(name_clinic)).stream("?")

    asyncio.run(main())


def test_the_context_is_given_again_on_resume():
    async def main():
        store = MemoryStore()
        call = call_reply(("read_record", {"patient": "p7"}))
        first = Agent(scripted(call), tools=[read_record], store=store, budget=Budget(steps=1))
        context = Clinic("North", [])
        assert (await first.run("?", "s", context=context)).stop == "steps"
        second = Agent(scripted(call, "fine"), tools=[read_record], store=store)
        with expect_misuse(r"tool `read_record` needs a context of type Clinic, .* agent\.resume\("):
            await second.resume("s")
        result = await second.resume("s", budget=Budget(steps=3), context=context)
        assert (result.stop, result.text) == ("done", "fine")
        # A finished session is returned without running anything, so it needs nothing.
        assert (await second.resume("s")).text == "fine"

    asyncio.run(main())


def test_a_compensation_is_given_the_context():
    undone = []

    def unbook(ctx: RunContext[Clinic], room: int) -> None:
        undone.append((ctx.context.name, room, ctx.idempotency_key))

    @tool(effect="write", compensate=unbook)
    def book(room: int) -> str:
        """Book."""
        return "booked"

    async def main():
        model = scripted(call_reply(("book", {"room": 4})), "done")
        agent = Agent(model, tools=[book])
        await agent.run("?", "s")
        with expect_misuse(r"tool `unbook` needs a context of type Clinic, .* agent\.compensate\("):
            await agent.compensate("s")
        await agent.compensate("s", context=Clinic("North", []))

    asyncio.run(main())
    assert [(name, room) for name, room, _ in undone] == [("North", 4)]
    assert undone[0][2]


class Named(Protocol):
    name: str


@pytest.mark.parametrize(
    ("annotation", "context", "refused"),
    [
        (RunContext, None, False),
        (RunContext[None], None, False),
        (RunContext[object], None, False),
        (RunContext[Clinic | None], None, False),
        (RunContext[Clinic] | None, None, True),
        (RunContext[Named], None, True),
        (RunContext[Named], Clinic("x", []), False),
        (RunContext[dict[str, int]], {}, False),
        (RunContext[dict[str, int]], [], True),
        (RunContext[int | str], 3, False),
        (RunContext[int | str], 3.5, True),
    ],
)
def test_the_annotation_says_what_is_needed(annotation, context, refused):
    def take(ctx: annotation) -> str:
        """Take."""
        return "taken"

    agent = Agent(scripted(call_reply(("take", {})), "done"), tools=[take])
    if refused:
        with expect_misuse("tool `take` needs a context of type"):
            agent.run_sync("?", context=context)
    else:
        assert agent.run_sync("?", context=context).messages[2].parts[0].text == "taken"


SCHEMA = '{"type": "object", "properties": {}}'


def test_every_kind_of_tool_names_its_need():
    @dataclass
    class Booking:
        room: int

    def book(booking: Booking, ctx: "RunContext[Clinic]") -> str:
        return ctx.context.name

    def find(ctx: RunContext[Clinic]) -> str | None:
        return None

    @tool(effect="write", probe=find)
    def pay(amount: int) -> str:
        """Pay."""
        return ""

    printed = CommandTool("print", "", ["lp"], effect="write", on_unknown="probe", probe=find)
    for made in (TypedTool(Booking, book), RawTool("raw", "", SCHEMA, book), pay, printed):
        assert made.context_type is Clinic
    assert RawTool("raw", "", SCHEMA, print).context_type is None


def test_a_context_type_that_contradicts_a_tool_is_refused_when_the_agent_is_made():
    with expect_misuse("tool `read_record` needs a context of type Clinic, but context_type is dict"):
        Agent("sim:", tools=[read_record], context_type=dict)

    class Hospital(Clinic):
        pass

    Agent("sim:", tools=[read_record], context_type=Hospital)


def test_an_agent_can_be_subscripted_at_run_time():
    assert Agent[Clinic] == Agent[Clinic, str]

    class Bot(Agent[Clinic]):
        pass

    assert issubclass(Bot, Agent)


def test_an_unknown_session_is_reported_before_its_context():
    agent = Agent("sim:", tools=[read_record])
    with pytest.raises(SessionNotFound):
        asyncio.run(agent.resume("nowhere"))


def test_a_context_cannot_be_written_to_the_log():
    with pytest.raises(TypeError):
        msgspec.json.encode(RunContext(context=object()))
