"""Arguments that a person edits are new arguments: before_tool hooks decide about them too."""

import asyncio
import json

import pytest

from bridle import Agent, PermissionRule, Policy, StoreError, tool
from bridle.hooks import Answer, Change, Refuse, after_tool, before_tool
from bridle.sessions import ApprovalVerdict
from bridle.stores.memory import MemoryStore
from bridle.testing import scripted
from bridle.testing.scripted_model import call_reply
from bridle.values.events import ApprovalAsked, HookDecided, ToolFinished
from tests.suite.crashes import CrashingStore

PAY = call_reply(("pay", {"amount": 500}))


def make_pay(**options):
    paid = []

    @tool(effect="write", **options)
    def pay(amount: int, account: str = "main") -> str:
        """Pay."""
        paid.append((amount, account))
        return f"paid {amount}"

    return pay, paid


def make_limit(decision):
    seen = []

    @before_tool()
    def limit(run, call):
        amount = json.loads(call.arguments)["amount"]
        seen.append(amount)
        return decision if amount > 1_000 else None

    return limit, seen


def edit_to(*amounts):
    """An approver that edits the amount of each question in turn; None approves it as it is."""
    asked = []

    async def approve(question):
        asked.append(json.loads(question.arguments))
        amount = amounts[min(len(asked), len(amounts)) - 1]
        edited = None if amount is None else {**asked[-1], "amount": amount}
        return ApprovalVerdict(answer="approve", arguments=edited)

    return approve, asked


def events_of(store, kind):
    return [record.event for record in asyncio.run(store.read("s")) if isinstance(record.event, kind)]


@pytest.mark.parametrize(
    ("decision", "outcome", "told"),
    [(Refuse(reason="too much"), "denied", "too much"), (Answer(text="queued"), "ok", "queued")],
)
def test_a_hook_refuses_or_answers_what_a_person_edited(decision, outcome, told):
    pay, paid = make_pay(approve=True)
    limit, seen = make_limit(decision)
    approve, _asked = edit_to(90_000)
    store = MemoryStore()
    agent = Agent(scripted(PAY, "ok"), tools=[pay], hooks=[limit], approver=approve, store=store)
    result = agent.run_sync("?", session="s")
    finished = events_of(store, ToolFinished)[0]
    assert (result.stop, paid, seen) == ("done", [], [500, 90_000])
    assert (finished.result.outcome, told in finished.result.text) == (outcome, True)


def test_what_a_hook_makes_of_an_edit_is_put_to_the_person_again():
    pay, paid = make_pay(approve=True)
    limit, seen = make_limit(Change(arguments={"amount": 1_000}))
    approve, asked = edit_to(90_000, None)
    store = MemoryStore()
    agent = Agent(scripted(PAY, "ok"), tools=[pay], hooks=[limit], approver=approve, store=store)
    assert agent.run_sync("?", session="s").stop == "done"
    assert (paid, seen) == ([(1_000, "main")], [500, 90_000])
    assert [each["amount"] for each in asked] == [500, 1_000]
    assert len({event.binding for event in events_of(store, ApprovalAsked)}) == 2


def test_a_question_that_a_hook_restores_is_a_new_question():
    pay, paid = make_pay(approve=True)

    @before_tool()
    def insist(run, call):
        return Change(arguments={"amount": 500})

    approve, asked = edit_to(400, None)
    agent = Agent(scripted(PAY, "ok"), tools=[pay], hooks=[insist], approver=approve)
    assert agent.run_sync("?").stop == "done"
    assert (paid, [each["amount"] for each in asked]) == ([(500, "main")], [500, 500])


def test_a_hook_and_an_approver_that_undo_each_other_end_the_run():
    pay, paid = make_pay(approve=True)

    @before_tool()
    def insist(run, call):
        return Change(arguments={"amount": 500})

    approve, asked = edit_to(400)
    result = Agent(scripted(PAY, "ok"), tools=[pay], hooks=[insist], approver=approve).run_sync("?")
    assert (result.stop, paid, len(asked) < 20) == ("failed", [], True)
    assert "they replace those that a person edited" in result.reason


def test_a_hook_that_leaves_an_edit_as_it_is_needs_no_second_answer():
    pay, paid = make_pay(approve=True)

    @before_tool()
    def complete(run, call):
        return Change(arguments={"account": "main", **json.loads(call.arguments)})

    approve, asked = edit_to(400)
    result = Agent(scripted(PAY, "ok"), tools=[pay], hooks=[complete], approver=approve).run_sync("?")
    assert (result.stop, paid, len(asked)) == ("done", [(400, "main")], 1)


def test_rules_decide_about_what_a_hook_makes_of_an_edit():
    pay, paid = make_pay()
    limit, _seen = make_limit(Change(arguments={"amount": 5_000}))
    approve, _asked = edit_to(90_000, None)
    rules = (
        PermissionRule(name="huge", decision="deny", tools=("pay",), arguments={"amount": "5000"}),
        PermissionRule(name="all", decision="ask", tools=("pay",)),
    )
    store = MemoryStore()
    agent = Agent(
        scripted(PAY, "ok"),
        tools=[pay],
        hooks=[limit],
        approver=approve,
        policy=Policy(rules=rules),
        store=store,
    )
    agent.run_sync("?", session="s")
    finished = events_of(store, ToolFinished)[0]
    assert (paid, finished.result.outcome, finished.rule) == ([], "denied", "huge")


def test_after_tool_sees_the_arguments_that_ran():
    pay, paid = make_pay(approve=True)
    seen = []

    @after_tool()
    def audit(run, call, result):
        seen.append(json.loads(call.arguments)["amount"])

    approve, _asked = edit_to(400)
    Agent(scripted(PAY, "ok"), tools=[pay], hooks=[audit], approver=approve).run_sync("?")
    assert (paid, seen) == ([(400, "main")], [400])


def test_killed_after_any_event_an_edited_call_runs_once_and_each_hook_decides_once_per_arguments():
    async def approve(question):
        amount = json.loads(question.arguments)["amount"]
        return ApprovalVerdict(answer="approve", arguments={"amount": 90_000} if amount == 500 else None)

    def make_agent(store):
        pay, paid = make_pay(approve=True, on_unknown="retry")
        limit, seen = make_limit(Change(arguments={"amount": 1_000}))
        agent = Agent(scripted(PAY, "ok"), tools=[pay], hooks=[limit], approver=approve, store=store)
        return agent, paid, seen

    whole = CrashingStore()
    make_agent(whole)[0].run_sync("?", session="s")
    count = len(asyncio.run(whole.read("s")))
    for death in range(2, count):
        store = CrashingStore(death)
        agent, paid, seen = make_agent(store)
        with pytest.raises(StoreError):
            agent.run_sync("?", session="s")
        store.left = None
        again, paid_again, seen_again = make_agent(store)
        assert again.resume_sync("s").stop == "done", death
        assert paid + paid_again == [(1_000, "main")], death
        assert seen + seen_again == [500, 90_000], death
        assert len(events_of(store, HookDecided)) == 2, death
