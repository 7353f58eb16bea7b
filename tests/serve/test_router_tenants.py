"""A router without identities: requests choose no tenant, and leaving it out opens nothing."""

import asyncio

import pytest

from bridle import Agent, tool
from bridle.serve import ServeOptions, make_app, router
from bridle.stores import open_store
from tests.serve.raw_http import send
from tests.serve.served import Served

TOKEN = "correct-horse-battery"


@tool(effect="write", approve=True)
def pay(usd: int) -> str:
    """Pay, if a person agrees."""
    return f"paid {usd}"


def make_agent(store=None):
    return Agent("sim:", name="shop", tools=[pay], store=store)


async def fill(path):
    """A session of a tenant with an open question, and one of nobody."""
    store = open_store(path)
    agent = make_agent(store)
    await agent.run('!call pay {"usd": 5}', "theirs", tenant="acme", caller="ann")
    await agent.run("!say free", "free")
    approval = (await agent.approvals("theirs"))[0].id
    await store.close()
    return approval


@pytest.fixture
def place(tmp_path):
    path = tmp_path / "log.db"
    return path, asyncio.run(fill(path))


TRUSTING = ServeOptions(trusts_callers=True)
LOCAL = ServeOptions()


def serve_router(path, options=TRUSTING):
    app = router(make_agent(), store=path, options=options)
    return Served(app.state.host, app)


@pytest.mark.parametrize("options", [TRUSTING, LOCAL], ids=["trusting", "local"])
@pytest.mark.parametrize("named", [{}, {"tenant": "acme"}, {"tenant": "other"}], ids=str)
def test_a_tenants_session_is_out_of_reach(place, named, options):
    path, approval = place
    served = serve_router(path, options)
    try:
        query = "?tenant=" + named["tenant"] if named else ""
        for read in ("", "/messages", "/events", "/stream", "/cost", "/calls", "/audit", "/approvals"):
            reply = send(f"{served.url}/api/sessions/theirs{read}{query}")
            assert reply.status in (403, 404), (read, reply.body)
        changes = {
            "prompts": {"prompt": "!say mine"}, "steer": {"text": "stop"}, "cancel": {}, "pause": {}, "resume": {},
            "fork": {}, f"approvals/{approval}": {"answer": "approve", "by": "boss"},
        }  # fmt: skip
        for change, body in changes.items():
            reply = send(f"{served.url}/api/sessions/theirs/{change}", {**body, **named})
            assert reply.status in (403, 404), (change, reply.body)
        listed = send(f"{served.url}/api/sessions{query}")
        assert listed.status == 403 or [row["session"] for row in listed.json["sessions"]] == ["free"]
    finally:
        served.close()
    assert asyncio.run(read_types(path)).count("approval_answered") == 0


async def read_types(path):
    store = open_store(path)
    found = [record.event.__struct_config__.tag for record in await store.read("theirs")]
    await store.close()
    return found


def test_a_request_cannot_begin_a_session_of_a_tenant(place):
    served = serve_router(place[0])
    try:
        body = {"prompt": "!say hi", "tenant": "acme", "session": "new"}
        assert send(f"{served.url}/api/sessions", body).json["error"]["code"] == "other_tenant"
        assert send(f"{served.url}/api/sessions/new").status == 404
        claimed = send(f"{served.url}/api/sessions", {"prompt": "!say hi", "caller": "ann", "session": "new"})
        assert claimed.json["error"]["code"] == "other_caller"
        assert send(f"{served.url}/api/sessions", {**body, "tenant": ""}).status == 201
    finally:
        served.close()


def test_the_holder_of_the_one_token_reaches_all_tenants(place):
    served = serve_router(place[0], options=ServeOptions(token=TOKEN))
    try:
        bearer = {"authorization": f"Bearer {TOKEN}"}
        assert send(f"{served.url}/api/sessions/theirs", headers=bearer).status == 200
        assert send(f"{served.url}/api/sessions/theirs").status == 401
    finally:
        served.close()


async def fill_with_callers(path):
    """A session of a caller without a tenant that waits for an answer, and one that is nobody's."""
    store = open_store(path)
    agent = make_agent(store)
    for session, caller in (("of-ann", "ann"), ("of-nobody", "")):
        await agent.run('!call pay {"usd": 5}', session, caller=caller)
    found = {session: (await agent.approvals(session))[0].id for session in ("of-ann", "of-nobody")}
    await store.close()
    return found


def test_whoever_an_application_lets_through_reaches_sessions_that_are_nobodys(tmp_path):
    path = tmp_path / "log.db"
    approvals = asyncio.run(fill_with_callers(path))
    served = serve_router(path)
    try:
        api = f"{served.url}/api/sessions"
        assert [row["session"] for row in send(api).json["sessions"]] == ["of-nobody"]
        assert send(f"{api}/of-ann").status == 404
        assert send(f"{api}/of-ann/prompts", {"prompt": "!say x"}).status == 404
        assert send(f"{api}/of-nobody").status == 200
        chat = {"id": "of-ann", "messages": [{"role": "user", "parts": [{"type": "text", "text": "!say x"}]}]}
        assert send(f"{served.url}/api/chat/shop", chat).status == 404
        hello = {"model": "shop", "messages": [{"role": "user", "content": "!say hi"}]}
        wire = f"{served.url}/openai/v1/chat/completions"
        assert send(wire, hello, {"x-bridle-session": "of-ann"}).status == 404
        assert send(wire, hello, {"x-bridle-session": "by-wire"}).status == 200
        assert send(f"{api}/by-wire").status == 200
        answer = send(f"{api}/of-nobody/approvals/{approvals['of-nobody']}", {"answer": "approve"})
        assert answer.status == 403 and "the right 'approve'" in answer.json["error"]["message"]
        assert send(f"{served.url}/metrics").status == 403
    finally:
        served.close()


def test_a_router_of_this_machine_lets_its_person_approve(tmp_path):
    path = tmp_path / "log.db"
    approvals = asyncio.run(fill_with_callers(path))
    served = serve_router(path, LOCAL)
    try:
        for session, approval in approvals.items():
            address = f"{served.url}/api/sessions/{session}/approvals/{approval}"
            assert send(address, {"answer": "approve", "resume": False}).status == 200
        assert send(f"{served.url}/metrics").status == 403
    finally:
        served.close()


async def ask_from(app, address, path):
    """The status of a GET request from a machine of this address."""
    statuses = []
    scope = {
        "type": "http", "method": "GET", "path": path, "raw_path": path.encode(), "query_string": b"",
        "headers": [(b"host", b"localhost")], "scheme": "http", "client": address and (address, 1),
    }  # fmt: skip

    async def receive():
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send_message(message):
        statuses.append(message.get("status"))

    await app(scope, receive, send_message)
    return statuses[0]


@pytest.mark.parametrize("make", [router, lambda agent, **given: make_app({"shop": agent}, **given)])
def test_a_server_without_a_secret_is_for_its_own_machine(make, tmp_path):
    app = make(make_agent(), store=tmp_path / "log.db", options=ServeOptions())
    for address, status in (
        ("127.0.0.1", 200),
        ("::1", 200),
        ("::ffff:127.0.0.1", 200),
        (None, 200),
        ("10.0.0.9", 403),
        ("::ffff:10.0.0.9", 403),
        ("fe80::1", 403),
    ):
        assert asyncio.run(ask_from(app, address, "/api/agents")) == status, address
    assert asyncio.run(ask_from(app, "10.0.0.9", "/health/live")) == 200


def test_an_application_that_trusts_callers_is_not_open_to_all(tmp_path):
    app = make_app({"shop": make_agent()}, store=tmp_path / "log.db", options=TRUSTING)
    assert asyncio.run(ask_from(app, "10.0.0.9", "/api/agents")) == 200
    assert asyncio.run(ask_from(app, "10.0.0.9", "/metrics")) == 403
