"""Oddities of real streams and of gateways in front of them: each gives the reply of the clean stream."""

import json
from typing import Any

import pytest

from bridle.providers.wire.eventstream import encode_event, encode_frame
from bridle.values.message import Reasoning, Reply, Stop, Text, ToolCall
from bridle.values.usage import Usage
from tests.providers.bedrock.bedrock_replies import HERE, WIRE, stream

CLEAN: list[Any] = [
    ("messageStart", {"role": "assistant"}),
    ("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"reasoningContent": {"text": "hm"}}}),
    ("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"reasoningContent": {"signature": "sig"}}}),
    ("contentBlockStop", {"contentBlockIndex": 0}),
    ("contentBlockDelta", {"contentBlockIndex": 1, "delta": {"text": "To"}}),
    ("contentBlockDelta", {"contentBlockIndex": 1, "delta": {"text": "kyo"}}),
    ("contentBlockStop", {"contentBlockIndex": 1}),
    ("contentBlockStart", {"contentBlockIndex": 2, "start": {"toolUse": {"toolUseId": "t", "name": "look"}}}),
    ("contentBlockDelta", {"contentBlockIndex": 2, "delta": {"toolUse": {"input": '{"a": 1}'}}}),
    ("contentBlockStop", {"contentBlockIndex": 2}),
    ("messageStop", {"stopReason": "tool_use"}),
    (
        "metadata",
        {"usage": {"inputTokens": 3, "outputTokens": 2, "totalTokens": 5}, "metrics": {"latencyMs": 1}},
    ),
]
REPLY = Reply(
    parts=(
        Reasoning(text="hm", signature="sig"),
        Text(text="Tokyo"),
        ToolCall(id="", name="look", arguments='{"a": 1}', wire_id="t"),
    ),
    stop=Stop.TOOLS,
    origin=HERE,
    usage=Usage(input=3, output=2),
    id="r-1",
    stop_detail="tool_use",
)


def join_events(events):
    return stream(*events)


def drop_events(*names):
    return [(name, event) for name, event in CLEAN if name not in names]


def insert_events(at, *events):
    return [*CLEAN[:at], *events, *CLEAN[at:]]


def replace_event(at, event):
    return [*CLEAN[:at], (CLEAN[at][0], event), *CLEAN[at + 1 :]]


def start(index, **block):
    return "contentBlockStart", {"contentBlockIndex": index, "start": block}


TYPED = {"toolUseId": "t", "name": "look", "type": "tool_use"}
TWICE = {
    "cacheReadInputTokens": 0,
    "cacheReadInputTokenCount": 0,
    "serverToolUsage": {},
    "cacheDetails": None,
}
WITH_CHARSET = [
    (":message-type", "event"),
    (":event-type", "messageStop"),
    (":content-type", "application/json; x"),
]

QUIRKS = {
    "padding in every event": join_events([(name, {**event, "p": "abcdefgh"}) for name, event in CLEAN]),
    "no messageStart": join_events(drop_events("messageStart")),
    "no contentBlockStop": join_events(drop_events("contentBlockStop")),
    "an empty start for words": join_events(insert_events(4, start(1))),
    "a null start for words": join_events(
        insert_events(4, ("contentBlockStart", {"contentBlockIndex": 1, "start": None}))
    ),
    "counts before the end": join_events([*CLEAN[:-2], CLEAN[-1], CLEAN[-2]]),
    "input that begins with nothing": join_events(
        insert_events(8, ("contentBlockDelta", {"contentBlockIndex": 2, "delta": {"toolUse": {"input": ""}}}))
    ),
    "input in a start that is replaced": join_events(
        replace_event(
            7, {"contentBlockIndex": 2, "start": {"toolUse": {"toolUseId": "t", "name": "look", "input": {}}}}
        )
    ),
    "a call with a type": join_events(
        replace_event(7, {"contentBlockIndex": 2, "start": {"toolUse": TYPED}})
    ),
    "nulls beside what is said": join_events(
        replace_event(4, {"contentBlockIndex": 1, "delta": {"text": "To", "toolUse": None}, "role": None})
    ),
    "words that say nothing": join_events(
        insert_events(5, ("contentBlockDelta", {"contentBlockIndex": 1, "delta": {"text": ""}}))
    ),
    "counts twice under two names": join_events(
        replace_event(11, {"usage": {"inputTokens": 3, "outputTokens": 2, "totalTokens": 5, **TWICE}})
    ),
    "counts without metrics": join_events(
        replace_event(11, {"usage": {"inputTokens": 3, "outputTokens": 2}})
    ),
    "an event nobody knows": join_events(
        insert_events(6, ("ping", {}), ("contentBlockNews", {"contentBlockIndex": 1}))
    ),
    "an event without a payload": join_events(CLEAN[:6])
    + encode_frame([(":event-type", "ping")], b"")
    + join_events(CLEAN[6:]),
    "headers in another order": join_events(CLEAN[:10])
    + encode_frame(WITH_CHARSET, json.dumps(CLEAN[10][1]).encode())
    + join_events(CLEAN[11:]),
    "numbers that do not begin at nought": join_events(
        [
            (name, {**event, "contentBlockIndex": event["contentBlockIndex"] * 3 + 5})
            if "contentBlockIndex" in event
            else (name, event)
            for name, event in CLEAN
        ]
    ),
    "an attempt that was given up": join_events([*CLEAN[:6], *CLEAN]),
    "blank space around JSON": b"".join(
        encode_event(name, b"  " + json.dumps(event, indent=1).encode() + b"\n") for name, event in CLEAN
    ),
    "more after the end": join_events(
        [*CLEAN, ("messageStart", {}), ("contentBlockStop", {"contentBlockIndex": 9})]
    ),
    "the whole reply where a stream was asked for": WIRE.server.encode_reply(REPLY, stream=False).frames[0],
    "a byte order mark": b"\xef\xbb\xbf" + WIRE.server.encode_reply(REPLY, stream=False).frames[0],
}


@pytest.mark.parametrize("name", QUIRKS)
@pytest.mark.parametrize(
    "headers", [WIRE.headers, {"x-amzn-requestid": "r-1"}], ids=["headers", "no content type"]
)
def test_the_reply_is_that_of_the_clean_stream(name, headers):
    for size in (1, 37, 100_000):
        assert WIRE.decode(QUIRKS[name], headers=headers, size=size)[0] == REPLY


def test_the_clean_stream_is_clean():
    reply, deltas = WIRE.decode(join_events(CLEAN))
    assert (reply, len(deltas)) == (REPLY, 5)
