"""A wrong key or model says what to change; a chain passes over models without a key."""

import asyncio

import pytest

from bridle import Agent, MisuseError
from bridle.cli.main import main
from bridle.errors import MissingKey
from bridle.providers import load_codec
from bridle.run.model_connection import ModelConnection, find_model_by_name
from bridle.sim.simulator import Simulator
from bridle.stores.memory import MemoryStore
from bridle.transports.inprocess import InProcessTransport
from bridle.values.events import Configured, ModelAsked

VENDORS = {
    "anthropic:claude-sonnet-5-5": "$ANTHROPIC_API_KEY",
    "openai:gpt-6.1-sol": "$OPENAI_API_KEY",
    "openai-chat:gpt-6.1-sol": "$OPENAI_API_KEY",
    "gemini:gemini-3.8-flash": "$GEMINI_API_KEY",
    "bedrock:global.anthropic.claude-sonnet-5-5": "$AWS_BEARER_TOKEN_BEDROCK",
}


def run_refused(model, status):
    """The reason a run ends with when this provider answers so."""
    located = find_model_by_name(model)
    transport = InProcessTransport(Simulator().answer)
    line = ModelConnection(model=located, codec=load_codec(located.endpoint.family), transport=transport)
    result = Agent(line, store=MemoryStore()).run_sync(f"!error {status}")
    assert result.stop == "failed"
    return result.reason


@pytest.mark.parametrize("model", VENDORS)
def test_a_refused_key_names_the_variable(model):
    reason = run_refused(model, 401)
    assert VENDORS[model] in reason
    assert model in reason
    assert "\n" not in reason


@pytest.mark.parametrize("model", VENDORS)
def test_an_unknown_model_names_the_string(model):
    reason = run_refused(model, 404)
    assert f"check the model string '{model}'" in reason
    assert "\n" not in reason


@pytest.mark.refusals
def test_a_model_at_another_address_names_the_address_too():
    assert "http://127.0.0.1:9/v1" in run_refused("local:some-model@http://127.0.0.1:9/v1", 404)


@pytest.fixture
def no_keys(monkeypatch):
    keys = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "OPENAI_API_KEY", "AZURE_OPENAI_API_KEY")
    for name in (*keys, "AZURE_OPENAI_ENDPOINT", "AZURE_OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)


CHAIN = ["anthropic:claude-sonnet-5-5", "sim:", "openai:gpt-6.1-sol"]


@pytest.mark.usefixtures("no_keys")
def test_a_chain_skips_models_without_a_key_and_the_log_says_so():
    store = MemoryStore()
    result = Agent(CHAIN, store=store).run_sync("!say hello", session="s")
    assert (result.stop, result.text) == ("done", "hello")
    events = [record.event for record in asyncio.run(store.read("s"))]
    settings = next(event.settings for event in events if isinstance(event, Configured))
    assert settings.model.endpoint.simulated
    assert [seat for seat, _ in settings.skipped_models] == [CHAIN[0], CHAIN[2]]
    assert "ANTHROPIC_API_KEY" in settings.skipped_models[0][1]
    assert sum(isinstance(event, ModelAsked) for event in events) == 1


@pytest.mark.usefixtures("no_keys")
def test_a_failure_does_not_switch_to_a_model_without_a_key():
    result = Agent(["sim:", "openai:gpt-6.1-sol"]).run_sync("!error 401\n!error 401")
    assert result.stop == "failed"
    assert "OPENAI_API_KEY" in result.reason, "the reason says what was passed over"


@pytest.mark.usefixtures("no_keys")
def test_a_chain_without_any_key_is_one_line():
    with pytest.raises(MissingKey) as caught:
        Agent([CHAIN[0], CHAIN[2]]).run_sync("hello")
    told = str(caught.value)
    assert told.startswith("no model of the chain has a key: ")
    assert "ANTHROPIC_API_KEY" in told
    assert "OPENAI_API_KEY" in told
    assert "\n" not in told


AZURE = "azure:gpt-6.1-sol"


@pytest.mark.usefixtures("no_keys")
@pytest.mark.parametrize("chain", [[AZURE, "sim:"], ["sim:", AZURE]])
def test_a_chain_skips_a_model_without_an_address_and_the_log_says_so(chain, monkeypatch):
    monkeypatch.setenv("AZURE_OPENAI_API_KEY", "a-key")
    store = MemoryStore()
    result = Agent(chain, store=store).run_sync("!say hello", session="s")
    assert (result.stop, result.text) == ("done", "hello")
    events = [record.event for record in asyncio.run(store.read("s"))]
    settings = next(event.settings for event in events if isinstance(event, Configured))
    assert settings.model.endpoint.simulated
    ((seat, reason),) = settings.skipped_models
    assert seat == AZURE
    assert "AZURE_OPENAI_ENDPOINT or AZURE_OPENAI_BASE_URL" in reason


@pytest.mark.usefixtures("no_keys")
def test_a_model_alone_needs_its_address_when_the_agent_is_built():
    with pytest.raises(MisuseError, match="set AZURE_OPENAI_ENDPOINT"):
        Agent(AZURE)


@pytest.mark.usefixtures("no_keys")
def test_a_chain_without_any_address_is_one_line():
    with pytest.raises(MissingKey) as caught:
        Agent([AZURE, CHAIN[2]]).run_sync("hello")
    told = str(caught.value)
    assert told.startswith("no model of the chain has a key and an address: ")
    assert "AZURE_OPENAI_ENDPOINT" in told
    assert "OPENAI_API_KEY" in told
    assert "\n" not in told


@pytest.mark.usefixtures("no_keys")
def test_an_address_that_is_set_wrong_is_refused_in_a_chain_too(monkeypatch):
    monkeypatch.setenv("AZURE_OPENAI_BASE_URL", "nowhere")
    with pytest.raises(MisuseError, match="AZURE_OPENAI_BASE_URL is not a base URL"):
        Agent([AZURE, "sim:"])


@pytest.mark.usefixtures("no_keys")
@pytest.mark.parametrize("is_set", [False, True])
def test_a_session_whose_chain_skipped_a_model_is_continued_by_the_command(tmp_path, monkeypatch, is_set):
    path = str(tmp_path / "log.db")
    command = ["run", "--store", path, "--session", "s", "--no-stream"]
    Agent([AZURE, "sim:"], store=path).run_sync("!say one", session="s")
    if is_set:
        monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", "https://mine.example")
    assert main([*command, "!say two"]) == 0
