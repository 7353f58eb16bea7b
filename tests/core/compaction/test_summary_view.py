"""Property: after compaction of any conversation, the request is valid.

Random conversations are put to models with small windows, which refuse now and then what is too long.
Nothing is asked of the random but that the conversation is one.
"""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from bridle.core.calls.dispatch import number_calls
from bridle.core.compaction.strategies import tail_start
from bridle.core.context.excerpt import LONG_CHARACTERS
from bridle.core.context.token_estimate import estimate_text_tokens, window_tokens
from bridle.core.effects import AskModel, ChangeView, Compact, EndRun, RecordFinding
from bridle.core.loop import apply_event, next_effects
from bridle.core.state import State
from bridle.values import events as e
from bridle.values.errors import Failure
from bridle.values.message import Media, Message, Opaque, Reasoning, Reply, Stop, Text, ToolCall, ToolResult
from bridle.values.model import Abilities, Endpoint, Model, Origin
from bridle.values.request import ToolSpec
from bridle.values.settings import Compaction, Settings
from tests.core.compaction.long_walks import check_view, words_of
from tests.suite.campaign import scale

EXAMPLES = scale(150)
ROUNDS_MAX = 60
ORIGIN = Origin(family="scripted", endpoint="here", model="m")
PICTURE = Media(kind="image", media_type="image/png", data="AAAA")
SIZES = st.sampled_from([1, 5, 40, 300, 900, 6_000])


def text(number, size):
    return f"<{number}>" + " word" * size


@st.composite
def conversations(draw):
    """Prompts and turns, with calls, pictures and reasoning in them."""
    messages, calls = [], 0
    for number in range(draw(st.integers(1, 6))):
        messages.append(Message(role="user", parts=(Text(text=text(f"p{number}", draw(SIZES))),)))
        for _ in range(draw(st.integers(0, 5))):
            names = [f"c{calls + n}_0" for n in range(draw(st.integers(1, 3)))]
            calls += len(names)
            thought = (Reasoning(text="hm " * draw(SIZES), signature="s"),) if draw(st.booleans()) else ()
            asked = tuple(ToolCall(id=name, name="look", arguments="{}") for name in names)
            words = (Text(text=text("a", draw(SIZES))),) if draw(st.booleans()) else ()
            messages.append(Message(role="assistant", parts=(*thought, *words, *asked), origin=ORIGIN))
            results = []
            for name in names:
                shown = (PICTURE,) if draw(st.integers(0, 3)) == 0 else ()
                results.append(ToolResult(call_id=name, parts=(Text(text=text(name, draw(SIZES))), *shown)))
            messages.append(Message(role="tool", parts=tuple(results)))
        messages.append(
            Message(role="assistant", parts=(Text(text=text("done", draw(SIZES))),), origin=ORIGIN)
        )
    return tuple(messages)


def start_state(messages, window, keep, bound, *, able=False):
    endpoint = Endpoint(name="here", family="scripted", reasoning="signed")
    abilities = Abilities(context_tokens=window, bound_thinking=bound, compaction=able)
    wish = Settings(
        model=Model(id="m", endpoint=endpoint, abilities=abilities),
        tools=(ToolSpec(name="look"),),
        compaction=Compaction(keep=keep),
    )
    state = State()
    for at, event in enumerate(
        (
            e.Configured(settings=wish, session="s"),
            e.Imported(messages=messages),
            e.Prompted(parts=(Text(text="<now> go on"),)),
        )
    ):
        state = apply_event(state, event, float(at), f"p{at}")  # type: ignore[arg-type]
    return state


@settings(max_examples=EXAMPLES, deadline=None)
@given(
    conversations(),
    st.sampled_from([2_000, 5_000, 12_000, 60_000]),
    st.sampled_from([0.0, 0.1, 0.4]),
    st.booleans(),
    st.lists(st.sampled_from(["fine", "fine", "refused", "mute"]), min_size=ROUNDS_MAX, max_size=ROUNDS_MAX),
)
def test_what_is_sent_is_legal_and_keeps_what_people_said(messages, window, keep, bound, fates):
    state = start_state(messages, window, keep, bound)
    said = state.conversation.transcript.messages
    asked = 0
    for at, fate in enumerate(fates):
        (effect,) = next_effects(state)
        told: Any = []
        match effect:
            case EndRun(stop=stop):
                assert stop in ("context", "no_progress")
                return
            case Compact(event=event):
                assert event.changes or event.summarized_until
                told = [event]
            case RecordFinding(event=event):
                told = [event]
            case ChangeView(changes=changes, why=why, model_key=seat):
                told = [e.ViewChanged(changes=changes, why=why, model_key=seat)]
            case AskModel(request=request, summarizes_until=through):
                check_request(state, request, through)
                asked += not through
                if fate == "fine" and not through:
                    return
                told = [e.ModelAsked(step=1, attempt=effect.attempt, digest="", summarizes_until=through)]
                if fate == "refused":
                    told.append(e.ModelFailed(failure=Failure(kind="context", message="too long")))
                else:
                    words = () if fate == "mute" else (Text(text="It went well. " * 20),)
                    reply = Reply(parts=words, stop=Stop.DONE, origin=ORIGIN)
                    told.append(
                        e.ModelReplied(
                            reply=number_calls(reply, state.totals.reply_count + 1), summarizes_until=through
                        )
                    )
            case other:
                told = [e.Reprompted(why=other.why, message=other.message)]
        for event in told:
            state = apply_event(state, event, 10.0 + at, f"q{at}")
        assert state.conversation.transcript.messages[: len(said)] == said, "the log keeps what was said"
        check_view(state.conversation.view)
    raise AssertionError(f"no end after {ROUNDS_MAX} rounds and {asked} requests")


def check_request(state, request, through):
    messages = request.messages[:-1] if through else request.messages
    check_view(messages if messages[-1].role != "assistant" else messages[:-1] or messages)
    if through:
        return
    sent = {words for message in messages for words in words_of(message)}
    for prompt in state.conversation.transcript.messages:
        fits = estimate_text_tokens(prompt.text) <= window_tokens(state)
        if prompt.id in state.conversation.prompt_ids and len(prompt.text) <= LONG_CHARACTERS and fits:
            assert prompt.text in sent, f"{prompt.id} is gone"
    last = state.conversation.transcript.messages[-1]
    assert messages[-1].parts == last.parts
    assert state.conversation.transcript.messages[tail_start(state)].role != "tool"


def test_a_summary_stands_for_everything_before_it_and_another_for_the_first_one_too():
    messages = [
        Message(role="user", parts=(Text(text="<p0> first"),)),
        *[
            Message(role=role, parts=(Text(text=f"{role} {n}"),))
            for n in range(6)
            for role in ("assistant", "user")
        ],
    ]
    state = start_state(tuple(messages), 100_000, 0.1, bound=False)
    names = [message.id for message in state.conversation.transcript.messages]
    one = e.Compacted(
        strategies=("turns",),
        why="",
        summarized_until="m4",
        prompt_ids=("m1", "m3"),
        label="[u]",
        summary="first",
    )
    two = replace(one, summarized_until="m8", prompt_ids=("m1", "m3", "m5", "m7"), summary="second")
    after = apply_event(state, one, 5.0, "x")
    assert (after.conversation.summarized_count, [message.id for message in after.conversation.view]) == (
        4,
        ["m1-m4", *names[4:]],
    )
    again = apply_event(after, two, 6.0, "y")
    assert (again.conversation.summarized_count, [message.id for message in again.conversation.view]) == (
        8,
        ["m1-m8", *names[8:]],
    )
    texts = [part.text for part in again.conversation.view[0].parts]
    assert texts == ["[u]", "<p0> first", "[u]", "user 0", "[u]", "user 1", "[u]", "user 2", "second"]


def test_what_a_provider_made_of_the_turns_goes_to_nobody_else():
    sealed = Opaque(kind="compaction", native='{"type":"compaction"}')
    state = start_state(
        (Message(role="user", parts=(Text(text="hi"),)), Message(role="assistant", parts=(Text(text="ho"),))),
        100_000,
        0.1,
        bound=False,
        able=True,
    )
    event = e.Compacted(
        strategies=("turns",),
        why="",
        summarized_until="m2",
        summary="in words",
        native_parts=(sealed,),
        native_origin=ORIGIN,
    )
    able = replace(state.settings.model, abilities=replace(state.settings.model.abilities, compaction=True))
    state = apply_event(state, e.Configured(settings=replace(state.settings, model=able)), 4.0, "w")
    after = apply_event(state, event, 5.0, "x")
    assert after.conversation.view[0].parts == (sealed,)
    there = replace(able, endpoint=Endpoint(name="there", family="scripted"))
    moved = apply_event(after, e.ModelSwitched(model=there, why="tired"), 6.0, "y")
    assert moved.conversation.view[0].parts == (Text(text="in words"),)
