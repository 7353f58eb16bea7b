"""What counts as going round in circles."""

from bridle import Agent, tool
from bridle.testing import scripted
from bridle.testing.script import calls
from bridle.values.parts import Media


def looking(pictures):
    shown = iter(pictures)

    @tool(effect="read")
    def look() -> Media:
        """Look at the screen."""
        return Media(kind="image", media_type="image/png", data=next(shown))

    return Agent(scripted(*[calls(("look", {}))] * 7, "seen"), tools=[look])


def test_a_new_picture_is_news():
    assert looking(f"AAA{number}" for number in range(7)).run_sync("?").stop == "done"


def test_the_same_picture_is_none():
    result = looking(["AAAA"] * 7).run_sync("?")
    assert (result.stop, result.steps) == ("no_progress", 5)
    assert "look({})" in result.reason


def test_empty_turns_lead_nowhere():
    result = Agent(scripted("", "", "")).run_sync("?")
    assert (result.stop, result.steps) == ("no_progress", 3)
    assert "empty" in result.reason
