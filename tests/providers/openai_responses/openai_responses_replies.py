"""Replies on the Responses wire, for tests: made of items and events."""

import json

from msgspec.structs import replace

from bridle.values.errors import Failure
from bridle.values.message import Message, Opaque, Reasoning, Reply, Stop, Text, ToolCall
from bridle.values.model import Abilities, Endpoint, Model, Origin
from bridle.values.request import Extra, OutputSpec, Request, Thinking, ToolChoice, ToolSpec
from bridle.values.result import CallReady, ReasoningDelta, TextDelta, ToolCallDelta
from bridle.values.usage import Usage
from tests.providers.kit.decode_kit import DecodeCases, Sample, slice_body
from tests.providers.kit.wire_kit import Wire

WIRE = Wire("openai_responses", "gpt-x")


def stream(*events):
    said = (json.dumps(event, ensure_ascii=False) for event in events)
    return b"".join(b"event: x\ndata: " + each.encode() + b"\n\n" for each in said)


def response(*items, **more):
    return {
        "id": "resp_1",
        "object": "response",
        "model": "gpt-x-2026",
        "status": "completed",
        "output": items,
        **more,
    }


def response_event(*items, kind="completed", **more):
    return {"type": f"response.{kind}", "response": response(*items, **{"status": kind, **more})}


def message(*items, **more):
    return json.dumps(response(*items, **more), ensure_ascii=False).encode()


def decode_message(*items, **more):
    return WIRE.decode(message(*items, **more))[0]


def item_added(index, **item):
    return {"type": "response.output_item.added", "output_index": index, "item": item}


def item_done(index, **item):
    return {"type": "response.output_item.done", "output_index": index, "item": item}


def delta(kind, index, said):
    return {"type": f"response.{kind}.delta", "output_index": index, "delta": said, "obfuscation": "xxxx"}


def words(*texts, **more):
    content = [{"type": "output_text", "text": text, "annotations": [], "logprobs": []} for text in texts]
    return {"type": "message", "id": "msg_1", "role": "assistant", "content": content, **more}


def incomplete_response(reason, status="incomplete"):
    return {"status": status, "incomplete_details": {"reason": reason}}


CALL = {
    "type": "function_call",
    "id": "fc_1",
    "call_id": "call_1",
    "name": "look",
    "arguments": '{"a": 1}',
    "status": "completed",
}
THOUGHT = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"}
REFUSAL = {"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]}
BEGIN = {"type": "response.created", "response": response(status="in_progress")}
FULL = (
    BEGIN,
    item_added(0, **{**THOUGHT, "encrypted_content": "gA"}),
    {"type": "response.reasoning_summary_part.added", "output_index": 0, "summary_index": 0, "part": {}},
    delta("reasoning_summary_text", 0, "Let me "),
    delta("reasoning_summary_text", 0, "see."),
    {"type": "response.reasoning_summary_part.added", "output_index": 0, "summary_index": 1, "part": {}},
    delta("reasoning_summary_text", 0, "Yes."),
    {"type": "response.keepalive"},
    item_done(0, **THOUGHT),
    item_added(1, type="message", id="msg_1", role="assistant", content=[], status="in_progress"),
    {"type": "response.content_part.added", "output_index": 1, "content_index": 0, "part": {}},
    delta("output_text", 1, "It is "),
    item_added(2, **{**CALL, "arguments": ""}),
    delta("output_text", 1, "wärm."),
    {"type": "response.output_text.annotation.added", "output_index": 1, "annotation": {"type": "url"}},
    {"type": "response.output_text.done", "output_index": 1, "text": "It is wärm."},
    delta("function_call_arguments", 2, '{"a"'),
    delta("function_call_arguments", 2, ": 1}"),
    {"type": "response.function_call_arguments.done", "output_index": 2, "arguments": '{"a": 1}'},
    item_done(1, **words("It is wärm.")),
    item_done(2, **CALL),
)


# For the kit

ORIGIN = Origin(family="openai_responses", endpoint="openai_responses", model="model-1")
HERE = Origin(family="openai_responses", endpoint="here", model="gpt-x-2026")
CITED = '{"message":{"id":"msg_1","phase":"final_answer"},"part":{"annotations":[{"type":"x"}]}}'
OWN_REPLIES = (
    Reply(
        parts=(
            Reasoning(text="1.\n\n2.", signature="g", native='{"id":"rs_1","lengths":{"summary":[2,2]}}'),
            Text(text="As it says", native=CITED),
            Text(text=" and more"),
            Reasoning(text="raw", native='{"id":"rs_2","lengths":{"summary":[],"content":[3]}}'),
            Opaque(kind="mcp_call", native='{"type":"mcp_call","id":"mcp_1","error":null,"output":[1]}'),
            Opaque(kind="tomorrow", native='{"type":"tomorrow","x":1.5}'),
            ToolCall(
                id="",
                name="a",
                arguments='{"n": 1.50}',
                wire_id="call_1",
                native='{"id":"fc_1","namespace":"n"}',
            ),
            ToolCall(
                id="",
                name="b",
                arguments='{"input":"free\\ntext"}',
                wire_id="call_2",
                native='{"type":"custom_tool_call","id":"ctc_1"}',
            ),
        ),
        stop=Stop.TOOLS,
        origin=ORIGIN,
        usage=Usage(input=1, cache_read=2, cache_write=7, output=30, reasoning=20, cache_write_1h=4),
        id="resp_1",
        stop_detail="completed",
    ),
    Reply(
        parts=(ToolCall(id="", name="look", arguments='{"n":', wire_id="c"),), stop=Stop.LENGTH, origin=ORIGIN
    ),
    Reply(parts=(Text(text="no more"),), stop=Stop.FILTERED, origin=ORIGIN),
    Reply(parts=(Text(text="so"),), stop=Stop.PAUSED, origin=ORIGIN, stop_detail="incomplete: steered"),
    Reply(parts=(Text(text="?"),), stop=Stop.OTHER, origin=ORIGIN, stop_detail="incomplete: tomorrow"),
)
CLOSED = (
    '{"type":"object","properties":{"a":{"type":"string"}},"required":["a"],"additionalProperties":false}'
)
MODEL = Model(
    id="gpt-x",
    endpoint=Endpoint(name="here", family="openai_responses", reasoning="may_echo"),
    abilities=Abilities(thinking=("standard", "pro"), efforts=("low", "high")),
)
HI = (Message(role="user", parts=(Text(text="hi"),)),)
OWN_REQUESTS = (
    Request(
        model=MODEL, messages=HI, thinking=Thinking(mode="pro", effort="low", display="auto"), max_tokens=20
    ),
    Request(
        model=MODEL,
        messages=HI,
        output=OutputSpec(name="o", parameters=CLOSED, description="d"),
        tool_choice=ToolChoice(parallel=False),
        tools=(ToolSpec(name="a", parameters=CLOSED),),
        extras=(
            Extra(name="text", json='{"verbosity":"low"}'),
            Extra(name="reasoning", json='{"context":"all_turns"}'),
        ),
    ),
)


def forget(request):
    """Stop sequences and the like have no place on this wire."""
    return replace(request, sampling=replace(request.sampling, stop_sequences=(), top_k=None))


THREE = [
    {**CALL, "call_id": f"call_{n}", "id": f"fc_{n}", "arguments": json.dumps({"n": n, "t": "x" * 9})}
    for n in range(3)
]


def stream_call(index, item):
    said = item["arguments"]
    yield item_added(index, **{**item, "arguments": "", "status": "in_progress"})
    for at in range(0, len(said), 5):
        yield delta("function_call_arguments", index, said[at : at + 5])
    yield {"type": "response.function_call_arguments.done", "output_index": index, "arguments": said}
    yield item_done(index, **item)


def show_call(index, item):
    said = item["arguments"]
    for at in range(0, len(said), 5):
        yield ToolCallDelta(index=index, name="look", arguments=said[at : at + 5])
    yield CallReady(index=index, call=ToolCall(id="", name="look", arguments=said))


def make_calls(items):
    return tuple(
        ToolCall(
            id="",
            name="look",
            arguments=item["arguments"],
            wire_id=item["call_id"],
            native=f'{{"id":"{item["id"]}","status":"completed"}}',
        )
        for item in items
    )


def make_reply(*parts):
    return Reply(
        parts=parts,
        stop=Stop.TOOLS,
        stop_detail="completed",
        origin=HERE,
        usage=Usage(incomplete=True),
        id="resp_1",
    )


def say(text):
    pieces = (item_added(0, type="message", role="assistant", content=[]), delta("output_text", 0, text))
    return message(words(text)), stream(BEGIN, *pieces, response_event(words(text)))


def stop_because(*items, **more):
    return [message(*items, **more)]


TORN = stream(delta("output_text", 0, "X"))
POINTS = [
    [
        item_added(at, **CALL),
        delta("function_call_arguments", at, '{"a": 1}'),
        item_done(at, **CALL),
        response_event(),
    ]
    for at in (0, 0.0)
]
CACHED = {
    "input_tokens": 100,
    "input_tokens_details": {
        "cached_tokens": 60,
        "cache_write_tokens": 30,
        "cache_write_tokens_details": {"ttl_12h_tokens": 10},
    },
    "output_tokens": 50,
    "output_tokens_details": {"reasoning_tokens": 20},
}
CUT_CALL = {**CALL, "arguments": '{"a"', "status": "incomplete"}
DECODE = DecodeCases(
    wire=WIRE,
    replies=OWN_REPLIES,
    requests=OWN_REQUESTS,
    forget=forget,
    samples=(
        Sample(
            body=stream(*FULL, response_event(THOUGHT, words("It is wärm."), CALL)),
            whole=message(THOUGHT, words("It is wärm."), CALL),
            reply=make_reply(
                Reasoning(signature="gAAA", native='{"id":"rs_1"}'),
                Text(text="It is wärm.", native='{"message":{"id":"msg_1"},"part":{"logprobs":[]}}'),
                *make_calls([CALL]),
            ),
            deltas=(
                ReasoningDelta(reasoning="Let me "),
                ReasoningDelta(reasoning="see."),
                ReasoningDelta(reasoning="\n\n"),
                ReasoningDelta(reasoning="Yes."),
                TextDelta(text="It is "),
                TextDelta(text="wärm."),
                ToolCallDelta(index=2, name="look", arguments='{"a"'),
                ToolCallDelta(index=2, name="look", arguments=": 1}"),
                CallReady(index=0, call=ToolCall(id="", name="look", arguments='{"a": 1}')),
            ),
            tail=2,
        ),
        Sample(
            body=stream(
                BEGIN,
                *(event for at, item in enumerate(THREE) for event in stream_call(at, item)),
                response_event(*THREE),
            ),
            whole=message(*THREE),
            reply=make_reply(*make_calls(THREE)),
            deltas=tuple(shown for at, item in enumerate(THREE) for shown in show_call(at, item)),
            tail=2,
        ),
    ),
    say=say,
    torn=stream(BEGIN, item_added(0, type="message", role="assistant", content=[]))
    + TORN
    + TORN.replace(b"X", b"\\ud83d")
    + TORN.replace(b"X", b"\\ude00")
    + stream(response_event(words("X😀"))),
    partial=stream(*FULL[:11], delta("output_text", 1, "half "), delta("output_text", 1, "a")),
    arguments=[
        ([message(CUT_CALL, **incomplete_response("max_output_tokens"))], '{"a"'),
        ([message({**CUT_CALL, "arguments": ""}, **incomplete_response("max_output_tokens"))], ""),
        ([message({**CALL, "arguments": said}) for said in ("", None, {})], "{}"),
        (
            [
                stream(
                    *FULL[:9],
                    response_event(
                        CUT_CALL, kind="incomplete", incomplete_details={"reason": "max_output_tokens"}
                    ),
                )
            ],
            '{"a"',
        ),
    ],
    stops=[
        (stop_because(words("a")), Stop.DONE, "completed"),
        (stop_because(words("a"), CALL), Stop.TOOLS, "completed"),
        (
            stop_because(words("a"), **incomplete_response("max_output_tokens")),
            Stop.LENGTH,
            "incomplete: max_output_tokens",
        ),
        (
            stop_because(THOUGHT, **incomplete_response("max_output_tokens")),
            Stop.LENGTH,
            "incomplete: max_output_tokens",
        ),
        (
            stop_because(words("a"), **incomplete_response("content_filter")),
            Stop.FILTERED,
            "incomplete: content_filter",
        ),
        (
            stop_because(words("a"), **incomplete_response("max_messages")),
            Stop.PAUSED,
            "incomplete: max_messages",
        ),
        (stop_because(words("a"), **incomplete_response("steered")), Stop.PAUSED, "incomplete: steered"),
        (stop_because(words("a"), **incomplete_response("tomorrow")), Stop.OTHER, "incomplete: tomorrow"),
        (stop_because(words("a"), status="incomplete"), Stop.OTHER, "incomplete"),
        (
            stop_because(words("a"), **incomplete_response("max_output_tokens", None)),
            Stop.LENGTH,
            "incomplete: max_output_tokens",
        ),
        (stop_because(words("a"), status="tomorrow"), Stop.DONE, "tomorrow"),
        (stop_because(REFUSAL), Stop.REFUSED, "refusal"),
        (
            [
                stream(
                    *FULL[:9],
                    response_event(
                        CUT_CALL, kind="incomplete", incomplete_details={"reason": "max_output_tokens"}
                    ),
                )
            ],
            Stop.LENGTH,
            "incomplete: max_output_tokens",
        ),
    ],
    counts=[
        (
            [message(words("a"), usage=CACHED), stream(BEGIN, response_event(words("a"), usage=CACHED))],
            Usage(input=10, cache_read=60, cache_write=30, output=50, reasoning=20, cache_write_1h=10),
        ),
        ([message(words("a")), message(words("a"), usage={})], Usage(incomplete=True)),
    ],
    same={
        "numbers with a point": ([stream(*events) for events in POINTS], None),
        "plain name of words": (
            [message({"type": "message", "role": "assistant", "content": [{"type": "text", "text": "hi"}]})],
            None,
        ),
    },
    broken=stream(BEGIN, {"type": "error", "code": "server_error", "message": "m"}),
    failure=Failure(kind="server", message="m", status=200, code="server_error"),
    no_replies=[
        (b'{"id": "resp_1", "outp', "cut"),
        (b"[1]", "garbled"),
        (b'{"object": "chat.completion", "choices": []}', "not_found"),
        (b'{"error": {"message": "no"}}', "server"),
        (stream(*FULL), "cut"),
        (stream(*FULL)[:-20], "cut"),
        (stream({"type": "response.completed", "response": None}), "garbled"),
        (b"data: {nonsense}\n\n", "garbled"),
        (b"data: {nonsense}", "cut"),
        (b'data: {"error": {"message": "no", "code": "server_error"}}\n\n', "server"),
        *((message(CALL, status=status), "invalid") for status in ("queued", "in_progress", "cancelled")),
    ],
    deltas={
        "words": (
            lambda count: slice_body(
                stream(item_added(0, type="message", role="assistant", content=[]))
                + stream(*(delta("output_text", 0, " hi") for _ in range(count)))
                + stream(response_event(words(" hi" * count)))
            ),
            " hi",
        )
    },
    rich=[
        [stream(each) for each in (*FULL, response_event(THOUGHT, words("It is wärm."), CALL, usage=CACHED))],
        [message(THOUGHT, words("It is wärm."), CALL, REFUSAL, usage=CACHED)],
    ],
)
