"""Options of one run and of one step: what is sent, what is recorded, and what a resumed run uses."""

import asyncio
from pathlib import Path

import pytest

from bridle import Agent, MisuseError, Sampling, Thinking, ToolChoice, per_turn, tool
from bridle.stores.memory import MemoryStore
from bridle.testing import scripted
from bridle.testing.scripted_model import call_reply
from bridle.values import events as e
from bridle.values.errors import Failure
from tests.suite.crashes import kill_after_every_record, kill_after_record

MODELS = (
    "sim:anthropic/claude-sonnet-4-6",
    "sim:bedrock_converse/global.anthropic.claude-sonnet-4-6",
    "sim:openai/gpt-5.4",
    "sim:openai-chat/gpt-5.4",
    "sim:gemini/gemini-3.5-flash",
)


@tool(effect="read")
def look(word: str) -> str:
    """Look a word up."""
    return f"{word}: a word"


@tool(effect="read")
def weigh(word: str) -> str:
    """Weigh a word."""
    return f"{word}: 3"


def events(store, session="s"):
    return [record.event for record in asyncio.run(store.read(session))]


def of_type(found, kind):
    return [event for event in found if isinstance(event, kind)]


@pytest.mark.parametrize("model", MODELS)
def test_options_apply_to_one_run_and_are_recorded(model):
    line = scripted(call_reply(("weigh", {"word": "oak"})), "Three.", "Two.", model=model)
    agent = Agent(line, tools=[look], instructions="Be brief.", store=MemoryStore())
    result = agent.run_sync(
        "How heavy?",
        "s",
        instructions="Be exact.",
        tools=[weigh],
        tool_choice="weigh",
        thinking=None,
        sampling=Sampling(top_p=0.5),
    )
    assert result.text == "Three."
    assert agent.run_sync("And now?", "s").text == "Two."
    first, second, third = line.script.requests
    assert [part.text for part in first.system] == ["Be exact."]
    assert [spec.name for spec in first.tools] == ["weigh"]
    # A named tool is forced at the first step only.
    assert (first.tool_choice.mode, second.tool_choice.mode) == ("tool", "auto")
    assert [part.text for part in third.system] == ["Be brief."]
    assert [spec.name for spec in third.tools][:1] == ["look"]
    found = events(agent.store)
    before, after = of_type(found, e.Configured)
    assert [(each.option, each.code) for each in before.settings.overrides] == [
        ("instructions", ()), ("sampling", ()), ("thinking", ()), ("tool_choice", ()), ("tools", ("weigh",)),
    ]  # fmt: skip
    assert before.settings.sampling == Sampling(top_p=0.5)
    assert after.settings.overrides == ()
    assert [event.layer for event in of_type(found, e.PrefixMoved)][-1] == "tools"


def test_another_model_for_one_run():
    first, second = scripted("a", "c", model=MODELS[0]), scripted("x", "b", model=MODELS[2])
    agent = Agent(first, store=MemoryStore())
    assert agent.run_sync("1", "s").text == "a"
    assert agent.run_sync("2", "s", model=second).text == "b"
    assert len(second.script.requests) == 1
    moved = of_type(events(agent.store), e.PrefixMoved)
    assert [(event.layer, event.cause) for event in moved] == [("model", "model_switched")]


def test_every_step_forces_every_step():
    calls = [call_reply(("look", {"word": word})) for word in ("oak", "elm")]
    line = scripted(*calls, "Done.")
    always = ToolChoice(mode="tool", name="look", every_step=True)
    agent = Agent(line, tools=[look], store=MemoryStore())
    agent.run_sync("?", "s", tool_choice=always)
    asked = of_type(events(agent.store), e.ModelAsked)
    assert {event.tool_choice.mode for event in asked} == {"tool"}


@pytest.mark.parametrize("model", MODELS)
def test_functions_of_the_step_choose_thinking_and_sampling(model):
    line = scripted(call_reply(("look", {"word": "oak"})), "A tree.", model=model)
    calls = []

    def think(step):
        calls.append(step)
        return Thinking(effort="high" if step == 1 else "low")

    agent = Agent(line, tools=[look], store=MemoryStore(), thinking=think)
    assert agent.run_sync("?", "s").text == "A tree."
    assert calls == [1, 2]
    found = events(agent.store)
    chosen = [event.options for event in of_type(found, e.OptionsChosen)]
    assert [options.thinking.effort for options in chosen] == ["high", "low"]
    if model != MODELS[3]:  # which takes no effort with tools, and the run says so
        assert [request.thinking.effort for request in line.script.requests] == ["high", "low"]
    else:
        assert any("effort" in note or "thinking" in note for note in of_type(found, e.ModelAsked)[0].notes)
    moved = of_type(found, e.PrefixMoved)
    assert [(event.layer, event.block) for event in moved] == [("settings", "thinking")]
    strict = Agent(line, tools=[look], prefix="strict", thinking=think).run_sync("?")
    assert (strict.stop, strict.steps) == ("failed", 1)
    assert "thinking" in strict.reason


def test_another_sampling_keeps_the_prefix():
    line = scripted(call_reply(("look", {"word": "oak"})), "A tree.", model=MODELS[4])
    agent = Agent(line, tools=[look], store=MemoryStore(), prefix="strict")
    agent.run_sync("?", "s", sampling=lambda step: Sampling(temperature=1.0 / step))
    assert [request.sampling.temperature for request in line.script.requests] == [1.0, 0.5]
    assert not of_type(events(agent.store), e.PrefixMoved)


def test_a_retry_of_a_step_uses_the_recorded_choice():
    calls = []

    def sample(step):
        calls.append(step)
        return Sampling(temperature=0.1 * len(calls))

    line = scripted(Failure(kind="overloaded", message="busy"), "Fine.")
    agent = Agent(line, store=MemoryStore(), random_source=lambda: 0.0)
    assert agent.run_sync("?", "s", sampling=sample).text == "Fine."
    assert calls == [1]
    assert len(of_type(events(agent.store), e.ModelAsked)) == 2


def test_a_function_of_the_step_must_return_the_type():
    with pytest.raises(
        MisuseError, match="the function thinking=… must return a Thinking or None, not 'high'"
    ):
        Agent(scripted("x"), thinking=lambda step: "high").run_sync("?")  # type: ignore[arg-type, return-value]


def test_unknown_and_wrong_options_are_refused_before_anything_is_recorded():
    agent = Agent(scripted("x"), tools=[look], store=MemoryStore())
    with pytest.raises(TypeError, match="a run has no option 'thinkng': did you mean 'thinking'"):
        agent.run_sync("?", "s", thinkng=None)  # type: ignore[call-overload]
    with pytest.raises(MisuseError, match="tool_choice names 'look', which is not a tool of this agent"):
        agent.run_sync("?", "s", tools=[weigh], tool_choice="look")
    with pytest.raises(MisuseError, match="`thinking` must be a Thinking"):
        agent.run_sync("?", "s", thinking="high")  # type: ignore[call-overload]
    assert asyncio.run(agent.store.read("s")) == ()


# Resumed runs


def stop_before_answer(agent, **options):
    """Run with these options until the model fails for good."""
    result = agent.run_sync("?", "s", **options)
    assert result.stop == "failed"


DOWN = [Failure(kind="invalid", message="no")]


def test_a_resumed_run_keeps_its_options():
    store = MemoryStore()
    down = scripted(*DOWN, model=MODELS[4])
    agent = Agent(down, tools=[look, weigh], instructions="Be brief.", store=store)
    options = {
        "instructions": "Be exact.",
        "tools": [weigh],
        "thinking": None,
        "sampling": Sampling(temperature=0.25),
    }
    stop_before_answer(agent, **options)
    line = scripted("Fine.", model=MODELS[4])
    again = Agent(line, tools=[look, weigh], instructions="Be brief.", store=store)
    assert again.resume_sync("s").text == "Fine."
    (request,) = line.script.requests
    assert [part.text for part in request.system] == ["Be exact."]
    assert [spec.name for spec in request.tools] == ["weigh"]
    assert request.sampling.temperature == 0.25
    assert len(of_type(events(store), e.Configured)) == 1, "the settings did not change"


def test_a_resumed_run_keeps_its_model():
    store = MemoryStore()
    stop_before_answer(
        Agent("sim:anthropic/claude-sonnet-4-6", store=store), model=scripted(*DOWN, model=MODELS[2])
    )
    own = scripted("never", model=MODELS[0])
    result = Agent(own, store=store).resume_sync("s")
    assert result.stop == "done"
    assert own.script.requests == []
    given = scripted("x", "Given.", model=MODELS[4])
    stop_before_answer(Agent(own, store=store), model=scripted("x", *DOWN, model=MODELS[2]))
    assert Agent(own, store=store).resume_sync("s", model=given).text == "Given."
    assert len(given.script.requests) == 1


def choose(step: int) -> str:
    return "auto"


def hours() -> str:
    return "Open until six."


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"tools": [look, weigh]}, "the run was started with tools=… (weigh), and a log holds no code"),
        ({"tool_choice": choose}, "the run was started with tool_choice=… (choose)"),
    ],
)
def test_code_that_is_needed_again_is_named(options, words):
    store = MemoryStore()
    agent = Agent(scripted(*DOWN, "Fine."), tools=[look], store=store)
    stop_before_answer(agent, **options)
    length = len(events(store))
    with pytest.raises(MisuseError) as raised:
        agent.resume_sync("s")
    assert words in str(raised.value)
    option = next(iter(options))
    assert str(raised.value).endswith(f"pass it again: agent.resume(…, {option}=…)")
    assert len(events(store)) == length, "nothing was recorded"
    assert agent.resume_sync("s", **options).text == "Fine."


def test_functions_that_wrote_their_instructions_are_not_needed_again():
    store = MemoryStore()
    agent = Agent(scripted(*DOWN, "Fine."), store=store)
    stop_before_answer(agent, instructions=["Be exact.", hours, per_turn(hours_today)])
    assert agent.resume_sync("s").text == "Fine."
    assert len(of_type(events(store), e.InstructionWritten)) == 2


def hours_today() -> str:
    return "Today until five."


def test_a_finished_run_needs_nothing():
    agent = Agent(scripted("Fine."), store=MemoryStore())
    agent.run_sync("?", "s", tools=[weigh])
    assert agent.resume_sync("s").text == "Fine."


# Killed after every event


def make_killed(folder):
    line = scripted(call_reply(("weigh", {"word": "oak"})), call_reply(("look", {"word": "oak"})), "Three.")

    def sample(step):
        with (folder / "calls").open("a") as calls:
            calls.write(f"{step}\n")
        return Sampling(temperature=step / 10)

    agent = Agent(line, tools=[look], instructions="Be brief.", store=str(folder / "log.db"))
    return agent, {"tools": [look, weigh], "instructions": ["Be exact.", hours], "sampling": sample}


def run_and_kill(folder, count):
    """Run in this process, which is killed after its `count`th record."""
    agent, options = make_killed(Path(folder))
    kill_after_record(count)
    asyncio.run(agent.run("?", session="s", **options))


def read_facts(folder):
    """The events of the log; of a request that was cut there are two, and a call in doubt is a retry."""

    async def read():
        agent, _ = make_killed(folder)
        records = await agent.store.read("s")
        await agent.store.close()
        return [record.event for record in records]

    found = asyncio.run(read())
    skipped = (e.Resumed, e.ModelAsked, e.ModelReplied, e.ToolStarted, e.ToolFinished)
    asked = {event.options.step: event.options for event in found if isinstance(event, e.OptionsChosen)}
    results = [event.result.text for event in found if isinstance(event, e.ToolFinished)]
    return [event for event in found if not isinstance(event, skipped)], asked, results


@pytest.mark.slow
def test_killed_after_every_event_the_options_hold_and_no_step_is_chosen_twice(tmp_path):
    whole = tmp_path / "whole"
    whole.mkdir()
    agent, options = make_killed(whole)
    assert agent.run_sync("?", session="s", **options).text == "Three."
    expected = read_facts(whole)
    for count, folder in kill_after_every_record(tmp_path, __file__):

        async def resume(folder=folder):
            agent, options = make_killed(folder)
            ended = await agent.resume("s", **options)
            await agent.store.close()
            return ended

        assert asyncio.run(resume()).text == "Three.", f"killed after record {count}"
        assert (folder / "calls").read_text() == "1\n2\n3\n", f"killed after record {count}"
        assert read_facts(folder) == expected, f"killed after record {count}"


def test_a_function_with_the_name_of_the_agents_own_is_called_and_the_change_is_recorded():
    def make_style(text):
        def style():
            return text

        return style

    store = MemoryStore()
    agent = Agent(scripted("a", "b", "c", "d"), instructions=make_style("Be brief."), store=store)
    agent.run_sync("1", session="s")
    for number in ("2", "3"):
        agent.run_sync(number, session="s", instructions=make_style("Be long."))
    agent.run_sync("4", session="s")
    written = [each.instructions for each in of_type(events(store), e.InstructionWritten)]
    moved = of_type(events(store), e.PrefixMoved)
    assert written == ["Be brief.", "Be long.", "Be long."]
    assert [(each.layer, each.block) for each in moved] == [("system", "instructions")] * 2
