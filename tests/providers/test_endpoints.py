"""Every row of the endpoint table builds a request, without a network."""

import asyncio
import json
from decimal import Decimal

import pytest
from msgspec.structs import replace

from bridle import Agent
from bridle.core.context.model_constraints import apply_model_constraints
from bridle.ports.codec import HttpRequest
from bridle.ports.transport import OutgoingRequest
from bridle.providers import load_codec
from bridle.providers.catalogue import auth_headers, choose_default_model, find_key, find_model, make_signer
from bridle.providers.tables import NEUTRAL, load_tables
from bridle.values.errors import MissingKey, MisuseError
from bridle.values.message import Message, Reasoning, Text, ToolCall, ToolResult
from bridle.values.model import Origin
from bridle.values.request import Request, Thinking, ToolChoice, ToolSpec
from bridle.values.settings import Settings

TABLES = load_tables()
ROWS = {name: row for name, row in TABLES.endpoints.items() if not row.simulated}
ASKED_FOR = (
    "anthropic anthropic-bedrock anthropic-vertex anthropic-foundry openai openai-chat azure azure-chat"
)
ASKED_FOR += (
    " deepseek kimi minimax zai xai mistral groq openrouter vllm ollama llamacpp lmstudio local gemini"
)
ASKED_FOR += " bedrock"


def at(name, **environ):
    """Some model of an endpoint."""
    ids = TABLES.model_ids(ROWS[name])
    return find_model(f"{name}:{ids[0] if ids else 'some-model'}", environ=environ)


def find_local_model(name):
    ids = TABLES.model_ids(ROWS[name])
    return find_model(f"{name}:{ids[0] if ids else 'some-model'}@http://127.0.0.1:9", environ={})


def conversation(model, **changes):
    origin = Origin(family=model.endpoint.family, endpoint=model.endpoint.name, model=model.id)
    call = ToolCall(id="c2_0", name="weather", arguments='{"city":"Oslo"}', wire_id="abcDEF123")
    fields = {
        "model": model,
        "system": (Text(text="Be brief."),),
        "tools": (ToolSpec(name="weather", description="The weather.", parameters='{"type":"object"}'),),
        "messages": (
            Message(role="user", parts=(Text(text="How is Oslo?"),), id="m1"),
            Message(
                role="assistant",
                parts=(Reasoning(text="I should look.", signature="c2ln"), call),
                id="m2",
                parent="m1",
                origin=origin,
            ),
            Message(
                role="tool",
                parts=(ToolResult(call_id="c2_0", parts=(Text(text="Snow."),)),),
                id="m3",
                parent="m2",
            ),
        ),
        "tool_choice": ToolChoice(mode="any"),
        "max_tokens": 500,
        "stream": False,
    }
    return Request(**(fields | changes))


def test_everybody_promised_is_there():
    assert set(ASKED_FOR.split()) <= ROWS.keys()


@pytest.mark.parametrize("name", ROWS)
def test_every_endpoint_can_be_spoken_to_and_is_understood(name):
    model = find_local_model(name)
    codec = load_codec(model.endpoint.family)
    assert codec.family == ROWS[name].family
    whole = codec.encode(conversation(model))
    streamed = codec.encode(conversation(model, stream=True))
    assert whole.digest == streamed.digest, "how an answer is delivered is no part of what was asked"
    assert (whole.path, whole.body) != (streamed.path, streamed.body)
    for wire, stream in ((whole, False), (streamed, True)):
        path = wire.path.partition("?")[0]
        read = codec.decode_request(HttpRequest(path=path, body=wire.body, headers=wire.headers))
        assert (read.model.id, read.stream) == (model.id, stream)
        (call,) = (call for message in read.messages for call in message.calls)
        assert (call.name, json.loads(call.arguments)) == ("weather", {"city": "Oslo"})
        assert "Snow." in wire.body.decode()


@pytest.mark.parametrize("name", ROWS)
def test_every_endpoint_can_be_simulated_with_its_manners(name):
    row, model = ROWS[name], find_local_model(name)
    played = find_model(f"sim:{name}/{model.id}", environ={})
    assert (played.abilities, played.price) == (model.abilities, model.price)
    assert played.endpoint.name == "sim"
    assert (played.endpoint.family, played.endpoint.dialect) == (row.family, model.endpoint.dialect)
    assert (played.endpoint.reasoning, played.endpoint.key_env) == (row.reasoning, ())
    assert json.loads(played.endpoint.dialect or "{}") == row.dialect


@pytest.mark.parametrize(
    "string",
    [
        "sim:openai/gpt-6.1-sol",
        "sim:openai-chat/gpt-5.5",
        "sim:gemini/gemini-3.5-flash",
        "sim:deepseek/deepseek-v4-pro",
        "sim:mistral/mistral-large-4",
        "sim:bedrock/global.anthropic.claude-opus-5",
        "sim:anthropic-vertex/claude-opus-5",
    ],
)
def test_a_run_over_every_wire(string):
    result = asyncio.run(Agent(string).run("!say Good morning"))
    assert result.text == "Good morning"


@pytest.mark.parametrize("family", sorted({row.family for row in ROWS.values()}))
def test_a_wire_family_can_be_simulated_by_its_name(family):
    for name, row in ROWS.items():
        if row.family == family and row.models:
            model = find_local_model(name)
            played = find_model(f"sim:{family}/{model.id}", environ={})
            assert (played.endpoint.family, played.id) == (family, model.id)
            assert played.price is not None


ENVIRON = {
    "ANTHROPIC_VERTEX_PROJECT_ID": "p1",
    "CLOUD_ML_REGION": "europe-west1",
    "AZURE_OPENAI_ENDPOINT": "https://mine.openai.azure.com/",
    "ANTHROPIC_FOUNDRY_RESOURCE": "mine",
    "AWS_DEFAULT_REGION": "eu-central-1",
}
VERTEX = "aiplatform.googleapis.com/v1/projects/p1/locations"


@pytest.mark.parametrize(
    ("name", "base_url", "header"),
    [
        ("anthropic", "https://api.anthropic.com", "authorization"),
        ("openai", "https://api.openai.com/v1", "authorization"),
        ("openai-chat", "https://api.openai.com/v1", "authorization"),
        ("gemini", "https://generativelanguage.googleapis.com/v1beta", "x-goog-api-key"),
        ("azure", "https://mine.openai.azure.com/openai/v1", "api-key"),
        ("anthropic-bedrock", "https://bedrock-mantle.eu-central-1.api.aws/anthropic", "authorization"),
        ("anthropic-vertex", f"https://{VERTEX}/global/publishers/anthropic", "authorization"),
        (
            "anthropic-vertex-region",
            f"https://europe-west1-{VERTEX}/europe-west1/publishers/anthropic",
            "authorization",
        ),
        ("anthropic-foundry", "https://mine.services.ai.azure.com/anthropic", "api-key"),
        ("bedrock", "https://bedrock-runtime.eu-central-1.amazonaws.com", "authorization"),
        ("local", "http://127.0.0.1:8080/v1", "authorization"),
    ],
)
def test_where_they_answer_and_how_the_key_travels(name, base_url, header):
    for variable in ROWS[name].key_env:
        environ = {**ENVIRON, variable: "k"}
        model = at(name, **environ)
        assert model.endpoint.base_url == base_url
        ((sent, value),) = auth_headers(model.endpoint, find_key(model, environ))
        assert (sent, value) == (header, "Bearer k" if header == "authorization" else "k")


@pytest.mark.parametrize("name", ROWS)
def test_every_address_of_ones_own_comes_first(name):
    for variable in ROWS[name].base_url_env:
        assert at(name, **{variable: "https://proxy.example/v9/"}).endpoint.base_url == (
            "https://proxy.example/v9"
        )


@pytest.mark.parametrize("name", ROWS)
def test_what_is_missing_is_named_in_one_line(name):
    row = ROWS[name]
    if "}" in row.base_url and "|" not in row.base_url:
        with pytest.raises(MisuseError) as caught:
            at(name)
        words = str(caught.value)
        assert f"`{name}:MODEL@URL`" in words
        assert "\n" not in words
        assert any(f"set {variable}" in words for variable in ENVIRON)
    model = find_local_model(name)
    if row.key_optional:
        assert find_key(model, {}) is None
        assert auth_headers(model.endpoint, None) == ()
    else:
        with pytest.raises(MissingKey, match=row.key_env[0]) as missing:
            find_key(model, {})
        assert "\n" not in str(missing.value)


def test_a_place_in_an_address_is_checked_when_it_is_filled():
    assert at("bedrock", AWS_REGION="us-west-2", AWS_DEFAULT_REGION="x").endpoint.base_url == (
        "https://bedrock-runtime.us-west-2.amazonaws.com"
    )
    assert "us-east-1" in at("bedrock", AWS_REGION=" ").endpoint.base_url
    with pytest.raises(
        MisuseError, match=r"AZURE_OPENAI_ENDPOINT\}/openai/v1, which is not a base URL here: "
    ):
        at("azure", AZURE_OPENAI_ENDPOINT="mine.openai.azure.com")


def test_who_is_asked_when_nobody_is_named():
    everyone = {variable: "k" for row in ROWS.values() for variable in row.key_env}
    assert choose_default_model(everyone).startswith("anthropic:")
    assert choose_default_model({"OPENAI_API_KEY": "k", "GEMINI_API_KEY": "k"}) == "openai:gpt-6.1-sol"
    assert choose_default_model({"GEMINI_API_KEY": "k", "MISTRAL_API_KEY": "k"}) == "gemini:gemini-3.8-flash"
    assert choose_default_model({"AZURE_OPENAI_API_KEY": "k"}) == "sim:", "nobody knows where that is"
    own = {variable: "k" for row in ROWS.values() if row.key_optional for variable in row.key_env}
    assert choose_default_model(own) == "sim:"


def test_a_server_of_ones_own_needs_nothing_but_its_address():
    model = find_model("local:some-model@http://127.0.0.1:8080/v1", environ={})
    assert (model.id, model.endpoint.base_url) == ("some-model", "http://127.0.0.1:8080/v1")
    # Its wire has no word for files; those that are text are told.
    neutral = replace(NEUTRAL, document_types=("text/*",), cuts_prompts=True)
    assert (model.abilities, model.price, find_key(model, {})) == (neutral, None, None)
    assert json.loads(load_codec("openai_chat").encode(conversation(model)).body)["max_tokens"] == 500


def test_the_same_model_may_do_other_things_elsewhere():
    direct, chat = find_model("openai:gpt-5.5", environ={}), find_model("openai-chat:gpt-5.5", environ={})
    assert direct.abilities.effort_with_tools
    assert replace(chat.abilities, cache_ttls=direct.abilities.cache_ttls) == replace(
        direct.abilities,
        effort_with_tools=False,
        deferred_tools=False,
        cache_explained=False,
        compaction=False,
        hosted=(),
    )
    assert chat.price == direct.price


def look(where: str) -> str:
    """What there is to see."""
    return where


@pytest.mark.parametrize(("vendor", "instead"), [("openai-chat", "openai"), ("azure-chat", "azure")])
def test_tools_a_model_refuses_on_one_wire_are_not_sent_and_the_other_is_named(monkeypatch, vendor, instead):
    for name in ("OPENAI_API_KEY", "AZURE_OPENAI_API_KEY"):
        monkeypatch.setenv(name, "key-for-tests")
    agent = Agent(f"{vendor}:gpt-6-astra@http://127.0.0.1:9", tools=[look])
    with pytest.raises(MisuseError, match=f"takes no tools .*write `{instead}:gpt-6-astra`"):
        agent.run_sync("Look around.")
    model = find_model(f"{vendor}:gpt-6-astra@http://127.0.0.1:9", environ={})
    assert (
        load_codec("openai_chat").encode(conversation(model, tools=())).body
    )  # earlier calls are no offence


def test_kinds_of_tools_a_model_does_not_take_together_are_named():
    search = ToolSpec(name="search", native='{"googleSearch":{}}')
    both = (ToolSpec(name="look", parameters='{"type":"object"}'), search)
    old, new = (find_model(f"gemini:{name}", environ={}) for name in ("gemini-2.5-pro", "gemini-3.5-flash"))
    with pytest.raises(MisuseError, match=r"gemini:gemini-2\.5-pro takes functions or .* leave one kind out"):
        load_codec("gemini").encode(conversation(old, tools=both))
    for model, tools in ((old, both[:1]), (old, both[1:]), (new, both)):
        assert load_codec("gemini").encode(conversation(model, tools=tools)).body


def test_an_effort_never_goes_out_beside_tools_where_the_two_are_refused():
    model = find_model("openai-chat:gpt-5.5", environ={})
    asked = conversation(model, thinking=Thinking(effort="high"))
    with_tools = json.loads(load_codec("openai_chat").encode(asked).body)
    assert "tools" in with_tools
    assert "reasoning_effort" not in with_tools
    without = json.loads(load_codec("openai_chat").encode(replace(asked, tools=())).body)
    assert without["reasoning_effort"] == "high"


@pytest.mark.parametrize(
    ("string", "price"),
    [
        ("bedrock:anthropic.claude-sonnet-4-5-20250929-v1:0", "3.3"),
        ("bedrock:us.anthropic.claude-sonnet-4-5-20250929-v1:0", "3.3"),
        ("bedrock:global.anthropic.claude-opus-5", "5"),
        ("anthropic-bedrock:anthropic.claude-opus-5", "5.5"),
        ("anthropic-vertex:claude-sonnet-4-5@20250929@http://h", "3"),
        ("anthropic-vertex-region:claude-sonnet-4-5@20250929@http://h", "3.3"),
    ],
)
def test_other_clouds_spell_and_charge_otherwise(string, price):
    model = find_model(string, environ={})
    assert model.id in string
    assert model.price.tiers[0].input == Decimal(price)
    assert model.abilities.cache_marks == 4


@pytest.mark.parametrize("string", ["bedrock:amazon.nova-pro-v1:0", "azure:our-deployment@http://h"])
def test_where_many_makers_are_served_nothing_is_assumed_of_a_model(string):
    model = find_model(string, environ={})
    # Which files and how many stop words can be sent is a matter of the wire, whoever made the model.
    of_wire = ("called_tools_declared", "choice_in_prefix", "document_types", "stop_sequences_max")
    there = replace(NEUTRAL, **{name: getattr(model.abilities, name) for name in of_wire})
    assert (model.abilities, model.price) == (there, None)


@pytest.mark.parametrize(
    ("string", "place"),
    [
        ("kimi:kimi-k3", "reasoning_effort"),
        ("xai:grok-4.7", "reasoning_effort"),
        ("local:some-model", "reasoning_effort"),
        ("azure:our-deployment@http://h", "reasoning.effort"),
    ],
)
def test_an_unlisted_effort_is_passed_on(string, place):
    model = find_model(string, environ={})
    wish = apply_model_constraints(Settings(model=model, thinking=Thinking(effort="brisk")), ToolChoice())
    assert (wish.thinking, wish.notes) == (Thinking(effort="brisk"), ())
    body = json.loads(
        load_codec(model.endpoint.family).encode(conversation(model, thinking=wish.thinking)).body
    )
    for name in place.split("."):
        body = body[name]
    assert body == "brisk"


@pytest.mark.parametrize("string", ["zai:glm-5.3", "mistral:mistral-large-4", "deepseek:deepseek-v4-pro"])
def test_an_effort_nobody_takes_is_left_out_with_a_word(string):
    wish = apply_model_constraints(
        Settings(model=find_model(string, environ={}), thinking=Thinking(effort="brisk")), ToolChoice()
    )
    assert wish.thinking is None
    assert "effort 'brisk' was left out" in wish.notes[0]


def test_an_unknown_model_is_not_asked_for_sealed_reasoning():
    """It may be one that does not reason, and those refuse."""
    asked = [
        find_model(name, environ={}) for name in ("azure:our-deployment@http://h", "azure:gpt-5.5@http://h")
    ]
    bodies = [load_codec("openai_responses").encode(conversation(model)).body for model in asked]
    assert [b"encrypted_content" in body.split(b'"store"')[1] for body in bodies] == [False, True]


def test_another_cloud_has_model_and_stream_in_the_path():
    model = find_model("anthropic-vertex:claude-sonnet-4-5@20250929", environ=ENVIRON)
    codec = load_codec("anthropic")
    whole, streamed = codec.encode(conversation(model)), codec.encode(conversation(model, stream=True))
    assert whole.path == "/models/claude-sonnet-4-5@20250929:rawPredict"
    assert streamed.path == "/models/claude-sonnet-4-5@20250929:streamRawPredict"
    assert streamed.body == whole.body[:-1] + b',"stream":true}'
    body = json.loads(whole.body)
    assert body["anthropic_version"] == "vertex-2023-10-16"
    assert not {"model", "stream"} & body.keys()
    other = replace(model, id="claude-opus-5")
    assert codec.encode(conversation(other)).digest != whole.digest, "the model is part of what is asked"
    bare = codec.encode(conversation(model, tools=(), system=()))
    assert json.loads(bare.body)["messages"] == body["messages"]
    kept = codec.new_history()
    first = codec.encode(conversation(model), kept).body
    assert "model" in json.loads(codec.encode(conversation(find_local_model("anthropic")), kept).body)
    assert codec.encode(conversation(model), kept).body == first


@pytest.mark.parametrize("family", sorted({row.family for row in ROWS.values()}))
@pytest.mark.parametrize("dialect", ["{ no_such_switch = true }", "{ {field} = [1] }"])
def test_an_unknown_dialect_is_reported_with_its_place(tmp_path, family, dialect):
    fields = {
        "anthropic": "path",
        "openai_responses": "with_ids",
        "openai_chat": "alternates",
        "gemini": "unsigned_call",
        "bedrock_converse": "result_status",
    }
    field = fields[family]
    path = tmp_path / "models.toml"
    dialect = dialect.replace("{field}", field)
    path.write_text(f"[endpoints.mine]\nfamily='{family}'\nbase_url='http://h'\ndialect = {dialect}\n")
    model = find_model("mine:x", environ={"BRIDLE_MODELS": str(path)})
    with pytest.raises(MisuseError) as caught:
        load_codec(family).encode(conversation(model))
    words = str(caught.value)
    assert words.startswith("endpoints.mine.dialect: ")
    assert "'no_such_switch' is not known" in words or f"`$.{field}`" in words
    assert "\n" not in words


def test_an_endpoint_with_another_wire_loses_its_dialect(tmp_path):
    path = tmp_path / "models.toml"
    path.write_text("[endpoints.local]\nfamily = 'anthropic'\n[endpoints.vllm.dialect]\ntop_k = false\n")
    environ = {"BRIDLE_MODELS": str(path)}
    assert find_model("local:x", environ=environ).endpoint.dialect == ""
    vllm = json.loads(find_model("vllm:x", environ=environ).endpoint.dialect)
    assert vllm == {**ROWS["vllm"].dialect, "top_k": False}


def test_an_account_may_sign_instead_of_a_key():
    environ = {
        "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE",
        "AWS_SECRET_ACCESS_KEY": "s3cret-s3cret",
        "AWS_REGION": "eu-west-1",
    }
    model = find_model("bedrock:anthropic.claude-sonnet-5-5", environ=environ)
    assert find_key(model, environ) is None
    sign = make_signer(model, environ)
    sent = OutgoingRequest(
        method="POST", url=f"{model.endpoint.base_url}/model/x/converse", headers=(), body=b"{}"
    )
    headers = dict(sign(sent, 1_800_000_000.0))  # type: ignore[misc]
    assert "AKIDEXAMPLE" in headers["authorization"]
    assert "/eu-west-1/bedrock/" in headers["authorization"]
    assert "s3cret" not in repr(headers)
    assert dict(sign(sent, 1_900_000_000.0)) != headers  # type: ignore[misc]
    with_key = {**environ, "AWS_BEARER_TOKEN_BEDROCK": "a-key"}
    assert make_signer(model, with_key) is None
    assert find_key(model, with_key) == "a-key"
    with pytest.raises(MissingKey, match="AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"):
        find_key(model, {})


def test_another_address_is_another_home():
    here = find_model("anthropic:claude-sonnet-5-5", environ={}).endpoint
    there = find_model("anthropic:claude-sonnet-5-5@http://127.0.0.1:9", environ={}).endpoint
    proxied = find_model(
        "anthropic:claude-sonnet-5-5", environ={"ANTHROPIC_BASE_URL": "http://127.0.0.1:8"}
    ).endpoint
    assert here.name == there.name == proxied.name == here.endpoint_id == "anthropic"
    assert len({here.endpoint_id, there.endpoint_id, proxied.endpoint_id}) == 3


def test_what_was_sealed_at_one_address_does_not_reach_another():
    secret = "c2VhbGVk"
    thought = Reasoning(text="hm", signature=secret)
    told = (
        Message(role="user", parts=(Text(text="hi"),), id="m1"),
        Message(
            role="assistant",
            parts=(thought, Text(text="hello")),
            id="m2",
            origin=Origin(family="anthropic", endpoint="anthropic", model="m"),
        ),
        Message(role="user", parts=(Text(text="on"),), id="m3"),
    )
    codec = load_codec("anthropic")
    for address, reaches in (("", True), ("@http://127.0.0.1:9", False)):
        model = find_model(f"anthropic:claude-sonnet-5-5{address}", environ={})
        assert (secret in codec.encode(Request(model=model, messages=told)).body.decode()) is reaches
