"""Hooks at the five points of a run: what they may decide, and that each decides once."""

import asyncio
import json
import threading
from typing import Any

import pytest

from bridle import (
    Agent,
    MisuseError,
    ModelRetry,
    PermissionRule,
    Policy,
    RunContext,
    StoreError,
    ToolCall,
    tool,
)
from bridle.hooks import (
    Answer,
    Change,
    RedactPii,
    Refuse,
    after_model,
    after_tool,
    before_model,
    before_tool,
    edit_texts,
    guard_input,
    guard_output,
    on_end,
)
from bridle.stores.memory import MemoryStore
from bridle.testing import scripted
from bridle.testing.scripted_model import call_reply
from bridle.values.events import (
    ApprovalAsked,
    HookDecided,
    ModelAsked,
    ModelReplied,
    OutputChecked,
    RunEnded,
    ToolFinished,
    ToolStarted,
)
from bridle.values.result import TextDelta
from tests.suite.command import bridle
from tests.suite.crashes import CrashingStore
from tests.suite.patience import PATIENCE_SECONDS

WIRES = [
    "sim:anthropic/claude-sonnet-5-5",
    "sim:openai/gpt-5.6",
    "sim:openai_chat/gpt-5.6",
    "sim:gemini/gemini-2.5-pro",
    "sim:bedrock/global.anthropic.claude-sonnet-5-5",
]
PAY = call_reply(("pay", {"amount": 500}))


def make_pay(**options):
    paid = []

    @tool(effect="write", **options)
    def pay(amount: int) -> str:
        """Pay."""
        paid.append(amount)
        return f"paid {amount} from account DE89 3704 0044 0532 0130 00"

    return pay, paid


def events_of(store, session, kind):
    return [record.event for record in asyncio.run(store.read(session)) if isinstance(record.event, kind)]


def run(*script, hooks, tools=(), model=None, stream=False, **options):
    store = MemoryStore()
    agent = Agent(
        scripted(*script, model=model) if model else scripted(*script),
        hooks=hooks,
        tools=tools,
        store=store,
        **options,
    )
    result = agent.run_sync("Pay 500 please", session="s")
    return result, store


def test_a_hook_sees_every_point_in_order():
    seen: Any = []

    class Watch:
        def before_model(self, run, request):
            seen.append(("before_model", request.step, len(request.new_messages), run.step))

        async def after_model(self, run, reply):
            seen.append(("after_model", bool(reply.calls)))

        def before_tool(self, run, call):
            seen.append(("before_tool", call.name, json.loads(call.arguments)))

        def after_tool(self, run, call, result):
            seen.append(("after_tool", call.name, result.text[:8]))

        def on_end(self, run, end):
            seen.append(("on_end", end.stop, end.answer))

    pay, _paid = make_pay()
    result, store = run(PAY, "done", hooks=[Watch()], tools=[pay])
    assert result.stop == "done"
    assert seen == [
        ("before_model", 1, 1, 1),
        ("after_model", True),
        ("before_tool", "pay", {"amount": 500}),
        ("after_tool", "pay", "paid 500"),
        ("before_model", 2, 1, 2),
        ("after_model", False),
        ("on_end", "done", "done"),
    ]
    assert {event.action for event in events_of(store, "s", HookDecided)} == {"continue"}


def test_changed_arguments_run_and_are_told_to_the_model():
    @before_tool(tools=["pay"])
    def lower(run, call):
        return Change(arguments={"amount": 100})

    pay, paid = make_pay()
    result, store = run(PAY, "done", hooks=[lower], tools=[pay])
    assert paid == [100]
    assert events_of(store, "s", ToolStarted)[0].arguments == '{"amount":100}'
    assert result.stop == "done"
    told = result.messages[2].results[0].text
    assert told.startswith('The arguments of this call were changed to {"amount":100}')


def test_a_policy_judges_the_changed_arguments():
    @before_tool()
    def raise_amount(run, call):
        return Change(arguments={"amount": 10_000})

    pay, paid = make_pay()
    rule = PermissionRule(name="large", decision="deny", tools=("pay",), arguments={"amount": "> 1000"})
    _result, store = run(PAY, "done", hooks=[raise_amount], tools=[pay], policy=Policy(rules=(rule,)))
    assert not paid
    assert events_of(store, "s", ToolFinished)[0].result.outcome == "denied"


def test_invalid_changed_arguments_fail_the_run_and_run_nothing():
    @before_tool()
    def break_it(run, call):
        return Change(arguments={"amount": "much"})

    pay, paid = make_pay()
    result, _ = run(PAY, "done", hooks=[break_it], tools=[pay])
    assert not paid
    assert (result.stop, "hook break_it failed" in result.reason) == ("failed", True)


@pytest.mark.parametrize(
    ("decision", "outcome", "told"),
    [(Refuse(reason="too much"), "denied", "too much"), (Answer(text="paid already"), "ok", "paid already")],
)
def test_a_call_is_refused_or_answered_without_the_tool(decision, outcome, told):
    @before_tool()
    async def decide(run, call):
        return decision

    pay, paid = make_pay()
    result, store = run(PAY, "done", hooks=[decide], tools=[pay])
    finished = events_of(store, "s", ToolFinished)[0]
    assert not paid
    assert (finished.result.outcome, finished.rule) == (outcome, "hook decide")
    assert told in finished.result.text
    assert result.stop == "done"


@pytest.mark.parametrize("model", WIRES)
def test_a_result_is_changed_before_the_model_sees_it(model):
    @after_tool(tools=["pay"])
    def hide(run, call, result):
        return Change(text="paid")

    pay, paid = make_pay()
    result, _store = run(PAY, "done", hooks=[hide], tools=[pay], model=model)
    assert paid == [500]
    assert result.messages[2].results[0].text == "paid"
    assert result.stop == "done"


@pytest.mark.parametrize("model", WIRES)
@pytest.mark.parametrize("decision", [Change(text="better words"), Answer(text="better words")])
def test_a_reply_is_changed_before_it_is_part_of_the_conversation(model, decision):
    @after_model()
    def improve(run, reply):
        return decision if reply.text == "bad words" else None

    result, store = run("bad words", hooks=[improve], model=model)
    assert result.output == "better words"
    assert [message.text for message in result.messages] == ["Pay 500 please", "better words"]
    again = Agent(scripted("bad words", "more", model=model), store=store, hooks=[improve]).run_sync(
        "go on", session="s"
    )
    assert again.stop == "done"


def test_a_rejected_reply_is_paid_for_and_asked_for_again():
    @after_model()
    def strict(run, reply):
        if "maybe" in reply.text:
            raise ModelRetry("be definite")

    result, _store = run("maybe", "yes", hooks=[strict])
    assert result.output == "yes"
    assert result.steps == 2
    assert "be definite" in result.messages[2].text
    never, _ = run("maybe", "maybe", "maybe", "maybe", hooks=[strict])
    assert (never.stop, "rejected 3 replies" in never.reason) == ("failed", True)


@pytest.mark.parametrize("point", [before_model, after_model, on_end])
def test_a_refusal_ends_the_run(point):
    @point()
    def refuse(run, subject):
        return Refuse(reason="not here")

    result, store = run("hello", hooks=[refuse])
    assert (result.stop, result.reason, result.text) == ("refused", "hook refuse: not here", "")
    assert len(events_of(store, "s", ModelAsked)) == (0 if point is before_model else 1)


def test_an_answer_before_the_model_needs_no_request():
    @before_model()
    def cached(run, request):
        return Answer(text="from the cache") if request.step == 1 else None

    result, store = run("unused", hooks=[cached])
    assert (result.stop, result.output) == ("done", "from the cache")
    assert not events_of(store, "s", ModelAsked)


def test_a_message_is_added_and_unsent_texts_are_edited():
    @before_model()
    def prepare(run, request):
        edits = edit_texts(request.new_messages, lambda text: text.replace("500", "five hundred"))
        return Change(text="Today is Monday.", edits=edits)

    result, _store = run("fine", hooks=[prepare])
    assert result.stop == "done"
    assert result.messages[1].text == "Today is Monday."


def test_on_end_may_change_the_answer():
    @on_end()
    def sign(run, end):
        return Change(text=f"{end.answer} -- signed")

    result, _ = run("hello", hooks=[sign])
    assert result.output == "hello -- signed"


@pytest.mark.parametrize("point", ["before_model", "after_model", "before_tool", "after_tool"])
@pytest.mark.parametrize("fault", ["raise", "return", "hang"])
def test_a_hook_that_fails_ends_the_run_and_is_called_again_on_resume(point, fault):
    calls = []

    async def decide(*arguments):
        calls.append(point)
        if len(calls) > 1:
            return None
        if fault == "raise":
            raise RuntimeError("guard is down")
        if fault == "hang":
            await asyncio.Event().wait()
        return "yes"

    hook = type("Guard", (), {point: staticmethod(decide), "timeout_seconds": 0.05})()
    pay, paid = make_pay()
    store = MemoryStore()
    agent = Agent(scripted(PAY, "done"), hooks=[hook], tools=[pay], store=store)
    result = agent.run_sync("go", session="s")
    assert result.stop == "failed"
    assert "hook Guard failed" in result.reason
    assert paid == ([500] if point == "after_tool" else [])
    resumed = agent.resume_sync("s")
    assert resumed.stop == "done"
    is_asked_again = point in ("before_model", "after_model")
    assert len(calls) == (3 if is_asked_again else 1)
    assert paid == ([] if point == "before_tool" else [500])
    told = resumed.messages[2].results[0].text
    expected = {"before_tool": "was not run", "after_tool": "withheld"}
    assert expected.get(point, "paid 500") in told


def test_a_changed_call_is_approved_in_another_process_without_calling_the_hook_again(tmp_path):
    counted = []

    @before_tool(tools=["pay"])
    def lower(run, call):
        counted.append("before")
        return Change(arguments={"amount": 7})

    @after_tool()
    def hide(run, call, result):
        counted.append("after")
        return Change(text="paid")

    def make_agent(paid):
        @tool(effect="write", approve=True)
        def pay(amount: int) -> str:
            """Pay."""
            paid.append(amount)
            return "secret"

        return Agent(
            scripted(PAY, "done"), hooks=[lower, hide, RedactPii()], tools=[pay], store=tmp_path / "s.db"
        )

    paid = []
    assert make_agent(paid).run_sync("go", session="s").stop == "waiting"
    later = make_agent(paid)
    (question,) = asyncio.run(later.approvals("s"))
    assert json.loads(question.arguments) == {"amount": 7}
    asyncio.run(later.approve("s", question.id))
    result = later.resume_sync("s")
    assert (result.stop, paid, counted) == ("done", [7], ["before", "after"])
    assert "secret" not in result.messages[2].results[0].text


def test_hooks_of_an_inner_agent_and_of_the_outer_one_decide_about_their_own_runs():
    seen = []

    @before_model(name="inner")
    def inner_hook(run, request):
        seen.append("inner")

    @before_tool(name="outer", tools=["helper"])
    def outer_hook(run, call):
        seen.append(f"outer {call.name}")

    inner = Agent(scripted("write to ann@example.org"), hooks=[inner_hook])
    sent = []

    @before_model(name="spy")
    def spy(run, request):
        sent.extend(result.text for message in request.messages for result in message.results)

    outer = Agent(
        scripted(call_reply(("helper", {"prompt": "x"})), "done"),
        tools=[inner.as_tool(name="helper", description="Helps.")],
        hooks=[outer_hook, RedactPii(), spy],
    )
    assert outer.run_sync("go").stop == "done"
    assert seen == ["outer helper", "inner"]
    assert sent == ["write to [email]"]


@pytest.mark.parametrize(
    ("hooks", "words"),
    [
        ([object()], "none of the methods"),
        ([RedactPii], "write RedactPii()"),
        ([RedactPii(), RedactPii()], "two hooks have the name"),
    ],
)
def test_a_wrong_hook_is_refused_when_the_agent_is_built(hooks, words):
    with pytest.raises(MisuseError, match=words.replace("(", r"\(").replace(")", r"\)")):
        Agent(scripted("x"), hooks=hooks)


def test_guardrails():
    @guard_input()
    def no_money(run, text):
        return "no money talk" if "Pay" in text else None

    @guard_output()
    async def no_shouting(run, text):
        return "shouting" if text.isupper() else None

    result, store = run("x", hooks=[no_money])
    assert (result.stop, result.reason) == ("refused", "hook no_money: no money talk")
    assert not events_of(store, "s", ModelAsked)
    loud, _ = run("LOUD", hooks=[no_shouting])
    assert (loud.stop, loud.text) == ("refused", "")


SECRET = "write to ann@example.org or pay DE89 3704 0044 0532 0130 00, card 4111 1111 1111 1111."
CLEAN = "write to [email] or pay [IBAN], card [card number]."


@pytest.mark.parametrize("model", WIRES)
def test_personal_data_is_redacted_on_the_stream_in_the_log_and_in_the_answer(model):
    store = MemoryStore()
    agent = Agent(scripted(SECRET, model=model), hooks=[RedactPii()], store=store)

    async def collect():
        stream = agent.stream("who?", session="s")
        return "".join([event.text async for event in stream if isinstance(event, TextDelta)]), stream

    shown, _ = asyncio.run(collect())
    assert shown == CLEAN
    log = json.dumps([str(record.event) for record in asyncio.run(store.read("s"))])
    assert "ann@example.org" not in log
    assert "4111" not in log


def test_personal_data_in_prompts_and_results_is_not_sent():
    pay, _ = make_pay()
    sent = []

    @before_model(name="spy")
    def spy(run, request):
        sent.extend(message.text for message in request.messages)
        sent.extend(result.text for message in request.messages for result in message.results)

    result, _ = run(PAY, "ok", hooks=[RedactPii(), spy], tools=[pay])
    assert result.stop == "done"
    assert any("[IBAN]" in text for text in sent)
    assert not any("DE89" in text for text in sent)


def test_a_blocked_reply_ends_the_run_and_is_charged():
    result, store = run(SECRET, hooks=[RedactPii(output="refuse")])
    assert (result.stop, result.text) == ("refused", "")
    assert "email" in result.reason
    assert result.usage.output > 0
    again = Agent(scripted("fine"), store=store).run_sync("go on", session="s")
    assert again.stop == "done"


def make_counted_agent(store, counted, paid):
    class Everything:
        name = "everything"

        def before_model(self, run, request):
            counted.append(("before_model", request.step))
            return Change(text="Be brief.") if request.step == 1 else None

        def after_model(self, run, reply):
            counted.append(("after_model", reply.text, len(reply.calls)))
            return Change(text="changed") if reply.text else None

        def before_tool(self, run, call):
            counted.append(("before_tool", call.id))
            return Change(arguments={"amount": 100})

        def after_tool(self, run, call, result):
            counted.append(("after_tool", call.id))
            return Change(text="paid")

        def on_end(self, run, end):
            counted.append(("on_end", end.stop))
            return Change(text=f"{end.answer}!")

    @tool(effect="write", on_unknown="retry")
    def pay(amount: int) -> str:
        """Pay."""
        paid.append(amount)
        return "secret"

    return Agent(scripted(PAY, "original"), hooks=[Everything()], tools=[pay], store=store)


def test_a_process_killed_after_any_event_calls_no_hook_twice():
    whole, counted = CrashingStore(), []
    result = make_counted_agent(whole, counted, []).run_sync("go", session="s")
    assert result.output == "changed!"
    expected = [type(record.event).__name__ for record in asyncio.run(whole.read("s"))]
    decisions = list(counted)
    for death in range(2, len(expected)):
        store, counted, paid = CrashingStore(death), [], []
        with pytest.raises(StoreError):
            make_counted_agent(store, counted, paid).run_sync("go", session="s")
        store.left = None
        resumed = make_counted_agent(store, counted, paid).resume_sync("s")
        assert resumed.output == "changed!", death
        names = [type(record.event).__name__ for record in asyncio.run(store.read("s"))]
        kept = [name for name in names if name != "Resumed"]
        assert sorted(set(counted)) == sorted(set(decisions)), death
        for decided in set(counted):
            assert counted.count(decided) <= 1, (death, decided)
        if "ToolStarted" in names[death - 1 : death]:
            continue  # the call was in doubt and runs again, under its key
        assert [name for name in kept if name != "ModelAsked"] == [
            name for name in expected if name != "ModelAsked"
        ], death


def test_a_reply_under_review_when_the_process_was_killed_keeps_its_number():
    """The numbers of replies are in the ids of calls and of checked answers, which must mean the same when read again."""

    def make_agent(store, checked):
        def improve(answer):
            checked.append(answer)
            return "better"

        pay, _ = make_pay(on_unknown="retry")
        review = after_model()(lambda run, reply: None)
        script = scripted(PAY, call_reply(("pay", {"amount": 1})), "good")
        return Agent(script, hooks=[review], tools=[pay], validate=improve, store=store)

    whole = CrashingStore()
    assert make_agent(whole, []).run_sync("go", session="s").text == "better"
    records = asyncio.run(whole.read("s"))
    ids = [(event.call_id, event.name) for event in events_of(whole, "s", ToolStarted)]
    (decision,) = events_of(whole, "s", OutputChecked)
    reviews = [record.seq for record in records if isinstance(record.event, ModelReplied)]
    (check,) = (record.seq for record in records if isinstance(record.event, OutputChecked))
    for death in reviews:
        store, checked = CrashingStore(death), []
        with pytest.raises(StoreError):
            make_agent(store, checked).run_sync("go", session="s")
        store.left = check + 1 - death  # the records up to the check, and `Resumed`
        with pytest.raises(StoreError):
            make_agent(store, checked).resume_sync("s")
        store.left = None
        assert make_agent(store, checked).resume_sync("s").text == "better", death
        assert checked == ["good"], death
        assert [(event.call_id, event.name) for event in events_of(store, "s", ToolStarted)] == ids, death
        assert events_of(store, "s", OutputChecked) == [decision], death


def test_a_session_resumed_without_its_hooks_continues():
    whole = CrashingStore()
    make_counted_agent(whole, [], []).run_sync("go", session="s")
    count = len(asyncio.run(whole.read("s")))
    for death in range(2, count):
        store = CrashingStore(death)
        with pytest.raises(StoreError):
            make_counted_agent(store, [], []).run_sync("go", session="s")
        store.left = None
        bare = make_counted_agent(store, [], [])
        plain = Agent(scripted(PAY, "original"), tools=list(bare.tools.values()), store=store)
        assert plain.resume_sync("s").stop == "done", death


def test_a_cancelled_run_withholds_what_no_hook_reviewed():
    pay, paid = make_pay()
    reached = asyncio.Event()

    class Slow:
        async def after_tool(self, run, call, result):
            reached.set()
            await asyncio.Event().wait()

    store = MemoryStore()
    agent = Agent(scripted(PAY, "done"), hooks=[Slow()], tools=[pay], store=store)

    async def cancel_in_review():
        running = asyncio.create_task(agent.run("go", session="s"))
        await reached.wait()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(cancel_in_review())
    assert paid == [500]
    assert events_of(store, "s", RunEnded)[-1].stop == "cancelled"
    bare = Agent(scripted("fine"), tools=[pay], store=store)
    result = bare.run_sync("what happened?", session="s")
    assert "withheld" in result.messages[2].results[0].text
    assert "DE89" not in str(result.messages)


def test_questions_are_listed_in_the_order_of_the_calls(tmp_path):
    """The check of the first call ends after the question about the second is recorded."""
    second_asked = threading.Event()

    @tool(effect="write", approve=True)
    def pay(usd: int) -> str:
        """Pay."""
        return f"paid {usd}"

    @before_tool()
    def check(run: RunContext, call: ToolCall) -> None:
        if call.arguments == '{"usd":1}':
            assert second_asked.wait(PATIENCE_SECONDS)

    class Release:
        def on_event(self, session, shown):
            if isinstance(getattr(shown, "event", None), ApprovalAsked):
                second_asked.set()

    store = str(tmp_path / "log.db")
    agent = Agent("sim:", tools=[pay], hooks=[check], store=store, watchers=[Release()])
    result = agent.run_sync('!call pay {"usd":1}\n!call pay {"usd":2}', "s")
    assert result.stop == "waiting"
    recorded = [event.arguments for event in events_of(agent.store, "s", ApprovalAsked)]
    assert recorded == ['{"usd":2}', '{"usd":1}']
    in_order = ['{"usd":1}', '{"usd":2}']
    assert [question.arguments for question in asyncio.run(agent.approvals("s"))] == in_order
    shown = json.loads(bridle("approvals", "--json", "--store", store).out)
    assert [question["arguments"] for question in shown] == in_order
