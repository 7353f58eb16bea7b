"""Requests of servers during calls: sampling through the agent's model, elicitation through its approver."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bridle import Agent, Budget, PermissionRule, Policy
from bridle.events import ServerAnswered, ServerAsked, SubrunCharged
from bridle.hooks import guard_input
from bridle.sessions import ApprovalVerdict
from bridle.testing import scripted
from bridle.testing.scripted_model import call_reply
from tests.tools.mcp.asking_server import Person, approve, make_crash_agent
from tests.tools.mcp.mcp_servers import more_hostile as hostile

SAMPLE = {"method": "sampling/createMessage"}
ELICIT = {"method": "elicitation/create"}
ALLOW_SAMPLING = Policy(rules=(PermissionRule(decision="allow", tools=("mcp_sampling__h",)),))


def run_ask(arguments, *, person=None, policy=None, modes=(), budget=None, store=None, hooks=(), **options):
    """The answers that the server got, the result and the events of a run with one call of `ask`."""

    async def main():
        source = hostile(*modes, **options)
        agent = Agent(
            "sim:",
            tools=[source],
            approver=person.ask if person else None,
            policy=policy,
            budget=budget,
            store=store,
            hooks=hooks,
        )
        result = await agent.run(f"!call mcp__h__ask {json.dumps(arguments)}", "s")
        events = [record.event for record in await agent.store.read("s")]
        await source.close()
        (found,) = [each for message in result.messages for each in message.results]
        return (json.loads(found.text) if not found.is_error else found.text), result, events

    return asyncio.run(main())


def list_events(events, kind):
    return [each for each in events if isinstance(each, kind)]


def test_requests_are_refused_and_not_announced_by_default(tmp_path):
    file = tmp_path / "capabilities.json"
    for arguments, word in ((SAMPLE, "Sampling"), (ELICIT, "Elicitation")):
        answers, _, events = run_ask(arguments, modes=[f"capabilities={file}"], person=Person())
        assert answers == [{"error": f"{word} not supported"}]
        assert not list_events(events, ServerAsked)
    assert json.loads(file.read_text()) == {}
    run_ask(SAMPLE, sampling=True, modes=[f"capabilities={file}"])
    assert json.loads(file.read_text()) == {"sampling": {}}


def test_a_person_approves_a_sampling_request_and_the_outer_run_pays_for_it():
    person = Person(approve())
    answers, result, events = run_ask(SAMPLE, person=person, sampling=True)
    (answer,) = answers
    assert answer["role"] == "assistant" and answer["content"]["text"] and answer["model"]
    (question,) = person.questions
    assert question.question == "sampling" and question.tool == "mcp_sampling__h"
    shown = json.loads(question.arguments)
    assert shown["instructions"] == "Be brief." and shown["max_tokens"] == 500
    assert shown["messages"] == [{"role": "user", "text": "What is the capital of France?"}]
    (asked,), (answered,) = list_events(events, ServerAsked), list_events(events, ServerAnswered)
    assert asked.binding == answered.binding == question.binding
    assert answered.action == "accept" and answered.by == "ada" and answered.proof
    (charged,) = list_events(events, SubrunCharged)
    assert charged.session.startswith("sampling-") and result.usage.total > charged.usage.total > 0


@pytest.mark.parametrize(
    ("person", "reason"),
    [
        (None, "there is no person to ask"),
        (Person(ApprovalVerdict(answer="reject", reason="not now")), "not now"),
        (Person(None), "the person did not answer"),
    ],
)
def test_a_sampling_request_without_an_approval_is_refused_and_the_model_is_not_asked(person, reason):
    answers, result, events = run_ask(SAMPLE, person=person, sampling=True)
    assert answers == [{"error": reason}] and result.done
    assert not list_events(events, SubrunCharged)


def test_a_reply_that_is_cut_off_at_the_limit_of_the_server_is_its_answer():
    answers, _, events = run_ask({**SAMPLE, "tokens": 50}, policy=ALLOW_SAMPLING, sampling=True)
    assert answers[0]["stopReason"] == "maxTokens" and answers[0]["content"]["text"]
    assert len(list_events(events, SubrunCharged)) == 1


def test_the_policy_allows_or_denies_sampling_without_a_question():
    answers, _, _ = run_ask(SAMPLE, policy=ALLOW_SAMPLING, sampling=True)
    assert answers[0]["content"]["text"]
    deny = Policy(rules=(PermissionRule(decision="deny", name="no", tools=("mcp_sampling__*",)),))
    person = Person()
    answers, _, _ = run_ask(SAMPLE, policy=deny, person=person, sampling=True)
    assert answers == [{"error": "denied by no"}] and not person.questions
    every = Policy(
        rules=(PermissionRule(decision="allow", tools=("mcp__h__*",)),)
    )  # the tools, not the requests
    answers, _, _ = run_ask(SAMPLE, policy=every, sampling=True)
    assert answers == [{"error": "there is no person to ask"}]


def test_a_server_cannot_spend_more_than_its_budget_or_ask_without_end():
    answers, result, events = run_ask(SAMPLE, policy=ALLOW_SAMPLING, sampling=Budget(tokens=10))
    assert "the model gave no answer" in answers[0]["error"] and result.done
    assert not list_events(events, SubrunCharged)
    answers, _, events = run_ask({**SAMPLE, "tries": 20}, policy=ALLOW_SAMPLING, sampling=True)
    assert [("error" in each) for each in answers] == [False] * 16 + [True] * 4
    assert len(list_events(events, ServerAnswered)) == 16


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"role": "assistant"}, "the last message must be from the user"),
        ({"text": "x" * 200_001}, "at most 200,000 characters"),
        ({"tokens": 0}, "maxTokens must be at least 1"),
    ],
)
def test_hostile_sampling_requests_are_refused(change, reason):
    answers, result, events = run_ask({**SAMPLE, **change}, policy=ALLOW_SAMPLING, sampling=True)
    assert reason in answers[0]["error"] and result.done and not list_events(events, ServerAsked)


@pytest.mark.parametrize("member", [{"text": "the word"}, {"system": "the word"}, {"stop": ["the word"]}])
def test_a_guard_of_the_agent_judges_every_text_of_a_sampling_request(member):
    @guard_input()
    def no_word(run, text):
        return "the word" if "the word" in text and "!call" not in text else None

    answers, _, events = run_ask({**SAMPLE, **member}, policy=ALLOW_SAMPLING, sampling=True, hooks=[no_word])
    assert "refused" in answers[0]["error"] or "no_word" in answers[0]["error"]
    assert not [charged for charged in list_events(events, SubrunCharged) if charged.usage.total]


def test_a_person_answers_a_question_with_values_that_fit():
    person = Person(approve(age="old"), approve(name="Ada"))
    answers, _, events = run_ask(ELICIT, person=person, elicitation=True)
    assert answers == [{"action": "accept", "content": {"name": "Ada", "age": 7}}]
    first, second = person.questions
    assert first.question == "elicitation" and json.loads(first.arguments)["message"] == "Who are you?"
    assert "age" in second.rule  # the problem with the values
    (answered,) = list_events(events, ServerAnswered)
    assert json.loads(answered.content) == {"name": "Ada", "age": 7}


@pytest.mark.parametrize(
    ("person", "action"),
    [
        (None, "decline"),
        (Person(ApprovalVerdict(answer="reject")), "decline"),
        (Person(None), "cancel"),
        (Person(*[approve()] * 3), "cancel"),
    ],
)
def test_a_question_without_an_answer_is_declined_or_cancelled(person, action):
    answers, result, _ = run_ask(ELICIT, person=person, elicitation=True)
    assert answers == [{"action": action}] and result.done


def test_a_rule_that_allows_does_not_answer_a_question_for_the_person():
    allow = Policy(rules=(PermissionRule(decision="allow", tools=("*",)),))
    answers, _, _ = run_ask(ELICIT, policy=allow, elicitation=True)
    assert answers == [{"action": "decline"}]


def test_escapes_in_a_question_and_bad_addresses_do_not_reach_the_person():
    person = Person(approve(name="Ada"))
    run_ask({**ELICIT, "text": "\x1b[2J\u202eevil"}, person=person, elicitation=True)
    assert json.loads(person.questions[0].arguments)["message"] == "\\u001b[2J\\u202eevil"
    person = Person(approve())
    answers, _, _ = run_ask({**ELICIT, "url": "https://example.com/x"}, person=person, elicitation=True)
    assert answers == [{"action": "accept"}]
    for url in ("javascript:alert(1)", "file:///etc/passwd", "https://a\u202e.example"):
        person = Person()
        answers, _, _ = run_ask({**ELICIT, "url": url}, person=person, elicitation=True)
        assert "error" in answers[0] and not person.questions
    answers, _, _ = run_ask({**ELICIT, "text": "x" * 5000}, person=Person(), elicitation=True)
    assert "at most 4,000 characters" in answers[0]["error"]


@pytest.mark.parametrize("arguments", [SAMPLE, ELICIT])
def test_a_call_that_runs_again_gets_the_same_answers_without_asking_again(arguments, tmp_path):
    """The server dies after it was answered; its tool is a trusted read, so the call runs again."""
    marker = tmp_path / "die"
    marker.touch()
    person = Person(approve(name="Ada") if arguments is ELICIT else approve())
    answers, result, events = run_ask(
        {**arguments, "tries": 1},
        person=person,
        modes=[f"die_asked={marker}"],
        trust=True,
        sampling=True,
        elicitation=True,
    )
    assert not marker.exists() and result.done and "error" not in answers[0]
    assert len(person.questions) == 1  # one more would raise IndexError
    assert len(list_events(events, ServerAsked)) == len(list_events(events, ServerAnswered)) == 1
    assert len(list_events(events, SubrunCharged)) == (arguments is SAMPLE)


CRASHING = """
import asyncio
from tests.tools.mcp.asking_server import Person, approve, make_crash_agent

person = Person(approve(name="Ada"))
agent = make_crash_agent({store!r}, {marker!r}, person)
asyncio.run(agent.run('!call mcp__h__ask {{"method": "{method}"}}', "s"))
"""


def kill_after_the_answer(tmp_path, arguments):
    """Run a call in a process that is killed after the server was answered and before it answered the call."""
    marker, store = tmp_path / "die", tmp_path / "log.db"
    marker.touch()
    script = CRASHING.format(store=str(store), marker=str(marker), method=arguments["method"])
    process = subprocess.Popen([sys.executable, "-c", script])
    while marker.exists():
        assert process.poll() is None
        os.sched_yield()
    process.kill()
    process.wait()
    return marker, store


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [SAMPLE, ELICIT])
def test_a_run_that_was_killed_resumes_with_the_same_answers(arguments, tmp_path):
    marker, store = kill_after_the_answer(tmp_path, arguments)
    person = Person()  # a question would raise IndexError

    async def main():
        agent = make_crash_agent(store, marker, person)
        result = await agent.resume("s")
        events = [record.event for record in await agent.store.read("s")]
        (found,) = [each for message in result.messages for each in message.results]
        return json.loads(found.text), events

    (answer,), events = asyncio.run(main())
    assert answer["content"].get("name", answer["content"].get("text"))
    assert not person.questions and len(list_events(events, ServerAnswered)) == 1
    assert len(list_events(events, SubrunCharged)) == (arguments is SAMPLE)


@pytest.mark.slow
def test_an_answer_without_a_proof_of_this_user_is_asked_for_again(tmp_path, monkeypatch):
    marker, store = kill_after_the_answer(tmp_path, ELICIT)
    monkeypatch.setenv("BRIDLE_APPROVAL_KEY_FILE", str(tmp_path / "another.key"))  # another user
    person = Person(approve(name="Eve"))

    async def main():
        result = await make_crash_agent(store, marker, person).resume("s", trust_approvals=True)
        (found,) = [each for message in result.messages for each in message.results]
        return json.loads(found.text)

    assert asyncio.run(main()) == [{"action": "accept", "content": {"name": "Eve", "age": 7}}]
    assert len(person.questions) == 1


@pytest.mark.slow
def test_a_rule_that_denies_now_overrides_an_answer_in_the_log(tmp_path):
    marker, store = kill_after_the_answer(tmp_path, SAMPLE)
    deny = Policy(rules=(PermissionRule(decision="deny", name="no", tools=("mcp_sampling__*",)),))

    async def main():
        source = hostile("hang_then", trust=True, sampling=True, elicitation=True, timeout=None)
        result = await Agent("sim:", tools=[source], policy=deny, store=store).resume("s")
        (found,) = [each for message in result.messages for each in message.results]
        return json.loads(found.text)

    assert not marker.exists() and asyncio.run(main()) == [{"error": "denied by no"}]


def test_a_call_that_starts_before_its_reply_is_complete_asks_when_it_is():
    async def main():
        person = Person(approve(name="Ada"))
        source = hostile(trust=True, elicitation=True)
        agent = Agent("sim:", tools=[source], approver=person.ask)
        stream = agent.stream(f"!call mcp__h__ask {json.dumps(ELICIT)}", "s")
        kinds = [type(item).__name__ async for item in stream]
        await source.close()
        return kinds

    kinds = asyncio.run(main())
    assert kinds.index("ToolStarted") < kinds.index("ServerAsked") < kinds.index("ServerAnswered")


def test_equal_questions_of_one_call_are_separate_questions():
    person = Person(approve(name="Ada"), approve(name="Bob"))
    answers, _, _ = run_ask({**ELICIT, "tries": 2}, person=person, elicitation=True)
    assert [each["content"]["name"] for each in answers] == ["Ada", "Bob"]
    assert len({each.binding for each in person.questions}) == 2


def test_a_person_who_never_answers_holds_the_call_until_its_deadline_and_no_other_server():
    async def never(question):
        await asyncio.Event().wait()

    async def main():
        slow, other = hostile(elicitation=True, timeout=1), hostile(name="other")
        calls = call_reply(("mcp__h__ask", ELICIT), ("mcp__other__echo", {"a": 1}))
        agent = Agent(scripted(calls, "done"), tools=[slow, other], approver=never)
        result = await agent.run("go")
        asked, echoed = [each for message in result.messages for each in message.results]
        assert asked.outcome == "timeout" and not echoed.is_error and result.done
        await slow.close()
        await other.close()

    asyncio.run(main())


@pytest.mark.slow
def test_the_example_with_a_server_of_the_newest_protocol_works():
    """The server asks by the result of the call, which is then sent again with the answers."""
    example = Path(__file__).parents[3] / "examples" / "mcp_notes.py"
    ended = subprocess.run([sys.executable, str(example)], capture_output=True, text=True, check=True)
    assert "note://welcome" in ended.stdout and "Which notes are about food?" in ended.stdout
    assert "asks you during mcp__notes__keep" in ended.stdout
    assert "wants to ask the model during mcp__notes__keep" in ended.stdout
    assert "kept as 'shopping'" in ended.stdout
