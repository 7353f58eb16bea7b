"""Replies of Gemini, for tests: made of chunks, and told as JSON or as events."""

import json

from msgspec.structs import replace

from bridle.values.errors import Failure
from bridle.values.message import Media, Opaque, Reasoning, Reply, Stop, Text, ToolCall
from bridle.values.model import Origin
from bridle.values.result import CallReady, ReasoningDelta, TextDelta, ToolCallDelta
from bridle.values.usage import Usage
from tests.providers.kit.decode_kit import DecodeCases, Sample
from tests.providers.kit.wire_kit import Wire

WIRE = Wire("gemini", "gemini-x")
SIGNED = '{"thoughtSignature":"c2ln"}'


def chunk(*parts, finish=None, counts=None, candidate=None, **more):
    said = {"content": {"parts": list(parts), "role": "model"}, **(candidate or {})}
    if finish is not None:
        said["finishReason"] = finish
    return {"candidates": [said], **({"usageMetadata": counts} if counts else {}), **more}


def text(said, **more):
    return {"text": said, **more}


def function_call(name, args=None, **more):
    return {"functionCall": {"name": name, **({} if args is None else {"args": args})}, **more}


def stream(*chunks):
    said = (json.dumps(each, ensure_ascii=False) for each in chunks)
    return b"".join(b"data: " + each.encode() + b"\r\n\r\n" for each in said)


def message(*parts, **more):
    return json.dumps(chunk(*parts, **more), ensure_ascii=False).encode()


def decode_stream(*chunks, **more):
    return WIRE.decode(stream(*chunks), **more)


def decode_message(*parts, **more):
    return WIRE.decode(message(*parts, **more))[0]


def piece(path, more=False, last=False, **value):
    held = {"jsonPath": path, **value, **({"willContinue": True} if more else {})}
    return {"functionCall": {"partialArgs": [held], **({} if last else {"willContinue": True})}}


OPENED = {"functionCall": {"name": "write", "id": "x1", "willContinue": True}, "thoughtSignature": "c2ln"}
PIECES = [
    OPENED,
    piece("$.items[0].name", more=True, stringValue="ap"),
    piece("$.items[0].name", more=True, stringValue="ple"),
    piece("$.items[0].name", stringValue=""),
    piece("$.items[0].price", numberValue=0.5),
    piece("$.items[1]['full name']", stringValue="x.y[0]"),
    piece("$.items[1].gone", nullValue="NULL_VALUE"),
    piece('$["it\\"s"]', boolValue=False),
    piece("$.count", numberValue=3),
    {"functionCall": {}},
]
ARGUMENTS = {
    "items": [{"name": "apple", "price": 0.5}, {"full name": "x.y[0]", "gone": None}],
    'it"s': False,
    "count": 3,
}


# For the kit

ORIGIN = Origin(family="gemini", endpoint="gemini", model="model-1")
USED = Usage(input=4, cache_read=2, output=30, reasoning=20)
OWN_REPLIES = (
    Reply(
        parts=(
            Reasoning(text="Let me think…\n\nAnd again.\n\n\n"),
            Text(text="As I", native=SIGNED),
            Text(text=" said "),
            Text(text="", native=SIGNED),
            Opaque(
                kind="executableCode",
                native='{"executableCode":{"code":"1"},"thoughtSignature":"eA=="}',
                text="[executableCode: 1]",
            ),
            Opaque(
                kind="codeExecutionResult",
                native='{"codeExecutionResult":{"output":"1"}}',
                text="[codeExecutionResult: 1]",
            ),
            Media(kind="image", media_type="image/png", data="AAAA"),
            Opaque(kind="tomorrow", native='{"tomorrow":{"x":[null,1.5]}}'),
            Opaque(
                kind="candidate.fields",
                native='{"groundingMetadata":{"webSearchQueries":["q"]}}',
                text="[search: q]",
            ),
        ),
        stop=Stop.DONE,
        origin=ORIGIN,
        usage=replace(USED, searches=1),
    ),
    Reply(
        parts=(
            Reasoning(text="signed thought", signature="cw=="),
            Reasoning(signature="b25seQ=="),
            ToolCall(id="", name="look", arguments='{"n": 1.50}', native=SIGNED),
            ToolCall(id="", name="look", arguments='{"cut', wire_id="x1"),
        ),
        stop=Stop.TOOLS,
        origin=ORIGIN,
        usage=USED,
        stop_detail="STOP: Model generated function call(s).",
    ),
    Reply(
        parts=(Text(text="half a no"), Opaque(kind="continuation", native='{"continuationToken":"dG9r"}')),
        stop=Stop.PAUSED,
        origin=ORIGIN,
        usage=USED,
    ),
    Reply(parts=(), stop=Stop.REFUSED, origin=ORIGIN, stop_detail="blockReason SAFETY: no"),
    Reply(parts=(), stop=Stop.MALFORMED, origin=ORIGIN, stop_detail="UNEXPECTED_TOOL_CALL: no such"),
    Reply(parts=(Text(text="x"),), stop=Stop.FILTERED, origin=ORIGIN, stop_detail="RECITATION"),
    Reply(parts=(Text(text="x"),), stop=Stop.OTHER, origin=ORIGIN, stop_detail="SOMETHING_NEW: yes"),
)
HERE = Origin(family="gemini", endpoint="here", model="gemini-x")
COUNTS = {"promptTokenCount": 3, "candidatesTokenCount": 9}
CHUNKS = [
    chunk(text("h", thought=True), counts={"promptTokenCount": 3}),
    chunk(text("m\n", thought=True)),
    chunk(text("Ich "), text("rufe — ")),
    chunk(function_call("a", {"city": "Tōkyō"}, thoughtSignature="c2ln")),
    chunk(function_call("b", {"x": [1, {"y": '"'}]}), function_call("c")),
    chunk(text("", thoughtSignature="ZW5k"), finish="STOP", counts=COUNTS),
]
CALLS = (
    ToolCall(id="", name="a", arguments='{"city": "Tōkyō"}', native=SIGNED),
    ToolCall(id="", name="b", arguments='{"x": [1, {"y": "\\""}]}'),
    ToolCall(id="", name="c", arguments="{}"),
)
ANSWER = Reply(
    parts=(
        Reasoning(text="hm\n"),
        Text(text="Ich rufe — "),
        *CALLS,
        Text(text="", native='{"thoughtSignature":"ZW5k"}'),
    ),
    stop=Stop.TOOLS,
    stop_detail="STOP",
    origin=HERE,
    usage=Usage(input=3, output=9),
)
BY_VALUE = stream(
    chunk(text("ok")), *map(chunk, PIECES), chunk(function_call("now")), *(chunk(each) for each in [function_call("b"), {"functionCall": {}}]),
    chunk(finish="STOP"),
)  # fmt: skip
BUILT = (
    ToolCall(id="", name="write", arguments=json.dumps(ARGUMENTS, separators=(",", ":")), wire_id="x1", native=SIGNED),
    ToolCall(id="", name="now", arguments="{}"),
    ToolCall(id="", name="b", arguments="{}"),
)  # fmt: skip
SPELLED = '{"n": 1.50,"s":"\\u00e9"}'
CALLED = (
    b'{"candidates":[{"content":{"parts":[{"functionCall":{"name":"a","args":%b}}]},"finishReason":"STOP"}]}'
)


def show_calls(calls, first):
    return [
        shown
        for at, call in enumerate(calls)
        for shown in (
            ToolCallDelta(index=at + first, name=call.name, arguments=call.arguments),
            CallReady(index=at, call=call),
        )
    ]


SHOWN = (
    ReasoningDelta(reasoning="h"),
    ReasoningDelta(reasoning="m\n"),
    TextDelta(text="Ich "),
    TextDelta(text="rufe — "),
    *show_calls(CALLS, 2),
)


def say(said):
    return message(text(said), finish="STOP"), stream(chunk(text(said), finish="STOP"))


def count(counts):
    return [
        message(text("a"), finish="STOP", counts=counts),
        stream(chunk(text("a"), finish="STOP", counts=counts)),
    ]


def stop_because(reason, stop):
    because = message(text("x"), finish=reason, candidate={"finishMessage": "because"})
    bare = json.dumps({"candidates": [{"finishReason": reason}]}).encode()
    return [([because], stop, f"{reason}: because"), ([bare], stop, reason)]


REASONS = {
    Stop.DONE: ["STOP"],
    Stop.LENGTH: ["MAX_TOKENS", "CONTINUATION"],
    Stop.REFUSED: ["SAFETY", "PROHIBITED_CONTENT", "IMAGE_SAFETY", "IMAGE_PROHIBITED_CONTENT"],
    Stop.FILTERED: [
        "BLOCKLIST", "SPII", "RECITATION", "LANGUAGE", "MODEL_ARMOR", "IMAGE_RECITATION", "IMAGE_OTHER",
    ],
    Stop.MALFORMED: ["MALFORMED_FUNCTION_CALL", "MALFORMED_RESPONSE", "UNEXPECTED_TOOL_CALL"],
    Stop.OTHER: ["TOO_MANY_TOOL_CALLS", "NO_IMAGE", "OTHER", "TOMORROWS_REASON"],
}  # fmt: skip
BLOCKED = {"promptFeedback": {"blockReason": "SAFETY", "blockReasonMessage": "Reasons"}}
IMPOSSIBLE = [
    piece("$.items[999999999]", numberValue=1),
    piece("$[0]", numberValue=1),
    piece("items", numberValue=1),
    piece("$.a b[", numberValue=1),
    piece(None, numberValue=1),
    {"functionCall": {"partialArgs": "x", "willContinue": True}},
    {"functionCall": {"partialArgs": ["x"], "willContinue": True}},
    piece("$" + ".a" * 40_000, numberValue=1),
]
DECODE = DecodeCases(
    wire=WIRE,
    replies=OWN_REPLIES,
    samples=(
        Sample(
            body=stream(*CHUNKS),
            whole=message(
                *(part for each in CHUNKS for part in each["candidates"][0]["content"]["parts"]),
                finish="STOP",
                counts=COUNTS,
            ),
            reply=ANSWER,
            deltas=SHOWN,
            tail=len(b"\r\n\r\n"),
        ),
        Sample(
            body=BY_VALUE,
            reply=Reply(
                parts=(Text(text="ok"), *BUILT),
                stop=Stop.TOOLS,
                stop_detail="STOP",
                origin=HERE,
                usage=Usage(incomplete=True),
            ),
            deltas=(TextDelta(text="ok"), *show_calls(BUILT, 1)),
            tail=len(b"\r\n\r\n"),
        ),
        Sample(body=json.dumps(CHUNKS, ensure_ascii=False).encode(), reply=ANSWER, deltas=SHOWN),
    ),
    say=say,
    torn=stream(chunk(text("X")))
    + b'data: {"candidates":[{"content":{"parts":[{"text":"\\ud83d"}]}}]}\n\n'
    + b'data: {"candidates":[{"content":{"parts":[{"text":"\\ude00"}]},"finishReason":"STOP"}]}\n\n',
    partial=stream(chunk(text("half a"))),
    arguments=[
        ([CALLED % SPELLED.encode(), b"data: " + CALLED % SPELLED.encode() + b"\r\n\r\n"], SPELLED),
        ([message(function_call("a"), finish="STOP")], "{}"),
        ([stream(*map(chunk, PIECES[:3]), chunk(finish="STOP"))], '{"items":[{"name":"apple"}]'),
    ],
    stops=[
        *(
            row
            for stop, reasons in REASONS.items()
            for reason in reasons
            for row in stop_because(reason, stop)
        ),
        ([message(text("x"), finish=1)], Stop.DONE, "STOP"),
        ([message(text("x"), finish=2)], Stop.LENGTH, "MAX_TOKENS"),
        ([message(text("x"), finish=3)], Stop.REFUSED, "SAFETY"),
        ([message(text("x"), finish=12)], Stop.OTHER, "12"),
        (
            [json.dumps(BLOCKED).encode(), stream(BLOCKED), json.dumps([BLOCKED]).encode()],
            Stop.REFUSED,
            "blockReason SAFETY: Reasons",
        ),
        (
            [
                json.dumps(
                    {**chunk(text("a"), finish="STOP"), "promptFeedback": {"safetyRatings": []}}
                ).encode()
            ],
            Stop.DONE,
            "STOP",
        ),
        ([message(text("a"))], Stop.OTHER, ""),
        (
            [
                stream(
                    chunk(text("a"), finish="STOP"), chunk(text("b")), chunk(text("c"), finish="RECITATION")
                )
            ],
            Stop.FILTERED,
            "RECITATION",
        ),
    ],
    counts=[
        (
            count(
                {
                    "promptTokenCount": 100,
                    "cachedContentTokenCount": 60,
                    "candidatesTokenCount": 10,
                    "thoughtsTokenCount": 30,
                    "toolUsePromptTokenCount": 7,
                    "totalTokenCount": 147,
                }
            ),
            Usage(input=47, cache_read=60, output=40, reasoning=30),
        ),
        (
            count({"candidatesTokenCount": 1, "thoughtsTokenCount": 41, "totalTokenCount": 338}),
            Usage(input=296, output=42, reasoning=41),
        ),
        (
            [
                stream(
                    chunk(text("a"), counts={"promptTokenCount": 9, "totalTokenCount": 9}),
                    chunk(
                        text("b"),
                        counts={"promptTokenCount": 9, "thoughtsTokenCount": 4, "candidatesTokenCount": None},
                    ),
                    chunk(
                        text("c"), finish="STOP", counts={"promptTokenCount": 8, "candidatesTokenCount": 5}
                    ),
                )
            ],
            Usage(input=8, output=9, reasoning=4),
        ),
        (
            [
                stream(
                    chunk(text("a"), counts={"promptTokenCount": 9}), chunk(text("b")), chunk(finish="STOP")
                )
            ],
            Usage(input=9),
        ),
        ([b'{"candidates":[],"usageMetadata":{"promptTokenCount":3}}'], Usage(input=3)),
        (
            [
                body
                for counts in (
                    None,
                    {},
                    {"promptTokenCount": "3", "candidatesTokenCount": -1},
                    {"trafficType": "X"},
                )
                for body in count(counts)
            ],
            Usage(incomplete=True),
        ),
    ],
    same={
        "ends of lines and arrays": (
            [
                stream(*CHUNKS),
                json.dumps(CHUNKS, ensure_ascii=False).encode(),
                *(stream(*CHUNKS).replace(b"\r\n\r\n", ending) for ending in (b"\n\n", b"\r\r", b"\r\n\r\n")),
                b"\xef\xbb\xbf\r\n \n" + stream(*CHUNKS),
            ],
            None,
        ),
        "signed parts": (
            [
                stream(
                    chunk(text("a")),
                    chunk(text("b", thoughtSignature="Yg==")),
                    chunk(text("c")),
                    chunk(text("d")),
                    chunk(text("", thoughtSignature="ZA=="), finish="STOP"),
                )
            ],
            (
                Text(text="a"),
                Text(text="b", native='{"thoughtSignature":"Yg=="}'),
                Text(text="cd"),
                Text(text="", native='{"thoughtSignature":"ZA=="}'),
            ),
        ),
    },
    broken=stream(chunk(text("a")), {"error": {"message": "x", "status": "UNAVAILABLE", "code": 503}}),
    failure=Failure(kind="overloaded", message="x", status=200, code="UNAVAILABLE"),
    no_replies=[
        (b'{"candidates": [', "cut"),
        (b"[", "cut"),
        (b'[{"candidates":[{"finishReason":"STOP"}]}', "cut"),
        (b": only a comment\n\n", "cut"),
        (b"data:\n\n", "cut"),
        (b'"text"', "garbled"),
        (b'{"totalTokens": 7}', "garbled"),
        (b'{"message": "wrong door"}', "server"),
        (b"data: {no json}\n\n", "garbled"),
        (b'data: {"candidates": [}\n\n', "garbled"),
        *(
            (
                stream(
                    *map(chunk, [OPENED, piece("$.items[0]", numberValue=1), odd, {"functionCall": {}}]),
                    chunk(finish="STOP"),
                ),
                "garbled",
            )
            for odd in IMPOSSIBLE
        ),
    ],
    deltas={
        "words": (
            lambda count: [
                *[stream(chunk(text("some words "), counts={"promptTokenCount": 3}, responseId="r"))] * count,
                stream(chunk(finish="STOP")),
            ],
            "some words ",
        )
    },
    rich=[
        [stream(each) for each in CHUNKS],
        [*(stream(chunk(each)) for each in PIECES), stream(chunk(finish="STOP"))],
    ],
)
