"""A run without an answer is loud: one warning, a text that says why, and an exception where it is wanted."""

import asyncio
import json
import logging

import pytest

from bridle import Agent, Budget, MisuseError, RunStopped, tool
from bridle.stores.memory import MemoryStore
from bridle.testing import call_reply, scripted
from bridle.values.errors import Failure
from bridle.values.result import FinalAnswer

REFUSED = Failure(kind="unauthorized", message="invalid key sk-secret", status=401)


def make_agent(*replies, **options):
    return Agent(scripted(*(replies or (REFUSED,))), store=MemoryStore(), **options)


def list_warnings(caplog):
    return [each for each in caplog.records if each.name == "bridle.failures"]


def test_a_failed_run_logs_one_warning_without_private_text(caplog):
    result = make_agent().run_sync("The patient is Zoe.")
    (record,) = list_warnings(caplog)
    assert record.levelno == logging.WARNING
    said = record.getMessage()
    for word in ("failed", "unauthorized", "claude", "bridle doctor", result.session):
        assert word in said
    assert "Zoe" not in said
    assert "sk-secret" not in said


@pytest.mark.parametrize("options", [{}, {"budget": Budget(usd=0.0000001)}])
def test_an_end_that_was_asked_for_logs_nothing(options, caplog):
    make_agent("Hello.", **options).run_sync("Hi.")
    assert list_warnings(caplog) == []


@pytest.mark.parametrize("how", ["check", "agent"])
def test_a_run_without_an_answer_raises_where_it_is_asked_to(how):
    agent = make_agent(raise_on_stop=how == "agent")
    check = {"check": True} if how == "check" else {}
    with pytest.raises(RunStopped) as caught:
        agent.run_sync("Hi.", "s", **check)
    assert caught.value.stop == "failed"
    assert caught.value.result.session == "s"
    with pytest.raises(RunStopped):
        asyncio.run(agent.run("Hi.", **check))


def test_resume_raises_too():
    agent = make_agent(REFUSED, REFUSED, raise_on_stop=True)
    with pytest.raises(RunStopped):
        agent.run_sync("Hi.", "s")
    with pytest.raises(RunStopped):
        agent.resume_sync("s")
    assert make_agent("Hello.").run_sync("Hi.", check=True).text == "Hello."


def test_a_stream_yields_the_end_and_then_raises():
    seen = []

    async def read():
        async for item in make_agent(raise_on_stop=True).stream("Hi."):
            seen.append(item)

    with pytest.raises(RunStopped):
        asyncio.run(read())
    assert isinstance(seen[-1], FinalAnswer)


def test_a_loop_over_partial_answers_raises_at_its_end():
    async def read():
        async for _ in make_agent(raise_on_stop=True).stream("Hi.").partial():
            pass

    with pytest.raises(RunStopped):
        asyncio.run(read())


def test_printing_a_result_shows_the_answer_or_why_there_is_none():
    assert str(make_agent("Hello.").run_sync("Hi.")) == "Hello."
    shown = str(make_agent().run_sync("Hi."))
    assert "stopped as 'failed'" in shown
    assert "Next: check the key" in shown


def test_raise_on_stop_must_be_a_bool():
    with pytest.raises(MisuseError, match="raise_on_stop"):
        Agent("sim:", raise_on_stop="yes")  # type: ignore[arg-type]


def test_a_result_as_json():
    result = make_agent("Hello.").run_sync("Hi.")
    described = json.loads(json.dumps(result.to_dict()))
    assert (described["text"], described["output"], described["stop"]) == ("Hello.", "Hello.", "done")
    assert "messages" not in described
    assert len(result.to_dict(messages=True)["messages"]) == 2
    failed = json.loads(json.dumps(make_agent().run_sync("Hi.").to_dict()))
    assert failed["failure"]["kind"] == "unauthorized"


def test_the_output_of_a_type_is_json_too():
    result = make_agent('{"value": 42}', output=int).run_sync("What?")
    assert result.to_dict()["output"] == result.output == 42


def test_messages_print_as_a_transcript():
    @tool(effect="read")
    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    result = make_agent(call_reply(("add", {"a": 1, "b": 2})), "3", tools=[add]).run_sync("1 + 2?")
    assert str(result.messages) == 'user: 1 + 2?\n\nassistant: add({"a":1,"b":2})\n\ntool: 3\n\nassistant: 3'
    assert "1 + 2?" in result.messages._repr_html_()


def test_everything_that_was_dropped_is_on_the_result():
    from bridle import Sampling

    agent = Agent("sim:openai/gpt-6-sol", sampling=Sampling(temperature=0), store=MemoryStore())
    result = agent.run_sync("Hello.")
    assert any("temperature" in each for each in result.adjusted)
    strict = Agent(
        "sim:openai/gpt-6-sol", sampling=Sampling(temperature=0), on_adjusted="error", store=MemoryStore()
    ).run_sync("Hello.")
    assert strict.stop == "failed"
    assert any("temperature" in each for each in strict.adjusted)
    assert make_agent("Hello.").run_sync("Hi.").adjusted == ()
