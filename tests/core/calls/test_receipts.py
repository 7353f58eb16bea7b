"""Tools for which equal arguments are the same action (`once_per`)."""

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest

from bridle import Agent, Budget, tool
from bridle.errors import BadTool
from bridle.testing import scripted
from bridle.testing.fake_clock import FakeClock
from bridle.testing.scripted_model import call_reply
from bridle.values.events import ToolFinished, ToolStarted
from bridle.values.message import Media, Text

PAY = ("pay", {"amount": 5})
SAME = ("pay", {"note": "", "amount": 5})


class Bank:
    """A tool that counts how often it really pays."""

    def __init__(self, once_per, **options):
        self.paid = []

        @tool(effect="write", once_per=once_per, **options)
        def pay(amount: int, note: str = "") -> str:
            """Pay somebody."""
            self.paid.append(amount)
            return f"receipt number {len(self.paid)}"

        self.tool = pay


def results(result):
    return [part for message in result.messages if message.role == "tool" for part in message.parts]


def test_a_repeated_call_gets_the_receipt_and_the_tool_does_not_run_again():
    bank = Bank("run")
    seen = []
    agent = Agent(
        scripted(call_reply(PAY), call_reply(SAME), "done"), tools=[bank.tool], watchers=[Seen(seen)]
    )
    result = agent.run_sync("pay")
    assert (result.text, bank.paid) == ("done", [5])
    first, second = results(result)
    assert "receipt number 1" in second.text
    assert "not run again" in second.text
    assert [event.call_id for event in seen if isinstance(event, ToolStarted)] == [first.call_id]
    again = [event for event in seen if isinstance(event, ToolFinished)][1]
    assert (again.source, again.same_as_call) == ("receipt", first.call_id)


def test_other_arguments_are_another_action():
    bank = Bank("session")
    agent = Agent(scripted(call_reply(PAY), call_reply(("pay", {"amount": 6})), "done"), tools=[bank.tool])
    agent.run_sync("pay")
    assert bank.paid == [5, 6]


def test_without_the_option_a_call_is_run_as_often_as_it_is_made():
    bank = Bank(None)
    Agent(scripted(call_reply(PAY), call_reply(PAY), "done"), tools=[bank.tool]).run_sync("pay")
    assert bank.paid == [5, 5]


@pytest.mark.parametrize(("once_per", "paid"), [("run", [5, 5]), ("session", [5])])
def test_a_run_ends_where_a_session_goes_on(once_per, paid):
    bank = Bank(once_per)
    agent = Agent(scripted(call_reply(PAY), "one", call_reply(PAY), "two"), tools=[bank.tool])
    agent.run_sync("pay", session="s")
    assert agent.run_sync("pay again", session="s").text == "two"
    assert bank.paid == paid


@pytest.mark.parametrize(("later", "paid"), [(59, [5]), (61, [5, 5])])
def test_a_stated_time(later, paid):
    clock, bank = FakeClock(), Bank(60)
    agent = Agent(scripted(call_reply(PAY), "one", call_reply(PAY), "two"), tools=[bank.tool], clock=clock)
    agent.run_sync("pay", session="s")
    clock.advance(later)
    agent.run_sync("pay again", session="s")
    assert bank.paid == paid


def test_equal_calls_of_one_reply_are_run_once():
    bank = Bank("run")
    result = Agent(scripted(call_reply(PAY, SAME, PAY), "done"), tools=[bank.tool]).run_sync("pay")
    assert (result.text, bank.paid) == ("done", [5])
    assert ["receipt number 1" in each.text for each in results(result)] == [True] * 3


def test_a_number_is_the_same_however_it_is_written():
    bank = Bank("run")
    script = scripted(call_reply(PAY), call_reply(("pay", {"amount": 5.0})), "done")
    assert (Agent(script, tools=[bank.tool]).run_sync("pay").text, bank.paid) == ("done", [5])


def test_a_default_inside_an_object_may_be_written_or_left_out():
    sent = []

    @dataclass
    class Letter:
        to: str
        copies: int = 1

    @tool(effect="write", once_per="run")
    def send(letter: Letter) -> str:
        """Send a letter."""
        sent.append(letter)
        return "sent"

    letters = [{"to": "Ann"}, {"to": "Ann", "copies": 1}, {"to": "Ann", "copies": 2}]
    script = scripted(*(call_reply(("send", {"letter": letter})) for letter in letters), "done")
    assert Agent(script, tools=[send]).run_sync("send").text == "done"
    assert sent == [Letter("Ann"), Letter("Ann", 2)]


def test_a_session_resumed_by_another_process_finds_the_receipt(tmp_path):
    first, second = Bank("session"), Bank("session")
    script: Any = [call_reply(PAY), call_reply(SAME), "done"]
    agent = Agent(scripted(*script), tools=[first.tool], store=tmp_path / "log.db")
    stopped = agent.run_sync("pay", session="s", budget=Budget(steps=1))
    assert (stopped.stop, first.paid) == ("steps", [5])
    fresh = Agent(scripted(*script), tools=[second.tool], store=tmp_path / "log.db")
    result = asyncio.run(fresh.resume("s", budget=Budget(steps=9)))
    assert (result.text, second.paid) == ("done", [])


def test_a_call_that_failed_may_be_tried_again():
    tried = []

    @tool(effect="write", once_per="session")
    def pay(amount: int) -> str:
        """Pay somebody."""
        tried.append(amount)
        if len(tried) == 1:
            raise OSError("no connection")
        return "paid"

    result = Agent(scripted(call_reply(PAY), call_reply(PAY), call_reply(PAY), "done"), tools=[pay]).run_sync(
        "pay"
    )
    assert (result.text, tried) == ("done", [5, 5])


def test_what_was_undone_is_no_longer_done():
    def pay_back(amount: int) -> str:
        """Pay it back."""
        return "paid back"

    bank = Bank("session", compensate=pay_back)
    agent = Agent(scripted(call_reply(PAY), call_reply(PAY), "done"), tools=[bank.tool])
    assert agent.run_sync("pay", session="s", budget=Budget(steps=1)).stop == "steps"
    asyncio.run(agent.compensate("s"))
    agent.run_sync("pay", session="s")
    assert bank.paid == [5, 5]


def test_a_rule_that_denies_comes_before_the_receipt(tmp_path):
    policy = tmp_path / "rules.toml"
    policy.write_text('[[rules]]\ndecision = "deny"\ntools = ["pay"]\n')
    bank = Bank("session")
    script: Any = [call_reply(PAY), "one", call_reply(PAY), "two"]
    free = Agent(scripted(*script), tools=[bank.tool], store=tmp_path / "log.db")
    free.run_sync("pay", session="s")
    ruled = Agent(scripted(*script), tools=[bank.tool], store=tmp_path / "log.db", policy=policy)
    result = ruled.run_sync("pay", session="s")
    assert results(result)[-1].outcome == "denied"


def test_pictures_come_with_the_receipt_and_long_results_are_not_cut_twice():
    taken = []

    @tool(effect="read", once_per="run")
    def look(where: str) -> list[Text | Media]:
        """Look there."""
        taken.append(where)
        return [Text(text="x" * 5_000), Media(kind="image", media_type="image/png", data="AAAA")]

    script = scripted(
        call_reply(("look", {"where": "here"})), call_reply(("look", {"where": "here"})), "done"
    )
    result = Agent(script, tools=[look], result_characters=2_000).run_sync("look")
    first, second = results(result)
    assert (taken, second.parts[1:]) == (["here"], first.parts)


@pytest.mark.parametrize("wrong", ["day", 0, -1, True, float("inf")])
def test_a_span_that_is_none_is_refused(wrong):
    with pytest.raises(BadTool, match='use "run", "session" or seconds'):
        Bank(wrong)


class Seen:
    """A watcher that keeps events."""

    def __init__(self, into):
        self._into = into

    def on_event(self, session, what):
        self._into.append(getattr(what, "event", what))
