"""Requests as Anthropic sees them: read tolerantly, written again without loss."""

import json

import pytest
from msgspec.structs import replace

from bridle.ports.codec import HttpRequest
from bridle.providers import load_codec
from bridle.values.request import Breakpoint

CODEC = load_codec("anthropic")


def read(body, path="/v1/messages"):
    body = {"model": "m", "max_tokens": 1, **body}
    return CODEC.decode_request(HttpRequest(path=path, body=json.dumps(body).encode()))


def test_results_beside_words_become_two_messages_and_find_their_calls():
    used = [{"type": "tool_use", "id": "t", "name": "a", "input": {"n": n}} for n in (1, 2)]
    answered = [{"type": "tool_result", "tool_use_id": "t", "content": str(n)} for n in (1, 2, 3)]
    request = read(
        {
            "messages": [
                {"role": "assistant", "content": used},
                {"role": "user", "content": [*answered, {"type": "text", "text": "go on"}]},
            ]
        }
    )
    assert [(message.id, message.role) for message in request.messages] == [
        ("m1", "assistant"), ("m2", "tool"), ("m3", "user"),
    ]  # fmt: skip
    assert [call.id for call in request.messages[0].calls] == ["c1_0", "c1_1"]
    assert [result.call_id for result in request.messages[1].results] == ["c1_0", "c1_1", "c1_1"]


def test_what_has_no_place_survives():
    body = {
        "system": [{"type": "text", "text": "s", "cache_control": {"type": "ephemeral"}}],
        "messages": [
            {"role": "user", "content": [{"type": "container_upload", "file_id": "f"}]},
            {"role": "system", "content": [], "output_config": {"effort": "low"}},
            {"role": "user", "content": [{"type": "text", "text": "x", "new": 1}]},
        ],
        "tools": [{"name": "a", "input_schema": {"type": "object"}, "strict": True}],
        "thinking": {"type": "adaptive", "block_binding": {"x": 1}},
        "tool_choice": {"type": "tomorrow"},
        "cache_control": {"type": "ephemeral", "scope": "new"},
        "speed": "fast",
    }
    request = read(body)
    assert request.breakpoints == (Breakpoint(position="system"),)
    assert {extra.name for extra in request.extras} == {"thinking", "tool_choice", "cache_control", "speed"}
    again = json.loads(CODEC.encode(replace(request, stream=False)).body)
    assert again.pop("model") == "m"
    assert again.pop("max_tokens") == 1
    assert again == body


@pytest.mark.parametrize(
    ("path", "model", "stream"),
    [
        ("/v1/messages?beta=true", "m", False),
        ("/anthropic/v1/messages/", "m", False),
        (
            "/model/us.anthropic.claude-x-v1%3A0/invoke-with-response-stream",
            "us.anthropic.claude-x-v1:0",
            True,
        ),
        (
            "/v1/projects/p/locations/l/publishers/anthropic/models/claude-x:streamRawPredict",
            "claude-x",
            True,
        ),
        ("/v1/projects/p/locations/l/publishers/anthropic/models/claude-x:rawPredict", "claude-x", False),
    ],
)
def test_paths_may_name_the_model_and_the_stream(path, model, stream):
    body = {"max_tokens": 1, "messages": [], **({"model": "m"} if model == "m" else {})}
    request = CODEC.decode_request(HttpRequest(path=path, body=json.dumps(body).encode()))
    assert (request.model.id, request.stream) == (model, stream)


def test_blocks_of_next_year_in_the_system_survive_with_their_marks():
    marked = {"cache_control": {"type": "ephemeral"}}
    system = [{"type": "text", "text": "s", **marked}, {"type": "tomorrow", "x": [1]}]
    again = json.loads(CODEC.encode(read({"system": system, "messages": []})).body)
    assert again["system"] == system


def test_a_mark_stays_on_media_with_a_source_of_next_year():
    source = {"type": "url", "url": "https://x.example/a.png", "tomorrow": 1}
    shown = {"type": "image", "source": source, "cache_control": {"type": "ephemeral"}}
    turn = {"role": "user", "content": [{"type": "text", "text": "look"}, shown]}
    again = json.loads(CODEC.encode(read({"messages": [turn]})).body)
    assert again["messages"] == [turn]


def test_results_that_stand_behind_words_are_not_lost():
    used = {"type": "tool_use", "id": "t", "name": "a", "input": {}}
    said = [{"type": "text", "text": "so"}, {"type": "tool_result", "tool_use_id": "t", "content": "found"}]
    turns = [{"role": "assistant", "content": [used]}, {"role": "user", "content": said}]
    again = json.loads(CODEC.encode(read({"messages": turns})).body)
    assert again["messages"][1]["content"] == [said[1], said[0]]
