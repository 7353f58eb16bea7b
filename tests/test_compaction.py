"""A conversation is made shorter before it no longer fits, and nothing is lost by it."""

import asyncio
from itertools import pairwise

import pytest
from msgspec.structs import replace

from bridle import Agent, Compaction
from bridle.core.compaction import STRATEGIES
from bridle.core.forensics import examined
from bridle.core.loop import apply
from bridle.core.weighing import filled, gate
from bridle.stores.memory import MemoryStore
from bridle.testing import scripted
from bridle.testing.script import calls
from bridle.values import event as e
from bridle.values.errors import Failure, MisuseError
from bridle.values.message import Stop
from bridle.values.parts import Media, ToolCall, ToolResult
from long_walks import FAMILIES, PROMPT, Walk, check_view, folded, look_at, shoot_at, walker, words_of

ANTHROPIC = FAMILIES["anthropic"]
CALL = (ToolCall(id="x", wire_id="call_x", name="look", arguments='{"at": 77}'),)


def test_nothing_is_done_below_the_gate_and_never_a_request_is_sent_above_it():
    walk = Walk(ANTHROPIC)
    result = walk.run(30)
    assert (result.stop, result.text) == ("done", "I went through 30 places.")
    assert len(walk.compactions) >= 2
    state = folded(())
    for record in walk.records:
        if isinstance(record.event, e.Compacted):
            assert filled(state) > gate(state) == 6_400
            assert record.event.before_tokens == filled(state)
        if isinstance(record.event, e.ModelAsked) and not record.event.summary_of:
            assert filled(state) <= gate(state)
        if isinstance(record.event, e.ModelReplied) and not record.event.summary_of:
            assert record.event.reply.usage.prompt <= 6_400
        state = apply(state, record.event, record.at, record.hash)
    assert walk.provider.refusals == []


def test_the_window_is_the_models_own_unless_the_agent_says_otherwise():
    assert Walk(ANTHROPIC, context_tokens=None).agent.settings.window_tokens == 1_000_000
    assert Walk(ANTHROPIC).agent.settings.window_tokens == 8_000
    walk = Walk(ANTHROPIC, context_tokens=None)
    walk.run(30)
    assert walk.compactions == []


def test_it_can_be_turned_off():
    walk = Walk(ANTHROPIC, compaction=None)
    walk.run(30)
    assert walk.compactions == []
    assert max(event.reply.usage.prompt for event in walk.events if isinstance(event, e.ModelReplied)) > 8_000


@pytest.mark.parametrize(
    "wrong", [Compaction(at=0.5, to=0.6), Compaction(to=0.1, keep=0.2), Compaction(at=1.2), "often"]
)
def test_shares_that_make_no_sense_are_refused(wrong):
    with pytest.raises(MisuseError, match="compaction"):
        Agent("sim:", compaction=wrong)


def test_the_originals_stay_in_the_log_and_the_prompt_stays_word_for_word():
    walk = Walk(ANTHROPIC)
    result = walk.run(30)
    seen = [part.text for message in result.messages for part in message.results]
    assert [text.split(":")[0] for text in seen] == [f"At place {n}" for n in range(1, 31)]
    state = walk.state
    assert state.covered > 20
    assert len(state.view) < len(state.transcript.messages) / 3
    assert PROMPT.format(30) in list(words_of(state.view[0]))
    assert "up to place" in state.view[0].text
    check_view(state.view)


def test_strategies_are_tried_in_the_order_of_the_table():
    assert [strategy.name for strategy in STRATEGIES] == [
        "pictures",
        "results",
        "reasoning",
        "texts",
        "turns",
    ]
    keep = Compaction(keep=0.1)
    shots = Walk(ANTHROPIC, tools=[shoot_at(2)], context_tokens=12_000, compaction=replace(keep, pictures=1))
    shots.run(12)
    assert shots.compactions[0].how == ("pictures",)
    longer = Walk(ANTHROPIC, tools=[look_at(200)], context_tokens=30_000, compaction=keep)
    longer.run(20)
    assert longer.compactions[0].how == ("results",)
    short = Walk(ANTHROPIC)
    short.run(20)
    assert short.compactions[0].how == ("turns",)
    for walk in (shots, longer, short):
        for event in walk.compactions:
            order = [strategy.name for strategy in STRATEGIES if strategy.name != "turns"]
            assert [name for name in event.how if name != "turns"] == [n for n in order if n in event.how]
            assert event.after_tokens <= 0.5 * walk.agent.settings.window_tokens


def test_an_old_result_keeps_its_beginning_its_end_and_the_handle_of_the_whole():
    walk = Walk(ANTHROPIC, tools=[look_at(400)], context_tokens=24_000, result_characters=6_000)
    walk.run(14)
    assert walk.compactions[0].how[0] == "results"
    state = walk.state
    shrunk = [change.words for event in walk.compactions for change in event.changes]
    handles = {whole.handle for whole in state.wholes}
    assert shrunk
    for words in shrunk:
        assert words.startswith("At place")
        assert words.endswith("is fine.")
        assert sum(f'read_result(handle="{handle}", offset=' in words for handle in handles) == 1
    assert walk.provider.refusals == []


def test_the_newest_pictures_stay():
    walk = Walk(ANTHROPIC, tools=[shoot_at(200)], context_tokens=40_000)
    walk.run(25)
    pictures = [
        part
        for message in walk.state.view
        for result in message.parts
        if isinstance(result, ToolResult)
        for part in result.parts
        if isinstance(part, Media)
    ]
    assert 3 <= len(pictures) <= 6
    last = [message for message in walk.state.view if message.results][-1]
    assert any(isinstance(part, Media) for result in last.results for part in result.parts)


def test_it_says_what_it_costs():
    walk = Walk(ANTHROPIC)
    walk.run(20)
    event = walk.compactions[0]
    assert 0 < event.anew_tokens <= event.after_tokens < event.before_tokens
    rate = walk.line.model.price.rates(0).cache_write
    assert event.usd == rate * event.anew_tokens / 1_000_000
    asked = [reply for reply in walk.events if isinstance(reply, e.ModelReplied)]
    after = next(reply for before, reply in pairwise(asked) if before.summary_of and not reply.summary_of)
    assert event.anew_tokens * 0.5 < after.reply.usage.cache_write < event.anew_tokens * 1.5


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("think", [False, True])
def test_on_every_family_nothing_is_refused(family, think):
    walk = Walk(FAMILIES[family], brain=walker(think=think), compaction=Compaction(keep=0.3))
    result = walk.run(40)
    assert (result.stop, result.text) == ("done", "I went through 40 places."), result.reason
    assert walk.provider.refusals == []
    assert len(walk.compactions) >= 2
    check_view(walk.state.view)


@pytest.mark.parametrize("model", ["anthropic", "openai_responses", "deepseek", "openai_chat"])
@pytest.mark.parametrize("lines", [60, 200])
def test_fifty_steps_read_nearly_all_that_could_be_read_compaction_included(model, lines):
    window = 12_000 if lines == 60 else 30_000
    walk = Walk(
        FAMILIES[model], tools=[look_at(lines)], context_tokens=window, instructions="Be slow. " * 500
    )
    result = walk.run(49)
    assert result.stop == "done"
    assert sum(isinstance(event, e.ModelReplied) and not event.summary_of for event in walk.events) == 50
    assert len(walk.compactions) >= 2
    assert walk.share() >= 0.95


def test_the_prefix_moves_only_where_the_log_says_so_and_forensics_explain_the_miss():
    walk = Walk(ANTHROPIC, instructions="Walk slowly. " * 400)
    walk.run(30)
    moved = [event for event in walk.events if isinstance(event, e.PrefixMoved)]
    assert {event.cause for event in moved} == {"compacted"}
    assert len(moved) == len(walk.compactions)
    calls = examined(walk.records)
    assert {call.verdict for call in calls} == {"cold", "hit", "prefix"}
    assert sum(call.verdict == "prefix" for call in calls) == len(moved)
    assert all("would fill" in call.why for call in calls if call.verdict == "prefix")


def test_a_conversation_that_must_not_move_may_still_be_made_shorter():
    walk = Walk(ANTHROPIC, prefix="strict")
    assert walk.run(30).stop == "done"
    assert walk.compactions


def test_what_cannot_shrink_ends_the_run_and_is_named():
    walk = Walk(ANTHROPIC, instructions="Walk slowly and with care. " * 6_000)
    result = walk.run(5)
    assert result.stop == "context"
    assert "the instructions (about" in result.reason
    assert "larger window" in result.reason
    assert walk.provider.exchanges == []


def test_what_people_said_is_never_touched_and_may_be_too_much():
    walk = Walk(ANTHROPIC, context_tokens=6_000, tools=[look_at(40)])
    told = "I remember rule {} of the house, and nobody may forget it, for it matters to us all. " * 18

    async def story():
        for number in range(20):
            result = await walk.agent.run(f"{told.format(*[number] * 18)} Go through {number} places.", "s")
            if result.stop != "done":
                return result
        return result

    result = asyncio.run(story())
    assert result.stop == "context"
    assert "what was said and summarised up to" in result.reason
    view = walk.state.view
    sent = "".join(message.text for message in view)
    spoken = [message.text for message in result.messages if message.role == "user"]
    assert len(view) < len(result.messages)
    assert len(spoken) > 3
    assert all(text in sent for text in spoken)
    larger = Walk(ANTHROPIC, context_tokens=40_000, store=walk.store, tools=[look_at(40)])
    assert asyncio.run(larger.agent.resume("s")).stop == "done"


@pytest.mark.parametrize("words", ["", "   "])
def test_two_tries_in_vain_end_the_run(words):
    """Nobody says what was in the old turns."""
    walk = Walk(ANTHROPIC, brain=walker(summary=words))
    result = walk.run(30)
    assert result.stop == "context"
    assert "2 tries were in vain" in result.reason
    assert "tool results m" in result.reason
    assert walk.compactions == []
    assert sum(isinstance(event, e.ModelAsked) and bool(event.summary_of) for event in walk.events) == 2


def test_a_summary_as_long_as_what_it_stands_for_is_cut():
    walk = Walk(
        ANTHROPIC, brain=walker(summary="So I came up to place {place}. " + "It was a long way. " * 3_000)
    )
    assert walk.run(30).stop == "done"
    assert all(event.after_tokens < 4_000 for event in walk.compactions)


def test_a_model_that_calls_a_tool_instead_is_kept_from_it():
    plain = walker()

    def eager(request):
        wanted = request.messages[-1].role == "user" and request.tool_choice.mode != "none"
        if wanted and "Pause the work" in request.messages[-1].text:
            return replace(
                plain(replace(request, messages=request.messages[:-1])), parts=CALL, stop=Stop.TOOLS
            )
        return plain(request)

    walk = Walk(ANTHROPIC, brain=eager)
    assert walk.run(30).stop == "done"
    asked = [event for event in walk.events if isinstance(event, e.ModelAsked) and event.summary_of]
    assert [event.tool_choice.mode for event in asked[:2]] == ["auto", "none"]
    assert all(event.tool_choice.mode == "none" for event in asked[1:])
    ran = [event for event in walk.events if isinstance(event, e.ToolStarted)]
    assert len(ran) == 30


def test_what_a_provider_refuses_as_too_long_is_made_shorter_and_asked_again():
    failure = Failure(kind="context", message="prompt is too long: 9 tokens > 8 maximum")
    shots = [calls(("look", {"at": number})) for number in range(1, 9)]
    store = MemoryStore()
    line = scripted(*shots, failure, "done", "done")
    result = Agent(line, tools=[look_at(400)], store=store, repeats_max=None).run_sync("go", session="s")
    events = [record.event for record in asyncio.run(store.read("s"))]
    (event,) = [event for event in events if isinstance(event, e.Compacted)]
    assert (result.stop, result.text) == ("done", "done")
    assert "9 tokens > 8" in event.why
    assert event.how[0] == "results"


def test_a_provider_that_never_has_enough_ends_the_run():
    failure = Failure(kind="context", message="prompt is too long")
    shots = [calls(("look", {"at": number})) for number in range(1, 9)]
    line = scripted(*shots, *[failure] * 9, "done")
    result = Agent(line, tools=[look_at(400)], repeats_max=None).run_sync("go")
    assert result.stop == "context"
    assert "prompt is too long" in result.reason
    assert len(line.script.requests) < 14
