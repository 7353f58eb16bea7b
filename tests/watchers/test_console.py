"""The console watcher: retries and model changes."""

import asyncio
import io

from bridle import Agent
from bridle.testing import FakeClock, ProviderSim
from bridle.watchers.console import Console
from tests.sim.sim_families import MODELS


def run_console(*families, prompt, faults):
    out, about, clock = io.StringIO(), io.StringIO(), FakeClock()
    providers = [ProviderSim(clock=clock) for _ in families]
    providers[0].fail(*faults)
    lines = [provider.model(MODELS[family]) for provider, family in zip(providers, families, strict=True)]

    async def story():
        agent = Agent(lines, clock=clock, random_source=lambda: 0.5, watchers=[Console(out, about)])
        async for _ in agent.stream(prompt):
            pass

    asyncio.run(story())
    return out.getvalue(), about.getvalue()


def test_a_retry_says_when_and_why_and_that_what_was_shown_is_void():
    out, about = run_console("anthropic", prompt=f"!say {'word ' * 80}end", faults=["overloaded-in-stream"])
    assert "· retrying in 250 ms (attempt 2); the text shown so far is discarded: " in about
    halves = out.split("\n")
    assert halves[-2].endswith("end"), "the second attempt begins on a line of its own"
    assert halves[-2].startswith("word")


def test_a_retry_before_any_word_has_nothing_to_take_back():
    _, about = run_console("anthropic", prompt="!say hi", faults=["error-429-wait:7"])
    assert "· retrying in 7.0 s (attempt 2): " in about
    assert "void" not in about


def test_a_change_of_models_is_told_with_its_reason():
    out, about = run_console("anthropic", "gemini", prompt="!say hi", faults=["quota"])
    assert f"· continuing with {MODELS['gemini'].name}: " in about
    assert out.strip() == "hi"
