"""Reasoning from gateways and compatible servers goes back as it came."""

import json

import pytest
from msgspec.structs import replace

from bridle.providers import load_codec
from bridle.providers.catalogue import find_model
from bridle.values.message import Message, Reasoning, Text, ToolCall, ToolResult
from bridle.values.request import Request
from bridle.values.result import ReasoningDelta

KEYS = {"ANTHROPIC_API_KEY": "k", "OPENAI_API_KEY": "k"}
GATEWAYS = ("local:claude@http://127.0.0.1:4000/v1", "openai-chat:claude@http://127.0.0.1:4000/v1")


def request_to(model, *messages):
    said = (Message(role="user", parts=(Text(text="Look."),), id="m1"), *messages)
    return Request(model=find_model(model, environ=KEYS), messages=said)


def decode_body(request, body):
    deltas = []
    decoder = load_codec(request.model.endpoint.family).new_decoder(
        request, 200, {"content-type": "text/event-stream"}
    )
    for at in range(0, len(body), 57):
        deltas += decoder.feed(body[at : at + 57])
    return decoder.close(), deltas


def sent_back(request, reply):
    """The messages of the next request, after the reply's calls were answered."""
    parts = tuple(
        replace(part, id=f"c{at}") if isinstance(part, ToolCall) else part
        for at, part in enumerate(reply.parts)
    )
    answer = Message(role="assistant", parts=parts, id="m2", origin=reply.origin, stop=reply.stop)
    results = tuple(
        ToolResult(call_id=part.id, parts=(Text(text="seen"),))
        for part in parts
        if isinstance(part, ToolCall)
    )
    after = replace(
        request, messages=(*request.messages, answer, Message(role="tool", parts=results, id="m3"))
    )
    codec = load_codec(request.model.endpoint.family)
    return json.loads(codec.encode(after, codec.new_history()).body)["messages"]


def fragment(words, signature="", **more):
    blocks = [{"type": "thinking", "thinking": words, "signature": signature}]
    return {
        "reasoning_content": words,
        "thinking_blocks": blocks,
        "provider_specific_fields": {"thinking_blocks": blocks},
        "content": "",
        **more,
    }


REDACTED = {"type": "redacted_thinking", "data": "c2VjcmV0"}
CALL = {
    "index": 0,
    "id": "toolu_1",
    "type": "function",
    "function": {"name": "look", "arguments": '{"at":"l"}'},
}
STREAM = (
    fragment("Let", role="assistant"),
    fragment(" me"),
    fragment(" see."),
    fragment("", "c2ln"),
    {
        "thinking_blocks": [REDACTED],
        "provider_specific_fields": {"thinking_blocks": [REDACTED]},
        "content": "",
    },
    fragment("Then"),
    fragment(" look."),
    fragment("", "YWdhaW4="),
    {"content": "", "tool_calls": [CALL]},
)
BLOCKS = [
    {"type": "thinking", "thinking": "Let me see.", "signature": "c2ln"},
    REDACTED,
    {"type": "thinking", "thinking": "Then look.", "signature": "YWdhaW4="},
]


def chunks(*deltas):
    choices = [
        *({"index": 0, "delta": delta} for delta in deltas),
        {"index": 0, "delta": {}, "finish_reason": "tool_calls"},
    ]
    frames = [{"id": "chatcmpl-1", "model": "claude", "choices": [choice]} for choice in choices]
    return b"".join(b"data: %b\n\n" % json.dumps(each).encode() for each in frames) + b"data: [DONE]\n\n"


@pytest.mark.parametrize("model", GATEWAYS)
def test_fragments_of_a_streamed_block_are_one_block(model):
    request = request_to(model)
    reply, deltas = decode_body(request, chunks(*STREAM))
    thoughts = [part for part in reply.parts if isinstance(part, Reasoning)]
    assert [(part.text, part.signature, part.redacted) for part in thoughts] == [
        ("Let me see.", "c2ln", False),
        ("", "c2VjcmV0", True),
        ("Then look.", "YWdhaW4=", False),
    ]
    shown = "".join(delta.reasoning for delta in deltas if isinstance(delta, ReasoningDelta))
    assert shown == "Let me see.Then look."


@pytest.mark.parametrize("model", GATEWAYS)
def test_streamed_blocks_go_back_as_they_would_have_stood_in_a_whole_reply(model):
    request = request_to(model)
    streamed, _ = decode_body(request, chunks(*STREAM))
    message = {
        "role": "assistant",
        "content": "",
        "reasoning_content": "Let me see.Then look.",
        "thinking_blocks": BLOCKS,
        "provider_specific_fields": {"thinking_blocks": BLOCKS},
        "tool_calls": [CALL],
    }
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
    body = json.dumps({"id": "chatcmpl-1", "model": "claude", "choices": [choice]}).encode()
    whole, _ = decode_body(replace(request, stream=False), body)
    assert streamed.parts == whole.parts
    sent = sent_back(request, streamed)[1]
    assert sent["thinking_blocks"] == BLOCKS
    assert sent["reasoning_content"] == "Let me see.Then look."
    assert "provider_specific_fields" not in sent


def test_blocks_that_stand_only_among_the_fields_of_the_provider_are_found_there():
    pieces = [{"provider_specific_fields": each["provider_specific_fields"]} for each in STREAM[:4]]
    request = request_to(GATEWAYS[0])
    reply, _ = decode_body(request, chunks(*pieces, STREAM[-1]))
    assert sent_back(request, reply)[1]["thinking_blocks"] == BLOCKS[:1]


def events(*blocks):
    yield {"type": "message_start", "message": {"id": "m", "role": "assistant", "content": [], "usage": {}}}
    for index, (start, delta) in enumerate(blocks):
        yield {"type": "content_block_start", "index": index, "content_block": start}
        yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    yield {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 9}}
    yield {"type": "message_stop"}


UNSIGNED = (
    ({"type": "thinking", "thinking": ""}, {"type": "thinking_delta", "thinking": "Let me see."}),
    (
        {"type": "tool_use", "id": "call_1", "name": "look", "input": {}},
        {"type": "input_json_delta", "partial_json": "{}"},
    ),
)


@pytest.mark.parametrize(
    ("model", "kept"),
    [
        ("anthropic:qwen3@http://127.0.0.1:8080", True),
        ("anthropic:claude-sonnet-5-5@http://127.0.0.1:8080", True),
        ("anthropic:claude-sonnet-5-5", False),
        ("anthropic-vertex:claude-opus-5@https://x/y", False),
    ],
)
def test_unsigned_thoughts_go_back_to_a_server_at_an_address_of_its_own(model, kept):
    """The vendor refuses them; servers that took its wire over do not sign."""
    request = request_to(model)
    body = b"".join(
        b"event: %b\ndata: %b\n\n" % (e["type"].encode(), json.dumps(e).encode()) for e in events(*UNSIGNED)
    )
    reply, _ = decode_body(request, body)
    content = sent_back(request, reply)[1]["content"]
    thoughts = [block for block in content if block["type"] == "thinking"]
    assert [block["thinking"] for block in thoughts] == (["Let me see."] if kept else [])


def test_the_policy_of_another_address_is_a_row_of_the_tables(tmp_path):
    tables = tmp_path / "models.toml"
    tables.write_text('[endpoints.anthropic]\nreasoning_elsewhere = "strip"\n')
    environ = {**KEYS, "BRIDLE_MODELS": str(tables)}
    assert find_model("anthropic:qwen3@http://127.0.0.1:8080", environ=environ).endpoint.reasoning == "strip"
    assert find_model("anthropic:claude-sonnet-5-5", environ=environ).endpoint.reasoning == "signed"
