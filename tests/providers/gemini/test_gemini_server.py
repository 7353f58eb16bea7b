"""Requests as Gemini understands them: read, and written again."""

import base64
import json

import pytest
from msgspec.structs import replace

from bridle.ports.codec import HttpRequest
from bridle.providers import load_codec
from bridle.values.errors import ProviderError
from bridle.values.message import Media, Opaque, Reasoning, Text, ToolCall, ToolResult
from bridle.values.request import Extra, OutputSpec, Sampling, Thinking, ToolChoice

CODEC = load_codec("gemini")
PATH = "/v1beta/models/gemini-x:generateContent"


def make_http_request(body, path=PATH):
    return HttpRequest(path=path, body=json.dumps(body).encode())


def read(body, path=PATH):
    return CODEC.decode_request(make_http_request(body, path))


def contents(*turns):
    return {"contents": [{"role": role, "parts": list(parts)} for role, *parts in turns]}


def read_and_encode(body):
    """What is written of a request that was read."""
    return json.loads(CODEC.encode(read(body)).body)


def refusal(body, path=PATH):
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    with pytest.raises(ProviderError) as refused:
        CODEC.decode_request(HttpRequest(path=path, body=data))
    return refused.value.failure


@pytest.mark.parametrize(
    ("path", "model", "streams"),
    [
        ("/models/gemini-x:generateContent", "gemini-x", False),
        ("/v1beta/models/gemini-x:streamGenerateContent?alt=sse", "gemini-x", True),
        ("/v1beta/models/gemini-x:streamGenerateContent?%24alt=json%3Benum-encoding%3Dint", "gemini-x", True),
        ("/v1/projects/p/locations/l/publishers/google/models/gemini-x:generateContent", "gemini-x", False),
        ("/v1beta/tunedModels/mine:generateContent", "tunedModels/mine", False),
        ("/models/odd%20name:generateContent", "odd name", False),
    ],
)
def test_paths(path, model, streams):
    request = read(contents(("user", {"text": "hi"})), path)
    assert (request.model.id, request.stream) == (model, streams)


def test_a_whole_request():
    body = {
        **contents(("user", {"text": "hi"})),
        "systemInstruction": {"role": "user", "parts": {"text": "Be brief."}},
        "tools": [{"functionDeclarations": [{"name": "a", "parametersJsonSchema": {"type": "object"}}]}],
        "toolConfig": {"functionCallingConfig": {"mode": "any", "allowedFunctionNames": ["a"]}},
        "generationConfig": {
            "maxOutputTokens": 9,
            "temperature": 0,
            "topK": 40.0,
            "stopSequences": ["END"],
            "thinkingConfig": {"thinkingLevel": "high", "includeThoughts": True},
            "responseMimeType": "application/json",
            "responseJsonSchema": {"type": "object"},
            "seed": 7,
        },
        "safetySettings": None,
        "labels": {"a_b": "c"},
    }
    request = read(body)
    assert request.system == (Text(text="Be brief."),)
    assert [(tool.name, tool.parameters, tool.native) for tool in request.tools] == [
        ("a", '{"type":"object"}', None)
    ]
    assert request.tool_choice == ToolChoice(mode="tool", name="a")
    assert request.max_tokens == 9
    assert request.sampling == Sampling(temperature=0.0, top_k=40, stop_sequences=("END",))
    assert request.thinking == Thinking(effort="high", display="summarized")
    assert request.output == OutputSpec(name="output", parameters='{"type": "object"}')
    assert set(request.extras) == {
        Extra(name="labels", json='{"a_b": "c"}'),
        Extra(name="generationConfig", json='{"seed":7}'),
    }


def test_either_spelling_is_read():
    body = {
        "contents": [
            {"role": "user", "parts": [{"inline_data": {"mime_type": "image/png", "data": "AAAA"}}]},
            {
                "role": "model",
                "parts": [{"function_call": {"name": "a", "args": {"a_b": 1}}, "thought_signature": "eA=="}],
            },
            {"role": "user", "parts": [{"function_response": {"name": "a", "response": {"c_d": 2}}}]},
        ],
        "system_instruction": {"parts": [{"text": "x"}]},
        "generation_config": {"max_output_tokens": 5, "thinking_config": {"thinking_budget": 7}},
        "tools": {"function_declarations": [{"name": "a", "parameters_json_schema": {"x_y": 1}}]},
        "tool_config": {"function_calling_config": {"mode": "NONE"}},
    }
    request = read(body)
    assert request.messages[0].parts == (Media(kind="image", media_type="image/png", data="AAAA"),)
    (call,) = request.messages[1].parts
    assert (call.arguments, call.native) == ('{"a_b":1}', '{"thoughtSignature":"eA=="}')
    assert (request.max_tokens, request.thinking) == (5, Thinking(budget_tokens=7))
    assert request.tools[0].parameters == '{"x_y":1}'
    assert request.tool_choice.mode == "none"
    assert read_and_encode(body)["contents"][2]["parts"] == [
        {"functionResponse": {"name": "a", "response": {"c_d": 2}}}
    ]


def test_parts_that_are_only_carried():
    parts = [
        {"text": "a", "thought": True},
        {"thought": True, "thoughtSignature": "eA=="},
        {"executableCode": {"code": "1", "language": "PYTHON"}, "thoughtSignature": "eA=="},
        {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1"}},
        {"inlineData": {"mimeType": "image/png", "data": "AAAA", "displayName": "a.png"}},
        {"fileData": {"mimeType": "video/mp4", "fileUri": "gs://v"}, "videoMetadata": {"fps": 2}},
        {"inlineData": {"data": "AAAA"}},
        {"tomorrow": {"x": 1}},
        {"text": "b", "thoughtSignature": "eA=="},
    ]
    body = contents(("user", {"text": "q"}), ("model", *parts))
    read_parts = read(body).messages[1].parts
    assert [type(part) for part in read_parts] == [
        Reasoning, Reasoning, Opaque, Opaque, Media, Media, Opaque, Opaque, Text,
    ]  # fmt: skip
    assert [part.kind for part in read_parts if isinstance(part, Opaque | Media)] == [
        "executableCode",
        "codeExecutionResult",
        "image",
        "video",
        "inlineData",
        "tomorrow",
    ]
    assert read_parts[4].name == "a.png"
    assert read_and_encode(body)["contents"][1]["parts"] == parts


def test_declarations_in_the_older_dialect_are_kept_and_understood():
    old = {
        "name": "a",
        "parameters": {
            "type": "OBJECT",
            "properties": {
                "n": {"type": "INTEGER", "nullable": True},
                "type": {"type": "STRING"},
                "l": {"type": "ARRAY", "items": {"anyOf": [{"type": "NUMBER"}]}},
            },
        },
    }
    body = {**contents(("user", {"text": "q"})), "tools": [{"functionDeclarations": [old, {"name": "b"}]}]}
    first, second = read(body).tools
    assert json.loads(first.parameters) == {
        "type": "object",
        "properties": {
            "n": {"type": ["integer", "null"]},
            "type": {"type": "string"},
            "l": {"type": "array", "items": {"anyOf": [{"type": "number"}]}},
        },
    }
    assert (second.name, second.native) == ("b", '{"name":"b"}')
    assert read_and_encode(body)["tools"] == body["tools"]


@pytest.mark.parametrize(
    "config",
    [
        {"functionCallingConfig": {"mode": "VALIDATED"}},
        {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["a", "b"]}},
        {"functionCallingConfig": {"mode": "ANY"}, "includeServerSideToolInvocations": True},
        {"functionCallingConfig": {"mode": "TOMORROW"}},
        {"retrievalConfig": {"languageCode": "en"}},
        {"functionCallingConfig": {"mode": "AUTO", "streamFunctionCallArguments": True}},
    ],
)
def test_choices_we_have_no_word_for_are_kept(config):
    tools = [{"functionDeclarations": [{"name": "a"}, {"name": "b"}]}]
    body = {**contents(("user", {"text": "q"})), "tools": tools, "toolConfig": config}
    assert read_and_encode(body)["toolConfig"] == config


@pytest.mark.parametrize(
    "config",
    [
        {"thinkingConfig": {"thinkingLevel": "LOW", "thinkingBudget": 5}},
        {"thinkingConfig": {"thinkingBudget": 0, "includeThoughts": False}},
        {"thinkingConfig": {"tomorrow": 1}},
        {"responseMimeType": "application/json", "responseSchema": {"type": "OBJECT"}},
        {"responseMimeType": "application/json"},
        {"responseMimeType": "text/x.enum", "responseJsonSchema": {"enum": ["a"]}},
        {"maxOutputTokens": "9", "temperature": "hot", "stopSequences": [7]},
    ],
)
def test_configurations_survive(config):
    body = {**contents(("user", {"text": "q"})), "generationConfig": config}
    assert read_and_encode(body)["generationConfig"] == config


# Pairing


def call(name, wire_id=None, **args):
    return {"functionCall": {**({"id": wire_id} if wire_id else {}), "name": name, "args": args}}


def response(name, said, wire_id=None):
    return {
        "functionResponse": {
            **({"id": wire_id} if wire_id else {}),
            "name": name,
            "response": {"output": said},
        }
    }


def pairs(*turns):
    """(n of the call, words of the result) for every result in the messages read."""
    messages = read(contents(("user", {"text": "q"}), *turns)).messages
    calls = {
        part.id: json.loads(part.arguments)["n"]
        for message in messages
        for part in message.parts
        if isinstance(part, ToolCall)
    }
    return [
        (calls.get(part.call_id), part.text)
        for message in messages
        for part in message.parts
        if isinstance(part, ToolResult)
    ]


def test_responses_find_their_calls_by_id_then_name_then_place():
    calls = ("model", call("a", "1", n=1), call("b", "2", n=2), call("a", "3", n=3))
    assert pairs(
        calls, ("user", response("a", "z", "3"), response("b", "y", "2"), response("a", "x", "1"))
    ) == [
        (3, "z"),
        (2, "y"),
        (1, "x"),
    ]
    bare = ("model", call("a", n=1), call("b", n=2), call("a", n=3))
    assert pairs(bare, ("user", response("b", "y"), response("a", "x"), response("a", "z"))) == [
        (2, "y"),
        (1, "x"),
        (3, "z"),
    ]
    assert pairs(bare, ("user", response("?", "x"), response("?", "y"))) == [(1, "x"), (2, "y")]
    equal = ("model", call("a", "1", n=1), call("a", "1", n=2))
    assert pairs(equal, ("user", response("a", "x", "1"), response("a", "y", "1"))) == [(1, "x"), (2, "y")]


def test_a_response_without_a_call_has_none():
    assert pairs(("user", response("a", "x"))) == [(None, "x")]
    body = contents(("user", {"text": "q"}, response("a", "x")))
    assert read_and_encode(body)["contents"] == [{"role": "user", "parts": [{"text": "q"}]}]


def test_a_response_that_is_named_otherwise_than_its_call_goes_out_as_it_came():
    turns = [("user", {"text": "q"}), ("model", call("a", n=1)), ("user", response("renamed", "x", "own-id"))]
    assert read_and_encode(contents(*turns))["contents"][2]["parts"] == [response("renamed", "x", "own-id")]


@pytest.mark.parametrize(
    ("said", "words", "outcome"),
    [
        ({"output": "x"}, "x", "ok"),
        ({"error": "x"}, "x", "error"),
        ({"result": "x"}, "x", "ok"),
        ({"error": {"code": 7}}, '{"error":{"code":7}}', "error"),
        ({"a": 1, "b": [2]}, '{"a":1,"b":[2]}', "ok"),
        ({"output": ""}, "", "ok"),
        ({"error": " "}, "", "error"),
        ({}, "", "ok"),
    ],
)
def test_what_came_of_a_call_in_words_and_as_it_was(said, words, outcome):
    body = contents(
        ("user", {"text": "q"}),
        ("model", call("a", n=1)),
        ("user", {"functionResponse": {"name": "a", "response": said}}),
    )
    (result,) = read(body).messages[2].parts
    assert (result.text, result.outcome) == (words, outcome)
    assert read_and_encode(body)["contents"][2]["parts"][0]["functionResponse"]["response"] == said


def test_pictures_beside_a_response():
    picture = {"inlineData": {"mimeType": "image/png", "data": "AAAA"}}
    odd = {"tomorrow": 1}
    answer = {"functionResponse": {"name": "a", "response": {"output": "x"}, "parts": [picture, odd]}}
    body = contents(("user", {"text": "q"}), ("model", call("a", n=1)), ("user", answer))
    (result,) = read(body).messages[2].parts
    assert [type(part) for part in result.parts] == [Text, Media, Opaque]
    assert read_and_encode(body)["contents"][2]["parts"] == [answer]


def test_words_beside_responses_follow_them():
    body = contents(
        ("user", {"text": "q"}), ("model", call("a", n=1)), ("user", {"text": "5"}, response("a", "5"))
    )
    assert [message.role for message in read(body).messages] == ["user", "assistant", "tool", "user"]
    assert read_and_encode(body)["contents"][2]["parts"] == [response("a", "5"), {"text": "5"}]


def test_parts_of_next_year_in_the_system_survive():
    parts = [{"text": "s", "tomorrow": 1}, {"tomorrow": {"x": 1}}]
    body = {**contents(("user", {"text": "hi"})), "systemInstruction": {"parts": parts}}
    assert read_and_encode(body)["systemInstruction"] == {"parts": parts}
    assert [text.text for text in read(body).system] == ["s", ""]


def test_blank_words_that_carry_something_go_back():
    body = contents(
        ("user", {"text": "hi"}), ("model", {"text": "", "tomorrow": 1}), ("user", {"text": "go"})
    )
    assert read_and_encode(body)["contents"] == body["contents"]


def test_what_another_wire_says_of_a_system_text_stays_there():
    request = read({**contents(("user", {"text": "hi"})), "systemInstruction": {"parts": [{"text": "s"}]}})
    foreign = (Text(text="s", native='{"cache_control":{"type":"ephemeral"}}'),)
    written = json.loads(CODEC.encode(replace(request, system=foreign)).body)
    assert written["systemInstruction"] == {"parts": [{"text": "s"}]}


def test_data_in_the_alphabet_for_urls_is_read():
    """Google's SDK for Python writes it; no other wire takes it."""
    content = b"\x89PNG\r\n\x1a\n\xff\xfb\xef\xbe"
    data = base64.urlsafe_b64encode(content).decode().rstrip("=")
    assert "-" in data or "_" in data
    part = {"inlineData": {"mimeType": "image/png", "data": data}}
    [message] = read({"contents": [{"role": "user", "parts": [part]}]}).messages
    assert message.parts[0].data == base64.b64encode(content).decode()
