"""Servers with different code on one store: a server takes only answers that it can continue."""

import json

import pytest

from bridle import Agent, tool
from bridle.serve.client import ApiError
from bridle.stores import open_store
from bridle.values.events import ApprovalAnswered
from tests.serve.serving import serve_agents
from tests.serve.waiting_runs import list_questions, prompt_until_waiting, wait_for_end
from tests.suite.in_loop import in_loop

PROMPT = '!call refund {"order": "17", "amount": 5}\n!then\n!say settled'


@pytest.fixture
def log(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return str(tmp_path / "log.db")


def make_old(paid, **options):
    @tool(effect="write", approve=True)
    def refund(order: str, amount: int) -> str:
        paid.append((order, amount))
        return "paid"

    return Agent("sim:", tools=[refund], **options)


def make_new(paid, *, aliases=(), **options):
    @tool(effect="write", approve=True, aliases=aliases)
    def pay_back(order: str, amount: int) -> str:
        paid.append((order, amount))
        return "paid"

    return Agent("sim:", tools=[pay_back], **options)


async def list_answers(store):
    return [record.event for record in await store.read("s") if isinstance(record.event, ApprovalAnswered)]


@in_loop
async def test_server_without_the_agent_records_no_answer(log):
    paid, store = [], open_store(log)
    async with serve_agents({"desk": make_old(paid)}, store) as older:
        (question,), after = await prompt_until_waiting(older.client, PROMPT, "s")
        async with serve_agents({"clerk": make_new(paid)}, open_store(log)) as other:
            for answer in ("approve", "reject"):
                with pytest.raises(ApiError) as refused:
                    await other.client.answer("s", question.id, answer)
                assert (refused.value.status, refused.value.code) == (409, "agent_not_served")
        assert await list_answers(store) == []
        assert [each.id for each in (await list_questions(older.client, "s"))[0]] == [question.id]
        await older.client.answer("s", question.id, "approve")
        assert await wait_for_end(older.client, "s", after) == "done"
    assert paid == [("17", 5)]


@in_loop
async def test_newer_server_refuses_an_answer_that_the_older_one_can_honour(log):
    paid, store = [], open_store(log)
    async with serve_agents({"desk": make_old(paid)}, store) as older:
        (question,), after = await prompt_until_waiting(older.client, PROMPT, "s")
        async with serve_agents({"desk": make_new(paid)}, open_store(log)) as newer:
            with pytest.raises(ApiError, match="needs the tool 'refund'") as refused:
                await newer.client.answer("s", question.id, "approve")
            assert (refused.value.status, refused.value.code) == (409, "cannot_continue")
            assert await list_answers(store) == []
            # An answer from elsewhere: the newer server drops nothing while the older one continues the run.
            await Agent("sim:", store=open_store(log)).approve("s", question.id)
            assert await wait_for_end(older.client, "s", after) == "done"
    assert paid == [("17", 5)]


@in_loop
async def test_newer_server_with_an_alias_pays_what_was_approved_on_either(log):
    paid, store = [], open_store(log)
    async with serve_agents({"desk": make_old(paid)}, store) as older:
        (question,), after = await prompt_until_waiting(older.client, PROMPT, "s")
        older.host.answers.close()
        async with serve_agents({"desk": make_new(paid, aliases=["refund"])}, open_store(log)) as newer:
            await newer.client.answer("s", question.id, "approve")
            assert await wait_for_end(newer.client, "s", after) == "done"
    assert paid == [("17", 5)]


def ag_ui_body(session, approval):
    resume = [{"interruptId": approval, "status": "resolved", "payload": {"approved": True}}]
    return {"threadId": session, "runId": "r", "messages": [], "resume": resume}


def ai_sdk_body(session, approval):
    part = {
        "type": "tool-refund",
        "state": "approval-responded",
        "approval": {"id": approval, "approved": True},
    }
    return {"id": session, "messages": [{"role": "assistant", "parts": [part]}]}


@pytest.mark.parametrize(("path", "make_body"), [("ag-ui", ag_ui_body), ("chat", ai_sdk_body)])
@in_loop
async def test_front_ends_get_the_same_refusal(log, path, make_body):
    paid, store = [], open_store(log)
    async with serve_agents({"desk": make_old(paid)}, store) as older:
        (question,), _ = await prompt_until_waiting(older.client, PROMPT, "s")
        async with serve_agents({"desk": make_new(paid)}, open_store(log)) as newer:
            body, kind = (
                json.dumps(make_body("s", question.id)).encode(),
                {"content-type": "application/json"},
            )
            status, _, reply = await newer.exchange("POST", f"/api/{path}/desk", headers=kind, body=body)
            assert (status, json.loads(reply)["error"]["code"]) == (409, "cannot_continue"), reply
        assert await list_answers(store) == []
    assert paid == []
