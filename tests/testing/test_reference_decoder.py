"""The reference decoder, and the comparison with it, which finds every damaged reply."""

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from bridle.ports.codec import HttpRequest
from bridle.providers import load_codec
from bridle.sim.families import find_family
from bridle.testing.conformance.codec_samples import request_for, sample_replies
from bridle.testing.wire.canonical_requests import CANONICAL_FORMS
from bridle.testing.wire.check_recording import decode_recording
from bridle.testing.wire.reference_decoder import split_documents
from bridle.testing.wire.reference_replies import read_reply
from bridle.testing.wire.reply_agreement import find_disagreements
from bridle.testing.wire.request_roundtrip import find_request_differences
from bridle.values.errors import ProviderError
from bridle.values.message import Opaque, Reasoning, Reply, Stop, Text, ToolCall
from bridle.values.model import Endpoint, Model
from bridle.values.request import Request
from tests.wire.wire import corpus

FAMILIES = ["anthropic", "openai-responses", "openai-chat", "gemini", "bedrock-converse"]
SPOILED_EACH = 15
NOTICED_ENOUGH = 40
BODY_BYTES_MAX = 20_000
"""Larger requests show nothing more, and each of their members is taken out."""
LISTS = {"messages", "contents", "input", "content", "parts", "tools", "tool_calls"}


def replies(file):
    """Recorded replies that say something, decoded, each with what a plain reading finds in it."""
    codec = load_codec(file.replace("-", "_"))
    asked = Request(model=Model(id="m", endpoint=Endpoint(name=codec.family, family=codec.family)))
    for recording in corpus(file):
        reply = decode_recording(codec, asked, recording)
        if isinstance(reply, Reply) and recording.is_judged:
            told = read_reply(codec.family, recording.body)
            if told is not None and not list(find_disagreements(told, reply)):
                yield told, reply


def drop_part(reply, kind):
    at = max(place for place, part in enumerate(reply.parts) if isinstance(part, kind))
    return replace(reply, parts=(*reply.parts[:at], *reply.parts[at + 1 :]))


def alter_part(reply, kind, **members):
    at = max(place for place, part in enumerate(reply.parts) if isinstance(part, kind))
    return replace(
        reply, parts=(*reply.parts[:at], replace(reply.parts[at], **members), *reply.parts[at + 1 :])
    )


def swap_counts(reply):
    used = reply.usage
    return replace(reply, usage=replace(used, input=used.output, output=used.input))


SPOILS = {
    "a call dropped": (lambda reply: reply.calls, lambda reply: drop_part(reply, ToolCall), "calls"),
    "a call renamed": (
        lambda reply: reply.calls,
        lambda reply: alter_part(reply, ToolCall, name="x"),
        "calls",
    ),
    "an argument added": (
        lambda reply: reply.calls,
        lambda reply: alter_part(reply, ToolCall, arguments='{"never_said":1}'),
        "calls",
    ),
    "words dropped": (
        lambda reply: reply.text,
        lambda reply: replace(reply, parts=tuple(part for part in reply.parts if not isinstance(part, Text))),
        "text",
    ),
    "a letter added": (
        lambda reply: reply.text,
        lambda reply: replace(reply, parts=(*reply.parts, Text(text="."))),
        "text",
    ),
    "a thought changed": (
        lambda reply: any(isinstance(part, Reasoning) for part in reply.parts),
        lambda reply: alter_part(reply, Reasoning, text="something else entirely"),
        "reasoning",
    ),
    "counts swapped": (lambda reply: reply.usage.input != reply.usage.output, swap_counts, ""),
    "cached counted as new": (
        lambda reply: reply.usage.cache_read,
        lambda reply: replace(
            reply,
            usage=replace(reply.usage, input=reply.usage.prompt, cache_read=0),
        ),
        "cache_read",
    ),
    "another stop": (
        lambda reply: True,
        lambda reply: replace(reply, stop=Stop.DONE if reply.stop is not Stop.DONE else Stop.LENGTH),
        "stop",
    ),
}


@pytest.mark.parametrize("file", FAMILIES)
def test_every_way_to_spoil_a_reply_is_noticed(file):
    spoiled = dict.fromkeys(SPOILS, 0)
    for told, reply in replies(file):
        if min(spoiled.values()) >= SPOILED_EACH:
            break
        for name, (applies, spoil, where) in SPOILS.items():
            if spoiled[name] >= SPOILED_EACH or not applies(reply):
                continue
            if name == "counts swapped" and not told.counts:
                continue
            found = [each.description for each in find_disagreements(told, spoil(reply)) if not each.reason]
            assert any(what.startswith(f"reply {where}") for what in found), (name, reply.id, found)
            spoiled[name] += 1
    assert all(spoiled.values()), spoiled


@pytest.mark.parametrize("file", FAMILIES)
def test_every_member_taken_out_of_a_request_is_noticed(file):
    """Each member of the body, and of what its lists hold, is removed from what we write, one at a time."""
    codec = load_codec(file.replace("-", "_"))
    noticed = 0
    for recording in corpus(file)[::13]:
        if noticed >= NOTICED_ENOUGH:
            break
        if (
            recording.request is None
            or recording.status >= 300
            or len(recording.request.body) > BODY_BYTES_MAX
        ):
            continue
        try:
            ours = codec.encode(codec.decode_request(recording.request))
        except ProviderError:
            continue
        if find_request_differences(codec, recording.request, ours):
            continue
        whole = json.loads(ours.body)
        for spoiled in drop_fields(whole):
            again = replace(ours, body=json.dumps(spoiled).encode())
            if CANONICAL_FORMS[codec.family](again) == CANONICAL_FORMS[codec.family](ours):
                continue  # the provider does not tell them apart
            found = find_request_differences(codec, recording.request, again)
            assert [each for each in found if not each.reason], (recording.id, spoiled)
            noticed += 1
    assert noticed >= NOTICED_ENOUGH


def drop_fields(whole):
    for name, value in whole.items():
        if name not in ("model", "messages", "contents"):
            yield {other: inner for other, inner in whole.items() if other != name}
        if name in LISTS and isinstance(value, list):
            yield from ({**whole, name: value[:at] + value[at + 1 :]} for at in range(1, len(value)))
            for at, item in enumerate(value):
                if isinstance(item, dict):
                    yield from (
                        {**whole, name: [*value[:at], changed, *value[at + 1 :]]}
                        for changed in losses_within(item)
                    )


def losses_within(item):
    for name, value in item.items():
        if isinstance(value, str) and name in ("text", "content", "arguments", "name") and value.strip():
            yield {**item, name: "something else"}


def test_a_reason_excuses_only_what_it_explains():
    """An unpaired call beside an unrelated loss: the one has a reason, the other has none."""
    codec = load_codec("anthropic")
    body = {
        "model": "m",
        "max_tokens": 5,
        "metadata": {"user_id": "u"},
        "messages": [
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "f", "input": {}}]},
            {"role": "user", "content": [{"type": "text", "text": "go on"}, {"type": "text", "text": " "}]},
        ],
    }
    asked = request_with_body(codec, body)
    ours = codec.encode(codec.decode_request(asked))
    found = find_request_differences(codec, asked, ours)
    assert {each.reason.partition(":")[0] for each in found} == {
        "every call has one result",
        "blank text is never sent",
    }
    spoiled = json.loads(ours.body)
    del spoiled["metadata"]
    spoiled["messages"][0]["content"] = "ho"
    left = find_request_differences(codec, asked, replace(ours, body=json.dumps(spoiled).encode()))
    unexplained = [each.description for each in left if not each.reason]
    assert len(unexplained) == 2
    assert any("metadata" in what for what in unexplained)
    assert any("messages[0]" in what for what in unexplained)


def differences_after_a_round_trip(codec, request):
    return find_request_differences(codec, request, codec.encode(codec.decode_request(request)))


def request_with_body(codec, body):
    request = next(each.request for each in corpus(codec.family) if each.request is not None)
    return replace(request, path="/v1/messages", body=json.dumps(body).encode())


def test_a_request_that_survives_has_no_differences():
    codec = load_codec("anthropic")
    body = {"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "hi"}]}
    assert differences_after_a_round_trip(codec, request_with_body(codec, body)) == []


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b'{"a":1}', [("the whole body", {"a": 1})]),
        (b'[{"a":1},{"b":2}]', [("", {"a": 1}), ("", {"b": 2})]),
        (b'data: {"a":1}\n\ndata: [DONE]\n\n', [("", {"a": 1})]),
        (b'event: x\r\ndata:{"a":\r\ndata: 1}\r\n\r\n: hush\r\n\r\n', [("x", {"a": 1})]),
        (b'data: {"a":1}\n\n{"error":\n {"code": 1}}', [("", {"a": 1}), ("", {"error": {"code": 1}})]),
        (b"<html>", []),
        (b"", []),
        (b"\0\0", []),
    ],
)
def test_documents_are_found_however_they_are_framed(body, said):
    assert split_documents(body) == said


def test_the_second_reading_shares_nothing_with_the_codecs():
    folder = Path(read_reply.__code__.co_filename).parent
    paths = list(folder.glob("reference_*.py"))
    assert len(paths) > len(FAMILIES)
    for path in paths:
        assert "providers" not in path.read_text(), path


CONTINUED = Opaque(kind="continuation", native='{"continuationToken":"dG9rZW4="}')


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("stop", Stop)
@pytest.mark.parametrize("file", FAMILIES)
def test_both_readings_know_every_reason_to_stop(file, stop, stream):
    """Also those that no recording has."""
    family = file.replace("-", "_")
    plain, calling, *_ = sample_replies(family)
    pausing = replace(plain, parts=(*plain.parts, CONTINUED)) if family == "gemini" else plain
    for reply in (plain, calling, pausing):
        spoken = find_family(family).encode_reply(replace(reply, stop=stop), stream=stream)
        decoder = load_codec(family).new_decoder(request_for(reply), 200, dict(spoken.headers))
        decoder.feed(b"".join(spoken.frames))
        told = read_reply(family, b"".join(spoken.frames))
        assert told is not None
        assert [each for each in find_disagreements(told, decoder.close()) if not each.reason] == []


# What is new next year, beside what is known today

NEXT_YEAR = {"x_new": [{"q": 1}]}
NEWER = {
    "bedrock_converse": {
        "output": {"message": {"role": "assistant", "content": [
            {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "s"}, **NEXT_YEAR}},
            {"text": "words", **NEXT_YEAR},
            {"toolUse": {"toolUseId": "t", "name": "f", "input": {"a": 1}}, **NEXT_YEAR},
        ]}},
        "stopReason": "tool_use",
        "usage": {"inputTokens": 3.0, "outputTokens": 2.0, "totalTokens": 5.0},
    },
    "gemini": {
        "candidates": [{"finishReason": "STOP", "content": {"role": "model", "parts": [
            {"thought": True, "text": "hm", **NEXT_YEAR},
            {"text": "words", **NEXT_YEAR},
            {"functionCall": {"name": "f", "args": {"a": 1}}, **NEXT_YEAR},
        ]}}],
        "usageMetadata": {"promptTokenCount": 3.0, "candidatesTokenCount": 2.0, "totalTokenCount": 5.0},
    },
    "openai_responses": {
        "object": "response", "id": "r", "status": "completed", "output": [
            {"type": "reasoning", "id": "rs", "summary": [{"type": "summary_text", "text": "hm"}]},
            {"type": "message", "role": "assistant", "content": [
                {"type": "output_text", "text": "words"}, {"type": "hologram", **NEXT_YEAR},
            ]},
            {"type": "function_call", "call_id": "c", "name": "f", "arguments": '{"a": 1}', **NEXT_YEAR},
        ],
        "usage": {"input_tokens": 3.0, "output_tokens": 2.0, "total_tokens": 5.0},
    },
}  # fmt: skip


@pytest.mark.parametrize("family", NEWER)
def test_unknown_fields_hide_no_known_ones(family):
    codec = load_codec(family)
    asked = Request(model=Model(id="m", endpoint=Endpoint(name=family, family=family)))
    decoder = codec.new_decoder(asked, 200, {"content-type": "application/json"})
    decoder.feed(json.dumps(NEWER[family]).encode())
    reply = decoder.close()
    assert reply.text == "words"
    assert [part.text for part in reply.parts if isinstance(part, Reasoning)] == ["hm"]
    assert [(call.name, json.loads(call.arguments)) for call in reply.calls] == [("f", {"a": 1})]
    assert (reply.usage.input, reply.usage.output) == (3, 2)
    told = read_reply(family, json.dumps(NEWER[family]).encode())
    assert list(find_disagreements(told, reply)) == []  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("family", "path", "body"),
    [
        ("anthropic", "/v1/messages", {
            "model": "m", "max_tokens": 4096.0, "top_k": 40.0,
            "tools": [{"name": "f", "input_schema": {"type": "object"}}],
            "tool_choice": {"type": "auto", **NEXT_YEAR},
            "messages": [{"role": "user", "content": "hi"}],
        }),
        ("openai_responses", "/v1/responses", {
            "model": "m", "max_output_tokens": 4096.0, "input": [
                {"role": "user", "content": "hi"},
                {"type": "message", "role": "assistant", "content": [
                    {"type": "output_text", "text": "words"}, {"type": "hologram", **NEXT_YEAR},
                ]},
                {"role": "user", "content": "go on"},
            ],
        }),
        ("gemini", "/v1beta/models/m:generateContent", {
            "contents": [{"role": "user", "parts": [{"text": "hi"}]}],
            "tools": [{"functionDeclarations": [
                {"name": "f", "parameters": {"type": "OBJECT"}, "behaviour": NEXT_YEAR},
            ]}],
        }),
        ("bedrock_converse", "/model/m/converse", {
            "messages": [{"role": "user", "content": [{"text": "hi", **NEXT_YEAR}]}],
            "toolConfig": {
                "tools": [{"toolSpec": {"name": "f", "inputSchema": {"json": {"type": "object"}}}, **NEXT_YEAR}],
                "toolChoice": {"any": {}, **NEXT_YEAR},
            },
        }),
    ],
)  # fmt: skip
def test_requests_keep_unknown_fields(family, path, body):
    asked = HttpRequest(path=path, body=json.dumps(body).encode())
    assert differences_after_a_round_trip(load_codec(family), asked) == []


SAID = {"role": "assistant", "content": [{"type": "text", "text": "hi"}]}
FAILED = {"choices": [{"index": 0, "message": {"content": "x"}, "finish_reason": "error"}]}
EMPTY = {"usageMetadata": {"promptTokenCount": 3, "totalTokenCount": 3}}


@pytest.mark.parametrize(
    ("family", "body", "stop"),
    [
        ("anthropic", {"type": "message", **SAID, "stop_reason": None}, Stop.OTHER),
        ("anthropic", {**SAID, "stop_reason": "end_turn"}, Stop.DONE),
        ("gemini", EMPTY, Stop.OTHER),
        ("openai_chat", FAILED, None),
    ],
)
def test_both_readers_find_a_reply_or_neither_does(family, body, stop):
    codec, data = load_codec(family), json.dumps(body).encode()
    decoder = codec.new_decoder(
        Request(model=Model(id="m", endpoint=Endpoint(name="here", family=family))), 200, {}
    )
    decoder.feed(data)
    told = read_reply(family, data)
    if stop is None:
        assert told is None
        with pytest.raises(ProviderError):
            decoder.close()
    else:
        reply = decoder.close()
        assert told is not None
        assert reply.stop is stop
        assert list(find_disagreements(told, reply)) == []


@pytest.mark.parametrize(
    ("family", "body"),
    [
        (
            "gemini",
            {
                "candidates": [{"content": {"parts": [{"text": "x"}]}, "finishReason": "STOP"}],
                "usageMetadata": {"promptTokenCount": 5, "cachedContentTokenCount": 8, "totalTokenCount": 5},
            },
        ),
        (
            "openai_responses",
            {
                "object": "response",
                "status": "completed",
                "output": [{"type": "message", **SAID}],
                "usage": {
                    "input_tokens": 5,
                    "output_tokens": 0,
                    "input_tokens_details": {"cached_tokens": 8},
                },
            },
        ),
    ],
)
def test_more_cached_than_there_is_has_its_reason(family, body):
    codec, data = load_codec(family), json.dumps(body).encode()
    decoder = codec.new_decoder(
        Request(model=Model(id="m", endpoint=Endpoint(name="here", family=family))), 200, {}
    )
    decoder.feed(data)
    found = [
        each
        for each in find_disagreements(read_reply(family, data), decoder.close())  # type: ignore[arg-type]
        if "tokens" in each.description
    ]
    assert found
    assert all("the cached count exceeds" in each.reason for each in found)


FIRST_CALL = {"type": "tool_use", "id": "t1", "name": "f", "input": {"a": 1}}
EMPTY_CALL = {"type": "tool_use", "id": "t2", "name": "g", "input": {}}


def cut_reply(*calls):
    """A whole reply that ends at its limit, by both readers."""
    body = {"type": "message", "role": "assistant", "content": calls, "stop_reason": "max_tokens"}
    data = json.dumps(body).encode()
    asked = Request(model=Model(id="m", endpoint=Endpoint(name="here", family="anthropic")))
    decoder = load_codec("anthropic").new_decoder(asked, 200, {})
    decoder.feed(data)
    return read_reply("anthropic", data), decoder.close()


def test_a_last_call_cut_before_its_arguments_has_its_reason():
    told, reply = cut_reply(FIRST_CALL, EMPTY_CALL)
    assert [call.arguments for call in reply.calls] == ['{"a": 1}', ""]
    (found,) = find_disagreements(told, reply)
    assert found.description.startswith("reply calls")
    assert "cut before the arguments of its last call" in found.reason


@pytest.mark.parametrize(
    "spoil",
    [
        lambda reply: replace(reply, stop=Stop.TOOLS),
        lambda reply: alter_part(reply, ToolCall, name="x"),
        lambda reply: alter_part(reply, ToolCall, arguments='{"never_said":1}'),
        lambda reply: drop_part(reply, ToolCall),
        lambda reply: replace(reply, parts=(replace(reply.parts[0], arguments=""), *reply.parts[1:])),
    ],
    ids=["not cut", "renamed", "with arguments", "dropped", "another call empty"],
)
def test_that_reason_excuses_nothing_else(spoil):
    told, reply = cut_reply(FIRST_CALL, EMPTY_CALL)
    found = [each for each in find_disagreements(told, spoil(reply)) if "calls" in each.description]
    assert [each.reason for each in found] == [""]
