"""Every door of a server asks for an identity: routes and rights, sessions of others, what a body claims."""

import asyncio
import json
import re
from typing import Any

import pytest
from starlette.responses import Response
from starlette.routing import Route

from bridle import Agent, MisuseError, RunContext, tool
from bridle.serve.api.endpoints import ROUTES
from bridle.serve.app import MOUNTS, Mount, make_host_app, router
from bridle.serve.errors import ServeError
from bridle.serve.guarded_route import GuardedRoute
from bridle.serve.host import AgentHost
from bridle.serve.identity import ACCESS_KEY, RIGHTS, Identity
from bridle.serve.options import ServeOptions
from bridle.serve.security import GUESSES_MAX
from bridle.stores.memory import MemoryStore
from bridle.values.calls import ApprovalAnswered
from bridle.values.events import Prompted
from tests.serve.identities import ALL, PEOPLE, SESSIONS, fill, make_shop, open_door
from tests.serve.raw_http import send
from tests.serve.served import Served
from tests.suite.command import bridle, start_bridle
from tests.suite.paths import load_program

PUBLIC = {"/health", "/health/live", "/health/ready", "/", "/inspector/{name}"}
HELLO = {"model": "shop", "messages": [{"role": "user", "content": "!say hi"}], "max_tokens": 50}
IN_PATHS = {"{agent}": "shop", "{name}": "app.js", "{session}": "of-ann"}
OPENAI, ANTHROPIC = "/openai/v1/chat/completions", "/anthropic/v1/messages"


async def never(request):
    return None


def fail(request):
    raise RuntimeError("the directory of people is down")


def prove(**claims: Any) -> Any:
    """An identity that nobody checked, as code without types may make it."""
    return lambda request: Identity(**claims)


BROKEN: dict[str, Any] = {
    "nobody is found": lambda request: None,
    "nobody is awaited": never,
    "it fails": fail,
    "it returns a name": lambda request: "ann",
    "it reads the body": lambda request: request.body(),
    "a caller without a name": prove(caller=""),
    "a right that does not exist": prove(caller="ann", rights=frozenset({"everything"})),
    "rights as a text": prove(caller="ann", rights="read"),
    "sessions of nobody knows whom": prove(caller="ann", sessions="every"),
    "the caller of the wires": prove(caller="wire client"),
}


def list_doors():
    """Every route of a server with each of its methods, and a path that fits it."""
    host = AgentHost({"shop": Agent("sim:", name="shop")})
    for route in make_host_app(host).routes:
        assert isinstance(route, GuardedRoute)
        for method in sorted(route.methods or ()):
            path = re.sub(r"\{[^}]+\}", lambda found: IN_PATHS.get(found[0], "x"), route.path)
            yield route, method, path


DOORS = list(list_doors())


def test_every_mount_and_route_is_listed():
    paths = {route.path for route, _, _ in DOORS}
    assert {f"/api{row.path}" for row in ROUTES} <= paths and "/metrics" in paths and "/mcp" in paths
    assert {path.split("/")[1] for path in paths} >= {mount.path.split("/")[1] for mount in MOUNTS}
    assert {route.path for route, _, _ in DOORS if route.right == "public"} == PUBLIC
    assert {route.right for route, _, _ in DOORS} == {"public", *RIGHTS}


def test_a_route_without_the_check_in_front_of_it_is_closed():
    async def open_to_all(request):
        return Response("everything")

    async def ask(scope):
        nothing: Any = None
        await GuardedRoute("/", open_to_all, right="read").handle(scope, nothing, nothing)

    for access in ({}, {ACCESS_KEY: None}, {ACCESS_KEY: Identity(caller="ann", rights=ALL)}):
        with pytest.raises(ServeError, match="does not prove"):
            asyncio.run(ask({"type": "http", "method": "GET", "path": "/", **access}))


def test_a_route_without_a_right_stops_the_server_from_starting():
    async def open_to_all(request):
        return Response("everything")

    mount = Mount("/new", lambda host: (Route("/new", open_to_all),))
    with pytest.raises(MisuseError, match="names no right"):
        make_host_app(AgentHost({}), (mount, *MOUNTS))


@pytest.mark.parametrize("why", BROKEN)
def test_no_door_is_open_if_identify_proves_nothing(why):
    with open_door(BROKEN[why]) as door:
        before = asyncio.run(door.store.sessions())
        for route, method, path in DOORS:
            status = door.ask("", method, path, {} if method in ("POST", "DELETE") else None).status
            assert (status == 401) == (route.right != "public"), (method, path, status)
        assert door.get("", "/no/such/path").status == 401
        assert asyncio.run(door.store.sessions()) == before


def test_no_door_of_a_router_is_open_if_identify_is_absent():
    store = MemoryStore()
    asyncio.run(fill(store))
    app = router(make_shop(), store=store)
    served = Served(app.state.host, app)
    try:
        before = asyncio.run(store.sessions())
        for route, method, path in DOORS:
            reply = send(served.url + path, {} if method in ("POST", "DELETE") else None, {}, method)
            assert (reply.status == 401) == (route.right != "public"), (method, path, reply.status)
        refused = send(f"{served.url}/metrics")
        assert b"router(identify=" in refused.body and b"acme" not in refused.body
        assert send(f"{served.url}/api/agents", None, {"authorization": "Bearer ann"}).status == 401
        assert asyncio.run(store.sessions()) == before
    finally:
        served.close()


def test_the_table_of_routes_shows_no_open_door():
    lines = load_program("docs/route_rights.py").routes().splitlines()
    head, _, *rows = ([cell.strip().replace("`", "") for cell in line.split("|")[1:-1]] for line in lines)
    assert {route.path for route, _, _ in DOORS} == {row[0] for row in rows}
    for row in rows:
        shown = dict(zip(head, row, strict=True))
        for title in ("no identify", "it raises", "it returns None"):
            assert shown[title] == ("yes" if row[0] in PUBLIC else "401"), (row[0], title)


def test_no_door_is_open_without_credentials():
    with open_door() as door:
        for route, method, path in DOORS:
            status = door.ask("", method, path, {} if method in ("POST", "DELETE") else None).status
            assert (status == 401) == (route.right != "public"), (method, path, status)


@pytest.mark.parametrize("right", RIGHTS)
def test_every_route_is_open_with_its_right_only(right, monkeypatch):
    only = Identity(caller="ann", tenant="acme", rights=frozenset({right}))
    others = Identity(caller="ann", tenant="acme", rights=ALL - {right})
    monkeypatch.setitem(PEOPLE, "only", only)
    monkeypatch.setitem(PEOPLE, "others", others)
    with open_door() as door:
        for route, method, path in DOORS:
            if route.right != right or method == "HEAD" or (path, method) == ("/mcp", "GET"):
                continue
            body = {} if method in ("POST", "DELETE") else None
            refused = door.ask("others", method, path, body)
            assert refused.status == 403 and b"right" in refused.body, (method, path, refused.body)
            if not path.endswith("/stream"):
                assert door.ask("only", method, path, body).status not in (401, 403), (method, path)


@pytest.mark.parametrize("who", ["ann", "lead", "eve", "nobody"])
def test_sessions_of_others_are_like_none_on_every_route(who):
    seen = {session for session, owner in SESSIONS.items() if can_see(who, owner)}
    with open_door() as door:
        rows = [row for row in ROUTES if row.path.startswith("/sessions/{session}")]
        assert len(rows) > 15
        for row in rows:
            body = {"prompt": "!say x", "text": "x", "answer": "reject"}
            fields = row.body.__struct_fields__ if row.body else ()
            given = {name: value for name, value in body.items() if name in fields} if row.body else None
            end = (
                row.path.removeprefix("/sessions/{session}")
                .replace("{number}", "1")
                .replace("{approval}", "a")
            )
            end += "?other=of-ann" if end == "/compare" else ""
            missing = door.ask(who, row.method, f"/api/sessions/missing{end}", given)
            assert missing.status == 404
            for session in SESSIONS.keys() - seen:
                reply = door.ask(who, row.method, f"/api/sessions/{session}{end}", given)
                assert reply.status == 404, (row.path, session)
                assert reply.body == missing.body.replace(b"missing", session.encode()), row.path
        listed = door.get(who, "/api/sessions").json["sessions"]
        assert {row["session"] for row in listed} == seen
        filtered = door.get(who, "/api/sessions?caller=bob").json["sessions"]
        assert {row["session"] for row in filtered} == seen & {"of-bob"}
        for session in seen:
            assert door.get(who, f"/api/sessions/{session}").status == 200


def can_see(who, owner):
    identity = PEOPLE[who]
    return owner[0] == identity.tenant and (identity.sessions == "tenant" or owner[1] == identity.caller)


def test_reports_about_two_sessions_show_only_those_that_are_seen():
    with open_door() as door:
        assert door.get("ann", "/api/sessions/of-ann/compare?other=of-bob").status == 404
        assert door.get("lead", "/api/sessions/of-ann/compare?other=of-bob").status == 200
        assert door.post("lead", "/api/sessions/of-bob/fork", {"session": "fork-of-bob"}).status == 201
        assert door.get("ann", "/api/sessions/fork-of-bob").status == 404
        shown = door.get("bob", "/api/sessions/of-bob/branches").json["branches"]
        assert {row["session"] for row in shown} == {"of-bob", "fork-of-bob"}
        # A fork from before the first prompt belongs to the owner of its parent.
        assert door.post("lead", "/api/sessions/of-bob/fork", {"session": "empty", "at": 0}).status == 201
        assert door.get("bob", "/api/sessions/empty").status == 200
        assert door.get("ann", "/api/sessions/empty").status == 404


CLAIMS = {
    "/api/sessions": {"prompt": "!say x", "session": "new"},
    "/api/sessions/of-ann/steer": {"text": "x"},
    "/api/sessions/of-ann/cancel": {},
    "/api/sessions/of-ann/pause": {},
    "/api/sessions/of-ann/resume": {},
    "/api/sessions/of-ann/fork": {},
    "/api/sessions/of-ann/approvals/x": {"answer": "approve"},
}


def test_every_body_that_claims_an_identity_is_covered():
    claiming = {
        row.path for row in ROUTES
        if row.body is not None and {"tenant", "caller", "by"} & {*row.body.__struct_fields__}
    }  # fmt: skip
    tried = {
        path.removeprefix("/api").replace("of-ann", "{session}").replace("/x", "/{approval}")
        for path in CLAIMS
    }
    assert claiming == tried | {"/sessions/{session}/prompts"}


@pytest.mark.parametrize("path", CLAIMS)
def test_a_body_cannot_claim_another_identity(path):
    posts = [each for each in ROUTES if each.method == "POST"]
    row = next(each for each in posts if re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", f"/api{each.path}"), path))
    with open_door() as door:
        before = asyncio.run(door.store.sessions())
        for name, value in (("tenant", "other"), ("caller", "bob"), ("by", "the boss")):
            if row.body is not None and name in row.body.__struct_fields__:
                reply = door.post("ann", path, {**CLAIMS[path], name: value})
                assert reply.status == 403, (name, reply.body)
                assert reply.json["error"]["code"] == ("other_tenant" if name == "tenant" else "other_caller")
        assert asyncio.run(door.store.sessions()) == before
        assert door.get("ann", "/api/sessions?tenant=other").status == 403


def test_runs_and_answers_are_recorded_with_the_proven_actor():
    with open_door() as door:
        started = door.post("ann", "/api/sessions", {"prompt": "!say hi", "session": "mine"})
        assert started.status == 201
        (prompted,) = door.read("mine", Prompted)
        assert (prompted.caller, prompted.tenant) == ("ann", "acme")
        asked = door.get("lead", "/api/sessions/of-ann/approvals").json["approvals"][0]["id"]
        path = f"/api/sessions/of-ann/approvals/{asked}"
        assert door.post("lead", path, {"answer": "approve", "resume": False}).status == 200
        assert [event.by for event in door.read("of-ann", ApprovalAnswered)] == ["lead"]
        audited = door.get("lead", "/api/sessions/of-ann/audit").body
        assert b'"lead"' in audited


def test_a_client_cannot_choose_the_model_of_a_fork_without_the_right(monkeypatch):
    monkeypatch.setitem(PEOPLE, "clerk", Identity(caller="ann", tenant="acme"))
    with open_door() as door:
        body = {"model": "sim:", "session": "dear"}
        assert door.post("clerk", "/api/sessions/of-ann/fork", body).status == 403
        assert door.get("ann", "/api/sessions/dear").status == 404
        assert door.post("ann", "/api/sessions/of-ann/fork", body).status == 201


def prompts_of(wire):
    """A prompt by each protocol: its path, its body, and the headers that name a session."""
    ui = {"role": "user", "parts": [{"type": "text", "text": "!say hi"}]}
    ag_ui = {"threadId": wire, "runId": "r", "messages": [{"id": "1", "role": "user", "content": "!say hi"}]}
    gemini = {"contents": [{"role": "user", "parts": [{"text": "!say hi"}]}]}
    named = {"x-bridle-session": wire}
    return {
        "ui": ("/api/chat/shop", {"id": wire, "messages": [ui]}, {}),
        "ag-ui": ("/api/ag-ui/shop", ag_ui, {}),
        "openai": (OPENAI, HELLO, named),
        "responses": ("/openai/v1/responses", {"model": "shop", "input": "!say hi"}, named),
        "anthropic": (ANTHROPIC, HELLO, named),
        "gemini": ("/gemini/v1beta/models/shop:generateContent", gemini, named),
    }


@pytest.mark.parametrize("protocol", prompts_of(""))
def test_front_ends_and_wires_keep_to_the_identity(protocol):
    with open_door() as door:
        path, body, headers = prompts_of("new")[protocol]
        assert door.post("ann", path, body, **headers).status == 200
        (prompted,) = door.read("new", Prompted)
        assert (prompted.caller, prompted.tenant) == ("ann", "acme")
        assert prompted.client_waits == ("x-bridle-session" in headers)
        for session in ("of-bob", "of-eve", "of-none"):
            before = asyncio.run(door.store.read(session))
            path, body, headers = prompts_of(session)[protocol]
            reply = door.post("ann", path, body, **headers)
            assert reply.status == 404, (session, reply.body)
            assert asyncio.run(door.store.read(session)) == before


def test_answers_of_a_front_end_need_their_right(monkeypatch):
    monkeypatch.setitem(PEOPLE, "clerk", Identity(caller="ann", tenant="acme"))
    with open_door() as door:
        asked = door.get("ann", "/api/sessions/of-ann/approvals").json["approvals"][0]["id"]
        resume = [
            {"interruptId": asked, "status": "resolved", "payload": {"approved": True, "by": "the boss"}}
        ]
        body = {"threadId": "of-ann", "runId": "r", "messages": [], "resume": resume}
        assert door.post("clerk", "/api/ag-ui/shop", body).status == 403
        assert door.post("bob", "/api/ag-ui/shop", body).status == 404
        assert door.post("ann", "/api/ag-ui/shop", body).json["error"]["code"] == "other_caller"
        assert not door.read("of-ann", ApprovalAnswered)
        del resume[0]["payload"]["by"]
        assert door.post("ann", "/api/ag-ui/shop", body).status == 200
        assert [event.by for event in door.read("of-ann", ApprovalAnswered)] == ["ann"]


def test_a_chat_of_another_is_neither_continued_nor_shown():
    with open_door() as door:
        assert door.get("ann", "/api/chat/shop/of-bob/stream").status == 204
        asked = door.get("bob", "/api/sessions/of-bob/approvals").json["approvals"][0]["id"]
        approval = {"id": asked, "approved": True}
        part = {"type": "dynamic-tool", "state": "approval-responded", "approval": approval}
        body = {"id": "of-bob", "messages": [{"role": "assistant", "parts": [part]}]}
        assert door.post("ann", "/api/chat/shop", body).status == 404
        again = {"id": "of-bob", "trigger": "regenerate-message", "messages": [
            {"role": "user", "parts": [{"type": "text", "text": '!call pay {"usd": 5}'}]}]}  # fmt: skip
        before = asyncio.run(door.store.sessions())
        assert door.post("ann", "/api/chat/shop", again).status == 404
        assert asyncio.run(door.store.sessions()) == before
        assert not door.read("of-bob", ApprovalAnswered)


def test_tools_of_the_mcp_server_run_for_the_identity():
    pytest.importorskip("mcp")
    headers = {"accept": "application/json, text/event-stream", "mcp-protocol-version": "2025-06-18"}

    def call(door, who, **arguments):
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call",
                "params": {"name": "shop", "arguments": {"prompt": "!say hi", **arguments}}}  # fmt: skip
        reply = door.post(who, "/mcp", body, **headers)
        assert reply.status == 200, reply.body
        return reply.events[-1]["result"]

    with open_door() as door:
        assert call(door, "ann", session="mine")["structuredContent"]["text"] == "hi"
        (prompted,) = door.read("mine", Prompted)
        assert (prompted.caller, prompted.tenant) == ("ann", "acme")
        for session in ("of-bob", "of-eve", "of-none"):
            refused = call(door, "ann", session=session)
            assert refused["isError"] and "no session" in refused["content"][0]["text"]
            assert len(door.read(session, Prompted)) == 1


class Desk:
    """What the tools of one person may use."""

    def __init__(self, name):
        self.name = name


@tool(effect="read")
def look(context: RunContext[Desk]) -> str:
    """Say whose desk it is."""
    return f"the desk of {context.context.name}"


@tool(effect="write", approve=True)
def sign(context: RunContext[Desk]) -> str:
    """Sign, if a person agrees."""
    return f"signed at the desk of {context.context.name}"


def identify_with_desk(request):
    identity = PEOPLE.get(request.headers.get("authorization", "").removeprefix("Bearer "))
    given = (
        {name: getattr(identity, name) for name in ("caller", "tenant", "rights", "sessions")}
        if identity
        else {}
    )
    return Identity(**given, context=Desk(identity.caller)) if identity else None


def make_desk_agents():
    return {"desk": Agent("sim:", name="desk", tools=[look, sign])}


def test_a_run_gets_the_context_of_its_identity():
    with open_door(identify_with_desk, make_desk_agents()) as door:
        for who in ("ann", "bob", "eve"):
            body = {
                "model": "desk",
                "messages": [{"role": "user", "content": "!call look {}\n!then\n!say read"}],
            }
            reply = door.post(who, OPENAI, body, **{"x-bridle-session": f"at-{who}"})
            assert reply.status == 200, reply.body
            shown = door.get(who, f"/api/sessions/at-{who}/messages").body.decode()
            assert f"the desk of {who}" in shown and shown.count("the desk of") == 1


@pytest.mark.parametrize("makes_contexts", [False, True])
def test_a_run_never_goes_on_with_the_context_of_the_person_who_approved(makes_contexts):
    made = []

    async def make_context(owner):
        made.append(owner)
        return Desk(owner.caller)

    options = {"make_context": make_context} if makes_contexts else {}
    with open_door(identify_with_desk, make_desk_agents(), **options) as door:
        body = {"model": "desk", "messages": [{"role": "user", "content": "!call sign {}\n!then\n!say ok"}]}
        door.post("ann", OPENAI, body, **{"x-bridle-session": "s"})
        asked = door.get("lead", "/api/sessions/s/approvals").json["approvals"][0]["id"]
        reply = door.post("lead", f"/api/sessions/s/approvals/{asked}", {"answer": "approve"})
        if makes_contexts:
            assert reply.status == 200 and made == [("acme", "ann")]
            door.get("lead", "/api/sessions/s/stream")
            assert b"signed at the desk of ann" in door.get("ann", "/api/sessions/s/messages").body
        else:
            assert (reply.status, reply.json["error"]["code"]) == (409, "context_unknown")
            assert not door.read("s", ApprovalAnswered)
            own = door.post("ann", f"/api/sessions/s/approvals/{asked}", {"answer": "approve"})
            assert own.status == 200


def test_one_context_for_all_is_refused_with_identities():
    with pytest.raises(MisuseError, match="one context= for all"):
        AgentHost(make_desk_agents(), context=Desk("all"), identify=identify_with_desk)
    with pytest.raises(MisuseError, match="not both"):
        AgentHost({}, options=ServeOptions(token="t" * 20), identify=identify_with_desk)


def test_wrong_credentials_are_limited_and_right_ones_go_on():
    with open_door() as door:
        statuses = [door.get("guess", "/api/agents").status for _ in range(GUESSES_MAX + 1)]
        assert statuses == [401] * GUESSES_MAX + [429]
        assert door.get("ann", "/api/agents").status == 200


def test_an_identity_of_all_tenants_reaches_them_and_acts_under_its_name():
    with open_door() as door:
        assert len(door.get("root", "/api/sessions").json["sessions"]) == len(SESSIONS)
        assert len(door.get("root", "/api/sessions?tenant=acme").json["sessions"]) == 2
        assert door.get("root", "/api/sessions/of-eve?tenant=acme").status == 400
        assert door.post("root", "/api/sessions/of-eve/cancel", {"by": "eve"}).status == 403


def test_the_command_serves_people_by_a_file_of_tokens(tmp_path):
    entries, tokens = [], {}
    for name, tenant in (("ann", "acme"), ("eve", "other")):
        made = bridle("serve", "--new-token", name, "--tenant", tenant, cwd=tmp_path).out
        tokens[name] = made.splitlines()[0].rpartition(" ")[2]
        entries.append(made[made.index("[tokens") :])
    (tmp_path / "tokens.toml").write_text("\n".join(entries))
    (tmp_path / "app.py").write_text('from bridle import Agent\n\nshop = Agent("sim:", name="shop")\n')
    words = ("app.py", "--tokens", "tokens.toml", "--json", "--port", "0", "--store", "log.db")
    with start_bridle("serve", *words, cwd=tmp_path) as process:
        url = json.loads(process.stdout.readline())["url"]
        bearer = {name: {"authorization": f"Bearer {token}"} for name, token in tokens.items()}
        body = {"prompt": "!say hi", "session": "mine"}
        assert send(f"{url}/api/sessions", body).status == 401
        assert send(f"{url}/api/sessions", body, bearer["ann"]).status == 201
        assert send(f"{url}/api/sessions/mine", headers=bearer["ann"]).status == 200
        assert send(f"{url}/api/sessions/mine", headers=bearer["eve"]).status == 404
        process.terminate()
        _, err = process.communicate()
    assert not any(token in err for token in tokens.values())


IDENTIFY_PROGRAM = """
from bridle import Agent, RunContext, tool
from bridle.serve import Identity

class Desk:
    def __init__(self, name):
        self.name = name

@tool(effect="read")
def look(context: RunContext[Desk]) -> str:
    "Say whose desk it is."
    return f"the desk of {context.context.name}"

def identify(request):
    name = request.headers.get("x-user", "")
    return Identity(caller=name, context=Desk(name)) if name else None

shop = Agent("sim:", name="shop", tools=[look])
"""


def test_the_command_serves_people_by_a_function(tmp_path):
    (tmp_path / "app.py").write_text(IDENTIFY_PROGRAM)
    words = ("app.py", "--identify", "app.py:identify", "--json", "--port", "0", "--store", "log.db")
    with start_bridle("serve", *words, cwd=tmp_path) as process:
        url = json.loads(process.stdout.readline())["url"]
        body = {"model": "shop", "messages": [{"role": "user", "content": "!call look {}\n!then\n!say read"}]}
        assert send(url + OPENAI, body).status == 401
        ann, eve = {"x-user": "ann", "x-bridle-session": "mine"}, {"x-user": "eve"}
        assert send(url + OPENAI, body, ann).status == 200
        shown = send(f"{url}/api/sessions/mine/messages", headers=ann)
        assert b"the desk of ann" in shown.body
        assert send(f"{url}/api/sessions/mine", headers=eve).status == 404
        assert send(f"{url}/metrics", headers=ann).status == 403
        process.terminate()
        process.communicate()


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("--identify", "app.py:shop"), "is not a function that proves who sends a request but Agent"),
        (("--identify", "app.py:Desk"), "but the class Desk"),
        (("--identify", "app.py:nothing"), "nothing"),
        (
            ("--identify", "app.py:identify", "--tokens", "tokens.toml"),
            "give --tokens or --identify, not both",
        ),
        (("--identify", "app.py:identify", "--token", "t" * 20), "give --identify or one token for everyone"),
        (("--identify", "app.py:identify", "--mcp"), "--identify is for a server on a port"),
    ],
    ids=str,
)
def test_a_function_that_cannot_identify_is_refused(words, problem, tmp_path):
    (tmp_path / "app.py").write_text(IDENTIFY_PROGRAM)
    refused = bridle("serve", "app.py", *words, "--port", "0", cwd=tmp_path)
    assert refused.code == 2 and problem in refused.err
