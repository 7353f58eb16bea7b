"""Nothing requested is dropped, changed or ignored in silence: it is sent, or an event says why not.

With `on_adjusted="error"` the run ends instead of going on.
"""

import asyncio
import json
from base64 import b64encode
from typing import Any

import pytest
from msgspec.structs import replace

from bridle import Agent, Media, MisuseError, Sampling, Thinking, ToolChoice, tool
from bridle.core.context.assemble import UNSENT_INSTRUCTIONS
from bridle.core.context.media import find_unsupported_media
from bridle.core.context.model_constraints import apply_model_constraints
from bridle.providers import load_codec
from bridle.providers.catalogue import find_model, known_models
from bridle.providers.tables import load_tables
from bridle.run.history import import_history
from bridle.run.replay.replay_session import replay_sync
from bridle.stores.memory import MemoryStore
from bridle.testing import FakeClock, ProviderSim, scripted
from bridle.testing.scripted_model import call_reply
from bridle.values import events as e
from bridle.values.message import Message, Text, ToolCall, ToolResult
from bridle.values.model import EFFORT_ORDER
from bridle.values.request import Request
from bridle.values.settings import Settings

DOCX = Media(
    kind="document",
    media_type="application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    data="UEsDBBQABgAIAAAAIQ==",
    name="offer.docx",
)
CLAUDE, GPT = "sim:anthropic/claude-sonnet-5-5", "sim:openai/gpt-6.1-sol"
CHAT, GEMINI = "sim:xai/grok-4.7", "sim:gemini/gemini-3.8-flash"


@tool(effect="read")
def look(city: str) -> str:
    """Look at a city."""
    return f"sun in {city}"


def events_of(store):
    return [record.event for record in asyncio.run(store.read("s"))]


def list_adjustments(events):
    """Every recorded difference between what was requested and what was sent."""
    return [
        note
        for event in events
        for note in (
            event.adjustments
            if isinstance(event, e.RequestAdjusted)
            else event.notes
            if isinstance(event, e.ModelAsked)
            else ()
        )
    ]


PICTURE_ADDRESS = Media(kind="image", media_type="image/png", url="https://example.com/a.png", name="a.png")
DOCUMENT_ADDRESS = Media(kind="document", media_type="application/pdf", url="https://example.com/a.pdf")
PICTURE_FILE = Media(kind="image", media_type="image/png", file_id="file-1")
BEDROCK = "sim:bedrock/global.anthropic.claude-sonnet-5-5"

CASES = {
    "sampling": (CLAUDE, {"sampling": Sampling(temperature=0)}, "!say Hi.", "temperature left out"),
    "length": (CLAUDE, {"max_tokens": 10**9}, "!say Hi.", "max_tokens 1,000,000,000 became 128,000"),
    "effort": (GPT, {"thinking": Thinking(effort="none")}, "!say Hi.", "effort 'none' became"),
    "mode": (GPT, {"thinking": Thinking(mode="disabled")}, "!say Hi.", "thinking mode 'disabled' was left"),
    "allowance": (CLAUDE, {"thinking": Thinking(budget_tokens=2_000)}, "!say Hi.", "allowance for thinking"),
    "stops": (GPT, {"sampling": Sampling(stop_sequences=("END",))}, "!say Hi.", "stop sequences 'END'"),
    "top_k": (CHAT, {"sampling": Sampling(top_k=3)}, "!say Hi.", "top_k was left out"),
    "one call": (
        GEMINI,
        {"tools": [look], "tool_choice": ToolChoice(parallel=False)},
        "!say Hi.",
        "parallel",
    ),
    "choice": (CLAUDE, {"tools": [look], "tool_choice": "look"}, "!say Hi.", "became 'auto'"),
    "chain": (CLAUDE, {"chain": True}, "!say Hi.", "the conversation is sent whole"),
    "chain, chat": (CHAT, {"chain": True}, "!say Hi.", "the conversation is sent whole"),
    "conversation": (CLAUDE, {"chain": "conversation"}, "!say Hi.", "the conversation is sent whole"),
    "conversation, chat": (CHAT, {"chain": "conversation"}, "!say Hi.", "the conversation is sent whole"),
    "conversation, Gemini": (GEMINI, {"chain": "conversation"}, "!say Hi.", "the conversation is sent whole"),
    "display": (CHAT, {"thinking": Thinking(display="omitted")}, "!say Hi.", "the display of reasoning"),
    "document": (
        CLAUDE,
        {},
        ["!say Hi.", DOCX],
        "document offer.docx left out: this model takes no application",
    ),
    "address of a picture": (
        BEDROCK, {}, ["!say Hi.", PICTURE_ADDRESS], "picture a.png left out: sim takes no picture by its address",
    ),
    "address of a document": (
        CHAT, {}, ["!say Hi.", DOCUMENT_ADDRESS], "document left out: sim takes no document by its address",
    ),
    "file of a picture": (
        CHAT, {}, ["!say Hi.", PICTURE_FILE], "picture left out: sim takes no picture by the id of a file",
    ),
}  # fmt: skip


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_an_adjustment_is_an_event_or_ends_the_run(name, stream):
    model, options, prompt, words = CASES[name]
    for strict in (False, True):
        provider, store = ProviderSim(clock=FakeClock()), MemoryStore()
        agent = Agent(  # type: ignore[arg-type]
            provider.model(find_model(model, environ={})),
            store=store,
            on_adjusted="error" if strict else "event",
            **options,
        )

        async def run(agent=agent):
            if not stream:
                return await agent.run(prompt, session="s")
            return [item async for item in agent.stream(prompt, session="s")][-1].result

        result = asyncio.run(run())
        noted = list_adjustments(events_of(store))
        assert any(words in note for note in noted), noted
        if strict:
            assert result.stop == "failed"
            assert words in result.reason
            assert 'on_adjusted="event"' in result.reason
            assert not any(isinstance(event, e.ModelAsked) for event in events_of(store)), "nothing is sent"
        else:
            assert result.stop == "done"


@pytest.mark.parametrize("strict", [False, True])
def test_media_of_a_result_that_the_wire_cannot_carry_is_an_adjustment(strict):
    """It comes after the first request, for which nothing had to be noted; a replay notes the same."""

    @tool(effect="read")
    def draw() -> Media:
        """Draw."""
        return PICTURE_ADDRESS

    store, provider = MemoryStore(), ProviderSim(clock=FakeClock())
    model = provider.model(find_model(BEDROCK, environ={}))
    agent = Agent(model, tools=[draw], store=store, on_adjusted="error" if strict else "event")
    result = agent.run_sync("!call draw {}", session="s")
    words = "picture a.png left out: sim takes no picture by its address; pass its bytes"
    assert list_adjustments(events_of(store)).count(words) == 1
    assert (result.stop, words in result.reason) == (("failed", True) if strict else ("done", False))
    assert replay_sync("s", store=store).is_equal
    if not strict:
        agent.run_sync("!say Hi.", session="s")
        assert list_adjustments(events_of(store)).count(words) == 2, "once per run"
        assert replay_sync("s", store=store).is_equal


@pytest.mark.parametrize("strict", [False, True])
def test_an_imported_system_prompt_that_is_not_sent_is_an_adjustment(strict):
    history = import_history(
        "openai-chat", [{"role": "system", "content": "Be rude."}, {"role": "user", "content": "hi"}]
    )
    store = MemoryStore()
    agent = Agent(
        scripted("Hello."),
        instructions="Be kind.",
        store=store,
        on_adjusted="error" if strict else "event",
    )
    result = agent.run_sync("Go on.", session="s", history=history)
    assert UNSENT_INSTRUCTIONS in list_adjustments(events_of(store))
    assert (result.stop, UNSENT_INSTRUCTIONS in result.reason) == (
        ("failed", True) if strict else ("done", False)
    )


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("choice", ["any", "look"])
def test_a_forced_tool_that_the_model_ignores_is_not_silent(choice, strict):
    store = MemoryStore()
    agent = Agent(
        scripted("I would rather not."),
        tools=[look],
        tool_choice=choice,
        store=store,
        on_adjusted="error" if strict else "event",
    )
    result = agent.run_sync("?", session="s")
    words = f"tool choice {choice!r} was not followed: the reply has no call"
    assert words in list_adjustments(events_of(store))
    assert result.stop == ("failed" if strict else "done")
    assert words in result.reason


ANSWER: dict[str, Any] = {
    "title": "City",
    "type": "object",
    "properties": {"name": {"type": "string"}},
    "required": ["name"],
}


@pytest.mark.parametrize("validated", [False, True])
@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("choice", ["any", "look"])
def test_a_forced_tool_that_is_ignored_for_an_answer_of_a_type_is_not_silent(choice, strict, validated):
    store = MemoryStore()
    agent = Agent(
        scripted('{"name": "Rome"}', model="sim:openai/gpt-6-sol"),
        tools=[look],
        tool_choice=choice,
        output=ANSWER,
        validate=[lambda answer: answer] if validated else [],
        store=store,
        on_adjusted="error" if strict else "event",
    )
    assert agent.settings.output.mode == "native"
    result = agent.run_sync("?", session="s")
    words = f"tool choice {choice!r} was not followed: the reply has no call"
    assert list_adjustments(events_of(store)).count(words) == 1
    assert result.stop == ("failed" if strict else "done")
    assert strict or result.output == {"name": "Rome"}
    assert (words in result.reason) == (strict or not validated)


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("mode", ["auto", "any"])
def test_several_calls_where_one_was_allowed_are_not_silent(mode, strict):
    store, runs = MemoryStore(), []

    @tool
    def count(number: int) -> str:
        """Count."""
        runs.append(number)
        return "counted"

    agent = Agent(
        scripted(
            call_reply(("count", {"number": 1}), ("count", {"number": 2})),
            "done",
            model="sim:openai/gpt-6-sol",
        ),
        tools=[count],
        tool_choice=ToolChoice(mode=mode, parallel=False),
        store=store,
        on_adjusted="error" if strict else "event",
    )
    result = agent.run_sync("?", session="s")
    words = "parallel=False was not followed: the reply has several calls"
    assert list_adjustments(events_of(store)).count(words) == 1
    if strict:
        assert (result.stop, words in result.reason, runs) == ("failed", True, [])
    else:
        assert (result.stop, sorted(runs)) == ("done", [1, 2])
    assert strict or replay_sync("s", store=store).is_equal


FORCEABLE = {model.endpoint.name: model.id for model in known_models() if model.abilities.forced_tools}


@pytest.mark.parametrize("choice", ["any", "look"])
@pytest.mark.parametrize("endpoint", FORCEABLE)
def test_a_forced_call_is_made_once_on_every_endpoint(endpoint, choice):
    """Each endpoint has its own word for it; after the call the model may answer."""
    model = find_model(f"sim:{endpoint}/{FORCEABLE[endpoint]}", environ={})
    provider = ProviderSim(clock=FakeClock()).model(model)
    result = Agent(provider, tools=[look], tool_choice=choice).run_sync("How are you?")
    assert (result.stop, result.reason) == ("done", "")
    assert [call.name for message in result.messages for call in message.calls] == ["look"]


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("stream", [False, True])
def test_a_call_of_another_tool_than_the_forced_one_is_not_silent(strict, stream):
    runs, store = [], MemoryStore()

    @tool
    def other() -> str:
        """Something else."""
        runs.append(1)
        return "other"

    other_call, forced_call = call_reply(("other", {})), call_reply(("look", {"city": "Rome"}))
    agent = Agent(
        scripted(other_call, other_call, forced_call, "done"),
        tools=[look, other],
        tool_choice="look",
        store=store,
        on_adjusted="error" if strict else "event",
    )

    async def run():
        if not stream:
            return await agent.run("?", session="s")
        return [item async for item in agent.stream("?", session="s")][-1].result

    result = asyncio.run(run())
    words = "tool choice 'look' was not followed: the reply calls 'other'"
    assert list_adjustments(events_of(store)).count(words) == 1
    if strict:
        assert (result.stop, words in result.reason, runs) == ("failed", True, [])
    else:
        assert (result.stop, result.output, len(runs)) == ("done", "done", 2)


def test_a_reply_that_makes_the_forced_call_among_others_is_no_adjustment():
    store = MemoryStore()
    calls = call_reply(("look", {"city": "Rome"}), ("look", {"city": "Oslo"}))
    agent = Agent(scripted(calls, "done"), tools=[look], tool_choice="look", store=store)
    assert agent.run_sync("?", session="s").stop == "done"
    assert not list_adjustments(events_of(store))


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ({"effort": "hihg"}, "none, minimal, low, medium, high, xhigh, max"),
        ({"mode": "adaptve"}, "adaptive, enabled, disabled, between_tools"),
        ({"display": "summarised"}, "summarized, omitted"),
    ],
)
@pytest.mark.parametrize("model", [CLAUDE, GPT, GEMINI])
def test_a_word_that_does_not_exist_is_refused_when_the_agent_is_made(model, option, words):
    with pytest.raises(MisuseError, match=words) as caught:
        Agent(model, thinking=Thinking(**option))
    assert "\n" not in str(caught.value)
    agent = Agent(model)
    with pytest.raises(MisuseError, match=words):
        agent.run_sync("?", thinking=Thinking(**option))


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("name", ["temperature", "top_p"])
@pytest.mark.parametrize("model", [CLAUDE, GPT, CHAT, GEMINI])
def test_a_number_that_json_cannot_hold_is_refused(model, name, number):
    """Written as JSON it would be null, so that the model's default applied without a word."""
    given = Sampling(**{name: number})
    with pytest.raises(MisuseError, match=f"{name}={number}"):
        Agent(model, sampling=given)
    with pytest.raises(MisuseError, match=f"{name}={number}"):
        Agent(model).run_sync("?", sampling=given)
    with pytest.raises(MisuseError, match=f"{name}={number}"):
        Agent(model, sampling=lambda step: given).run_sync("?")


def test_a_word_of_a_vendor_of_its_own_is_accepted():
    assert Agent("groq:some-model", thinking=Thinking(effort="default")).settings.thinking


# Every option on every endpoint and model: in the body, or named as an adjustment.

THINKINGS = [
    *(Thinking(effort=effort) for effort in EFFORT_ORDER),
    *(
        Thinking(mode=mode)
        for mode in ("adaptive", "enabled", "disabled", "between_tools", "standard", "pro")
    ),
    Thinking(budget_tokens=2_048),
    Thinking(budget_tokens=10**6),
    *(Thinking(display=display) for display in ("summarized", "omitted", "auto")),
    Thinking(mode="disabled", effort="high"),
    Thinking(mode="adaptive", effort="max", display="summarized"),
]
SAMPLINGS = [
    Sampling(temperature=0.0),
    Sampling(temperature=0.7),
    Sampling(top_p=0.3),
    Sampling(top_k=17),
    Sampling(stop_sequences=("STOP-HERE",)),
    Sampling(stop_sequences=tuple(f"stop-{each}" for each in range(9))),
]
CHOICES = [
    ToolChoice(mode="any"),
    ToolChoice(mode="tool", name="look"),
    ToolChoice(mode="none"),
    ToolChoice(parallel=False),
]
OPTIONS = [
    *({"thinking": each} for each in THINKINGS),
    *({"sampling": each} for each in SAMPLINGS),
    *({"tool_choice": each} for each in CHOICES),
    {"max_tokens": 1_000},
    {"max_tokens": 10**9},
    {"chain": True},
]


def list_models():
    """One model of each endpoint for every set of abilities that its models have."""
    found = {}
    for model in known_models():
        found.setdefault((model.endpoint.name, model.abilities), model)
    served = {endpoint for endpoint, _ in found}
    for name, row in load_tables().endpoints.items():
        if name not in served and not row.simulated and row.family:
            found[name, None] = find_model(f"{name}:some-model", environ={}, needs_address=False)
    return list(found.values())


def encode(model, settings, options):
    """The body with these options as the harness sends them, the same without them, and what was noted."""
    codec = load_codec(model.endpoint.family)
    adjusted = apply_model_constraints(settings, settings.tool_choice)
    request = Request(
        model=model,
        tools=settings.tools,
        messages=(Message(id="m", role="user", parts=(Text(text="?"),)),),
        tool_choice=adjusted.tool_choice,
        max_tokens=min(settings.output_tokens_requested or 4_096, settings.window_tokens),
        thinking=adjusted.thinking,
        sampling=adjusted.sampling,
        keeps_server_state=settings.chain is True,
    )
    plain = replace(
        request,
        tool_choice=ToolChoice(),
        max_tokens=4_096,
        thinking=None,
        sampling=Sampling(),
        keeps_server_state=False,
    )
    noted = (*adjusted.notes, *adjusted.step_notes, *codec.list_losses(request))
    return json.loads(codec.encode(request).body), json.loads(codec.encode(plain).body), noted


def list_words(value):
    """Every name and value of a body, as text."""
    if isinstance(value, dict):
        return {str(name) for name in value} | set().union(*map(list_words, value.values()), set())
    if isinstance(value, list):
        return set().union(*map(list_words, value), set())
    return {json.dumps(value)}


def is_default(model, options, plain):
    """True if the option asks for what the model does anyway, so that nothing need be sent."""
    thinking, abilities = options.get("thinking"), model.abilities
    if thinking is None:
        return False
    is_usual_mode = (
        thinking.mode in ("", abilities.thinking_default)
        or json.dumps(thinking.mode) in plain
        or (
            # The only mode of the model, or the one that an effort or nothing asks for.
            thinking.mode in abilities.thinking and thinking.mode in ("adaptive", "standard")
        )
    )
    is_usual_display = thinking.display in ("", abilities.display_default) or (
        thinking.display == "omitted" and model.endpoint.family == "openai_responses"
    )
    return is_usual_mode and is_usual_display and not thinking.effort and thinking.budget_tokens is None


@pytest.mark.parametrize("model", list_models(), ids=lambda model: model.name)
def test_every_option_is_in_the_body_or_noted(model):
    silent = []
    for options in OPTIONS:
        made = Agent(scripted("x"), tools=[look]).settings
        settings = replace(made, model=model, models=(), **options)  # type: ignore[arg-type]
        assert isinstance(settings, Settings)
        body, plain, noted = encode(model, settings, options)
        if body == plain and not noted and not is_default(model, options, list_words(plain)):
            silent.append(options)
        numbers = [options["max_tokens"]] if "max_tokens" in options else []
        sampling = options.get("sampling")  # type: ignore[attr-defined]
        if sampling:
            numbers += [
                each for each in (sampling.temperature, sampling.top_p, sampling.top_k) if each is not None
            ]
        for number in numbers:
            if json.dumps(number) not in list_words(body) and not noted:
                silent.append((options, "another value"))
    assert not silent


BYTES = {
    ("image", "image/png"): b"\x89PNG\r\n\x1a\n",
    ("image", "image/tiff"): b"II*\0",
    ("document", "application/pdf"): b"%PDF-1.4",
    ("document", "text/plain"): b"hello",
    ("document", "application/json"): b"{}",
    ("document", "application/x-other"): b"other",
    ("audio", "audio/wav"): b"RIFF\x24\0\0\0WAVEfmt ",
    ("audio", "audio/flac"): b"fLaC",
    ("video", "video/mp4"): b"\0\0\0\x20ftypisom",
}


def list_media():
    """Media of every kind and type, by bytes, by address and by a file of the provider, with and without its type."""
    for (kind, media_type), data in BYTES.items():
        yield Media(kind=kind, media_type=media_type, data=b64encode(data).decode(), name="n")  # type: ignore[arg-type]
        for type_ in (media_type, ""):
            yield Media(kind=kind, media_type=type_, url="https://example.com/x", name="n")  # type: ignore[arg-type]
            yield Media(kind=kind, media_type=type_, file_id="file-1", name="n")  # type: ignore[arg-type]


def place_media(media):
    """A conversation with the media in a prompt, and one with it in a result."""
    prompt = Message(id="m", role="user", parts=(media, Text(text="?")))
    call = Message(id="a", role="assistant", parts=(ToolCall(id="c1", name="draw", arguments="{}"),))
    result = Message(id="t", role="tool", parts=(ToolResult(call_id="c1", parts=(media,)),))
    yield (prompt,)
    yield Message(id="m", role="user", parts=(Text(text="?"),)), call, result


def list_endpoints():
    """One model of each endpoint that takes every kind of media, as far as the tables know."""
    found = {}
    for model in list_models():
        able = replace(model.abilities, images=True, documents=True, videos=True, audio=True)
        able = replace(able, image_types=(), document_types=())
        found.setdefault(model.endpoint.name, replace(model, abilities=able))
    return list(found.values())


@pytest.mark.parametrize("model", list_endpoints(), ids=lambda model: model.endpoint.name)
def test_media_is_in_the_body_or_noted(model):
    """Whatever the tables say of a model: the wire itself may have no form for media."""
    codec, silent = load_codec(model.endpoint.family), []
    for media in list_media():
        for messages in place_media(media):
            if any(find_unsupported_media(message, model) for message in messages):
                continue
            request = Request(model=model, messages=messages, max_tokens=100)
            body = codec.encode(request).body.decode()
            noted = codec.list_unsent_media(messages, model)
            if ("left out" in body) != bool(noted):
                silent.append((media, messages[-1].role, noted))
    assert not silent


def test_the_highest_level_of_gemini_is_sent_where_a_model_takes_it():
    model = find_model("gemini:gemini-4-argon", environ={})
    taking = replace(model, abilities=replace(model.abilities, efforts=("low", "high", "xhigh")))
    made = Agent(scripted("x")).settings
    for each, level, noted in ((taking, "XHIGH", False), (model, "HIGH", True)):
        settings = replace(made, model=each, models=(), thinking=Thinking(effort="xhigh"))
        body, _, notes = encode(each, settings, {})
        assert body["generationConfig"]["thinkingConfig"]["thinkingLevel"] == level
        assert any("effort 'xhigh' became 'high'" in note for note in notes) is noted
