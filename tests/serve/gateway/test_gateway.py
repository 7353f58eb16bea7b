"""The gateway: keys, budgets, fallback, options that are carried or dropped, hooks, and what its log holds."""

import gc
import json
import tomllib
from types import SimpleNamespace

import pytest
from msgspec import convert

from bridle import Agent
from bridle.cli.main import main
from bridle.core.recovery.log_repair import fold_log
from bridle.run.archive.sessions import list_sessions
from bridle.run.context.run_options import override_parts
from bridle.serve.gateway import server
from bridle.serve.gateway.server import list_missing_keys
from bridle.serve.gateway.settings import (
    GatewaySettings,
    check_settings,
    digest_key,
    make_key,
    read_gateway_file,
)
from bridle.values.budget import parse_budget_log_name, strip_period
from bridle.values.errors import MisuseError
from bridle.values.events import ModelSwitched
from bridle.values.request import Sampling
from tests.serve.raw_http import send
from tests.serve.served import serving_gateway
from tests.serve.wires.wire_clients import CLIENT_MODELS, PROVIDERS, connect_client

ALICE, BOB = make_key(), make_key()
BODIES = {
    "openai_chat": (
        "/openai/v1/chat/completions",
        lambda text: {"messages": [{"role": "user", "content": text}]},
    ),
    "openai_responses": ("/openai/v1/responses", lambda text: {"input": text}),
    "anthropic": (
        "/anthropic/v1/messages",
        lambda text: {"messages": [{"role": "user", "content": text}], "max_tokens": 500},
    ),
    "gemini": (
        "/gemini/v1beta/models/{model}:generateContent",
        lambda text: {"contents": [{"role": "user", "parts": [{"text": text}]}]},
    ),
}
wires = pytest.mark.parametrize("wire", BODIES)


def ask(served, wire, text, key=None, model="any", headers=(), **more):
    path, make_body = BODIES[wire]
    given = {"authorization": f"Bearer {key}"} if key else {}
    named = {} if wire == "gemini" else {"model": model}
    return send(
        served.url + path.replace("{model}", model),
        {**named, **make_body(text), **more},
        {**given, **dict(headers)},
    )


def make_settings(**more):
    return {"models": {"any": {"chain": ["sim:"]}}, **more}


OWN_PERIOD = 'budget = { usd = 1, period = "day" }\n'


def settings_with_keys(**more):
    return make_settings(
        keys={
            "alice": {"sha256": digest_key(ALICE), "tenant": "acme", **more},
            "bob": {"sha256": digest_key(BOB), "tenant": "acme"},
        },
        tenants={"acme": {}},
    )


def read_logs(served):
    async def read():
        infos = await list_sessions(served.host.store, 100)
        return {info.id: await served.host.store.read(info.id) for info in infos}

    return served.run(read())


def read_states(served):
    return [fold_log(records).state for records in read_logs(served).values()]


@wires
def test_only_known_keys_are_let_in(wire):
    with serving_gateway(settings_with_keys()) as served:
        assert ask(served, wire, "!say hi", ALICE).status == 200
        for key in (None, "wrong", ALICE[:-1], f"{ALICE}x", digest_key(ALICE)):
            refused = ask(served, wire, "!say hi", key)
            assert refused.status == 401, refused.body
            assert "error" in refused.json
        [state] = read_states(served)
        assert (state.run.origin.caller, state.run.origin.tenant) == ("alice", "acme")


@wires
def test_budget_of_a_key_ends_its_calls_and_not_those_of_others(wire):
    with serving_gateway(settings_with_keys(budget={"tokens": 300})) as served:
        statuses = [ask(served, wire, "!say " + "word " * 40, ALICE).status for _ in range(4)]
        assert statuses[0] == 200 and statuses[-1] in (402, 429)
        assert ask(served, wire, "!say hi", BOB).status == 200


@pytest.mark.parametrize(("period", "later"), [("day", 86_400), ("month", 31 * 86_400)])
def test_budget_of_a_key_begins_again_in_the_next_period(period, later, monkeypatch):
    now = [1_700_000_000.0]
    with serving_gateway(settings_with_keys(budget={"steps": 1}, period=period)) as served:
        monkeypatch.setattr(server, "time", SimpleNamespace(time=lambda: now[0]))
        assert [ask(served, "anthropic", "!say hi", ALICE).status for _ in range(2)] == [200, 402]
        now[0] += later
        assert [ask(served, "anthropic", "!say hi", ALICE).status for _ in range(2)] == [200, 402]
        now[0] -= later
        assert ask(served, "anthropic", "!say hi", ALICE).status == 402


def test_budget_of_a_tenant_is_shared_by_its_keys():
    settings = settings_with_keys()
    settings["tenants"]["acme"] = {"budget": {"steps": 2}}
    with serving_gateway(settings) as served:
        assert [ask(served, "anthropic", "!say hi", key).status for key in (ALICE, BOB, ALICE, BOB)] == [
            200, 200, 402, 402,
        ]  # fmt: skip


def test_budgets_of_keys_and_tenants_have_periods():
    settings = settings_with_keys(budget={"steps": 1, "period": "month", "zone": "Europe/Berlin"})
    settings["tenants"]["acme"] = {"budget": [{"steps": 2, "period": "month"}, {"tokens": 100_000}]}
    with serving_gateway(settings) as served:
        assert [ask(served, "anthropic", "!say hi", key).status for key in (ALICE, ALICE, BOB, BOB)] == [
            200, 402, 200, 402,
        ]  # fmt: skip
        infos = served.run(served.host.store.sessions(limit=100))
    names = {strip_period(name) for info in infos if (name := parse_budget_log_name(info.id))}
    assert names == {"key:alice", "tenant:acme"}


def test_key_without_a_tenant_is_alone():
    """Also if a tenant has the name of the key."""
    settings = settings_with_keys()
    settings["keys"]["acme"] = {"sha256": digest_key(BOB)}
    del settings["keys"]["bob"]
    settings["tenants"]["acme"] = {"budget": {"steps": 1}}
    with serving_gateway(settings) as served:
        session = ask(served, "anthropic", "!say hi", ALICE).headers["x-bridle-session"]
        assert ask(served, "anthropic", "!say hi", ALICE).status == 402
        assert ask(served, "anthropic", "!say hi", BOB, headers={"x-bridle-session": session}).status == 404
        assert [ask(served, "anthropic", "!say hi", BOB).status for _ in range(2)] == [200, 200]
        assert {state.run.origin.tenant for state in read_states(served)} == {"acme", "key:acme"}


def test_key_may_use_only_its_models():
    settings = settings_with_keys(models=["any"])
    settings["models"]["other"] = {"chain": ["sim:"]}
    with serving_gateway(settings) as served:
        listed = send(f"{served.url}/openai/v1/models", headers={"authorization": f"Bearer {ALICE}"})
        assert [model["id"] for model in listed.json["data"]] == ["any"]
        assert ask(served, "openai_chat", "!say hi", BOB, model="other").status == 200
        assert ask(served, "openai_chat", "!say hi", BOB, model="third").status == 404


def test_next_model_of_the_chain_is_used_if_one_fails(monkeypatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "unused")
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "http://127.0.0.1:1")
    chain = ["anthropic:claude-sonnet-5-5", PROVIDERS["openai_responses"]]
    with serving_gateway({"models": {"any": {"chain": chain}}}) as served:
        assert ask(served, "openai_chat", "!say hi").json["choices"][0]["message"]["content"] == "hi"
        events = [record.event for log in read_logs(served).values() for record in log]
        assert [event.model.id for event in events if isinstance(event, ModelSwitched)] == ["gpt-6.1-sol"]


@wires
def test_session_of_another_tenant_cannot_be_continued(wire):
    settings = settings_with_keys()
    settings["keys"]["bob"]["tenant"] = "other"
    settings["tenants"]["other"] = {}
    with serving_gateway(settings) as served:
        first = ask(served, wire, "!say secret", ALICE)
        session = first.headers["x-bridle-session"]
        refused = ask(served, wire, "!say more", BOB, headers={"x-bridle-session": session})
        assert refused.status == 404 and f"Session '{session}' not found." in refused.body.decode()
        assert len(read_states(served)) == 1


def test_imported_session_without_a_prompt_is_no_tenants():
    """A process that ends between the import and the prompt leaves a session without an owner."""
    messages = [
        {"role": "user", "content": "secret"}, {"role": "assistant", "content": "kept"},
        {"role": "user", "content": "!say more"},
    ]  # fmt: skip
    with serving_gateway(settings_with_keys()) as served:
        reply = ask(served, "openai_chat", "", ALICE, messages=messages)
        session = reply.headers["x-bridle-session"]
        served.run(Agent("sim:", store=served.host.store).fork(session, "m2", new="cut"))
        for name in ("cut", session):
            for key in (ALICE, BOB):
                reply = ask(served, "openai_chat", "!say hi", key, headers={"x-bridle-session": name})
                assert reply.status == (200 if name == session else 404), reply.body
        cut = fold_log(served.run(served.host.store.read("cut"))).state
        assert cut.identity.owner is None and len(cut.conversation.transcript.messages) == 2


def test_reply_that_reaches_its_limit_ends_there():
    """The loop of an agent would ask the model to continue; a gateway must not."""
    with serving_gateway(make_settings()) as served:
        reply = ask(served, "anthropic", "!say " + "word " * 60, max_tokens=16)
        assert (reply.status, reply.json["stop_reason"]) == (200, "max_tokens")
        chat = ask(served, "openai_chat", "!say " + "word " * 60, max_completion_tokens=16)
        assert chat.json["choices"][0]["finish_reason"] == "length"
        tiny = ask(served, "anthropic", "!say hi", max_tokens=1)
        assert tiny.status == 200 and "below 16" in tiny.headers["x-bridle-dropped"]


@wires
def test_options_reach_the_provider(wire):
    fields = {
        "openai_chat": {"temperature": 0.5, "top_p": 0.9, "stop": ["END"]},
        "openai_responses": {"temperature": 0.5, "top_p": 0.9},
        "anthropic": {"temperature": 0.5, "stop_sequences": ["END"]},
        "gemini": {
            "generationConfig": {
                "temperature": 0.5,
                "topP": 0.9,
                "stopSequences": ["END"],
                "maxOutputTokens": 99,
            }
        },
    }[wire]
    with serving_gateway({"models": {"any": {"chain": [PROVIDERS["gemini"]]}}}) as served:
        reply = ask(served, wire, "!say hi", **fields)  # type: ignore[arg-type]
        assert reply.status == 200 and "x-bridle-dropped" not in reply.headers, reply.headers
        [state] = read_states(served)
        assert state.settings.sampling.temperature == 0.5
        if wire == "gemini":
            assert state.settings.max_tokens == 99


def test_what_cannot_be_carried_is_named_or_refused():
    with serving_gateway(make_settings()) as served:
        reply = ask(served, "openai_chat", "!say hi", logit_bias={"5": 1}, seed=4)
        assert reply.status == 200
        assert reply.headers["x-bridle-dropped"] == "logit_bias; seed"
    with serving_gateway(make_settings(strict=True)) as served:
        reply = ask(served, "openai_chat", "!say hi", seed=4)
        assert reply.status == 400 and "seed" in reply.json["error"]["message"]
        assert read_states(served) == []
        reply = ask(served, "openai_chat", "!say hi", user="me", metadata={"a": "b"}, n=1)
        assert reply.status == 200
        named = set(reply.headers["x-bridle-dropped"].split("; "))
        assert named == {
            "metadata (it labels the request at its vendor)",
            "user (it names the user to the vendor)",
        }


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize(
    ("messages", "named"),
    [
        ([{"role": "user", "content": "!say a"}, {"role": "system", "content": "Be short."}], "system message"),
        ([{"role": "user", "content": [
            {"type": "text", "text": "!say a"}, {"type": "video_url", "video_url": {"url": "https://x/y"}}
        ]}], "video left out"),
        ([{"role": "user", "content": [
            {"type": "text", "text": "!say a"}, {"type": "hologram", "hologram": 1}
        ]}], "part hologram"),
    ],
)  # fmt: skip
def test_messages_that_change_are_named_or_refused(messages, named, strict):
    with serving_gateway(make_settings(strict=strict)) as served:
        reply = ask(served, "openai_chat", "", messages=messages)
        assert reply.status == (400 if strict else 200)
        assert named in (reply.json["error"]["message"] if strict else reply.headers["x-bridle-dropped"])


def test_system_messages_at_the_beginning_are_the_system_prompt():
    messages = [
        {"role": "system", "content": "One."}, {"role": "developer", "content": "Two."},
        {"role": "user", "content": "!say hi"},
    ]  # fmt: skip
    with serving_gateway(make_settings(strict=True)) as served:
        assert ask(served, "openai_chat", "", messages=messages).status == 200
        [state] = read_states(served)
        assert state.settings.instructions == "One.\n\nTwo."
        assert [m.text for m in state.conversation.transcript.messages] == ["!say hi", "hi"]


@pytest.mark.parametrize("field", [{"conversation": "conv_1"}, {"background": True}])
def test_fields_that_change_the_reply_are_refused(field):
    with serving_gateway(make_settings()) as served:
        reply = ask(served, "openai_responses", "!say hi", **field)
        assert reply.status == 400 and "is not supported here" in reply.json["error"]["message"]
        assert ask(served, "openai_responses", "!say hi", background=False, conversation=None).status == 200


def test_missing_key_of_the_provider_is_the_servers_matter(monkeypatch, caplog):
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    settings = {"models": {"any": {"chain": ["anthropic:claude-sonnet-5-5"]}}}
    with serving_gateway(settings) as served:
        reply = ask(served, "openai_chat", "hi")
        assert reply.status == 500
        assert reply.json["error"]["message"] == "the server has no key for the model of this agent"
    gc.collect()
    assert "ANTHROPIC_API_KEY" in caplog.text and "Traceback" not in caplog.text
    assert "never retrieved" not in caplog.text


def test_models_without_a_key_are_listed(monkeypatch):
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    chains = {
        "a": ["anthropic:claude-sonnet-5-5"],
        "b": ["anthropic:claude-sonnet-5-5", "sim:"],
        "c": ["sim:"],
    }
    settings = convert(
        {"models": {name: {"chain": chain} for name, chain in chains.items()}}, GatewaySettings
    )
    [problem] = list_missing_keys(settings)
    assert problem.startswith("[models.a]: ") and "ANTHROPIC_API_KEY" in problem


@pytest.mark.parametrize("name", ["alice", 'a "b" \\ c', "ü.x"])
def test_printed_lines_of_a_key_are_a_file(name, capsys):
    assert main(["gateway", "--new-key", name]) == 0
    lines = capsys.readouterr().out.splitlines()
    [(found, entry)] = tomllib.loads("\n".join(lines[2:]))["keys"].items()
    assert (found, entry["sha256"]) == (name, digest_key(lines[0].rpartition(" ")[2]))


def test_unknown_path_is_no_unknown_model():
    with serving_gateway(make_settings()) as served:
        reply = send(f"{served.url}/openai/v1/none", {})
        assert reply.status == 404 and "openapi" not in reply.body.decode()
        assert reply.json["error"]["code"] != "model_not_found"


def test_structured_output_crosses_wires():
    schema = {
        "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"],
        "additionalProperties": False,
    }  # fmt: skip
    wanted = {"type": "json_schema", "json_schema": {"name": "place", "schema": schema, "strict": True}}
    with serving_gateway({"models": {"any": {"chain": [PROVIDERS["anthropic"]]}}}) as served:
        for stream in (False, True):
            reply = ask(served, "openai_chat", "where is it?", response_format=wanted, stream=stream)
            assert reply.status == 200
            text = (
                "".join(e["choices"][0]["delta"].get("content") or "" for e in reply.events if e["choices"])
                if stream
                else reply.json["choices"][0]["message"]["content"]
            )
            assert set(json.loads(text)) == {"city"}


def test_forced_tool_crosses_wires():
    tool = {"name": "look", "input_schema": {"type": "object", "properties": {"at": {"type": "string"}}}}
    with serving_gateway({"models": {"any": {"chain": [PROVIDERS["openai_chat"]]}}}) as served:
        choice = {"type": "tool", "name": "look"}
        reply = ask(served, "anthropic", "hello", tools=[tool], tool_choice=choice)
        assert reply.json["stop_reason"] == "tool_use"
        assert [block["name"] for block in reply.json["content"] if block["type"] == "tool_use"] == ["look"]


def test_hooks_see_every_call(tmp_path):
    (tmp_path / "rules.py").write_text("from bridle.hooks import RedactPii\nhide = RedactPii()\n")
    with serving_gateway(make_settings(hooks=["rules.py:hide"]), folder=tmp_path) as served:
        reply = ask(served, "anthropic", "!say write to ann@example.com now")
        assert "ann@example.com" not in reply.body.decode()


def test_conversation_survives_a_restart(tmp_path):
    """A conversation that no id names is found in the log."""
    store, wire = str(tmp_path / "log.db"), "anthropic"
    settings = make_settings()
    with serving_gateway(settings, store) as served:
        said = ask(served, wire, "!say one").json
    messages = [
        {"role": "user", "content": "!say one"}, {"role": "assistant", "content": said["content"]},
        {"role": "user", "content": "!say two"},
    ]  # fmt: skip
    with serving_gateway(settings, store) as served:
        reply = send(
            f"{served.url}/anthropic/v1/messages", {"model": "any", "max_tokens": 99, "messages": messages}
        )
        assert reply.json["content"][0]["text"] == "two"
        [state] = read_states(served)
        assert len(state.conversation.transcript.messages) == 4


def test_sampling_options_of_a_run_are_kept_when_it_is_resumed():
    agent = Agent("sim:")
    made = override_parts(agent.parts, {"max_tokens": 50, "sampling": Sampling(temperature=0.5)})
    assert (made.settings.max_tokens, made.settings.sampling.temperature) == (50, 0.5)
    with pytest.raises(MisuseError, match="max_tokens"):
        override_parts(agent.parts, {"max_tokens": 0})


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "no model"),
        ("[models.a]\nchain = []\n", "the chain is empty"),
        ('[models.a]\nchain = ["sim:"]\n[keys.k]\nsha256 = "abc"\n', "64 hex digits"),
        (f'[models.a]\nchain = ["sim:"]\n[keys.k]\nsha256 = "{"0" * 64}"\nmodels = ["b"]\n', "names 'b'"),
        (
            f'[models.a]\nchain = ["sim:"]\n[keys.k]\nsha256 = "{"0" * 64}"\n[keys.m]\nsha256 = "{"0" * 64}"\n',
            "the same key",
        ),
        ('[models.a]\nchain = ["sim:"]\n[tenants."key:a"]\n', "cannot be named 'key:a'"),
        (
            f'[models.a]\nchain = ["sim:"]\n[keys.k]\nsha256 = "{"0" * 64}"\nperiod = "day"\n',
            "needs a budget",
        ),
        (
            f'[models.a]\nchain = ["sim:"]\n[keys.k]\nsha256 = "{"0" * 64}"\nperiod = "day"\n{OWN_PERIOD}',
            "has a period of its own",
        ),
        ('[models.a]\nchian = ["sim:"]\n', "line 1.*chian"),
    ],
)
def test_mistakes_of_the_file_are_named(tmp_path, text, problem):
    file = tmp_path / "gateway.toml"
    file.write_text(text)
    with pytest.raises(MisuseError, match=problem):
        check_settings(read_gateway_file(file))


def test_clients_of_every_wire_get_a_stream_of_errors_they_know():
    for wire in CLIENT_MODELS:
        with serving_gateway(settings_with_keys()) as served:
            client = Agent(connect_client(wire, served.url, "wrong"))
            result = client.run_sync("hi")
            assert (result.stop, result.failure.kind) == ("failed", "unauthorized"), result


def test_answer_in_json_is_streamed_by_a_gateway():
    """Its schema is the client's, and the model writes it as text: nothing in between changes it."""
    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    answer = json.dumps({"city": "Rome, which is " + "very " * 20 + "old"})
    form = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
    with serving_gateway(make_settings()) as served:
        body = {"model": "any", "stream": True, "response_format": form}
        body["messages"] = [{"role": "user", "content": f"!say {answer}"}]
        reply = send(f"{served.url}/openai/v1/chat/completions", body)
        texts = [
            choice["delta"].get("content") or "" for event in reply.events for choice in event["choices"]
        ]
        assert "".join(texts) == answer and sum(map(bool, texts)) > 5
