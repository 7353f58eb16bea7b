"""A session from which content was removed replays; what followed the removed content is reported as not checked."""

import subprocess
import sys

import pytest

from bridle import Agent, MisuseError, tool
from bridle.core.lineage.replay import describe_unchecked
from bridle.sessions import fork_session, read_call, redact_record, replay
from bridle.stores import open_store
from bridle.stores.memory import MemoryStore
from bridle.values.events import ModelAsked
from tests.suite.command import bridle
from tests.suite.in_loop import in_loop
from tests.suite.patience import PATIENCE_SECONDS

CARD = "4111-1111-1111-1111"
PAYING = f'My card is {CARD}.\n!call pay {{"card": "{CARD}"}}\n!then\n!say Paid with {CARD}.'


@tool(effect="write")
def pay(card: str) -> str:
    """Pay."""
    return f"paid with {card}"


def make_agent(store, instructions=""):
    return Agent("sim:", tools=[pay], store=store, instructions=instructions)


async def remove(store, seq, field="", session="s"):
    return await redact_record(store, session, seq, reason="erasure 17", by="ann", field=field)


async def list_requests(store):
    return [record.seq for record in await store.read("s") if isinstance(record.event, ModelAsked)]


@in_loop
async def test_each_record_may_be_removed_and_the_session_still_replays():
    removed = unchecked = 0
    seq = 1
    while True:
        store = MemoryStore()
        agent = make_agent(store, "Be kind.")
        await agent.run(PAYING, "s")
        await agent.run("!say more", "s")
        length = len(await store.read("s"))
        if seq > length:
            break
        try:
            await remove(store, seq)
        except MisuseError:
            seq += 1
            continue  # no content, or the log would be unreadable
        await agent.run("!say after", "s")
        report = await replay("s", store=store)
        assert (report.is_equal, report.is_identical) == (True, True), report.divergence
        names = [describe_unchecked(each) for each in range(seq, length + 1)]
        assert set(report.unchecked) <= set(names)
        removed, unchecked, seq = removed + 1, unchecked + len(report.unchecked), seq + 1
    assert removed >= 5
    assert unchecked >= removed


@in_loop
async def test_requests_before_and_after_the_removal_are_still_proven():
    store = MemoryStore()
    agent = make_agent(store)
    await agent.run("!say first", "s")
    await agent.run(PAYING, "s")
    prompt, *others = [record.seq for record in await store.read("s") if CARD.encode() in record.data]
    assert (await replay("s", store=store)).unchecked == ()
    asked = await list_requests(store)
    await remove(store, prompt)
    await agent.run("!say between", "s")
    for seq in others:
        await remove(store, seq)
    await agent.run("!say after", "s")
    report = await replay("s", store=store)
    assert report.is_equal
    assert set(map(describe_unchecked, asked[1:])) <= set(report.unchecked)
    calls = [await read_call("s", number, store=store) for number in range(1, 6)]
    assert [call.is_proven for call in calls] == [True, False, False, False, True]
    assert [call.problem for call in calls if not call.is_proven] == [
        describe_unchecked(call.seq) for call in calls[1:4]
    ]


@in_loop
async def test_a_record_whose_fields_are_removed_one_by_one_is_checked_after_the_last():
    store = MemoryStore()
    agent = make_agent(store)
    await agent.run([f"card {CARD}", "name Ann\n!say one"], "s")
    prompt = next(record.seq for record in await store.read("s") if CARD.encode() in record.data)
    for index in (0, 1):
        await remove(store, prompt, f"parts.{index}.text")
        await agent.run(f"!say {index}", "s")
    calls = [await read_call("s", number, store=store) for number in (1, 2, 3)]
    assert [call.is_proven for call in calls] == [False, False, True]
    assert (await replay("s", store=store)).is_equal


@in_loop
async def test_a_changed_agent_differs_only_where_that_can_be_known():
    store = MemoryStore()
    await make_agent(store, "Be brief.").run(PAYING, "s")
    changed = make_agent(store, "Be terse.")
    await remove(store, 2)
    report = await replay("s", store=store, agent=changed)
    assert report.is_equal
    assert set(map(describe_unchecked, await list_requests(store))) <= set(report.unchecked)
    await make_agent(store, "Be brief.").run("!say after", "s")
    report = await replay("s", store=store, agent=changed)
    assert report.divergence.seq == (await list_requests(store))[-1]
    assert report.divergence.request.layer == "instructions"


@in_loop
async def test_a_fork_of_a_redacted_session_replays():
    store = MemoryStore()
    agent = make_agent(store)
    await agent.run(PAYING, "s")
    fork = (await fork_session(store, "s")).session
    await agent.run("!say fork", fork)
    await remove(store, 2)
    report = await replay(fork, store=store)
    assert report.is_equal
    assert report.unchecked


@pytest.mark.parametrize(
    "command", [["session", "export", "s", "--as-test"], ["session", "replay", "s", "--as-test"]]
)
def test_the_commands_say_it_and_make_a_test_that_passes(tmp_path, monkeypatch, command):
    monkeypatch.setenv("BRIDLE_STORE", str(tmp_path / "log.db"))
    monkeypatch.chdir(tmp_path)
    agent = make_agent(open_store(tmp_path / "log.db"))
    agent.run_sync(PAYING, "s")
    assert (
        bridle("session", "redact", "s", "--record", "2", "--reason", "erasure 17", "--by", "ann").code == 0
    )
    shown = bridle("session", "replay", "s")
    assert (shown.code, "not checked: record 3 follows removed content" in shown.out) == (0, True)
    listed = bridle("show", "--as", "raw", "s")
    assert listed.code == 1
    assert describe_unchecked(3) in listed.out
    made = bridle(*command, "test_log.py")
    assert made.code == 0, made.err
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_log.py"],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert run.returncode == 0, run.stdout
    fixture = tmp_path / "test_log.jsonl"
    fixture.write_text(fixture.read_text().replace("removed from the record", "removed from the RECORD"))
    changed = subprocess.run(run.args, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
    assert changed.returncode == 1
    assert "record 2 was changed" in changed.stdout
