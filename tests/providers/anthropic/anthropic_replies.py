"""Replies of Anthropic, for tests: made of events and blocks."""

import json
from typing import Any

from bridle.values.errors import Failure
from bridle.values.message import Opaque, Reasoning, Reply, Stop, Text, ToolCall
from bridle.values.model import Origin
from bridle.values.result import ReasoningDelta, TextDelta, ToolCallDelta
from bridle.values.usage import Usage
from tests.providers.kit.decode_kit import DecodeCases, Sample, slice_body
from tests.providers.kit.wire_kit import Wire

WIRE = Wire("anthropic", "claude-x")
BEGIN: dict[str, Any] = {
    "type": "message_start",
    "message": {"id": "msg_1", "model": "claude-x-2026", "content": [], "usage": {}},
}
END = {"type": "message_stop"}


def stream(*events):
    return b"".join(b"event: x\ndata: " + json.dumps(event).encode() + b"   \n\n" for event in events)


def stream_message(*events):
    return stream(BEGIN, *events, END)


def start(index, **block):
    return {"type": "content_block_start", "index": index, "content_block": block}


def delta(index, **said):
    return {"type": "content_block_delta", "index": index, "delta": said}


def words(index, text):
    return delta(index, type="text_delta", text=text)


def arguments(index, piece):
    return delta(index, type="input_json_delta", partial_json=piece)


def message_delta(reason, usage=None, **more):
    return {"type": "message_delta", "delta": {"stop_reason": reason, **more}, "usage": usage or {}}


def message(*content, **more):
    return json.dumps(
        {"id": "msg_1", "model": "claude-x-2026", "type": "message", "content": content, **more}
    ).encode()


# For the kit

ORIGIN = Origin(family="anthropic", endpoint="anthropic", model="model-1")
CITED = '{"citations":[{"type":"char_location","cited_text":"x"}],"caller":{"type":"direct"}}'
OWN_REPLIES = (
    Reply(
        parts=(
            Reasoning(text="Let me think…", signature="c2ln"),
            Reasoning(text="", signature="only signed"),
            Reasoning(signature="blob", redacted=True),
            Text(text="As it says", native=CITED),
            Opaque(
                kind="server_tool_use",
                native='{"type":"server_tool_use","id":"s","input":{"q":1}}',
                text='[server_tool_use: {"q":1}]',
            ),
            Opaque(kind="tomorrow", native='{"type":"tomorrow","x":[null,1.5]}'),
            ToolCall(
                id="", name="a", arguments='{"x": 1}', wire_id="t1", native='{"caller":{"type":"direct"}}'
            ),
            Text(text=""),
        ),
        stop=Stop.TOOLS,
        origin=ORIGIN,
        usage=Usage(input=1, cache_read=2, cache_write=7, output=30, reasoning=20, cache_write_1h=4),
        id="msg_1",
        stop_detail="tool_use",
    ),
    Reply(
        parts=(ToolCall(id="", name="a", arguments='{"x": "cut of', wire_id="t1"),),
        stop=Stop.LENGTH,
        origin=ORIGIN,
        id="msg_1",
    ),
    *(
        Reply(parts=(Text(text="x"),), stop=stop, origin=ORIGIN, id="msg_1", stop_detail=detail)
        for stop, detail in (
            (Stop.REFUSED, "refusal (cyber): This was refused: policy."),
            (Stop.REFUSED, "refusal: no category"),
            (Stop.DONE, "stop_sequence: END: now"),
            (Stop.PAUSED, "pause_turn"),
            (Stop.CONTEXT, "model_context_window_exceeded"),
            (Stop.PAUSED, "compaction"),
            (Stop.OTHER, "tomorrow"),
        )
    ),
)
USED = {"type": "tool_use", "id": "t", "name": "look", "input": {}}
SAMPLE = stream_message(
    start(0, type="thinking", thinking="", signature=""),
    delta(0, type="thinking_delta", thinking="hm", estimated_tokens=3),
    delta(0, type="signature_delta", signature="sig"),
    {"type": "ping"},
    start(1, type="text", text="Tō"),
    words(1, "kyo"),
    {"type": "content_block_stop", "index": 1},
    start(2, **USED),
    arguments(2, ""),
    arguments(2, '{"a": '),
    arguments(2, "1}"),
    message_delta("tool_use"),
)
UNKNOWN = stream_message(
    {"type": "tomorrow", "x": 1},
    start(0, type="compaction", content=None),
    delta(0, type="compaction_delta", content="so "),
    delta(0, type="compaction_delta", content="far"),
    start(1, type="server_tool_use", id="s", name="n", input={}),
    arguments(1, '{"q": "x"}'),
    start(2, type="text", text="", citations=[]),
    delta(2, type="citations_delta", citation={"n": 1}),
    words(2, "cited"),
    start(3, type="text", text="", citations=None),
    delta(3, type="tomorrow_delta", mood="fine"),
    words(4, "unannounced"),
    message_delta("tomorrow", usage={"output_tokens": None}),
)


ALL: dict[str, Any] = {
    **BEGIN["message"],
    "content": [{"type": "text", "text": "all"}],
    "stop_reason": "tool_use",
}
COMPLETE = stream({"type": "message_start", "message": ALL}, END)


def say(text):
    return message({"type": "text", "text": text}), stream_message(start(0, type="text", text=text))


def call(given, pieces, reason):
    return stream_message(
        start(0, **{**USED, "input": given}), *(arguments(0, each) for each in pieces), message_delta(reason)
    )


def count(usage):
    begun = {"type": "message_start", "message": {**BEGIN["message"], "usage": usage}}
    return message(usage=usage), stream(begun, message_delta("end_turn"), END)


STEPS = [
    {"type": "compaction", "input_tokens": 100, "output_tokens": 10},
    {"type": "message", "input_tokens": 20, "output_tokens": 2, "cache_read_input_tokens": 5},
]
COUNTED = {"input_tokens": 20, "output_tokens": 2, "cache_read_input_tokens": 5}
TOTALS = stream(
    {
        "type": "message_start",
        "message": {
            **BEGIN["message"],
            "usage": {"input_tokens": 10, "output_tokens": 4, "cache_read_input_tokens": 7},
        },
    },
    message_delta(
        "end_turn", usage={"output_tokens": 9, "input_tokens": 12, "cache_read_input_tokens": None}
    ),
    message_delta(
        "end_turn",
        usage={
            "output_tokens": 30,
            "output_tokens_details": {"thinking_tokens": 20},
            "cache_creation": {"ephemeral_5m_input_tokens": 3, "ephemeral_1h_input_tokens": 2},
        },
    ),
    END,
)
DECODE = DecodeCases(
    wire=WIRE,
    replies=OWN_REPLIES,
    samples=(
        Sample(
            body=SAMPLE,
            whole=message(
                {"type": "thinking", "thinking": "hm", "signature": "sig"},
                {"type": "text", "text": "Tōkyo"},
                {**USED, "input": {"a": 1}},
                stop_reason="tool_use",
                usage={},
            ),
            reply=Reply(
                parts=(
                    Reasoning(text="hm", signature="sig"),
                    Text(text="Tōkyo"),
                    ToolCall(id="", name="look", arguments='{"a": 1}', wire_id="t"),
                ),
                stop=Stop.TOOLS,
                stop_detail="tool_use",
                origin=Origin(family="anthropic", endpoint="here", model="claude-x-2026"),
                usage=Usage(incomplete=True),
                id="msg_1",
            ),
            deltas=(
                ReasoningDelta(reasoning="hm"),
                TextDelta(text="Tō"),
                TextDelta(text="kyo"),
                ToolCallDelta(index=2, name="look", arguments='{"a": '),
                ToolCallDelta(index=2, name="look", arguments="1}"),
            ),
            tail=len(b"   \n\n" + stream(END)),
        ),
    ),
    say=say,
    torn=stream(BEGIN, start(0, type="text", text=""), words(0, "X"))
    + b"".join(stream(words(0, "X")).replace(b"X", half) for half in (b"\\ud83d", b"\\ude00"))
    + stream(message_delta("end_turn"), END),
    partial=stream(BEGIN, start(0, type="text", text=""), words(0, "half a")),
    arguments=[
        ([call({}, [], "tool_use"), call({}, ["", ""], "tool_use")], "{}"),
        ([call({"a": 1}, [], "tool_use")], '{"a": 1}'),
        ([call({}, [], "max_tokens")], ""),
        ([call({}, ['{"a": "b'], "max_tokens")], '{"a": "b'),
        (
            [b'{"content":[{"type":"tool_use","id":"t","name":"a","input":{"b": 1.50,  "a":"\\u00e9"}}]}'],
            '{"b": 1.50,  "a":"\\u00e9"}',
        ),
    ],
    stops=[([UNKNOWN], Stop.OTHER, "tomorrow"), ([COMPLETE], Stop.TOOLS, "tool_use")],
    counts=[
        ([TOTALS], Usage(input=12, cache_read=7, cache_write=5, output=30, reasoning=20, cache_write_1h=2)),
        ([message(usage={**COUNTED, "iterations": STEPS})], Usage(input=120, output=12, cache_read=5)),
        ([message(usage={**COUNTED, "iterations": STEPS[1:]})], Usage(input=20, output=2, cache_read=5)),
        ([*count(None), *count({}), *count("many")], Usage(incomplete=True)),
        (count({"input_tokens": 3}), Usage(input=3, incomplete=True)),
        (count({"output_tokens": 3}), Usage(output=3, incomplete=True)),
    ],
    same={
        "complete when it starts": ([COMPLETE], (Text(text="all"),)),
        "unknown": (
            [UNKNOWN],
            (
                Opaque(kind="compaction", native='{"type":"compaction","content":"so far"}', text="so far"),
                Opaque(
                    kind="server_tool_use",
                    native='{"type":"server_tool_use","id":"s","name":"n","input":{"q":"x"}}',
                    text='[server_tool_use: n; {"q":"x"}]',
                ),
                Text(text="cited", native='{"citations":[{"n":1}]}'),
                Text(text="", native='{"mood":"fine"}'),
                Text(text="unannounced"),
            ),
        ),
        "numbers with a point": (
            [
                stream_message(
                    start(0.0, type="text", text=""),
                    words(0.0, "hi"),
                    start(1.0, **USED),
                    arguments(1.0, '{"x":1}'),
                    {"type": "content_block_stop", "index": 1.0},
                    message_delta("tool_use"),
                )
            ],
            (Text(text="hi"), ToolCall(id="", name="look", arguments='{"x":1}', wire_id="t")),
        ),
    },
    broken=stream(
        BEGIN, {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}, END
    ),
    failure=Failure(kind="overloaded", message="Overloaded", status=200, code="overloaded_error"),
    no_replies=[
        (b'{"content":[{"type":"te', "cut"),
        (b'{"content":"words"}', "garbled"),
        (b"[1]", "garbled"),
        (b'{"type":"error","error":{"type":"api_error","message":"m"}}', "server"),
        (stream(END), "garbled"),
        (stream(BEGIN), "cut"),
        (stream(BEGIN, message_delta(None, {"output_tokens": 3})), "cut"),
        (stream(BEGIN, message_delta("end_turn"), BEGIN), "cut"),
        (stream(BEGIN) + b"data: {broken\n\n" + stream(END), "garbled"),
        (stream(BEGIN, arguments(3, "{")), "garbled"),
        (
            stream(BEGIN, {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "x"}}),
            "garbled",
        ),
        # They may be its arguments: without them the call would run with its defaults.
        (stream(BEGIN, start(0, **USED), words(0, '{"n":1}'), message_delta("tool_use")), "garbled"),
        (stream(BEGIN, start(0, **USED), delta(0, text='{"n":1}'), message_delta("tool_use")), "garbled"),
    ],
    after_end=(
        stream_message(start(0, type="text", text="x")),
        (b"data: [DONE]\n\n", stream({"type": "error", "error": {}}), b": bye\n\n"),
    ),
    deltas={
        "words": (
            lambda count: slice_body(
                stream(BEGIN, start(0, type="text", text="")) + stream(words(0, " hi")) * count + stream(END)
            ),
            " hi",
        )
    },
    rich=[
        [
            stream(each)
            for each in (
                BEGIN,
                start(0, type="thinking", thinking="", signature=""),
                delta(0, type="thinking_delta", thinking="hm"),
                start(1, type="text", text="", citations=[]),
                delta(1, type="citations_delta", citation={"n": 1}),
                words(1, "Tōkyō"),
                start(2, **{**USED, "input": {"a": 1}}),
                arguments(2, '{"a": 1}'),
                start(3, type="fallback"),
                message_delta(
                    "max_tokens",
                    usage={"output_tokens": 3, "iterations": [{"type": "x"}], "cache_creation": {}},
                ),
                END,
            )
        ],
        [message({"type": "text", "text": "Tōkyō"}, USED, usage=COUNTED, stop_reason="tool_use")],
    ],
)
