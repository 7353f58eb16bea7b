"""Compensations of runs inside runs: listed when the outer run fails, run once, in reverse order."""

import asyncio
import json
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from bridle import Agent, CodeMode, MisuseError, tool
from bridle.errors import Failure
from bridle.stores import open_store
from bridle.stores.memory import MemoryStore
from bridle.testing import scripted
from bridle.testing.scripted_model import call_reply

BROKEN = Failure(kind="invalid", message="the model is gone")


class Desk:
    """Books seats, and writes down what it did."""

    def __init__(self):
        self.lines = []

        def unbook(seat: str) -> str:
            """Undo."""
            self.lines.append(f"unbook {seat}")
            return "undone"

        @tool(effect="write", compensate=unbook)
        def book(seat: str) -> str:
            """Book a seat."""
            self.lines.append(f"book {seat}")
            return f"booked {seat}"

        self.book = book

    def booker(self, *seats, name="booker", **options):
        """An agent that books these seats, one after the other."""
        script = [call_reply(("book", {"seat": seat})) for seat in seats]
        return Agent(scripted(*script, "booked"), tools=[self.book], name=name, **options)


def ask(name):
    return call_reply((name, {"prompt": "?"}))


def program(code):
    return call_reply(("run_code", {"code": code}))


def make_agent_tool(desk):
    return {"tools": [desk.booker("b", "c").as_tool()]}, [ask("booker")], ["b", "c"]


def make_two_agent_tools(desk):
    tools = [desk.booker("b", name="one").as_tool(), desk.booker("c", name="two").as_tool()]
    return {"tools": tools}, [ask("one"), ask("two")], ["b", "c"]


def make_parallel_agent_tools(desk):
    tools = [desk.booker("b", name="one").as_tool(), desk.booker("c", name="two").as_tool()]
    return {"tools": tools}, [call_reply(("one", {"prompt": "?"}), ("two", {"prompt": "?"}))], ["b", "c"]


def make_three_levels(desk):
    deepest = desk.booker("c", name="deepest")
    script = [call_reply(("book", {"seat": "b"})), ask("deepest"), call_reply(("book", {"seat": "d"})), "ok"]
    middle = Agent(scripted(*script), tools=[desk.book, deepest.as_tool()], name="middle")
    return {"tools": [middle.as_tool()]}, [ask("middle")], ["b", "c", "d"]


def make_handover_inside(desk):
    taking = Agent(
        scripted("x", "x", call_reply(("book", {"seat": "c"})), "ok"), tools=[desk.book], name="taking"
    )
    script = [call_reply(("book", {"seat": "b"})), call_reply(("transfer_to_taking", {}))]
    first = Agent(scripted(*script), tools=[desk.book], name="first", handover=[taking])
    return {"tools": [first.as_tool()]}, [ask("first")], ["b", "c"]


def make_handover_outside(desk):
    """The agent that takes over has the agent as its tool."""
    inner = desk.booker("b", name="inner")
    taking = Agent(
        scripted("x", "x", ask("inner"), BROKEN), tools=[desk.book, inner.as_tool()], name="taking"
    )
    return {"handover": [taking]}, [call_reply(("transfer_to_taking", {}))], ["b"]


def make_program(desk):
    return {"code_mode": CodeMode(sandbox=None, direct=True)}, [program("book('b'); book('c')")], ["b", "c"]


def make_program_with_agent(desk):
    options = {"tools": [desk.booker("c").as_tool()], "code_mode": CodeMode(sandbox=None, direct=True)}
    return options, [program("book('b'); booker('?'); book('d')")], ["b", "c", "d"]


def make_agent_with_program(desk):
    inner = Agent(
        scripted(program("book('b'); book('c')"), "ok"), tools=[desk.book], name="inner",
        code_mode=CodeMode(sandbox=None, direct=True),
    )  # fmt: skip
    return {"tools": [inner.as_tool()]}, [ask("inner")], ["b", "c"]


def make_own_store(desk):
    return {"tools": [desk.booker("b", "c", store=MemoryStore()).as_tool()]}, [ask("booker")], ["b", "c"]


def make_inner_failure(desk):
    """The inner run fails too, after it did something."""
    inner = Agent(scripted(call_reply(("book", {"seat": "b"})), BROKEN), tools=[desk.book], name="inner")
    return {"tools": [inner.as_tool()]}, [ask("inner")], ["b"]


KINDS = {name[5:]: made for name, made in sorted(globals().items()) if name.startswith("make_")}


def make_outer(desk, kind, store):
    options, script, seats = KINDS[kind](desk)
    own = [desk.book, *options.pop("tools", ())]
    first, last = call_reply(("book", {"seat": "a"})), call_reply(("book", {"seat": "z"}))
    replies = [first, *script] if "handover" in options else [first, *script, last, BROKEN]
    after = [] if "handover" in options else ["z"]
    agent = Agent(scripted(*replies), tools=own, store=store, **options)
    return agent, ["a", *seats, *after]


@pytest.mark.parametrize("kind", KINDS)
def test_what_runs_inside_did_is_listed_and_undone_in_reverse_order(kind):
    desk, store = Desk(), MemoryStore()
    agent, seats = make_outer(desk, kind, store)
    result = agent.run_sync("?", "s")
    assert desk.lines == [f"book {seat}" for seat in seats], result.reason
    assert result.stop == "failed"
    newest_first = list(reversed(seats))
    assert [json.loads(each.arguments)["seat"] for each in result.compensations] == newest_first
    assert {each.state for each in result.compensations} == {"open"}
    desk.lines.clear()
    undone = asyncio.run(agent.compensate("s"))
    assert desk.lines == [f"unbook {seat}" for seat in newest_first]
    assert [each.state for each in undone] == ["done"] * len(seats)
    assert asyncio.run(agent.compensate("s")) == undone
    assert len(desk.lines) == len(seats), "each is undone once"
    assert len({each.reference for each in undone}) == len(seats)


@pytest.mark.slow
@pytest.mark.sampled
@pytest.mark.parametrize("kind", [kind for kind in KINDS if "program" not in kind and "store" not in kind])
def test_a_kill_at_any_compensation_leaves_none_out_and_repeats_none_that_ended(kind, tmp_path):
    """The process dies inside the second, third … undo; the next process goes on there."""
    seats = make_outer(Desk(), kind, MemoryStore())[1]
    for victim in seats:
        place = tmp_path / f"{victim}.txt"
        for attempt in range(2):
            ended = subprocess.run(
                [sys.executable, __file__, kind, str(tmp_path / f"{victim}.db"), str(place), victim, str(attempt)],
                capture_output=True, text=True,
            )  # fmt: skip
            assert ended.returncode == (0 if attempt else 9), ended.stderr
        lines = place.read_text().split()
        again = [here for here, following in pairwise(lines) if here == following]
        assert again == [victim], "only the one that was cut is done again, under the same key"
        del lines[lines.index(victim)]
        assert lines == list(reversed(seats))


def run_program(kind, path, place, victim, attempt):
    """One process of the test above: run and die in an undo, or go on with the undoing."""
    desk = Desk()

    def unbook(seat: str) -> str:
        """Undo."""
        with Path(place).open("a") as file:
            file.write(f"{seat}\n")
        if seat == victim and attempt == "0":
            os._exit(9)
        return "undone"

    undo = tool(unbook, effect="write", on_unknown="retry")

    @tool(effect="write", compensate=undo)
    def book(seat: str) -> str:
        """Book a seat."""
        return f"booked {seat}"

    desk.book = book
    agent, seats = make_outer(desk, kind, open_store(path))

    async def main():
        if attempt == "0":
            await agent.run("?", "s")
        found = await agent.compensate("s")
        assert [each.state for each in found] == ["done"] * len(seats)
        await agent.store.close()

    asyncio.run(main())


def test_a_run_inside_a_function_is_undone_by_its_own_agent_first():
    """The outer agent does not know the inner one, so it says what to do."""
    desk, store = Desk(), MemoryStore()
    inner = desk.booker("b", store=store)
    outer_desk = Desk()

    @tool(effect="write")
    async def delegate() -> str:
        """Ask another agent."""
        return (await inner.run("?", "inner")).text

    outer = Agent(scripted(call_reply(("delegate", {})), BROKEN), tools=[delegate], store=store)
    result = outer.run_sync("?", "s")
    assert [each.reference for each in result.compensations] == ["inner/" + result.compensations[0].call_id]
    with pytest.raises(MisuseError, match=r"agent\.compensate\('inner'\)"):
        asyncio.run(outer.compensate("s"))
    asyncio.run(inner.compensate("inner"))
    (done,) = asyncio.run(outer.compensate("s"))
    assert done.state == "done"
    assert desk.lines == ["book b", "unbook b"]
    assert outer_desk.lines == []


def test_a_run_that_cannot_be_found_is_named(caplog):
    desk = Desk()
    inner = desk.booker("b")  # in a store of its own

    @tool(effect="write")
    async def delegate() -> str:
        """Ask another agent."""
        return (await inner.run("?", "inner")).text

    outer = Agent(scripted(call_reply(("delegate", {})), BROKEN), tools=[delegate])
    outer.run_sync("?", "s")
    assert "session inner of a run inside the tool delegate is not in this store" in caplog.text
    assert "agent.compensate('inner')" in caplog.text


def test_a_session_that_another_run_prompted_since_is_left_alone():
    desk, store = Desk(), MemoryStore()
    inner = Agent("sim:", tools=[desk.book], store=store)

    @tool(effect="write")
    async def delegate() -> str:
        """Ask another agent."""
        return (await inner.run('!call book {"seat": "b"}', "inner")).text

    outer = Agent(scripted(call_reply(("delegate", {})), BROKEN), tools=[delegate, desk.book], store=store)
    outer.run_sync("?", "s")
    inner.run_sync('!call book {"seat": "c"}', "inner")
    assert asyncio.run(outer.compensate("s")) == ()
    assert desk.lines == ["book b", "book c"]


if __name__ == "__main__":
    run_program(*sys.argv[1:])
