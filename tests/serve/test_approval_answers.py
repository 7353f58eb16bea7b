"""Only an explicit, well-formed yes approves, on every entry; an unclear answer is refused and leaves the question open."""

import asyncio
import io
import json

import pytest

from bridle import Agent, MisuseError, tool
from bridle.cli.terminal_approver import TerminalApprover
from bridle.run.calls.verdicts import encode_edited, read_verdict
from bridle.sessions import ApprovalVerdict
from bridle.stores.memory import MemoryStore
from bridle.watchers.console import Console
from tests.serve.raw_http import send
from tests.serve.served import serve_by_name

PAID = []


@tool(effect="write", approve=True)
def pay(amount: int) -> str:
    """Pay."""
    PAID.append(amount)
    return f"paid {amount}"


UNCLEAR = [
    None, "", "yes", "true", "approve", "y", "ok", 1, 0, 1.0, [], [True], {}, {"approved": None}, {"approved": "true"},
    {"approved": "yes"}, {"approved": 1}, {"approved": []}, {"approved": {}}, {"Approved": True}, {"approve": True},
    {"ok": True}, {"approved": True, "approve": False}, {"approved": True, "answer": "reject"}, {"answer": "yes"},
    {"answer": True}, {"answer": "APPROVE"}, {"answer": "approve "}, {"answer": None},
    {"approved": True, "arguments": "{}x"}, {"approved": True, "arguments": [1]}, {"approved": True, "arguments": 5},
    {"approved": False, "arguments": {"amount": 1}}, {"approved": True, "reason": 5}, {"approved": True, "reason": None},
    {"approved": True, "editedArgs": {"amount": 1}}, {"reason": "fine"}, {"arguments": {"amount": 1}},
]  # fmt: skip
YES, NO = [{"approved": True}, True], [{"approved": False}, False]


@pytest.mark.parametrize("given", UNCLEAR, ids=repr)
def test_the_parser_refuses_what_is_unclear(given):
    with pytest.raises(MisuseError, match="answer"):
        read_verdict(given)


@pytest.mark.parametrize("given", [*YES, {"answer": "approve"}, ApprovalVerdict(answer="approve")], ids=repr)
def test_a_clear_yes_approves(given):
    assert read_verdict(given).answer == "approve"


@pytest.mark.parametrize("given", [*NO, {"answer": "reject"}, ApprovalVerdict(answer="reject")], ids=repr)
def test_a_clear_no_rejects(given):
    assert read_verdict(given).answer == "reject"


ROUNDED = [
    ("1234567890123456789", 1234567890123456800),
    ("1234567890123456789", 1234567890123456768),
    ("12345678901234567.89", 12345678901234568),
    ("0.1000000000000000055511151231257827", 0.1),
]


@pytest.mark.parametrize(("asked", "given"), ROUNDED)
def test_numbers_that_a_front_end_rounded_are_refused(asked, given):
    question = f'{{"account": [{{"id": {asked}}}], "amount": 1}}'
    with pytest.raises(MisuseError, match=r"account\[0\].id has lost digits"):
        encode_edited(question, {"account": [{"id": given}], "amount": 2})
    text = json.dumps({"account": [{"id": given}]})
    assert encode_edited(question, text) == text, "a text is what a person wrote"


@pytest.mark.parametrize(("asked", "given"), [("1234567890123456789", 1234567890123456788), ("1.10", 1.1), ("7", 8),
                                              ("100", 100.0), ("9007199254740992", 9007199254740992), ("-0", 0)])  # fmt: skip
def test_other_numbers_of_an_answer_are_taken(asked, given):
    assert json.loads(encode_edited(f'{{"a": {asked}}}', {"a": given})) == {"a": given}  # type: ignore[arg-type]


def answer_ag_ui(url, session, approval, given):
    resume = [{"interruptId": approval, "status": "resolved", "payload": given}]
    return send(
        f"{url}/api/ag-ui/shop", {"threadId": session, "runId": "r", "messages": [], "resume": resume}
    )


def answer_vercel(url, session, approval, given):
    fields = given if isinstance(given, dict) else {"approved": given}
    part = {"type": "tool-pay", "state": "approval-responded", "approval": {"id": approval, **fields}}
    body = {"id": session, "messages": [{"role": "assistant", "parts": [part]}]}
    return send(f"{url}/api/chat/shop", body)


def answer_api(url, session, approval, given):
    body = given
    if isinstance(given, bool):
        body = {"answer": "approve" if given else "reject"}
    elif isinstance(given, dict) and isinstance(given.get("approved"), bool) and len(given) == 1:
        body = {"answer": "approve" if given["approved"] else "reject"}
    return send(f"{url}/api/sessions/{session}/approvals/{approval}", json.dumps(body).encode())


ENTRIES = {"AG-UI": answer_ag_ui, "Vercel": answer_vercel, "API": answer_api}


@pytest.fixture(scope="module")
def shop():
    with serve_by_name({"shop": Agent("sim:", name="shop", tools=[pay])}, MemoryStore()) as served:
        yield served


def ask(shop, session, amount=7):
    """A session that waits, and the id of its question."""
    body = {
        "threadId": session,
        "runId": "r",
        "messages": [{"role": "user", "content": f'!call pay {{"amount": {amount}}}'}],
    }
    events = send(f"{shop.url}/api/ag-ui/shop", body).events
    [interrupt] = events[-1]["outcome"]["interrupts"]
    return interrupt["id"]


def is_ignored(entry, given):
    """True for an answer that is clear on this entry: this protocol may have fields that are not used."""
    fields = {} if not isinstance(given, dict) else given
    return (
        entry == "Vercel"
        and isinstance(fields.get("approved"), bool)
        and not {"reason", "arguments"} & {*fields}
    )


CASES = [(entry, given) for entry in ENTRIES for given in UNCLEAR if not is_ignored(entry, given)]


@pytest.mark.parametrize(
    "number", range(len(CASES)), ids=lambda number: f"{CASES[number][0]}-{CASES[number][1]!r}"
)
def test_an_unclear_answer_runs_nothing_and_leaves_the_question_open(shop, number):
    entry, given = CASES[number]
    session = f"unclear{number}"
    approval = ask(shop, session)
    PAID.clear()
    reply = ENTRIES[entry](shop.url, session, approval, given)
    assert reply.status in (400, 422), reply.body
    assert PAID == []
    answered = ENTRIES["API"](shop.url, session, approval, False)
    assert answered.status == 200, "the question is not open any more"


@pytest.mark.parametrize("entry", ENTRIES)
@pytest.mark.parametrize(
    ("given", "paid"), [*((each, [7]) for each in YES), *((each, []) for each in NO)], ids=repr
)
def test_a_clear_answer_is_followed_on_every_entry(shop, entry, given, paid):
    session = f"{entry}-{json.dumps(given)}".replace(" ", "").translate({ord(each): "-" for each in '{}":'})
    approval = ask(shop, session)
    PAID.clear()
    reply = ENTRIES[entry](shop.url, session, approval, given)
    assert reply.status == 200, reply.body
    wait_for_end(shop, session)
    assert paid == PAID


@pytest.mark.parametrize(
    ("entry", "status"),
    [({"status": ""}, 400), ({"status": "done"}, 400), ({"status": "RESOLVED"}, 400), ({}, 400),
     ({"status": "cancelled", "payload": {"approved": True}}, 400), ({"status": "cancelled", "payload": "x"}, 400),
     ({"status": "cancelled"}, 200), ({"status": "cancelled", "payload": {"approved": False}}, 200)],
)  # fmt: skip
def test_the_status_of_an_interrupt_must_be_known(shop, entry, status):
    session = f"status-{abs(hash(repr(entry)))}"
    approval = ask(shop, session)
    PAID.clear()
    resume = [{"interruptId": approval, "payload": {"approved": True}, **entry}]
    if entry == {"status": "cancelled"}:
        del resume[0]["payload"]
    body = {"threadId": session, "runId": "r", "messages": [], "resume": resume}
    assert send(f"{shop.url}/api/ag-ui/shop", body).status == status
    assert PAID == []


@pytest.mark.parametrize("entry", ENTRIES)
def test_an_answer_is_bound_to_its_question(shop, entry):
    """The beginning of an id, another id, no id and the id of the call approve nothing; nor do two answers at once."""
    session = f"bound-{entry}"
    approval = ask(shop, session)
    PAID.clear()
    for wrong in (approval[:4], approval[:-1], f"{approval}0", "none", "c1_0"):
        assert ENTRIES[entry](shop.url, session, wrong, True).status >= 400
    resume = [{"interruptId": approval, "status": "resolved", "payload": each} for each in (True, False)]
    body = {"threadId": session, "runId": "r", "messages": [], "resume": resume}
    assert send(f"{shop.url}/api/ag-ui/shop", body).status == 400
    assert PAID == []


REPEATED = [
    '{"approved": false, "approved": true}', '{"approved": false, "\\u0061pproved": true}',
    '{"approved": true, "reason": "a", "reason": "b"}', '{"approved": true, "arguments": {"amount": 1, "amount": 9}}',
    '{"approved": true, "arguments": "{\\"amount\\": 1, \\"amount\\": 9}"}',
]  # fmt: skip
BODIES = {
    "AG-UI": '{"threadId": "SESSION", "runId": "r", "messages": [], "resume":'
    ' [{"interruptId": "ID", "status": "resolved", "payload": GIVEN}]}',
    "Vercel": '{"id": "SESSION", "messages": [{"role": "assistant", "parts":'
    ' [{"type": "tool-pay", "state": "approval-responded", "approval": {"id": "ID", GIVEN}]}]}',
    "API": "GIVEN",
}
PATHS = {
    "AG-UI": "/api/ag-ui/shop",
    "Vercel": "/api/chat/shop",
    "API": "/api/sessions/SESSION/approvals/ID",
}


@pytest.mark.parametrize("given", REPEATED)
@pytest.mark.parametrize("entry", BODIES)
def test_an_answer_that_repeats_a_name_is_unclear(shop, entry, given):
    """Readers of JSON differ about which of the two counts."""
    session = f"repeated-{entry}-{REPEATED.index(given)}"
    approval = ask(shop, session)
    PAID.clear()
    written = given
    if entry == "Vercel":
        written = given[1:]
    elif entry == "API":
        words = {"approved": "answer", "u0061pproved": "u0061nswer", "true": '"approve"', "false": '"reject"'}
        for word, own in words.items():
            written = written.replace(word, own)
    body, path = (
        each.replace("SESSION", session).replace("ID", approval).replace("GIVEN", written)
        for each in (BODIES[entry], PATHS[entry])
    )
    reply = send(shop.url + path, body.encode())
    assert reply.status == 400 and b"twice" in reply.body, reply.body
    assert PAID == []


def test_if_one_of_several_answers_is_refused_none_is_recorded(shop):
    session = "several"
    body = {"threadId": session, "runId": "r", "messages": [
        {"role": "user", "content": f'!call pay {{"amount": 7}}\n!call pay {{"amount": {ACCOUNT}}}'}]}  # fmt: skip
    events = send(f"{shop.url}/api/ag-ui/shop", body).events
    first, second = (each["id"] for each in events[-1]["outcome"]["interrupts"])
    PAID.clear()
    rounded = {"approved": True, "arguments": {"amount": 1234567890123456800}}
    for other in ({"interruptId": second, "payload": rounded}, {"interruptId": "none", "payload": True}):
        resume = [{"status": "resolved", **each} for each in ({"interruptId": first, "payload": True}, other)]
        body = {"threadId": session, "runId": "r", "messages": [], "resume": resume}
        assert send(f"{shop.url}/api/ag-ui/shop", body).status >= 400
    assert PAID == []
    for approval in (first, second):
        assert answer_api(shop.url, session, approval, False).status == 200, "it was answered already"


ACCOUNT = 1234567890123456789


@pytest.mark.parametrize("entry", ENTRIES)
def test_an_edited_answer_pays_the_account_of_the_question_on_every_entry(shop, entry):
    """JavaScript has no such number: an answer with the rounded one is refused, the text of it is taken."""
    session = f"edited-{entry}"
    approval = ask(shop, session, ACCOUNT)
    PAID.clear()
    word = {"approved": True} if entry == "Vercel" else {"answer": "approve"}
    rounded = {**word, "arguments": {"amount": 1234567890123456800}}
    reply = ENTRIES[entry](shop.url, session, approval, rounded)
    assert reply.status == 400 and b"lost digits" in reply.body
    assert PAID == []
    exact = {**word, "arguments": f'{{"amount": {ACCOUNT}}}'}
    assert ENTRIES[entry](shop.url, session, approval, exact).status == 200
    wait_for_end(shop, session)
    assert PAID == [ACCOUNT]


def wait_for_end(shop, session):
    async def wait():
        while (await shop.host.store.read(session))[-1].event.__struct_config__.tag != "run_ended":
            await asyncio.sleep(0)

    shop.run(wait())


@pytest.mark.parametrize("answer", ["yes", "", "APPROVE", None, True, 1, "approved"])
def test_a_verdict_of_another_form_is_refused(answer):
    """In Python too: by an approver, and by `answer` of a session."""
    PAID.clear()
    verdict = ApprovalVerdict(answer=answer)

    async def approve(question):
        return verdict

    with pytest.raises(MisuseError, match="unclear answer"):
        Agent("sim:", tools=[pay], approver=approve).run_sync('!call pay {"amount": 7}', session="s")

    async def answer_later():
        agent = Agent("sim:", tools=[pay])
        await agent.run('!call pay {"amount": 7}', session="s")
        [question] = await agent.approvals("s")
        with pytest.raises(MisuseError, match="unclear answer"):
            await agent.open_session("s").answer(question.id, verdict)
        return await agent.approvals("s")

    assert len(asyncio.run(answer_later())) == 1
    assert PAID == []


@pytest.mark.parametrize(
    "typed",
    [
        "yy",
        "yes please",
        "ja",
        "1",
        "true",
        "ok",
        "approve",
        "\u0443",
        "\uff59",
        "y\u200b",
        "n o",
        "\n",
        "yn",
    ],
)
def test_unclear_words_at_the_terminal_are_asked_again(typed):
    lines = [f"{typed}\n", "n\n", "\n"]

    async def read():
        return lines.pop(0)

    async def approve():
        agent = Agent("sim:", tools=[pay])
        await agent.run('!call pay {"amount": 7}', session="s")
        [question] = await agent.approvals("s")
        return await TerminalApprover(Console(io.StringIO(), io.StringIO()), read).ask(question)

    assert asyncio.run(approve()).answer == "reject"
    assert lines == []
