"""The typed parse of usual replies gives what the tolerant decoder gives, whatever a body holds.

A member that means nothing, and that the typed parse refuses, sends the same body to the tolerant decoder.
"""

import json
from copy import deepcopy
from random import Random
from typing import Any

import pytest

from bridle.providers.anthropic import decode as anthropic_stream
from bridle.providers.anthropic.usual_reply import decode_usual_reply as decode_message
from bridle.providers.openai_chat.usual_reply import decode_usual_reply as decode_completion
from bridle.providers.openai_responses import decode as responses_stream
from bridle.values.errors import ProviderError
from bridle.values.message import Reply
from tests.providers.kit.json_mutations import mutate_json
from tests.providers.kit.wire_kit import Wire
from tests.suite.campaign import scale

BODIES_PER_FAMILY = scale(3_000)
STREAMS_PER_FAMILY = scale(1_500)
MESSAGE: dict[str, Any] = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "claude-x",
    "content": [
        {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"},
        {"type": "text", "text": "Ä first look.", "citations": None},
        {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"a": [1, {"b": None}]}},
        {"type": "tool_use", "id": "toolu_2", "name": "rest", "input": {}, "caller": {"type": "direct"}},
    ],
    "stop_reason": "tool_use",
    "stop_sequence": None,
    "usage": {
        "input_tokens": 40,
        "output_tokens": 12,
        "cache_read_input_tokens": 30,
        "cache_creation_input_tokens": 5,
        "cache_creation": {"ephemeral_5m_input_tokens": 2, "ephemeral_1h_input_tokens": 3},
        "service_tier": "priority",
    },
}
COMPLETION = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "model": "gpt-x",
    "choices": [
        {
            "index": 0,
            "message": {
                "role": "assistant",
                "content": "Ä first look.",
                "reasoning_content": "Hm.",
                "refusal": None,
                "annotations": [],
                "tool_calls": [
                    {
                        "id": "call_1",
                        "type": "function",
                        "function": {"name": "look", "arguments": '{"a": 1}'},
                    },
                    {"id": "call_2", "type": "function", "function": {"name": "rest", "arguments": " "}},
                ],
            },
            "logprobs": None,
            "finish_reason": "tool_calls",
        }
    ],
    "usage": {
        "prompt_tokens": 75,
        "completion_tokens": 12,
        "total_tokens": 87,
        "prompt_tokens_details": {"cached_tokens": 30, "cache_write_tokens": 5, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 4},
    },
    "service_tier": "flex",
}
RESPONSE: dict[str, Any] = {
    "id": "resp_1",
    "object": "response",
    "status": "completed",
    "model": "gpt-x",
    "output": [
        {
            "id": "msg_1",
            "type": "message",
            "status": "completed",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "Ä first look.", "annotations": [], "logprobs": []}],
        },
        {
            "id": "fc_1",
            "type": "function_call",
            "status": "completed",
            "call_id": "call_1",
            "name": "look",
            "arguments": "{}",
        },
    ],
    "usage": {
        "input_tokens": 75,
        "input_tokens_details": {"cached_tokens": 30, "cache_write_tokens": 5},
        "output_tokens": 12,
        "output_tokens_details": {"reasoning_tokens": 4},
        "total_tokens": 87,
    },
    "service_tier": "flex",
}
FAMILIES = {
    "anthropic": (MESSAGE, {"diagnostics": {}}, {"output_tokens_details": {}}),
    "openai_chat": (COMPLETION, {"base_resp": {}}, {"note": 0}),
    "openai_responses": (RESPONSE, {}, {"input_tokens_details": {"cache_write_tokens_details": {}}}),
}
"""An example of each family, and members that mean nothing and are not usual: of the body, and of its counts."""
STREAMS = {
    "anthropic": [
        {"type": "message_start", "message": {**MESSAGE, "content": [], "stop_reason": None}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "ping"},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Ä first"}},
        {"type": "content_block_stop", "index": 0},
        {"type": "content_block_start", "index": 1, "content_block": {**MESSAGE["content"][2], "input": {}}},
        {
            "type": "content_block_delta",
            "index": 1,
            "delta": {"type": "input_json_delta", "partial_json": '{"a"'},
        },
        {
            "type": "content_block_delta",
            "index": 1,
            "delta": {"type": "input_json_delta", "partial_json": ":1}"},
        },
        {"type": "content_block_stop", "index": 1},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 12}},
        {"type": "message_stop"},
    ],
    "openai_responses": [
        {"type": "response.created", "response": {**RESPONSE, "status": "in_progress", "output": []}},
        {
            "type": "response.output_item.added",
            "output_index": 0,
            "item": {**RESPONSE["output"][0], "content": []},
        },
        {
            "type": "response.content_part.added",
            "output_index": 0,
            "part": {"type": "output_text", "text": ""},
        },
        {"type": "response.output_text.delta", "output_index": 0, "delta": "Ä first look."},
        {"type": "response.output_text.done", "output_index": 0, "text": "Ä first look."},
        {
            "type": "response.content_part.done",
            "output_index": 0,
            "part": RESPONSE["output"][0]["content"][0],
        },
        {"type": "response.output_item.done", "output_index": 0, "item": RESPONSE["output"][0]},
        {
            "type": "response.output_item.added",
            "output_index": 1,
            "item": {**RESPONSE["output"][1], "arguments": ""},
        },
        {"type": "response.function_call_arguments.delta", "output_index": 1, "delta": "{}"},
        {"type": "response.output_item.done", "output_index": 1, "item": RESPONSE["output"][1]},
        {"type": "response.completed", "response": RESPONSE},
    ],
}
PARSERS = {
    "anthropic": (anthropic_stream, ("_decode_event",)),
    "openai_responses": (responses_stream, ("_decode_event", "_decode_end_event")),
}
"""The module that decodes the streams of a family, and its typed parses of events."""
TYPED = {
    "anthropic": decode_message,
    "openai_chat": lambda body, model: decode_completion(body, model, tools=False),
}
VALUES = (None, "", "x", "stop", "end_turn", "max_tokens", "null", "{}", 0, 1, 7.0, -1, 10**20, True, [], {}, ["x"], {"type": "text"},
          "\ud800", "INVALID_JSON", "<tool_call>", {"INVALID_JSON": "{"}, [{"type": "text", "text": "more"}])  # fmt: skip
MEMBERS = ("type", "error", "id", "native", "citations", "iterations", "refusal", "reasoning", "images", "index", "stop_details",
           "cached_tokens", "custom", "executed_tools", "completion", "base_resp", "x_groq", "caller", "arguments")  # fmt: skip


def mark(body, beside, counted):
    """The same body with members that the typed parse refuses."""
    usage = body.get("usage")
    if isinstance(usage, dict) and usage:
        merged = {name: {**(usage.get(name) or {}), **more} if isinstance(more, dict) else more
                  for name, more in counted.items() if isinstance(usage.get(name), dict | None)}  # fmt: skip
        body = {**body, "usage": {**usage, **merged}}
    return {**body, **beside}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_body_gives_the_same_reply_on_both_ways(family):
    body, beside, counted = FAMILIES[family]
    wire, random, typed, usual = Wire(family, "m"), Random(7), TYPED.get(family), 0
    for number in range(BODIES_PER_FAMILY):
        changed = mutate_json(body, random, VALUES, MEMBERS) if number else body
        ascii_only = random.random() < 0.5
        plain, tolerant = (
            json.dumps(each, ensure_ascii=ascii_only, separators=(",", ":")).encode("utf-8", "surrogatepass")
            for each in (changed, mark(changed, beside, counted))
        )
        reply = wire.decode_or_fail(plain, size=97)
        if typed is not None:
            assert typed(tolerant, wire.asked.model) is None
            found = typed(plain, wire.asked.model)
            assert number or found is not None, "the example is not of the usual form"
            assert found is None or found == reply
            usual += found is not None
        if isinstance(reply, Reply) and not changed.keys() & beside.keys():
            assert reply == wire.decode_or_fail(tolerant), plain
    assert usual > BODIES_PER_FAMILY / 20 or typed is None


def refuse(data):
    raise ValueError("no typed parse")


def encode_stream(events, random):
    names = random.random() < 0.8
    return b"".join(
        b"%bdata: %b\n\n" % (b"event: %b\n" % str(event.get("type")).encode("utf-8", "replace") if names else b"",
                             json.dumps(event).encode())
        for event in events
    )  # fmt: skip


def decode_stream(wire, body, size):
    """Every delta, in order, and the reply or the failure."""
    decoder, seen = wire.new_decoder(), []
    try:
        for start in range(0, len(body), size):
            seen += decoder.feed(body[start : start + size])
        return [*seen, decoder.close()]
    except ProviderError as error:
        return [*seen, error.failure]


@pytest.mark.parametrize("family", STREAMS)
def test_a_stream_gives_the_same_deltas_and_reply_without_the_typed_parse(family, monkeypatch):
    wire, random, (module, parsers) = Wire(family, "m"), Random(7), PARSERS[family]
    replies = 0
    for number in range(STREAMS_PER_FAMILY):
        events = deepcopy(STREAMS[family])
        for _ in range(random.choice((1, 1, 2)) if number else 0):
            place = random.randrange(len(events))
            match random.choice(("mutate", "mutate", "mutate", "drop", "repeat", "move")):
                case "mutate":
                    events[place] = mutate_json(events[place], random, VALUES, MEMBERS)
                case "drop" if len(events) > 1:
                    del events[place]
                case "repeat":
                    events.insert(random.randrange(len(events)), deepcopy(events[place]))
                case _:
                    events.append(events.pop(place))
        body, size = encode_stream(events, random), random.choice((100_000, 97))
        typed = decode_stream(wire, body, size)
        with monkeypatch.context() as patch:
            for parser in parsers:
                patch.setattr(module, parser, refuse)
            assert decode_stream(wire, body, size) == typed, body
        assert number or isinstance(typed[-1], Reply)
        replies += isinstance(typed[-1], Reply)
    assert replies > STREAMS_PER_FAMILY / 4


@pytest.mark.parametrize(
    ("family", "details"),
    [
        ("anthropic", "output_tokens_details"),
        ("openai_chat", "completion_tokens_details"),
        ("openai_responses", "output_tokens_details"),
    ],
)
def test_half_of_a_surrogate_pair_in_the_usage_is_ignored(family, details):
    body, wire = FAMILIES[family][0], Wire(family, "m")
    reply = wire.decode_or_fail(json.dumps({**body, "usage": {**body["usage"], details: "\ud83d"}}).encode())
    assert isinstance(reply, Reply) and reply.usage.output > 0


def test_half_of_a_surrogate_pair_does_not_keep_partial_usage_from_being_read():
    decoder, event = Wire("anthropic", "m").new_decoder(), deepcopy(STREAMS["anthropic"][0])
    event["message"]["usage"]["output_tokens_details"] = "\ud83d"
    decoder.feed(b"event: message_start\ndata: %b\n\n" % json.dumps(event).encode())
    assert decoder.partial_usage.prompt > 0
