"""The view: what is sent when it differs from the recorded conversation."""

import asyncio

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridle import Agent, tool
from bridle.core.context.view import (
    CONVERSATION_OPENING,
    NO_RESULT,
    PICTURE_REMOVED,
    PICTURES_KEPT,
    PICTURES_SLACK,
    make_legal,
)
from bridle.core.effects import AskModel, ChangeView, EndRun
from bridle.core.loop import apply_event
from bridle.core.state import State
from bridle.stores.memory import MemoryStore
from bridle.testing.scripted_model import NO_ORIGIN, scripted
from bridle.values import events as e
from bridle.values.errors import Failure
from bridle.values.message import Media, Message, Reasoning, Reply, Stop, Text, ToolCall, ToolResult
from bridle.values.model import Abilities, Origin
from bridle.values.request import Thinking
from bridle.values.settings import ATTEMPTS_DEFAULT
from tests.core.loop_story import SETTINGS, Story, call, says
from tests.sim.sim_families import MODELS

PICTURE = Media(kind="image", media_type="image/png", data="aGk=")

words = st.sampled_from(["", " \n", "hello", "\ud83d", "\x00"])
ids = st.sampled_from([f"c{n}" for n in range(6)])
parts = st.one_of(
    st.builds(Text, text=words),
    st.builds(Reasoning, text=words, signature=st.just("s")),
    st.just(PICTURE),
)
messages = st.lists(
    st.one_of(
        st.builds(Message, role=st.just("user"), parts=st.lists(parts, max_size=3).map(tuple)),
        st.builds(
            Message,
            role=st.just("assistant"),
            parts=st.lists(
                st.one_of(parts, st.builds(ToolCall, id=ids, name=st.just("f"), arguments=st.just("{}"))),
                max_size=4,
            ).map(tuple),
        ),
        st.builds(
            Message,
            role=st.just("tool"),
            parts=st.lists(st.builds(ToolResult, call_id=ids), max_size=4).map(tuple),
        ),
    ),
    max_size=12,
)


def unique_calls(history):
    """Ids are unique in a session by construction; make them so here."""
    seen, told = set(), []
    for message in history:
        kept = tuple(
            p for p in message.parts if not (isinstance(p, ToolCall) and (p.id in seen or seen.add(p.id)))
        )
        told.append(msgspec.structs.replace(message, parts=kept))
    return tuple(told)


@given(messages.map(unique_calls))
def test_every_history_becomes_legal_and_stays_so(history):
    told, _ = make_legal(history)
    for index, message in enumerate(told):
        assert any(not isinstance(part, Reasoning) for part in message.parts)
        assert all(part.text.strip() for part in message.parts if isinstance(part, Text))
        if message.calls:
            answers = told[index + 1]
            assert answers.role == "tool"
            assert [r.call_id for r in answers.results] == [c.id for c in message.calls]
        if message.results:
            assert told[index - 1].calls
            assert len(message.parts) == len(message.results)
    assert not told or told[0].role != "assistant"
    assert make_legal(told) == (told, ())


@given(messages.map(unique_calls))
def test_no_call_and_no_word_is_lost(history):
    told, repairs = make_legal(history)
    before = [c for m in history for c in m.calls]
    assert [c for m in told for c in m.calls] == before

    def spoken(line):
        return [p.text for m in line for p in m.parts if isinstance(p, Text) and p.text.strip()]

    assert [text for text in spoken(told) if text != CONVERSATION_OPENING] == spoken(history)
    unanswered = {c.id for c in before} - {r.call_id for m in history for r in m.results}
    assert sum("no result" in repair for repair in repairs) >= len(unanswered)


def test_a_missing_result_is_unknown_and_a_result_out_of_order_finds_its_call():
    history = (
        Message(role="user", parts=(Text(text="go"),)),
        Message(
            role="assistant", parts=tuple(ToolCall(id=f"c{n}", name="f", arguments="{}") for n in range(3))
        ),
        Message(
            role="tool", parts=(ToolResult(call_id="c2"), ToolResult(call_id="c0"), ToolResult(call_id="cx"))
        ),
    )
    told, repairs = make_legal(history)
    assert [(r.call_id, r.outcome) for r in told[-1].results] == [
        ("c0", "ok"),
        ("c1", "unknown"),
        ("c2", "ok"),
    ]
    assert told[-1].results[1].text == NO_RESULT
    assert len(repairs) == 2


def screenshots(story, count):
    for _ in range(count):
        story.reply(says("", call("look")))
        story.tell(e.ToolStarted(call_id=f"c{story.state.totals.reply_count}_0", name="look", key="k"))
        result = ToolResult(call_id=f"c{story.state.totals.reply_count}_0", parts=(PICTURE,))
        story.tell(e.ToolFinished(result=result))


def sent_pictures(story):
    (ask,) = [story.effect()]
    return [p for m in ask.request.messages for r in m.results for p in r.parts if isinstance(p, Media)]


def test_old_screenshots_go_in_batches_and_the_log_keeps_them():
    story = Story(msgspec.structs.replace(SETTINGS, repeats_max=None))
    screenshots(story, PICTURES_KEPT + PICTURES_SLACK)
    assert isinstance(story.effect(), AskModel)
    screenshots(story, 1)
    change = story.effect()
    assert isinstance(change, ChangeView)
    story.tell(e.ViewChanged(changes=change.changes, why=change.why))
    assert len(sent_pictures(story)) == PICTURES_KEPT
    kept = [
        p
        for m in story.state.conversation.transcript.messages
        for r in m.results
        for p in r.parts
        if isinstance(p, Media)
    ]
    assert len(kept) == PICTURES_KEPT + PICTURES_SLACK + 1
    first = next(m for m in story.effect().request.messages if m.results)
    assert first.results[0].text == PICTURE_REMOVED
    before = story.effect().request.messages
    screenshots(story, PICTURES_SLACK)
    assert story.effect().request.messages[: len(before)] == before


def test_what_is_too_large_is_left_out_also_after_a_switch_of_models():
    small = msgspec.structs.replace(SETTINGS.model, abilities=Abilities(image_bytes_max=100))
    big = Media(kind="image", media_type="image/png", data="A" * 400)
    story = Story()
    story.tell(e.RunEnded(stop="cancelled"))
    story.tell(e.Prompted(parts=(Text(text="look"), big)))
    assert story.effect().request.messages[-1].parts[1] == big
    story.tell(e.Configured(settings=msgspec.structs.replace(SETTINGS, model=small)))
    change = story.effect()
    assert isinstance(change, ChangeView)
    story.tell(e.ViewChanged(changes=change.changes, why=change.why))
    assert "300 bytes" in story.effect().request.messages[-1].text
    assert story.state.conversation.transcript.messages[-1].parts[1] == big


def at(name="test", **abilities):
    """The settings of a session with a model of these abilities."""
    endpoint = msgspec.structs.replace(SETTINGS.model.endpoint, name=name)
    model = msgspec.structs.replace(SETTINGS.model, endpoint=endpoint, abilities=Abilities(**abilities))
    return msgspec.structs.replace(SETTINGS, model=model)


def change_view_and_request(story):
    """The request that is due, after every change of the view that is."""
    whys = []
    while isinstance(effect := story.effect(), ChangeView):
        whys.append(effect.why)
        story.tell(e.ViewChanged(changes=effect.changes, why=effect.why, model_key=effect.model_key))
        assert len(whys) < 5
    assert isinstance(effect, AskModel)
    return effect.request, whys


PDF = Media(kind="document", media_type="application/pdf", data="aGk=", name="plan.pdf")
TIFF = Media(kind="image", media_type="image/tiff", data="aGk=")
ZIP = Media(kind="document", media_type="application/zip", data="aGk=")
HELD = Media(kind="image", file_id="file_1")


@pytest.mark.parametrize(
    ("media", "abilities", "words"),
    [
        (PICTURE, {}, ""),
        (PICTURE, {"images": False}, "takes no pictures"),
        (PDF, {}, ""),
        (PDF, {"documents": False}, "document plan.pdf left out: this model takes no documents"),
        (TIFF, {}, "takes no image/tiff"),
        (TIFF, {"image_types": ()}, ""),
        (TIFF, {"image_types": ("image/*",)}, ""),
        (ZIP, {}, "takes no application/zip"),
        (Media(kind="image", media_type="image/svg+xml", url="https://x/y.svg"), {}, "image/svg+xml"),
        (Media(kind="image", media_type="IMAGE/PNG; q=1", data="aGk="), {}, ""),
        (Media(kind="document", media_type="text/csv", data="aGk="), {}, ""),
        (Media(kind="image", url="https://x/y"), {}, ""),
        (Media(kind="image", media_type="image/jpg", data="aGk="), {}, ""),
        (HELD, {}, ""),
    ],
)
@pytest.mark.parametrize("inside", [False, True])
def test_what_a_model_cannot_take_is_told_in_words(media, abilities, words, inside):
    story = Story(at(**abilities))
    if inside:
        story.reply(says("", call("look")))
        story.tell(e.ToolStarted(call_id="c1_0", name="look", key="k"))
        story.tell(e.ToolFinished(result=ToolResult(call_id="c1_0", parts=(Text(text="see"), media))))
    else:
        story.tell(e.RunEnded(stop="cancelled"))
        story.tell(e.Prompted(parts=(Text(text="see"), media)))
    request, whys = change_view_and_request(story)
    last = request.messages[-1]
    told = last.results[0].parts[1] if inside else last.parts[1]
    if words:
        assert isinstance(told, Text) and words in told.text
        assert len(whys) == 1
    else:
        assert isinstance(told, Media) and whys == []
    kept = story.state.conversation.transcript.messages[-1]
    assert isinstance((kept.results[0].parts if inside else kept.parts)[1], Media)


def test_what_one_model_cannot_take_the_next_one_gets():
    """Back at the first, the very picture is there again: reasoning may be bound to it."""
    story = Story(at("sees"))
    story.tell(e.RunEnded(stop="cancelled"))
    story.tell(e.Prompted(parts=(Text(text="look"), PICTURE)))
    before, _ = change_view_and_request(story)
    story.tell(e.Configured(settings=at("blind", images=False)))
    there, whys = change_view_and_request(story)
    assert whys == ["this model takes no pictures"]
    assert "no pictures" in there.messages[-1].text
    story.tell(e.Configured(settings=at("sees")))
    again, whys = change_view_and_request(story)
    assert (again.messages, whys) == (before.messages, [])
    story.tell(e.Configured(settings=at("blind", images=False)))
    once_more, whys = change_view_and_request(story)
    assert (once_more.messages, whys) == (there.messages, [])


def test_a_file_goes_only_to_the_provider_that_holds_it():
    story = Story(at("first"))
    story.tell(e.RunEnded(stop="cancelled"))
    story.tell(e.Prompted(parts=(Text(text="look"), HELD)))
    before, _ = change_view_and_request(story)
    assert before.messages[-1].parts[1].file_id == "file_1"
    story.tell(e.Configured(settings=at("second")))
    there, whys = change_view_and_request(story)
    assert whys == ["a file is held by another provider"]
    assert "file_1" not in str(there.messages)
    assert "held by first" in there.messages[-1].text
    story.tell(e.Configured(settings=at("first")))
    assert change_view_and_request(story)[0].messages == before.messages


def test_a_file_of_an_imported_conversation_is_held_where_that_was():
    story = Story(at("second"))
    story.tell(e.RunEnded(stop="cancelled"))
    owner = Origin(family="f", endpoint="first", model="m")
    held = Message(role="user", parts=(Text(text="look"), HELD), origin=owner)
    story.tell(e.Imported(messages=(held,)))
    story.tell(e.Prompted(parts=(Text(text="go on"),)))
    assert "file_1" not in str(change_view_and_request(story)[0].messages)


THOUGHT = Reasoning(text="hm", signature="s1")
REFUSED = Failure(kind="reasoning_refused", message="Invalid `signature` in `thinking` block", status=400)


def refuse(story, failure=REFUSED):
    ask = story.effect()
    story.tell(e.ModelAsked(step=ask.step, attempt=ask.attempt, digest=""))
    story.tell(e.ModelFailed(failure=failure))


def thoughtful(settings=SETTINGS):
    story = Story(settings)
    signed = ToolCall(id="", name="look", arguments='{"n":1}', native='{"thoughtSignature":"t"}')
    story.reply(says("so", signed, more=(THOUGHT,)))
    story.perform()
    return story


def thoughts(request):
    return [p for m in request.messages for p in m.parts if isinstance(p, Reasoning)]


def test_refused_reasoning_is_left_out_once_and_the_model_asked_again():
    story = thoughtful()
    before = story.effect().request
    refuse(story)
    request, whys = change_view_and_request(story)
    assert whys == ["earlier reasoning was not taken back"]
    assert thoughts(before) == [THOUGHT] and thoughts(request) == []
    assert [c.native for m in request.messages for c in m.calls] == [None]
    assert [m.text for m in request.messages] == [m.text for m in before.messages]
    assert story.effect().wait_seconds == 0
    assert THOUGHT in story.state.conversation.transcript.messages[1].parts
    refuse(story)
    assert story.effect() == EndRun(stop="failed", reason=REFUSED.message)


def test_other_failures_of_the_step_do_not_use_up_that_chance():
    story = thoughtful()
    for _ in range(ATTEMPTS_DEFAULT - 2):
        refuse(story, Failure(kind="overloaded", message="busy"))
    refuse(story)
    request, _ = change_view_and_request(story)
    assert thoughts(request) == []
    refuse(story, Failure(kind="overloaded", message="busy"))
    assert isinstance(story.effect(), EndRun)  # that was the last try of this step


def test_new_reasoning_after_a_refusal_is_sent_and_may_be_refused_in_its_turn():
    story = thoughtful()
    refuse(story)
    change_view_and_request(story)
    later = Reasoning(text="and so", signature="s2")
    story.reply(says("", call("look"), more=(later,)))
    story.perform()
    request, whys = change_view_and_request(story)
    assert (thoughts(request), whys) == ([later], [])
    refuse(story)
    assert thoughts(change_view_and_request(story)[0]) == []


def test_a_refusal_by_one_model_changes_nothing_for_another():
    story = thoughtful(at("first"))
    before = story.effect().request.messages
    refuse(story)
    change_view_and_request(story)
    story.tell(e.Configured(settings=at("second")))
    assert change_view_and_request(story)[0].messages == before


def test_where_thinking_has_an_allowance_it_is_off_until_the_calls_are_dealt_with():
    """That mode demands the reasoning that was just left out."""
    able = {"thinking": ("enabled", "disabled"), "allowance_mode": "enabled"}
    wish = Thinking(mode="enabled", budget_tokens=2000)
    story = Story(msgspec.structs.replace(at(**able), thinking=wish))
    story.reply(says("", call("look"), more=(THOUGHT,)))
    story.perform()
    assert story.effect().request.thinking == wish
    refuse(story)
    assert change_view_and_request(story)[0].thinking == Thinking(mode="disabled")
    story.reply(says("done"))
    story.end()
    story.tell(e.Prompted(parts=(Text(text="more"),)))
    assert change_view_and_request(story)[0].thinking == wish


def test_a_server_that_wants_reasoning_before_results_and_a_prompt_gets_the_turn_without_thinking():
    """Both stand in one message there; not every server takes that for a new turn."""
    able = {"thinking": ("enabled", "disabled"), "allowance_mode": "enabled"}
    wish = Thinking(mode="enabled", budget_tokens=2000)
    story = Story(msgspec.structs.replace(at(**able), thinking=wish))
    story.reply(says("", call("look")))
    story.tell(e.RunEnded(stop="cancelled"))
    story.tell(e.Prompted(parts=(Text(text="more"),)))
    assert change_view_and_request(story)[0].thinking == wish
    refuse(story)
    assert change_view_and_request(story)[0].thinking == Thinking(mode="disabled")


@given(st.lists(st.sampled_from(["reply", "refused", "overloaded", "switch", "blind"]), max_size=12))
def test_after_any_refusal_the_run_goes_on_or_ends_and_the_log_keeps_everything(happenings):
    """Folding the same events again gives the same view, and no request repeats a refused body."""
    story, sent = Story(msgspec.structs.replace(at("a"), repeats_max=None), prompt="go"), []
    for happening in happenings:
        if isinstance(story.perform(), EndRun):
            break
        request = story.effect().request
        match happening:
            case "reply":
                story.reply(says("", call("look"), more=(Reasoning(text="hm", signature=f"s{story.at}"),)))
                continue
            case "switch" | "blind":
                to = at(happening, images=happening != "blind")
                story.tell(e.Configured(settings=msgspec.structs.replace(to, repeats_max=None)))
                continue
            case "refused":
                if thoughts(request):
                    assert (request.model.model_key, request.messages) not in sent
                    sent.append((request.model.model_key, request.messages))
        kind = "overloaded" if happening == "overloaded" else "reasoning_refused"
        refuse(story, Failure(kind=kind, message="no"))  # type: ignore[arg-type]
    fresh = State()
    for number, event in enumerate(story.told, 1):
        fresh = apply_event(fresh, event, float(number), proof=f"p{float(number)}")
    assert fresh == story.state


def test_a_conversation_from_elsewhere_is_the_beginning():
    story = Story()
    story.tell(e.RunEnded(stop="cancelled"))
    history, repairs = make_legal((Message(role="user", parts=(Text(text="before"),)),))
    story.tell(e.Imported(messages=history, repairs=repairs))
    assert [m.id for m in story.state.conversation.view] == ["m1", "m2"]
    assert story.state.conversation.view[1].text == "before"


def test_what_belongs_to_a_result_stays_with_it():
    owner = Origin(family="f", endpoint="e", model="m")
    asked = Message(role="assistant", parts=(ToolCall(id="c0", name="f", arguments="{}"),), origin=owner)
    result = ToolResult(call_id="c0", native='{"toolset_name":"x"}')
    told, repairs = make_legal(
        (
            Message(role="user", parts=(Text(text="go"),)),
            asked,
            Message(role="tool", parts=(result,), origin=owner),
        )
    )
    assert told[-1] == Message(role="tool", parts=(result,), origin=owner)
    assert repairs == ()


def test_a_blank_text_that_carries_something_is_kept():
    carrier = Text(text="", native='{"thoughtSignature":"x"}')
    told, repairs = make_legal(
        (
            Message(role="user", parts=(Text(text="go"),)),
            Message(role="assistant", parts=(Text(text="so"), carrier)),
        )
    )
    assert told[-1].parts[-1] == carrier
    assert repairs == ()


@tool(effect="read")
def look(n: int) -> str:
    """Look."""
    return "seen"


def scripted_of_family(family, *replies):
    """A model of that family which says these things, on its own wire."""
    return scripted(*replies, model=MODELS[family])


def make_reply_with_call():
    call = ToolCall(id="", name="look", arguments='{"n":1}')
    parts = (Reasoning(text="hm"), Text(text="let me see"), call)
    return Reply(parts=parts, stop=Stop.TOOLS, origin=NO_ORIGIN)


WORDINGS = {
    "anthropic": "messages.1.content.0: Invalid `signature` in `thinking` block. The block is bound to a"
    " different conversation. Remove the block, or set `thinking.block_binding.prefix_mismatch_behavior` to"
    ' "drop_block".',
    "bedrock_converse": "messages.1.content.0: `thinking` or `redacted_thinking` blocks in the latest assistant"
    " message cannot be modified. These blocks must remain as they were in the original response.",
}


@pytest.mark.parametrize("family", WORDINGS)
@pytest.mark.parametrize("times", [1, 2])
def test_a_provider_that_refuses_reasoning_is_asked_once_more_without(family, times):
    no = Failure(kind="reasoning_refused", message=WORDINGS[family], status=400)
    line, store = scripted_of_family(family, make_reply_with_call(), *[no] * times, "done"), MemoryStore()
    result = Agent(line, tools=[look], store=store).run_sync("go", session="s")
    events = [record.event for record in asyncio.run(store.read("s"))]
    told = [
        type(event).__name__ for event in events if type(event).__name__ not in ("Configured", "ModelAsked")
    ]
    assert told[:6] == [
        "Prompted",
        "ModelReplied",
        "ToolStarted",
        "ToolFinished",
        "ModelFailed",
        "ViewChanged",
    ]
    asked = line.script.requests
    assert [len(thoughts(request)) for request in asked] == [0, 1, 0]
    assert (result.stop, result.text) == (("done", "done") if times == 1 else ("failed", ""))
    if times == 1:
        assert not any(isinstance(part, Reasoning) for part in asked[-1].messages[1].parts)
        assert any(isinstance(part, Reasoning) for part in result.messages[1].parts)
