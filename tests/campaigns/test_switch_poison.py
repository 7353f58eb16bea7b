"""Histories that have killed sessions elsewhere, written for every wire family: none may be refused.

Blank texts, halves of characters, ids that are missing, empty, repeated or illegal, arguments that broke
off, results out of order, twice, never, or of calls nobody made; runs that were interrupted.  Each history
is made of turns of many endpoints and judged by `family_rules`.  BRIDLE_CAMPAIGN multiplies the examples.
"""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as trying
from hypothesis import strategies as st
from msgspec.structs import replace

from bridle.core.context.view import make_legal
from bridle.core.loop import apply_event
from bridle.core.state import State
from bridle.testing.conformance.codec_samples import PIXEL_PNG
from bridle.values import events as e
from bridle.values.message import Media, Message, Outcome, Part, Text, ToolCall, ToolResult
from bridle.values.request import Request, ToolSpec
from bridle.values.settings import Settings
from tests.campaigns.switch_servers import PROFILES, Profile, Server
from tests.sim.rules.family_rules import load_body, violations
from tests.suite.campaign import scale

EXAMPLES = scale(200)
CAMPAIGN = trying(
    max_examples=EXAMPLES,
    deadline=None,
    report_multiple_bugs=False,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
BLANK = ("", " ", "\n\t ", "\u00a0")
POISON = (*BLANK, "a\x00b", "half \ud83d", "\udf21 the other half", "\ud83d", "🌡️", "x" * 3_000, "plain")
WIRE_IDS = ("", "same", "same", "a.b/c d", "é", "y" * 300, "z" * 50, "c1_0")
ARGUMENTS = ('{"where": "left"}', "{}", "", "null", "[1]", '{"where": "le', '{"half": "\ud83d"}', "1e999")
OUTCOMES: tuple[Outcome, ...] = (
    "ok", "error", "retry", "invalid", "denied", "timeout", "cancelled", "unknown",
)  # fmt: skip
TOOLS = (
    ToolSpec(name="look", description="Look.", parameters='{"type":"object","properties":{}}'),
    ToolSpec(name="photo", description="Take.", parameters='{"type":"object","properties":{}}'),
)
PICTURE = Media(kind="image", media_type="image/png", data=PIXEL_PNG)
Draw = Callable[[st.SearchStrategy[object]], object]


@st.composite
def histories(draw, profile: Profile) -> tuple[Server, tuple[Message, ...]]:
    home = Server(profile, "here")
    speakers = [home, home, *(Server(other, f"away-{other.name}") for other in PROFILES)]
    messages: list[Message] = []
    if draw(st.booleans()):
        messages.append(Message(role="user", parts=_texts(draw, ("Hello?", *POISON), 1)))
    for _ in range(draw(st.integers(1, 5))):
        speaker = draw(st.sampled_from(speakers))
        reply = speaker.reply(len(speaker.own_turns))
        speaker.own_turns.append(reply)
        parts = tuple(_poisoned(draw, reply.parts, speaker, home, len(messages)))
        said = Message(role="assistant", parts=parts, origin=reply.origin, usage=reply.usage, stop=reply.stop)
        messages.append(said)
        messages += _answers(draw, said, messages)
    # A request asks for something: it ends with a result of the last call, or with the user.
    asked = {call.id for call in next(each for each in reversed(messages) if each.role == "assistant").calls}
    if draw(st.booleans()) or not any(result.call_id in asked for result in messages[-1].results):
        messages.append(Message(role="user", parts=(*_texts(draw, POISON, 0), Text(text="Go on."))))
    return home, tuple(replace(each, id=f"m{place}") for place, each in enumerate(messages, 1))


def _poisoned(draw: Draw, parts: tuple[Part, ...], speaker: Server, home: Server, number: int) -> list[Part]:
    """Its own family takes back what it said as it said it, so there no words are put behind calls."""
    told: list[Part] = []
    calls: Any = 0
    for part in parts:
        if draw(st.integers(0, 4)) == 0:
            kin: Any = speaker.profile.family == home.profile.family
            told.append(Text(text=draw(st.sampled_from(BLANK if calls and kin else POISON))))  # type: ignore[arg-type]
        if isinstance(part, ToolCall):
            signed = part.native is not None and "thoughtSignature" in part.native
            wire_id: Any = draw(st.sampled_from((part.wire_id, *WIRE_IDS)))
            speaker.handed.call_ids.add(wire_id)
            arguments = part.arguments if signed else draw(st.sampled_from((part.arguments, *ARGUMENTS)))
            part = replace(part, id=f"c{number}_{calls}", wire_id=wire_id, arguments=arguments)
            calls += 1
        if isinstance(part, Text) and part.native is None:
            part = Text(text=draw(st.sampled_from((part.text, *POISON))))  # type: ignore[arg-type]
        told.append(part)
    # A reply that was cut short, with or without its calls.
    return told[: draw(st.integers(1, len(told)))] if draw(st.integers(0, 5)) == 0 else told


def _answers(draw: Draw, said: Message, before: list[Message]) -> list[Message]:
    results: Any = [
        ToolResult(
            call_id=call.id,
            parts=(*_texts(draw, POISON, 0), *((PICTURE,) if draw(st.booleans()) else ())),
            outcome=draw(st.sampled_from(OUTCOMES)),  # type: ignore[arg-type]
        )
        for call in said.calls
        if draw(st.integers(0, 4))
    ]
    if draw(st.booleans()):
        results.reverse()
    if results and draw(st.integers(0, 4)) == 0:
        results.append(results[0])
    if draw(st.integers(0, 4)) == 0:
        earlier = [call.id for message in before for call in message.calls]
        orphan: Any = draw(st.sampled_from(["nobody", *earlier]))
        results.insert(0, ToolResult(call_id=orphan, parts=(Text(text="orphan"),)))
    if not results:
        return []
    match draw(st.sampled_from(("one", "two", "with words", "words between"))):
        case "two" if len(results) > 1:
            return [Message(role="tool", parts=(results[0],)), Message(role="tool", parts=tuple(results[1:]))]
        case "with words":
            return [Message(role="user", parts=(Text(text="By the way."), *results))]
        case "words between":
            talk = Message(role="user", parts=_texts(draw, ("Well?", *POISON), 1))
            return [talk, Message(role="tool", parts=tuple(results))]
    return [Message(role="tool", parts=tuple(results))]


def _texts(draw: Draw, choices: tuple[str, ...], least: int) -> tuple[Text, ...]:
    texts = draw(st.lists(st.sampled_from(choices), min_size=least, max_size=3))
    return tuple(Text(text=text) for text in texts)  # type: ignore[attr-defined]


def find_refusal(home: Server, messages: tuple[Message, ...]) -> list[str]:
    request = Request(
        model=home.model, system=(Text(text="Be brief."),), tools=TOOLS, messages=messages, max_tokens=1_000
    )
    encoded = home.codec.encode(request)
    return violations(
        home.profile.family,
        load_body(encoded.body),
        headers=dict(encoded.headers),
        sent_before=home.handed,
        demands=home.profile.demands,
        abilities=home.profile.abilities,
    )


@pytest.mark.parametrize("profile", PROFILES, ids=lambda one: one.name)
def test_poisoned_histories_made_legal(profile):
    @CAMPAIGN
    @given(histories(profile))
    def check(made):
        home, messages = made
        told, _ = make_legal(messages)
        assert find_refusal(home, told) == []
        assert make_legal(told) == (told, ())

    check()


@pytest.mark.parametrize("profile", PROFILES, ids=lambda one: one.name)
def test_poisoned_histories_as_they_are(profile):
    @CAMPAIGN
    @given(histories(profile))
    def check(made):
        home, messages = made
        assert find_refusal(home, messages) == []

    check()


@pytest.mark.parametrize("profile", PROFILES, ids=lambda one: one.name)
@pytest.mark.parametrize("finished", range(4))
def test_an_interrupted_run_is_spoken_to_again(profile, finished):
    """Cancelled with calls open, of which some were finished in reverse order, and half a reply later."""
    home = Server(profile, "here")
    ids = ["c1_0", "c1_1", "c1_2"]
    numbers = iter(ids)
    given = home.reply(0)
    reply = replace(
        given,
        parts=tuple(replace(p, id=next(numbers)) if isinstance(p, ToolCall) else p for p in given.parts),
    )
    happened: list[e.Event] = [
        e.Configured(settings=Settings(model=home.model, tools=TOOLS), session="s"),
        e.Prompted(parts=(Text(text="Hello?"),)),
        e.ModelAsked(step=1, attempt=1, digest=""),
        e.ModelReplied(reply=reply),
        *(e.ToolStarted(call_id=id_, name="look", key=id_) for id_ in ids),
        *(
            e.ToolFinished(result=ToolResult(call_id=id_, parts=(Text(text="seen"),)))
            for id_ in list(reversed(ids))[:finished]
        ),
        e.RunEnded(stop="cancelled", partial_text="half \ud83d"),
        e.Prompted(parts=(Text(text="And?"),)),
        e.ModelAsked(step=1, attempt=1, digest=""),
        e.RunEnded(stop="cancelled", partial_text=" \n"),
        e.Prompted(parts=(Text(text="Still there?"),)),
    ]
    state = State()
    for number, event in enumerate(happened):
        state = apply_event(state, event, float(number), f"proof {number}")
    outcomes = [result.outcome for message in state.conversation.view for result in message.results]
    assert outcomes.count("ok") == finished
    assert len(outcomes) == len(ids)
    assert find_refusal(home, state.conversation.view) == []
