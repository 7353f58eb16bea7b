"""Keys, breakpoints and lifetimes on the two OpenAI wires."""

import json

import pytest
from msgspec.structs import replace

from bridle.providers import load_codec
from bridle.providers.catalogue import find_model
from bridle.testing.wire.canonical_requests import CANONICAL_FORMS
from bridle.values.errors import MisuseError
from bridle.values.message import Message, Text, ToolCall, ToolResult
from bridle.values.request import Breakpoint, Extra, Request, ToolSpec

POINT = {"mode": "explicit"}
KEPT = {"prompt_cache_key", "prompt_cache_options", "prompt_cache_retention"}
TALK = (
    Message(role="user", parts=(Text(text="one"), Text(text="two")), id="m1"),
    Message(role="assistant", parts=(ToolCall(id="c1", wire_id="c1", name="look", arguments="{}"),), id="m2"),
    Message(role="tool", parts=(ToolResult(call_id="c1", parts=(Text(text="seen"),)),), id="m3"),
)


def model(name="openai:gpt-6.1-sol"):
    return find_model(name, environ={})


def make_request(name="openai:gpt-6.1-sol", **more):
    given = {"system": (Text(text="Be kind."),), "tools": (ToolSpec(name="look"),), "messages": TALK, **more}
    return Request(model=model(name), **given)


def body(request):
    return json.loads(load_codec(request.model.endpoint.family).encode(request).body)


def test_instructions_that_are_marked_are_the_developers_first_message():
    marks = (Breakpoint(position="system", ttl="30m"), Breakpoint(position="end", ttl="30m"))
    sent = body(make_request(breakpoints=marks, cache_key="scout-1"))
    assert "instructions" not in sent
    assert sent["input"][0] == {
        "type": "message",
        "role": "developer",
        "content": [{"type": "input_text", "text": "Be kind.", "prompt_cache_breakpoint": POINT}],
    }
    assert sent["prompt_cache_key"] == "scout-1"
    assert sent["prompt_cache_options"] == {"ttl": "30m"}
    assert body(make_request())["instructions"] == "Be kind."


@pytest.mark.parametrize(
    "held", [{"keeps_server_state": True, "server_state_until": "resp_1"}, {"keeps_server_state": True}]
)
def test_a_conversation_that_the_provider_holds_has_its_instructions_beside_it(held):
    sent = body(make_request(breakpoints=(Breakpoint(position="system", ttl="30m"),), **held))
    assert sent["instructions"] == "Be kind."
    assert all(item.get("role") != "developer" for item in sent["input"])


@pytest.mark.parametrize("place", [0, 2])
def test_a_message_is_marked_on_its_last_piece_and_nothing_else_changes(place):
    plain = body(make_request())
    sent = body(make_request(breakpoints=(Breakpoint(position="message", message=place, ttl="30m"),)))
    inside = "content" if place == 0 else "output"
    assert sent["input"][place][inside][-1].pop("prompt_cache_breakpoint") == POINT
    assert sent["input"] == plain["input"]


def test_the_model_s_words_cannot_be_marked():
    sent = body(make_request(breakpoints=(Breakpoint(position="message", message=1, ttl="30m"),)))
    assert sent["input"] == body(make_request())["input"]
    with pytest.raises(MisuseError, match="no message 7"):
        body(make_request(breakpoints=(Breakpoint(position="message", message=7, ttl="30m"),)))


def test_what_was_written_is_read_back():
    marks = (
        Breakpoint(position="system", ttl="12h"),
        Breakpoint(position="message", message=0, ttl="12h"),
        Breakpoint(position="end", ttl="12h"),
    )
    codec = load_codec("openai_responses")
    request = make_request(breakpoints=marks, cache_key="k", compare_reply_id="resp_9")
    read = codec.decode_request(codec.encode(request))
    assert (read.breakpoints, read.cache_key, read.compare_reply_id) == (marks, "k", "resp_9")
    assert read.system == request.system
    assert [message.text for message in read.messages[:1]] == ["onetwo"]
    again = codec.encode(replace(read, model=replace(read.model, id=request.model.id)))
    assert CANONICAL_FORMS[codec.family](again) == CANONICAL_FORMS[codec.family](codec.encode(request))


@pytest.mark.parametrize(
    "odd",
    [
        {"prompt_cache_options": {"mode": "explicit"}},
        {"prompt_cache_options": {"ttl": "30m", "prewarm": True}},
        {"prompt_cache_retention": "in_memory"},
        {"prompt_cache_retention": "24h"},
        {"prompt_cache_options": {"ttl": "12h", "comparison_response_id": "resp_1"}},
    ],
)
def test_whatever_somebody_else_asked_of_the_cache_survives(odd):
    codec = load_codec("openai_responses")
    piece = {
        "type": "input_text",
        "text": "Be odd.",
        "prompt_cache_breakpoint": {"mode": "explicit", "ttl": "30m"},
    }
    given = {
        "model": "gpt-6.1-sol",
        "input": [
            {"role": "developer", "content": [piece]},
            {"role": "user", "content": [piece, {"type": "input_text", "text": "Hello"}]},
        ],
        **odd,
    }
    sent = codec.encode(make_request())
    theirs = replace(sent, body=json.dumps(given).encode())
    assert CANONICAL_FORMS[codec.family](codec.encode(codec.decode_request(theirs))) == CANONICAL_FORMS[
        codec.family
    ](theirs)


def test_older_models_have_one_word_for_longer():
    day, usual = Breakpoint(position="end", ttl="24h"), Breakpoint(position="end", ttl="5m")
    assert body(make_request("openai:gpt-5.4", breakpoints=(day,)))["prompt_cache_retention"] == "24h"
    assert not KEPT & body(make_request("openai:gpt-5.4", breakpoints=(usual,))).keys()


def test_an_extra_comes_before_what_is_usual():
    extras = (
        Extra(name="prompt_cache_key", json='"mine"'),
        Extra(name="prompt_cache_options", json='{"mode":"explicit"}'),
    )
    for name in ("openai:gpt-6.1-sol", "openai-chat:gpt-6.1-sol"):
        sent = body(
            make_request(
                name, cache_key="k", breakpoints=(Breakpoint(position="end", ttl="30m"),), extras=extras
            )
        )
        assert (sent["prompt_cache_key"], sent["prompt_cache_options"]) == ("mine", {"mode": "explicit"})


def test_the_older_wire_takes_the_same():
    marks = (
        Breakpoint(position="system", ttl="30m"),
        Breakpoint(position="message", message=2, ttl="30m"),
        Breakpoint(position="end", ttl="30m"),
    )
    sent = body(make_request("openai-chat:gpt-6.1-sol", breakpoints=marks, cache_key="k"))
    marked = [part for message in sent["messages"] for part in message.get("content") or ()]
    points = [part["text"] for part in marked if "prompt_cache_breakpoint" in part]
    assert points == ["Be kind.", "seen"]
    assert (sent["prompt_cache_key"], sent["prompt_cache_options"]) == ("k", {"ttl": "30m"})
    codec = load_codec("openai_chat")
    assert (
        codec.decode_request(codec.encode(make_request("openai-chat:gpt-6.1-sol", cache_key="k"))).cache_key
        == "k"
    )


def test_a_reply_says_why_its_prompt_was_not_found():
    codec = load_codec("openai_responses")
    told = {"type": "cache_miss", "reason": "tools_changed", "cache_missed_tokens": 9}
    for diagnostics, missed in ((told, "tools_changed"), ({"type": "cache_hit"}, ""), (None, "")):
        response = {
            "id": "resp_1",
            "object": "response",
            "status": "completed",
            "output": [],
            "prompt_cache_diagnostics": diagnostics,
        }
        decoder = codec.new_decoder(make_request(), 200, {"content-type": "application/json"})
        list(decoder.feed(json.dumps(response).encode()))
        assert decoder.close().cache_miss_reason == missed
