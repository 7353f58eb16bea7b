"""The key in use and other credentials of a run are in nothing that tools and functions return, logged or sent."""

import asyncio
import base64
import json
import os
from dataclasses import replace

import msgspec
import pytest
from msgspec import inspect as types

from bridle import Agent, CodeMode, Media, ModelRetry, OutcomeUnknown, RunContext, tool, toolkit
from bridle.hooks import Refuse, before_tool
from bridle.memory import Chunk
from bridle.run.known_secrets import GUARDED_EVENTS, KnownSecrets
from bridle.run.model_connection import connect_model, find_model_by_name
from bridle.sim.simulator import answer as simulate
from bridle.stores.memory import MemoryStore
from bridle.tools.mcp.oauth import OAuth
from bridle.tools.mcp.server import server as mcp_server
from bridle.transports.inprocess import InProcessTransport
from bridle.values.message import Text, ToolResult
from bridle.values.result import Progress

KEY = "sk-local-0123456789"
WIRES = (
    "anthropic/claude-sonnet-5-5",
    "openai/gpt-6.1-sol",
    "openai-chat/gpt-6.1-sol",
    "gemini/gemini-3.8-flash",
)
SPELLINGS = {
    "plain": KEY,
    "in a text": f"OPENAI_API_KEY={KEY}\nnext",
    "JSON": json.dumps({"key": KEY}),
    "escaped": "".join(f"\\u{ord(each):04x}" for each in KEY),
    "percent": "".join(f"%{ord(each):02x}" for each in KEY),
}


def connect(wire=WIRES[2], key=KEY):
    """A connection with a key, and the bodies of the requests on it."""
    made, bodies = connect_model(find_model_by_name(f"sim:{wire}")), []

    async def answer(outgoing):
        bodies.append(outgoing.body.decode())
        return await simulate(outgoing)

    return replace(
        made, headers=(("authorization", f"Bearer {key}"),), transport=InProcessTransport(answer)
    ), bodies


def read_everything(store):
    """All records and blobs of a store, as text."""

    async def read():
        kept = []
        for info in await store.sessions(limit=1_000):
            records = await store.read(info.id)
            kept += [record.data.decode() for record in records]
            for record in records:
                for blob in record.event.required_blobs:
                    kept.append((await store.get_blob(blob)).decode())
        return "\n".join(kept)

    return asyncio.run(read())


def make_result(secret):
    @tool
    def look() -> str:
        """Look."""
        return secret

    return [look], "!call look"


def make_structured(secret):
    @tool
    def look() -> dict[str, list[str]]:
        """Look."""
        return {"found": [secret]}

    return [look], "!call look"


def make_document(secret):
    @tool
    def look() -> Media:
        """Look."""
        return Media.from_bytes(secret.encode(), media_type="text/plain")

    return [look], "!call look"


def make_raising(error):
    def make(secret):
        @tool
        def look() -> str:
            """Look."""
            raise error(f"bad key {secret}")

        return [look], "!call look"

    return make


def make_long(secret):
    @tool
    def look() -> str:
        """Look."""
        return "x" * 300_000 + secret + "y" * 300_000

    return [look], "!call look"


def make_inner_agent(secret):
    tools, prompt = make_result(secret)
    inner = Agent("sim:", tools=tools, name="inner")
    return [inner.as_tool(description="Ask.")], f'!call inner {{"prompt": "{prompt}"}}'


def make_async(secret):
    @tool(effect="read")
    async def look() -> str:
        """Look."""
        return secret

    return [look], "!call look"


PATHS = {
    "result": make_result,
    "structured result": make_structured,
    "document": make_document,
    "exception": make_raising(ValueError),
    "ModelRetry": make_raising(ModelRetry),
    "OutcomeUnknown": make_raising(OutcomeUnknown),
    "long result": make_long,
    "async tool": make_async,
    "inner agent": make_inner_agent,
}


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("path", PATHS)
def test_the_key_in_a_result_is_neither_logged_nor_sent(path, spelling):
    secret = SPELLINGS[spelling]
    tools, prompt = PATHS[path](secret)
    connection, bodies = connect()
    store = MemoryStore()
    Agent(connection, tools=tools, store=store).run_sync(f"{prompt}\n!then\n!say ok", session="s")
    kept = read_everything(store)
    assert "[key]" in kept or base64.b64encode(b"[key]").decode()[:6] in kept
    for text in (kept, *bodies):
        for leak in (KEY, json.dumps(secret)[1:-1], base64.b64encode(secret.encode()).decode()):
            assert leak not in text


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("is_streamed", [False, True])
def test_the_key_is_not_sent_on_any_wire(wire, is_streamed):
    tools, prompt = make_async(KEY)
    connection, bodies = connect(wire)
    agent, shown = Agent(connection, tools=tools), []

    async def run():
        async for item in agent.stream(f"{prompt}\n!then\n!say ok", session="s"):
            shown.append(str(item))

    asyncio.run(run()) if is_streamed else agent.run_sync(f"{prompt}\n!then\n!say ok", session="s")
    assert len(bodies) == 2
    assert "[key]" in bodies[1]
    assert not any(KEY in text for text in (*bodies, *shown, read_everything(agent.store)))


def test_a_file_and_the_output_of_a_program_are_redacted(tmp_path):
    (tmp_path / "settings.env").write_text(f"A=1\nOPENAI_API_KEY={KEY}\n")
    connection, bodies = connect()
    tools = [*toolkit.files(tmp_path, read_only=True), toolkit.shell(tmp_path, sandbox=None)]
    agent = Agent(connection, tools=tools)
    steps = (
        '!call read_file {"path": "settings.env"}',
        '!call grep {"pattern": "OPENAI"}',
        '!call shell {"command": "cat settings.env; cat settings.env >&2; exit 3"}',
        "!say ok",
    )
    prompt = "\n!then\n".join(steps)
    agent.run_sync(prompt, session="s")
    assert any("OPENAI_API_KEY=[key]" in body for body in bodies)
    assert not any(KEY in text for text in (*bodies, read_everything(agent.store)))


def test_the_key_is_not_in_what_programs_of_code_mode_and_their_calls_return():
    tools, _ = make_result(KEY)
    connection, bodies = connect()
    agent = Agent(connection, tools=tools, code_mode=CodeMode(sandbox=None))
    code = json.dumps({"code": "print(look())"})
    name = next(each for each in agent.tools if each not in ("look",))
    agent.run_sync(f"!call {name} {code}\n!then\n!say ok", session="s")
    kept = read_everything(agent.store)
    assert "[key]" in kept
    assert not any(KEY in text for text in (*bodies, kept))


def test_progress_is_shown_without_the_key():
    @tool(effect="read")
    async def look(run: RunContext) -> str:
        """Look."""
        run.progress(f"using {KEY}", 0.5)
        return "ok"

    connection, _ = connect()
    shown = []

    async def run():
        async for item in Agent(connection, tools=[look]).stream("!call look\n!then\n!say ok"):
            shown.append(item)

    asyncio.run(run())
    assert [item.message for item in shown if isinstance(item, Progress)] == ["using [key]"]


def test_hooks_and_retrieved_text_are_redacted():
    @before_tool()
    def refuse(run, call):
        return Refuse(reason=f"not with {KEY}")

    tools, prompt = make_result("x")
    connection, bodies = connect()
    agent = Agent(
        connection,
        tools=tools,
        hooks=[refuse],
        retrieve=lambda query: [Chunk(text=f"the key is {KEY}", id="a")],
    )
    agent.run_sync(f"{prompt}\n!then\n!say ok", session="s")
    kept = read_everything(agent.store)
    assert "not with [key]" in kept
    assert "the key is [key]" in kept
    assert not any(KEY in text for text in (*bodies, kept))


def test_credentials_of_mcp_servers_are_known():
    pytest.importorskip("mcp")
    server = mcp_server("https://example.com/mcp", headers={"X-Api-Key": "mcp-secret-123456789"})
    local = mcp_server(
        ["server"], name="local", env={"GITHUB_TOKEN": "ghp_0123456789abcdef", "LANG": "en_US.UTF-8"}
    )
    known = KnownSecrets([], [server, local])
    given = "mcp-secret-123456789 ghp_0123456789abcdef en_US.UTF-8"
    assert known.redact_text(given) == "[key] [key] en_US.UTF-8"


def test_a_token_that_a_sign_in_gave_later_is_known():
    pytest.importorskip("mcp")
    auth = OAuth()
    server = mcp_server("https://example.com/mcp", auth=auth)
    known = KnownSecrets([], [server])
    assert known.redact_text("tok-0123456789abcdef") == "tok-0123456789abcdef"
    auth.secrets.add("tok-0123456789abcdef")
    assert known.redact_text("tok-0123456789abcdef") == "[key]"


def test_credentials_that_sign_requests_are_known(monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIA0123456789ABCDEF")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "abcd/0123456789+efghijklmnop")
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    monkeypatch.delenv("AWS_BEARER_TOKEN_BEDROCK", raising=False)
    connection = connect_model(find_model_by_name("bedrock:global.anthropic.claude-sonnet-5-5", os.environ))
    assert connection.sign_request is not None
    known = KnownSecrets([connection])
    assert known.redact_text("x abcd/0123456789+efghijklmnop y AKIA0123456789ABCDEF") == "x [key] y [key]"


def test_without_credentials_nothing_is_searched():
    assert not KnownSecrets([connect_model(find_model_by_name("sim:"))])


def test_a_result_without_the_key_is_the_same_object():
    connection, _ = connect()
    known = KnownSecrets([connection])
    result = ToolResult(call_id="c", parts=(Text(text="nothing here"),))
    assert known.redact_result(result) is result
    assert known.redact_text("sk-local-01234") == "sk-local-01234"


@pytest.mark.parametrize(
    "kind",
    sorted(GUARDED_EVENTS, key=lambda kind: kind.__name__),  # type: ignore[attr-defined]
    ids=lambda kind: kind.__name__,
)
def test_every_guarded_event_can_be_redacted(kind):
    def fill(given, name=""):
        match given:
            case types.StrType():
                return "2" if name in ("usd", "cost") else f"{name} {KEY}"
            case types.StructType():
                tag = {given.tag_field: given.tag} if given.tag_field else {}
                return {
                    **tag,
                    **{
                        each.encode_name: fill(each.type, each.name) for each in given.fields if each.required
                    },
                }
            case types.UnionType():
                return fill(next(each for each in given.types if not isinstance(each, types.NoneType)), name)
            case types.ListType() | types.VarTupleType():
                return [fill(given.item_type, name)]
            case types.TupleType():
                return [fill(each, name) for each in given.item_types]
            case types.LiteralType():
                return given.values[0]
            case types.BoolType():
                return True
            case types.DecimalType():
                return "1"
        return 1

    tree = {**fill(types.type_info(kind)), **{
        each.encode_name: f"{each.name} {KEY}"
        for each in types.type_info(kind).fields  # type: ignore[attr-defined]
        if isinstance(each.type, types.StrType)
    }}  # fmt: skip
    event = msgspec.convert(tree, kind, strict=False)
    connection, _ = connect()
    redacted = KnownSecrets([connection]).redact_value(event)
    assert type(redacted) is kind
    texts = ("reason", "preview", "why", "message", "instructions", "partial_text", "problem")
    assert not [name for name in texts if KEY in str(getattr(redacted, name, ""))]
