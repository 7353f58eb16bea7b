"""A request is rebuilt from the log with the bytes that were sent, and its digest proves it."""

import asyncio
import sys

import pytest

from bridle import Agent, Compaction, KeepRaw, Memory, MisuseError, Text, tool
from bridle.hooks import RedactPii
from bridle.run.replay.log_wire import LogWire
from bridle.run.replay.sent_calls import OTHER_DIGEST, CallReader
from bridle.sessions import import_history, read_call, replay
from bridle.stores.memory import MemoryStore
from bridle.testing import FakeClock, scripted
from bridle.testing.scripted_model import call_reply
from bridle.values import events as e
from bridle.values.errors import Failure
from bridle.values.message import Media
from bridle.values.record import GENESIS, seal_record
from bridle.values.request import Extra
from tests.suite.wire_models import MODELS

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
SENT, IS_LISTENING = [], []


def listen(event, given):
    if event == "bridle.asked" and IS_LISTENING:
        SENT.append(given)


sys.addaudithook(listen)


@pytest.fixture
def sent():
    """Digest, address and body of every request of the test."""
    SENT.clear()
    IS_LISTENING.append(True)
    yield SENT
    IS_LISTENING.clear()


@tool(effect="read")
async def look(at: str) -> str:
    """Look."""
    return f"{at} is closed"


async def run_agent(agent, prompt, *, stream=False, **given):
    if not stream:
        return await agent.run(prompt, **given)
    async for item in agent.stream(prompt, **given):
        last = item
    return last.result


@pytest.mark.parametrize("chain", [False, True, "conversation"])
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("model", MODELS)
def test_the_rebuilt_request_has_the_bytes_that_were_sent(model, stream, chain, sent):
    async def find(query):
        return ["Order 7 is paid."]

    async def main():
        store = MemoryStore()
        agent = Agent(
            model,
            tools=[look],
            instructions=["Be kind.", today],
            memory=Memory(),
            retrieve=find,
            facts={"time": "noon"},
            chain=chain,
            store=store,
            clock=FakeClock(),
            compaction=None,
        )
        picture = Media(kind="image", media_type="image/png", data=PNG)
        await run_agent(
            agent,
            [picture, Text(text='!call look {"at": "door"}\n!then\n!say done')],
            stream=stream,
            session="s",
        )
        await run_agent(agent, "!say again", stream=stream, session="s")
        calls = [await read_call("s", number, store=store, stream=stream) for number in (1, 2, 3)]
        assert [(call.digest, call.url, call.body) for call in calls] == [tuple(each) for each in sent]
        assert [call.is_proven for call in calls] == [True] * 3
        assert calls[0].difference is None
        assert calls[1].difference.layer == "history"
        assert await read_call("s", -1, store=store, stream=stream) == calls[2]
        with pytest.raises(MisuseError, match="no model call 4"):
            await read_call("s", 4, store=store)

    def today() -> str:
        return "It is Friday."

    asyncio.run(main())


@pytest.mark.parametrize("model", MODELS)
def test_retries_and_imported_histories_are_rebuilt(model, sent):
    async def main():
        store = MemoryStore()
        busy = Failure(kind="overloaded", message="busy", status=529)
        agent = Agent(
            scripted("of the history", busy, call_reply(("look", {"at": "a"})), "done", model=model),
            tools=[look],
            store=store,
            clock=FakeClock(),
        )
        turns = [{"role": "user", "content": "Hi."}, {"role": "assistant", "content": "Hello."}]
        await agent.run("hello", session="s", history=import_history("openai-chat", turns))
        records = await store.read("s")
        calls = [*CallReader(LogWire()).read(records)]
        assert [call.body for call in calls] == [body for _, _, body in sent]
        assert [(call.attempt, call.is_proven) for call in calls] == [(1, True), (2, True), (1, True)]
        assert "overloaded" in calls[0].stop

    asyncio.run(main())


@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize("model", MODELS)
def test_requests_around_a_compaction_are_rebuilt(model, native, sent):
    async def main():
        store = MemoryStore()
        agent = Agent(
            model,
            store=store,
            clock=FakeClock(),
            context_tokens=6_000,
            compaction=Compaction(native=native),
        )
        for number in range(12):
            await agent.run(f"!say {number} " + "words of a long reply " * 120, session="s")
        records = await store.read("s")
        assert any(isinstance(each.event, e.Compacted) for each in records)
        calls = [*CallReader(LogWire()).read(records)]
        assert all(call.is_proven for call in calls)
        assert [call.body for call in calls] == [body for _, _, body in sent]
        assert (await replay("s", store=store)).is_identical

    asyncio.run(main())


def test_values_that_the_log_does_not_hold_come_from_the_agent_and_stay_hidden():
    async def main():
        store = MemoryStore()
        extras = (Extra(name="metadata", json='{"user_id": "secret-person"}'),)
        agent = Agent(MODELS[0], extras=extras, store=store)
        await agent.run("!say done", session="s")
        alone = await read_call("s", 1, store=store)
        assert not alone.is_proven
        assert "does not hold its values" in alone.problem
        assert b"[hidden]" in alone.body
        known = await read_call("s", 1, store=store, agent=agent)
        assert known.is_proven
        assert b"secret-person" not in known.body
        report = await replay("s", store=store)
        assert report.is_equal
        assert "does not hold its values" in " ".join(report.unchecked)
        assert (await replay("s", store=store, agent=agent)).unchecked == ()

    asyncio.run(main())


def test_a_request_with_another_digest_is_not_proven():
    async def main():
        store = MemoryStore()
        await Agent(MODELS[0], store=store).run("!say done", session="s")
        changed, head = [], GENESIS
        for record in await store.read("s"):
            event = record.event
            if isinstance(event, e.ModelAsked):
                event = e.ModelAsked(step=event.step, attempt=event.attempt, digest="0" * 32)
            changed.append(seal_record(record.seq, record.at, event, head))
            head = changed[-1].hash
        await store.append("t", 0, changed)
        call = await read_call("t", 1, store=store)
        assert (call.is_proven, call.problem) == (False, OTHER_DIGEST)

    asyncio.run(main())


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("model", MODELS)
def test_raw_bytes_are_kept_and_referred_to(model, stream):
    async def main():
        store = MemoryStore()
        agent = Agent(model, store=store, keep_raw=KeepRaw(request=True), clock=FakeClock())
        await run_agent(agent, "!say a wonderful reply", stream=stream, session="s")
        records = await store.read("s")
        [replied] = [record.event for record in records if isinstance(record.event, e.ModelReplied)]
        raw = replied.raw
        assert replied.required_blobs == (raw.reply, raw.request)
        call = await read_call("s", 1, store=store)
        assert (call.raw, call.is_streamed) == (raw, stream)
        assert await store.get_blob(raw.request) == call.body
        reply = await store.get_blob(raw.reply)
        assert len(reply) == raw.reply_bytes  # type: ignore[arg-type]
        assert raw.status == 200
        assert b"wonderful" in reply or stream
        assert (await replay("s", store=store)).is_identical

    asyncio.run(main())


def test_raw_bytes_are_cut_at_the_limit_and_off_by_default():
    async def main():
        store = MemoryStore()
        await Agent(MODELS[0], store=store, keep_raw=KeepRaw(bytes_max=100)).run(
            "!say " + "long " * 99, session="s"
        )
        raw = (await read_call("s", 1, store=store)).raw
        assert len(await store.get_blob(raw.reply)) == 100 < raw.reply_bytes  # type: ignore[arg-type]
        assert raw.request == ""
        await Agent(MODELS[0], store=store).run("!say well", session="t")
        assert (await read_call("t", 1, store=store)).raw is None

    asyncio.run(main())


def test_bytes_of_a_failed_call_are_kept():
    async def main():
        store = MemoryStore()
        broken = Failure(kind="invalid", message="no such thing", status=400)
        await Agent(scripted(broken), store=store, keep_raw=KeepRaw()).run("hello", session="s")
        call = await read_call("s", 1, store=store)
        assert call.outcome == "model_failed"
        assert call.raw.status == 400
        assert b"no such thing" in await store.get_blob(call.raw.reply)

    asyncio.run(main())


def test_a_key_that_a_reply_repeats_is_not_in_the_kept_bytes():
    async def main():
        store, key = MemoryStore(), "sk-ant-0123456789-very-secret"
        connection = scripted(f"your key is {key}")
        object.__setattr__(connection, "headers", (("authorization", f"Bearer {key}"),))
        await Agent(connection, store=store, keep_raw=KeepRaw(request=True)).run("hello", session="s")
        raw = (await read_call("s", 1, store=store)).raw
        kept = await store.get_blob(raw.reply) + await store.get_blob(raw.request)
        assert b"your key is" in kept
        assert key.encode() not in kept
        assert key not in str(raw.headers)

    asyncio.run(main())


def test_a_text_filter_withholds_the_bytes_of_replies():
    async def main():
        store = MemoryStore()
        agent = Agent(MODELS[0], store=store, keep_raw=KeepRaw(), hooks=[RedactPii()])
        await agent.run("!say write to ann@example.com", session="s")
        call = await read_call("s", 1, store=store)
        assert (call.raw.reply, bool(call.raw.withheld)) == ("", True)
        assert call.raw.reply_bytes > 0

    asyncio.run(main())


@pytest.mark.parametrize("given", [True, 5, "all"])
def test_a_wrong_option_is_refused(given):
    with pytest.raises(MisuseError, match="keep_raw must be a KeepRaw"):
        Agent(MODELS[0], keep_raw=given)
    with pytest.raises(MisuseError, match="bytes_max"):
        Agent(MODELS[0], keep_raw=KeepRaw(bytes_max=0))
