"""Output functions: the model calls one, and what it returns is the answer, on every wire."""

import asyncio
import functools
import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from bridle import Agent, Budget, MisuseError, ModelRetry, RunContext, tool
from bridle.hooks import Answer, Refuse, after_tool, before_tool, on_end
from bridle.testing import scripted
from bridle.testing.scripted_model import call_reply
from bridle.values import events as e
from tests.suite.crashes import kill_after_every_record, kill_after_record
from tests.suite.wire_models import SCHEMA_MODELS


@dataclass
class Booking:
    code: str
    seats: int


@dataclass
class Refusal:
    reason: str


@dataclass
class Plane:
    seats: int


def book(ctx: RunContext[Plane], flight: str, seats: int = 1) -> Booking:
    """Book seats on a flight.

    Args:
        flight: Number of the flight.
    """
    if seats > ctx.context.seats:
        raise ModelRetry(f"only {ctx.context.seats} seats are left")
    return Booking(flight.upper(), seats)


async def add(numbers: list[int]) -> int:
    return sum(numbers)


def note(text: str) -> str:
    return text


def run_whole(agent, **options):
    return agent.run_sync("?", **options)


def run_streamed(agent, **options):
    async def run():
        async for item in agent.stream("?", **options):
            last = item
        return last.result

    return asyncio.run(run())


def read_finished(agent, session):
    """The results of calls, with what each output function returned."""
    events = [record.event for record in asyncio.run(agent.store.read(session))]
    return [
        (event.name, event.result.outcome, event.output)
        for event in events
        if isinstance(event, e.ToolFinished)
    ]


@pytest.mark.parametrize("run", [run_whole, run_streamed])
@pytest.mark.parametrize("model", SCHEMA_MODELS)
def test_the_value_of_the_function_is_the_answer(model, run):
    replies = [call_reply(("book", {"flight": "az1", "seats": seats})) for seats in (9, 2)]
    agent = Agent(scripted(*replies, model=model), output=book)
    result = run(agent, context=Plane(4)).raise_for_stop()
    assert result.output == Booking("AZ1", 2)
    assert json.loads(result.text) == {"code": "AZ1", "seats": 2}
    assert [message.results[0].text for message in result.messages if message.results] == [
        "only 4 seats are left",
        "Accepted.",
    ]
    assert read_finished(agent, result.session) == [
        ("book", "retry", None),
        ("book", "ok", '{"code":"AZ1","seats":2}'),
    ]


@pytest.mark.parametrize("model", SCHEMA_MODELS)
def test_a_simulated_model_that_answers_in_words_is_asked_for_the_call(model):
    result = Agent(model, output=add).run_sync("!say Six.\n")  # type: ignore[arg-type]
    assert isinstance(result.raise_for_stop().output, int)
    assert "Give your final answer by calling the tool `add`." in result.messages[2].text


def test_the_signature_is_the_schema_of_a_tool():
    [spec] = Agent("sim:", output=book).settings.tools
    [same] = Agent("sim:", tools=[book]).settings.tools
    assert (spec.name, spec.description, spec.parameters) == (same.name, same.description, same.parameters)
    assert (spec.effect, spec.always_visible) == ("exclusive", True)


@pytest.mark.parametrize("model", SCHEMA_MODELS)
def test_the_model_chooses_a_function_or_a_type(model):
    output: Any = [book, add, Refusal]
    for call, answer in (
        (("book", {"flight": "az1"}), Booking("AZ1", 1)),
        (("add", {"numbers": [1, 2]}), 3),
        (("Refusal", {"reason": "full"}), Refusal("full")),
    ):
        agent = Agent(scripted(call_reply(call), model=model), output=output)
        assert agent.settings.output.mode == "tool"
        assert agent.run_sync("?", context=Plane(4)).raise_for_stop().output == answer


def test_equal_values_of_two_functions_keep_their_types():
    def give_text() -> str:
        return "2026-01-01"

    def give_bytes_count() -> float:
        return 3

    output = [give_text, give_bytes_count]
    for name, wanted in (("give_text", str), ("give_bytes_count", float)):
        agent = Agent(scripted(call_reply((name, {}))), output=output)
        assert type(agent.run_sync("?").output) is wanted


def test_methods_partials_and_tools_are_accepted():
    class Desk:
        def __init__(self, rate):
            self.rate = rate

        def price(self, cents: int) -> int:
            return cents * self.rate

        @tool(name="price_tool", timeout=5)
        def other(self, cents: int) -> int:
            return cents + self.rate

    def fixed(rate: int, cents: int) -> int:
        return rate - cents

    for function, name, wanted in (
        (Desk(3).price, "price", 6),
        (Desk(3).other, "price_tool", 5),
        (functools.partial(fixed, rate=10), "fixed", 8),
    ):
        agent = Agent(scripted(call_reply((name, {"cents": 2}))), output=function)
        assert agent.run_sync("?").output == wanted


# Beside other calls


def make_log():
    done = []

    @tool(effect="write")
    def write(text: str) -> str:
        done.append(text)
        return text

    def finish(text: str) -> str:
        done.append(f"finish {text}")
        if text == "again":
            raise ModelRetry("another text")
        return text

    return done, write, finish


@pytest.mark.parametrize("run", [run_whole, run_streamed])
def test_calls_before_the_answer_run_and_calls_after_it_do_not(run):
    done, write, finish = make_log()
    calls = [
        ("write", {"text": "a"}),
        ("finish", {"text": "x"}),
        ("write", {"text": "b"}),
        ("finish", {"text": "y"}),
    ]
    agent = Agent(scripted(call_reply(*calls)), tools=[write], output=finish)
    result = run(agent)
    assert (result.output, done) == ("x", ["a", "finish x"])
    assert read_finished(agent, result.session) == [
        ("write", "ok", None),
        ("finish", "ok", '{"value":"x"}'),
        ("write", "cancelled", None),
        ("finish", "cancelled", None),
    ]
    assert result.messages[-1].results[-1].text == "This call was not run: the answer was already given."


def test_calls_after_a_refused_answer_run():
    done, write, finish = make_log()
    calls = [("finish", {"text": "again"}), ("write", {"text": "b"}), ("finish", {"text": "y"})]
    agent = Agent(scripted(call_reply(*calls)), tools=[write], output=finish)
    assert agent.run_sync("?").output == "y"
    assert done == ["finish again", "b", "finish y"]


def test_the_first_answer_counts_whether_a_type_or_a_function_gives_it():
    done, _, finish = make_log()
    calls = [("finish", {"text": "x"}), ("Refusal", {"reason": "no"})]
    for order, wanted in ((calls, "x"), (calls[::-1], Refusal("no"))):
        done.clear()
        agent = Agent(scripted(call_reply(*order)), output=[finish, Refusal])
        assert agent.run_sync("?").output == wanted
        assert done == (["finish x"] if wanted == "x" else [])


def test_an_answer_needs_no_tool_calls_of_the_budget():
    _, write, finish = make_log()
    replies = [call_reply(("write", {"text": "a"})), call_reply(("finish", {"text": "x"}))]
    agent = Agent(scripted(*replies), tools=[write], output=finish, budget=Budget(tool_calls=1))
    assert agent.run_sync("?").raise_for_stop().output == "x"


def test_an_approved_output_function_runs_in_another_process():
    def pay(cents: int) -> int:
        return cents

    agent = Agent(scripted(call_reply(("pay", {"cents": 7}))), output=tool(pay, approve=True))
    waiting = agent.run_sync("?")
    assert (waiting.stop, waiting.output) == ("waiting", None)

    async def approve():
        [pending] = await agent.approvals(waiting.session)
        await agent.approve(waiting.session, pending.id, arguments={"cents": 5})
        return await agent.resume(waiting.session)

    assert asyncio.run(approve()).output == 5


# Failures


def test_a_function_that_is_never_satisfied_ends_the_run():
    def never(x: int) -> int:
        raise ModelRetry(f"not {x}")

    agent = Agent(scripted(*(call_reply(("never", {"x": x})) for x in range(5))), output=never)
    result = agent.run_sync("?")
    assert (result.stop, result.output) == ("failed", None)
    assert result.reason == "no answer was accepted; last problem: not 2"


def test_a_value_of_another_type_is_an_error_that_names_the_function():
    def wrong(x: int) -> int:
        return "three"  # type: ignore[return-value]

    result = Agent(scripted(*[call_reply(("wrong", {"x": 1}))] * 3), output=wrong).run_sync("?")
    assert result.stop == "failed"
    assert "output function `wrong` returned 'three', which is not of its return type" in result.reason


def refuse_output(output, **options):
    with pytest.raises(MisuseError) as raised:
        Agent("sim:", output=output, **options)
    return str(raised.value)


def test_what_cannot_be_an_output_function_is_refused():
    def bare(x: int):
        return x

    def opened(x: int) -> object: ...

    class Odd: ...

    def odd(x: int) -> Odd: ...

    assert refuse_output(bare) == (
        "output function `bare`: it has no return annotation; write the type of the answer, as in `-> int`"
    )
    assert refuse_output(odd).startswith(
        "output function `odd`: its return type cannot be recorded; output type"
    )
    assert refuse_output(add, tools=[tool(name="add")(note)]) == (
        "an output function and a tool are both named 'add'; rename one"
    )
    assert refuse_output(add, validate=lambda answer: answer) == (
        "`validate` cannot check an output function; raise ModelRetry in the function instead"
    )
    assert refuse_output(add, tool_choice="none").endswith("which tool_choice='none' forbids")
    for options, words in (
        ({"effect": "read"}, "effect='read': it runs alone, because its result ends the run"),
        ({"on_unknown": "ask"}, "on_unknown='ask': its value cannot be found later; use 'retry' or 'report'"),
        ({"once_per": "run"}, "once_per: a call that it accepts ends the run"),
    ):
        assert refuse_output(tool(**options)(note)) == f"output function `note` cannot have {words}"  # type: ignore[call-overload]
    assert refuse_output(Agent("sim:", name="inner").as_tool()) == (
        "`output` takes types and functions, not the tool `inner`; pass its function"
    )


def test_a_missing_context_is_refused_before_anything_is_asked():
    with pytest.raises(MisuseError, match="tool `book` needs a context of type Plane"):
        Agent("sim:", output=book).run_sync("?")


# Hooks


def test_hooks_answer_and_refuse_in_its_place():
    @before_tool()
    def answer(ctx: RunContext, call):
        return Answer(text='{"value": 12}')

    @before_tool()
    def wrong(ctx: RunContext, call):
        return Answer(text="twelve")

    @after_tool()
    def withhold(ctx: RunContext, call, result):
        return Refuse(reason="not today")

    @on_end()
    def double(ctx: RunContext, end):
        return Answer(text=json.dumps({"value": json.loads(end.answer)["value"] * 2}))

    def run(hook):
        replies = [call_reply(("add", {"numbers": [1]}))] * 3
        return Agent(scripted(*replies), output=add, hooks=[hook]).run_sync("?")  # type: ignore[arg-type]

    assert run(answer).output == 12
    assert run(double).output == 2
    assert "its text is an answer that the output type rejects" in run(wrong).reason
    assert run(withhold).stop == "failed"


# Options of a run


def test_a_run_with_other_tools_keeps_the_output_function():
    _, write, finish = make_log()
    agent = Agent(scripted(call_reply(("finish", {"text": "x"}))), output=finish)
    assert agent.run_sync("?", tools=[*agent.tools.values(), write]).output == "x"
    assert agent.run_sync("?", tools=[]).output == "x"


# Killed after every event


def killed_agent(folder):
    """An agent whose functions note each of their calls in a file that no log knows of."""

    def note_call(name):
        with (folder / "calls").open("a") as calls:
            calls.write(f"{name}\n")

    @tool(effect="write", on_unknown="retry")
    def look(city: str) -> str:
        note_call(f"look {city}")
        return city

    @tool(on_unknown="retry")
    async def give(prices: dict[str, int]) -> dict[str, int]:
        note_call(f"give {json.dumps(prices)}")
        if "Rome" not in prices:
            raise ModelRetry("Rome is missing")
        return {city: cents * 2 for city, cents in prices.items()}

    replies = [
        call_reply(("look", {"city": "Rome"}), ("give", {"prices": {"Oslo": 3}})),
        call_reply(("give", {"prices": {"Rome": 2}}), ("look", {"city": "Nice"})),
    ]
    return Agent(scripted(*replies), tools=[look], output=[give, Refusal], store=str(folder / "log.db"))


def run_and_kill(folder, count):
    """Run in this process, which is killed after its `count`th record."""
    agent = killed_agent(Path(folder))
    kill_after_record(count)
    asyncio.run(agent.run("prices", session="s"))


def facts(folder):
    async def read():
        agent = killed_agent(folder)
        records = await agent.store.read("s")
        await agent.store.close()
        return records

    skipped = (e.Configured, e.Resumed, e.ModelAsked, e.ToolStarted)  # of what was cut, there are two
    events = [record.event for record in asyncio.run(read()) if not isinstance(record.event, skipped)]
    return [event.reply.parts if isinstance(event, e.ModelReplied) else event for event in events]


@pytest.mark.slow
def test_killed_after_every_event_no_answer_is_made_twice(tmp_path):
    whole_folder = tmp_path / "whole"
    whole_folder.mkdir()
    assert killed_agent(whole_folder).run_sync("prices", session="s").output == {"Rome": 4}
    expected = facts(whole_folder)
    called = (whole_folder / "calls").read_text().splitlines()
    assert called == ["look Rome", 'give {"Oslo": 3}', 'give {"Rome": 2}']
    for count, folder in kill_after_every_record(tmp_path, __file__):

        async def resume(folder=folder):
            agent = killed_agent(folder)
            ended = await agent.resume("s")
            await agent.store.close()
            return ended

        assert asyncio.run(resume()).output == {"Rome": 4}
        assert (folder / "calls").read_text().splitlines() == called, f"killed after record {count}"
        assert facts(folder) == expected, f"killed after record {count}"


def paying_agent(folder):
    """An agent whose first payment kills its process."""

    def pay(cents: int) -> int:
        with (folder / "paid").open("a") as paid:
            paid.write(f"{cents} ")
        if cents == 7:
            os.kill(os.getpid(), signal.SIGKILL)
        return cents

    replies = [call_reply(("pay", {"cents": cents})) for cents in (7, 8)]
    return Agent(scripted(*replies), output=pay, store=str(folder / "log.db"))


def test_a_call_that_a_crash_interrupted_is_reported_and_not_repeated(tmp_path):
    program = f"import pathlib, test_output_functions as t; t.paying_agent(pathlib.Path({str(tmp_path)!r}))"
    child = subprocess.run(
        [sys.executable, "-c", f"{program}.run_sync('?', session='s')"], cwd=Path(__file__).parent
    )
    assert child.returncode == -signal.SIGKILL
    result = paying_agent(tmp_path).resume_sync("s")
    assert result.raise_for_stop().output == 8
    assert (tmp_path / "paid").read_text() == "7 8 "
    assert "Whether it took effect is unknown" in result.messages[2].results[0].text


def test_a_run_cancelled_after_the_answer_ends_with_it(tmp_path):
    done = []

    def pay(cents: int) -> int:
        done.append(cents)
        return cents

    async def run():
        agent = Agent(scripted(call_reply(("pay", {"cents": 7}), ("pay", {"cents": 8}))), output=pay)
        stream = agent.stream("?", session="s")
        async for item in stream:
            if isinstance(item, e.ToolFinished):
                stream.cancel()
        ended = await stream.result()
        return ended, await agent.resume("s") if ended.stop == "cancelled" else ended

    ended, resumed = asyncio.run(run())
    assert ended.stop in ("cancelled", "done")
    assert resumed.raise_for_stop().output == 7
    assert done == [7]
