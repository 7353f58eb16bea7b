"""Logs that are torn, edited or of a newer version: the session continues, or the error says how to."""

import asyncio
import json

import pytest

from bridle import Agent, MisuseError, tool
from bridle.cli.main import main as command
from bridle.core.calls.orphaned import RECORDS_LOST
from bridle.errors import Conflict, Corrupt, SessionNotFound
from bridle.run.recovery.session_log import load_log
from bridle.sessions import fork_session
from bridle.stores import open_store
from bridle.stores.memory import MemoryStore
from bridle.testing import scripted, simulator
from bridle.testing.scripted_model import call_reply
from bridle.values import events as e
from bridle.values.record import seal_record
from tests.run.recovery.broken_logs import change, write

PAID = []


@tool
def pay(amount: int) -> str:
    """Pay."""
    PAID.append(amount)
    return f"paid {amount}"


def agent_on(store):
    return Agent("sim:", tools=[pay], store=store)


@pytest.fixture
def log():
    """The bytes of a session with a payment and an answer."""
    store = MemoryStore()
    assert agent_on(store).run_sync('!call pay {"amount": 5}\n!then\n!say Paid.', session="s").done
    PAID.clear()
    return [record.data for record in asyncio.run(store.read("s"))]


def kinds(log):
    return [json.loads(data)["type"] for data in log]


def speak(path, prompt="!say Fine."):
    """The next turn, in a fresh process as it were, and the events of the log afterwards."""

    async def main():
        store = open_store(path)
        result = await agent_on(store).run(prompt, session="s")
        events = [record.event for record in await store.read("s")]
        await store.close()
        return result, events

    return asyncio.run(main())


@pytest.mark.parametrize("left", range(9))
def test_a_torn_tail_goes_on_from_what_is_left(log, tmp_path, left):
    path = tmp_path / "log.db"
    assert kinds(log)[2:6] == ["model_asked", "model_replied", "tool_started", "tool_finished"]
    asyncio.run(write(path, "s", log).close())
    change(path, f"DELETE FROM events WHERE seq > {left}")
    result, events = speak(path)
    assert result.done
    if left not in (
        2,
        3,
    ):  # there, what was asked is left and no trace of a call: the model was told, and asks
        assert not PAID, "nothing is repeated that may have been done"
    if left == len(log):
        assert not any(isinstance(event, e.LogRepaired) for event in events)
        return
    (repaired,) = [event for event in events if isinstance(event, e.LogRepaired)]
    assert events.index(repaired) == left
    assert repaired.records_lost
    assert (
        f"to {len(log)} are missing" in repaired.items[-1]
        or f"record {len(log)} is missing" in repaired.items[-1]
    )
    if left:
        assert RECORDS_LOST in [message.text for message in result.messages]
    outcomes = [part.outcome for message in result.messages for part in message.results]
    assert outcomes == (["unknown"] if left in (4, 5) else ["ok"] if left > 1 else [])
    again, events = speak(path)
    assert again.done
    assert len([event for event in events if isinstance(event, e.LogRepaired)]) == 1


def test_half_a_record_at_the_end_is_torn_and_an_edited_one_is_not(log, tmp_path):
    path = tmp_path / "log.db"
    asyncio.run(write(path, "s", log).close())
    change(path, f"UPDATE events SET data = substr(data, 1, length(data) / 2) WHERE seq = {len(log)}")
    result, events = speak(path)
    assert result.done
    assert any(isinstance(event, e.LogRepaired) and event.records_lost for event in events)
    asyncio.run(write(path, "s", log).close())
    change(path, f"UPDATE events SET data = replace(data, 'done', 'gone') WHERE seq = {len(log)}")
    with pytest.raises(Corrupt, match=f"record {len(log)} was changed") as caught:
        speak(path)
    assert (caught.value.torn, caught.value.last_good) == (False, len(log) - 1)


def test_what_a_newer_version_wrote_is_kept_and_passed_over(log, tmp_path):
    path = tmp_path / "log.db"
    newer = b'{"type":"moon_rose","over":"Oslo"}'
    asyncio.run(write(path, "s", [*log[:6], newer, *log[6:], newer]).close())
    change(
        path,
        "ALTER TABLE events ADD COLUMN weather TEXT",
        "ALTER TABLE sessions ADD COLUMN mood TEXT DEFAULT 'fine'",
        "CREATE TABLE moons (name TEXT)",
        "UPDATE events SET once = 'moon:1' WHERE seq = 7",
    )
    result, events = speak(path)
    assert result.done
    (repaired,) = [event for event in events if isinstance(event, e.LogRepaired)]
    assert [item.split(" (")[0] for item in repaired.items] == ["record 7", f"record {len(log) + 2}"]
    assert not repaired.records_lost
    assert [event.kind for event in events if isinstance(event, e.UnknownEvent)] == ["moon_rose"] * 2

    async def bytes_of():
        store = open_store(path)
        data = [record.data for record in await store.read("s")]
        await store.close()
        return data

    assert asyncio.run(bytes_of())[6] == newer


def test_a_broken_chain_names_the_record_and_a_fork_goes_on(log, tmp_path, capsys):
    path = tmp_path / "log.db"
    asyncio.run(write(path, "s", log).close())
    change(path, "UPDATE events SET data = replace(data, 'paid 5', 'paid 9') WHERE seq = 6")
    with pytest.raises(
        Corrupt, match=r"record 6 .*continue from record 5 with: bridle session fork s --last-good"
    ):
        speak(path)
    assert command(["session", "fork", "s", "--last-good", "--as", "t", "--store", str(path), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["session"], told["at"]) == ("t", 5)
    assert "record 6" in told["cut_reason"]

    async def main():
        store = open_store(path)
        agent = agent_on(store)
        before = (await load_log(store, "t")).state
        assert before.run.end.stop == "cancelled"
        result = await agent.run("!say Fine.", session="t")
        assert result.done
        assert [part.outcome for message in result.messages for part in message.results] == ["unknown"]
        assert RECORDS_LOST in [message.text for message in result.messages]
        with pytest.raises(Corrupt):
            await agent.run("?", session="s")
        (repaired,) = [r.event for r in await store.read("t") if isinstance(r.event, e.LogRepaired)]
        assert "forked from s at record 5" in repaired.items[0]
        await store.close()

    asyncio.run(main())
    assert not PAID
    assert command(["show", "t", "--store", str(path)]) == 0
    assert "repaired" in capsys.readouterr().out


def test_forks_where_nothing_is_wrong(capsys):
    async def main():
        store = MemoryStore()
        agent = Agent(scripted(call_reply(("pay", {"amount": 1})), "one", "two"), tools=[pay], store=store)
        await agent.run("?", session="s")
        whole = await fork_session(store, "s")
        assert (whole.at, whole.cut_reason) == (len(await store.read("s")), "")
        earlier = await fork_session(store, "s", 2, "early")
        assert (earlier.session, earlier.at) == ("early", 2)
        assert [r.event.unique_key for r in await store.read("early")] == [None] * 3
        assert isinstance((await store.read("early"))[-1].event, e.Forked)
        assert (await agent.run("and?", session=whole.session)).text == "two"
        with pytest.raises(SessionNotFound):
            await fork_session(store, "nobody")
        with pytest.raises(MisuseError, match="cannot be forked at 99"):
            await fork_session(store, "s", 99)

    asyncio.run(main())


def test_the_command_reads_what_is_left(log, tmp_path, capsys):
    path = tmp_path / "log.db"
    asyncio.run(write(path, "s", log).close())
    change(path, "DELETE FROM events WHERE seq > 6")
    where = ["--store", str(path)]
    assert command(["sessions", "--json", *where]) == 0
    assert json.loads(capsys.readouterr().out)[0]["ended"] == "torn"
    assert command(["show", "s", *where]) == 0
    assert "paid 5" in capsys.readouterr().out
    assert command(["run", "--session", "s", "!say Fine.", *where]) == 0
    assert "log repaired" in capsys.readouterr().err
    assert command(["show", "s", *where]) == 0
    assert "the log is torn" in capsys.readouterr().out


def test_only_what_is_torn_is_mended(log, tmp_path):
    path = tmp_path / "log.db"

    async def main():
        store = write(path, "s", log)
        record = seal_record(9, 1.0, e.LogRepaired(items=()), "0" * 64)
        with pytest.raises(Conflict, match="is already repaired"):
            await store.repair("s", record)
        change(path, "DELETE FROM events WHERE seq > 6")
        with pytest.raises(Conflict):
            await store.repair("s", record)
        assert len(await store.read_intact("s")) == 6
        change(path, "DELETE FROM events WHERE seq = 3")
        with pytest.raises(Corrupt):
            await store.repair("s", record)
        assert len(await store.read_intact("s")) == 2
        assert await store.read_intact("nobody") == ()
        await store.close()

    asyncio.run(main())


def test_a_fork_whose_parent_lost_its_records_is_not_torn(log, tmp_path):
    path = tmp_path / "log.db"

    async def main():
        store = write(path, "s", log)
        await store.fork("s", 7, "t")
        change(path, "DELETE FROM events WHERE seq > 5")
        with pytest.raises(Corrupt) as caught:
            await store.read("t")
        assert (caught.value.torn, caught.value.last_good) == (False, 5)
        made = await fork_session(store, "t", new="u")
        assert made.at == 5
        async with simulator("Fine.") as provider:
            assert (await Agent(provider.model(), tools=[pay], store=store).run("?", session="u")).done
        await store.close()

    asyncio.run(main())


def test_whichever_record_is_bad_a_fork_goes_on_from_the_one_before(log, tmp_path):
    path = tmp_path / "log.db"
    damages = ("UPDATE events SET data = replace(data, '{', '{ ') WHERE seq = {n}",
               "UPDATE events SET at = at + 1 WHERE seq = {n}",
               "UPDATE events SET hash = CAST(hash || x'00' AS BLOB) WHERE seq = {n}")  # fmt: skip

    async def main(bad):
        store = open_store(path)
        with pytest.raises(Corrupt) as caught:
            await agent_on(store).run("?", session="s")
        assert caught.value.last_good == bad - 1
        assert f"record {bad} " in str(caught.value)
        made = await fork_session(store, "s")
        assert made.at == bad - 1
        result = await agent_on(store).run("!say Fine.", session=made.session)
        assert result.done
        results = [part.call_id for message in result.messages for part in message.results]
        assert results == [call.id for message in result.messages for call in message.calls]
        await store.close()

    for damage in damages:
        for bad in range(1, len(log) + 1):
            asyncio.run(write(path, "s", log).close())
            change(path, damage.replace("{n}", str(bad)))
            asyncio.run(main(bad))
