"""Limits of a provider: what a model or wire does not accept is changed before sending, and recorded.

Every request here is answered by the simulator, which refuses what the provider refuses.
"""

import asyncio
import json
import sys
import typing
from dataclasses import dataclass

import pytest

from bridle import Agent, Sampling, Thinking, ToolChoice, tool
from bridle.core.context.assemble import assemble_request
from bridle.core.loop import apply_event
from bridle.core.state import State
from bridle.events import PrefixMoved, RequestAdjusted
from bridle.providers import load_codec
from bridle.providers.catalogue import find_model
from bridle.testing import FakeClock, scripted
from bridle.testing.scripted_model import call_reply, text_reply
from bridle.values.calls import PermissionRule, Policy
from bridle.values.errors import Failure, MisuseError
from bridle.values.events import Configured, ModelAsked, Prompted
from bridle.values.message import Stop, Text
from bridle.values.request import Extra, ToolSpec
from bridle.values.settings import Settings


@tool(effect="read")
def look(where: str = "here") -> str:
    """Look somewhere."""
    return f"nothing in {where}"


class Asked:
    """A watcher that keeps what was asked, as it was sent and as it was recorded."""

    def __init__(self):
        self.events = []

    def on_event(self, session, what):
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


def test_an_unlisted_model_gets_what_was_asked_for():
    model = find_model("groq:some/model", environ={})
    assert not model.abilities.output_limited
    assert not find_model("anthropic:=claude-next-9", environ={}).abilities.output_limited


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
        ("sim:openai/gpt-6.1-terra", "none"),
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
    found = find_model(f"{vendor}:={name}", environ=environ)
    assert any(noted in note for note in remarks_of(found, sampling=sampling))


@pytest.mark.parametrize(
    "model", ["gemini:gemini-3.5-flash", "bedrock:anthropic.claude-sonnet-5", "deepseek:deepseek-v4-pro"]
)
def test_parallel_calls_that_cannot_be_switched_off_are_noted(model):
    assert any(
        "parallel=False was left out" in note
        for note in remarks_of(find_model(model, environ={}), parallel=False)
    )


def remarks_of(model, *, sampling=None, parallel=True):
    settings = Settings(
        model=model,
        tools=(look.spec,),
        tool_choice=ToolChoice(parallel=parallel),
        sampling=sampling or Sampling(),
    )
    state = apply_event(State(), Configured(settings=settings, session="s"))
    request, notes = assemble_request(apply_event(state, Prompted(parts=(Text(text="Hello"),))))
    return (*notes, *load_codec(model.endpoint.family).list_losses(request))


# ── what belongs to another provider, and what cannot be forced ─────────────


class Hosted:
    """A tool that the provider runs itself."""

    def __init__(self, native, name="search", **more):
        self.spec = ToolSpec(name=name, native=json.dumps(native), **more)

    async def run(self, arguments, context):
        raise AssertionError("a hosted tool is not run here")


CLAUDE, GPT, CHAT = "sim:anthropic/claude-sonnet-5", "sim:openai/gpt-5.4", "sim:openai-chat/gpt-5.4"
GEMINI, BEDROCK = "sim:gemini/gemini-3.5-flash", "sim:bedrock/anthropic.claude-sonnet-5"
SEARCHES = {
    CLAUDE: {"type": "web_search_20250305", "name": "web_search"},
    GPT: {"type": "web_search"},
    GEMINI: {"googleSearch": {}},
    BEDROCK: {"systemTool": {"name": "nova_grounding"}},
}
EXTRAS = {
    CLAUDE: ("inference_geo", '"us"'),
    GPT: ("text", '{"verbosity":"low"}'),
    CHAT: ("verbosity", '"low"'),
    GEMINI: ("labels", '{"team":"a"}'),
    BEDROCK: ("requestMetadata", '{"team":"a"}'),
}


class Body:
    """The bodies that were sent while this is open."""

    def __enter__(self):
        self.sent, self.open = [], True
        sys.addaudithook(self._hook)
        return self

    def _hook(self, event, args):
        if self.open and event == "bridle.asked":
            self.sent.append(json.loads(args[2]))

    def __exit__(self, *_):
        self.open = False


def list_adjustments(seen):
    return [each for event in seen.events if isinstance(event, RequestAdjusted) for each in event.adjustments]


@pytest.mark.parametrize("model", EXTRAS)
@pytest.mark.parametrize("owner", EXTRAS)
def test_an_extra_reaches_only_the_provider_it_belongs_to(model, owner):
    """Another provider's extra is refused; if a run asks another model, the extra is not sent."""
    name, value = EXTRAS[owner]
    extras = [Extra(name=name, json=value)]
    if model != owner:
        with pytest.raises(MisuseError, match=f"extra '{name}' is a field of"):
            Agent(model, extras=extras)
    seen = Asked()
    with Body() as body:
        Agent(owner, extras=extras, watchers=[seen]).run_sync("Hello", model=model)
    (sent,) = body.sent
    assert (name in sent) == (model == owner)
    assert bool(list_adjustments(seen)) == (model != owner)
    assert all(f"the extra {name!r} is not sent: it belongs to" in each for each in list_adjustments(seen))


def test_an_extra_stays_behind_when_another_provider_goes_on():
    down = Failure(kind="overloaded", message="down", status=529)
    extras = [Extra(name="inference_geo", json='"us"')]
    chain = [scripted(*[down] * 9, model=CLAUDE), scripted("here", model=GPT)]
    seen = Asked()
    agent = Agent(chain, extras=extras, attempts_max=1, watchers=[seen], clock=FakeClock())
    with Body() as body:
        assert agent.run_sync("Hello").text == "here"
    assert ["inference_geo" in sent for sent in body.sent] == [True, False]
    assert len(list_adjustments(seen)) == 1


def test_an_extra_that_is_newer_than_the_lists_belongs_to_the_model_it_was_given_for():
    field = [Extra(name="brand_new", json="1", unlisted=True)]
    assert Agent(CLAUDE, extras=field).settings.extras[0].owners == ("anthropic",)
    theirs = Extra(name="brand_new", json="1", owners=("openai_chat",), unlisted=True)
    assert Agent([CLAUDE, CHAT], extras=[theirs]).settings.extras == (theirs,)


@pytest.mark.parametrize(
    ("model", "owner"),
    [
        (model, owner)
        for model in (CLAUDE, GPT, CHAT, GEMINI, BEDROCK)
        for owner in SEARCHES
        if (model, owner) != (BEDROCK, BEDROCK)  # no simulated model there has a tool of its own
    ],
)
def test_a_hosted_tool_reaches_only_the_provider_it_belongs_to(model, owner):
    with Body() as body:
        seen = ask(
            model, tools=[Hosted(SEARCHES[owner]), look] if model != GEMINI else [Hosted(SEARCHES[owner])]
        )
    (sent,) = body.sent
    tools = json.dumps([sent.get("tools"), sent.get("toolConfig")])
    inside = json.dumps(SEARCHES[owner])[1:-1].replace("{}", "") in tools
    assert inside == (model == owner)
    assert bool(list_adjustments(seen)) == (model != owner)


def test_in_strict_mode_the_run_ends_before_anything_is_sent():
    agent = Agent(GPT, tools=[Hosted(SEARCHES[CLAUDE]), look], on_adjusted="error")
    with Body() as body:
        result = agent.run_sync("Hello", session="s")
        again = asyncio.run(agent.resume("s"))
    assert (result.stop, again.stop, body.sent) == ("failed", "failed", [])
    assert "the hosted tool 'search' is not offered" in result.reason
    assert 'on_adjusted="event"' in result.reason


@pytest.mark.parametrize(
    ("rule", "offered"),
    [
        ({"decision": "deny", "tools": ["search"]}, False),
        ({"decision": "ask", "tools": ["sea*"]}, False),
        ({"decision": "deny", "tools": ["search"], "arguments": {"query": "*secret*"}}, False),
        ({"decision": "deny", "tools": ["other"]}, True),
        ({"decision": "deny", "callers": ["guest"]}, False),
        ({"decision": "deny", "callers": ["owner"]}, True),
        ({"decision": "allow", "tools": ["search"]}, True),
    ],
)
def test_the_policy_governs_hosted_tools(rule, offered):
    seen = Asked()
    policy = Policy(rules=(PermissionRule(name="mine", **rule),))
    agent = Agent(GPT, tools=[Hosted(SEARCHES[GPT])], policy=policy, watchers=[seen])
    with Body() as body:
        assert agent.run_sync("Hello", caller="guest").stop == "done"
    assert ("tools" in body.sent[0]) == offered
    assert [("mine" in each) for each in list_adjustments(seen)] == ([] if offered else [True])


def test_a_hosted_tool_that_wants_a_person_is_not_offered():
    seen = ask(GPT, tools=[Hosted(SEARCHES[GPT], approve="always")])
    assert "but approval is required" in list_adjustments(seen)[0]


@pytest.mark.parametrize(
    ("model", "options"),
    [
        ("sim:anthropic/claude-sonnet-5-5", {}),
        ("sim:deepseek/deepseek-v4-pro", {}),
        ("sim:anthropic/claude-sonnet-4-5", {"thinking": Thinking(mode="enabled", budget_tokens=2_000)}),
    ],
)
def test_a_tool_that_cannot_be_forced_is_reported(model, options):
    seen = ask(model, tools=[look], tool_choice="look", **options)
    assert [each.startswith("tool choice 'look' became 'auto'") for each in list_adjustments(seen)] == [True]
    strict = Agent(model, tools=[look], tool_choice="look", on_adjusted="error", **options)
    result = strict.run_sync("Hello")
    assert (result.stop, result.steps) == ("failed", 0)
    assert "tool choice 'look' became 'auto'" in result.reason


def test_a_choice_of_a_later_step_that_cannot_be_forced_is_reported_then():
    script = scripted(call_reply(("look", {})), "done", model="sim:anthropic/claude-sonnet-5-5")
    seen = Asked()
    choose = lambda step: "auto" if step == 1 else "look"  # noqa: E731
    Agent(script, tools=[look], tool_choice=choose, watchers=[seen]).run_sync("go")
    kinds = [type(event).__name__ for event in seen.events]
    assert kinds.index("RequestAdjusted") > kinds.index("ToolFinished")


FORCED = [CLAUDE, GPT, "openai-chat:gpt-5.4", GEMINI, BEDROCK]
SIMULATED = {
    "anthropic": "sim:anthropic/claude-sonnet-4-5",
    "openai": "sim:openai/gpt-5.4",
    "openai-chat": "sim:openai-chat/gpt-5.4",
    "gemini": "sim:gemini/gemini-3.5-flash",
    "bedrock_converse": "sim:bedrock_converse/global.anthropic.claude-sonnet-4-6",
}
FORCED_CHOICES = ["any", "look"]


@dataclass
class Seen:
    place: str


def list_choices(choice, *script, model, **options):
    """The tool choices that were sent in one run, and its result."""
    seen = Asked()
    agent = Agent(
        scripted(*script, model=model), tools=[look], tool_choice=choice, watchers=[seen], **options
    )
    result = agent.run_sync("go")
    return [event.tool_choice.mode for event in seen.events if isinstance(event, ModelAsked)], result


@pytest.mark.parametrize("model", FORCED)
@pytest.mark.parametrize("choice", FORCED_CHOICES)
def test_a_call_is_forced_until_it_was_made(model, choice):
    mode = "any" if choice == "any" else "tool"
    script = call_reply(("look", {})), call_reply(("look", {"where": "there"})), "done"
    modes, result = list_choices(choice, *script, model=model)
    assert (modes, result.stop, result.text) == ([mode, "auto", "auto"], "done", "done")
    always = ToolChoice(mode=mode, name="" if mode == "any" else "look", every_step=True)  # type: ignore[arg-type]
    assert set(list_choices(always, *script, model=model)[0]) == {mode}


@pytest.mark.parametrize("model", FORCED)
@pytest.mark.parametrize("choice", FORCED_CHOICES)
def test_a_reply_without_the_call_does_not_release_it(model, choice):
    cut = text_reply("I will", stop=Stop.LENGTH)
    modes, result = list_choices(choice, cut, call_reply(("look", {})), "done", model=model)
    assert modes[0] == modes[1] and modes[2] == "auto" and result.stop == "done"


@pytest.mark.parametrize("model", FORCED)
@pytest.mark.parametrize("choice", FORCED_CHOICES)
def test_each_run_of_a_session_forces_its_own_call(model, choice):
    seen = Asked()
    script = scripted(call_reply(("look", {})), "a", call_reply(("look", {"where": "b"})), "b", model=model)
    agent = Agent(script, tools=[look], tool_choice=choice, watchers=[seen])
    assert [agent.run_sync("go", "s").text for _ in range(2)] == ["a", "b"]
    modes = [event.tool_choice.mode for event in seen.events if isinstance(event, ModelAsked)]
    assert modes[0] == modes[2] != "auto" and modes[1] == modes[3] == "auto"


@pytest.mark.parametrize("family", ["anthropic", "openai", "openai-chat", "gemini", "bedrock_converse"])
@pytest.mark.parametrize("choice", FORCED_CHOICES)
@pytest.mark.parametrize("output", [None, Seen, dict[str, int]])
def test_a_forced_call_and_an_answer_of_a_type_on_every_wire(family, choice, output):
    """Natively where the wire can express the type, else by a tool; the simulator answers as the providers do."""
    seen = Asked()
    agent = Agent(SIMULATED[family], tools=[look], tool_choice=choice, output=output, watchers=[seen])
    is_by_call = agent.settings.output is not None and agent.settings.output.mode == "tool"
    result = agent.run_sync("Look there.")
    asked = [event.tool_choice.mode for event in seen.events if isinstance(event, ModelAsked)]
    assert result.stop == "done", result.reason
    # Where the answer is a call, it satisfies "any".
    assert asked[0] != "auto" and len(asked) == (1 if choice == "any" and is_by_call else 2)
    assert output is None or isinstance(result.output, typing.get_origin(output) or output)


@pytest.mark.parametrize(
    ("model", "steps", "expected"),
    [
        (CLAUDE, ["auto", "none", "none"], [("settings", "tool_choice")]),
        (CLAUDE, ["auto", "look", "auto"], [("settings", "tool_choice")] * 2),
        (BEDROCK, ["auto", "none", "auto"], []),
        (BEDROCK, ["auto", "look", "look"], [("settings", "tool_choice")]),
        (GPT, ["auto", "look", "none"], []),
        (
            GPT,
            ["auto", ToolChoice(parallel=False), ToolChoice(parallel=False)],
            [("settings", "tool_choice")],
        ),
    ],
)
def test_a_choice_by_step_that_moves_the_cached_prompt_is_named(model, steps, expected):
    script = scripted(call_reply(("look", {})), call_reply(("look", {"where": "b"})), "done", model=model)
    seen = Asked()
    Agent(script, tools=[look], tool_choice=lambda step: steps[step - 1], watchers=[seen]).run_sync("go")
    moved = [event for event in seen.events if isinstance(event, PrefixMoved)]
    assert [(event.layer, event.block) for event in moved] == expected
    assert all(event.cause == "choice_changed" for event in moved)


def test_strict_prefixes_refuse_a_choice_by_step_and_let_a_forced_first_step_go():
    def run(choice):
        script = scripted(call_reply(("look", {})), "done", model=CLAUDE)
        return Agent(script, tools=[look], tool_choice=choice, prefix="strict").run_sync("go")

    by_step = run(lambda step: "look" if step == 1 else "auto")
    assert (by_step.stop, by_step.steps) == ("failed", 1)
    assert "tool choice was 'look'" in by_step.reason
    assert run("look").stop == "done"


def test_bedrock_keeps_its_tools_when_none_may_be_called():
    script = scripted(call_reply(("look", {})), "done", model=BEDROCK)
    ran = []

    @tool(effect="read")
    def look() -> str:
        """Look."""
        ran.append(1)
        return "seen"

    seen = Asked()
    agent = Agent(script, tools=[look], tool_choice="none", watchers=[seen])
    with Body() as body:
        result = agent.run_sync("go")
    assert (result.text, ran) == ("done", [])
    assert [sent["toolConfig"]["tools"][0]["toolSpec"]["name"] for sent in body.sent] == ["look", "look"]
    assert any("tool choice 'none' was left out" in note for note in seen.notes)


def test_a_tool_of_one_server_is_no_tool_of_others_on_its_wire():
    hosted = Hosted({"type": "web_search", "web_search": {"enable": True}})
    assert Agent("zai:glm-5.3", tools=[hosted]).settings.tools[0].native_to == ("zai",)
    assert "zai" in Agent("deepseek:deepseek-v4-pro", tools=[hosted]).settings.tools[0].native_to
    mine = Hosted({"type": "brand_new"})
    assert Agent("zai:glm-5.3", tools=[mine]).settings.tools[0].native_to == ("openai_chat",)
