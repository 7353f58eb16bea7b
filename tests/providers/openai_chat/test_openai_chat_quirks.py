"""What servers that speak Chat Completions do to a stream, one quirk at a time: the reply stays the same.

Each quirk takes the events of a clean stream and tells them as some server does.  The reply must equal
the clean one, and so must everything shown on the way.  What a server cannot tell because of its quirk
(an id it does not send, counts it does not give) is named beside it, and nothing else may differ.
"""

import json
from collections.abc import Callable, Iterable
from typing import NamedTuple

import pytest
from msgspec.structs import replace

from bridle.providers.openai_chat.codec import ChatCodec
from bridle.providers.openai_chat.dialect import ChatDialect
from bridle.values.errors import ProviderError
from bridle.values.message import Message, Reasoning, Stop, Text, ToolCall
from bridle.values.model import Endpoint, Model
from bridle.values.request import Request, ToolChoice, ToolSpec
from bridle.values.result import ReasoningDelta, TextDelta, ToolCallDelta
from bridle.values.usage import Usage

CODEC = ChatCodec({"tags": ChatDialect(think_tags=True)})
BASE = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "model-1"}
USAGE = {
    "prompt_tokens": 20,
    "completion_tokens": 9,
    "total_tokens": 29,
    "prompt_tokens_details": {"cached_tokens": 12},
}


def make_request(endpoint="here", tools=()):
    return Request(model=Model(id="m", endpoint=Endpoint(name=endpoint, family="openai_chat")), tools=tools)


def chunk(delta=None, reason=None, **more):
    return {**BASE, "choices": [{"index": 0, "delta": delta or {}, "finish_reason": reason}], **more}


def piece(index, arguments, call_id=None, name=None):
    call = {"index": index, "function": {"arguments": arguments}}
    if call_id is not None:
        call |= {"id": call_id, "type": "function"}
    if name is not None:
        call["function"]["name"] = name
    return chunk({"tool_calls": [call]})


USAGE_CHUNK = {**BASE, "choices": [], "usage": USAGE}
CALLS = [
    chunk({"role": "assistant", "content": ""}),
    chunk({"content": "Let me"}),
    chunk({"content": " look. 🌡️"}),
    piece(0, "", "call_a", "get_weather"),
    piece(0, '{"city": "To'),
    piece(0, 'kyo {1}"}'),
    piece(1, "", "call_b", "get_weather"),
    piece(1, '{"city": "New \\"Y'),
    piece(1, 'ork\\"", "at": {"n": [1]}}'),
    piece(2, "{}", "call_c", "now"),
    chunk({}, "tool_calls"),
    USAGE_CHUNK,
]
WORDS = [
    chunk({"role": "assistant", "content": ""}),
    chunk({"content": "It is"}),
    chunk({"content": " 27 °C."}),
    chunk({}, "stop"),
    USAGE_CHUNK,
]
THOUGHTS = [
    chunk({"role": "assistant", "content": ""}),
    chunk({"reasoning_content": "Well, "}),
    chunk({"reasoning_content": "Tokyo."}),
    chunk({"content": "It is"}),
    chunk({"content": " 27 °C."}),
    chunk({}, "stop"),
    USAGE_CHUNK,
]


def join_events(events: Iterable[dict], line_end="\n", done=True) -> bytes:
    frames = [f"data: {json.dumps(event)}" for event in events] + (["data: [DONE]"] if done else [])
    return "".join(frame + line_end * 2 for frame in frames).encode()


def listen(body: bytes, request=None, step=None, headers=None):
    decoder = CODEC.new_decoder(
        request or make_request(), 200, headers or {"content-type": "text/event-stream"}
    )
    step = step or len(body)
    deltas = [delta for at in range(0, len(body), step) for delta in decoder.feed(body[at : at + step])]
    return decoder.close(), deltas


def collect_shown(deltas):
    """What was on the screen: words, thoughts, and the calls with their arguments."""
    calls: dict[int, list[str]] = {}
    for delta in deltas:
        if isinstance(delta, ToolCallDelta):
            name, said = calls.get(delta.index, ["", ""])
            calls[delta.index] = [delta.name or name, said + delta.arguments]
    text = "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))
    thought = "".join(delta.reasoning for delta in deltas if isinstance(delta, ReasoningDelta))
    return text, thought, list(calls.values())


def drop_lost(reply, lost):
    """The reply without what a quirk keeps from being told."""
    parts = []
    for part in reply.parts:
        if isinstance(part, ToolCall) and "wire_id" in lost:
            part = replace(part, wire_id="")
        if "native" in lost:
            part = replace(part, native=None)
        parts.append(part)
    reply = replace(reply, parts=tuple(parts))
    for name, nothing in {"id": "", "stop_detail": "", "usage": Usage()}.items():
        if name in lost:
            reply = replace(reply, **{name: nothing})
    return reply


# --- the streams servers make of it ---------------------------------------------------------------------


def each_piece(events, change):
    """The events, with every piece of a call changed."""
    for event in events:
        listed = event["choices"][0]["delta"].get("tool_calls") if event["choices"] else None
        if listed is None:
            yield event
        else:
            delta = {**event["choices"][0]["delta"], "tool_calls": [change(dict(call)) for call in listed]}
            yield chunk(delta, event["choices"][0]["finish_reason"])


def each_choice(events, **more):
    for event in events:
        yield {**event, "choices": [{**choice, **more} for choice in event["choices"]]}


def each_delta(events, **more):
    for event in events:
        choices = [{**choice, "delta": {**choice["delta"], **more}} for choice in event["choices"]]
        yield {**event, "choices": choices}


def no_index(call):
    return {name: value for name, value in call.items() if name != "index"}


def with_id(call_id):
    return lambda call: {**call, "id": call_id}


def no_id(call):
    return {name: value for name, value in call.items() if name != "id"}


IDS = ("call_a", "call_b", "call_c")
NAMES = ("get_weather", "get_weather", "now")
ARGUMENTS = ('{"city": "Tokyo {1}"}', '{"city": "New \\"York\\"", "at": {"n": [1]}}', "{}")


def make_call(index):
    function = {"name": NAMES[index], "arguments": ARGUMENTS[index]}
    return {"index": index, "id": IDS[index], "type": "function", "function": function}


def with_calls(*chunks):
    """The clean beginning and end around calls told otherwise."""
    return [*CALLS[:3], *chunks, *CALLS[10:]]


def repeat_on_pieces(events, what):
    """Ids or names on every piece of their call."""

    def change(call):
        at = call["index"]
        function = {**call["function"], "name": NAMES[at]} if "name" in what else call["function"]
        return {**call, "function": function, **({"id": IDS[at]} if "id" in what else {})}

    return each_piece(events, change)


def add_running_usage(events):
    """Totals so far on every piece."""
    for at, event in enumerate(events[:-1]):
        yield {**event, "usage": {**USAGE, "completion_tokens": at, "total_tokens": 20 + at}}
    yield {**events[-2], "usage": USAGE}


def so_far(events):
    """The whole message so far, beside each piece."""
    said = ""
    for event in events:
        for choice in event["choices"]:
            said += choice["delta"].get("content", "")
        message = {"role": "assistant", "content": said}
        yield {**event, "choices": [{**choice, "message": message} for choice in event["choices"]]}


def two_choices(events):
    for event in events:
        yield event
        if event["choices"]:
            other = {"index": 1, "delta": {"content": "Or not."}, "finish_reason": None}
            yield {**event, "choices": [other]}


def interleave_calls(events):
    pieces = events[3:10]
    return [*events[:3], *(pieces[at] for at in (0, 3, 1, 4, 6, 2, 5)), *events[10:]]


def object_arguments(call):
    return {**call, "function": {**call["function"], "arguments": json.loads(call["function"]["arguments"])}}


def rename_thoughts(events, **names):
    """Thoughts under other names."""
    for event in events:
        delta = event["choices"][0]["delta"] if event["choices"] else {}
        if "reasoning_content" in delta:
            thought = delta["reasoning_content"]
            yield chunk({name: make(thought) for name, make in names.items()})
        else:
            yield event


def detail(thought):
    return [{"type": "reasoning.text", "text": thought, "format": "unknown", "index": 0}]


def thought_chunks(thought):
    return [{"type": "thinking", "thinking": [{"type": "text", "text": thought}]}]


def tagged_chunks():
    words = ["<thi", "nk>Well", ", Tokyo.</", "think>", "It is", " 27 °C."]
    return [THOUGHTS[0], *(chunk({"content": word}) for word in words), *THOUGHTS[5:]]


def split_character(events):
    """A character cut in two by a token boundary; both halves are escaped, neither is a character."""
    body = join_events(events)
    whole = json.dumps(" look. 🌡️")[1:-1].encode()
    high, low = rb" look. \ud83c", rb"\udf21\ufe0f"
    assert whole == high + low
    first = json.dumps(chunk({"content": "@"})).replace("@", high.decode())
    second = json.dumps(chunk({"content": "@"})).replace("@", low.decode())
    return body.replace(json.dumps(events[2]).encode(), f"{first}\n\ndata: {second}".encode())


class Quirk(NamedTuple):
    name: str
    clean: list[dict]
    make_body: Callable[[], bytes]
    lost: tuple[str, ...] = ()
    endpoint: str = "here"
    headers: dict[str, str] | None = None


def make_quirk(name, clean, events, *lost, **more):
    return Quirk(name, clean, lambda: join_events(events(), **more), lost)


def make_framed_quirk(name, clean, body, *lost):
    return Quirk(name, clean, body, lost)


AZURE_FIRST = {
    "id": "",
    "model": "",
    "object": "",
    "created": 0,
    "choices": [],
    "prompt_filter_results": [{}],
}

QUIRKS = [
    # framing
    make_framed_quirk(
        "comments between events",
        CALLS,
        lambda: b": PROCESSING\n\n" + join_events(CALLS).replace(b"\n\n", b"\n\n: PROCESSING\n\n"),
    ),
    make_framed_quirk("lines end in CRLF", CALLS, lambda: join_events(CALLS, "\r\n")),
    make_framed_quirk("lines end in CR", CALLS, lambda: join_events(CALLS, "\r")),
    make_framed_quirk(
        "no blank after the colon", CALLS, lambda: join_events(CALLS).replace(b"data: ", b"data:")
    ),
    make_framed_quirk(
        "events have names and ids",
        CALLS,
        lambda: join_events(CALLS).replace(b"data: ", b"event: message\nid: 7\ndata: "),
    ),
    make_framed_quirk(
        "empty data between events",
        CALLS,
        lambda: join_events(CALLS).replace(b"\n\n", b"\n\ndata:\n\ndata: \n\n"),
    ),
    make_framed_quirk("a byte order mark first", CALLS, lambda: b"\xef\xbb\xbf" + join_events(CALLS)),
    make_framed_quirk("the last event is not terminated", CALLS, lambda: join_events(CALLS).rstrip(b"\n")),
    make_framed_quirk(
        "nothing is terminated at the end and there is no sentinel",
        CALLS,
        lambda: join_events(CALLS, done=False).rstrip(b"\n"),
    ),
    make_framed_quirk("more after the sentinel", CALLS, lambda: join_events(CALLS) + b"data: {\n\n"),
    Quirk(
        "a stream that says it is JSON",
        CALLS,
        lambda: join_events(CALLS),
        headers={"content-type": "application/json"},
    ),
    make_framed_quirk("a character torn in two", CALLS, lambda: split_character(CALLS)),
    # what stands around the deltas
    make_quirk("a first event without choices, with empty names", CALLS, lambda: [AZURE_FIRST, *CALLS]),
    make_quirk(
        "results of filters on every choice",
        CALLS,
        lambda: each_choice(CALLS, content_filter_results={"hate": {"filtered": False}}),
    ),
    make_quirk(
        "events without choices at all",
        CALLS,
        lambda: [e for event in CALLS for e in (event, {**BASE, "usage": None, "obfuscation": "x"})],
    ),
    make_quirk(
        "filling and notes everywhere",
        CALLS,
        lambda: each_delta(
            ({**event, "p": "abc", "provider": "x", "service_tier": None} for event in CALLS),
            padding="abc",
            token_id=None,
            channel="final",
        ),
    ),
    make_quirk(
        "another id on every event",
        CALLS,
        lambda: [{**event, "id": f"chatcmpl-{at + 1}"} for at, event in enumerate(CALLS)],
    ),
    make_quirk(
        "no id and no model",
        CALLS,
        lambda: ({name: event[name] for name in event if name not in ("id",)} for event in CALLS),
        "id",
    ),
    make_quirk("no role", CALLS, lambda: [chunk({"content": ""}), *CALLS[1:]]),
    make_quirk("a role on every delta", CALLS, lambda: each_delta(CALLS, role="assistant")),
    make_quirk("a role that is null", CALLS, lambda: each_delta(CALLS, role=None)),
    make_quirk(
        "content that is null beside calls", CALLS, lambda: [*CALLS[:3], *each_delta(CALLS[3:], content=None)]
    ),
    make_quirk(
        "content that is empty beside calls",
        CALLS,
        lambda: [*CALLS[:3], *each_delta(CALLS[3:], content="", reasoning_content="", refusal=None)],
    ),
    make_quirk(
        "calls that are null or empty beside words",
        WORDS,
        lambda: each_delta(each_delta(WORDS, tool_calls=None), tool_calls=[], function_call=None),
    ),
    make_quirk("several choices", WORDS, lambda: two_choices(WORDS)),
    make_quirk("the message so far beside each delta", WORDS, lambda: so_far(WORDS)),
    make_quirk(
        "one message and no deltas",
        WORDS,
        lambda: [
            {
                **BASE,
                "choices": [
                    {
                        "index": 0,
                        "message": {"role": "assistant", "content": "It is 27 °C."},
                        "finish_reason": "stop",
                    }
                ],
                "usage": USAGE,
            }
        ],
    ),
    # counts
    make_quirk("counts beside the reason", CALLS, lambda: [*CALLS[:-2], {**CALLS[-2], "usage": USAGE}]),
    make_quirk("counts on every event, totals so far", CALLS, lambda: add_running_usage(CALLS)),
    make_quirk(
        "counts under another name",
        CALLS,
        lambda: [*CALLS[:-2], {**CALLS[-2], "x_groq": {"id": "r", "usage": USAGE}}],
    ),
    make_quirk(
        "counts in two places",
        CALLS,
        lambda: [*CALLS[:-2], {**CALLS[-2], "x_groq": {"usage": USAGE}}, USAGE_CHUNK],
    ),
    make_quirk("counts before the reason", CALLS, lambda: [*CALLS[:-2], CALLS[-1], CALLS[-2]]),
    make_quirk(
        "counts that are null but once",
        CALLS,
        lambda: [*({**e, "usage": None} for e in CALLS[:-1]), CALLS[-1]],
    ),
    make_quirk("no counts", CALLS, lambda: CALLS[:-1], "usage"),
    # the end
    make_quirk("no sentinel", CALLS, lambda: CALLS, done=False),
    make_quirk("no sentinel and no counts", CALLS, lambda: CALLS[:-1], "usage", done=False),
    make_quirk("the reason twice", CALLS, lambda: [*CALLS[:-1], {**CALLS[-2], "usage": USAGE}]),
    make_quirk(
        "a reason after the thoughts already",
        THOUGHTS,
        lambda: [*THOUGHTS[:2], chunk({"reasoning_content": "Tokyo."}, "stop"), *THOUGHTS[3:]],
    ),
    make_quirk(
        "the reason beside the last piece",
        WORDS,
        lambda: [*WORDS[:2], chunk({"content": " 27 °C."}, "stop"), WORDS[-1]],
    ),
    make_quirk("no reason, but the sentinel", CALLS, lambda: [*CALLS[:-2], CALLS[-1]], "stop_detail"),
    make_quirk(
        "an empty reason until the end",
        CALLS,
        lambda: [*each_choice(CALLS[:-2], finish_reason=""), *CALLS[-2:]],
    ),
    make_quirk(
        "the reason is stop beside calls",
        CALLS,
        lambda: [*CALLS[:-2], chunk({}, "stop"), CALLS[-1]],
        "stop_detail",
    ),
    make_quirk(
        "the reason in other words",
        CALLS,
        lambda: [*CALLS[:-2], chunk({}, "tool_call"), CALLS[-1]],
        "stop_detail",
    ),
    make_quirk(
        "a reason nobody knows", CALLS, lambda: [*CALLS[:-2], chunk({}, "because"), CALLS[-1]], "stop_detail"
    ),
    # which call a piece belongs to
    make_quirk(
        "whole calls", CALLS, lambda: with_calls(*(chunk({"tool_calls": [make_call(at)]}) for at in range(3)))
    ),
    make_quirk(
        "all calls in one delta",
        CALLS,
        lambda: with_calls(chunk({"tool_calls": [make_call(at) for at in range(3)]})),
    ),
    make_quirk(
        "all calls beside the reason",
        CALLS,
        lambda: [
            *CALLS[:3],
            chunk({"tool_calls": [make_call(at) for at in range(3)]}, "tool_calls"),
            CALLS[-1],
        ],
    ),
    make_quirk("the index is missing", CALLS, lambda: each_piece(CALLS, no_index)),
    make_quirk(
        "the index is missing on whole calls",
        CALLS,
        lambda: with_calls(*(chunk({"tool_calls": [no_index(make_call(at))]}) for at in range(3))),
    ),
    make_quirk(
        "the index is missing and all calls are in one delta",
        CALLS,
        lambda: with_calls(chunk({"tool_calls": [no_index(make_call(at)) for at in range(3)]})),
    ),
    make_quirk(
        "the index is missing on the first piece only",
        CALLS,
        lambda: each_piece(CALLS, lambda call: no_index(call) if "id" in call else call),
    ),
    make_quirk("the index is null", CALLS, lambda: each_piece(CALLS, lambda call: {**call, "index": None})),
    make_quirk(
        "the index is a string",
        CALLS,
        lambda: each_piece(CALLS, lambda call: {**call, "index": str(call["index"])}),
    ),
    make_quirk(
        "the index is always 0, with new ids",
        CALLS,
        lambda: each_piece(CALLS, lambda call: {**call, "index": 0}),
    ),
    make_quirk(
        "the index is always 0 on whole calls",
        CALLS,
        lambda: with_calls(*(chunk({"tool_calls": [{**make_call(at), "index": 0}]}) for at in range(3))),
    ),
    make_quirk(
        "the index is always 0 and there are no ids",
        CALLS,
        lambda: each_piece(CALLS, lambda call: {**no_id(call), "index": 0}),
        "wire_id",
    ),
    make_quirk(
        "the index is always 0 and all calls are in one delta",
        CALLS,
        lambda: with_calls(chunk({"tool_calls": [{**no_id(make_call(at)), "index": 0} for at in range(3)]})),
        "wire_id",
    ),
    make_quirk(
        "the index does not begin at 0",
        CALLS,
        lambda: each_piece(CALLS, lambda call: {**call, "index": call["index"] + 4}),
    ),
    make_quirk(
        "neither index nor id",
        CALLS,
        lambda: each_piece(CALLS, lambda call: no_index(no_id(call))),
        "wire_id",
    ),
    make_quirk(
        "neither index nor id on whole calls",
        CALLS,
        lambda: with_calls(*(chunk({"tool_calls": [no_index(no_id(make_call(at)))]}) for at in range(3))),
        "wire_id",
    ),
    make_quirk("pieces of several calls in turns", CALLS, lambda: interleave_calls(CALLS)),
    make_quirk(
        "pieces in turns, told apart by id only",
        CALLS,
        lambda: each_piece(repeat_on_pieces(interleave_calls(CALLS), {"id"}), no_index),
    ),
    # ids and names
    make_quirk("ids are missing", CALLS, lambda: each_piece(CALLS, no_id), "wire_id"),
    make_quirk("ids are empty", CALLS, lambda: each_piece(CALLS, with_id("")), "wire_id"),
    make_quirk("ids are null", CALLS, lambda: each_piece(CALLS, with_id(None)), "wire_id"),
    make_quirk(
        "ids are the same for all",
        CALLS,
        lambda: each_piece(CALLS, lambda call: {**call, "id": "call"} if "id" in call else call),
        "wire_id",
    ),
    make_quirk(
        "ids are the same for all and the index is always 0",
        CALLS,
        lambda: with_calls(
            *(chunk({"tool_calls": [{**make_call(at), "id": "call", "index": 0}]}) for at in range(3))
        ),
        "wire_id",
    ),
    make_quirk("ids are repeated on every piece", CALLS, lambda: repeat_on_pieces(CALLS, {"id"})),
    make_quirk(
        "later pieces have empty ids and names",
        CALLS,
        lambda: each_piece(
            CALLS,
            lambda call: (
                call
                if "id" in call
                else {**call, "id": "", "type": "", "function": {**call["function"], "name": ""}}
            ),
        ),
    ),
    make_quirk(
        "later pieces have ids and names that are null",
        CALLS,
        lambda: each_piece(
            CALLS,
            lambda call: (
                call
                if "id" in call
                else {**call, "id": None, "type": None, "function": {**call["function"], "name": None}}
            ),
        ),
    ),
    make_quirk("names are repeated on every piece", CALLS, lambda: repeat_on_pieces(CALLS, {"name"})),
    make_quirk(
        "names and ids are repeated on every piece", CALLS, lambda: repeat_on_pieces(CALLS, {"name", "id"})
    ),
    make_quirk(
        "names are repeated, ids and index are missing",
        CALLS,
        lambda: each_piece(repeat_on_pieces(CALLS, {"name"}), lambda call: no_index(no_id(call))),
        "wire_id",
    ),
    make_quirk(
        "names come in pieces",
        CALLS,
        lambda: [*CALLS[:3], piece(0, "", "call_a", "get_"), piece(0, "", None, "weather"), *CALLS[4:]],
    ),
    make_quirk(
        "the type is missing",
        CALLS,
        lambda: each_piece(CALLS, lambda call: {name: call[name] for name in call if name != "type"}),
    ),
    make_quirk(
        "the calls come once more at the end",
        CALLS,
        lambda: [*CALLS[:10], chunk({"tool_calls": [make_call(at) for at in range(3)]}), *CALLS[10:]],
    ),
    # arguments
    make_quirk(
        "arguments are null at first",
        CALLS,
        lambda: each_piece(
            CALLS,
            lambda call: {
                **call,
                "function": {**call["function"], "arguments": call["function"]["arguments"] or None},
            },
        ),
    ),
    make_quirk(
        "no arguments are null", CALLS, lambda: [*CALLS[:9], piece(2, None, "call_c", "now"), *CALLS[10:]]
    ),
    make_quirk(
        "no arguments are an empty string",
        CALLS,
        lambda: [*CALLS[:9], piece(2, "", "call_c", "now"), *CALLS[10:]],
    ),
    make_quirk(
        "no arguments are the word null",
        CALLS,
        lambda: [*CALLS[:9], piece(2, "null", "call_c", "now"), *CALLS[10:]],
    ),
    make_quirk(
        "no arguments are left out",
        CALLS,
        lambda: with_calls(
            *CALLS[3:9],
            chunk(
                {
                    "tool_calls": [
                        {"index": 2, "id": "call_c", "type": "function", "function": {"name": "now"}}
                    ]
                }
            ),
        ),
    ),
    make_quirk(
        "an empty object before the arguments",
        CALLS,
        lambda: each_piece(
            CALLS,
            lambda call: (
                {**call, "function": {**call["function"], "arguments": "{}"}} if "id" in call else call
            ),
        ),
    ),
    # thoughts
    make_quirk(
        "thoughts are called reasoning", THOUGHTS, lambda: rename_thoughts(THOUGHTS, reasoning=str), "native"
    ),
    make_quirk(
        "thoughts stand in two places",
        THOUGHTS,
        lambda: rename_thoughts(THOUGHTS, reasoning=str, reasoning_content=str),
        "native",
    ),
    make_quirk(
        "thoughts stand in details",
        THOUGHTS,
        lambda: rename_thoughts(THOUGHTS, reasoning_details=detail),
        "native",
    ),
    make_quirk(
        "thoughts stand in details and beside them",
        THOUGHTS,
        lambda: rename_thoughts(THOUGHTS, reasoning=str, reasoning_details=detail),
        "native",
    ),
    make_quirk(
        "thoughts stand in a list of content",
        THOUGHTS,
        lambda: rename_thoughts(THOUGHTS, content=thought_chunks),
        "native",
    ),
    Quirk("thoughts stand in tags", THOUGHTS, lambda: join_events(tagged_chunks()), ("native",), "tags"),
]


def test_there_are_enough_quirks_and_none_twice():
    assert len({quirk.name for quirk in QUIRKS}) == len(QUIRKS) >= 25
    assert all(quirk.make_body() != join_events(quirk.clean) for quirk in QUIRKS if quirk.headers is None)


@pytest.mark.parametrize("quirk", QUIRKS, ids=lambda quirk: quirk.name)
def test_a_quirk_changes_nothing(quirk):
    clean, seen = listen(join_events(quirk.clean))
    body, request = quirk.make_body(), make_request(quirk.endpoint)
    for step in (None, 1, 7, 64):
        reply, deltas = listen(body, request, step, quirk.headers)
        reply = replace(reply, origin=clean.origin)
        assert drop_lost(reply, quirk.lost) == drop_lost(clean, quirk.lost)
        if step is None:
            assert collect_shown(deltas)[:2] == collect_shown(seen)[:2]
            assert [json.loads(said or "{}") or {} for _, said in shown_calls(deltas)] == [
                json.loads(said) for _, said in shown_calls(seen)
            ]


def shown_calls(deltas):
    """As shown, except that arguments some servers announce by an empty object are shown after it."""
    return [(name, said.removeprefix("{}") or said) for name, said in collect_shown(deltas)[2]]


def test_the_clean_streams_say_what_they_should():
    calls, _ = listen(join_events(CALLS))
    assert calls.parts == (
        Text(text="Let me look. 🌡️"),
        *(
            ToolCall(id="", name=name, arguments=given, wire_id=call_id)
            for name, given, call_id in zip(NAMES, ARGUMENTS, IDS, strict=True)
        ),
    )
    assert (calls.stop, calls.stop_detail, calls.id) == (Stop.TOOLS, "tool_calls", "chatcmpl-1")
    assert calls.usage == Usage(input=8, cache_read=12, output=9)
    words, _ = listen(join_events(WORDS))
    assert (words.parts, words.stop) == ((Text(text="It is 27 °C."),), Stop.DONE)
    thoughts, _ = listen(join_events(THOUGHTS))
    assert thoughts.parts == (Reasoning(text="Well, Tokyo."), Text(text="It is 27 °C."))


def test_arguments_given_as_an_object_are_the_same_arguments():
    """Their spelling is lost with the quotes around them; their value is not."""
    clean, _ = listen(join_events(CALLS))
    wholes = [object_arguments(make_call(at)) for at in range(3)]
    reply, _ = listen(join_events(with_calls(*(chunk({"tool_calls": [call]}) for call in wholes))))
    assert [json.loads(call.arguments) for call in reply.calls] == [
        json.loads(call.arguments) for call in clean.calls
    ]
    assert replace(reply, parts=()) == replace(clean, parts=())


def test_an_old_single_call_is_a_call():
    begun = chunk({"function_call": {"name": "get_weather", "arguments": ""}})
    pieces = [chunk({"function_call": {"arguments": said}}) for said in ('{"city": ', '"Tokyo {1}"}')]
    reply, deltas = listen(join_events([*CALLS[:3], begun, *pieces, chunk({}, "function_call"), USAGE_CHUNK]))
    clean, _ = listen(join_events([*CALLS[:6], *CALLS[10:]]))
    lost = ("wire_id", "native", "stop_detail")
    assert drop_lost(reply, lost) == drop_lost(clean, lost)
    assert collect_shown(deltas)[2] == [["get_weather", ARGUMENTS[0]]]


def test_a_whole_reply_in_json_where_a_stream_was_asked_for():
    message = {
        "role": "assistant",
        "content": "Let me look. 🌡️",
        "tool_calls": [make_call(at) for at in range(3)],
    }
    body = {
        **BASE,
        "object": "chat.completion",
        "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}],
        "usage": USAGE,
    }
    clean, _ = listen(join_events(CALLS))
    for headers in ({"content-type": "application/json"}, {"content-type": "text/event-stream"}, {}):
        assert listen(json.dumps(body).encode(), headers=headers)[0] == clean


def test_nothing_may_be_missing_in_the_middle():
    """A stream without a reason to stop and without the sentinel was cut, whatever it said."""
    for count in range(len(CALLS) - 2):
        with pytest.raises(ProviderError) as caught:
            listen(join_events(CALLS[:count], done=False) or b": nothing\n\n")
        assert caught.value.failure.kind == "cut"


def test_a_sentinel_put_behind_broken_arguments_makes_them_no_call():
    """Proxies end properly what broke off behind them; half the arguments show it."""
    with pytest.raises(ProviderError) as caught:
        listen(join_events(CALLS[:5]))
    assert caught.value.failure.kind == "cut"


@pytest.mark.parametrize(
    "text",
    [
        '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>',
        "<function=now></function>",
        '[TOOL_CALLS][{"name": "now"}]',
        "<|tool_call|>now()",
        "<|python_tag|>now()",
        "<\uff5ctool\u2581calls\u2581begin\uff5c>now",
    ],
)
def test_a_call_written_out_as_text_is_no_answer(text):
    events = [chunk({"content": text}), chunk({}, "stop"), USAGE_CHUNK]
    offered, _ = listen(join_events(events), make_request(tools=(ToolSpec(name="now"),)))
    assert (offered.stop, offered.stop_detail) == (Stop.MALFORMED, "stop: a call was written out as text")
    assert offered.text == text
    # Without tools it can only be what somebody asked for, and so can the same words further on.
    assert listen(join_events(events))[0].stop is Stop.DONE
    quoted = [chunk({"content": f"It looks like this: {text}"}), chunk({}, "stop")]
    assert listen(join_events(quoted), make_request(tools=(ToolSpec(name="now"),)))[0].stop is Stop.DONE


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("text", ["<tool_call>{}</tool_call>", "[TOOL_CALLS] x", "<function=look>{}"])
@pytest.mark.parametrize(
    ("choice", "stop"),
    [
        (ToolChoice(), Stop.MALFORMED),
        (ToolChoice(mode="any"), Stop.MALFORMED),
        (ToolChoice(mode="none"), Stop.DONE),
    ],
)
def test_a_call_written_as_text_is_an_answer_where_calls_are_forbidden(choice, stop, text, stream):
    model = Model(id="m", endpoint=Endpoint(name="e", family="openai_chat"))
    request = Request(
        model=model,
        messages=(Message(id="m", role="user", parts=(Text(text="?"),)),),
        tools=(ToolSpec(name="look"),),
        tool_choice=choice,
        stream=stream,
    )
    counts = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
    said = {"role": "assistant", "content": text}
    place = "delta" if stream else "message"
    body = {
        "id": "r",
        "model": "m",
        "choices": [{"index": 0, place: said, "finish_reason": "stop"}],
        "usage": counts,
    }
    data = json.dumps(body).encode()
    kind = "text/event-stream" if stream else "application/json"
    decoder = CODEC.new_decoder(request, 200, {"content-type": kind})
    list(decoder.feed(b"data: " + data + b"\n\ndata: [DONE]\n\n" if stream else data))
    assert decoder.close().stop is stop
