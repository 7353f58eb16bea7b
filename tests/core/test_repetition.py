"""Detection of repeated calls and oscillation."""

import pytest

from bridle import Agent, tool
from bridle.testing import scripted
from bridle.testing.scripted_model import call_reply
from bridle.tools import RawTool
from bridle.values.message import Media


def make_look_tool(pictures):
    shown = iter(pictures)

    @tool(effect="read")
    def look() -> Media:
        """Look at the screen."""
        return Media(kind="image", media_type="image/png", data=next(shown))

    return Agent(scripted(*[call_reply(("look", {}))] * 7, "seen"), tools=[look])


def test_a_new_picture_is_news():
    assert make_look_tool(f"AAA{number}" for number in range(7)).run_sync("?").stop == "done"


def test_the_same_picture_is_none():
    result = make_look_tool(["AAAA"] * 7).run_sync("?")
    assert (result.stop, result.steps) == ("no_progress", 5)
    assert "look({})" in result.reason


def test_empty_turns_lead_nowhere():
    result = Agent(scripted("", "", "")).run_sync("?")
    assert (result.stop, result.steps) == ("no_progress", 3)
    assert "empty" in result.reason


def going_round(names, times, news=()):
    """An agent whose model calls these tools in turn; those in `news` bring another result each time."""
    counted = iter(range(1000))

    def made(name):
        def run(given: dict) -> str:
            return f"{name} {next(counted)}" if name in news else name

        return RawTool(name, "A tool.", {"type": "object"}, run, effect="read")

    script = [call_reply((name, {})) for _ in range(times) for name in names]
    return Agent(scripted(*script, "seen"), tools=[made(name) for name in names])


@pytest.mark.parametrize("names", ["abc", "abcd", "abcdefgh"])
def test_a_longer_cycle_with_equal_results_ends_the_run(names):
    result = going_round(names, 7).run_sync("?")
    assert (result.stop, result.steps) == ("no_progress", 5 * len(names))
    assert all(f"{name}({{}})" in result.reason for name in names)


def test_the_model_is_told_once_that_it_goes_round():
    result = going_round("abc", 7).run_sync("?")
    told = [message for message in result.messages if "Do something different" in message.text]
    assert len(told) == 1
    at = result.messages.index(told[0])
    assert sum(len(message.calls) for message in result.messages[:at]) == 9


def test_a_cycle_that_brings_news_is_none():
    result = going_round("abc", 7, news="b").run_sync("?")
    assert (result.stop, result.steps) == ("done", 22)
