"""A recorded run comes out again from its log alone; a changed agent is compared with it, request by request."""

import asyncio
import random
import sys

import pytest
from msgspec.structs import replace

from bridle import Agent, Budget, Memory, MisuseError, PermissionRule, Policy, per_turn, tool
from bridle.core.lineage.replay import INPUT_EVENTS, LogReplay
from bridle.errors import SessionNotFound
from bridle.run.replay.changed_settings import AgentSettingsNow
from bridle.run.replay.log_wire import LogWire
from bridle.run.replay.replay_session import describe_difference, make_wire
from bridle.sessions import fork_at_difference, import_history, replay, replay_sync
from bridle.stores.memory import MemoryStore
from bridle.testing import FakeClock, scripted
from bridle.testing.scripted_model import call_reply
from bridle.values import events as e
from bridle.values.errors import Failure
from bridle.values.record import GENESIS, seal_record
from tests.suite.wire_models import MODELS

PROMPT = "You are a clerk of a small shop. Be brief and kind to every customer."
SCRIPT = '!call pay {"usd": 5}\n!call look {"at": "door"}\n!then\n!call pay {"usd": 7}\n!then\n!say done'
HAPPENED = []
IS_LISTENING = []


def listen(event, given):
    if IS_LISTENING and (event.startswith("socket.") or event in ("bridle.asked", "bridle.recorded")):
        HAPPENED.append(event)


sys.addaudithook(listen)


class Shop:
    """Tools that remember how often they ran."""

    def __init__(self):
        self.ran = []

    def tools(self, description="Pay."):
        @tool(effect="write", description=description)
        async def pay(usd: int) -> str:
            self.ran.append(f"pay {usd}")
            return f"paid {usd}"

        @tool(effect="read")
        async def look(at: str) -> str:
            """Look."""
            self.ran.append(f"look {at}")
            return f"{at} is closed"

        return [pay, look]


def make_agent(shop, store, model=MODELS[0], instructions=PROMPT, **options):
    given = {"tools": shop.tools(), **options}
    return Agent(model, instructions=instructions, store=store, clock=FakeClock(), **given)


async def record_session(model=MODELS[0], *, stream=False, **options):
    shop, store = Shop(), MemoryStore()
    agent = make_agent(shop, store, model, **options)
    if stream:
        async for _ in agent.stream(SCRIPT, session="s"):
            pass
    else:
        await agent.run(SCRIPT, session="s")
    return shop, store, agent


def reseal(events):
    """A log of these events, with a chain of its own."""
    records, head = [], GENESIS
    for number, (at, event) in enumerate(events, 1):
        records.append(seal_record(number, at, event, head))
        head = records[-1].hash
    return records


def find_difference(records):
    replayed = LogReplay(LogWire())
    found = next((found for each in records if (found := replayed.apply_record(each))), None)
    return found or replayed.damage


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("model", MODELS)
def test_a_run_on_every_wire_replays_to_the_same_bytes(model, stream):
    _, store, _ = asyncio.run(record_session(model, stream=stream))
    report = replay_sync("s", store=store)
    assert report.is_equal
    assert report.is_identical
    assert (report.model_calls, report.tool_runs, report.end) == (3, 3, "done")
    assert report.unchecked == ()
    assert report.head == asyncio.run(store.read("s"))[-1].hash


def test_nothing_is_sent_run_or_written():
    async def never(*_):
        raise AssertionError("a replay calls no function of the user")

    class Guard:
        name = "guard"
        before_tool = after_model = staticmethod(never)

    class Watching:
        name = "guard"

        async def before_tool(self, run, call):
            return None

        async def after_model(self, run, reply):
            return None

    def instruct() -> str:
        return "Today is a holiday."

    def check(answer: str) -> str:
        return answer

    async def main():
        shop, store, _ = await record_session(
            hooks=[Watching()], validate=check, memory=Memory(), retrieve=find_pages, facts={"time": "noon"}
        )
        before, ran = await store.read("s"), list(shop.ran)
        changed = make_agent(
            shop,
            store,
            hooks=[Guard()],
            validate=check,
            memory=Memory(),
            retrieve=never,
            facts={"time": "noon"},
        )
        IS_LISTENING.append(True)
        try:
            report = await replay("s", store=store)
            compared = await replay("s", store=store, agent=changed)
        finally:
            IS_LISTENING.clear()
        assert report.is_identical
        assert compared.is_equal, list(describe_difference(compared))
        assert HAPPENED == []
        assert shop.ran == ran
        assert await store.read("s") == before

    async def find_pages(query):
        return ["a page"]

    asyncio.run(main())
    assert instruct()


def test_a_run_with_retries_fallback_steering_and_a_cancel_replays():
    async def main():
        store, shop = MemoryStore(), Shop()
        busy = Failure(kind="overloaded", message="busy", status=529, retry_after_seconds=3.0)
        broken = Failure(kind="unauthorized", message="no", status=401)
        first = scripted(busy, call_reply(("look", {"at": "a"})), broken, model=MODELS[0])
        chain = [first, scripted("x", "here", model=MODELS[1])]
        await Agent(chain, tools=shop.tools(), store=store, clock=FakeClock()).run("hello", session="s")
        agent = make_agent(shop, store)
        handle = agent.stream('!call look {"at": "door"}\n!then\n!say well', session="s").start()
        await handle.steer("and hurry")
        await handle.result()
        task = asyncio.create_task(agent.run(SCRIPT, session="s"))
        for _ in range(40):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await agent.run("!say again", session="s", budget=Budget(steps=1))
        events = {type(record.event) for record in await store.read("s")}
        assert {e.ModelFailed, e.ModelSwitched, e.Steered, e.RunEnded} <= events
        report = await replay("s", store=store)
        assert report.is_identical, report

    asyncio.run(main())


def test_a_sub_run_is_replayed_with_its_session():
    async def main():
        store, shop = MemoryStore(), Shop()
        inner = Agent(
            scripted(call_reply(("look", {"at": "shelf"})), "It is full."), tools=shop.tools(), name="helper"
        )
        outer = Agent(
            scripted(call_reply(("helper", {"prompt": "look"})), "All good."),
            tools=[inner.as_tool(description="Helps.")],
            store=store,
        )
        await outer.run("hello", session="s")
        report = await replay("s", store=store)
        assert report.is_identical
        [subrun] = report.subruns
        assert subrun.is_identical
        assert subrun.tool_runs == 1

    asyncio.run(main())


def test_a_hand_over_and_an_imported_history_replay():
    async def main():
        store = MemoryStore()
        clerk = Agent(
            MODELS[1], name="clerk", instructions="You pay.", tools=Shop().tools(), clock=FakeClock()
        )
        desk = Agent(
            MODELS[0],
            name="desk",
            instructions="You greet.",
            handover=[clerk],
            store=store,
            clock=FakeClock(),
        )
        given = import_history("openai-chat", [{"role": "user", "content": "Hi."}])
        await desk.run("!call transfer_to_clerk {}\n!then\n!say done", session="s", history=given)
        assert any(r.event.handed_over_to for r in await store.read("s") if isinstance(r.event, e.Configured))
        assert (await replay("s", store=store)).is_identical
        assert (await replay("s", store=store, agent=desk)).is_equal

    asyncio.run(main())


def test_every_removed_or_changed_decision_is_found():
    """The control: a log that core would not have written does not replay."""

    async def main():
        _, store, _ = await record_session(budget=Budget(steps=2))
        return await store.read("s")

    records = asyncio.run(main())
    events = [(record.at, record.event) for record in records]
    assert find_difference(reseal(events)) is None
    removed = 0
    for place, (_, event) in enumerate(events[:-1]):
        if isinstance(event, INPUT_EVENTS):
            continue
        found = find_difference(reseal([*events[:place], *events[place + 1 :]]))
        assert found is not None, f"{event} was not missed"
        removed += 1
    assert removed >= 8
    for kind, changes in (
        (e.ModelAsked, {"digest": "0" * 32}),
        (e.ModelAsked, {"max_tokens": 1}),
        (e.ModelReplied, {"usd": None}),
        (e.ToolStarted, {"rule": "another"}),
        (e.ToolStarted, {"arguments": "{}"}),
        (e.ToolFinished, {"name": "another"}),
        (e.RunEnded, {"reason": "another"}),
    ):
        place = next(at for at, (_, event) in enumerate(events) if isinstance(event, kind))
        changed = [*events]
        changed[place] = (events[place][0], replace(events[place][1], **changes))
        found = find_difference(reseal(changed))
        assert found is not None, changes
        assert found.seq == place + 1
        assert any(line.startswith(next(iter(changes))) for line in found.differences), found


def test_a_changed_word_of_the_prompt_is_named():
    """The control of `--diff`: any one word of the prompt, replaced by another."""

    async def main():
        shop, store, agent = await record_session()
        assert (await replay("s", store=store, agent=agent)).is_equal
        words = PROMPT.split()
        for place, word in enumerate(words):
            other = " ".join((*words[:place], "changed", *words[place + 1 :]))
            report = await replay("s", store=store, agent=make_agent(shop, store, instructions=other))
            found = report.divergence
            assert (found.seq, found.is_request, found.request.layer) == (3, True, "instructions")
            assert f"{word!r} became 'changed'" in found.request.changes[0]
            assert 0 < found.request.first_byte < found.request.body_bytes
            assert any(line.startswith("+") and "changed" in line for line in found.request.diff)

    asyncio.run(main())


@pytest.mark.parametrize(
    ("options", "layer", "change"),
    [
        ({"tools": Shop().tools("Pay somebody.")}, "tools", "pay.description"),
        ({"tools": Shop().tools()[:1]}, "tools", "look is gone"),
        ({"model": MODELS[1]}, "model", "became sim:gpt-6.1-sol"),
        ({"max_tokens": 77}, "options", "max_tokens"),
        ({"output": dict[str, int]}, "tools", "is new"),
    ],
)
def test_the_layer_of_a_difference_is_named(options, layer, change):
    shop, store, _ = asyncio.run(record_session())
    report = replay_sync("s", store=store, agent=make_agent(shop, store, **options))
    assert report.divergence.request.layer == layer
    assert change in " ".join(report.divergence.request.changes)


def test_a_changed_decision_is_found_where_it_is_taken_and_continued_from_there():
    async def main():
        shop, store, _ = await record_session()
        before = await store.read("s")
        rules = Policy(rules=(PermissionRule(decision="deny", tools=("pay",), arguments={"usd": ">= 7"}),))
        changed = make_agent(shop, store, policy=rules)
        report = await replay("s", store=store, agent=changed)
        found = report.divergence
        assert (found.event, found.is_request) == ("tool_started", False)
        assert "excuse:c2_0" in found.effects
        fork = await fork_at_difference(report, "what-if", store=store)
        assert shop.ran == ["pay 5", "look door", "pay 7"]
        result = await changed.resume(fork.session)
        assert result.text == "done"
        assert shop.ran == [
            "pay 5",
            "look door",
            "pay 7",
        ]  # nothing ran again, and the second payment is denied
        assert await store.read("s") == before
        assert (await replay("what-if", store=store)).is_identical

    asyncio.run(main())


def test_a_what_if_on_another_prompt_goes_on_live():
    async def main():
        shop, store, _ = await record_session()
        changed = make_agent(shop, store, instructions=PROMPT.replace("brief", "terse"))
        report = await replay("s", store=store, agent=changed)
        fork = await fork_at_difference(report, store=store)
        assert fork.at == report.divergence.seq - 1
        assert (await changed.resume(fork.session)).text == "done"
        assert (await replay(fork.session, store=store)).is_identical
        equal = await replay(fork.session, store=store, agent=changed)
        assert equal.divergence is None or equal.divergence.seq > fork.at
        with pytest.raises(MisuseError, match="nothing to continue with"):
            await fork_at_difference(await replay("s", store=store), store=store)

    asyncio.run(main())


def test_changed_requests_can_be_accepted():
    async def main():
        shop, store, _ = await record_session()
        changed = make_agent(shop, store, instructions=PROMPT.replace("brief", "terse"))
        now = AgentSettingsNow(changed)
        replayed = LogReplay(make_wire(now), now, accepts_requests=True)
        for record in await store.read("s"):
            assert replayed.apply_record(record) is None
        await store.append("t", 0, replayed.produced)
        assert (await replay("t", store=store)).is_identical
        assert (await replay("t", store=store, agent=changed)).is_equal

    asyncio.run(main())


def test_a_replay_stops_at_a_record_or_message():
    _, store, _ = asyncio.run(record_session())
    length = replay_sync("s", store=store).length
    assert replay_sync("s", store=store, until=5).records == 5
    assert replay_sync("s", store=store, until="m2").records < length
    with pytest.raises(MisuseError):
        replay_sync("s", store=store, until="m99")
    with pytest.raises(SessionNotFound):
        replay_sync("nothing", store=store)
    with pytest.raises(MisuseError, match="store"):
        replay_sync("s")


def test_an_unknown_event_and_its_repair_replay():
    async def main():
        store, shop = MemoryStore(), Shop()
        agent = make_agent(shop, store)
        await agent.run("!say one", session="s")
        events = [(record.at, record.event) for record in await store.read("s")]
        other = MemoryStore()
        records = reseal(events)
        unknown = seal_record(len(records) + 1, records[-1].at, e.Steered(message="x"), records[-1].hash)
        await other.append("s", 0, [*records, unknown])  # nothing can be steered after the end
        await make_agent(shop, other).run("!say two", session="s")
        assert any(isinstance(record.event, e.LogRepaired) for record in await other.read("s"))
        report = await replay("s", store=other)
        assert report.is_equal, report

    asyncio.run(main())


def test_a_random_prompt_and_turns_with_functions_replay():
    draws = random.Random(7)

    def weather() -> str:
        return f"It is {draws.random():.3f} degrees."

    def mood() -> str:
        return draws.choice(["Be merry.", "Be grave."])

    async def main():
        store = MemoryStore()
        agent = Agent(MODELS[0], instructions=["Be kind.", mood, per_turn(weather)], store=store)
        for number in range(3):
            await agent.run(f"!say {number}", session="s")
        assert (await replay("s", store=store)).is_identical
        assert (await replay("s", store=store, agent=agent)).is_equal
        other = Agent(MODELS[0], instructions=["Be kind.", per_turn(weather)], store=store)
        found = (await replay("s", store=store, agent=other)).divergence
        assert found is not None

    asyncio.run(main())
