"""What goes to a model when it may not be what was said."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from bridle.core.effects import AskModel, ChangeView
from bridle.core.handoff import BEGINNING, NO_RESULT, PICTURE_GONE, PICTURES_BATCH, PICTURES_KEPT, legal
from bridle.values import event as e
from bridle.values.message import Message
from bridle.values.model import Abilities, Origin
from bridle.values.parts import Media, Reasoning, Text, ToolCall, ToolResult
from test_loop import SETTINGS, Story, call, says

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
    told, _ = legal(history)
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
    assert legal(told) == (told, ())


@given(messages.map(unique_calls))
def test_no_call_and_no_word_is_lost(history):
    told, repairs = legal(history)
    before = [c for m in history for c in m.calls]
    assert [c for m in told for c in m.calls] == before

    def spoken(line):
        return [p.text for m in line for p in m.parts if isinstance(p, Text) and p.text.strip()]

    assert [text for text in spoken(told) if text != BEGINNING] == spoken(history)
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
    told, repairs = legal(history)
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
        story.tell(e.ToolStarted(call_id=f"c{story.state.replies}_0", name="look", key="k"))
        result = ToolResult(call_id=f"c{story.state.replies}_0", parts=(PICTURE,))
        story.tell(e.ToolFinished(result=result))


def sent_pictures(story):
    (ask,) = [story.effect()]
    return [p for m in ask.request.messages for r in m.results for p in r.parts if isinstance(p, Media)]


def test_old_screenshots_go_in_batches_and_the_log_keeps_them():
    story = Story(msgspec.structs.replace(SETTINGS, repeats_max=None))
    screenshots(story, PICTURES_KEPT + PICTURES_BATCH)
    assert isinstance(story.effect(), AskModel)
    screenshots(story, 1)
    change = story.effect()
    assert isinstance(change, ChangeView)
    story.tell(e.ViewChanged(changes=change.changes, why=change.why))
    assert len(sent_pictures(story)) == PICTURES_KEPT
    kept = [
        p for m in story.state.transcript.messages for r in m.results for p in r.parts if isinstance(p, Media)
    ]
    assert len(kept) == PICTURES_KEPT + PICTURES_BATCH + 1
    first = next(m for m in story.effect().request.messages if m.results)
    assert first.results[0].text == PICTURE_GONE
    before = story.effect().request.messages
    screenshots(story, PICTURES_BATCH)
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
    assert story.state.transcript.messages[-1].parts[1] == big


def test_a_conversation_from_elsewhere_is_the_beginning():
    story = Story()
    story.tell(e.RunEnded(stop="cancelled"))
    history, repairs = legal((Message(role="user", parts=(Text(text="before"),)),))
    story.tell(e.Imported(messages=history, repairs=repairs))
    assert [m.id for m in story.state.view] == ["m1", "m2"]
    assert story.state.view[1].text == "before"


def test_what_belongs_to_a_result_stays_with_it():
    owner = Origin(family="f", endpoint="e", model="m")
    asked = Message(role="assistant", parts=(ToolCall(id="c0", name="f", arguments="{}"),), origin=owner)
    result = ToolResult(call_id="c0", native='{"toolset_name":"x"}')
    told, repairs = legal(
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
    told, repairs = legal(
        (
            Message(role="user", parts=(Text(text="go"),)),
            Message(role="assistant", parts=(Text(text="so"), carrier)),
        )
    )
    assert told[-1].parts[-1] == carrier
    assert repairs == ()
