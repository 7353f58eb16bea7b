"""The pure loop: every line of its table, every stop reason, every limit."""

import typing
from decimal import Decimal

import pytest
from msgspec.structs import replace

from bridle.core.calls.dispatch import CALL_IN_DOUBT, CALLS_FORBIDDEN, make_call_key, number_calls
from bridle.core.effects import AskModel, ChangeView, EndRun, Reprompt, RunTool, SkipCall
from bridle.core.evaluate_reply import PAUSES_MAX, REJECTED_ANSWERS_MAX, STOP_HANDLERS
from bridle.core.loop import TRANSITIONS, apply_event, next_effects
from bridle.core.recovery.failure_policy import FAILURE_POLICY
from bridle.core.state import Phase, State
from bridle.values import events as e
from bridle.values.budget import (
    Amount,
    BudgetReserved,
    BudgetSettled,
    BudgetSnapshot,
    SubrunCharged,
    SubrunStarted,
)
from bridle.values.cache import CacheDegraded, PromptDropped, PromptStored
from bridle.values.calls import ServerAnswered, ServerAsked
from bridle.values.errors import Failure, MisuseError
from bridle.values.memory import Note
from bridle.values.message import Media, Opaque, Reasoning, Stop, Text, ToolResult
from bridle.values.model import Abilities, Endpoint, Origin
from bridle.values.request import OutputSpec, StepOptions, Thinking, ToolChoice, ToolSpec
from bridle.values.settings import ATTEMPTS_DEFAULT
from bridle.values.usage import Budget, Usage
from tests.core.loop_story import MODEL, NUMBER, RATES, READ, SETTINGS, WRITE, Story, call, says


def test_one_turn_with_tools():
    story = Story().reply(says("let me see", call("look"), call("pay")))
    assert isinstance(story.perform(), AskModel)
    story.reply(says("done"))
    story.end()
    assert story.state.phase is Phase.IDLE
    assert story.state.run.end.stop == "done"
    assert story.state.run.end.answer == "done"
    assert story.roles == ["user", "assistant", "tool", "assistant"]
    assert [m.id for m in story.state.conversation.transcript.messages] == ["m1", "m2", "m3", "m4"]
    assert [m.parent for m in story.state.conversation.transcript.messages] == ["", "m1", "m2", "m3"]
    assert story.state.run.budget.spent.usage == Usage(input=20, output=10)


ONE_OF_EACH = (
    e.Configured(settings=SETTINGS),
    e.Imported(messages=()),
    e.Prompted(parts=()),
    e.ViewChanged(changes=(), why=""),
    e.Compacted(strategies=(), why=""),
    e.MemoryLoaded(notes=(), why=""),
    e.ContextRetrieved(),
    e.InstructionWritten(name="n"),
    e.NoteWritten(note=Note(id="t1", text="x")),
    e.NoteRemoved(id="t1"),
    e.ToolsRevealed(names=(), why=""),
    e.PrefixMoved(layer="tools", block="", cause="tools_revealed", why=""),
    e.RequestAdjusted(adjustments=("x",)),
    e.OptionsChosen(options=StepOptions(step=1)),
    CacheDegraded(rule="lost", rate=0.1, rate_before=None, calls=3, outcome="provider"),
    PromptStored(name="n", model_key="s", prompt_head="f", tokens=1, seconds=1.0, expires_at=1.0),
    PromptDropped(name="n", why=""),
    e.Resumed(),
    e.ModelAsked(step=1, attempt=1, digest=""),
    e.ModelReplied(reply=says("x")),
    e.ModelSwitched(model=MODEL, why=""),
    e.ModelFailed(failure=Failure(kind="cut", message="")),
    e.ToolStarted(call_id="c", name="look", key="k"),
    e.ToolProbed(call_id="c", attempt=1),
    e.ToolInterrupted(call_id="c", attempt=1, why="the server died"),
    ServerAsked(call_id="c", attempt=1, kind="sampling", server="s", binding="b", request="{}"),
    ServerAnswered(call_id="c", attempt=1, kind="sampling", server="s", binding="b", action="decline"),
    e.ToolFinished(result=ToolResult(call_id="c")),
    e.ToolsChanged(server="s", missing=("mcp__s__x",)),
    e.ApprovalAsked(call_id="c", binding="b", rule="r"),
    e.ApprovalAnswered(call_id="c", binding="b", answer="approve"),
    e.CallReviewed(call_id="c"),
    e.CompensationStarted(call_id="c", name="undo", key="k"),
    e.CompensationFinished(call_id="c", attempt=1, result=ToolResult(call_id="c")),
    e.ConversationOpened(name="conv_1", model_key="m"),
    e.ConversationDropped(name="conv_1", model_key="m", why=""),
    e.Reprompted(why="", message=""),
    e.OutputChecked(validator="v", verdict="accepted", answer_id="r1"),
    e.HookDecided(hook="h", point="on_end"),
    e.SubrunWaiting(call_id="c1_0", session="inner"),
    e.Steered(message="x"),
    e.SteeringTaken(count=1),
    e.PauseRequested(reason="x"),
    e.RunEnded(stop="done"),
    SubrunStarted(call_id="c", session="s"),
    SubrunCharged(call_id="c", session="s", id="i"),
    BudgetReserved(id="i", session="s", driver_start=0, amount=Amount()),
    BudgetSettled(id="i"),
    BudgetSnapshot(generation=2, spent=Amount(), excess=Amount()),
    e.Forked(session="", parent="", at=0),
    e.LogRepaired(items=()),
    e.ContentRedacted(record=1, record_hash="", body="", digest=""),
    e.ControlRequested(action="pause", run="m1"),
    e.TrialScored(task="t", number=1),
    e.ControlRefused(request="", action="pause", why=""),
    e.UnknownEvent(),
)


def test_an_event_without_a_line_in_the_table_is_refused():
    assert {type(event) for event in ONE_OF_EACH} == set(typing.get_args(e.Event))
    for phase in Phase:
        for event in ONE_OF_EACH:
            if (phase, type(event)) not in TRANSITIONS:
                with pytest.raises(MisuseError, match=type(event).__name__):
                    apply_event(State(phase=phase), event)


def test_results_go_back_in_the_order_of_the_calls():
    story = Story().reply(says("", call("look"), call("look"), call("look")))
    for effect in next_effects(story.state):
        story.tell(e.ToolStarted(call_id=effect.call.id, name="look", key="k"))
    for call_id in ("c1_2", "c1_0", "c1_1"):
        story.finish(call_id, call_id)
    assert [result.call_id for result in story.state.conversation.transcript.messages[-1].results] == [
        "c1_0",
        "c1_1",
        "c1_2",
    ]


def test_reads_run_together_and_the_undeclared_runs_alone_and_in_order():
    story = Story().reply(says("", call("look"), call("look"), call("pay"), call("look")))
    assert [effect.call.id for effect in next_effects(story.state)] == ["c1_0", "c1_1"]
    for call_id in ("c1_0", "c1_1"):
        story.tell(e.ToolStarted(call_id=call_id, name="look", key="k"))
    assert next_effects(story.state) == ()
    story.finish("c1_0", "x").finish("c1_1", "x")
    (pay,) = next_effects(story.state)
    assert pay.call.name == "pay"
    story.tell(e.ToolStarted(call_id="c1_2", name="pay", key="k"))
    assert next_effects(story.state) == ()
    story.finish("c1_2", "x")
    assert [effect.call.id for effect in next_effects(story.state)] == ["c1_3"]


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (call("loook"), "look"),
        (call("look", '{"m":1,"n":2}'), "m"),
        (call("look", '{"n":"1"}'), "n"),
        (call("look", "{}"), "n"),
        (call("look", '{"n":'), "truncated"),
        (call("look", "[1]"), "object"),
    ],
)
def test_a_wrong_call_gets_an_excuse_that_helps_and_never_runs(asked, told):
    story = Story().reply(says("", asked, call("look")))
    excuse, run = next_effects(story.state)
    assert isinstance(excuse, SkipCall)
    assert excuse.outcome == "invalid"
    assert told in excuse.why
    assert isinstance(run, RunTool)


def test_a_started_call_of_a_lost_driver_is_reported_unless_its_tool_may_be_repeated():
    story = Story().reply(says("", call("look"), call("pay")))
    story.tell(e.ToolStarted(call_id="c1_0", name="look", key="k1"))
    assert next_effects(story.state) == ()
    story.tell(e.Resumed())
    (again,) = next_effects(story.state)
    assert (again.call.id, again.attempt) == ("c1_0", 2)
    story.tell(e.ToolStarted(call_id="c1_0", name="look", key="k1", attempt=2)).finish("c1_0", "seen")
    story.tell(e.ToolStarted(call_id="c1_1", name="pay", key="k2")).tell(e.Resumed())
    (excuse,) = next_effects(story.state)
    assert (excuse.outcome, excuse.why) == ("unknown", CALL_IN_DOUBT)


def test_keys_are_the_same_for_every_attempt_and_differ_between_calls():
    story = Story().reply(says("", call("look"), call("look")))
    first, second = next_effects(story.state)
    assert first.key != second.key
    assert first.key == make_call_key(story.state.calls.request_hash, "c1_0")
    story.tell(e.ToolStarted(call_id="c1_0", name="look", key=first.key)).tell(e.Resumed())
    assert next_effects(story.state)[0].key == first.key


EMPTY = {"empty": (), "blank": (Text(text=" \n"),), "reasoning only": (Reasoning(text="hm", signature="s"),)}


@pytest.mark.parametrize("stop", list(Stop))
@pytest.mark.parametrize("content", ["words", *EMPTY])
def test_every_stop_reason_has_one_end(stop, content):
    """Whatever a model keeps answering, the run ends, and never with an illegal transcript."""
    story = Story(budget=Budget(steps=None))
    reply = says("words", stop=stop) if content == "words" else says(stop=stop, more=EMPTY[content])
    for _ in range(PAUSES_MAX + SETTINGS.reprompts_max + 5):
        story.reply(reply)
        effect = story.perform()
        if isinstance(effect, EndRun):
            break
    else:
        pytest.fail("no end")
    story.end()
    expected = {Stop.REFUSED: "refused", Stop.FILTERED: "refused", Stop.CONTEXT: "context"}
    fine = content == "words" and stop in (Stop.DONE, Stop.OTHER, Stop.TOOLS)
    empty = content != "words" and stop in (Stop.DONE, Stop.OTHER, Stop.TOOLS)
    end = "done" if fine else "no_progress" if empty else "failed"
    assert story.state.run.end.stop == expected.get(stop, end)
    assert set(STOP_HANDLERS) == set(Stop)
    for message in story.state.conversation.transcript.messages:
        assert any(
            not isinstance(part, Reasoning) and getattr(part, "text", "x").strip() for part in message.parts
        )
    story.tell(e.Prompted(parts=(Text(text="again"),)))
    assert isinstance(story.effect(), AskModel)


def test_a_reply_cut_at_its_length_is_continued_and_joined():
    story = Story().reply(says("one ", stop=Stop.LENGTH))
    assert isinstance(story.perform(), AskModel)
    assert story.effect().request.max_tokens == MODEL.abilities.output_tokens
    story.reply(says("two")).end()
    assert story.state.run.end.answer == "one two"


def test_a_paused_reply_is_sent_back_as_it_is():
    item = Opaque(kind="server_tool_use", native='{"type":"server_tool_use"}')
    story = Story().reply(says("", stop=Stop.PAUSED, more=(item,)))
    ask = story.effect()
    assert isinstance(ask, AskModel)
    assert ask.request.messages[-1].parts == (item,)
    story.reply(says("done")).end()
    assert story.state.run.end.answer == "done"


def test_calls_of_a_refused_reply_are_not_run():
    story = Story().reply(says("I cannot", call("pay"), stop=Stop.REFUSED))
    assert story.effect().stop == "refused"
    story.end()
    assert story.state.conversation.transcript.messages[-1].calls == ()


def test_calls_run_although_the_stop_reason_is_done():
    story = Story().reply(says("", call("look"), stop=Stop.DONE))
    assert isinstance(story.effect(), RunTool)


def test_steps_end_a_run_that_can_be_resumed_with_more():
    story = Story(budget=Budget(steps=1)).reply(says("", call("look")))
    assert story.perform() == EndRun(stop="steps", reason="1 of 1 steps taken")
    story.end()
    assert story.state.phase is Phase.IDLE
    story.tell(e.Resumed(budget=Budget(steps=2)))
    story.reply(says("done")).end()
    assert story.state.run.end.stop == "done"


def test_seconds_count_only_while_a_process_drives_the_run():
    story = Story(budget=Budget(seconds=10)).reply(says("", call("look")))
    story.at = 500.0
    story.tell(e.Resumed())
    assert isinstance(story.perform(), AskModel)
    story.at = 520.0
    story.reply(says("", call("look")))
    assert story.perform().stop == "seconds"


def test_the_next_reply_is_clamped_to_what_can_be_paid():
    story = Story(budget=Budget(usd=0.001), prompt="x" * 300)
    most = story.effect().request.max_tokens
    estimate = story.state.estimate.prompt_tokens
    assert 0 < most < 100
    assert RATES.cost(Usage(cache_write=estimate, output=most)) <= Decimal("0.001")
    story.reply(says("x", call("look"), usage=Usage(input=100, output=most)), usd=Decimal("0.0009"))
    assert story.perform().stop == "budget"


def test_tokens_are_a_limit_too():
    story = Story(budget=Budget(tokens=1000))
    assert story.effect().request.max_tokens <= 1000
    story.reply(says("x", call("look"), usage=Usage(input=900, output=90)))
    assert story.perform().stop == "budget"


def test_an_unknown_price_makes_the_sum_unknown():
    story = Story().reply(says("", call("look")), usd=Decimal(1))
    story.perform()
    story.reply(says("done"), usd=None)
    assert story.state.run.budget.spent.usd is None


@pytest.mark.parametrize("kind", [kind for kind in FAILURE_POLICY if kind != "unavailable"])
def test_a_failure_is_retried_or_ends_the_run(kind):
    story = Story().reply(says("", call("look")))
    story.perform()
    for attempt in range(1, (2 if FAILURE_POLICY[kind].action == "repair" else ATTEMPTS_DEFAULT) + 1):
        ask = story.effect()
        if isinstance(ask, ChangeView):
            story.tell(e.ViewChanged(changes=ask.changes, why=ask.why, model_key=ask.model_key))
            ask = story.effect()
        assert ask.attempt == attempt
        story.tell(e.ModelAsked(step=2, attempt=attempt, digest=""))
        story.tell(e.ModelFailed(failure=Failure(kind=kind, message="no"), partial_text="half"))
        if not FAILURE_POLICY[kind].can_repeat:
            break
    end = story.effect()
    assert (type(end), end.stop) == (EndRun, "context" if kind in ("context", "too_large") else "failed")
    assert "no" in end.reason
    story.end()
    assert story.state.conversation.transcript.messages[-1].text == "half"


def test_who_never_answered_is_not_tried_again_when_unreachable():
    story = Story()
    story.tell(e.ModelAsked(step=1, attempt=1, digest=""))
    story.tell(e.ModelFailed(failure=Failure(kind="unreachable", message="nobody there")))
    assert story.effect() == EndRun(stop="failed", reason="nobody there")


def test_a_reply_that_broke_off_is_paid_for():
    story = Story()
    story.tell(e.ModelAsked(step=1, attempt=1, digest=""))
    counted = Usage(input=1000, output=3, incomplete=True)
    story.tell(e.ModelFailed(failure=Failure(kind="cut", message=""), usage=counted, usd=Decimal("0.002")))
    assert story.state.run.budget.spent.usage == counted
    assert story.state.run.budget.spent.usd == Decimal("0.002")
    assert story.state.run.budget.spent.steps == 0
    story.tell(e.ModelAsked(step=1, attempt=2, digest=""))
    story.tell(e.RunEnded(stop="cancelled", usage=Usage(incomplete=True)))
    assert story.state.run.budget.spent.usage.input == 1000 + story.state.estimate.prompt_tokens
    assert story.state.totals.spent.usd > Decimal("0.002")


def test_a_limit_in_dollars_needs_to_know_what_was_spent():
    story = Story(budget=Budget(usd=1)).reply(says("", call("look")), usd=None)
    assert story.perform().stop == "budget"


@pytest.mark.parametrize("arguments", ["", " ", "{}"])
def test_a_call_cut_off_at_the_length_limit_never_runs(arguments):
    anything = ToolSpec(name="wipe")
    story = Story(replace(SETTINGS, tools=(anything,)))
    story.reply(says("", call("wipe", "{}"), call("wipe", arguments), stop=Stop.LENGTH))
    run, refusal = sorted(next_effects(story.state), key=lambda effect: type(effect).__name__)
    assert isinstance(run, RunTool)
    assert run.call.id == "c1_0"
    assert refusal.call.id == "c1_1"
    assert "truncated" in refusal.why


def test_two_calls_in_turn_end_by_themselves_too():
    story = Story()
    for turn in range(40):
        story.reply(says("", call("look", f'{{"n":{turn % 2}}}')))
        if isinstance(effect := story.perform(), EndRun):
            break
    assert effect.stop == "no_progress"
    assert 'look({"n":0}), look({"n":1})' in effect.reason
    assert story.state.run.budget.spent.steps == 2 * SETTINGS.repeats_max


def test_different_calls_are_progress():
    story = Story(replace(SETTINGS, repeats_max=2))
    for turn in range(20):
        story.reply(says("", call("look", f'{{"n":{turn}}}')))
        assert isinstance(story.perform(), AskModel)
    assert not any(message.role == "user" for message in story.state.conversation.transcript.messages[1:])


def test_thinking_leaves_room_for_the_answer():
    thinker = replace(
        MODEL, abilities=Abilities(output_tokens=64_000, thinking=("enabled",), allowance_mode="enabled")
    )
    thinking = Thinking(mode="enabled", budget_tokens=30_000)
    story = Story(replace(SETTINGS, model=thinker, thinking=thinking))
    request = story.effect().request
    assert request.max_tokens > request.thinking.budget_tokens == 30_000
    tight = (
        Story(replace(SETTINGS, model=thinker, thinking=thinking), budget=Budget(tokens=5_000))
        .effect()
        .request
    )
    assert 1_024 <= tight.thinking.budget_tokens < tight.max_tokens
    tiny = (
        Story(replace(SETTINGS, model=thinker, thinking=thinking), budget=Budget(tokens=1_000))
        .effect()
        .request
    )
    assert tiny.thinking is None


def test_one_good_answer_among_several_is_the_answer():
    story = Story(replace(SETTINGS, output=replace(SHAPE, mode="tool")))
    story.reply(says("", call("answer", '{"n":"x"}'), call("answer", '{"n":7}')))
    assert story.perform().stop == "done"
    assert story.state.run.evaluation.output == '{"n":7}'


def test_the_same_call_with_the_same_result_ends_by_itself():
    story = Story()
    nudged = False
    for _ in range(20):
        story.reply(says("", call("look")))
        while not isinstance(effect := next_effects(story.state)[0], AskModel | EndRun):
            nudged |= isinstance(effect, Reprompt)
            story.perform()
        if isinstance(effect, EndRun):
            break
    assert nudged or any("same" in m.text for m in story.state.conversation.transcript.messages)
    assert effect.stop == "no_progress"
    assert "look" in effect.reason
    assert story.state.run.budget.spent.steps == SETTINGS.repeats_max


def test_an_ended_run_leaves_no_call_without_a_result():
    story = Story().reply(says("", call("pay"), call("pay")))
    story.tell(e.ToolStarted(call_id="c1_0", name="pay", key="k"))
    story.tell(e.RunEnded(stop="cancelled"))
    results = story.state.conversation.transcript.messages[-1].results
    assert [(result.call_id, result.outcome) for result in results] == [
        ("c1_0", "unknown"),
        ("c1_1", "cancelled"),
    ]
    story.tell(e.Prompted(parts=(Text(text="again"),)))
    assert isinstance(story.effect(), AskModel)


def test_a_partial_reply_is_kept_and_the_run_can_go_on():
    story = Story()
    story.tell(e.ModelAsked(step=1, attempt=1, digest=""))
    story.tell(e.RunEnded(stop="cancelled", partial_text="I was about to "))
    assert story.state.conversation.transcript.messages[-1].text == "I was about to"
    story.tell(e.Resumed())
    assert story.effect().request.messages[-1].role == "user"


SHAPE = OutputSpec(name="answer", parameters=NUMBER)


def test_structured_output_natively():
    story = Story(replace(SETTINGS, output=SHAPE))
    assert story.effect().request.output == SHAPE
    story.reply(says('{"n":"three"}'))
    assert isinstance(story.perform(), AskModel)
    assert "n" in story.state.conversation.transcript.messages[-1].text
    story.reply(says('```json\n{"n":3}\n```')).end()
    assert story.state.run.evaluation.output == '{"n":3}'


def test_structured_output_is_asked_for_only_so_often():
    story = Story(replace(SETTINGS, output=SHAPE))
    for _ in range(REJECTED_ANSWERS_MAX + 1):
        story.reply(says("three"))
        effect = story.perform()
    assert effect.stop == "failed"
    assert "matched the requested type" in effect.reason


def test_structured_output_by_a_tool():
    settings = replace(SETTINGS, output=replace(SHAPE, mode="tool"), tools=())
    story = Story(settings)
    ask = story.effect().request
    assert ask.tool_choice == ToolChoice(mode="tool", name="answer")
    assert [tool.name for tool in ask.tools] == ["answer"]
    story.reply(says("", call("answer", '{"n":"x"}')))
    assert isinstance(story.perform(), AskModel)
    story.reply(says("", call("answer", '{"n":7}')))
    assert story.perform().stop == "done"
    story.end()
    assert story.state.run.evaluation.output == '{"n":7}'
    assert story.roles[-1] == "tool"


def test_structured_output_by_a_tool_is_asked_for_only_so_often():
    story = Story(replace(SETTINGS, output=replace(SHAPE, mode="tool"), repeats_max=None))
    for _ in range(REJECTED_ANSWERS_MAX + 1):
        story.reply(says("", call("answer", "{}")))
        effect = story.perform()
    assert effect.stop == "failed"


def test_a_choice_the_model_refuses_is_settled_before_it_is_sent():
    stubborn = replace(MODEL, abilities=Abilities(forced_tools=False))
    story = Story(replace(SETTINGS, model=stubborn, tool_choice=ToolChoice(mode="any")))
    ask = story.effect()
    assert ask.request.tool_choice.mode == "auto"
    assert "cannot be forced" in ask.notes[0]


def test_the_order_of_a_request_never_changes():
    story = Story(replace(SETTINGS, instructions="be brief"))
    first = story.effect().request
    story.reply(says("", call("look")))
    story.perform()
    second = story.effect().request
    assert second.messages[: len(first.messages)] == first.messages
    assert (second.tools, second.system) == (first.tools, first.system)


def test_pictures_count_in_the_estimate():
    story = Story()
    before = story.state.estimate.prompt_tokens
    story.tell(e.RunEnded(stop="cancelled"))
    story.tell(e.Prompted(parts=(Media(kind="image", data="aGk="),)))
    assert story.state.estimate.prompt_tokens > before + 1000


def test_a_call_that_was_not_to_be_made_is_not_run():
    """Not every provider can be told to call nothing, and no model obeys always."""
    story = Story()
    story.tell(e.ModelAsked(step=1, attempt=1, digest="", tool_choice=ToolChoice(mode="none")))
    story.tell(e.ModelReplied(reply=number_calls(says("", call("pay")), 1), usd=Decimal(0)))
    excuse = story.effect()
    assert isinstance(excuse, SkipCall)
    assert (excuse.outcome, excuse.why) == ("invalid", CALLS_FORBIDDEN)
    story.finish("c1_0", excuse.why, excuse.outcome)
    story.reply(says("", call("pay")))
    assert isinstance(story.effect(), RunTool)


FIND = ToolSpec(name="find", effect="read", parameters=NUMBER)
SEND = ToolSpec(name="send", parameters=NUMBER)


def test_a_hidden_tool_is_not_there_until_it_is_shown():
    story = Story(replace(SETTINGS, hidden_tools=(FIND, SEND)))
    assert story.effect().request.tools == (READ, WRITE)
    story.reply(says("", call("find")))
    (excuse,) = next_effects(story.state)
    assert isinstance(excuse, SkipCall)
    story.finish("c1_0", "no such tool", "invalid")
    story.tell(e.ToolsRevealed(names=("find",), why="wanted"))
    assert story.effect().request.tools == (READ, WRITE, FIND)
    story.reply(says("", call("find"), call("send")))
    run, excuse = sorted(next_effects(story.state), key=lambda effect: effect.call.id)
    assert isinstance(run, RunTool)
    assert isinstance(excuse, SkipCall)


def test_what_is_shown_later_stands_behind_everything_and_stays_there():
    answer = OutputSpec(name="answer", parameters=NUMBER, mode="tool")
    story = Story(replace(SETTINGS, output=answer, hidden_tools=(FIND, SEND)))
    first = story.effect().request.tools
    story.tell(e.ToolsRevealed(names=("send",), why="wanted"))
    second = story.effect().request.tools
    story.tell(e.ToolsRevealed(names=("send", "find", "find"), why="wanted"))
    third = story.effect().request.tools
    assert [spec.name for spec in third] == ["look", "pay", "answer", "send", "find"]
    assert third[: len(second)] == second
    assert second[: len(first)] == first


def test_only_a_hidden_tool_can_be_shown():
    story = Story(replace(SETTINGS, hidden_tools=(FIND,)))
    for name in ("look", "nobody"):
        with pytest.raises(MisuseError, match=name):
            story.tell(e.ToolsRevealed(names=(name,), why="wanted"))


def test_a_shown_tool_that_the_agent_no_longer_has_is_not_sent():
    story = Story(replace(SETTINGS, hidden_tools=(FIND, SEND)))
    story.tell(e.ToolsRevealed(names=("find", "send"), why="wanted"))
    story.tell(e.Configured(settings=replace(SETTINGS, hidden_tools=(SEND,))))
    assert story.effect().request.tools == (READ, WRITE, SEND)
    story.tell(e.Configured(settings=SETTINGS))
    assert story.effect().request.tools == (READ, WRITE)


def test_with_nothing_but_shown_tools_a_forced_choice_is_kept():
    settings = replace(SETTINGS, tools=(), hidden_tools=(FIND,), tool_choice=ToolChoice(mode="any"))
    story = Story(settings)
    assert story.effect().request.tool_choice.mode == "auto"
    story.tell(e.ToolsRevealed(names=("find",), why="wanted"))
    assert story.effect().request.tool_choice.mode == "any"


def test_reasoning_that_is_bound_to_the_tools_of_then_is_left_out_when_more_are_shown():
    abilities = Abilities(thinking=("adaptive",), bound_thinking=True)
    here = replace(MODEL, abilities=abilities)
    for model, dropped in ((here, True), (MODEL, False)):
        story = Story(replace(SETTINGS, model=model, hidden_tools=(FIND,)))
        origin = Origin(family="scripted", endpoint=model.endpoint.endpoint_id, model="m")
        thought = Reasoning(text="hm", signature="proof")
        story.reply(replace(says("", call("look"), more=(thought,)), origin=origin)).finish("c1_0", "seen")
        assert isinstance(story.effect(), AskModel)
        story.tell(e.ToolsRevealed(names=("find",), why="wanted"))
        assert isinstance(story.effect(), ChangeView) is dropped
        request = story.perform().request
        assert (thought in request.messages[1].parts) is not dropped
        # What is thought from here on stands behind the new tools, and stays.
        later = Reasoning(text="ah", signature="proof 2")
        story.reply(replace(says("", call("look"), more=(later,)), origin=origin)).finish("c2_0", "seen")
        assert isinstance(story.effect(), AskModel)
        assert later in story.effect().request.messages[3].parts
        assert [type(event) for event in story.told].count(e.ViewChanged) == int(dropped)


def test_a_model_that_comes_back_after_tools_were_shown_does_not_get_its_old_reasoning():
    abilities = Abilities(thinking=("adaptive",), bound_thinking=True)
    here, there = (
        replace(MODEL, abilities=abilities),
        replace(MODEL, id="other", endpoint=Endpoint(name="there", family="scripted")),
    )
    settings = replace(SETTINGS, model=here, hidden_tools=(FIND,))
    story = Story(settings)
    thought = Reasoning(text="hm", signature="proof")
    story.reply(
        replace(
            says("", call("look"), more=(thought,)),
            origin=Origin(family="scripted", endpoint="test", model="m"),
        )
    )
    story.finish("c1_0", "seen")
    story.tell(e.Configured(settings=replace(settings, model=there)))
    story.tell(e.ToolsRevealed(names=("find",), why="wanted"))
    assert isinstance(story.effect(), AskModel)
    story.tell(e.Configured(settings=settings))
    change = story.effect()
    assert isinstance(change, ChangeView)
    assert change.model_key == here.model_key
    assert thought not in story.perform().request.messages[1].parts
