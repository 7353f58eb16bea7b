"""What servers of the Responses wire do differently: the reply must be that of the clean stream.

Each fixture is a habit of some real server or of some proxy in between, named by what it does.
"""

import json
from itertools import count

import pytest
from msgspec.structs import replace

from bridle.values.message import Reasoning, Text, ToolCall
from bridle.values.result import TextDelta
from tests.providers.openai_responses.openai_responses_replies import WIRE

WORDS = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "It is warm."}]}
CALL = {"type": "function_call", "call_id": "call_1", "name": "look", "arguments": '{"a":1}'}
USED = {"input_tokens": 9, "output_tokens": 5}


def event(kind, **more):
    return {"type": f"response.{kind}", **more}


def response_event(*items, **more):
    return event(
        "completed",
        response={"id": "r", "status": "completed", "model": "m", "output": items, "usage": USED, **more},
    )


CLEAN = [
    event("created", response={"id": "r", "status": "in_progress", "output": []}),
    event("in_progress", response={"id": "r", "status": "in_progress", "output": []}),
    event("output_item.added", output_index=0, item={**WORDS, "content": []}),
    event("content_part.added", output_index=0, content_index=0, part={"type": "output_text", "text": ""}),
    event("output_text.delta", output_index=0, content_index=0, delta="It is "),
    event("output_text.delta", output_index=0, content_index=0, delta="warm."),
    event("output_text.done", output_index=0, content_index=0, text="It is warm."),
    event("content_part.done", output_index=0, content_index=0, part=WORDS["content"][0]),
    event("output_item.done", output_index=0, item=WORDS),
    event("output_item.added", output_index=1, item={**CALL, "arguments": ""}),
    event("function_call_arguments.delta", output_index=1, delta='{"a":'),
    event("function_call_arguments.delta", output_index=1, delta="1}"),
    event("function_call_arguments.done", output_index=1, arguments='{"a":1}'),
    event("output_item.done", output_index=1, item=CALL),
    response_event(WORDS, CALL),
]


def select_events(*kinds):
    return [each for each in CLEAN if each["type"].removeprefix("response.") in kinds]


def drop_events(*kinds):
    return [each for each in CLEAN if each["type"].removeprefix("response.") not in kinds]


def with_each(change):
    return [change(dict(each)) for each in CLEAN]


def drop(name):
    return with_each(lambda each: {key: value for key, value in each.items() if key != name})


def frames(events, template=b"event: %b\ndata: %b\n\n"):
    return b"".join(
        template % (each["type"].encode(), json.dumps(each).encode())
        if template.count(b"%b") == 2
        else template % json.dumps(each).encode()
        for each in events
    )


NUMBERS = count()


def rotating(each):
    """Every mention of an item under a new id."""
    if "item" in each and each["type"] != "response.output_item.done":
        each["item"] = {**each["item"], "id": f"id_{next(NUMBERS)}"}
    return {**each, "item_id": f"id_{next(NUMBERS)}"}


QUIRKS = {
    "the clean stream": frames(CLEAN),
    "no names in front of events": frames(CLEAN, b"data: %b\n\n"),
    "no space after the colon": frames(CLEAN, b"event:%b\ndata:%b\n\n"),
    "lines end in CRLF": frames(CLEAN, b"event: %b\r\ndata: %b\r\n\r\n"),
    "lines end in CR": frames(CLEAN, b"event: %b\rdata: %b\r\r"),
    "a byte order mark": b"\xef\xbb\xbf" + frames(CLEAN),
    "a sentinel at the end": frames(CLEAN) + b"data: [DONE]\n\n",
    "no blank line at the end": frames(CLEAN).rstrip(b"\n"),
    "comments between events": frames(CLEAN, b": PROCESSING\n\nevent: %b\ndata: %b\n\n"),
    "ids and retry fields": frames(CLEAN, b"id: 7\nretry: 100\nevent: %b\ndata: %b\n\n"),
    "blank lines in front": b"\n\n" + frames(CLEAN),
    "names that contradict the data": frames(CLEAN, b"event: message\ndata: %b\n\n"),
    "padding": frames(with_each(lambda each: {**each, "obfuscation": "x" * 13})),
    "keepalives that take a number": frames(
        [*CLEAN[:5], {"type": "keepalive", "sequence_number": 5}, {"type": "ping", "cost": "0"}, *CLEAN[5:]]
    ),
    "events of next year": frames([*CLEAN[:3], event("tomorrow.delta", delta="?"), *CLEAN[3:]]),
    "unknown members everywhere": frames(with_each(lambda each: {**each, "billing": {}, "new": [1]})),
    "ids that change with every mention": frames(with_each(rotating)),
    "an empty output at the end": frames([*CLEAN[:-1], response_event()]),
    "a null output at the end": frames([*CLEAN[:-1], response_event(output=None)]),
    "nothing but the end": frames(CLEAN[-1:]),
    "no beginning": frames(CLEAN[2:]),
    "no pieces of words": frames(drop_events("output_text.delta")),
    "no pieces of arguments": frames(drop_events("function_call_arguments.delta")),
    "no pieces at all": frames(select_events("created", "output_item.added", "output_item.done", "completed")),
    "items that are never done": frames(drop_events("output_item.done")),
    "items that are never announced": frames(drop_events("output_item.added", "content_part.added")),
    "nothing but pieces": frames(
        [*drop_events("output_item.done", "output_text.done", "function_call_arguments.done")[:-1], response_event()]
    ),
    "wholes, and an empty end": frames([*drop_events("output_item.done", "output_text.delta")[:-1], response_event()]),
    "no places": frames([*drop("output_index")[:-1], response_event()]),
    "every place is nought": frames(
        [*with_each(lambda each: {**each, "output_index": 0})[:-1], response_event()]
    ),
    "items that overlap": frames([*CLEAN[:5], CLEAN[9], *CLEAN[5:9], *CLEAN[10:]]),
    "items done out of order": frames([*CLEAN[:8], *CLEAN[9:14], CLEAN[8], response_event()]),
    "an item done twice": frames([*CLEAN[:9], CLEAN[8], *CLEAN[9:14], response_event()]),
    "a status nobody documented": frames([*CLEAN[:-1], response_event(WORDS, CALL, status="complete")]),
    "no status": frames([*CLEAN[:-1], response_event(WORDS, CALL, status=None)]),
    "arguments as an object": frames([*CLEAN[:-1], response_event(WORDS, {**CALL, "arguments": {"a": 1}})]),
    "nulls where members could be absent": frames(
        [*CLEAN[:-1], response_event({**WORDS, "status": None, "phase": None}, {**CALL, "namespace": None})]
    ),
    "usage with nulls": frames(
        [*CLEAN[:-1], response_event(WORDS, CALL, usage={**USED, "input_tokens_details": None, "cost": 0.1})]
    ),
    "more after the end": frames([*CLEAN, CLEAN[4], response_event()]),
    "JSON though a stream was asked for": json.dumps(CLEAN[-1]["response"]).encode(),
    "JSON with a blank in front": b"\n " + json.dumps(CLEAN[-1]["response"]).encode(),
    "data on several lines": frames(CLEAN).replace(b', "delta"', b',\ndata: "delta"'),
}  # fmt: skip


@pytest.mark.parametrize("name", QUIRKS)
def test_the_reply_is_that_of_the_clean_stream(name):
    body = QUIRKS[name]
    reply, _ = WIRE.decode(body)
    clean, _ = WIRE.decode(QUIRKS["the clean stream"])
    assert replace(reply, stop_detail="") == replace(clean, stop_detail="")
    assert reply.parts == (
        Text(text="It is warm."),
        ToolCall(id="", name="look", arguments='{"a":1}', wire_id="call_1"),
    )
    for size in (1, 3, 50):
        assert WIRE.decode(body, size=size)[0] == reply


SHOWN_AT_ONCE = {name for name in QUIRKS if name.startswith(("JSON", "nothing but the end"))}
SHOWN_AT_ONCE |= {"no pieces at all"}


@pytest.mark.parametrize("name", sorted(QUIRKS.keys() - SHOWN_AT_ONCE))
def test_the_words_are_shown_on_the_way(name):
    _, deltas = WIRE.decode(QUIRKS[name])
    assert "".join(delta.text for delta in deltas if isinstance(delta, TextDelta)) == "It is warm."


def test_there_are_enough_of_them():
    assert len(QUIRKS) > 25


def test_reasoning_told_raw_is_kept_where_it_stood():
    raw = {
        "type": "reasoning",
        "id": "rs",
        "summary": [],
        "content": [{"type": "reasoning_text", "text": "Hm, so."}],
    }
    events = [
        event("output_item.added", output_index=0, item={"type": "reasoning", "id": "rs", "summary": []}),
        event("reasoning_part.added", output_index=0, content_index=0, part={"type": "reasoning_text"}),
        event("reasoning_text.delta", output_index=0, content_index=0, delta="Hm, "),
        event("reasoning_text.delta", output_index=0, content_index=0, delta="so."),
        event("reasoning_text.done", output_index=0, content_index=0, text="Hm, so."),
        event("output_item.done", output_index=0, item=raw),
        response_event(raw),
    ]
    reply, deltas = WIRE.decode(frames(events))
    assert reply.parts == (
        Reasoning(text="Hm, so.", native='{"id":"rs","lengths":{"summary":[],"content":[7]}}'),
    )
    assert [delta.reasoning for delta in deltas] == ["Hm, ", "so."]
