"""Instructions written by functions: recorded once, sent in place, and never written twice."""

import asyncio
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from bridle import Agent, Budget, MisuseError, RunContext, per_turn
from bridle.core.context.assemble import assemble_request
from bridle.core.state import State
from bridle.events import InstructionWritten
from bridle.run.recovery.session_log import load_log
from bridle.stores import open_store
from bridle.stores.memory import MemoryStore
from bridle.testing import scripted
from bridle.values import events as e
from tests.run.context.instructed_agent import SESSION, Shop, drive, make_agent
from tests.suite.campaign import choose_some

PROGRAM = Path(__file__).with_name("instructed_agent.py")


def events(store, session=SESSION):
    return [record.event for record in asyncio.run(store.read(session))]


def state_of(store, session=SESSION) -> State:
    return asyncio.run(load_log(store, session)).state


def summary(found):
    """The decisions of a log: what a resumed run must share with one that was not interrupted."""
    kinds = (e.Prompted, InstructionWritten, e.ModelReplied, e.RunEnded)
    asked = dict.fromkeys((event.step, event.digest) for event in found if isinstance(event, e.ModelAsked))
    decided = [event for event in found if isinstance(event, kinds)]
    stable = [
        (type(event), event.reply.text) if isinstance(event, e.ModelReplied) else event for event in decided
    ]
    return stable, list(asked)


def test_texts_and_functions_are_sent_in_order_and_recorded(tmp_path):
    store, shop = MemoryStore(), Shop("Acme", tmp_path)
    asyncio.run(drive(make_agent(store), shop))
    state = state_of(store)
    request, _ = assemble_request(state)
    assert [part.text for part in request.system] == [
        "Be brief.", "You work for Acme.\n\nTenant acme, caller ann.",
    ]  # fmt: skip
    written = [event for event in events(store) if isinstance(event, InstructionWritten)]
    assert [(event.name, event.scope) for event in written] == [
        ("greet", "session"), ("open_hours", "turn"), ("describe", "session"), ("stock", "turn"),
        ("open_hours", "turn"), ("stock", "turn"),
    ]  # fmt: skip
    assert [version.name for version in written[0].templates] == ["greeting"]
    prompts = [message for message in state.conversation.transcript.messages if message.role == "user"]
    assert [[part.text for part in message.parts] for message in prompts] == [
        [
            f"prompt {number}",
            "Instructions for this message:\nOpen until six. Step 1.",
            "Instructions for this message:\nThree apples.",
        ]
        for number in (0, 1)
    ]
    assert [message.added_parts for message in prompts] == [(1, 2), (1, 2)]


def test_the_prefix_stays_over_steps_and_prompts(tmp_path):
    store = MemoryStore()
    asyncio.run(drive(make_agent(store), Shop("Acme", tmp_path)))
    assert not any(isinstance(event, e.PrefixMoved) for event in events(store))


class Crash(Exception):
    pass


@pytest.mark.parametrize("durable", [True, False])
def test_a_crash_at_every_write_leaves_the_same_log(tmp_path, durable):
    """`durable`: the record is stored before the crash, so that no function was called in vain."""

    class Crashing(MemoryStore):
        crash_at = 0

        async def append(self, session, after, records, *, epoch=None):
            crashes = self.crash_at and records[0].seq == self.crash_at
            if crashes and not durable:
                self.crash_at = 0
                raise Crash
            await super().append(session, after, records, epoch=epoch)
            if crashes:
                self.crash_at = 0
                raise Crash

    def live(at):
        folder = tmp_path / f"{durable}{at}"
        folder.mkdir()
        store, shop = Crashing(), Shop("Acme", folder)
        store.crash_at = at
        for _ in range(3):
            try:
                asyncio.run(drive(make_agent(store), shop))
                break
            except Crash:
                continue
        return store, Counter((folder / "calls").read_text().split())

    whole, calls = live(0)
    assert calls == {"greet": 1, "describe": 1, "open_hours": 2, "stock": 2}
    expected, length = summary(events(whole)), len(events(whole))
    for at in range(1, length + 1):
        store, called = live(at)
        assert summary(events(store)) == expected, at
        if durable:
            assert called == calls, at
        else:
            # Only the one whose record was lost is called again: it never counted.
            lost = events(whole)[at - 1]
            again = [lost.name] if isinstance(lost, InstructionWritten) else []
            assert called == calls + Counter(again), at


@pytest.mark.slow
def test_kill_9_after_every_record_leaves_the_same_log(tmp_path):
    def process(folder, at):
        return subprocess.run([sys.executable, PROGRAM, folder, str(at)], check=False).returncode

    def read(folder):
        return events(open_store(folder / "log.db"))

    whole = tmp_path / "whole"
    whole.mkdir()
    assert process(whole, 0) == 0
    expected, calls = summary(read(whole)), (whole / "calls").read_text().split()
    for at in choose_some(list(range(1, len(read(whole)) + 1)), 0.2):
        folder = tmp_path / str(at)
        folder.mkdir()
        assert process(folder, at) == -signal.SIGKILL
        assert process(folder, 0) == 0
        assert summary(read(folder)) == expected, at
        assert Counter((folder / "calls").read_text().split()) == Counter(calls), at


def test_a_failed_function_ends_the_run_and_is_called_again_on_resume():
    async def main():
        store, calls = MemoryStore(), []

        def greet() -> str:
            calls.append("greet")
            return "Hi."

        def fail(ctx: RunContext) -> str:
            calls.append("fail")
            if calls.count("fail") == 1:
                raise ConnectionError("no directory")
            return "Better."

        agent = Agent(scripted("fine"), instructions=[greet, fail], store=store)
        first = await agent.run("?", "s")
        assert (first.stop, first.reason) == (
            "failed", "instruction `fail` failed with ConnectionError: no directory. Fix it and resume",
        )  # fmt: skip
        second = await agent.resume("s")
        assert (second.stop, second.text) == ("done", "fine")
        assert calls == ["greet", "fail", "fail"]

    asyncio.run(main())


def test_a_function_that_takes_too_long_ends_the_run():
    async def hang() -> str:
        await asyncio.Event().wait()
        return ""

    result = Agent(scripted("never"), instructions=hang, budget=Budget(seconds=0.05)).run_sync("?")
    assert result.stop in ("failed", "seconds")
    assert "never" not in result.text


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: 3, "instruction `lambda` failed with TypeError: it returned int, not str"),
        (lambda: None, "instruction `lambda` failed with TypeError: it returned NoneType, not str"),
    ],
)
def test_what_is_not_a_text_ends_the_run(wrong, message):
    result = Agent(scripted("never"), instructions=wrong).run_sync("?")
    assert (result.stop, result.reason) == ("failed", f"{message}. Fix it and resume")


def take_two(a, b):
    return ""


def only_keyword(*, a):
    return ""


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (3, "`instructions` must be a string, a function returning one, or a list of these, not `int`"),
        (["x", 3], "not `int`"),
        (str, "not `type`"),
        (per_turn(3), "not `int`"),  # type: ignore[arg-type]
        (take_two, "instruction `take_two` must take a RunContext or nothing"),
        (only_keyword, "instruction `only_keyword` must take a RunContext or nothing"),
        ([lambda: "a", lambda: "b"], "two instruction functions are named 'lambda'"),
    ],
)
def test_wrong_instructions_are_refused_when_the_agent_is_made(given, message):
    with pytest.raises(MisuseError, match=message):
        Agent("sim:", instructions=given)


def test_an_empty_text_is_recorded_and_adds_nothing():
    store = MemoryStore()
    Agent(scripted("ok"), instructions=[lambda: " ", per_turn(write_nothing)], store=store).run_sync("?", "s")
    assert [event.name for event in events(store, "s") if isinstance(event, InstructionWritten)] == [
        "lambda", "write_nothing",
    ]  # fmt: skip
    request, _ = assemble_request(state_of(store, "s"))
    assert (request.system, len(request.messages[0].parts)) == ((), 1)


def write_nothing() -> str:
    return ""


@dataclass
class Clinic:
    name: str


def name_clinic(ctx: RunContext[Clinic]) -> str:
    return f"Clinic {ctx.context.name}."


def name_again(ctx: RunContext[Clinic]) -> str:
    return f"Still {ctx.context.name}."


def test_the_context_is_needed_only_while_a_function_is_due():
    async def main():
        store, clinic = MemoryStore(), Clinic("North")
        once = Agent(scripted("a", "b"), instructions=name_clinic, store=store)
        with pytest.raises(MisuseError, match="instruction `name_clinic` needs a context of type Clinic"):
            await once.run("?", "s")
        assert await store.read("s") == ()
        await once.run("?", "s", context=clinic)
        assert (await once.run("again", "s")).text == "b"
        every: Any = Agent(
            scripted("a", "b", "c"), instructions=[name_clinic, per_turn(name_again)], store=store
        )
        with pytest.raises(MisuseError, match="instruction `name_again` needs a context of type Clinic"):
            await every.run("?", "s")
        assert (await every.run("?", "s", context=clinic)).stop == "done"

    asyncio.run(main())


def test_a_function_added_later_is_called_once_and_the_move_of_the_prefix_is_recorded():
    async def main():
        store: Any = MemoryStore()
        model: Any = scripted("a", "b", "c")
        await Agent(model, instructions="Be brief.", store=store).run("?", "s")
        later: Any = Agent(model, instructions=["Be brief.", name_clinic], store=store)
        await later.run("?", "s", context=Clinic("North"))
        await later.run("?", "s")
        found = [record.event for record in await store.read("s")]
        assert [event.name for event in found if isinstance(event, InstructionWritten)] == ["name_clinic"]
        moved = [event for event in found if isinstance(event, e.PrefixMoved)]
        assert [(event.layer, event.cause) for event in moved] == [("system", "settings_changed")]

    asyncio.run(main())


def test_a_fork_keeps_what_was_written():
    async def main():
        store = MemoryStore()
        agent = Agent(scripted("a", "b"), instructions=name_clinic, store=store)
        await agent.run("?", "s", context=Clinic("North"))
        fork = await agent.fork("s")
        await agent.run("again", fork.session)
        state = (await load_log(store, fork.session)).state
        request, _ = assemble_request(state)
        assert [part.text for part in request.system] == ["Clinic North."]

    asyncio.run(main())


def test_text_alone_leaves_settings_and_log_as_they_were():
    store = MemoryStore()
    Agent(scripted("ok"), instructions=["One.", "Two."], store=store).run_sync("?", "s")
    configured, *_ = events(store, "s")
    assert configured.settings.instructions == "One.\n\nTwo."
    assert configured.settings.instruction_functions == ()
    kinds = [type(event).__name__ for event in events(store, "s")]
    assert kinds == ["Configured", "Prompted", "ModelAsked", "ModelReplied", "RunEnded"]
