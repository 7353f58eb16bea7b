"""The settings of an agent, and what is refused before anything is sent."""

import asyncio
import inspect
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import msgspec
import pydantic
import pytest
from msgspec.structs import replace

from bridle import Agent, Budget, Media, MisuseError, Text, ToolChoice, tool
from bridle.errors import MissingKey, SessionNotFound, UnknownModel
from bridle.run.model_connection import ModelConnection, find_model_by_name
from bridle.stores.memory import MemoryStore
from bridle.testing import FakeClock, scripted
from bridle.testing.scripted_model import call_reply
from bridle.tools import RawTool
from bridle.values.errors import Failure
from bridle.values.events import ModelAsked
from bridle.values.request import Sampling, Thinking
from tests.suite.patience import allow_longer

MODELS = {
    "anthropic": "claude-sonnet-5-5",
    "gemini": "gemini-3.5-flash",
    "openai": "gpt-6-sol",
    "bedrock": "anthropic.claude-sonnet-5-5",
}
FORCED = "sim:anthropic/claude-sonnet-5"
"""A model that can be made to call a tool, and answers in a shape without."""
BY_CALL = "sim:gemini/gemini-2.5-pro"
"""A model that answers in a shape by calling."""


@tool(effect="read")
def add(a: int, b: int) -> int:
    """Add."""
    return a + b


def scripted_without_price(*replies):
    return scripted(*replies, model=replace(find_model_by_name("sim:"), price=None))


def test_an_empty_prompt_is_refused():
    for prompt in ("", "  \n", [], Text(text=" ")):
        with pytest.raises(MisuseError, match="empty"):
            Agent(scripted("x")).run_sync(prompt)


def test_a_picture_alone_is_a_prompt():
    line = scripted("a cat")
    picture = Media(kind="image", media_type="image/png", data="aGk=")
    assert Agent(line).run_sync([Text(text="what is this?"), picture]).text == "a cat"
    assert line.script.requests[0].messages[0].parts[1] == picture


def test_a_missing_key_is_named_before_anything_is_sent(monkeypatch):
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(MissingKey, match="ANTHROPIC_API_KEY"):
        Agent("anthropic:claude-sonnet-5-5").run_sync("hi")


def test_an_unknown_vendor_is_refused_at_once():
    with pytest.raises(UnknownModel, match="anthropic"):
        Agent("antropic:claude-sonnet-5-5")


def test_a_session_to_resume_must_exist():
    with pytest.raises(SessionNotFound, match="nobody"):
        asyncio.run(Agent(scripted("x")).resume("nobody"))


def test_dollars_need_a_price():
    with pytest.raises(MisuseError, match="no price"):
        Agent(scripted_without_price("x"), budget=Budget(usd=1)).run_sync("hi")


@pytest.mark.parametrize(
    "limit", [{"usd": -1}, {"steps": -1}, {"seconds": float("nan")}, {"usd": "many"}, {"tokens": True}]
)
def test_a_budget_is_a_number(limit):
    with pytest.raises(MisuseError, match=next(iter(limit))):
        Budget(**limit)


def test_a_finished_session_has_nothing_to_resume():
    agent = Agent(scripted("x"), store=MemoryStore())
    first = agent.run_sync("hi")
    again = asyncio.run(agent.resume(first.session))
    assert (again.text, again.stop, len(again.messages)) == ("x", "done", 2)


def test_tool_choice_by_step():
    async def main():
        store = MemoryStore()
        choose = lambda step: "add" if step == 1 else "none"  # noqa: E731
        line = scripted(call_reply(("add", {"a": 1, "b": 2})), "3", model=FORCED)
        await Agent(line, tools=[add], tool_choice=choose, store=store).run("?", session="s")
        asked = [r.event.tool_choice for r in await store.read("s") if isinstance(r.event, ModelAsked)]
        assert asked == [ToolChoice(mode="tool", name="add"), ToolChoice(mode="none")]
        assert [request.tool_choice for request in line.script.requests] == asked

    asyncio.run(main())


def test_tool_choice_must_name_a_tool():
    with pytest.raises(MisuseError, match="add"):
        Agent(scripted("x"), tools=[add], tool_choice="ad")


@dataclass
class Weather:
    city: str
    degrees: int


class Even(pydantic.BaseModel):
    n: int

    @pydantic.field_validator("n")
    @classmethod
    def even(cls, n: int) -> int:
        if n % 2:
            raise ValueError("must be even")
        return n


@pytest.mark.parametrize(
    ("model", "reply"),
    [
        (FORCED, '{"city":"Oslo","degrees":3}'),
        (BY_CALL, call_reply(("Weather", {"city": "Oslo", "degrees": 3}))),
    ],
)
def test_an_answer_in_a_shape(model, reply):
    line = scripted(reply, model=model)
    assert Agent(line, output=Weather).run_sync("?").output == Weather("Oslo", 3)


def test_what_the_type_refuses_is_asked_for_again():
    line = scripted(call_reply(("Even", {"n": 3})), call_reply(("Even", {"n": 4})), model=BY_CALL)
    result = Agent(line, output=Even).run_sync("an even number?")
    assert result.output == Even(n=4)
    assert "must be even" in result.messages[2].results[0].text


def test_plain_schemas_give_plain_data():
    schema: Any = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    result = Agent(scripted(call_reply(("final_answer", {"n": 1})), model=BY_CALL), output=schema).run_sync(
        "?"
    )
    assert result.output == {"n": 1}


def test_the_sim_answers_in_a_shape_too():
    result = Agent("sim:", output=Weather).run_sync('!say {"city":"Oslo","degrees":3}')
    assert result.output == Weather("Oslo", 3)


def test_a_tool_that_takes_too_long_is_told_and_the_run_goes_on():
    @tool(timeout=0.01)
    async def slow() -> str:
        """Wait for ever."""
        await asyncio.Event().wait()

    result = Agent(scripted(call_reply(("slow", {})), "then not"), tools=[slow]).run_sync("?")
    (outcome,) = result.messages[2].results
    assert (result.text, outcome.outcome) == ("then not", "timeout")


def test_the_runs_time_ends_a_hanging_tool():
    @tool(timeout=None)
    async def slow() -> str:
        """Wait for ever."""
        await asyncio.Event().wait()

    def check(seconds):
        script = scripted(call_reply(("slow", {})), "x")
        result = Agent(script, tools=[slow], budget=Budget(seconds=seconds)).run_sync("?")
        assert result.stop == "seconds"
        assert [each.outcome for each in result.messages[-1].results] == ["timeout"]

    allow_longer(check, 0.05)


def test_a_tool_that_exits_or_cancels_itself_is_only_an_error():
    @tool
    async def leave() -> str:
        """Exit."""
        raise SystemExit(3)

    @tool
    async def give_up() -> str:
        """Cancel."""
        raise asyncio.CancelledError

    line = scripted(call_reply(("leave", {}), ("give_up", {})), "still here")
    result = Agent(line, tools=[leave, give_up]).run_sync("?")
    assert result.text == "still here"
    assert [r.outcome for r in result.messages[2].results] == ["error", "error"]


def test_settings_that_changed_are_recorded_once():
    async def main():
        store, clock = MemoryStore(), FakeClock()
        for instructions in ("one", "one", "two"):
            agent = Agent(scripted("x", "x", "x"), instructions=instructions, store=store, clock=clock)
            await agent.run("hi", session="s")
        kinds = [type(r.event).__name__ for r in await store.read("s")]
        assert kinds.count("Configured") == 2
        assert kinds.count("Prompted") == 3

    asyncio.run(main())


def test_no_key_ever_reaches_the_log(monkeypatch, tmp_path):
    secret = "sk-canary-0123456789"
    monkeypatch.setenv("ANTHROPIC_API_KEY", secret)
    agent = Agent(
        "anthropic:claude-sonnet-5-5@http://127.0.0.1:9", store=tmp_path / "log.db", clock=FakeClock()
    )
    result = agent.run_sync("hi")
    assert result.stop == "failed"
    told = msgspec.json.encode(asyncio.run(agent.store.read(result.session))) + repr(result).encode()
    asyncio.run(agent.store.close())
    assert secret.encode() not in told
    for file in tmp_path.iterdir():
        assert secret.encode() not in file.read_bytes()


@pytest.mark.parametrize(
    "wrong",
    [
        {"instructions": 5},
        {"budget": 0.5},
        {"max_tokens": 100.5},
        {"max_tokens": 0},
        {"max_tokens": -5},
        {"repeats_max": "3"},
        {"repeats_max": 1},
        {"sampling": Sampling(temperature="hot")},  # type: ignore[arg-type]
        {"thinking": Thinking(budget_tokens="many")},  # type: ignore[arg-type]
    ],
    ids=str,
)
def test_a_setting_of_the_wrong_type_is_refused_before_anything_is_written(wrong):
    with pytest.raises(MisuseError):
        Agent(scripted("x"), **wrong)


@pytest.mark.parametrize("prompt", [None, 5, b"x", [5], {"a": 1}])
def test_a_prompt_of_the_wrong_type_is_refused(prompt):
    with pytest.raises(MisuseError, match="prompt"):
        Agent(scripted("x")).run_sync(prompt)


@pytest.mark.parametrize(
    ("limits", "kept"),
    [({"steps": "5"}, 5), ({"seconds": "5"}, 5.0), ({"tokens": 1e6}, 1_000_000), ({"steps": Decimal(3)}, 3)],
    ids=str,
)
def test_a_budget_is_kept_as_what_it_is(limits, kept, tmp_path):
    (name,) = limits
    budget = Budget(**limits)
    assert (getattr(budget, name), type(getattr(budget, name))) == (kept, type(kept))
    agent = Agent(scripted("x"), budget=budget, store=tmp_path / "log.db")
    agent.run_sync("hi", session="s")
    assert asyncio.run(agent.store.read("s"))
    asyncio.run(agent.store.close())


def test_a_part_of_a_step_is_no_limit():
    with pytest.raises(MisuseError, match="whole"):
        Budget(steps=2.5)  # type: ignore[arg-type]


def test_half_a_surrogate_pair_is_harmless():
    line = scripted("fine")
    result = Agent(line, instructions="a \ud800").run_sync("half: \ud83d")
    assert result.text == "fine"
    assert line.script.requests[0].messages[0].text == "half: \ufffd"


@dataclass
class Picky:
    n: int

    def __post_init__(self):
        if self.n < 5:
            raise KeyError("\ud800 too small")


def test_any_exception_of_a_type_is_an_objection():
    line = scripted(call_reply(("Picky", {"n": 3})), call_reply(("Picky", {"n": 7})), model=BY_CALL)
    assert Agent(line, output=Picky).run_sync("?").output == Picky(7)


def test_an_answer_and_a_tool_of_one_name_are_refused():
    @tool(name="Weather")
    def named() -> str:
        """Say something."""
        return ""

    with pytest.raises(MisuseError, match="Weather"):
        Agent(scripted("x", model=BY_CALL), tools=[named], output=Weather)


def test_no_calls_and_an_answer_by_call_are_refused():
    with pytest.raises(MisuseError, match="none"):
        Agent(scripted("x", model=BY_CALL), output=Weather, tool_choice="none")


def test_a_limit_in_dollars_is_checked_on_resuming_too():
    agent = Agent(
        scripted_without_price(call_reply(("add", {"a": 1, "b": 1})), "x"),
        tools=[add],
        budget=Budget(steps=1),
    )
    first = agent.run_sync("?")
    with pytest.raises(MisuseError, match="no price"):
        asyncio.run(agent.resume(first.session, budget=Budget(usd=1)))


def test_a_key_that_a_server_repeats_is_not_passed_on():
    secret = "sk-canary-0123456789"
    line = scripted(Failure(kind="unauthorized", message=f"bad key Bearer {secret}", status=401, code=secret))
    keyed = ModelConnection(
        model=line.model,
        codec=line.codec,
        transport=line.transport,
        headers=(("authorization", f"Bearer {secret}"),),
    )
    result = Agent(keyed).run_sync("hi")
    assert result.stop == "failed"
    assert secret not in repr(result)
    assert "bad key Bearer [key]" in result.reason


@pytest.mark.parametrize(
    "text", ["!?;:,.", "1 2 3 4 5 6 7 8 9 0 ", "äöü", "日本語", '{"a":[1,2]}', "plain words here "]
)
@pytest.mark.parametrize("limit", [{"tokens": 1500}, {"usd": 0.004}])
def test_a_budget_holds_for_any_text(text, limit):
    """Against the simulator's own counting."""
    agent = Agent("sim:", budget=Budget(**limit))
    for size in (10, 60, 200, 500, 1000):
        result = agent.run_sync(text * size)
        assert result.usage.total <= limit.get("tokens", 10**9)
        assert result.cost <= limit.get("usd", 10**9)


def test_what_a_signature_is_made_of_is_not_passed_on():
    echo = "the canonical string was x-amz-security-token:SESSIONTOKEN== Credential=AKIAEXAMPLE/20270101"
    line = scripted(Failure(kind="unauthorized", message=echo, status=403))
    signature = (
        ("x-amz-security-token", "SESSIONTOKEN=="),
        ("authorization", "AWS4-HMAC-SHA256 Credential=AKIAEXAMPLE/20270101, Signature=0123456789abcdef"),
    )
    signed = ModelConnection(
        model=line.model,
        codec=line.codec,
        transport=line.transport,
        sign_request=lambda outgoing, now: signature,
    )
    result = Agent(signed).run_sync("hi")
    assert "SESSIONTOKEN" not in result.reason
    assert "AKIAEXAMPLE" not in result.reason


def test_what_a_wire_cannot_say_is_noted_once():
    async def main():
        odd = RawTool(
            name="odd",
            description="Odd.",
            schema={
                "type": "object",
                "properties": {"a": {"type": "string"}},
                "allOf": [{"required": ["a"]}],
                "not": {"required": ["b"]},
            },
            run=lambda arguments: "ok",
        )
        noted = {}
        for vendor in ("anthropic", "gemini", "openai", "bedrock"):
            store = MemoryStore()
            agent = Agent(f"sim:{vendor}/{MODELS[vendor]}", tools=[odd], store=store)
            assert (await agent.run('!call odd {"a": "x"}\n!then\n!say done', session="s")).text == "done"
            noted[vendor] = [r.event.notes for r in await store.read("s") if isinstance(r.event, ModelAsked)]
        assert all(notes[1] == () for notes in noted.values())
        assert "schema of tool `odd`: #: not is refused at the top; left out" in noted["openai"][0]
        assert noted["gemini"][0]
        assert all(note.startswith("schema of tool `odd`") for notes in noted.values() for note in notes[0])

    asyncio.run(main())


def test_a_field_with_a_name_the_wire_refuses_is_called_by_its_own():
    async def main():
        given = []
        odd = RawTool(
            name="odd",
            description="Odd.",
            schema={"type": "object", "properties": {"größe (cm)": {"type": "integer"}}},
            run=lambda arguments: given.append(arguments) or "ok",
        )
        for vendor in ("anthropic", "bedrock"):
            agent = Agent(f"sim:{vendor}/{MODELS[vendor]}", tools=[odd])
            assert (await agent.run('!call odd {"gr_e_cm_": 3}\n!then\n!say done')).text == "done"
        assert given == [{"größe (cm)": 3}] * 2

    asyncio.run(main())


def test_the_ways_to_run_take_the_same_parameters():
    def parameters(method):
        return dict(inspect.signature(method).parameters)

    streamed, run = parameters(Agent.stream), parameters(Agent.run)
    assert run == parameters(Agent.run_sync)
    assert list(streamed) == list(parameters(Agent.stream_sync))
    assert streamed.pop("deltas").default is True
    assert run.pop("check").default is False  # a stream yields its end
    assert run == streamed
    resumed = parameters(Agent.resume)
    assert resumed == parameters(Agent.resume_sync)
    assert resumed.pop("check").default is False
    assert resumed == parameters(Agent.resume_stream)
