"""The boundary of a provider: what one model or wire does not take is changed before it is sent, and noted.

Every request here is answered by the simulator, which refuses what the provider refuses.
"""

import pytest

from bridle import Agent, Sampling, Thinking, ToolChoice, tool
from bridle.core.context import assemble
from bridle.core.loop import apply
from bridle.core.state import State
from bridle.providers import load
from bridle.providers.catalogue import find
from bridle.values.event import Configured, ModelAsked, Prompted
from bridle.values.parts import Text
from bridle.values.settings import Settings


@tool(effect="read")
def look(where: str = "here") -> str:
    """Look somewhere."""
    return f"nothing in {where}"


class Asked:
    """A watcher that keeps what was asked, as it was sent and as it was recorded."""

    def __init__(self):
        self.events = []

    def saw(self, session, what):
        self.events.append(getattr(what, "event", what))

    @property
    def notes(self):
        return [note for event in self.events if isinstance(event, ModelAsked) for note in event.notes]


def ask(model, prompt="Hello", **options):
    seen = Asked()
    result = Agent(model, watchers=[seen], **options).run_sync(prompt)
    assert result.stop == "done", result.reason
    return seen


@pytest.mark.parametrize(
    ("model", "wanted", "became"),
    [
        ("sim:anthropic/claude-sonnet-4-5", 200_000, "64,000"),
        ("sim:openai/gpt-5.4", 200_000, "128,000"),
        ("sim:openai-chat/gpt-5.4", 200_000, "128,000"),
        ("sim:gemini/gemini-3.5-flash", 200_000, "65,536"),
        ("sim:bedrock/anthropic.claude-sonnet-4-5", 200_000, "64,000"),
    ],
)
def test_more_output_than_a_model_gives(model, wanted, became):
    seen = ask(model, max_tokens=wanted)
    assert any(note.startswith(f"max_tokens 200,000 became {became}") for note in seen.notes)


def test_a_model_that_nobody_wrote_down_gets_what_was_asked_for():
    model = find("groq:some/model", environ={})
    assert not model.abilities.output_limited
    assert not find("anthropic:=claude-next-9", environ={}).abilities.output_limited


@pytest.mark.parametrize(
    ("model", "budget", "became"),
    [
        ("sim:anthropic/claude-sonnet-4-5", 500, "1,024"),
        ("sim:bedrock/anthropic.claude-sonnet-4-5", 500, "1,024"),
        ("sim:gemini/gemini-2.5-pro", 50, "128"),
        ("sim:gemini/gemini-2.5-pro", 60_000, "32,768"),
    ],
)
def test_an_allowance_for_thinking_out_of_range(model, budget, became):
    seen = ask(model, thinking=Thinking(mode="enabled", budget_tokens=budget))
    assert any(f"of {budget:,} tokens became {became}" in note for note in seen.notes)


def test_an_allowance_that_leaves_no_room_is_noted():
    thinking = Thinking(mode="enabled", budget_tokens=4_000)
    halved = ask("sim:anthropic/claude-sonnet-4-5", thinking=thinking, max_tokens=3_000)
    gone = ask("sim:anthropic/claude-sonnet-4-5", thinking=thinking, max_tokens=1_000)
    assert any("half of what the reply may have" in note for note in halved.notes)
    assert any("thinking was left out" in note for note in gone.notes)


WORDS = tuple(f"<{letter}>" for letter in "abcdefgh")


@pytest.mark.parametrize(
    ("model", "left", "noted"),
    [
        ("sim:gemini/gemini-3.5-flash", 3, "takes no more than 5"),
        ("sim:openai-chat/gpt-5.4", 8, "takes none"),
        ("sim:openai/gpt-5.4", 8, "takes none"),
        ("sim:anthropic/claude-sonnet-5", 0, ""),
    ],
)
def test_stop_sequences_by_model(model, left, noted):
    seen = ask(model, sampling=Sampling(stop_sequences=WORDS))
    (note,) = [note for note in seen.notes if note.startswith("stop sequences")] or [""]
    assert noted in note
    assert all(repr(word) in note for word in WORDS[8 - left :])
    assert not any(repr(word) in note for word in WORDS[: 8 - left])


def test_a_stop_sequence_that_is_too_long():
    seen = ask("sim:kimi/kimi-k3", sampling=Sampling(stop_sequences=("END", "x" * 33)))
    assert any("none longer than 32 bytes" in note for note in seen.notes)


@pytest.mark.parametrize(
    ("model", "wanted", "became"),
    [
        ("sim:openai/gpt-6.1-sol", "minimal", "low"),
        ("sim:openai/gpt-5.4", "max", "xhigh"),
        ("sim:openai/gpt-5.5", "max", "xhigh"),
        ("sim:openai-chat/gpt-5.6", "max", "xhigh"),
        ("sim:openai-chat/gpt-5.6", "minimal", "low"),
        ("sim:openai/gpt-6-astra", "none", "low"),
        ("sim:gemini/gemini-3.8-flash", "minimal", "low"),
        ("sim:gemini/gemini-3.7-flash", "minimal", "low"),
        ("sim:gemini/gemini-4-argon", "max", "high"),
        ("sim:anthropic/claude-sonnet-4-6", "xhigh", "max"),
        ("sim:anthropic/claude-sonnet-5-5", "minimal", "low"),
        ("sim:bedrock/anthropic.claude-sonnet-4-6", "xhigh", "max"),
        ("sim:deepseek/deepseek-v4-pro", "medium", "high"),
    ],
)
def test_an_effort_becomes_the_nearest_that_the_model_takes(model, wanted, became):
    seen = ask(model, thinking=Thinking(effort=wanted))
    assert any(note.startswith(f"effort {wanted!r} became {became!r}") for note in seen.notes)


@pytest.mark.parametrize(
    ("model", "effort"),
    [
        ("sim:openai/gpt-5.6", "max"),
        ("sim:openai-chat/gpt-5.6", "xhigh"),
        ("sim:gemini/gemini-3.6-flash", "minimal"),
        ("sim:openai/gpt-6.1-sol", "none"),
    ],
)
def test_an_effort_that_is_taken_is_sent_as_it_is(model, effort):
    assert not any("effort" in note for note in ask(model, thinking=Thinking(effort=effort)).notes)


@pytest.mark.parametrize(
    ("model", "sampling", "noted"),
    [
        ("sim:groq/llama", Sampling(top_k=5), "top_k was left out: "),
        ("sim:bedrock/anthropic.claude-sonnet-5", Sampling(top_k=5), "top_k"),
        (
            "sim:azure/my-deployment",
            Sampling(top_k=5, stop_sequences=("END",)),
            "stop sequences were left out",
        ),
    ],
)
def test_sampling_that_a_wire_has_no_field_for_is_noted(model, sampling, noted):
    vendor, _, name = model.removeprefix("sim:").partition("/")
    environ = {"AZURE_OPENAI_ENDPOINT": "http://here"}
    found = find(f"{vendor}:={name}", environ=environ)
    assert any(noted in note for note in remarks_of(found, sampling=sampling))


@pytest.mark.parametrize(
    "model", ["gemini:gemini-3.5-flash", "bedrock:anthropic.claude-sonnet-5", "deepseek:deepseek-v4-pro"]
)
def test_parallel_calls_that_cannot_be_switched_off_are_noted(model):
    assert any(
        "parallel=False was left out" in note for note in remarks_of(find(model, environ={}), parallel=False)
    )


def remarks_of(model, *, sampling=None, parallel=True):
    settings = Settings(
        model=model,
        tools=(look.spec,),
        tool_choice=ToolChoice(parallel=parallel),
        sampling=sampling or Sampling(),
    )
    state = apply(State(), Configured(settings=settings, session="s"))
    request, notes = assemble(apply(state, Prompted(parts=(Text(text="Hello"),))))
    return (*notes, *load(model.endpoint.family).remarks(request))
