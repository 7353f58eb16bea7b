"""Keyword options of `Agent`."""

import msgspec
import pytest

from bridle import Agent, MisuseError
from bridle.run.agent_settings import NUMBER_OPTIONS, AgentOptions
from bridle.run.validate_input import NUMBER_MINIMUMS
from bridle.values.settings import Settings


def test_every_option_is_a_setting_of_the_same_name():
    fields = {field.name for field in msgspec.structs.fields(Settings)}
    assert set(AgentOptions.__annotations__) <= fields
    assert set(NUMBER_OPTIONS) <= set(AgentOptions.__annotations__)


def test_an_option_is_in_the_settings_as_it_was_given():
    agent = Agent("sim:", attempts_max=3, cache_ttl="1h", prefix="strict", repeats_max=None)
    settings = agent.settings
    assert (settings.attempts_max, settings.cache_ttl, settings.prefix) == (3, "1h", "strict")
    assert settings.repeats_max is None


@pytest.mark.parametrize(
    ("wrong", "hint"),
    [
        ("cache_tll", "did you mean 'cache_ttl'?"),
        ("instruction", "did you mean 'instructions'?"),
        ("zzz", "Agent has no option 'zzz'"),
        ("the_options", "Agent has no option 'the_options'"),
    ],
)
def test_an_unknown_option_is_refused_with_the_nearest(wrong, hint):
    with pytest.raises(TypeError) as refused:
        Agent("sim:", **{wrong: "x"})  # type: ignore[arg-type]
    assert str(refused.value).endswith(hint)


def test_what_belongs_to_the_settings_alone_cannot_be_slipped_in():
    with pytest.raises(TypeError, match="no option 'hidden'"):
        Agent("sim:", hidden=())  # type: ignore[call-arg]


@pytest.mark.parametrize("name", NUMBER_OPTIONS)
def test_numbers_are_looked_at(name):
    with pytest.raises(MisuseError, match=name):
        Agent("sim:", **{name: NUMBER_MINIMUMS.get(name, 1) - 1})  # type: ignore[arg-type]


def test_a_reply_too_short_to_be_asked_for_is_refused_at_once():
    """It is no budget: the run would end before its first request, with no limit to name."""
    words = "max_tokens must be an integer of at least 16, or None; not 15"
    with pytest.raises(MisuseError, match=words):
        Agent("sim:", max_tokens=15)
    with pytest.raises(MisuseError, match=words):
        Agent("sim:").run_sync("!say Hi.", max_tokens=15)
    assert Agent("sim:", max_tokens=16).run_sync("!say Hi.").stop == "done"
