"""Replies of Bedrock Converse, for tests: made of events and blocks."""

import json
from base64 import b64encode

from bridle.providers.wire.eventstream import encode_event, encode_frame
from bridle.values.errors import Failure
from bridle.values.message import Media, Opaque, Reasoning, Reply, Stop, Text, ToolCall
from bridle.values.model import Origin
from bridle.values.result import CallReady, ReasoningDelta, TextDelta, ToolCallDelta
from bridle.values.usage import Usage
from tests.providers.bedrock.bedrock_requests import OWN_REQUESTS
from tests.providers.kit.decode_kit import DecodeCases, Sample, slice_body
from tests.providers.kit.wire_kit import Wire

WIRE = Wire(
    "bedrock_converse",
    "maker.x",
    {"content-type": "application/vnd.amazon.eventstream", "x-amzn-requestid": "r-1"},
)
BEGIN = ("messageStart", {"role": "assistant", "p": "abc"})
COUNTS = {"inputTokens": 11, "outputTokens": 5, "totalTokens": 16}


def stream(*events):
    return b"".join(encode_event(name, json.dumps(event).encode()) for name, event in events)


def exception(name, **said):
    kind = [(":exception-type", name), (":content-type", "application/json"), (":message-type", "exception")]
    return encode_frame(kind, json.dumps(said).encode())


def start(index, **block):
    return "contentBlockStart", {"contentBlockIndex": index, "start": block, "p": "ab"}


def delta(index, **said):
    return "contentBlockDelta", {"contentBlockIndex": index, "delta": said, "p": "abcdef"}


def stop(index):
    return "contentBlockStop", {"contentBlockIndex": index, "p": "a"}


def message_stop(reason="end_turn", **more):
    return "messageStop", {"stopReason": reason, **more}


def usage_metadata(**counts):
    return "metadata", {"metrics": {"latencyMs": 9}, "usage": {**COUNTS, **counts}}


def stream_message(*events, reason="end_turn"):
    return stream(BEGIN, *events, message_stop(reason), usage_metadata())


def message(*content, reason="end_turn", **more):
    output = {"message": {"role": "assistant", "content": content}}
    said = {"output": output, "stopReason": reason, "usage": COUNTS, **more}
    return json.dumps(said, ensure_ascii=False).encode()


# For the kit

ORIGIN = Origin(family="bedrock_converse", endpoint="bedrock_converse", model="model-1")
HERE = Origin(family="bedrock_converse", endpoint="here", model="maker.x")
SERVER_CALL = '{"toolUse":{"input":{"q":1},"name":"code","toolUseId":"s","type":"server_tool_use"}}'
SERVER_RESULT = '{"toolResult":{"content":[{"json":{"out":"1"}}],"status":"success","toolUseId":"s","type":"code_result"}}'
OWN_REPLIES = (
    Reply(
        parts=(
            Reasoning(text="Let me think…", signature="c2ln"),
            Reasoning(text="", signature="only signed"),
            Reasoning(text="not signed"),
            Reasoning(signature="YmxvYg==", redacted=True),
            Opaque(kind="toolUse", native=SERVER_CALL),
            Opaque(kind="toolResult", native=SERVER_RESULT),
            Text(
                text="As it says", native='{"citationsContent":{"citations":[{"title":"t"},{"source":"s"}]}}'
            ),
            Opaque(kind="citationsContent", native='{"citationsContent":{"citations":[{"location":{}}]}}'),
            Opaque(kind="tomorrow", native='{"tomorrow":{"x":[null,1.5]}}'),
            Media(kind="image", media_type="image/png", data="aGk="),
            ToolCall(id="", name="a", arguments='{"x": 1}', wire_id="t1", native='{"mood":"fine"}'),
            Text(text=""),
        ),
        stop=Stop.TOOLS,
        origin=ORIGIN,
        usage=Usage(input=1, cache_read=2, cache_write=7, output=30, cache_write_1h=4),
        id="r-1",
        stop_detail="tool_use",
    ),
    Reply(
        parts=(ToolCall(id="", name="a", arguments='{"x": "cut of', wire_id="t1"),),
        stop=Stop.LENGTH,
        origin=ORIGIN,
        id="r-1",
        usage=Usage(incomplete=True),
    ),
    *(
        Reply(parts=(Text(text="x"),), stop=stop, origin=ORIGIN, id="r-1", stop_detail=detail)
        for stop, detail in (
            (Stop.REFUSED, "content_filtered"),
            (Stop.FILTERED, "guardrail_intervened"),
            (Stop.DONE, "stop_sequence: END: now"),
            (Stop.MALFORMED, "malformed_tool_use"),
            (Stop.CONTEXT, "model_context_window_exceeded"),
            (Stop.OTHER, "tomorrow"),
        )
    ),
)
CITIES = ("Tōkyō", "Ōsaka", "Kyōto")
CALLS = tuple(
    ToolCall(id="", name="look", arguments=f'{{"city": "{city}"}}', wire_id=f"t{index}")
    for index, city in enumerate(CITIES, 2)
)
SAMPLE_EVENTS = (
    BEGIN,
    delta(0, reasoningContent={"text": "hm"}),
    delta(0, reasoningContent={"text": "m"}),
    delta(0, reasoningContent={"signature": "si"}),
    delta(0, reasoningContent={"signature": "g"}),
    stop(0),
    delta(1, text="Let me "),
    delta(1, text="look."),
    stop(1),
    *(
        event
        for index, city in enumerate(CITIES, 2)
        for event in (
            start(index, toolUse={"toolUseId": f"t{index}", "name": "look", "type": "tool_use"}),
            delta(index, toolUse={"input": ""}),
            delta(index, toolUse={"input": '{"city": '}),
            delta(index, toolUse={"input": f'"{city}"}}'}),
            stop(index),
        )
    ),
    message_stop("tool_use"),
)
UNKNOWN = stream_message(
    ("tomorrow", {"x": 1}),
    start(0, tomorrow={"x": 1}),
    start(1),
    delta(1, text="plain"),
    delta(2, tomorrow={"x": "a", "y": [1]}),
    delta(2, tomorrow={"x": "b", "y": [2]}),
    delta(3, news="a"),
    delta(3, news="b"),
    stop(9),
    reason="tomorrow",
)
CACHED = {
    "cacheReadInputTokenCount": 7,
    "cacheWriteInputTokens": 5,
    "cacheWriteInputTokenCount": 5,
    "cacheDetails": [{"ttl": "1h", "inputTokens": 2}, {"ttl": "5m", "inputTokens": 3}],
}
PIECES = [b64encode(data).decode() for data in (b"a", b"bc", b"def")]
RICH = (
    BEGIN,
    delta(0, reasoningContent={"text": "hm"}),
    delta(0, reasoningContent={"signature": "sig"}),
    delta(1, reasoningContent={"redactedContent": "YQ=="}),
    delta(2, text="Tōkyō"),
    delta(2, citation={"title": "t"}),
    start(3, toolUse={"toolUseId": "t", "name": "look", "type": "tool_use"}),
    delta(3, toolUse={"input": '{"a": 1}'}),
    start(4, toolResult={"toolUseId": "t", "status": "success"}),
    delta(4, toolResult=[{"text": "x"}]),
    start(5, image={"format": "png"}),
    delta(5, image={"source": {"bytes": "YQ=="}}),
    delta(6, tomorrow={"x": 1}),
    stop(6),
    message_stop("max_tokens", additionalModelResponseFields={"stop_sequence": None}),
    usage_metadata(cacheDetails=[{"ttl": "1h", "inputTokens": 2}]),
)


def join_pieces(pieces):
    """Put damaged payloads into intact frames, or no damage would get past the checksums."""
    if len(pieces) == 1:
        return pieces[0]
    frames = (each.partition(b"\0") for each in pieces)
    return b"".join(encode_event(name.decode(errors="replace")[:99], payload) for name, _, payload in frames)


def say(text):
    return message({"text": text}), stream_message(delta(0, text=text))


def call(pieces, reason):
    begun = start(0, toolUse={"toolUseId": "t", "name": "look"})
    return stream_message(begun, *(delta(0, toolUse={"input": each}) for each in pieces), reason=reason)


def stop_because(reason, fields):
    return message(reason=reason, additionalModelResponseFields=fields)


SPELLED = '{"b": 1.50,  "a":"\\u00e9"}'
USED = {"toolUseId": "t", "name": "a"}
DECODE = DecodeCases(
    wire=WIRE,
    replies=OWN_REPLIES,
    requests=OWN_REQUESTS,
    samples=(
        Sample(
            body=stream(*SAMPLE_EVENTS, usage_metadata()),
            whole=message(
                {"reasoningContent": {"reasoningText": {"text": "hmm", "signature": "sig"}}},
                {"text": "Let me look."},
                *(
                    {"toolUse": {"toolUseId": f"t{index}", "name": "look", "input": {"city": city}}}
                    for index, city in enumerate(CITIES, 2)
                ),
                reason="tool_use",
            ),
            reply=Reply(
                parts=(Reasoning(text="hmm", signature="sig"), Text(text="Let me look."), *CALLS),
                stop=Stop.TOOLS,
                stop_detail="tool_use",
                origin=HERE,
                usage=Usage(input=11, output=5),
                id="r-1",
            ),
            deltas=(
                ReasoningDelta(reasoning="hm"),
                ReasoningDelta(reasoning="m"),
                TextDelta(text="Let me "),
                TextDelta(text="look."),
                *(
                    shown
                    for at, made in enumerate(CALLS)
                    for shown in (
                        ToolCallDelta(index=at + 2, name="look", arguments='{"city": '),
                        ToolCallDelta(index=at + 2, name="look", arguments=made.arguments[9:]),
                        CallReady(index=at, call=made),
                    )
                ),
            ),
            tail=len(stream(usage_metadata())),
        ),
    ),
    say=say,
    torn=stream(BEGIN)
    + b"".join(
        encode_event("contentBlockDelta", b'{"contentBlockIndex":0,"delta":{"text":"%b"}}' % half)
        for half in (b"X", b"\\ud83d", b"\\ude00")
    )
    + stream(message_stop()),
    partial=stream(BEGIN, delta(0, text="half a")),
    arguments=[
        ([call([], "tool_use"), call(["", ""], "tool_use"), message({"toolUse": USED})], "{}"),
        ([call([], "max_tokens")], ""),
        ([call(['{"a": "b'], "max_tokens")], '{"a": "b'),
        (
            [
                call([SPELLED], "tool_use"),
                message({"toolUse": {**USED, "input": {"b": 1}}}).replace(b'{"b": 1}', SPELLED.encode()),
            ],
            SPELLED,
        ),
    ],
    stops=[
        ([UNKNOWN], Stop.OTHER, "tomorrow"),
        ([stop_because("stop_sequence", {"stop_sequence": "END"})], Stop.DONE, "stop_sequence: END"),
        ([stop_because("stop_sequence", {"delta": {"stop_sequence": "X"}})], Stop.DONE, "stop_sequence: X"),
        ([stop_because("stop_sequence", {"delta": {"stop_sequence": None}})], Stop.DONE, "stop_sequence"),
        (
            [message(reason="guardrail_intervened", trace={"guardrail": {"actionReason": "Blocked."}})],
            Stop.FILTERED,
            "guardrail_intervened: Blocked.",
        ),
        (
            [message(reason="end_turn", trace={"guardrail": {"actionReason": "No action."}})],
            Stop.DONE,
            "end_turn",
        ),
    ],
    counts=[
        (
            [stream(BEGIN, message_stop(), usage_metadata(**CACHED)), message(usage={**COUNTS, **CACHED})],
            Usage(input=11, cache_read=7, cache_write=5, output=5, cache_write_1h=2),
        ),
        ([message(usage=None)], Usage(incomplete=True)),
        ([message(usage={"inputTokens": -1, "outputTokens": True})], Usage()),
        (
            [stream(BEGIN, message_stop()), stream(BEGIN, message_stop(), usage_metadata())[:-1]],
            Usage(incomplete=True),
        ),
        ([stream(BEGIN, usage_metadata(), message_stop())], Usage(input=11, output=5)),
    ],
    same={
        "unknown": (
            [UNKNOWN],
            (
                Text(text="plain"),
                Opaque(kind="tomorrow", native='{"tomorrow":{"x":"ab","y":[1,2]}}'),
                Opaque(kind="news", native='{"news":"ab"}'),
            ),
        ),
        "unknown, whole": (
            [message({"type": "text", "text": "x"}, {"a": 1, "b": 2}, {"reasoningContent": {}}, {})],
            (
                Text(text="x"),
                Opaque(kind="a", native='{"a":1,"b":2}'),
                Opaque(kind="reasoningContent", native='{"reasoningContent":{}}'),
                Opaque(kind="", native="{}"),
            ),
        ),
        "bytes in pieces": (
            [
                stream_message(
                    *(delta(0, reasoningContent={"redactedContent": piece}) for piece in PIECES),
                    start(1, image={"format": "png"}),
                    *(delta(1, image={"source": {"bytes": piece}}) for piece in PIECES),
                )
            ],
            (
                Reasoning(signature=b64encode(b"abcdef").decode(), redacted=True),
                Media(kind="image", media_type="image/png", data=b64encode(b"abcdef").decode()),
            ),
        ),
        "begun again": (
            [
                stream(
                    BEGIN, delta(0, text="no"), BEGIN, delta(0, text="yes"), message_stop(), usage_metadata()
                )
            ],
            (Text(text="yes"),),
        ),
    },
    broken=stream(BEGIN, delta(0, text="x"))
    + exception("throttlingException", message="Too many tokens, please wait before trying again."),
    failure=Failure(
        kind="rate_limited",
        message="Too many tokens, please wait before trying again.",
        status=200,
        code="throttlingException",
    ),
    no_replies=[
        (b'{"output":{"message":{"con', "cut"),
        (b"upstream error", "garbled"),
        (b'{"output":{}}', "garbled"),
        (b'{"output":{"message":{"content":"words"}}}', "garbled"),
        (b'{"output":{"message":{"content":[1]}}}', "garbled"),
        (b"null", "garbled"),
        (b'{"message":"Something broke."}', "server"),
        (b'{"__type":"a.b#ThrottlingException","message":"slow"}', "rate_limited"),
        (stream(BEGIN), "cut"),
        (stream(BEGIN, delta(0, text="x"), stop(0)), "cut"),
        (stream(BEGIN, delta(0, text="x"), stop(0), usage_metadata()), "cut"),
        (stream(BEGIN)[:-3], "cut"),
        (stream(BEGIN) + encode_event("contentBlockDelta", b"{broken") + stream(message_stop()), "garbled"),
        (stream(BEGIN) + encode_event("contentBlockDelta", b"[]") + stream(message_stop()), "garbled"),
        (stream(BEGIN, delta(3, toolUse={"input": "{"})), "garbled"),
        (stream(BEGIN, ("contentBlockDelta", {"delta": {"text": "x"}})), "garbled"),
        (
            stream(
                BEGIN,
                delta(0, reasoningContent={"redactedContent": "!"}),
                delta(0, reasoningContent={"redactedContent": "a"}),
                message_stop(),
            ),
            "garbled",
        ),
        (stream(BEGIN)[:20] + b"x" + stream(BEGIN, message_stop())[21:], "garbled"),
    ],
    after_end=(
        stream(BEGIN, delta(0, text="x"), message_stop()),
        (
            stream(delta(0, text="y")),
            stream(BEGIN),
            exception("internalServerException", message="late"),
            encode_event("metadata", b"{broken"),
            b"\x00\x00",
        ),
    ),
    deltas={
        "words": (
            lambda count: slice_body(
                stream(BEGIN, delta(0, text=""))
                + stream(delta(0, text=" hi")) * count
                + stream(message_stop())
            ),
            " hi",
        )
    },
    rich=[
        [name.encode() + b"\0" + json.dumps(event).encode() for name, event in RICH],
        [b"".join(WIRE.server.encode_reply(WIRE.decode(stream(*RICH))[0], stream=False).frames)],
    ],
    join=join_pieces,
)
