"""Steering a run while it works, pausing it, and queueing prompts: nothing is lost, nothing is taken up twice."""

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from msgspec.structs import replace

from bridle import Agent, Budget, Compaction, MisuseError, RunHandle, tool
from bridle.core.compaction.strategies import tail_start
from bridle.core.recovery.log_repair import fold_log
from bridle.errors import Conflict
from bridle.stores.memory import MemoryStore
from bridle.stores.sqlite.store import SqliteStore
from bridle.testing import FakeClock, scripted
from bridle.testing.scripted_model import call_reply
from bridle.values import events as e
from tests.suite.wire_models import SCHEMA_MODELS

LOOK = call_reply(("look", {"at": "shelf"}))


class Desk:
    """A run with one tool, which does something to the run while it works."""

    def __init__(self, act: Callable[[RunHandle], Any] = lambda run: None):
        self.act = act
        self.run: Any = None

    def agent(self, *replies, model=SCHEMA_MODELS[0], store=None, **options):
        @tool
        async def look(at: str) -> str:
            """Look at a place."""
            if (made := self.act(self.run)) is not None:
                await made
            return f"{at}: apples"

        self.model = scripted(*replies, model=model)
        return Agent(self.model, tools=[look], store=store or MemoryStore(), **options)

    async def start(self, agent, prompt="What is there?", session="s", **options):
        self.run = agent.stream(prompt, session, **options).start()
        return await self.run.result()


def events(store, session="s"):
    return [record.event for record in asyncio.run(store.read(session))]


def texts(result):
    return [message.text for message in result.messages if message.provenance == "person"]


@pytest.mark.parametrize("model", SCHEMA_MODELS)
def test_a_message_joins_after_the_results_and_the_prefix_stays(model):
    desk, store = Desk(lambda run: run.steer("Only the red ones.")), MemoryStore()
    agent = desk.agent(LOOK, "Red apples.", model=model, store=store)
    result = asyncio.run(desk.start(agent))
    assert (result.stop, result.text) == ("done", "Red apples.")
    assert [(m.role, m.provenance) for m in result.messages] == [
        ("user", "person"), ("assistant", "model"), ("tool", "tool"), ("user", "person"), ("assistant", "model"),
    ]  # fmt: skip
    sent = desk.model.script.requests[1].messages
    assert sent[: len(desk.model.script.requests[0].messages)] == desk.model.script.requests[0].messages
    assert "Only the red ones." in sent[-1].text
    kinds = [type(event) for event in events(store)]
    assert kinds.index(e.ToolStarted) < kinds.index(e.Steered) < kinds.index(e.ToolFinished)
    assert kinds[kinds.index(e.ToolFinished) + 1] is e.SteeringTaken
    assert e.PrefixMoved not in kinds


class Interjecting(MemoryStore):
    """Steers the run while a record of one kind is being written, when nothing else can come between."""

    def __init__(self, desk, kind):
        super().__init__()
        self.desk, self.kind, self.task = desk, kind, None

    async def append(self, session, after, records, *, epoch=None):
        if isinstance(records[0].event, self.kind) and self.task is None:
            self.task = asyncio.ensure_future(self.desk.run.steer("And the price?"))
            for _ in range(5):
                await asyncio.sleep(0)
        await super().append(session, after, records, epoch=epoch)


@pytest.mark.parametrize("kind", [e.Prompted, e.ModelAsked, e.ModelReplied])
def test_a_message_continues_a_run_that_was_about_to_end(kind):
    desk = Desk()
    store = Interjecting(desk, kind)
    result = asyncio.run(desk.start(desk.agent("Apples.", "Two dollars.", store=store)))
    assert (result.stop, result.text) == ("done", "Two dollars.")
    assert texts(result) == ["What is there?", "And the price?"]
    assert [type(event) for event in events(store)].count(e.RunEnded) == 1


def test_a_message_while_the_end_is_written_is_refused_with_the_next_step():
    desk = Desk()
    store = Interjecting(desk, e.RunEnded)

    async def main():
        result = await desk.start(desk.agent("Apples.", store=store))
        with pytest.raises(
            MisuseError, match=r"the run has ended; send a new prompt with agent.run\(…, session='s'"
        ):
            await store.task  # type: ignore[misc]
        with pytest.raises(MisuseError, match="the run has ended"):
            await desk.run.steer("Hello?")
        with pytest.raises(MisuseError, match="the run has ended"):
            await desk.run.pause()
        return result

    assert asyncio.run(main()).text == "Apples."
    assert e.Steered not in {type(event) for event in events(store)}


@pytest.mark.parametrize("output", [int, dict[str, int]], ids=["native", "by a tool"])
def test_a_message_replaces_a_structured_answer_that_was_just_given(output):
    desk = Desk()
    store = Interjecting(desk, e.ModelReplied)
    mode: Any = Agent(SCHEMA_MODELS[0], output=output).settings.output.mode
    assert mode == ("native" if output is int else "tool")
    given = [1, 2] if output is int else [{"a": 1}, {"b": 2}]
    values: Any = [{"value": each} if output is int else each for each in given]
    replies = [json.dumps(value) if mode == "native" else call_reply(("dict", value)) for value in values]
    agent = Agent(scripted(*replies, model=SCHEMA_MODELS[0]), output=output, store=store)
    result = asyncio.run(desk.start(agent))
    assert (result.stop, result.output) == ("done", given[1]), result.reason
    assert texts(result) == ["What is there?", "And the price?"]


def test_messages_keep_their_order():
    async def both(run):
        await run.steer("one")
        await run.steer("two")

    desk = Desk(both)
    result = asyncio.run(desk.start(desk.agent(LOOK, "ok")))
    assert texts(result) == ["What is there?", "one", "two"]


def test_a_message_before_the_first_request_comes_after_the_retrieved_context():
    async def main():
        async def facts():
            await desk.run.steer("In French.")
            return {"today": "Monday"}

        desk = Desk()
        agent = desk.agent("Lundi.", facts=facts)
        return await desk.start(agent)

    result = asyncio.run(main())
    assert "Monday" in str(result.messages[0].parts)
    assert [message.text for message in result.messages[1:]] == ["In French.", "Lundi."]


class Crash(Exception):
    pass


class Crashing(MemoryStore):
    crash_at, durable = 0, True

    async def append(self, session, after, records, *, epoch=None):
        crashes = self.crash_at and records[0].seq == self.crash_at
        if crashes:
            self.crash_at = 0
        if crashes and not self.durable:
            raise Crash
        await super().append(session, after, records, epoch=epoch)
        if crashes:
            raise Crash


@pytest.mark.parametrize("durable", [True, False])
def test_a_crash_at_every_event_loses_no_message_and_takes_none_up_twice(durable):
    async def live(store):
        said = []

        async def act(run):
            if not said:
                said.append("Only the red ones.")
                await run.steer("Only the red ones.")

        desk = Desk(act)
        agent = desk.agent(LOOK, LOOK, "Red.", "Red.", store=store)
        with suppress(Crash):
            return await desk.start(agent)
        if not any(isinstance(record.event, e.Prompted) for record in await store.read("s")):
            return await desk.start(agent)
        desk.run = agent.resume_stream("s").start()
        return await desk.run.result()

    whole = Crashing()
    expected = texts(asyncio.run(live(whole)))
    length = len(events(whole))
    assert expected == ["What is there?", "Only the red ones."]
    for at in range(1, length + 1):
        store = Crashing()
        store.crash_at, store.durable = at, durable
        result = asyncio.run(live(store))
        assert result.stop == "done", (at, result.reason)
        recorded = [event for event in events(store) if isinstance(event, e.Steered)]
        lost = isinstance(events(whole)[at - 1], e.Steered) and not durable
        assert len(recorded) == (0 if lost else 1), at
        assert texts(result) == (expected[:1] if lost else expected), at
        taken = [event for event in events(store) if isinstance(event, e.SteeringTaken)]
        assert sum(event.count for event in taken) == len(recorded), at


def test_a_paused_run_ends_after_its_step_and_resumes_as_if_nothing_had_been():
    desk, store = Desk(lambda run: run.pause()), MemoryStore()
    agent = desk.agent(LOOK, "Apples.", store=store)
    paused = asyncio.run(desk.start(agent))
    assert (paused.stop, paused.reason, paused.steps) == ("paused", "paused by the caller", 1)
    assert [message.role for message in paused.messages] == ["user", "assistant", "tool"]
    with pytest.raises(Exception, match=r"'paused' without an answer.*agent.resume\('s'\)"):
        paused.raise_for_stop()
    result = agent.resume_sync("s")
    assert (result.stop, result.text) == ("done", "Apples.")
    assert [message.role for message in result.messages] == ["user", "assistant", "tool", "assistant"]


def test_a_run_that_ends_anyway_is_not_paused():
    desk = Desk()
    store = Interjecting(desk, e.ModelAsked)
    agent = desk.agent("Apples.", store=store)

    class Pausing:
        async def steer(self, text):
            await run.pause()

    async def main():
        nonlocal run  # type: ignore[misc]
        run = agent.stream("What is there?", "s").start()
        desk.run = Pausing()
        return await run.result()

    run = None
    result = asyncio.run(main())
    assert (result.stop, result.text) == ("done", "Apples.")
    assert e.PauseRequested in {type(event) for event in events(store)}


def test_a_message_waits_for_the_resumption_of_a_paused_run():
    async def act(run):
        await run.pause()
        await run.steer("Only the red ones.")

    desk = Desk(act)
    agent = desk.agent(LOOK, "Red.")
    assert texts(asyncio.run(desk.start(agent))) == ["What is there?"]
    assert texts(agent.resume_sync("s")) == ["What is there?", "Only the red ones."]


@pytest.mark.parametrize("resumes", [True, False])
def test_a_message_to_a_cancelled_run_is_taken_up_later(resumes):
    async def act(run):
        await run.steer("Only the red ones.")
        run.cancel()
        await asyncio.Event().wait()

    desk = Desk(act)
    agent = desk.agent(LOOK, "Red.")
    cancelled = asyncio.run(desk.start(agent))
    assert (cancelled.stop, texts(cancelled)) == ("cancelled", ["What is there?"])
    if resumes:
        assert texts(agent.resume_sync("s")) == ["What is there?", "Only the red ones."]
    else:
        later = agent.run_sync("And now?", "s")
        assert texts(later) == ["What is there?", "Only the red ones.", "And now?"]


def test_at_a_limit_the_answer_stands_and_the_message_waits():
    desk = Desk()
    store = Interjecting(desk, e.ModelReplied)
    agent = desk.agent("Apples.", "Two dollars.", store=store)
    result = asyncio.run(desk.start(agent, budget=Budget(steps=1)))
    assert (result.stop, result.text) == ("done", "Apples.")
    later = agent.resume_sync("s", budget=Budget(steps=2))
    assert (later.stop, later.text) == ("done", "Two dollars.")
    assert [message.text for message in later.messages][-2:] == ["And the price?", "Two dollars."]


def test_cancelling_the_caller_of_steer_does_not_break_the_run():
    class Slow(MemoryStore):
        async def append(self, session, after, records, *, epoch=None):
            if isinstance(records[0].event, e.Steered):
                task.cancel()
                await asyncio.sleep(0)
            await super().append(session, after, records, epoch=epoch)

    task = None

    async def act(run):
        nonlocal task
        task = asyncio.ensure_future(run.steer("Only the red ones."))
        await asyncio.wait((task,))
        assert task.cancelled()

    desk = Desk(act)
    result = asyncio.run(desk.start(desk.agent(LOOK, "Red.", store=Slow())))
    assert (result.stop, texts(result)[1:]) == ("done", ["Only the red ones."])


@pytest.mark.parametrize("text", ["", "  ", None, 7])
def test_wrong_text_is_refused(text):
    async def act(run):
        with pytest.raises(MisuseError, match="steer takes the text of a message"):
            await run.steer(text)

    desk = Desk(act)
    assert asyncio.run(desk.start(desk.agent(LOOK, "ok"))).stop == "done"


def test_a_stream_is_steered_from_its_own_loop():
    async def main():
        stream = Desk().agent(LOOK, "Red.").stream("What is there?")
        with pytest.raises(MisuseError, match="has not started"):
            await stream.steer("too early")
        async for event in stream:
            if isinstance(event, e.ToolStarted):
                await stream.steer("Only the red ones.")
        return await stream.result()

    assert texts(asyncio.run(main())) == ["What is there?", "Only the red ones."]


def test_prompts_are_queued_in_order_and_refused_without_queue():
    async def main():
        order, working, go_on = [], asyncio.Event(), asyncio.Event()

        async def act(run):
            working.set()
            await go_on.wait()

        async def ask(text):
            result = await agent.run(text, "s", queue=True)
            order.append((text, result.text))

        desk = Desk(act)
        agent = desk.agent(LOOK, "1", "2", "3", clock=FakeClock())
        first = asyncio.ensure_future(desk.start(agent, prompt="first"))
        await working.wait()
        with pytest.raises(Conflict):
            await agent.run("refused", "s")
        queued = [asyncio.ensure_future(ask(text)) for text in ("second", "third")]
        for _ in range(20):
            await asyncio.sleep(0)
        assert order == []
        go_on.set()
        await asyncio.gather(first, *queued)
        return order, await agent.store.read("s")

    order, records = asyncio.run(main())
    assert order == [("second", "2"), ("third", "3")]
    prompts = [record.event.parts[0].text for record in records if isinstance(record.event, e.Prompted)]
    assert prompts == ["first", "second", "third"]


def test_a_queued_prompt_waits_for_a_session_that_another_store_object_holds(tmp_path):
    async def main():
        clock, other = FakeClock(), SqliteStore(tmp_path / "log.db")
        agent = Agent(scripted("hello"), store=tmp_path / "log.db", clock=clock)
        async with other.lease("s"):
            task = asyncio.ensure_future(agent.run("Hi", "s", queue=True))
            while len(clock.slept) < 9:
                await asyncio.sleep(0)
            assert not task.done()
        return (await task).text, clock.slept

    text, slept = asyncio.run(main())
    assert text == "hello"
    assert slept[:3] == [0.02, 0.04, 0.08]
    assert max(slept) == 1.0


def test_a_queued_prompt_can_be_cancelled():
    async def main():
        store = MemoryStore()
        agent = Agent(scripted("hello"), store=store, clock=FakeClock())
        async with store.lease("s"):
            run = agent.stream("Hi", "s", queue=True).start()
            await asyncio.sleep(0)
            run.cancel()
            result = await run.result()
        return result, await store.read("s")

    result, records = asyncio.run(main())
    assert (result.stop, list(records)) == ("cancelled", [])


def test_a_hook_reviews_every_message_before_it_is_sent():
    """A message that arrives after the hooks have reviewed a request waits for the next request."""
    reviewed = []

    class Guard:
        async def before_model(self, run, request):
            reviewed.append([message.text for message in request.new_messages])
            if len(reviewed) == 1:
                await desk.run.steer("And the price?")

    desk = Desk()
    agent = desk.agent("Apples.", "Two dollars.", hooks=[Guard()])
    result = asyncio.run(desk.start(agent))
    assert (result.stop, result.text) == ("done", "Two dollars."), result.reason
    sent = [request.messages[-1].text for request in desk.model.script.requests]
    assert sent == ["What is there?", "And the price?"]
    assert reviewed == [["What is there?"], ["And the price?"]]


def test_compaction_keeps_messages_that_the_model_has_not_answered():
    async def both(run):
        await run.steer("Only the red ones.")
        await run.steer("And their price. " * 500)

    desk, store = Desk(both), MemoryStore()
    agent = desk.agent(call_reply(("look", {"at": "shelf"})), "Red.", store=store)
    assert asyncio.run(desk.start(agent)).text == "Red."
    records = asyncio.run(store.read("s"))
    taken = next(at for at, record in enumerate(records) if isinstance(record.event, e.SteeringTaken))
    state = fold_log(records[: taken + 1]).state
    settings = replace(state.settings, context_tokens=500, compaction=Compaction(keep=0.0))
    messages = state.conversation.transcript.messages
    kept = messages[tail_start(replace(state, settings=settings)) :]
    assert [message.role for message in kept] == ["assistant", "tool", "user", "user"]
    answered = fold_log(records).state
    settings = replace(answered.settings, context_tokens=500, compaction=Compaction(keep=0.0))
    start = tail_start(replace(answered, settings=settings))
    assert start == len(answered.conversation.transcript.messages) - 1, (
        "once answered, they may be summarized"
    )
