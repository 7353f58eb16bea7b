"""Session trees: fork anywhere, run nothing twice, share records, compare branches."""

import asyncio
import json
import random
import re
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from bridle import Agent, Budget, MisuseError, RunContext, StoreError, tool
from bridle.cli.format.columns import display_width, fit_line, trim_line, wrap_text
from bridle.cli.main import main as command
from bridle.core.calls.orphaned import LEFT_TO_PARENT, RUNNING_IN_PARENT
from bridle.core.recovery.log_repair import fold_log
from bridle.errors import Conflict, SessionNotFound
from bridle.events import Forked
from bridle.providers import load_codec
from bridle.providers.catalogue import find_model
from bridle.run.lineage import compare_sessions, list_branches
from bridle.run.model_connection import ModelConnection
from bridle.sessions import fork_session
from bridle.sim.simulator import Simulator
from bridle.stores import open_store
from bridle.stores.memory import MemoryStore
from bridle.testing import FakeClock, scripted
from bridle.testing.scripted_model import call_reply
from bridle.transports.inprocess import InProcessTransport
from bridle.values import events as e
from bridle.values.errors import Failure
from bridle.values.message import Message, Text
from bridle.values.record import GENESIS, seal_record
from bridle.values.result import History
from tests.suite.campaign import scale

FAMILIES = ("anthropic/claude-sonnet-5-5", "openai/gpt-6.1-sol", "deepseek/deepseek-v4-pro")
FORKS = 40
TWO_BATCHES = """!call look {"at": 1}
!call pay {"amount": 5}
!call pay {"amount": 6}
!then
!call pay {"amount": 7}
!then
!say Paid."""


class Purse:
    """Tools that remember every time they were run, and under which key."""

    def __init__(self):
        self.paid, self.looked, self.gate = [], [], None

    def tools(self, **options):
        @tool(effect="write", **options)
        async def pay(amount: int, context: RunContext) -> str:
            """Pay."""
            self.paid.append((amount, context.idempotency_key))
            if self.gate is not None:
                await self.gate.wait()
            return f"paid {amount}"

        @tool(effect="read")
        def look(at: int) -> str:
            """Look."""
            self.looked.append(at)
            return f"seen {at}"

        return [pay, look]

    @property
    def amounts(self):
        return [amount for amount, _ in self.paid]


def outcomes(messages):
    return [part.outcome for message in messages for part in message.results]


def test_wherever_it_is_forked_it_goes_on_and_nothing_is_done_twice():
    async def main():
        purse, store = Purse(), MemoryStore()
        agent = Agent("sim:", tools=purse.tools(), store=store)
        assert (await agent.run(TWO_BATCHES, session="s")).done
        records = await store.read("s")
        kinds = [type(record.event).__name__ for record in records]
        replies = [seq for seq, kind in enumerate(kinds, 1) if kind == "ModelReplied"]
        for at in range(len(records) + 1):
            purse.paid.clear()
            fork = await agent.fork("s", at, new=f"at-{at}")
            assert fork.requested_at == at <= fork.at
            if at > 1:
                resumed = await agent.resume(fork.session)
                assert resumed.done, (at, resumed.reason)
                assert resumed.text == "Paid."
                asked_anew = [
                    amounts for reply, amounts in zip(replies, ([5, 6], [7]), strict=False) if at < reply
                ]
                assert purse.amounts == [amount for amounts in asked_anew for amount in amounts], at
            said = await agent.run("!say Fine.", session=(await agent.fork("s", at)).session)
            assert said.done
            assert said.text.endswith("Fine.")
            ids = [call.id for message in said.messages for call in message.calls]
            assert ids == [part.call_id for message in said.messages for part in message.results]
        assert await store.read("s") == records

    asyncio.run(main())


def test_every_message_is_a_place():
    async def main():
        purse, store = Purse(), MemoryStore()
        agent = Agent("sim:", tools=purse.tools(), store=store)
        result = await agent.run(TWO_BATCHES, session="s")
        result = await agent.run("!say Again.", session="s")
        length = len(await store.read("s"))
        for message in result.messages:
            fork = await agent.fork("s", message.id)
            shared = fold_log(
                (await store.read(fork.session))[: fork.at]
            ).state.conversation.transcript.messages
            # The calls of a reply and what came of them are one thing.
            expected = {"m2": "m3", "m4": "m5"}.get(message.id, message.id)
            assert (shared[-1].id, fork.message) == (expected, expected)
            assert shared == result.messages[: len(shared)]
        assert fork.at == length, "an answer is not without the end of its run"
        assert [act.call_id for act in (await agent.fork("s", "m3")).completed_actions] == ["c2_0"]
        assert (await agent.fork("s", "m5")).completed_actions == ()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("at", "words"),
    [("m99", "has 8 messages and no m99"), ("m0", "is not a position"), ("four", "is not a position"), (99, "cannot be forked at"),
     (-1, "cannot be forked at"), ("-3", "is not a position"), ("9" * 5000, "none of a number so long"),
     ("m" + "9" * 5000, "is not a position")],
)  # fmt: skip
def test_places_that_are_none(at, words):
    async def main():
        agent = Agent("sim:", tools=Purse().tools())
        await agent.run(TWO_BATCHES, session="s")
        await agent.run("!say Again.", session="s")
        with pytest.raises(MisuseError, match=words):
            await agent.fork("s", at)
        with pytest.raises(SessionNotFound):
            await agent.fork("nobody", at)

    asyncio.run(main())


def test_a_history_from_elsewhere_is_one_place():
    async def main():
        agent = Agent("sim:")
        told = tuple(Message(role=role, parts=(Text(text=role),)) for role in ("user", "assistant"))
        await agent.run("!say one", session="s", history=History(messages=told))
        with pytest.raises(MisuseError, match="fork at m2"):
            await agent.fork("s", "m1")
        assert (await agent.fork("s", "m2")).message == "m2"

    asyncio.run(main())


def test_a_call_that_is_running_is_left_to_the_session_that_runs_it():
    async def main():
        purse, store = Purse(), MemoryStore()
        purse.gate = asyncio.Event()
        agent = Agent("sim:", tools=purse.tools(), store=store)
        parent = asyncio.create_task(agent.run(TWO_BATCHES, session="s"))
        while len(purse.paid) < 1:
            await asyncio.sleep(0)
        fork = await agent.fork("s", "m2")
        purse.gate, gate = None, purse.gate
        resumed = await agent.resume(fork.session)
        results = [part for message in resumed.messages for part in message.results]
        told = {part.outcome: part.text for part in results}
        assert told["unknown"] == RUNNING_IN_PARENT
        assert told["cancelled"] == LEFT_TO_PARENT
        assert purse.amounts.count(5) == 1
        assert resumed.done
        gate.set()  # type: ignore[attr-defined]
        assert (await parent).done
        assert outcomes((await parent).messages) == ["ok"] * 4
        keys = [key for _, key in purse.paid]
        assert len(set(keys)) == len(keys), "no action was done twice, in whichever session"

    asyncio.run(main())


def test_a_call_that_waits_for_a_person_is_asked_about_where_it_was_made():
    async def main():
        purse, store = Purse(), MemoryStore()
        agent = Agent("sim:", tools=purse.tools(approve=True), store=store)
        assert (await agent.run(TWO_BATCHES, session="s")).stop == "waiting"
        fork = await agent.fork("s")
        assert await agent.approvals(fork.session) == ()
        resumed = await agent.resume(fork.session)
        assert outcomes(resumed.messages)[1:3] == ["cancelled", "cancelled"]
        # The next payment is the fork's own, and so is the question about it.
        assert resumed.stop == "waiting"
        assert not purse.paid
        for pending in await agent.approvals("s"):
            await agent.approve("s", pending.id)
        assert (await agent.resume("s")).stop == "waiting"
        assert purse.amounts == [5, 6]

    asyncio.run(main())


def test_what_only_reads_runs_in_both_and_what_may_be_repeated_keeps_its_key():
    async def main():
        purse, store = Purse(), MemoryStore()
        agent = Agent("sim:", tools=purse.tools(on_unknown="retry"), store=store)
        assert (await agent.run(TWO_BATCHES, session="s")).done
        before = list(purse.paid)
        fork = await agent.fork("s", "m2")
        assert fork.message == "m2"
        assert (await agent.resume(fork.session)).done
        assert purse.looked == [1, 1]
        again = purse.paid[len(before) :]
        assert again[:2] == before[:2], "a tool that knows its keys sees the same call"
        assert again[2][1] != before[2][1], "what was asked anew is another call"

    asyncio.run(main())


def test_two_forks_of_one_place_at_one_moment_have_keys_of_their_own():
    async def main():
        purse = Purse()
        agent = Agent("sim:", tools=purse.tools(), clock=FakeClock())
        await agent.run("!say hello", session="s")
        for _ in range(2):
            fork = await agent.fork("s")
            await agent.run('!call pay {"amount": 1}\n!then\n!say ok', session=fork.session)
        assert len({key for _, key in purse.paid}) == 2

    asyncio.run(main())


def test_what_was_done_before_is_undone_where_it_was_done():
    async def main():
        undone = []

        @tool(effect="write")
        def free(room: int) -> str:
            """Free a room."""
            undone.append(room)
            return "free"

        @tool(effect="write", compensate=free)
        def book(room: int) -> str:
            """Book a room."""
            return "booked"

        broken = Failure(kind="invalid", message="no more")
        script = scripted(
            call_reply(("book", {"room": 1})), broken, call_reply(("book", {"room": 2})), broken, "ok"
        )
        agent = Agent(script, tools=[book])
        assert (await agent.run("?", session="s")).stop == "failed"
        fork = await agent.fork("s")
        result = await agent.resume(fork.session)
        assert [item.arguments for item in result.compensations] == ['{"room":2}']
        await agent.compensate(fork.session)
        assert undone == [2]
        await agent.compensate("s")
        assert undone == [2, 1]
        # Somebody who forks after that is told, as in the session itself.
        told = await agent.fork("s")
        heard = (await store_of(agent, told.session)).run.compensations
        assert [item.state for item in heard] == ["done"]

    asyncio.run(main())


async def store_of(agent, session):
    return fold_log(await agent.store.read(session)).state


def test_a_branch_on_another_model_answers_the_same_question(tmp_path):
    async def main():
        store = open_store(tmp_path / "log.db")
        agent = Agent("sim:anthropic/claude-sonnet-5-5", store=store)
        await agent.run("!say hello", session="s")
        other = Agent("sim:openai/gpt-6.1-sol", store=store)
        fork = await other.fork("s", "m1", new="t")
        assert (await other.resume(fork.session)).text == "hello"
        named = await fork_session(store, "s", "m1", "u", model="sim:gemini/gemini-3.8-flash")
        family = {branch.session: branch for branch in await agent.branches("t")}
        assert [(b.depth, b.parent, b.message, b.own_messages) for b in family.values()] == [
            (0, "", "", 2), (1, "s", "m1", 1), (1, "s", "m1", 0),
        ]  # fmt: skip
        assert family["t"].model == "sim:gpt-6.1-sol"
        assert family["u"].model == "sim:gemini-3.8-flash"
        assert family["t"].usd == (await store_of(agent, "t")).totals.spent.usd, (
            "the question itself cost nothing"
        )
        assert named.message == "m1"
        await store.close()

    asyncio.run(main())


def test_a_fork_of_a_fork_hangs_where_it_left():
    async def main():
        store = MemoryStore()
        agent = Agent("sim:", store=store)
        for words in ("one", "two", "three"):
            await agent.run(f"!say {words}", session="s")
        late = await agent.fork("s", "m4", new="late")
        await agent.run("!say other", session="late")
        await agent.fork("late", "m6", new="deep")
        await agent.fork("late", "m2", new="early")
        drawn = [(b.session, b.parent, b.message) for b in await agent.branches("deep")]
        assert drawn == [("s", "", ""), ("early", "s", "m2"), ("late", "s", "m4"), ("deep", "late", "m6")]
        assert late.at < (await store.read("late"))[-1].seq
        costs = {b.session: b.usd for b in await agent.branches("s")}
        total = sum(costs.values())  # type: ignore[arg-type]
        assert costs["early"] == costs["deep"] == 0
        assert total == (await store_of(agent, "s")).totals.spent.usd + costs["late"]

    asyncio.run(main())


def test_families_of_many_generations_and_with_a_damaged_member(tmp_path):
    path = tmp_path / "log.db"

    async def grow():
        store = open_store(path)
        agent = Agent("sim:", store=store)
        await agent.run("!say one", session="0")
        for generation in range(1, 60):
            await agent.fork(str(generation - 1), new=str(generation))
        await agent.fork("0", "m1", new="broken")
        await agent.run("!say two", session="broken")
        await store.close()

    async def drawn():
        store = open_store(path)
        family = {branch.session: branch for branch in await list_branches(store, "59")}
        await store.close()
        return family

    asyncio.run(grow())
    with closing(sqlite3.connect(path)) as db:
        db.execute(
            "UPDATE events SET data = replace(data, 'two', 'six') WHERE sid = (SELECT max(sid) FROM sessions)"
        )
        db.commit()
    family = asyncio.run(drawn())
    assert family["59"].depth == 59
    assert "was changed: its hash does not match" in family["broken"].read_error
    assert command(["show", "0", "--as", "log", "--tree", "--store", str(path)]) == 0


@pytest.mark.parametrize("family", FAMILIES)
def test_a_forks_first_request_reads_what_its_parent_had_cached(family):
    clock = FakeClock()
    simulator = Simulator(clock=clock)

    async def answer(outgoing):
        clock.advance(5)
        return await simulator.answer(outgoing)

    model = find_model(family.replace("/", ":"), environ={})
    line = ModelConnection(
        model=model, codec=load_codec(model.endpoint.family), transport=InProcessTransport(answer)
    )
    rules = " ".join(f"Rule {n}: look before you leap, and write down what you saw." for n in range(200))

    async def main():
        agent = Agent(line, instructions=rules, clock=clock, budget=Budget(steps=None))
        for turn in range(4):
            await agent.run(f"!say {' '.join(['word'] * 80)} {turn}", session="s")
        result = await agent.run("!say the last", session="s")
        shared = next(message for message in result.messages if message.id == "m6")
        fork = await agent.fork("s", "m6")
        forked = await agent.run("!say another way", session=fork.session)
        assert forked.steps == 1
        # Everything up to the reply it was forked at had been sent by the parent; only the rest is new.
        assert forked.usage.cache_read >= 0.95 * shared.usage.prompt, forked.usage
        moved = [r for r in await agent.store.read(fork.session) if isinstance(r.event, e.PrefixMoved)]
        assert not moved

    asyncio.run(main())


def test_a_fork_costs_the_same_however_long_the_session(tmp_path):
    def size(path):
        with closing(sqlite3.connect(path)) as db:
            (pages,), (free,) = (
                db.execute(f"PRAGMA {what}").fetchone() for what in ("page_count", "freelist_count")
            )
            return (pages - free) * db.execute("PRAGMA page_size").fetchone()[0]

    async def grown(path, turns):
        store = open_store(path)
        agent = Agent("sim:", store=store)
        events: Any = [e.Configured(settings=agent.settings, session="s")]
        for turn in range(turns):
            events.append(e.Prompted(parts=(Text(text=f"{turn} {'x' * 10_000}"),)))
            events.append(e.RunEnded(stop="cancelled"))
        records = []
        for seq, event in enumerate(events, 1):
            records.append(seal_record(seq, float(seq), event, records[-1].hash if records else GENESIS))
        await store.append("s", 0, records)
        before = size(path)
        for _ in range(FORKS):
            await agent.fork("s", f"m{turns}")
        await store.close()
        return before, size(path) - before

    small, grew_small = asyncio.run(grown(tmp_path / "small.db", 4))
    large, grew_large = asyncio.run(grown(tmp_path / "large.db", 200))
    assert large > 20 * small
    assert grew_large <= grew_small + 2 * 4096, "two pages more or less"
    assert grew_large / FORKS < 1_000, "bytes a fork"


def test_two_branches_beside_each_other():
    async def main():
        purse, store = Purse(), MemoryStore()
        agent = Agent("sim:", tools=purse.tools(), store=store)
        await agent.run("!say hello", session="s")
        fork = await agent.fork("s", new="t")
        await agent.run('!call pay {"amount": 3}\n!then\n!say Paid.', session="s")
        other = Agent("sim:openai/gpt-6.1-sol", tools=[purse.tools()[1]], store=store, instructions="Look.")
        await other.run('!call look {"at": 3}\n!then\n!say Paid.', session="t")
        found = await agent.compare("s", "t")
        assert (found.records, found.messages) == (fork.at, 2)
        assert [pair.kind for pair in found.pairs] == ["changed", "changed", "changed", "same"]
        assert {name: (a, b) for name, a, b in found.settings} == {
            "model": ("sim:claude-sonnet-5-5", "sim:gpt-6.1-sol"),
            "instructions": ("", "Look."),
            "tool pay": ("there", ""),
        }
        assert (found.a.calls, found.b.calls) == ((("pay", 1),), (("look", 1),))
        assert found.a.steps == found.b.steps == 2
        assert found.a.usage.total + (await agent.branches("t"))[0].usage.total > 0
        alone = await agent.run("!say hello", session="alone")
        strange = await compare_sessions(store, "s", alone.session)
        assert (strange.records, strange.messages) == (0, 2)
        with pytest.raises(SessionNotFound, match="nobody"):
            await agent.compare("s", "nobody")

    asyncio.run(main())


def test_a_fork_says_where_it_came_from(tmp_path, capsys):
    path = str(tmp_path / "log.db")

    async def main():
        store = open_store(path)
        agent = Agent("sim:", store=store)
        await agent.run("!say hello", session="s")
        fork = await agent.fork("s", "m1", new="t")
        (event,) = [r.event for r in await store.read("t") if isinstance(r.event, Forked)]
        assert event == Forked(session="t", parent="s", at=fork.at)
        await store.close()

    asyncio.run(main())
    assert command(["show", "t", "--store", path]) == 0
    assert "from s at record 2" in capsys.readouterr().out


# The screens.


def test_what_both_said_stands_below_what_each_said(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("BRIDLE_STORE", str(tmp_path / "log.db"))
    agent = Agent("sim:", store=open_store(tmp_path / "log.db"))
    for session, word in (("a", "one"), ("b", "two")):
        agent.run_sync(f"!say {word}", session=session)
        agent.run_sync("!say three", session=session)
    asyncio.run(agent.store.close())
    assert command(["session", "diff", "a", "b", "--unified"]) == 0
    marks = [line[:4] for line in capsys.readouterr().out.splitlines() if re.match("(. )?m[1-4] ", line)]
    assert marks == ["- m1", "+ m1", "- m2", "+ m2", "  m3", "  m4"]


@pytest.fixture
def family(tmp_path, monkeypatch):
    monkeypatch.setenv("BRIDLE_STORE", str(tmp_path / "log.db"))

    async def main():
        store = open_store(tmp_path / "log.db")
        agent = Agent("sim:", tools=Purse().tools(), store=store, instructions="Be kind.\nBe brief.")
        await agent.run(TWO_BATCHES, session="a-session-with-a-rather-long-name")
        await agent.fork("a-session-with-a-rather-long-name", "m3", new="by-train")
        long = "日本語 and 🎉, " * 30
        await agent.run(f'!call look {{"at": 9}}\n!then\n!say {long}', session="by-train")
        await agent.fork("by-train", new="deeper")
        await agent.fork("a-session-with-a-rather-long-name", new="later")
        other = Agent("sim:openai/gpt-6.1-sol", store=store, instructions="Be kind.\nBe long.")
        await other.run("!say no tools here", session="later")
        await store.close()

    asyncio.run(main())
    return "a-session-with-a-rather-long-name"


@pytest.mark.parametrize("width", [80, 120])
def test_no_screen_is_wider_than_the_screen(family, capsys, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    screens = (
        ["show", family, "--as", "log"], ["show", family, "--as", "log", "--tree"], ["session", "diff", family, "by-train"], ["session", "diff", "by-train", "later"],
        ["session", "diff", family, "by-train", "--unified", "--full"], ["sessions"],
    )  # fmt: skip
    for words in screens:
        assert command(words) == 0
        out = capsys.readouterr().out
        assert out.strip()
        assert max(map(display_width, out.splitlines())) <= width, words


def test_the_tree_shows_where_branches_part(family, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "90")
    assert command(["show", "by-train", "--as", "log", "--tree"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(family)
    assert lines[2].startswith("├─ at m3, record ")
    assert lines[4].startswith("│  └─ at m")
    assert "4 of 7 messages" in lines[3]
    assert lines[6].startswith("└─ at m6, record ")
    assert re.search(r"done +\$0\.\d{4}$", lines[2])
    assert lines[-1].startswith("4 sessions · $")
    assert command(["show", "by-train", "--as", "log", "--tree", "--json"]) == 0
    assert [row["session"] for row in json.loads(capsys.readouterr().out)] == [
        family,
        "by-train",
        "deeper",
        "later",
    ]


def test_the_difference_can_be_read_side_by_side_and_one_below_the_other(family, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    assert command(["session", "diff", family, "later"]) == 0
    wide = capsys.readouterr().out
    assert "model: sim:claude-sonnet-5-5 → sim:gpt-6.1-sol" in wide
    assert "  -Be brief.\n  +Be long." in wide
    assert re.search(r"^ +> m7 you$", wide, re.MULTILINE)
    assert command(["session", "diff", family, "by-train"]) == 0
    assert re.search(r"^m4 assistant · claude-sonnet-5-5 +\| m4 you$", capsys.readouterr().out, re.MULTILINE)
    assert command(["session", "diff", family, "by-train", "--unified"]) == 0
    below = capsys.readouterr().out
    assert '- m4 assistant · claude-sonnet-5-5\n-   pay({"amount":7})\n+ m4 you\n' in below.replace(
        '": ', '":'
    )
    assert command(["session", "diff", family, "by-train", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["messages"] == 3
    assert found["a"]["calls"] == [["pay", 1]]
    assert command(["session", "diff", family, family]) == 0
    assert "equal up to m6, and to the end" in capsys.readouterr().out


def test_the_places_of_a_session_and_forking_at_one(family, capsys):
    assert command(["show", family, "--as", "log", "--json"]) == 0
    places = {row.get("message"): row for row in json.loads(capsys.readouterr().out)}
    assert places["m3"]["who"] == "tool"
    assert (
        command(
            ["session", "fork", family, "--at", "m2", "--as", "t", "-m", "sim:openai/gpt-6.1-sol", "--json"]
        )
        == 0
    )
    told = json.loads(capsys.readouterr().out)
    assert (told["at"], told["message"]) == (places["m3"]["record"], "m3")
    assert [act["tool"] for act in told["completed_actions"]] == ["pay"]
    assert command(["session", "fork", family, "--at", "m2", "--as", "u"]) == 0
    out = capsys.readouterr().out
    assert f"not after record {places['m2']['record']}" in out
    assert 'c2_0 pay({"amount":7}) ok' in out.replace('": ', '":')
    assert command(["run", "--session", "t", "!say on", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["text"] == "on"
    assert command(["show", "t", "--as", "log", "--tree", "--json"]) == 0
    models = {row["session"]: row["model"] for row in json.loads(capsys.readouterr().out)}
    assert models["t"] == "sim:gpt-6.1-sol", "a session goes on with its own model"
    assert command(["session", "fork", family, "--at", "m77"]) == 2
    assert "no m77" in capsys.readouterr().err
    assert command(["session", "diff", family, "nobody"]) == 2
    assert command(["show", "nobody", "--as", "log", "--tree"]) == 2


def test_words_fit_their_columns():
    assert [display_width(words) for words in ("abc", "日本", "🎉", "e\u0301")] == [3, 4, 2, 1]
    assert fit_line("日本語日本語", 7) == "日本語…"
    assert fit_line("a\n\x1b[31m b", 20) == r"a \u001b[31m b"
    assert trim_line("a   b", 4) == "a…"
    assert wrap_text("one two three", 8, 9) == ["one two", "three"]
    assert wrap_text("x" * 25, 10, 9) == ["x" * 10, "x" * 10, "x" * 5]
    assert wrap_text("a\n\nb\nc", 10, 3) == ["a", "", "b …"]
    assert all(display_width(line) <= 9 for line in wrap_text("日本語 " * 20 + "x" * 40, 9, 99))


def test_a_fork_that_was_begun_and_never_finished_is_finished():
    async def main():
        purse, store = Purse(), MemoryStore()
        agent = Agent("sim:", tools=purse.tools(approve=True), store=store)
        await agent.run(TWO_BATCHES, session="s")
        length = len(await store.read("s"))
        await store.fork("s", length, "t")
        await agent.fork("s", new="t")
        assert isinstance((await store.read("t"))[-1].event, Forked)
        with pytest.raises(Conflict):
            await agent.fork("s", new="t")

    asyncio.run(main())


def test_the_page_runs_as_it_stands():
    page = (Path(__file__).parents[3] / "docs" / "lineage.md").read_text()
    code = "\n".join(re.findall(r"```python\n(.*?)```", page, re.DOTALL))
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


class Dying(MemoryStore):
    """A store that goes away after so many writes, as a machine does."""

    left = 1_000_000

    async def append(self, session, after, records, *, epoch=None):
        self.left -= 1
        if self.left < 0:
            raise StoreError("the disk is gone")
        await super().append(session, after, records, epoch=epoch)


async def _lives(seed):
    """A family that grows at random: prompts, resumptions, deaths at any write, forks of anybody anywhere."""
    dice, purse, store = random.Random(seed), Purse(), Dying()
    agents = [
        Agent(f"sim:{family}", tools=purse.tools(), store=store, clock=FakeClock()) for family in FAMILIES[:2]
    ]
    names = ["first"]
    await agents[0].run("!say hello", session="first")
    for turn in range(14):
        name, agent = dice.choice(names), dice.choice(agents)
        store.left = dice.choice((1_000_000, dice.randrange(1, 9)))
        try:
            if dice.random() < 0.4:
                length = len(await store.read(name))
                said = len((await store_of(agent, name)).conversation.transcript.messages)
                place = dice.choice((None, dice.randint(0, length), f"m{dice.randint(1, max(said, 1))}"))
                store.left = 1_000_000
                if said or not isinstance(place, str):
                    name = (await agent.fork(name, place, new=f"{turn}-{name}"[:40])).session
                    names.append(name)
                    if (await store_of(agent, name)).conversation.transcript.messages and dice.random() < 0.7:
                        await agent.resume(name)
            elif dice.random() < 0.4 and (await store_of(agent, name)).conversation.transcript.messages:
                await agent.resume(name)
            else:
                wanted = [
                    dice.choice((f'pay {{"amount": {turn}}}', f'look {{"at": {turn}}}'))
                    for _ in range(dice.randint(1, 3))
                ]
                batch = "\n".join(f"!call {call}" for call in wanted)
                await agent.run(f"{batch}\n!then\n!say done {turn}", session=name)
        except StoreError:
            continue  # what it left behind is what the next one finds
    store.left = 1_000_000
    for name in names:
        assert (await agents[0].run("!say at last", session=name)).done, (seed, name)
    keys = [key for _, key in purse.paid]
    assert len(set(keys)) == len(keys), (seed, "an action was done twice")
    family = await agents[0].branches("first")
    assert {branch.session for branch in family} == set(names)
    own = sum(branch.steps for branch in family)
    asked = {r.hash for n in names for r in await store.read(n) if isinstance(r.event, e.ModelReplied)}
    assert own == len(asked), (seed, "what is shared is counted once")


@pytest.mark.parametrize("seed", range(scale(12)))
def test_families_that_grow_at_random(seed):
    asyncio.run(_lives(seed))
