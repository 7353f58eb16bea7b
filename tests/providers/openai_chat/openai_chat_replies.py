"""Replies on Chat Completions, for tests: made of messages and deltas."""

import json

from msgspec.structs import replace

from bridle.values.errors import Failure
from bridle.values.message import Media, Message, Opaque, Reasoning, Reply, Stop, Text, ToolCall, ToolResult
from bridle.values.model import Endpoint, Model, Origin
from bridle.values.request import Extra, Request, Thinking, ToolChoice, ToolSpec
from bridle.values.result import CallReady, ReasoningDelta, TextDelta, ToolCallDelta
from bridle.values.usage import Usage
from tests.providers.kit.decode_kit import DecodeCases, Sample
from tests.providers.kit.wire_kit import Wire

WIRE = Wire("openai_chat", "model-x")


def decode_or_fail(body, status=200, headers=None):
    """Return the reply, or the failure, in these bytes."""
    return WIRE.decode_or_fail(
        body if isinstance(body, bytes) else json.dumps(body).encode(), status, headers
    )


def completion(message=None, reason="stop", **more):
    choice = {"index": 0, "message": {"role": "assistant", "content": "Hi", **(message or {})}}
    return {"id": "r1", "model": "m1", "choices": [{**choice, "finish_reason": reason}], **more}


def completion_body(message=None, reason="stop", **more):
    return json.dumps(completion(message, reason, **more)).encode()


def stream(*chunks, done=True):
    frames = [f"data: {json.dumps(chunk, ensure_ascii=False)}\n\n" for chunk in chunks]
    return "".join([*frames, "data: [DONE]\n\n" if done else ""]).encode()


def piece(delta=None, reason=None, **more):
    return {"id": "r1", "choices": [{"index": 0, "delta": delta or {}, "finish_reason": reason}], **more}


CALL = {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": "{}"}}


# For the kit


def own_replies():
    """What only this family says, for the laws every codec obeys."""
    origin = Origin(family="openai_chat", endpoint="openai_chat", model="model-x")
    detail = '{"detail":{"format":"f","index":0,"type":"reasoning.text"},"fields":["reasoning"]}'
    sealed = '{"detail":{"id":"rs_1","index":1,"type":"reasoning.encrypted"}}'
    thinking = '{"chunk":{"closed":true,"type":"thinking"}}'
    kept = '{"message":{"mood":[{"type":"calm"}]}}'
    signed = '{"call":{"extra_content":{"google":{"thought_signature":"sig"}}}}'
    first = ToolCall(id="", name="look", arguments="{}", wire_id="call_1")
    parts = [
        (Reasoning(text="Well, Tōkyō."), Text(text="27 °C")),
        (Reasoning(text="Well.", native='{"fields":["reasoning"]}'), Text(text="27 °C")),
        (
            Reasoning(text="Well.", signature="sig", native=detail),
            Reasoning(signature="blob", redacted=True, native=sealed),
            replace(first, arguments='{"a": 1.50}'),
        ),
        (Reasoning(text="Well.", native=thinking), Text(text="27 °C")),
        (Text(text="27 °C", native=kept),),
        (replace(first, native=signed), replace(first, wire_id="call_2")),
        (
            Text(text="Hello.", native='{"audio":{"expires_at":7,"id":"audio_1"}}'),
            Media(kind="audio", data="AAAA"),
        ),
        (Text(text="Half of"), Text(text="I will not.")),
    ]
    stops = [Stop.DONE, Stop.DONE, Stop.TOOLS, Stop.DONE, Stop.DONE, Stop.TOOLS, Stop.DONE, Stop.REFUSED]
    used = Usage(input=11, cache_read=7, cache_write=5, output=13, reasoning=4, cache_write_1h=2)
    return [
        Reply(parts=each, stop=stop, origin=origin, usage=used, id="reply_1")
        for each, stop in zip(parts, stops, strict=True)
    ]


def own_request():
    """A conversation of all these replies."""
    line = []
    for at, reply in enumerate(own_replies()):
        parts = tuple(
            replace(part, id=f"c{at}_{n}") if isinstance(part, ToolCall) else part
            for n, part in enumerate(reply.parts)
        )
        said = Message(role="assistant", parts=parts, origin=reply.origin, stop=reply.stop)
        line += [Message(role="user", parts=(Text(text="And now?"),)), said]
        if said.calls:
            done = (ToolResult(call_id=each.id, parts=(Text(text="done"),)) for each in said.calls)
            line.append(Message(role="tool", parts=tuple(done)))
    return Request(
        model=Model(id="model-1", endpoint=Endpoint(name="openai_chat", family="openai_chat")),
        messages=tuple(replace(message, id=f"m{at + 1}") for at, message in enumerate(line)),
        max_tokens=100,
        thinking=Thinking(effort="low"),
        tool_choice=ToolChoice(mode="any", parallel=False),
        tools=(ToolSpec(name="look"),),
        extras=(Extra(name="seed", json="7"),),
    )


def without_thoughts(request):
    """The sound of earlier words is known by its id alone; and thoughts are no part of what is asked."""

    def is_told(part):
        return not isinstance(part, Reasoning | Opaque | Media) and not (
            part.native and "audio" in part.native
        )

    messages = (
        replace(message, parts=tuple(filter(is_told, message.parts)))
        if message.role == "assistant"
        else message
        for message in request.messages
    )
    return replace(request, messages=tuple(messages))


def stop_because(reason, calls, stop):
    message = {"tool_calls": [CALL]} if calls else {}
    bodies = [
        completion_body(message, reason),
        stream(piece({"content": "Hi", **message}), piece({}, reason)),
    ]
    return bodies, stop, reason if isinstance(reason, str) else ""


def make_call(given, reason, arguments):
    call = {**CALL, "function": {"name": "look", "arguments": given}}
    told = (piece({"tool_calls": [CALL]}), piece({"tool_calls": [{**call, "index": 1, "id": "b"}]}, reason))
    return [completion_body({"tool_calls": [CALL, call]}, reason), stream(*told)], arguments


def count(counts, usage):
    told = stream(piece({"content": "Hi"}), piece({}, "stop"), {"choices": [], "usage": counts})
    return [completion_body(usage=counts), told], usage


def say(text):
    return completion_body({"content": text}), stream(piece({"content": text}), piece({}, "stop"))


BOTH = {"prompt_tokens": 20, "completion_tokens": 9}
COUNTS = [
    (BOTH, Usage(input=20, output=9)),
    (
        {
            **BOTH,
            "prompt_tokens_details": {"cached_tokens": 7, "cache_write_tokens": 5},
            "completion_tokens_details": {"reasoning_tokens": 4},
            "total_tokens": 29,
        },
        Usage(input=8, cache_read=7, cache_write=5, output=9, reasoning=4),
    ),
    (
        {**BOTH, "total_tokens": 33, "completion_tokens_details": {"reasoning_tokens": 4}},
        Usage(input=20, output=13, reasoning=4),
    ),
    (
        {"prompt_tokens": 20, "completion_tokens": 3, "reasoning_tokens": 4},
        Usage(input=20, output=7, reasoning=4),
    ),
    (  # the same tokens, counted twice by different people
        {"prompt_tokens": 15, "completion_tokens": 220, "total_tokens": 235, "reasoning_tokens": 238},
        Usage(input=15, output=220, reasoning=220),
    ),
    (  # so few words cannot hold so much reasoning
        {"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11, "reasoning_tokens": 25},
        Usage(input=9, output=27, reasoning=25),
    ),
    (  # what was thought and never told stands in the sum only
        {"prompt_tokens": 35, "completion_tokens": 12, "total_tokens": 109},
        Usage(input=35, output=74),
    ),
    (  # and so does what was heard
        {
            "prompt_tokens": 11,
            "completion_tokens": 15,
            "total_tokens": 401,
            "prompt_tokens_details": {"audio_tokens": 375},
        },
        Usage(input=386, output=15),
    ),
    (
        {**BOTH, "prompt_cache_hit_tokens": 15, "prompt_cache_miss_tokens": 5},
        Usage(input=5, cache_read=15, output=9),
    ),
    (
        {**BOTH, "cache_read_input_tokens": 15, "cache_creation_input_tokens": 2},
        Usage(input=3, cache_read=15, cache_write=2, output=9),
    ),
    ({**BOTH, "cached_tokens": 15}, Usage(input=5, cache_read=15, output=9)),
    ({**BOTH, "num_cached_tokens": 15}, Usage(input=5, cache_read=15, output=9)),
    ({"prompt_tokens": 5, "completion_tokens": 9, "cached_tokens": 15}, Usage(cache_read=5, output=9)),
    (
        {"prompt_tokens": 5, "completion_tokens": 9, "cached_tokens": 15, "total_tokens": 29},
        Usage(input=5, cache_read=15, output=9),
    ),
    ({"prompt_tokens": -3, "completion_tokens": "9", "prompt_tokens_details": None}, Usage()),
    ({}, Usage(incomplete=True)),
    (None, Usage(incomplete=True)),
    ([1], Usage(incomplete=True)),
]
ARGUMENTS = ('{"path": "a.txt", "text": "one {two} \\"three\\""}', '{"n": [1, {"a": 2}]}', "{}")
HERE = Origin(family="openai_chat", endpoint="here", model="model-x")
THREE_CALLS = Reply(
    parts=(
        Reasoning(text="Let me think."),
        Text(text="Looking — 🌡️."),
        *(
            ToolCall(id="", name=f"tool_{n}", arguments=each, wire_id=f"call_{n}")
            for n, each in enumerate(ARGUMENTS)
        ),
    ),
    stop=Stop.TOOLS,
    stop_detail="tool_calls",
    origin=HERE,
    usage=Usage(input=3, output=5),
    id="r1",
)
THREE_CALLS_STREAM = b"".join(WIRE.server.encode_reply(THREE_CALLS, stream=True).frames)
GROWING = stream(
    piece({"tool_calls": [{**CALL, "index": 3}]}),
    piece({"tool_calls": [{**CALL, "index": 5, "id": "b", "function": {"name": "go"}}]}),
    piece({"tool_calls": [{"index": 5, "function": {"arguments": '{"a"'}}]}),
    piece({"tool_calls": [{"index": 5, "function": {"arguments": ":1}"}}]}, "tool_calls"),
)
MADE = (
    ToolCall(id="", name="look", arguments="{}", wire_id="call_1"),
    ToolCall(id="", name="go", arguments='{"a":1}', wire_id="b"),
)


def number_choice(place, **delta):
    return {"id": "r1", "x": None, "choices": [{"index": place, "delta": delta, "finish_reason": None}]}


MANY = [
    {"choices": [], "prompt_filter_results": [{}]},
    piece(
        {
            "role": "assistant",
            "content": [{"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}],
        }
    ),
    piece({"reasoning": "Hm.", "reasoning_details": [{"type": "reasoning.text", "text": "Hm.", "index": 0}]}),
    piece({"content": "Hi", "annotations": [{"index": 0}], "audio": {"id": "a", "transcript": "Hi"}}),
    piece(
        {"tool_calls": [{**CALL, "extra_content": {"a": 1}}, {"function": {"name": "b", "arguments": {}}}]}
    ),
    piece({"function_call": {"name": "c", "arguments": "{}"}, "refusal": "no"}),
    piece({}, "stop", x_groq={"usage": {"prompt_tokens": 1}}, base_resp={"status_code": 0}),
    {"choices": [], "usage": {"prompt_tokens": 1, "prompt_tokens_details": {"cached_tokens": 1}}},
]
DELTAS = {
    "words": lambda at: {"content": " word"},
    "thoughts": lambda at: {"reasoning_content": " word"},
    "details": lambda at: {"reasoning_details": [{"type": "reasoning.text", "text": " word", "index": 0}]},
    "arguments": lambda at: {
        "tool_calls": [{"index": 0, "function": {"arguments": " }" if at else '{"a": "'}}]
    },
    "names": lambda at: {"tool_calls": [{"function": {"name": "f", "arguments": " }" if at else '{"a": "'}}]},
}


def make_slices(kind, count):
    begun = piece({"tool_calls": [{**CALL, "index": 0, "function": {"name": "f"}}]})
    frames = [stream(begun, done=False)] if kind == "arguments" else []
    frames += [stream(piece(DELTAS[kind](at)), done=False) for at in range(count)]
    return [*frames, stream(piece({}, "length"))]


AUDIO = {"id": "audio_1", "data": "AAAA", "transcript": "Hello.", "expires_at": 7}
MOOD, STEPS = {"calm": 1, "glad": 2}, [{"index": 0, "a": 1, "b": 2}, {"index": 1}]
TORN = stream(piece({"content": "X"}), done=False)
DECODE = DecodeCases(
    wire=WIRE,
    replies=own_replies(),
    requests=[own_request()],
    forget=without_thoughts,
    samples=(
        Sample(
            body=THREE_CALLS_STREAM,
            whole=b"".join(WIRE.server.encode_reply(THREE_CALLS, stream=False).frames),
            reply=THREE_CALLS,
            deltas=WIRE.decode(THREE_CALLS_STREAM)[1],
            tail=len(THREE_CALLS_STREAM)
            - THREE_CALLS_STREAM.rindex(b"\n\n", 0, THREE_CALLS_STREAM.index(b'"usage"')),
        ),
        Sample(
            body=GROWING,
            reply=Reply(
                parts=MADE,
                stop=Stop.TOOLS,
                stop_detail="tool_calls",
                origin=HERE,
                usage=Usage(incomplete=True),
                id="r1",
            ),
            deltas=(
                ToolCallDelta(index=0, name="look", arguments="{}"),
                ToolCallDelta(index=1, name="go", arguments=""),
                CallReady(index=0, call=replace(MADE[0], wire_id="")),
                ToolCallDelta(index=1, name="go", arguments='{"a"'),
                ToolCallDelta(index=1, name="go", arguments=":1}"),
            ),
            tail=len(b"\n\ndata: [DONE]\n\n"),
        ),
        Sample(
            body=stream(
                piece({"reasoning_content": "H"}),
                piece({"reasoning_content": "m."}),
                piece({"content": "H"}),
                piece({"content": "i"}),
                piece({}, "stop"),
                {"choices": [], "usage": BOTH},
            ),
            reply=Reply(
                parts=(Reasoning(text="Hm."), Text(text="Hi")),
                stop=Stop.DONE,
                stop_detail="stop",
                origin=HERE,
                usage=Usage(input=20, output=9),
                id="r1",
            ),
            deltas=(
                ReasoningDelta(reasoning="H"),
                ReasoningDelta(reasoning="m."),
                TextDelta(text="H"),
                TextDelta(text="i"),
            ),
            tail=len(b"\n\n" + stream({"choices": [], "usage": BOTH})),
        ),
    ),
    say=say,
    torn=TORN + TORN.replace(b"X", b"\\ud83d") + TORN.replace(b"X", b"\\ude00") + stream(piece({}, "stop")),
    partial=stream(piece({"reasoning_content": "Hm."}), piece({"content": "half a"}, usage=BOTH), done=False),
    partial_usage=Usage(input=20, output=9, incomplete=True),
    arguments=[
        make_call("", "tool_calls", "{}"),
        make_call("", "length", ""),
        make_call("{}", "length", "{}"),
        make_call('{"a": "ha', "length", '{"a": "ha'),
        make_call('{"a": "ha', "tool_calls", '{"a": "ha'),
        make_call('{"a": 1.50, "b": "\\u00e9"}', "tool_calls", '{"a": 1.50, "b": "\\u00e9"}'),
        make_call(None, "tool_calls", "{}"),
        make_call({"a": [1, None]}, "stop", '{"a":[1,null]}'),
    ],
    stops=[
        stop_because("stop", False, Stop.DONE),
        stop_because("eos", False, Stop.DONE),
        stop_because("stop", True, Stop.TOOLS),
        stop_because("tool_calls", True, Stop.TOOLS),
        stop_because("tool_calls", False, Stop.TOOLS),
        stop_because("function_call", True, Stop.TOOLS),
        stop_because("length", False, Stop.LENGTH),
        stop_because("length", True, Stop.LENGTH),
        stop_because("content_filter", False, Stop.FILTERED),
        stop_because("content_filter", True, Stop.FILTERED),
        stop_because("model_length", False, Stop.CONTEXT),
        stop_because("MAX_TOKENS", False, Stop.LENGTH),
        stop_because("because", False, Stop.OTHER),
        stop_because("because", True, Stop.TOOLS),
        stop_because("", False, Stop.OTHER),
        stop_because(None, True, Stop.TOOLS),
        stop_because(7, False, Stop.OTHER),
    ],
    counts=[count(*row) for row in COUNTS],
    same={
        "sound": (
            [
                completion_body({"content": None, "audio": AUDIO}),
                stream(
                    piece({"audio": {"id": "audio_1", "transcript": "Hel"}}),
                    piece({"audio": {"data": "AA"}}),
                    piece({"audio": {"transcript": "lo."}}),
                    piece({"audio": {"data": "AA"}}),
                    piece({"audio": {"expires_at": 7}}),
                    piece({}, "stop"),
                ),
            ],
            (
                Text(text="Hello.", native='{"audio":{"expires_at":7,"id":"audio_1"}}'),
                Media(kind="audio", data="AAAA"),
            ),
        ),
        "members of next year": (
            [
                completion_body({"mood": MOOD, "steps": STEPS, "tone": "y"}),
                stream(
                    piece(
                        {"content": "Hi", "mood": {"calm": 1}, "steps": [{"index": 0, "a": 1}], "tone": "x"}
                    ),
                    piece({"mood": {"glad": 2}, "steps": [{"index": 0, "b": 2}, {"index": 1}], "tone": "y"}),
                    piece({"mood": None}, "stop"),
                ),
            ],
            None,
        ),
        "numbers with a point": (
            [
                stream(
                    number_choice(0.0, content="He"),
                    number_choice(1.0, content="other"),
                    number_choice(
                        0.0,
                        content="y",
                        tool_calls=[{**CALL, "index": place, "id": f"c{place}"} for place in (0.0, 1.0)],
                    ),
                    piece(reason="tool_calls"),
                )
            ],
            (
                Text(text="Hey"),
                *(ToolCall(id="", name="look", arguments="{}", wire_id=each) for each in ("c0.0", "c1.0")),
            ),
        ),
    },
    broken=stream({"error": {"message": "Upstream broke", "code": 502}}),
    failure=Failure(kind="server", message="Upstream broke", status=200, code="502"),
    no_replies=[
        (b'{"choices": [', "cut"),
        (b'"a string"', "garbled"),
        (b"{}", "garbled"),
        (b'{"choices": []}', "garbled"),
        (b'{"choices": [{"index": 0}]}', "garbled"),
        (b'{"choices": [7]}', "garbled"),
        (b": nothing but comments\n\n", "cut"),
        (b"data: {broken\n\n", "garbled"),
        (b"data: 7\n\n", "garbled"),
    ],
    deltas={
        kind: (lambda count, kind=kind: make_slices(kind, count), " word" if kind == "words" else "")  # type: ignore[misc]
        for kind in DELTAS
    },
    rich=[
        [each + b"\n\n" for each in THREE_CALLS_STREAM.split(b"\n\n")],
        [stream(each, done=False) for each in MANY] + [stream()],
        [completion_body({"tool_calls": [CALL], "reasoning": "Hm."})],
    ],
)
