"""Token estimates: counted usage is used where it exists, and an estimate alone never ends a run."""

import pytest
from msgspec.structs import replace

from bridle.core.compaction.plan import plan_compaction
from bridle.core.compaction.strategies import (
    compaction_threshold,
    estimated_tokens,
    fit_limit_tokens,
    minimum_tokens,
    scale_to_tokens,
    view_weight,
)
from bridle.core.context.token_estimate import append_history, append_message, append_prompt
from bridle.core.effects import EndRun
from bridle.values import events as e
from bridle.values.errors import Failure
from bridle.values.message import Media, Message, Text, ToolResult
from bridle.values.settings import Compaction
from bridle.values.usage import Usage
from tests.core.loop_story import SETTINGS, Story, call, says

SMALL = replace(SETTINGS, context_tokens=10_000)


def test_the_gate_is_a_share_of_the_window_and_leaves_room_for_the_reply():
    story = Story(SMALL)
    assert (compaction_threshold(story.state), fit_limit_tokens(story.state)) == (8_000, 9_500)
    story = Story(replace(SMALL, compaction=Compaction(at=1.0, to=0.5), max_tokens=1_000))
    assert compaction_threshold(story.state) == 9_000
    large = Story(replace(SETTINGS, context_tokens=1_000_000))
    assert compaction_threshold(large.state) == 800_000


def test_less_is_asked_for_as_the_window_fills():
    story = Story(SMALL)
    assert story.effect().request.max_tokens == 8_192
    story.reply(says("", call("look"), usage=Usage(input=7_000, output=500)))
    assert 2_000 < story.perform().request.max_tokens <= 2_500


def test_what_the_provider_counted_is_believed_and_the_rest_may_be_a_quarter_of_it():
    story = Story(SMALL, prompt="word " * 2_000)
    assert estimated_tokens(story.state) > 5_000
    assert minimum_tokens(story.state) < estimated_tokens(story.state) // 3
    story.reply(says("", call("look"), usage=Usage(input=3_000, output=100)))
    assert estimated_tokens(story.state) == minimum_tokens(story.state) == 3_100


@pytest.mark.parametrize(
    ("usage", "tokens"),
    [
        (Usage(input=3_000, output=1_300), 4_300),
        (Usage(input=3_000, output=850), 3_850),  # a tokenizer may join some of the words
        (Usage(input=3_000, output=5), 4_000),
        (Usage(input=3_000), 4_000),
        (Usage(input=3_000, output=2_005, reasoning=2_000), 6_000),
    ],
)
def test_a_reply_has_at_least_as_many_tokens_as_words(usage, tokens):
    story = Story(SMALL)
    story.reply(says("word " * 1_000, usage=usage))
    assert estimated_tokens(story.state) == minimum_tokens(story.state) == tokens


def test_a_prompt_that_may_fit_is_sent_and_one_that_cannot_is_not():
    may = Story(SMALL, prompt="word " * 5_000)
    assert estimated_tokens(may.state) > 10_000
    assert plan_compaction(may.state) is None
    cannot = Story(SMALL, prompt="word " * 20_000)
    end = cannot.effect()
    assert isinstance(end, EndRun)
    assert end.stop == "context"
    assert "the prompt m1 (about 50,0" in end.reason


def test_half_of_the_weight_is_half_of_what_was_counted():
    story = Story(SMALL)
    story.reply(says("", call("look"), usage=Usage(input=4_000, output=0)))
    state = story.state
    whole = view_weight(state, state.conversation.view)
    assert scale_to_tokens(state, whole, whole) == 4_000
    assert scale_to_tokens(state, whole // 2, whole) <= 2_000


def test_a_provider_that_says_it_is_too_long_is_right():
    story = Story(SMALL)
    story.tell(e.ModelAsked(step=1, attempt=1, digest=""))
    story.tell(e.ModelFailed(failure=Failure(kind="context", message="too long")))
    assert estimated_tokens(story.state) == minimum_tokens(story.state) == 10_001
    assert story.effect().stop == "context"
    off = Story(replace(SMALL, compaction=None))
    off.tell(e.ModelAsked(step=1, attempt=1, digest=""))
    off.tell(e.ModelFailed(failure=Failure(kind="context", message="too long")))
    assert (off.effect().stop, off.effect().reason) == ("failed", "too long")


def test_history_is_appended_as_its_messages_are():
    picture = Media(kind="image", media_type="image/jpg", data="aGVsbG8=")
    messages = [
        Message(role="user", parts=(Text(text="see"), picture)),
        Message(role="assistant", parts=(call("look"),)),
        Message(role="tool", parts=(ToolResult(call_id="c1", parts=(picture, Text(text="a cat"))),)),
        Message(role="user", parts=(Text(text="and?"),)),
        Message(role="assistant", parts=(Text(text="that is all"),)),
    ]
    for count in range(len(messages) + 1):
        state = Story(SMALL).state
        one_by_one = state
        for message in messages[:count]:
            append = append_prompt if message.role == "user" else append_message
            one_by_one = append(one_by_one, message)
        assert append_history(state, messages[:count]) == one_by_one
