"""Extras are checked against the vendors' own lists of request fields when an agent is made."""

from pathlib import Path
from tomllib import loads

import pytest
from msgspec.structs import replace

from bridle import Agent, MisuseError
from bridle.providers import families, load_codec
from bridle.providers.ownership import FIELDS_FILE
from bridle.run.model_connection import find_model_by_name
from bridle.values.request import Extra

FOLDER = Path(families.__file__).parent
MODELS = {
    "anthropic": "sim:anthropic/claude-sonnet-5-5",
    "bedrock_converse": "sim:bedrock/anthropic.claude-sonnet-5-5",
    "gemini": "sim:gemini/gemini-3.5-flash",
    "openai_chat": "sim:openai-chat/gpt-5.4",
    "openai_responses": "sim:openai/gpt-6.1-sol",
}


def read_fields(family):
    path = FOLDER / families.FAMILIES[family].split(".")[2] / FIELDS_FILE
    return set(loads(path.read_text())["fields"])


FIELDS = {family: read_fields(family) for family in MODELS}
PAIRS = [
    (family, name)
    for family in MODELS
    for name in sorted({*set().union(*FIELDS.values()), "no_such_field", "guided_json"})
]


def make(model, name, **more):
    return Agent(model, extras=[Extra(name=name, json="null", **more)])


@pytest.mark.parametrize("family", MODELS)
def test_every_field_of_every_vendor_is_taken_or_refused_by_the_list_of_the_model(family):
    """All fields of all vendors for a model of each family; 24 of them were sent to a vendor without them before."""
    reserved, taken, refused = load_codec(family).reserved_fields, set(), set()
    for _, name in (pair for pair in PAIRS if pair[0] == family):
        try:
            [extra] = make(MODELS[family], name).settings.extras
        except MisuseError as error:
            assert name in str(error) and "\n" not in str(error)
            refused.add(name)
        else:
            assert extra.owners == (family,)
            taken.add(name)
    assert FIELDS[family] - reserved <= taken
    assert refused >= {"no_such_field", "guided_json", *(reserved & FIELDS[family])}
    unknown = taken - FIELDS[family]
    assert unknown <= {"temperature", "top_p"}, "documented, and not in the published types"


@pytest.mark.parametrize(
    "name",
    [
        "instructions", "input", "contents", "systemInstruction", "no_such_field",
        "betas", "workspace_id", "user_profile_id",  # headers
    ],
)  # fmt: skip
def test_a_field_of_another_vendor_never_reaches_anthropic(name):
    with pytest.raises(MisuseError, match=name):
        make(MODELS["anthropic"], name)
    with pytest.raises(MisuseError, match=name):
        make(MODELS["anthropic"], name, owners=("anthropic",))


def test_a_field_that_is_newer_than_the_list_is_sent_if_the_caller_says_so():
    [extra] = make(MODELS["anthropic"], "no_such_field", unlisted=True).settings.extras
    assert extra.owners == ("anthropic",)
    with pytest.raises(MisuseError, match="would replace part of the request"):
        make(MODELS["anthropic"], "messages", unlisted=True)


def test_a_near_name_is_suggested():
    with pytest.raises(MisuseError, match="did you mean 'service_tier'"):
        make(MODELS["anthropic"], "service_teir")


@pytest.mark.parametrize("endpoint", ["vllm", "ollama", "llamacpp", "local", "openrouter"])
def test_servers_with_fields_of_their_own_making_take_any(endpoint, monkeypatch):
    monkeypatch.setenv("OPENROUTER_API_KEY", "k")
    [extra] = make(f"{endpoint}:=any", "guided_json").settings.extras
    assert extra.owners == (endpoint,)
    with pytest.raises(MisuseError, match="is a field of gemini"):
        make(f"{endpoint}:=any", "contents")


def test_an_endpoint_takes_the_fields_of_its_row_and_no_others(monkeypatch):
    monkeypatch.setenv("DEEPSEEK_API_KEY", "k")
    [extra] = make("deepseek:=deepseek-any", "thinking").settings.extras
    assert extra.owners == ("deepseek",)
    with pytest.raises(MisuseError, match="guided_json"):
        make("deepseek:=deepseek-any", "guided_json")
    [extra] = make("deepseek:=deepseek-any@http://127.0.0.1:9/v1", "guided_json").settings.extras
    assert extra.owners == ("deepseek",)


def test_an_unlisted_server_takes_any_field():
    model = find_model_by_name("local:=any")
    model = replace(model, endpoint=replace(model.endpoint, name="ours"))
    [extra] = make(model, "guided_json").settings.extras
    assert extra.owners == ("ours",)


def test_a_chain_takes_the_fields_of_each_of_its_models():
    chain = [MODELS["anthropic"], MODELS["gemini"]]
    given = [Extra(name="service_tier", json='"auto"'), Extra(name="safetySettings", json="[]")]
    owners = [extra.owners for extra in Agent(chain, extras=given).settings.extras]
    assert owners == [("anthropic",), ("gemini",)]
    with pytest.raises(MisuseError, match="previous_response_id"):
        make(chain, "previous_response_id")


def test_a_run_with_another_model_checks_its_extras_before_it_begins():
    agent = make("vllm:=any", "guided_json")
    with pytest.raises(MisuseError, match="guided_json"):
        agent.run_sync("Hello", model=MODELS["anthropic"])
