"""Requests to Gemini: path, body, tools and choices."""

import json

import pytest
from gemini_talk import CODEC, ENDPOINT, MODEL, ask, assistant, call, result, results, sent, user
from msgspec.structs import replace

from bridle.values.errors import BadTool, MisuseError
from bridle.values.message import Text
from bridle.values.model import Abilities
from bridle.values.request import Extra, OutputSpec, Sampling, Thinking, ToolChoice, ToolSpec

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


def test_the_digest_covers_the_model_and_not_the_delivery():
    one = CODEC.encode(ask(user("hi")))
    assert one.digest == CODEC.encode(ask(user("hi"), stream=False)).digest
    assert one.body == CODEC.encode(ask(user("hi"), stream=False)).body
    assert one.digest != CODEC.encode(ask(user("hi"), model=replace(MODEL, id="gemini-y"))).digest


def test_what_changes_stands_behind_the_contents():
    body = sent(
        ask(
            user("hi"),
            system=(Text(text="Be brief."), Text(text="  ")),
            tools=(
                ToolSpec(name="look", description="Looks."),
                ToolSpec(name="web", native='{"googleSearch":{}}'),
            ),
            tool_choice=ToolChoice(mode="tool", name="look"),
            max_tokens=9,
            thinking=Thinking(effort="low", display="summarized"),
            output=OutputSpec(name="o", parameters='{"type": "object"}'),
            sampling=Sampling(temperature=0.5, top_p=0.9, top_k=3, stop_sequences=("END",)),
            extras=(
                Extra(name="safetySettings", json="[]"),
                Extra(name="generationConfig", json='{"seed": 7}'),
                Extra(name="toolConfig", json='{"includeServerSideToolInvocations": true}'),
            ),
        )
    )
    assert list(body) == [
        "systemInstruction",
        "tools",
        "contents",
        "toolConfig",
        "generationConfig",
        "safetySettings",
    ]
    assert body["systemInstruction"] == {"parts": [{"text": "Be brief."}]}
    assert body["tools"] == [
        {
            "functionDeclarations": [
                {
                    "name": "look",
                    "description": "Looks.",
                    "parametersJsonSchema": json.loads(ToolSpec(name="").parameters),
                }
            ]
        },
        {"googleSearch": {}},
    ]
    assert body["toolConfig"] == {
        "includeServerSideToolInvocations": True,
        "functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["look"]},
    }
    assert body["generationConfig"] == {
        "seed": 7,
        "maxOutputTokens": 9,
        "temperature": 0.5,
        "topP": 0.9,
        "topK": 3,
        "stopSequences": ["END"],
        "thinkingConfig": {"thinkingLevel": "LOW", "includeThoughts": True},
        "responseMimeType": "application/json",
        "responseJsonSchema": {"type": "object"},
    }


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


@pytest.mark.parametrize(
    ("choice", "config"),
    [
        (ToolChoice(), None),
        (ToolChoice(parallel=False), None),
        (ToolChoice(mode="any"), {"mode": "ANY"}),
        (ToolChoice(mode="none"), {"mode": "NONE"}),
    ],
)
def test_choices(choice, config):
    body = sent(ask(user("hi"), tools=(ToolSpec(name="look"),), tool_choice=choice))
    assert body.get("toolConfig", {}).get("functionCallingConfig") == config
    assert "toolConfig" not in sent(ask(user("hi"), tool_choice=choice))


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


def test_sampling_is_not_sent_to_models_that_refuse_it():
    model = replace(MODEL, abilities=Abilities(sampling=False))
    body = sent(ask(user("hi"), model=model, sampling=Sampling(temperature=1, stop_sequences=("x",))))
    assert body["generationConfig"] == {"stopSequences": ["x"]}


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


def test_headers_come_from_the_endpoint_and_hold_no_key():
    named = replace(MODEL, endpoint=replace(ENDPOINT, headers=(("X-Mine", "1"),)))
    headers = dict(CODEC.encode(ask(user("hi"), model=named)).headers)
    assert headers == {"content-type": "application/json", "x-mine": "1"}


# Tools


def test_native_tools_go_where_they_belong_and_foreign_ones_are_declared_anew():
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


@pytest.mark.parametrize("spec", [ToolSpec(name="a", native="[]"), ToolSpec(name="a", parameters="no")])
def test_a_tool_that_is_no_json_is_the_callers_mistake(spec):
    with pytest.raises(BadTool, match="'a'"):
        sent(ask(user("hi"), tools=(spec,)))


def test_names_the_wire_does_not_allow_are_changed_alike_everywhere():
    names = [
        "mcp__server__tool",
        "ns:a.b-c",
        "größe",
        "grosse",
        "9lives",
        "a b",
        "a_b",
        "x" * 300,
        "x" * 301,
        "",
    ]
    specs = tuple(ToolSpec(name=name) for name in names)
    calls = tuple(call(f"c2_{at}", name=name) for at, name in enumerate(names))
    answers = tuple(result(each.id) for each in calls)
    body = sent(ask(user("q"), assistant(*calls), results(*answers), tools=specs))
    declared = [each["name"] for each in body["tools"][0]["functionDeclarations"]]
    assert declared[:2] == names[:2]
    assert len(set(declared)) == len(names)
    for name in declared:
        assert name[0].isalpha() or name[0] == "_"
        assert len(name) <= 128
        assert name.isascii()
    assert [part["functionCall"]["name"] for part in body["contents"][1]["parts"]] == declared
    assert [part["functionResponse"]["name"] for part in body["contents"][2]["parts"]] == declared
    forced = sent(ask(user("q"), tools=specs, tool_choice=ToolChoice(mode="tool", name="größe")))
    assert forced["toolConfig"]["functionCallingConfig"]["allowedFunctionNames"] == [declared[2]]


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
