"""Permissions and approvals: every answer, for every call of a batch, across processes."""

import asyncio
import functools
import itertools
import os
import subprocess
import sys

import pytest
from msgspec.structs import replace

from bridle import Agent, Budget, tool
from bridle.cli.log_access import fold_state
from bridle.core.loop import apply_event
from bridle.stores.memory import MemoryStore
from bridle.testing import FakeClock, scripted
from bridle.testing.scripted_model import call_reply
from bridle.tools import RawTool
from bridle.values.calls import ApprovalVerdict, PermissionRule, Policy
from bridle.values.errors import MisuseError
from bridle.values.events import ApprovalAnswered, ApprovalAsked, ToolFinished, ToolStarted
from tests.suite.patience import PATIENCE_SECONDS

ANSWERS = ("auto", "approve", "edit", "reject", "expire")
MODEL = "sim:anthropic/claude-sonnet-5-5"


class World:
    """Three tools that remember what they were run with."""

    def __init__(self):
        self.ran = []

    def tools(self, asked, effect="write"):
        made = []
        for name in ("alpha", "beta", "gamma"):
            made.append(
                RawTool(
                    name,
                    "Pay.",
                    {"type": "object", "properties": {"amount": {"type": "integer"}}, "required": ["amount"]},
                    functools.partial(self.pay, name),
                    effect=effect,
                    resource=name,
                    approve=name in asked,
                )
            )
        return made

    def pay(self, name, arguments):
        self.ran.append((name, arguments["amount"]))
        return f"{name} paid"


SCRIPT = """!call alpha {"amount": 1}
!call beta {"amount": 2}
!call gamma {"amount": 3}
!then
!say all settled"""


@pytest.mark.parametrize("where", ["same process", "new process", "code redeployed"])
@pytest.mark.parametrize("answers", list(itertools.product(ANSWERS, repeat=3)), ids=" ".join)
def test_every_answer_to_every_call_of_a_batch(answers, where):
    asyncio.run(_every_answer(answers, where))


async def _every_answer(answers, where):
    world, store, clock = World(), MemoryStore(), FakeClock()
    planned = dict(zip(("alpha", "beta", "gamma"), answers, strict=True))
    asked = [name for name, answer in planned.items() if answer != "auto"]

    def agent(effect="write"):
        return Agent(
            MODEL, tools=world.tools(asked, effect), store=store, clock=clock, approval_seconds=100.0
        )

    first = agent()
    result = await first.run(SCRIPT, session="s")
    assert sorted(world.ran) == [(n, i + 1) for i, n in enumerate(planned) if planned[n] == "auto"]
    if asked:
        assert result.stop == "waiting"
        is_changed = where == "code redeployed"
        await _answer_all(agent(), planned)
        second = first if where == "same process" else agent("undeclared" if is_changed else "write")
        if "expire" in answers:
            clock.advance(101.0)
        result = await second.resume("s")
        if is_changed and any(answer != "auto" for answer in answers):
            # What was approved was another tool's call: nothing ran on the strength of it.
            if "expire" not in answers:
                assert result.stop == "waiting"
                assert {name for name, _ in world.ran} == {n for n, a in planned.items() if a == "auto"}
            if result.stop == "waiting":
                await _answer_all(second, planned)
                clock.advance(101.0 if "expire" in answers else 0.0)
                result = await second.resume("s")
    assert (result.stop, result.text) == ("done", "all settled"), result.reason
    expected = {"auto": 0, "approve": 0, "edit": 40}
    amounts = {"alpha": 1, "beta": 2, "gamma": 3}
    wanted = {n: amounts[n] + expected[a] for n, a in planned.items() if a in expected}
    assert sorted(world.ran) == sorted(wanted.items())
    results = [part for message in result.messages for part in message.results]
    assert [r.call_id for r in results] == ["c1_0", "c1_1", "c1_2"]
    outcomes = ["ok" if answer in expected else "denied" for answer in answers]
    assert [r.outcome for r in results] == outcomes
    records = await store.read("s")
    assert sum(isinstance(r.event, ToolStarted) for r in records) == len(wanted)
    assert sum(isinstance(r.event, ToolFinished) for r in records) == 3


async def _answer_all(agent, planned):
    for question in await agent.approvals("s"):
        answer = planned[question.tool]
        if answer == "approve":
            await agent.approve("s", question.id, by="ann")
        elif answer == "edit":
            amount = {"alpha": 41, "beta": 42, "gamma": 43}[question.tool]
            await agent.approve("s", question.call_id, arguments={"amount": amount})
        elif answer == "reject":
            await agent.reject("s", question.id, reason="too much")


def make_pay_tool(**options):
    ran = []

    @tool(**options)
    def pay(amount: int, to: str = "shop") -> str:
        """Pay."""
        ran.append((amount, to))
        return "paid"

    return pay, ran


def asked_by(agent, session="s"):
    records = asyncio.run(agent.store.read(session))
    return [r.event.rule for r in records if isinstance(r.event, ApprovalAsked)]


def test_a_function_of_the_arguments_may_decide():
    pay, ran = make_pay_tool(approve=lambda amount: amount > 100)
    agent = Agent(
        scripted(call_reply(("pay", {"amount": 50})), call_reply(("pay", {"amount": 500})), "ok"), tools=[pay]
    )
    assert agent.run_sync("?", session="s").stop == "waiting"
    assert ran == [(50, "shop")]


def test_a_function_that_fails_lets_nothing_through():
    pay, ran = make_pay_tool(approve=lambda amount: 1 / 0)
    agent = Agent(scripted(call_reply(("pay", {"amount": 50})), "ok"), tools=[pay])
    assert agent.run_sync("?", session="s").stop == "waiting"
    assert ran == []
    assert "ZeroDivisionError" in asked_by(agent)[0]


def test_the_first_matching_rule_decides():
    policy = Policy(
        rules=(
            PermissionRule(decision="deny", name="no casino", arguments={"to": "casino*"}),
            PermissionRule(decision="allow", name="small", tools=("p*",), arguments={"amount": "<= 50"}),
            PermissionRule(decision="ask", name="for others", callers=("guest-*",)),
            PermissionRule(decision="deny", name="shut", tenants=("closed",)),
        )
    )
    pay, ran = make_pay_tool(approve=True)
    script = call_reply(
        ("pay", {"amount": 5, "to": "casino royal"}), ("pay", {"amount": 50}), ("pay", {"amount": 51})
    )
    agent = Agent(scripted(script, "ok"), tools=[pay], policy=policy)
    assert agent.run_sync("?", session="s", caller="guest-7").stop == "waiting"
    assert ran == [(50, "shop")]
    assert asked_by(agent) == ["for others"]
    records = asyncio.run(agent.store.read("s"))
    assert [r.event.rule for r in records if isinstance(r.event, ToolStarted)] == ["small"]
    assert [r.event.rule for r in records if isinstance(r.event, ToolFinished)] == ["no casino", ""]
    assert agent.run_sync("?", session="t", tenant="closed").stop == "done"
    assert ran == [(50, "shop"), (50, "shop")]


@pytest.mark.parametrize(
    ("pattern", "value", "matches"),
    [
        ("/safe/*", "/safe/a.txt", True),
        ("/safe/*", "/safe/../etc/passwd", False),
        ("/safe/*", "/safe/..", False),
        ("/safe/*", "\\safe\\..\\x", False),
        ("/safe/*", "/unsafe/a", False),
        ("<= 50", 50, True),
        ("<= 50", 50.01, False),
        ("<= 50", True, False),
        ("<= 50", "1", False),
        ("= 3", 3, True),
        ("> -1", 0, True),
        ("true", True, True),
        ("*", None, False),
        ("*", [1], False),
        ("<b>", "<b>", True),
    ],
)
def test_what_an_allowing_pattern_matches(pattern, value, matches):
    ran = []

    @tool(effect="write")
    def put(what: object) -> str:
        """Put."""
        ran.append(what)
        return "done"

    rules = (
        PermissionRule(decision="allow", arguments={"what": pattern}),
        PermissionRule(decision="deny", name="rest"),
    )
    agent = Agent(
        scripted(call_reply(("put", {"what": value})), "ok"), tools=[put], policy=Policy(rules=rules)
    )
    agent.run_sync("?")
    assert bool(ran) is matches


@pytest.mark.parametrize(
    ("pattern", "given", "denied"),
    [
        ("> 100", {}, True),
        ("> 100", {"what": "500"}, True),
        ("> 100", {"what": "50"}, False),
        ("/etc/*", {"what": ["/tmp/a", "/etc/passwd"]}, True),
        ("/etc/*", {"what": ["/tmp/a"]}, False),
        ("> 100", {"what": [[7, 700]]}, True),
    ],
)
def test_what_a_denying_pattern_matches(pattern, given, denied):
    ran = []

    @tool(effect="write")
    def put(what: object = 500) -> str:
        """Put."""
        ran.append(what)
        return "done"

    rules = (PermissionRule(decision="deny", arguments={"what": pattern}),)
    agent = Agent(scripted(call_reply(("put", given)), "ok"), tools=[put], policy=Policy(rules=rules))
    agent.run_sync("?")
    assert bool(ran) is not denied


def test_a_rejected_call_does_not_run_under_rules_that_allow_it():
    pay, ran = make_pay_tool(effect="write")
    store, script = MemoryStore(), scripted(call_reply(("pay", {"amount": 7})), "ok")

    def agent(decision):
        return Agent(
            script, tools=[pay], store=store, policy=Policy(rules=(PermissionRule(decision=decision),))
        )

    async def main():
        first = agent("ask")
        await first.run("?", session="s")
        (question,) = await first.approvals("s")
        await first.reject("s", question.id, reason="no")
        return await agent("allow").resume("s")

    result = asyncio.run(main())
    assert (result.stop, ran) == ("done", [])
    assert result.messages[2].results[0].outcome == "denied"


@pytest.mark.parametrize("late", ["for ever", "just"])
def test_a_question_expires_while_an_approver_thinks(late):
    pay, ran = make_pay_tool(approve=True)
    clock = FakeClock()

    async def approver(question):
        if late == "for ever":
            await asyncio.wait_for(asyncio.Event().wait(), PATIENCE_SECONDS)
        clock.advance(60.0)
        return ApprovalVerdict(answer="approve")

    seconds = 0.01 if late == "for ever" else 50.0
    agent = Agent(
        scripted(call_reply(("pay", {"amount": 7})), "ok"),
        tools=[pay],
        approver=approver,
        approval_seconds=seconds,
        clock=clock,
        budget=Budget(seconds=30.0),
    )
    result = agent.run_sync("?")
    assert (result.stop, ran) == ("done", []), result.reason
    assert "Nobody answered in time" in result.messages[2].results[0].text


def test_an_approvers_own_timeout_is_his():
    pay, ran = make_pay_tool(approve=True)

    async def approver(question):
        raise TimeoutError("the telephone is dead")

    agent = Agent(
        scripted(call_reply(("pay", {"amount": 7})), "ok"),
        tools=[pay],
        approver=approver,
        approval_seconds=60.0,
    )
    with pytest.raises(TimeoutError, match="telephone"):
        agent.run_sync("?", session="s")
    assert (ran, len(asyncio.run(agent.approvals("s")))) == ([], 1)


def test_a_policy_from_a_file(tmp_path):
    path = tmp_path / "policy.toml"
    path.write_text('version = "2"\n[[rules]]\ndecision = "deny"\ntools = ["pay"]\neffects = ["write"]\n')
    pay, ran = make_pay_tool(effect="write")
    result = Agent(scripted(call_reply(("pay", {"amount": 1})), "ok"), tools=[pay], policy=path).run_sync("?")
    assert (ran, result.messages[2].results[0].text) == (
        [],
        "This call is not allowed here (rule 1). It was not run.",
    )
    for text, why in (
        ('[[rules]]\ndecision = "maybe"', "maybe"),
        ("[[rules]]\ntool = 'x'\ndecision = 'deny'", "tool"),
        ("[[rules", "not a valid policy"),
    ):
        path.write_text(text)
        with pytest.raises(MisuseError, match=why):
            Agent(scripted("x"), policy=path)
    with pytest.raises(MisuseError, match="cannot read the policy"):
        Agent(scripted("x"), policy=tmp_path / "none.toml")


def test_an_approver_answers_while_the_run_goes_on():
    pay, ran = make_pay_tool(approve=True)
    seen = []

    async def approver(question):
        seen.append((question.tool, question.arguments))
        return ApprovalVerdict(answer="reject" if len(seen) == 1 else "approve", reason="no", by="ann")

    script = call_reply(("pay", {"amount": 1}), ("pay", {"amount": 2}))
    result = Agent(scripted(script, "ok"), tools=[pay], approver=approver).run_sync("?")
    assert (result.stop, ran) == ("done", [(2, "shop")])
    assert seen == [("pay", '{"amount":1}'), ("pay", '{"amount":2}')]
    assert "Reason: no" in result.messages[2].results[0].text


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (lambda agent: agent.approve("s", "nothing"), "no pending approval"),
        (lambda agent: agent.approve("s", "c1_0", arguments={"amount": "x"}), "cannot be run with"),
        (lambda agent: agent.settle("s", "c1_0", "paid"), "never started"),
        (lambda agent: agent.approve("t", "c1_0"), "no pending approval"),
    ],
)
def test_an_answer_that_fits_no_question_is_refused(answer, why):
    pay, ran = make_pay_tool(approve=True)
    agent = Agent(scripted(call_reply(("pay", {"amount": 1})), "ok"), tools=[pay])
    agent.run_sync("?", session="s")
    with pytest.raises(MisuseError, match=why):
        asyncio.run(answer(agent))
    asyncio.run(agent.reject("s", "c1_0"))
    with pytest.raises(MisuseError, match="no pending approval"):
        asyncio.run(agent.approve("s", "c1_0"))
    assert asyncio.run(agent.resume("s")).stop == "done"
    assert ran == []


def test_an_answer_bound_to_another_question_is_refused():
    """The question may have changed since a person saw it: other arguments, another rule."""
    pay, _ = make_pay_tool(approve=True)
    agent = Agent(scripted(call_reply(("pay", {"amount": 1})), "ok"), tools=[pay])
    agent.run_sync("?", session="s")
    state = fold_state(asyncio.run(agent.store.read("s")))
    (question,) = asyncio.run(agent.approvals("s"))
    answer = ApprovalAnswered(call_id=question.call_id, binding=question.binding, answer="approve")
    assert apply_event(state, answer, state.now, "") != state
    with pytest.raises(MisuseError, match="no pending approval"):
        apply_event(state, replace(answer, binding="0" * 64), state.now, "")


def test_speaking_to_a_session_that_waits_closes_the_question():
    pay, ran = make_pay_tool(approve=True)
    agent = Agent(scripted(call_reply(("pay", {"amount": 1})), "never mind then"), tools=[pay])
    agent.run_sync("?", session="s")
    result = agent.run_sync("forget it", session="s")
    assert (result.stop, result.text, ran) == ("done", "never mind then", [])
    assert [r.outcome for m in result.messages for r in m.results] == ["cancelled"]


@pytest.mark.parametrize("where", ["same process", "new process", "code redeployed"])
def test_a_persons_time_is_not_the_runs(where):
    pay, ran = make_pay_tool(approve=True)
    clock, store, line = FakeClock(), MemoryStore(), scripted(call_reply(("pay", {"amount": 1})), "ok")

    async def slow(question):
        clock.advance(3600.0)
        return ApprovalVerdict(answer="approve")

    def agent(**options):
        return Agent(line, tools=[pay], store=store, clock=clock, budget=Budget(seconds=50), **options)

    async def main():
        if where == "same process":
            return await agent(approver=slow).run("?", session="s")
        await agent().run("?", session="s")
        clock.advance(3600.0)
        later = agent(instructions="Changed." if where == "code redeployed" else None)
        await later.approve("s", "c1_0")
        clock.advance(3600.0)
        return await later.resume("s")

    result = asyncio.run(main())
    assert (result.stop, ran) == ("done", [(1, "shop")]), result.reason


PROGRAM = """
import asyncio, sys
from bridle import Agent, tool

@tool(effect="write", approve=True)
def pay(amount: int) -> str:
    "Pay."
    print("paid", amount)
    return "paid"

agent = Agent("sim:", tools=[pay], store=sys.argv[1])

async def main():
    if sys.argv[2] == "run":
        result = await agent.run('!call pay {"amount": 7}\\n!then\\n!say done', session="s")
    elif sys.argv[2] == "approve":
        (question,) = await agent.approvals("s")
        await agent.approve("s", question.id)
        return print("approved")
    else:
        result = await agent.resume("s")
    print(result.stop)

asyncio.run(main())
"""


@pytest.mark.slow
def test_ask_answer_and_go_on_in_three_processes(tmp_path):
    def step(word):
        command = [sys.executable, "-c", PROGRAM, str(tmp_path / "log.db"), word]
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ)
        return done.stdout.split()

    assert step("run") == ["waiting"]
    assert step("resume") == ["waiting"]
    assert step("approve") == ["approved"]
    assert step("resume") == ["paid", "7", "done"]
    assert step("resume") == ["done"]


def test_an_edit_the_tool_does_not_take_is_asked_about_again():
    pay, ran = make_pay_tool(approve=True)
    asked = []

    async def approver(question):
        asked.append(question.rule)
        given = '{"amount": "x"}' if len(asked) == 1 else '{"amount": 3}'
        return ApprovalVerdict(answer="approve", arguments=given)

    result = Agent(
        scripted(call_reply(("pay", {"amount": 1})), "ok"), tools=[pay], approver=approver
    ).run_sync("?")
    assert (result.stop, ran, len(asked)) == ("done", [(3, "shop")], 2)
    assert "cannot be run with these arguments" in asked[1]


def test_an_approver_that_never_learns_is_stopped():
    pay, ran = make_pay_tool(approve=True)

    async def approver(question):
        return ApprovalVerdict(answer="approve", arguments='{"amount": "x"}')

    agent = Agent(scripted(call_reply(("pay", {"amount": 1})), "ok"), tools=[pay], approver=approver)
    with pytest.raises(MisuseError, match="cannot be run with"):
        agent.run_sync("?")
    assert ran == []
