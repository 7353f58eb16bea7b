"""Mistakes of the first hour get one line that says what to type instead."""

import logging

import pytest

from bridle import Agent, Budget, Limits
from bridle.mcp import server
from bridle.values.errors import MisuseError


@pytest.mark.parametrize(
    ("make", "hint"),
    [
        (lambda: Budget(dollars=1), "Budget has no limit 'dollars'; did you mean 'usd'?"),  # type: ignore[call-arg]
        (lambda: Limits(token=1), "Limits has no limit 'token'; did you mean 'tokens'?"),  # type: ignore[call-arg]
        (lambda: Limits(x=1), "Limits has no limit 'x'; it has: usd, tokens"),  # type: ignore[call-arg]
        (
            lambda: Agent("claude"),
            "'claude' names no vendor; write VENDOR:MODEL, for example `anthropic:claude-",
        ),
        (lambda: Agent("gpt-6"), "write VENDOR:MODEL, for example `openai:gpt-6"),
    ],
)
def test_hint(make, hint):
    with pytest.raises(MisuseError) as refused:
        make()
    assert hint in str(refused.value)


class Quiet:
    def on_event(self, session, happening):
        pass


@pytest.mark.parametrize("watchers", [(), (Quiet(),)])
def test_server_that_cannot_start_is_a_warning_without_a_watcher(caplog, watchers):
    agent = Agent("sim:", tools=[server("no-such-program", name="notes")], watchers=watchers)
    with caplog.at_level(logging.WARNING, "bridle"):
        assert agent.run_sync("Hello!").done
    told = [each.getMessage() for each in caplog.records if "'notes' cannot be used" in each.getMessage()]
    assert len(told) == (0 if watchers else 1)
