"""The API over a real connection: every route, its reply against its schema, and runs that belong to the server."""

import asyncio
import json

import jsonschema_rs
import pytest

from bridle import Agent, tool
from bridle.events import RunEnded, ToolFinished
from bridle.serve.api import types as t
from bridle.serve.api.endpoints import ROUTES
from bridle.serve.api.openapi import make_openapi
from bridle.serve.client import ApiError, Client, ServedEvent
from tests.serve.serving import serve_agents
from tests.suite.in_loop import in_loop

PAYING = '!call pay {"usd": 7}\n!then\n!say paid'
go = {}


@tool(effect="read")
def look(name: str) -> str:
    """Look something up."""
    return f"{name} is here"


@tool(effect="write", approve=True)
def pay(usd: int) -> str:
    """Pay."""
    return f"paid {usd}"


@tool(effect="read")
async def wait_for_test() -> str:
    """Wait until the test lets it end."""
    go["entered"].set()
    await go["leave"].wait()
    return "waited"


@pytest.fixture
def shop():
    go.update(entered=asyncio.Event(), leave=asyncio.Event())
    return Agent("sim:", name="shop", tools=[look, pay, wait_for_test], instructions="Help.")


WAITING = "!call wait_for_test\n!then\n!say over"


async def finish(client, run):
    return [item async for item in client.stream(run.session, after=run.after)]


def make_checker(document):
    """Checks a reply against the schema of its route."""

    def check(method, path, status, reply):
        described = document["paths"][path][method.lower()]["responses"]
        schema = described[str(status)]["content"]["application/json"]["schema"]
        jsonschema_rs.validate({**schema, "components": document["components"]}, reply)

    return check


def test_every_route_is_in_the_document_and_has_types():
    document = make_openapi(ROUTES)
    listed = {(method.upper(), path) for path, row in document["paths"].items() for method in row}
    assert listed == {(row.method, f"/api{row.path}") for row in ROUTES}
    assert all(row.summary for row in ROUTES)
    ids = [row[method]["operationId"] for row in document["paths"].values() for method in row]
    assert len(ids) == len(set(ids))
    json.dumps(document)


@in_loop
async def test_every_reply_fits_its_schema(shop, tmp_path):
    async with serve_agents({"shop": shop}, tmp_path / "log.db") as serving:
        _, _, body = await serving.exchange("GET", "/api/openapi.json")
        document = json.loads(body)
        check, seen = make_checker(document), set()

        async def call(method, path, given=None, **parts):
            data = b"" if given is None else json.dumps(given).encode()
            headers = {"content-type": "application/json"}
            status, headers, body = await serving.exchange(
                method, path.format(**parts), headers=headers, body=data
            )
            pattern = (
                f"/api{path.partition('?')[0]}" if not path.startswith("/api") else path.partition("?")[0]
            )
            assert status < 300, (status, body)
            reply = json.loads(body)
            check(method, pattern, status, reply)
            seen.add((method, pattern))
            return reply

        await call("GET", "/api/agents")
        first = await call("POST", "/api/sessions", {"prompt": '!call look {"name": "x"}\n!then\n!say found'})
        s = first["session"]
        await finish(serving.client, t.StartedRun(**first))
        await call("GET", "/api/sessions?text=look&limit=1&status=done")
        await call("GET", "/api/sessions/{session}", session=s)
        await call("GET", "/api/sessions/{session}/events?limit=3", session=s)
        await call("GET", "/api/sessions/{session}/messages", session=s)
        again = await call("POST", "/api/sessions/{session}/prompts", {"prompt": PAYING}, session=s)
        await finish(serving.client, t.StartedRun(**again))
        asked = await call("GET", "/api/sessions/{session}/approvals", session=s)
        approval = asked["approvals"][0]["id"]
        answer = {"answer": "approve", "arguments": {"usd": 5}, "by": "ann"}
        path = "/api/sessions/{session}/approvals/{approval}"
        answered = await call("POST", path, answer, session=s, approval=approval)
        await finish(serving.client, t.StartedRun(**answered["run"]))
        fork = await call("POST", "/api/sessions/{session}/fork", {"at": "m2"}, session=s)
        await call("POST", "/api/sessions/{session}/resume", {}, session=fork["session"])
        for part in ("cost", "cache", "calls", "calls/{number}", "replay", "audit", "branches"):
            await call("GET", f"/api/sessions/{{session}}/{part}", session=s, number=-1)
        await call("GET", "/api/sessions/{session}/replay?agent=shop", session=s)
        await call("GET", "/api/sessions/{session}/compare?other=" + fork["session"], session=s)
        live = await serving.client.prompt(WAITING, agent="shop")
        await go["entered"].wait()
        await call("POST", "/api/sessions/{session}/steer", {"text": "hurry"}, session=live.session)
        await call("POST", "/api/sessions/{session}/pause", {}, session=live.session)
        await call("POST", "/api/sessions/{session}/cancel", {"by": "ann"}, session=live.session)
        listed = {(row.method, f"/api{row.path}") for row in ROUTES if row.reply is not None}
        assert seen == listed


@in_loop
async def test_a_conversation_with_the_client(shop, tmp_path):
    async with serve_agents({"shop": shop}, tmp_path / "log.db") as serving:
        client = serving.client
        run = await client.prompt('!call look {"name": "x"}\n!then\n!say found', agent="shop")
        items = await finish(client, run)
        assert "".join(item.text for item in items) == "found"
        assert (
            "".join([item.text async for item in client.stream(run.session)]) == "found"
        )  # from the log only
        events = [item for item in items if isinstance(item, ServedEvent)]
        assert [item.seq for item in events] == list(range(1, len(events) + 1))
        assert isinstance(events[-1].event, RunEnded)
        detail = await client.session(run.session)
        assert (detail.summary.status, detail.answer, detail.is_running) == ("done", "found", False)
        page = await client.sessions(t.SessionQuery(agent="shop"))
        assert [row.session for row in page.sessions] == [run.session] and page.next is None
        call = await client.call(run.session, -1)
        assert call.call.is_proven and call.difference is not None and "x is here" in call.body
        replay = await client.replay(run.session)
        assert replay.is_identical
        with pytest.raises(ApiError) as caught:
            await client.session("not there")
        assert (caught.value.status, caught.value.code) == (404, "session_not_found")


@in_loop
async def test_a_disconnected_viewer_does_not_end_the_run_and_cancel_does(shop, tmp_path):
    async with serve_agents({"shop": shop}, tmp_path / "log.db") as serving:
        client = serving.client
        run = await client.prompt(WAITING)
        stream = client.stream(run.session)
        await anext(stream)
        await stream.aclose()
        await go["entered"].wait()
        while serving.host.feeds.viewers:
            await asyncio.sleep(0)
        assert run.session in serving.host.runs
        outcome = await client.cancel(run.session, by="ann")
        assert outcome.status == "taken"
        detail = await client.session(run.session)
        assert (detail.summary.status, detail.summary.reason) == ("cancelled", "cancelled by ann")


@pytest.mark.parametrize("place", ["memory", "file"])
@in_loop
async def test_steer_pause_and_resume(shop, tmp_path, place):
    async with serve_agents({"shop": shop}, None if place == "memory" else tmp_path / "log.db") as serving:
        client = serving.client
        run = await client.prompt(WAITING)
        await go["entered"].wait()
        await client.steer(run.session, "use euros", by="ann")
        await client.pause(run.session, by="ann")
        go["leave"].set()
        await finish(client, run)
        assert (await client.session(run.session)).summary.status == "paused"
        again = await client.resume(run.session)
        await finish(client, again)
        detail = await client.session(run.session)
        assert detail.summary.status == "done"
        texts = [message.text for message in (await client.messages(run.session)).messages]
        assert "use euros" in texts


@in_loop
async def test_a_rejected_call_and_an_answer_without_resuming(shop, tmp_path):
    async with serve_agents({"shop": shop}, tmp_path / "log.db") as serving:
        client = serving.client
        run = await client.prompt(PAYING)
        await finish(client, run)
        (question,) = (await client.approvals(run.session)).approvals
        reply = await client.answer(run.session, question.id, "reject", reason="no receipt", resume=False)
        assert reply.run is None
        resumed = await client.resume(run.session)
        items = await finish(client, resumed)
        results = [
            item.event.result for item in items if isinstance(getattr(item, "event", None), ToolFinished)
        ]
        assert [(each.outcome, "no receipt" in each.text) for each in results] == [("denied", True)]


@in_loop
async def test_session_ids_with_any_characters(shop, tmp_path):
    async with serve_agents({"shop": shop}, tmp_path / "log.db") as serving:
        for name in ("a/b", "ü ?#%", "a..b", "<script>"):
            run = await serving.client.prompt("!say hello", session=name, new=True)
            assert run.session == name
            await finish(serving.client, run)
            assert (await serving.client.session(name)).answer == "hello"


@in_loop
async def test_wrong_requests_say_what_is_wrong(shop, tmp_path):
    async with serve_agents({"shop": shop, "other": Agent("sim:")}, tmp_path / "log.db") as serving:
        client = serving.client
        cases = [
            ("POST", "/api/sessions", b'{"prompt": "x"}', 400, "unknown_agent"),
            ("POST", "/api/sessions", b'{"prompt": "x", "agent": "nope"}', 404, "unknown_agent"),
            ("POST", "/api/sessions", b'{"prompt": 3, "agent": "shop"}', 400, "invalid_request"),
            ("POST", "/api/sessions", b'{"prompt": "", "agent": "shop"}', 400, "invalid_request"),
            ("POST", "/api/sessions", b"{", 400, "invalid_request"),
            ("POST", "/api/sessions", b'{"promt": "x"}', 400, "invalid_request"),
            ("GET", "/api/sessions?limit=0", b"", 400, "invalid_request"),
            ("GET", "/api/sessions?limt=1", b"", 400, "invalid_request"),
            ("GET", "/api/sessions?usd_min=nan", b"", 400, "invalid_request"),
            ("POST", "/api/chat/shop", b'{"a":' * 50_000, 400, "invalid_request"),
            ("POST", "/api/sessions/none/fork", b'{"at": "%s"}' % (b"9" * 5000), 404, "session_not_found"),
            ("GET", "/api/sessions/none/stream", b"", 404, "session_not_found"),
            ("GET", "/api/sessions/budget%3Ax", b"", 400, "invalid_request"),
            ("POST", "/api/sessions/none/cancel", b"{}", 404, "session_not_found"),
            ("DELETE", "/api/sessions", b"", 405, "invalid_request"),
            ("GET", "/api/nothing", b"", 404, "not_found"),
        ]
        for method, path, body, status, code in cases:
            found, _, reply = await serving.exchange(
                method, path, body=body, headers={"content-type": "application/json"}
            )
            error = json.loads(reply)["error"]
            assert (found, error["code"]) == (status, code), (path, reply)
            assert error["message"]
        run = await client.prompt(WAITING, agent="shop")
        with pytest.raises(ApiError, match="has a run") as caught:
            await client.prompt("and?", session=run.session)
        assert caught.value.status == 409
        go["leave"].set()
        await finish(client, run)
        with pytest.raises(ApiError, match="not running"):
            await client.steer(run.session, "too late")


def test_a_client_refuses_an_address_that_is_none():
    with pytest.raises(Exception, match="is not the address of a server"):
        Client("localhost:8420")


@in_loop
async def test_a_browser_that_has_everything_is_told_not_to_reconnect(shop, tmp_path):
    async with serve_agents({"shop": shop}, tmp_path / "log.db") as serving:
        run = await serving.client.prompt("!say hello")
        events = [item for item in await finish(serving.client, run) if isinstance(item, ServedEvent)]
        path = f"/api/sessions/{run.session}/stream"
        status, _, body = await serving.exchange("GET", path, headers={"last-event-id": str(events[-1].seq)})
        assert (status, body) == (204, b"")
        status, headers, body = await serving.exchange("GET", path, headers={"last-event-id": "2"})
        assert status == 200 and headers["content-type"].startswith("text/event-stream")
        ids = [line for line in body.split(b"\n") if line.startswith(b"id: ")]
        assert ids == [f"id: {number}".encode() for number in range(3, len(events) + 1)]


@pytest.mark.parametrize("place", ["memory", "file"])
@in_loop
async def test_of_answers_at_once_to_one_question_the_first_is_used(shop, tmp_path, place):
    async with serve_agents({"shop": shop}, None if place == "memory" else tmp_path / "log.db") as serving:
        client = serving.client
        run = await client.prompt(PAYING)
        await finish(client, run)
        (question,) = (await client.approvals(run.session)).approvals
        outcomes = await asyncio.gather(
            *(client.answer(run.session, question.id, "approve", by=f"user {n}") for n in range(3)),
            *(client.answer(run.session, question.id, "reject", by="eve") for _ in range(3)),
            return_exceptions=True,
        )
        (answered,) = [each for each in outcomes if not isinstance(each, ApiError)]
        late = {(each.status, each.code) for each in outcomes if isinstance(each, ApiError)}
        assert late == {(409, "already_answered")}
        items = await finish(client, answered.run)
        results = [item for item in items if isinstance(getattr(item, "event", None), ToolFinished)]
        assert len(results) == 1
        with pytest.raises(ApiError, match=r"is answered already: (approve|reject) by (user|eve)"):
            await client.answer(run.session, question.id, "approve")
        with pytest.raises(ApiError, match="no pending approval matches 'zz'"):
            await client.answer(run.session, "zz", "approve")


@pytest.mark.parametrize("place", ["memory", "file"])
@in_loop
async def test_answers_at_once_to_two_questions_are_both_taken(shop, tmp_path, place):
    async with serve_agents({"shop": shop}, None if place == "memory" else tmp_path / "log.db") as serving:
        client = serving.client
        run = await client.prompt('!call pay {"usd": 1}\n!call pay {"usd": 2}\n!then\n!say paid')
        await finish(client, run)
        questions = (await client.approvals(run.session)).approvals
        replies = await asyncio.gather(
            *(client.answer(run.session, each.id, "approve") for each in questions)
        )
        (resumed,) = [reply.run for reply in replies if reply.run is not None]
        await finish(client, resumed)
        assert (await client.session(run.session)).answer == "paid"
        with pytest.raises(ApiError, match="ended as done"):
            await client.cancel(run.session)


@in_loop
async def test_a_waiting_run_cannot_be_cancelled_and_says_what_to_do(shop, tmp_path):
    async with serve_agents({"shop": shop}, tmp_path / "log.db") as serving:
        run = await serving.client.prompt(PAYING)
        await finish(serving.client, run)
        with pytest.raises(ApiError, match="ended as waiting; answer its questions, or send a new prompt"):
            await serving.client.cancel(run.session)


@pytest.mark.parametrize("path", ["/api/sessions", "/openai/v1/chat/completions"])
@in_loop
async def test_a_client_that_leaves_within_its_request_is_no_error_of_the_server(
    shop, tmp_path, caplog, path
):
    async with serve_agents({"shop": shop}, tmp_path / "log.db") as serving:
        _, writer = await asyncio.open_connection("127.0.0.1", serving.port)
        head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        writer.write(f"{head}content-length: 500\r\n\r\n{{".encode())
        await writer.drain()
        await serving.client.agents()  # the server has begun with it
        writer.close()
        await writer.wait_closed()
        await serving.client.agents()
    assert not caplog.records
