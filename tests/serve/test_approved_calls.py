"""Prompts to a session with an approved call that has not started: every entry refuses them, and says what to do."""

import json

import pytest

from bridle import Agent, tool
from bridle.serve.client import ApiError
from bridle.stores import open_store
from tests.serve.serving import serve_agents
from tests.suite.in_loop import in_loop

PROMPT = '!call refund {"order": "17", "amount": 5}\n!then\n!say settled'


@pytest.fixture
def log(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return str(tmp_path / "log.db")


def make_desk(paid):
    @tool(effect="write", approve=True)
    def refund(order: str, amount: int) -> str:
        paid.append((order, amount))
        return "paid"

    return Agent("sim:", tools=[refund], name="desk")


async def approve_without_resuming(server, session="s"):
    run = await server.client.prompt(PROMPT, session=session, new=True)
    async for _ in server.client.stream(run.session, after=run.after):
        pass
    (question,) = (await server.client.approvals(session)).approvals
    reply = await server.client.answer(session, question.id, "approve", resume=False)
    server.host.answers.close()
    assert not reply.approval.is_uncompared
    return question


ENTRIES = {
    "api": ("/api/sessions/s/prompts", {"prompt": "!say hello"}),
    "ag-ui": (
        "/api/ag-ui/desk",
        {"threadId": "s", "runId": "r", "messages": [{"role": "user", "content": "!say hello"}]},
    ),
    "chat": (
        "/api/chat/desk",
        {"id": "s", "messages": [{"role": "user", "parts": [{"type": "text", "text": "!say hello"}]}]},
    ),
    "wire": ("/openai/v1/responses", {"model": "desk", "input": "!say hello"}),
}


@pytest.mark.parametrize("entry", ENTRIES)
@in_loop
async def test_prompt_is_refused_on_every_entry_with_what_to_do(log, entry):
    paid, store = [], open_store(log)
    async with serve_agents({"desk": make_desk(paid)}, store) as server:
        question = await approve_without_resuming(server)
        before = len(await store.read("s"))
        path, body = ENTRIES[entry]
        headers = {"content-type": "application/json", "x-bridle-session": "s"}
        status, _, reply = await server.exchange(
            "POST", path, headers=headers, body=json.dumps(body).encode()
        )
        text = reply.decode()
        assert status == 409, text
        assert "bridle resume s" in text
        assert f"bridle approvals reject {question.id}" in text
        assert len(await store.read("s")) == before
        assert paid == []


@in_loop
async def test_approved_call_is_listed_and_can_be_rejected_over_http(log):
    paid = []
    async with serve_agents({"desk": make_desk(paid)}, open_store(log)) as server:
        question = await approve_without_resuming(server)
        listed = await server.client.approvals("s")
        assert (listed.approvals, [each.id for each in listed.approved_calls]) == ((), [question.id])
        assert (await server.client.session("s")).approved_calls == listed.approved_calls
        with pytest.raises(ApiError, match="whole id"):
            await server.client.answer("s", question.id[:6], "reject")
        with pytest.raises(ApiError, match="answered already: approve"):
            await server.client.answer("s", question.id, "approve")
        await server.client.answer("s", question.id, "reject", resume=False)
        assert (await server.client.approvals("s")).approved_calls == ()
        run = await server.client.prompt("!say hello", session="s")
        events = [each async for each in server.client.stream("s", after=run.after)]
        assert events
        assert paid == []


@in_loop
async def test_host_without_agents_says_that_it_compared_nothing(log):
    paid = []
    async with serve_agents({"desk": make_desk(paid)}, open_store(log)) as server:
        run = await server.client.prompt(PROMPT, session="s", new=True)
        async for _ in server.client.stream("s", after=run.after):
            pass
        (question,) = (await server.client.approvals("s")).approvals
        server.host.answers.close()
        async with serve_agents({}, open_store(log)) as inspector:
            reply = await inspector.client.answer("s", question.id, "approve", resume=False)
            assert reply.approval.is_uncompared
        (approved,) = (await server.client.approvals("s")).approved_calls
        assert approved.is_uncompared
        again = await server.client.answer("s", question.id, "approve", resume=False)
        assert not again.approval.is_uncompared
