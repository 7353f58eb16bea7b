"""A router without identities: requests choose no tenant, and leaving it out opens nothing."""

import asyncio

import pytest

from bridle import Agent, tool
from bridle.serve import ServeOptions, router
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


def serve_router(path, **options):
    app = router(make_agent(), store=path, **options)
    return Served(app.state.host, app)


@pytest.mark.parametrize("named", [{}, {"tenant": "acme"}, {"tenant": "other"}], ids=str)
def test_a_tenants_session_is_out_of_reach(place, named):
    path, approval = place
    served = serve_router(path)
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
