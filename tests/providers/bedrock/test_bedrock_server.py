"""Requests to Bedrock Converse, read as the provider would."""

import json

import pytest
from msgspec.structs import replace

from bridle.ports.codec import HttpRequest
from bridle.providers import load_codec
from bridle.values.message import Media, Opaque, Text
from bridle.values.request import Breakpoint, Thinking, ToolChoice

CODEC = load_codec("bedrock_converse")
PATH = "/model/maker.x-v1%3A0/converse"
POINT = {"cachePoint": {"type": "default"}}


def read(body, path=PATH):
    return CODEC.decode_request(HttpRequest(path=path, body=json.dumps(body).encode()))


def turn(role, *content):
    return {"role": role, "content": list(content)}


def tool_use(call_id, **input_):
    return {"toolUse": {"toolUseId": call_id, "name": "a", "input": input_}}


def tool_result(call_id, *content, **more):
    return {"toolResult": {"toolUseId": call_id, "content": list(content), **more}}


def test_results_beside_words_become_two_messages_and_find_their_calls():
    request = read(
        {
            "messages": [
                turn("assistant", tool_use("t", n=1), tool_use("t", n=2)),
                turn("user", *(tool_result("t", {"text": str(n)}) for n in (1, 2, 3)), {"text": "go on"}),
                turn("user", {"text": "first"}, tool_result("t", {"text": "4"})),
            ]
        }
    )
    assert [(message.id, message.role) for message in request.messages] == [
        ("m1", "assistant"), ("m2", "tool"), ("m3", "user"), ("m4", "tool"), ("m5", "user"),
    ]  # fmt: skip
    assert [call.id for call in request.messages[0].calls] == ["c1_0", "c1_1"]
    assert [result.call_id for result in request.messages[1].results] == ["c1_0", "c1_1", "c1_1"]


def test_words_of_every_kind_can_be_read_by_anybody():
    request = read(
        {
            "system": [{"guardContent": {"text": {"text": "s", "qualifiers": ["query"]}}}, POINT, {"text": "t"}],
            "messages": [
                turn("user", {"guardContent": {"text": {"text": "g"}}}, {"document": {
                    "name": "d", "format": "txt", "source": {"content": [{"text": "a"}, {"text": "b"}]}}}),
                turn("assistant", tool_use("t1"), {"citationsContent": {"content": [{"text": "c"}], "citations": []}}),
                turn("user", tool_result("t1", {"json": {"x": 1}},
                                   {"searchResult": {"source": "u", "title": "v", "content": [{"text": "w"}]}})),
            ],
        }
    )  # fmt: skip
    assert "".join(text.text for text in request.system) == "st"
    assert [message.text for message in request.messages[:2]] == ["g", "c"]
    assert request.messages[2].results[0].text == '{"x":1}w'
    paper = request.messages[0].parts[1]
    assert isinstance(paper, Media)
    assert (paper.media_type, paper.data, paper.name) == ("text/plain", "YQoKYg==", "d")


def test_what_has_no_place_survives():
    document = {"name": "d", "format": "txt", "source": {"text": "words"}, "context": "c"}
    body = {
        "system": [{"text": "s"}, POINT, {"text": "t"}, POINT],
        "messages": [
            turn("user", {"document": document}, {"text": "\n"}, POINT, {"text": "x"}, POINT),
            turn("assistant", {"toolUse": {**tool_use("t1")["toolUse"], "type": "server_tool_use"}},
                 tool_result("t1", {"json": {}}, type="r"), tool_use("t2")),
            turn("user", tool_result("t2", {"text": "y"}), POINT, {"text": "z"}),
            turn("system", {"toolAddition": {"tool": {"name": "b"}}}),
            turn("user", {"guardContent": {"image": {"format": "png", "source": {"bytes": "aGk="}}}}),
        ],
        "toolConfig": {
            "tools": [
                {"toolSpec": {"name": "a", "inputSchema": {"json": {"type": "object"}}, "strict": True}},
                {"systemTool": {"name": "s"}},
                {"cachePoint": {"type": "default", "ttl": "1h"}},
            ],
            "toolChoice": {"tomorrow": {}},
        },
        "inferenceConfig": {"maxTokens": 5, "newest": 1},
        "additionalModelRequestFields": {"thinking": {"type": "adaptive", "bind": {"x": 1}}, "top_k": 3, "o": {}},
        "outputConfig": {"textFormat": {"type": "tomorrow"}, "effort": "low"},
        "requestMetadata": {"team": "x"},
    }  # fmt: skip
    request = read(body)
    assert request.breakpoints == (
        Breakpoint(position="tools", ttl="1h"), Breakpoint(position="system", block=0), Breakpoint(position="system"),
        Breakpoint(position="message", message=0),
    )  # fmt: skip
    assert request.thinking == Thinking(mode="adaptive", effort="low")
    assert request.max_tokens == 5
    assert request.tool_choice == ToolChoice()
    assert [type(part) for part in request.messages[1].parts[:2]] == [Opaque, Opaque]
    assert json.loads(CODEC.encode(replace(request, stream=False)).body) == body


def test_a_document_told_as_text_is_kept_once():
    document = {"name": "d", "format": "txt", "source": {"text": "words " * 50}}
    request = read({"messages": [turn("user", {"document": document}, {"text": "x"})]})
    paper = request.messages[0].parts[0]
    assert isinstance(paper, Media)
    assert paper.native == '{"source":{"text":""}}'
    again = json.loads(CODEC.encode(request).body)
    assert again["messages"][0]["content"][0] == {"document": document}


@pytest.mark.parametrize(
    ("path", "model", "stream"),
    [
        ("/model/us.maker.x-v1%3A0/converse", "us.maker.x-v1:0", False),
        ("/model/us.maker.x-v1:0/converse-stream", "us.maker.x-v1:0", True),
        ("/proxy/model/arn%3Aaws%3Ax%2Fy/converse-stream?trace=1", "arn:aws:x/y", True),
        ("/model/arn:aws:x/y/converse/", "arn:aws:x/y", False),
    ],
)
def test_paths_name_the_model_and_the_delivery(path, model, stream):
    request = read({"messages": [turn("user", {"text": "x"})], "modelId": "ignored"}, path)
    assert (request.model.id, request.stream) == (model, stream)
    assert request.messages[0].parts == (Text(text="x"),)
    assert request.extras == ()


def test_what_stands_beside_a_system_block_without_words_survives():
    body = {"system": [{"text": "s"}, {**POINT, "tomorrow": 1}, {"text": "t"}], "messages": []}
    assert json.loads(CODEC.encode(read(body)).body)["system"] == body["system"]


def test_a_piece_of_next_year_does_not_hide_the_words_beside_it():
    pieces = [{"text": "a"}, {"tomorrow": 1}, {"text": "b"}]
    said = turn("assistant", {"citationsContent": {"content": pieces, "citations": []}})
    request = read({"messages": [turn("user", {"text": "hi"}), said, turn("user", {"text": "go"})]})
    assert request.messages[1].text == "ab"
    assert json.loads(CODEC.encode(request).body)["messages"][1] == said
