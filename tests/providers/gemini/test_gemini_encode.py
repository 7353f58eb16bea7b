"""Requests to Gemini: path, body, tools and choices."""

import json

import pytest
from msgspec.structs import replace

from bridle.values.errors import MisuseError
from bridle.values.message import Text
from bridle.values.model import Abilities
from bridle.values.request import Extra, Thinking, ToolChoice, ToolSpec
from tests.providers.gemini.gemini_requests import CODEC, MODEL, TALK
from tests.providers.kit.encode_kit import user

ask, sent = TALK.ask, TALK.sent


# Path, body and digest


def test_the_path_names_the_model_and_the_delivery():
    assert CODEC.encode(ask(user("hi"))).path == "/models/gemini-x:streamGenerateContent?alt=sse"
    assert CODEC.encode(ask(user("hi"), stream=False)).path == "/models/gemini-x:generateContent"
    for name, place in [
        ("models/gemini-x", "/models/gemini-x"),
        ("tunedModels/my-own", "/tunedModels/my-own"),
        ("odd name?x=y", "/models/odd%20name%3Fx%3Dy"),
    ]:
        path = CODEC.encode(ask(user("hi"), model=replace(MODEL, id=name), stream=False)).path
        assert path == f"{place}:generateContent"


def test_nothing_asked_is_nothing_sent():
    assert sent(ask(user("hi"))) == {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]}
    assert sent(ask()) == {"contents": []}


def test_what_is_in_the_providers_cache_is_not_sent_again():
    body = sent(
        ask(
            user("hi"),
            system=(Text(text="Be brief."),),
            tools=(ToolSpec(name="look"),),
            tool_choice=ToolChoice(mode="any"),
            extras=(Extra(name="cachedContent", json='"cachedContents/1"'),),
        )
    )
    assert list(body) == ["contents", "cachedContent"]


OLD = Abilities(thinking=("enabled", "disabled", "adaptive"))
NEW = Abilities(thinking=("adaptive",), efforts=("low", "high"))


@pytest.mark.parametrize(
    ("abilities", "thinking", "config"),
    [
        (OLD, Thinking(budget_tokens=512), {"thinkingBudget": 512}),
        (OLD, Thinking(mode="disabled"), {"thinkingBudget": 0}),
        (OLD, Thinking(mode="adaptive"), {"thinkingBudget": -1}),
        (OLD, Thinking(effort="low", budget_tokens=9), {"thinkingBudget": 9}),
        (NEW, Thinking(effort="low", budget_tokens=9), {"thinkingLevel": "LOW"}),
        (NEW, Thinking(effort="xhigh", display="omitted"), {"includeThoughts": False}),
        (NEW, Thinking(budget_tokens=9), None),
        (NEW, Thinking(mode="disabled"), None),
        (NEW, Thinking(mode="between_tools", display="updates"), None),
        (Abilities(), Thinking(effort="medium"), {"thinkingLevel": "MEDIUM"}),
    ],
)
def test_thinking_is_asked_for_as_the_model_takes_it(abilities, thinking, config):
    body = sent(ask(user("hi"), model=replace(MODEL, abilities=abilities), thinking=thinking))
    assert body.get("generationConfig", {}).get("thinkingConfig") == config


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        (Extra(name="contents", json="[]"), "set it on the request"),
        (Extra(name="labels", json="{"), "holds no JSON"),
        (Extra(name="generationConfig", json="7"), "remove one of the two"),
    ],
)
def test_extras_that_cannot_be_sent_say_so(extra, words):
    with pytest.raises(MisuseError, match=words):
        sent(ask(user("hi"), max_tokens=1, extras=(extra,)))


# Tools


def test_native_tools_are_placed_natively_and_foreign_ones_are_declared_as_functions():
    old = '{"name":"old","parameters":{"type":"OBJECT"}}'
    specs = (
        ToolSpec(name="old", native=old),
        ToolSpec(name="codeExecution", native='{"codeExecution":{}}'),
        ToolSpec(name="strict", parameters="{}", native='{"name":"strict","input_schema":{},"strict":true}'),
        ToolSpec(name="custom", parameters="{}", native='{"type":"function","function":{}}'),
        ToolSpec(name="web_search", native='{"type":"web_search_2026","name":"web_search"}'),
    )
    functions, code = sent(ask(user("hi"), tools=specs))["tools"]
    assert code == {"codeExecution": {}}
    assert functions["functionDeclarations"] == [
        json.loads(old),
        {"name": "strict", "parametersJsonSchema": {"type": "object"}},
        {"name": "custom", "parametersJsonSchema": {"type": "object"}},
    ]


SEARCH = ToolSpec(name="googleSearch", native='{"googleSearch":{}}')
OWN_TOOL = ToolSpec(name="look", parameters='{"type":"object","properties":{}}')


@pytest.mark.parametrize(
    ("tools", "choice", "config"),
    [
        ((OWN_TOOL, SEARCH), ToolChoice(), {"includeServerSideToolInvocations": True}),
        (
            (SEARCH, OWN_TOOL),
            ToolChoice(mode="none"),
            {"functionCallingConfig": {"mode": "NONE"}, "includeServerSideToolInvocations": True},
        ),
        ((OWN_TOOL,), ToolChoice(), None),
        ((SEARCH,), ToolChoice(), None),
    ],
)
def test_hosted_and_own_tools_together_are_asked_for_on_every_turn(tools, choice, config):
    encoded = CODEC.encode(ask(user("go"), tools=tools, tool_choice=choice))
    assert json.loads(encoded.body).get("toolConfig") == config
    again = CODEC.decode_request(encoded)
    assert (again.extras, again.tool_choice) == ((), choice)
