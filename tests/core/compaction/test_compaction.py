"""Compaction shortens a conversation before it no longer fits, and loses no record."""

import asyncio
import re
from itertools import pairwise
from typing import Any

import pytest
from msgspec.structs import replace

from bridle import Agent, Budget, Compaction, SharedBudget, Text, Thinking, tool
from bridle.cli.main import main
from bridle.core.budget.ledger import list_entries
from bridle.core.cache.report import list_cache_calls
from bridle.core.compaction.strategies import STRATEGIES, compaction_threshold, estimated_tokens
from bridle.core.context.excerpt import PROMPT_CUT
from bridle.core.context.view import find_removable_parts
from bridle.core.loop import apply_event
from bridle.providers.catalogue import find_model
from bridle.run.lineage import fork_session
from bridle.stores import open_store
from bridle.stores.memory import MemoryStore
from bridle.testing import scripted
from bridle.testing.scripted_model import call_reply
from bridle.values import events as e
from bridle.values.errors import Failure, MisuseError
from bridle.values.message import Media, Stop, ToolCall, ToolResult
from tests.core.compaction.long_walks import (
    FAMILIES,
    PNG,
    PROMPT,
    Walk,
    check_view,
    fold_records,
    look_at,
    shoot_at,
    walker,
    words_of,
)
from tests.suite.campaign import FIRST_SEED
from tests.suite.ledger_sum import sum_entries

ANTHROPIC = FAMILIES["anthropic"]
CALL = (ToolCall(id="x", wire_id="call_x", name="look", arguments='{"at": 77}'),)


def test_nothing_is_done_below_the_gate_and_never_a_request_is_sent_above_it():
    walk = Walk(ANTHROPIC)
    result = walk.run(30)
    assert (result.stop, result.text) == ("done", "I went through 30 places.")
    assert len(walk.compactions) >= 2
    state = fold_records(())
    for record in walk.records:
        if isinstance(record.event, e.Compacted):
            assert estimated_tokens(state) > compaction_threshold(state) == 6_400
            assert record.event.before_tokens == estimated_tokens(state)
        if isinstance(record.event, e.ModelAsked) and not record.event.summarizes_until:
            assert estimated_tokens(state) <= compaction_threshold(state)
        if isinstance(record.event, e.ModelReplied) and not record.event.summarizes_until:
            assert record.event.reply.usage.prompt <= 6_400
        state = apply_event(state, record.event, record.at, record.hash)
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
    assert state.conversation.summarized_count > 20
    assert len(state.conversation.view) < len(state.conversation.transcript.messages) / 3
    assert PROMPT.format(30) in list(words_of(state.conversation.view[0]))
    assert "up to place" in state.conversation.view[0].text
    check_view(state.conversation.view)


def test_strategies_are_tried_in_the_order_of_the_table():
    assert [strategy.name for strategy in STRATEGIES] == [
        "pictures",
        "results",
        "chunks",
        "reasoning",
        "texts",
        "prompts",
        "turns",
    ]
    keep = Compaction(keep=0.1)
    shots = Walk(ANTHROPIC, tools=[shoot_at(2)], context_tokens=12_000, compaction=replace(keep, pictures=1))
    shots.run(12)
    assert shots.compactions[0].strategies == ("pictures",)
    longer = Walk(ANTHROPIC, tools=[look_at(200)], context_tokens=30_000, compaction=keep)
    longer.run(20)
    assert longer.compactions[0].strategies == ("results",)
    short = Walk(ANTHROPIC)
    short.run(20)
    assert short.compactions[0].strategies == ("turns",)
    for walk in (shots, longer, short):
        for event in walk.compactions:
            order = [strategy.name for strategy in STRATEGIES if strategy.name != "turns"]
            assert [name for name in event.strategies if name != "turns"] == [
                n for n in order if n in event.strategies
            ]
            assert event.after_tokens <= 0.5 * walk.agent.settings.window_tokens


def test_an_old_result_keeps_its_beginning_its_end_and_the_handle_of_the_whole():
    walk = Walk(ANTHROPIC, tools=[look_at(400)], context_tokens=24_000, result_characters=6_000)
    walk.run(14)
    assert walk.compactions[0].strategies[0] == "results"
    state = walk.state
    shrunk = [change.text for event in walk.compactions for change in event.changes]
    handles = {whole.handle for whole in state.calls.stored_results}
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
        for message in walk.state.conversation.view
        for result in message.parts
        if isinstance(result, ToolResult)
        for part in result.parts
        if isinstance(part, Media)
    ]
    assert 3 <= len(pictures) <= 6
    last = [message for message in walk.state.conversation.view if message.results][-1]
    assert any(isinstance(part, Media) for result in last.results for part in result.parts)


def test_pictures_that_are_not_sent_take_no_room():
    """A document of 150 pages, of which three are sent on."""

    @tool(effect="read")
    def look(at: int) -> list[Text | Media]:
        """Look at one place."""
        pages = [Media(kind="image", media_type="image/png", data=PNG)] * 150
        return [Text(text=f"At place {at}."), *pages]

    walk = Walk(ANTHROPIC, tools=[look], context_tokens=100_000)
    result = walk.run(6)
    assert (result.stop, result.text) == ("done", "I went through 6 places.")
    assert walk.compactions == []
    assert estimated_tokens(walk.state) < 30_000


@pytest.mark.parametrize("count", range(1, 6))
def test_fewer_pictures_than_may_stay_all_stay(count):
    """A count below nothing would be one from the end."""
    walk = Walk(ANTHROPIC, tools=[shoot_at()], context_tokens=100_000)
    walk.run(count)
    wish = replace(walk.state.settings.compaction, pictures=5)
    state = replace(walk.state, settings=replace(walk.state.settings, compaction=wish))
    assert list(STRATEGIES[0].find_changes(state)) == []  # type: ignore[misc]


def test_it_says_what_it_costs():
    walk = Walk(ANTHROPIC)
    walk.run(20)
    event = walk.compactions[0]
    assert 0 < event.uncached_tokens <= event.after_tokens < event.before_tokens
    rate = walk.line.model.price.rates(0).cache_write
    assert event.usd == rate * event.uncached_tokens / 1_000_000
    asked = [reply for reply in walk.events if isinstance(reply, e.ModelReplied)]
    after = next(
        reply for before, reply in pairwise(asked) if before.summarizes_until and not reply.summarizes_until
    )
    assert event.uncached_tokens * 0.5 < after.reply.usage.cache_write < event.uncached_tokens * 1.5


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("think", [False, True])
def test_on_every_family_nothing_is_refused(family, think):
    walk = Walk(FAMILIES[family], brain=walker(think=think), compaction=Compaction(keep=0.3))
    result = walk.run(40)
    assert (result.stop, result.text) == ("done", "I went through 40 places."), result.reason
    assert walk.provider.refusals == []
    assert len(walk.compactions) >= 2
    check_view(walk.state.conversation.view)


@pytest.mark.parametrize("model", ["anthropic", "openai_responses", "deepseek", "openai_chat"])
@pytest.mark.parametrize("lines", [60, 200])
def test_fifty_steps_read_nearly_all_that_could_be_read_compaction_included(model, lines):
    window = 12_000 if lines == 60 else 30_000
    walk = Walk(
        FAMILIES[model], tools=[look_at(lines)], context_tokens=window, instructions="Be slow. " * 500
    )
    result = walk.run(49)
    assert result.stop == "done"
    assert (
        sum(isinstance(event, e.ModelReplied) and not event.summarizes_until for event in walk.events) == 50
    )
    assert len(walk.compactions) >= 2
    assert walk.share() >= 0.95


def test_the_prefix_moves_only_where_the_log_says_so_and_forensics_explain_the_miss():
    walk = Walk(ANTHROPIC, instructions="Walk slowly. " * 400)
    walk.run(30)
    moved = [event for event in walk.events if isinstance(event, e.PrefixMoved)]
    assert {event.cause for event in moved} == {"compacted"}
    assert len(moved) == len(walk.compactions)
    calls = list_cache_calls(walk.records)
    assert {call.outcome for call in calls} == {"cold", "hit", "prefix"}
    assert sum(call.outcome == "prefix" for call in calls) == len(moved)
    assert all("would fill" in call.why for call in calls if call.outcome == "prefix")


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
    assert "Compaction(shorten_prompts=True)" in result.reason
    view = walk.state.conversation.view
    sent = "".join(message.text for message in view)
    spoken = [message.text for message in result.messages if message.role == "user"]
    assert len(view) < len(result.messages)
    assert len(spoken) > 3
    assert all(text in sent for text in spoken)
    larger = Walk(ANTHROPIC, context_tokens=40_000, store=walk.store, tools=[look_at(40)])
    assert asyncio.run(larger.agent.resume("s")).stop == "done"


@pytest.mark.sampled
@pytest.mark.parametrize("characters", [4_000, 30_000])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_chat_of_long_prompts_does_not_end_if_earlier_ones_may_be_shortened(family, characters):
    options = Compaction(at=0.5, to=0.3, shorten_prompts=True)
    agent = Agent(FAMILIES[family], context_tokens=20_000, compaction=options, store=MemoryStore())
    prompts = [
        f"Prompt {number}. {'some words about it ' * (characters // 20)} End of {number}."
        for number in range(25)
    ]

    async def chat():
        return [await agent.run(prompt, "s") for prompt in prompts]

    results = asyncio.run(chat())
    assert {result.stop for result in results} == {"done"}
    asked = [message.text for message in results[-1].messages if message.role == "user"]
    assert asked == prompts  # the transcript has all of them whole
    events = [record.event for record in asyncio.run(agent.store.read("s"))]
    compactions = [event for event in events if isinstance(event, e.Compacted)]
    assert any("prompts" in event.strategies for event in compactions)
    changed = {
        change.message: change.text for event in compactions for change in event.changes if change.text
    }
    cut = ("characters were left out here later on", PROMPT_CUT)
    assert all(any(mark in text for mark in cut) for text in changed.values())
    latest = next(message.id for message in reversed(results[-1].messages) if message.role == "user")
    assert latest not in changed


@pytest.mark.parametrize("words", ["", "   "])
def test_two_failed_compactions_end_the_run(words):
    """Nobody says what was in the old turns."""
    walk = Walk(ANTHROPIC, brain=walker(summary=words))
    result = walk.run(30)
    assert result.stop == "context"
    assert "2 tries failed" in result.reason
    assert "tool results m" in result.reason
    assert walk.compactions == []
    assert sum(isinstance(event, e.ModelAsked) and bool(event.summarizes_until) for event in walk.events) == 2


def test_a_prompt_that_still_fits_is_sent_after_two_failed_compactions():
    def ran(places):
        walk = Walk(ANTHROPIC, brain=walker(summary=""))
        result = walk.run(places)
        tries = sum(isinstance(event, e.ModelAsked) and bool(event.summarizes_until) for event in walk.events)
        return result.stop, tries

    ends = [ran(places) for places in range(6, 14)]
    assert ("done", 2) in ends, "above the gate, within the window"
    assert ends[-1] == ("context", 2), "no room is left"


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
    asked = [event for event in walk.events if isinstance(event, e.ModelAsked) and event.summarizes_until]
    assert [event.tool_choice.mode for event in asked[:2]] == ["auto", "none"]
    assert all(event.tool_choice.mode == "none" for event in asked[1:])
    ran = [event for event in walk.events if isinstance(event, e.ToolStarted)]
    assert len(ran) == 30


def test_what_a_provider_refuses_as_too_long_is_made_shorter_and_asked_again():
    failure = Failure(kind="context", message="prompt is too long: 9 tokens > 8 maximum")
    shots = [call_reply(("look", {"at": number})) for number in range(1, 9)]
    store = MemoryStore()
    line = scripted(*shots, failure, "done", "done")
    result = Agent(line, tools=[look_at(400)], store=store, repeats_max=None).run_sync("go", session="s")
    events = [record.event for record in asyncio.run(store.read("s"))]
    (event,) = [event for event in events if isinstance(event, e.Compacted)]
    assert (result.stop, result.text) == ("done", "done")
    assert "9 tokens > 8" in event.why
    assert event.strategies[0] == "results"


def test_a_provider_that_never_has_enough_ends_the_run():
    failure = Failure(kind="context", message="prompt is too long")
    shots = [call_reply(("look", {"at": number})) for number in range(1, 9)]
    line = scripted(*shots, *[failure] * 9, "done")
    result = Agent(line, tools=[look_at(400)], repeats_max=None).run_sync("go")
    assert result.stop == "context"
    assert "prompt is too long" in result.reason
    assert len(line.script.requests) < 14


def test_what_a_person_said_can_still_be_blamed_by_name_when_it_is_quoted():
    """A picture of an early prompt that the provider stumbles over only now."""
    walk = Walk(ANTHROPIC)
    picture = Media(kind="image", media_type="image/png", data=PNG)
    asyncio.run(walk.agent.run([picture, PROMPT.format(20)], "s"))
    state = walk.state
    assert state.conversation.summarized_count
    assert state.conversation.view[0].parts[2] == picture
    assert find_removable_parts(state, [(state.conversation.view[0].id, 2, -1)]) == (("m1", 0, -1),)
    assert find_removable_parts(state, [(state.conversation.view[0].id, 0, -1)]) == ()


def test_a_run_is_the_same_wherever_it_is_cut():
    """Killed before and after every single write, the walk ends as it would have; only a summary that was
    under way is paid for twice."""
    whole = Walk(ANTHROPIC, context_tokens=4_000, instructions="")
    whole.run(6)
    shape = describe_view(whole)
    assert {event.strategies for event in whole.compactions} == {("turns",)}
    writes = len(whole.records)
    for at in range(3, writes):
        lands = (at + FIRST_SEED + 1) % 2 == 0
        walk = Walk(ANTHROPIC, context_tokens=4_000, instructions="", store=Mortal(at, lands))
        with pytest.raises(Death):
            walk.run(6)
        result = asyncio.run(walk.agent.resume("s"))
        assert result.stop == "done", (at, lands, result.reason)
        assert describe_view(walk) == shape, (at, lands)
        assert walk.provider.refusals == []


class Death(BaseException):
    """The process is gone."""


class Mortal(MemoryStore):
    def __init__(self, at, lands):
        super().__init__()
        self.at, self.lands = at, lands

    async def append(self, session, after, records, *, epoch=None):
        if records[-1].seq == self.at:
            self.at = -1
            if self.lands:
                await super().append(session, after, records, epoch=epoch)
            raise Death
        await super().append(session, after, records, epoch=epoch)


def describe_view(walk):
    """The view at the end, without times; and what of the conversation gave way to which summary."""
    view = [(message.id, message.role, message.parts) for message in walk.state.conversation.view]
    return view, [(event.summarized_until, event.prompt_ids, event.summary) for event in walk.compactions]


def test_a_fork_shares_what_was_made_shorter():
    walk = Walk(ANTHROPIC)
    walk.run(20)
    forked = asyncio.run(fork_session(walk.store, "s", None, "f"))
    assert forked.session == "f"
    result = asyncio.run(walk.agent.run(PROMPT.format(24), "f"))
    assert result.text == "I went through 24 places."
    records = asyncio.run(walk.store.read("f"))
    assert [r.event for r in records if isinstance(r.event, e.Compacted)][
        : len(walk.compactions)
    ] == walk.compactions
    moved = [r.event.cause for r in records[len(walk.records) :] if isinstance(r.event, e.PrefixMoved)]
    assert set(moved) <= {"compacted"}
    assert walk.provider.refusals == []


def total_amounts(total):
    return total.steps, total.usage, total.usd


def test_a_summary_is_retried_like_any_request_and_every_attempt_is_booked():
    plain, failures = walker(), [Failure(kind="overloaded", message="busy", status=529)] * 2

    def busy(request):
        if "Pause the work" in request.messages[-1].text and failures:
            return failures.pop()
        return plain(request)

    walk = Walk(ANTHROPIC, brain=busy)
    result = walk.run(12)
    assert result.stop == "done"
    failed = [event for event in walk.events if isinstance(event, e.ModelFailed)]
    assert [event.failure.kind for event in failed] == ["overloaded", "overloaded"]
    booked = list_entries("s", walk.records)
    assert total_amounts(sum_entries(booked)) == total_amounts(walk.state.totals.spent)
    summaries = [entry for entry in booked if entry.summary]
    assert [entry.outcome for entry in summaries][:3] == ["failed", "failed", "answered"]
    assert result.steps == 13
    assert result.usage.total == sum(entry.usage.total for entry in booked)


def test_a_summary_is_not_shown_as_words_of_the_model_and_starts_no_tool():
    walk = Walk(ANTHROPIC)

    async def story():
        shown = []
        async for event in walk.agent.stream(PROMPT.format(20), session="s"):
            shown.append(event.text)
        return "".join(shown)

    words = asyncio.run(story())
    assert walk.compactions
    assert "I have walked" not in words
    assert "I go to place 20." in words
    assert not any("I have walked" in message.text for message in walk.state.conversation.transcript.messages)


def test_a_run_cancelled_during_a_summary_is_paid_for_and_goes_on():
    class Stop:
        def on_event(self, session, happening):
            event = getattr(happening, "event", None)
            if isinstance(event, e.ModelAsked) and event.summarizes_until and not self.done:
                self.done = True
                self.task.get_loop().call_soon(self.task.cancel)  # type: ignore[attr-defined]

        done = False

    async def story():
        stop: Any = Stop()
        walk = Walk(ANTHROPIC, watchers=[stop])
        stop.task = asyncio.create_task(walk.agent.run(PROMPT.format(12), "s"))
        with pytest.raises(asyncio.CancelledError):
            await stop.task
        result = await walk.agent.resume("s")
        return walk, result

    walk, result = asyncio.run(story())
    assert (result.stop, result.text) == ("done", "I went through 12 places.")
    assert not any("I have walked" in message.text for message in result.messages)
    assert total_amounts(sum_entries(list_entries("s", walk.records))) == total_amounts(
        walk.state.totals.spent
    )


def test_another_model_may_write_the_summaries():
    other = find_model("sim:gemini/gemini-3.8-flash", environ={})
    walk = Walk(ANTHROPIC, compaction=Compaction(model="sim:gemini/gemini-3.8-flash"))
    spoken = walk.provider.model(other)
    agent = walk.agent
    agent.parts.model_chain.given_connections[other.model_key] = spoken
    result = asyncio.run(agent.run(PROMPT.format(20), "s"))
    assert result.stop == "done"
    asked = [event for event in walk.events if isinstance(event, e.ModelAsked) and event.summarizes_until]
    assert {event.model_key for event in asked} == {other.model_key}
    assert {entry.model for entry in list_entries("s", walk.records) if entry.summary} == {other.name}
    assert total_amounts(sum_entries(list_entries("s", walk.records))) == total_amounts(
        walk.state.totals.spent
    )
    assert {call.model for call in list_cache_calls(walk.records)} == {walk.line.model.name, other.name}
    assert walk.provider.refusals == []


def test_where_the_other_model_cannot_the_runs_own_does():
    other = find_model("sim:gemini/gemini-3.8-flash", environ={})
    plain = walker()

    def closed(request):
        if request.model.id == other.id:
            return Failure(kind="unauthorized", message="no such key", status=401)
        return plain(request)

    walk = Walk(ANTHROPIC, brain=closed, compaction=Compaction(model=other))
    agent = walk.agent
    agent.parts.model_chain.given_connections[other.model_key] = walk.provider.model(other)
    result = asyncio.run(agent.run(PROMPT.format(20), "s"))
    assert result.stop == "done", result.reason
    asked = [event for event in walk.events if isinstance(event, e.ModelAsked) and event.summarizes_until]
    assert asked[0].model_key == other.model_key
    assert {event.model_key for event in asked[1:]} == {""}


def test_what_is_too_long_for_one_summary_is_summarised_in_pieces():
    """A conversation that was held by a model with a large window goes on with one that has a small one."""
    walk = Walk(ANTHROPIC, context_tokens=40_000)
    walk.run(50)
    assert walk.compactions == []
    small = Walk(ANTHROPIC, store=walk.store, context_tokens=6_000)
    result = asyncio.run(small.agent.run(PROMPT.format(52), "s"))
    assert result.text == "I went through 52 places."
    assert len(walk.compactions) >= 3
    sizes = [event.after_tokens for event in walk.compactions]
    assert sizes[:3] == sorted(sizes[:3], reverse=True)
    asked = [event.reply.usage.prompt for event in small.events if isinstance(event, e.ModelReplied)][51:]
    assert max(asked) <= 6_000
    assert small.provider.refusals == []


def test_no_piece_ends_with_a_prompt_that_is_yet_to_be_answered():
    """The simulated model does what many would: asked right behind a prompt, it answers that."""
    wish = Compaction(native=False)
    agent = Agent(ANTHROPIC, tools=[look_at()], context_tokens=6_000, compaction=wish, output=int)
    for n in range(1, 8):
        script = f'!call look {{"at": {n}}}\n!then\n!call look {{"at": {n + 50}}}\n!then\n!say {n}'
        result = agent.run_sync(script, session="s")
        assert (result.stop, result.reason) == ("done", "")
    records = asyncio.run(agent.store.read("s"))
    asked = {each.event.summarizes_until for each in records if isinstance(each.event, e.ModelAsked)} - {""}
    assert asked
    assert not asked & {*fold_records(records).conversation.prompt_ids}


def test_a_summary_refused_as_too_long_is_asked_for_in_smaller_pieces():
    plain = walker()

    def narrow(request):
        if len(request.messages) > 14:
            return Failure(kind="context", message="prompt is too long", status=400)
        return plain(request)

    walk = Walk(ANTHROPIC, brain=narrow, context_tokens=40_000, refusals=True)
    result = walk.run(12)
    assert result.stop == "done", result.reason
    assert walk.compactions


def test_a_reply_that_ended_where_the_window_does_is_continued_with_room():
    plain, cut = walker(), []

    def full(request):
        reply = plain(request)
        if len(request.messages) >= 12 and not cut and "Pause" not in request.messages[-1].text:
            cut.append(True)
            return replace(reply, parts=reply.parts[:1], stop=Stop.CONTEXT)
        return reply

    walk = Walk(ANTHROPIC, brain=full, context_tokens=60_000)
    result = walk.run(12)
    assert result.stop == "done", result.reason
    assert len(walk.compactions) == 1
    assert "the reply ended there" in walk.compactions[0].why


@pytest.mark.parametrize("think", [False, True])
def test_a_stored_conversation_is_sent_again_after_compaction(think):
    walk = Walk(FAMILIES["openai_responses"], brain=walker(think=think), chain=True)
    assert walk.run(30).text == "I went through 30 places."
    assert walk.compactions
    assert walk.provider.refusals == []
    longest = max(event.reply.usage.prompt for event in walk.events if isinstance(event, e.ModelReplied))
    assert longest < 8_000


def test_a_budget_holds_with_summaries_in_it():
    walk = Walk(ANTHROPIC, budget=Budget(usd="0.12", steps=None))
    result = walk.run(60)
    assert result.stop == "budget"
    assert walk.compactions
    assert result.cost <= 0.12


def test_a_shared_budget_sets_the_price_of_a_summary_aside():
    pool = SharedBudget(usd=1)
    walk = Walk(ANTHROPIC, pool=pool)
    result = walk.run(20)
    assert result.stop == "done"
    asked = [event for event in walk.events if isinstance(event, e.ModelAsked) and event.summarizes_until]
    assert asked
    assert all(event.reservation is not None for event in asked)
    assert float(pool.spent.usd) == pytest.approx(result.cost)


def test_thinking_that_has_an_allowance_keeps_it_so_that_the_summary_reads_the_cache():
    thinking = Thinking(mode="enabled", budget_tokens=2_000)
    walk = Walk(
        "sim:anthropic/claude-haiku-4-5",
        brain=walker(think=True),
        thinking=thinking,
        instructions="Walk slowly. " * 2_000,
        context_tokens=30_000,
    )
    assert walk.run(40).stop == "done"
    asked = [event for event in walk.events if isinstance(event, e.ModelAsked) and event.summarizes_until]
    assert asked
    assert all(event.max_tokens > 2_000 for event in asked)
    summaries = [
        event.reply.usage
        for event in walk.events
        if getattr(event, "summarizes_until", "") and hasattr(event, "reply")
    ]
    assert all(usage.cache_read > 0.9 * usage.prompt for usage in summaries)


@pytest.mark.parametrize("model", ["anthropic", "openai_responses", "gemini"])
def test_tools_that_were_shown_later_stay_when_the_turns_that_showed_them_are_gone(model):
    others = []
    for number in range(6):

        @tool(name=f"spare_{number}", effect="read")
        def spare(at: int) -> str:
            """Do something else."""
            return f"spare {at}"

        others.append(spare)
    walk = Walk(FAMILIES[model], tools=[*others, look_at()], tools_shown_max=3)
    result = walk.run(30)
    assert (result.stop, result.text) == ("done", "I went through 30 places."), result.reason
    assert len(walk.compactions) >= 2
    assert "look" in walk.state.tools.revealed
    ran = [event for event in walk.events if isinstance(event, e.ToolStarted)]
    assert len(ran) >= 30


def test_the_log_tells_it_in_one_line(capsys, tmp_path):
    store = open_store(tmp_path / "log.db")
    walk = Walk(ANTHROPIC, store=store)
    walk.run(12)
    asyncio.run(store.close())
    assert main(["show", "s", "--store", str(tmp_path / "log.db")]) == 0
    told = capsys.readouterr().out
    (line,) = [line for line in told.splitlines() if " compact " in line]
    assert re.search(
        r"turns: everything up to m\d+ is a summary; [\d,]+ -> [\d,]+ tokens, [\d,]+ of them", line
    )
    assert re.search(r"\$0\.00\d+: the next prompt would fill", line)
    assert re.search(r"summary +I have walked up to place", told)


def test_the_newest_results_shrink_with_the_window_when_nothing_else_does():
    """A small model on a desk: two results at once, each below what is long elsewhere."""

    @tool(effect="read")
    def read(page: int) -> str:
        """Read a page."""
        return f"page {page} " + "lorem ipsum dolor " * 850

    agent = Agent("sim:anthropic/claude-sonnet-4-6", tools=[read], context_tokens=6_000, store=MemoryStore())
    script = '!call read {"page":1}\n!call read {"page":2}\n!then\n!say read'
    result = agent.run_sync(script, session="s")
    assert (result.stop, result.text) == ("done", "read"), result.reason
    assert all(len(part.text) > 15_000 for part in result.messages[2].parts)
    (short,) = [
        each.event for each in asyncio.run(agent.store.read("s")) if isinstance(each.event, e.Compacted)
    ]
    assert short.strategies == ("texts",)
