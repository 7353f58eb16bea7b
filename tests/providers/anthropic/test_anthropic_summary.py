"""Summaries Anthropic makes itself: asked for as it wants it, sent back as they came, told in words elsewhere."""

import json
from decimal import Decimal
from typing import Any

import pytest
from msgspec.structs import replace

from bridle.providers import load_codec
from bridle.providers.catalogue import find_model
from bridle.sim.families import find_family
from bridle.testing import check_codec
from bridle.values.message import Message, Opaque, Reply, Stop, Text, ToolCall
from bridle.values.model import Origin
from bridle.values.request import Extra, OutputSpec, Request, Sampling, Thinking, ToolChoice, ToolSpec
from bridle.values.usage import Usage

CODEC = load_codec("anthropic")
SERVER = find_family(CODEC.family)
MODEL = find_model("anthropic:claude-sonnet-5-5", environ={})
OWN = Origin(family="anthropic", endpoint="anthropic", model="claude-sonnet-5-5")
BLOCK = '{"type":"compaction","content":"They met. ünd","signature":"c2ln","tool_changes":[]}'
UNSIGNED = '{"type":"compaction","content":"They met."}'
SIGNED = Opaque(kind="compaction", native=BLOCK, text="They met. ünd")
BY_ITSELF = Opaque(kind="compaction", native=UNSIGNED, text="They met.")
EDITS = Extra(name="context_management", json='{"edits":[{"type":"compact_20260112"}]}')
HELLO, BYE = (Message(role="user", parts=(Text(text=words),)) for words in ("Hello", "Bye"))
HI = Message(role="assistant", parts=(Text(text="Hi."),), origin=OWN)


def summed_up(*parts: Opaque, origin: Origin | None = OWN) -> Message:
    return Message(role="user", parts=parts or (SIGNED,), origin=origin)


def ask(*messages: Message, **fields: Any) -> Request:
    return Request(**{"model": MODEL, "messages": messages, **fields})


def encode_request(request: Request) -> tuple[dict, str]:
    encoded = CODEC.encode(request)
    return json.loads(encoded.body), dict(encoded.headers).get("anthropic-beta", "")


def test_a_summary_is_asked_for_without_what_it_excludes():
    asked = ask(
        HELLO,
        HI,
        asks_native_summary=True,
        tools=(ToolSpec(name="look"),),
        tool_choice=ToolChoice(mode="any"),
        sampling=Sampling(stop_sequences=("END",)),
        output=OutputSpec(name="shape", parameters='{"type":"object","properties":{}}'),
        thinking=Thinking(mode="adaptive", effort="low"),
        summary_instructions=" Briefly. ",
        extras=(EDITS,),
    )
    body, betas = encode_request(asked)
    assert body["compaction"] == {"type": "summarize", "instructions": "Briefly."}
    assert betas == "compact-2026-09-04"
    assert not {"stop_sequences", "tool_choice", "context_management"} & set(body)
    assert body["output_config"] == {"effort": "low"}
    assert body["thinking"] == {"type": "adaptive"}
    assert [tool["name"] for tool in body["tools"]] == ["look"]
    assert [turn["role"] for turn in body["messages"]] == ["user", "assistant"], "nobody is asked to go on"


def test_open_calls_are_answered_before_a_summary_is_asked_for():
    called = Message(role="assistant", parts=(ToolCall(id="c1", name="look", arguments="{}"),), origin=OWN)
    body, _ = encode_request(ask(HELLO, called, asks_native_summary=True))
    assert body["messages"][-1]["content"][0]["type"] == "tool_result"


def test_what_was_asked_for_goes_back_to_the_letter_and_under_its_header():
    encoded = CODEC.encode(ask(summed_up(), HI, BYE))
    assert BLOCK.encode() in encoded.body
    assert dict(encoded.headers)["anthropic-beta"] == "compact-2026-09-04"
    assert json.loads(encoded.body)["messages"][0] == {"role": "user", "content": [json.loads(BLOCK)]}
    joined, _ = encode_request(ask(summed_up(), BYE))
    assert [block["type"] for block in joined["messages"][0]["content"]] == ["compaction", "text"]


def test_previews_that_are_named_already_stay():
    endpoint = replace(MODEL.endpoint, headers=(("anthropic-beta", "one, compact-2026-09-04"),))
    named = replace(MODEL, endpoint=endpoint)
    assert encode_request(ask(summed_up(), BYE, model=named))[1] == "one,compact-2026-09-04"
    assert encode_request(ask(BYE, model=named))[1] == "one,compact-2026-09-04"
    assert encode_request(ask(BYE))[1] == ""


@pytest.mark.parametrize(
    ("name", "origin"),
    [
        ("anthropic:claude-haiku-4-5", OWN),
        ("anthropic-bedrock:anthropic.claude-sonnet-5-5", OWN),
        ("anthropic:claude-sonnet-5-5", replace(OWN, endpoint="anthropic-vertex")),
        ("anthropic:claude-sonnet-5-5", None),
        ("openai:gpt-6.1-sol", OWN),
        ("openai-chat:gpt-5.5", OWN),
        ("gemini:gemini-4-argon", OWN),
        ("bedrock:global.anthropic.claude-sonnet-5-5", OWN),
    ],
)
def test_who_cannot_take_it_is_told_in_words(name, origin):
    model = find_model(name, environ={})
    codec = load_codec(model.endpoint.family)
    encoded = codec.encode(ask(summed_up(origin=origin), HI, BYE, model=model))
    assert "They met. ünd" in encoded.body.decode()
    assert b"c2ln" not in encoded.body
    assert "anthropic-beta" not in dict(encoded.headers)


def test_one_that_came_unasked_goes_back_only_while_it_is_asked_for():
    met = Message(role="assistant", parts=(BY_ITSELF, Text(text="Hi.")), origin=OWN)
    body, betas = encode_request(ask(HELLO, met, BYE, extras=(EDITS,)))
    assert body["messages"][1]["content"][0] == json.loads(UNSIGNED)
    assert betas == "compact-2026-01-12"
    body, betas = encode_request(ask(HELLO, met, BYE))
    assert body["messages"][1]["content"][0] == {"type": "text", "text": "They met."}
    assert betas == ""


def test_a_reply_that_stopped_after_its_summary_is_gone_on_with():
    paused = Message(role="assistant", parts=(BY_ITSELF,), origin=OWN, stop=Stop.PAUSED)
    body, _ = encode_request(ask(HELLO, paused, extras=(EDITS,)))
    assert body["messages"][-1] == {"role": "assistant", "content": [json.loads(UNSIGNED)]}


def test_the_codec_obeys_its_laws_with_summaries():
    used = Usage(input=5, cache_read=6, cache_write=4, cache_write_1h=1, output=7, reasoning=2)
    origin = Origin(family="anthropic", endpoint="anthropic", model="model-1")
    reply = Reply(parts=(SIGNED,), stop=Stop.PAUSED, stop_detail="compaction", origin=origin, usage=used)
    failed = Opaque(kind="compaction", native='{"type":"compaction","content":null}')
    replies = [
        replace(reply, id="msg_1"),
        replace(reply, parts=(BY_ITSELF,), id="msg_1"),
        replace(reply, parts=(BY_ITSELF, Text(text="So.")), stop=Stop.DONE, stop_detail="", id="msg_1"),
        replace(reply, parts=(failed, Text(text="So.")), stop=Stop.DONE, stop_detail="", id="msg_1"),
    ]
    requests = [
        ask(HELLO, HI, asks_native_summary=True, max_tokens=900),
        ask(
            summed_up(),
            HI,
            BYE,
            asks_native_summary=True,
            max_tokens=900,
            summary_instructions="Briefly.",
            extras=(Extra(name="compaction", json='{"tomorrow":1}'),),
        ),
        ask(summed_up(), BYE, max_tokens=900),
    ]
    check_codec(CODEC, replies=replies, requests=requests)


@pytest.mark.parametrize("stream", [False, True])
def test_a_summary_is_paid_for_though_the_reply_itself_counts_nothing(stream):
    """The counts of the provider's own example."""
    usage = Usage(input=144, output=276)
    reply = Reply(parts=(SIGNED,), stop=Stop.PAUSED, stop_detail="compaction", origin=OWN, usage=usage)
    spoken = SERVER.encode_reply(reply, stream=stream)
    body = b"".join(spoken.frames).decode()
    assert '"iterations":[{"type":"compaction","input_tokens":144' in body
    assert '"input_tokens":0' in body
    assert ("compaction_delta" in body) is False, "one that was asked for arrives whole"
    decoder = CODEC.new_decoder(ask(HELLO), 200, dict(spoken.headers))
    decoder.feed(body.encode())
    heard = decoder.close()
    assert (heard.usage, heard.parts, heard.stop) == (usage, (SIGNED,), Stop.PAUSED)


def test_what_the_provider_did_on_the_way_is_on_the_bill():
    """A recorded answer: 83,779 tokens read and 176 written at $5 and $25 a million."""
    model = find_model("anthropic:claude-opus-4-6", environ={})
    none = {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 0}
    rest = {"cache_read_input_tokens": 0, "cache_creation_input_tokens": 0, "cache_creation": none}
    counts = {
        "input_tokens": 224,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
        "output_tokens": 22,
        "server_tool_use": {"web_search_requests": 0},
        "iterations": [
            {"input_tokens": 83_555, "output_tokens": 154, **rest, "type": "compaction"},
            {"input_tokens": 224, "output_tokens": 22, **rest, "type": "message"},
        ],
    }
    message = {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "model": "claude-opus-4-6",
        "content": [json.loads(UNSIGNED), {"type": "text", "text": "So."}],
        "stop_reason": "end_turn",
        "usage": counts,
    }
    decoder = CODEC.new_decoder(ask(HELLO, model=model), 200, {"content-type": "application/json"})
    decoder.feed(json.dumps(message).encode())
    reply = decoder.close()
    assert reply.parts == (BY_ITSELF, Text(text="So."))
    assert model.price is not None
    assert model.price.cost(reply.usage) == Decimal("0.423295")
