"""Replies on Chat Completions, and what goes wrong: how they end, what they counted, whose fault it is."""

import json
import os
from random import Random

import pytest
from decode_kit import assert_deltas_cost_the_same
from msgspec.structs import replace

from bridle.providers import load_codec
from bridle.sim.families import find_family
from bridle.values.errors import Failure, ProviderError
from bridle.values.message import Media, Opaque, Reasoning, Reply, Stop, Text, ToolCall
from bridle.values.model import Endpoint, Model
from bridle.values.request import Request
from bridle.values.result import CallReady, ToolCallDelta
from bridle.values.usage import Usage

CODEC = load_codec("openai_chat")
SERVER = find_family(CODEC.family)
ASKED = Request(model=Model(id="model-x", endpoint=Endpoint(name="here", family="openai_chat")))
CAMPAIGN = int(os.environ.get("BRIDLE_CAMPAIGN", "1"))


def decoder(status=200, headers=None):
    return CODEC.new_decoder(ASKED, status, headers or {})


def heard(body, status=200, headers=None):
    """The reply, or the failure, in these bytes."""
    reader = decoder(status, headers)
    try:
        reader.feed(body if isinstance(body, bytes) else json.dumps(body).encode())
        return reader.close()
    except ProviderError as error:
        return error.failure


def completion(message=None, reason="stop", **more):
    choice = {"index": 0, "message": {"role": "assistant", "content": "Hi", **(message or {})}}
    return {"id": "r1", "model": "m1", "choices": [{**choice, "finish_reason": reason}], **more}


def stream(*chunks, done=True):
    frames = [f"data: {json.dumps(chunk)}\n\n" for chunk in chunks]
    return "".join([*frames, "data: [DONE]\n\n" if done else ""]).encode()


def piece(delta=None, reason=None, **more):
    return {"id": "r1", "choices": [{"index": 0, "delta": delta or {}, "finish_reason": reason}], **more}


# --- how it ends ----------------------------------------------------------------------------------------

CALL = {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": "{}"}}


@pytest.mark.parametrize(
    ("reason", "calls", "stop"),
    [
        ("stop", False, Stop.DONE),
        ("eos", False, Stop.DONE),
        ("stop", True, Stop.TOOLS),
        ("tool_calls", True, Stop.TOOLS),
        ("tool_calls", False, Stop.TOOLS),
        ("function_call", True, Stop.TOOLS),
        ("length", False, Stop.LENGTH),
        ("length", True, Stop.LENGTH),
        ("content_filter", False, Stop.FILTERED),
        ("content_filter", True, Stop.FILTERED),
        ("model_length", False, Stop.CONTEXT),
        ("MAX_TOKENS", False, Stop.LENGTH),
        ("because", False, Stop.OTHER),
        ("because", True, Stop.TOOLS),
        ("", False, Stop.OTHER),
        (None, True, Stop.TOOLS),
        (7, False, Stop.OTHER),
    ],
)
def test_the_content_counts_for_more_than_the_reason(reason, calls, stop):
    message = {"tool_calls": [CALL]} if calls else {}
    whole = heard(completion(message, reason))
    told = heard(stream(piece({"content": "Hi", **message}), piece({}, reason)))
    assert whole.stop is told.stop is stop
    assert whole.stop_detail == told.stop_detail == (reason if isinstance(reason, str) else "")


def test_a_refusal_is_told_apart_from_an_answer():
    reply = heard(completion({"content": None, "refusal": "I will not."}))
    assert (reply.stop, reply.text, reply.stop_detail) == (Stop.REFUSED, "I will not.", "stop: I will not.")
    pieces = (piece({"refusal": "I will"}), piece({"refusal": " not."}), piece({}, "stop"))
    assert replace(heard(stream(*pieces)), id="", origin=reply.origin) == replace(reply, id="")
    both = heard(completion({"content": "Well", "refusal": "No."}))
    assert both.parts == (Text(text="Well"), Text(text="No."))
    assert heard(completion({"refusal": ""})).stop is Stop.DONE


def test_a_filter_says_what_it_found():
    found = {"hate": {"filtered": True}, "violence": {"filtered": False}}
    choice = {"index": 0, "finish_reason": "content_filter", "content_filter_results": found}
    assert heard({"choices": [choice]}).stop_detail == "content_filter: hate"
    assert heard(stream({"choices": [{**choice, "delta": {}}]})).stop_detail == "content_filter: hate"


@pytest.mark.parametrize(
    ("given", "reason", "arguments"),
    [
        ("", "tool_calls", "{}"),
        ("", "length", ""),
        ("{}", "length", "{}"),
        ('{"a": "ha', "length", '{"a": "ha'),
        ('{"a": "ha', "tool_calls", '{"a": "ha'),
        ('{"a": 1.50, "b": "\\u00e9"}', "tool_calls", '{"a": 1.50, "b": "\\u00e9"}'),
        (None, "tool_calls", "{}"),
        ({"a": [1, None]}, "stop", '{"a":[1,null]}'),
    ],
)
def test_arguments_are_the_text_that_arrived(given, reason, arguments):
    call = {**CALL, "function": {"name": "look", "arguments": given}}
    for reply in (
        heard(completion({"tool_calls": [CALL, call]}, reason)),
        heard(
            stream(
                piece({"tool_calls": [CALL]}),
                piece({"tool_calls": [{**call, "index": 1, "id": "b"}]}, reason),
            )
        ),
    ):
        assert [each.arguments for each in reply.calls] == ["{}", arguments]


def test_what_is_no_call_is_left_out():
    broken = [None, 7, {}, {"function": None}, {"function": {"arguments": "{}"}}, {"function": {"name": ""}}]
    reply = heard(completion({"tool_calls": [*broken, CALL], "function_call": {"name": "", "arguments": ""}}))
    assert [call.name for call in reply.calls] == ["look"]


def test_deltas_number_calls_and_show_them_as_they_grow():
    reader = decoder()
    deltas = list(
        reader.feed(
            stream(
                piece({"tool_calls": [{**CALL, "index": 3}]}),
                piece({"tool_calls": [{**CALL, "index": 5, "id": "b", "function": {"name": "go"}}]}),
                piece({"tool_calls": [{"index": 5, "function": {"arguments": '{"a"'}}]}),
                piece({"tool_calls": [{"index": 5, "function": {"arguments": ":1}"}}]}),
                done=False,
            )
        )
    )
    assert deltas == [
        ToolCallDelta(index=0, name="look", arguments="{}"),
        ToolCallDelta(index=1, name="go", arguments=""),
        CallReady(index=0, call=ToolCall(id="", name="look", arguments="{}")),
        ToolCallDelta(index=1, name="go", arguments='{"a"'),
        ToolCallDelta(index=1, name="go", arguments=":1}"),
    ]


def test_partial_is_what_was_said_so_far():
    reader = decoder()
    reader.feed(stream(piece({"reasoning_content": "Hm."}), piece({"content": "half a"}), done=False))
    assert reader.partial_text == "half a"
    with pytest.raises(ProviderError):
        reader.close()


def test_sound_is_what_was_said_and_how_it_sounded():
    audio = {"id": "audio_1", "data": "AAAA", "transcript": "Hello.", "expires_at": 7}
    whole = heard(completion({"content": None, "audio": audio}))
    assert whole.parts == (
        Text(text="Hello.", native='{"audio":{"expires_at":7,"id":"audio_1"}}'),
        Media(kind="audio", data="AAAA"),
    )
    told = heard(
        stream(
            piece({"audio": {"id": "audio_1", "transcript": "Hel"}}),
            piece({"audio": {"data": "AA"}}),
            piece({"audio": {"transcript": "lo."}}),
            piece({"audio": {"data": "AA"}}),
            piece({"audio": {"expires_at": 7}}),
            piece({}, "stop"),
        )
    )
    assert told.parts == whole.parts
    empty = {"id": "", "data": "", "transcript": "", "expires_at": 0}
    assert heard(completion({"audio": empty})).parts == (Text(text="Hi"),)
    assert heard(completion({"content": None, "audio": {"id": "a"}})).parts == (
        Opaque(kind="audio", native='{"id":"a"}', answers=True),
    )


def test_sources_stay_with_the_words_and_are_not_sent_back():
    reply = heard(completion(citations=["https://a"], search_results=[], related_questions=None))
    assert reply.parts == (Text(text="Hi", native='{"reply":{"citations":["https://a"]}}'),)
    told = heard(
        stream(piece({"content": "Hi"}, citations=["https://x"]), piece({}, "stop", citations=["https://a"]))
    )
    assert told.parts == reply.parts
    assert SERVER.encode_reply(reply, stream=True) == SERVER.encode_reply(
        replace(told, origin=reply.origin), stream=True
    )


def test_members_of_next_year_are_put_together():
    told = heard(
        stream(
            piece({"content": "Hi", "mood": {"calm": 1}, "steps": [{"index": 0, "a": 1}], "tone": "x"}),
            piece({"mood": {"glad": 2}, "steps": [{"index": 0, "b": 2}, {"index": 1}], "tone": "y"}),
            piece({"mood": None}, "stop"),
        )
    )
    mood, steps = {"calm": 1, "glad": 2}, [{"index": 0, "a": 1, "b": 2}, {"index": 1}]
    whole = heard(completion({"mood": mood, "steps": steps, "tone": "y"}))
    assert told.parts == whole.parts


# --- counts ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("counts", "usage"),
    [
        ({"prompt_tokens": 20, "completion_tokens": 9}, Usage(input=20, output=9)),
        (
            {
                "prompt_tokens": 20,
                "completion_tokens": 9,
                "prompt_tokens_details": {"cached_tokens": 7, "cache_write_tokens": 5},
                "completion_tokens_details": {"reasoning_tokens": 4},
                "total_tokens": 29,
            },
            Usage(input=8, cache_read=7, cache_write=5, output=9, reasoning=4),
        ),
        (
            {
                "prompt_tokens": 20,
                "completion_tokens": 9,
                "total_tokens": 33,
                "completion_tokens_details": {"reasoning_tokens": 4},
            },
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
            {
                "prompt_tokens": 20,
                "completion_tokens": 9,
                "prompt_cache_hit_tokens": 15,
                "prompt_cache_miss_tokens": 5,
            },
            Usage(input=5, cache_read=15, output=9),
        ),
        (
            {
                "prompt_tokens": 20,
                "completion_tokens": 9,
                "cache_read_input_tokens": 15,
                "cache_creation_input_tokens": 2,
            },
            Usage(input=3, cache_read=15, cache_write=2, output=9),
        ),
        (
            {"prompt_tokens": 20, "completion_tokens": 9, "cached_tokens": 15},
            Usage(input=5, cache_read=15, output=9),
        ),
        (
            {"prompt_tokens": 20, "completion_tokens": 9, "num_cached_tokens": 15},
            Usage(input=5, cache_read=15, output=9),
        ),
        (
            {"prompt_tokens": 5, "completion_tokens": 9, "cached_tokens": 15},
            Usage(cache_read=5, output=9),
        ),
        (
            {"prompt_tokens": 5, "completion_tokens": 9, "cached_tokens": 15, "total_tokens": 29},
            Usage(input=5, cache_read=15, output=9),
        ),
        ({"prompt_tokens": -3, "completion_tokens": "9", "prompt_tokens_details": None}, Usage()),
        ({}, Usage(incomplete=True)),
        (None, Usage(incomplete=True)),
        ([1], Usage(incomplete=True)),
    ],
)
def test_counts_never_overlap(counts, usage):
    assert heard(completion(usage=counts)).usage == usage
    assert (
        heard(stream(piece({"content": "Hi"}), piece({}, "stop"), {"choices": [], "usage": counts})).usage
        == usage
    )


def test_what_was_counted_before_a_stream_broke():
    counts = {"prompt_tokens": 20, "completion_tokens": 2}
    reader = decoder()
    assert reader.partial_usage == Usage(incomplete=True)
    reader.feed(stream(piece({"content": "Hi"}, usage=counts), done=False))
    assert reader.partial_usage == Usage(input=20, output=2, incomplete=True)


# --- what goes wrong ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "body", "kind", "message"),
    [
        (400, {"error": {"message": "No.", "type": "invalid_request_error", "code": None}}, "invalid", "No."),
        (401, {"error": {"message": "Bad key", "code": "invalid_api_key"}}, "unauthorized", "Bad key"),
        (400, {"error": {"message": "Too long", "code": "context_length_exceeded"}}, "context", "Too long"),
        (
            400,
            {"error": {"message": "exceeds the available context size", "type": "exceed_context_size_error"}},
            "context",
            "exceeds the available context size",
        ),
        (
            500,
            {"error": {"message": "Context size has been exceeded.", "code": 500}},
            "context",
            "Context size has",
        ),
        (
            429,
            {"error": {"message": "Slow", "type": "requests", "code": "rate_limit_exceeded"}},
            "rate_limited",
            "Slow",
        ),
        (429, {"error": {"message": "You exceeded your current quota"}}, "quota", "You exceeded"),
        (
            402,
            {"error": {"message": "Insufficient Balance", "code": "invalid_request_error"}},
            "quota",
            "Insufficient",
        ),
        (413, {"error": {"message": "Too big", "code": "rate_limit_exceeded"}}, "rate_limited", "Too big"),
        (400, {"error": {"message": "Model Not Exist"}}, "not_found", "Model Not Exist"),
        (404, {"code": "Some", "error": "The model is gone"}, "not_found", "The model is gone"),
        (401, {"error": "Invalid credentials"}, "unauthorized", "Invalid credentials"),
        (400, {"message": "Bad", "type": "Bad Request", "code": 400}, "invalid", "Bad"),
        (401, {"detail": "Unauthorized"}, "unauthorized", "Unauthorized"),
        (
            422,
            {"detail": [{"loc": ["body", "tools", 0], "msg": "Field required"}, "odd"]},
            "invalid",
            "body.tools.0: Field required; odd",
        ),
        (
            400,
            {
                "error": {
                    "message": "Provider returned error",
                    "code": 400,
                    "metadata": {"raw": '{"m":"why"}'},
                }
            },
            "invalid",
            'Provider returned error: {"m":"why"}',
        ),
        (
            400,
            {"error": {"code": "400", "message": "Param Incorrect", "param": "Not supported model bad"}},
            "not_found",
            "Param Incorrect: Not supported model bad",
        ),
        (
            429,
            {"error": {"message": "The engine is overloaded", "type": "engine_overloaded_error"}},
            "overloaded",
            "The",
        ),
        (503, {"error": {"message": "Loading model"}}, "overloaded", "Loading model"),
        (400, {"error": {"message": "No such call", "code": "tool_use_failed"}}, "server", "No such call"),
        (500, b"", "server", "HTTP 500, without an explanation"),
        (502, b"<html><head><title>Bad gateway</title></head></html>", "server", "HTTP 502: Bad gateway"),
        (404, b"404 page not found", "not_found", "HTTP 404: 404 page not found"),
        (400, [{"error": {"message": "In a list"}}], "invalid", "In a list"),
    ],
)
def test_errors_of_every_shape(status, body, kind, message):
    failure = heard(body, status)
    assert isinstance(failure, Failure)
    assert (failure.kind, failure.status) == (kind, status)
    assert failure.message.startswith(message)


@pytest.mark.parametrize(
    ("headers", "message", "wait"),
    [
        ({"retry-after": "7"}, "Slow", 7.0),
        ({"retry-after": "0"}, "try again in 9s", 0.0),
        ({"retry-after-ms": "1500"}, "Slow", 1.5),
        ({}, "Please try again in 7.66s. Visit us.", 7.66),
        ({}, "Please try again in 1m2.5s.", 62.5),
        ({}, "Please try again in 350ms.", 0.35),
        ({}, "Please retry shortly.", None),
        ({}, "Please try again in a while.", None),
    ],
)
def test_how_long_to_wait(headers, message, wait):
    body = {"error": {"message": message, "code": "rate_limit_exceeded"}}
    assert heard(body, 429, headers).retry_after_seconds == wait


ERROR = {"message": "Upstream broke", "code": 502}


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ({"error": ERROR}, "server"),
        ({"error": "Upstream broke"}, "server"),
        ({"error": {**ERROR, "code": 429}}, "rate_limited"),
        ({"error": {**ERROR, "code": "content_filter", "status": 400}}, "invalid"),
        (
            {
                "choices": [
                    {"index": 0, "error": ERROR, "message": {"content": "Hi"}, "finish_reason": "stop"}
                ]
            },
            "server",
        ),
        ({"object": "error", "message": "Upstream broke", "type": "invalid_request_error"}, "invalid"),
        (
            {"choices": None, "base_resp": {"status_code": 1004, "status_msg": "Upstream broke"}},
            "unauthorized",
        ),
        ({"choices": None, "base_resp": {"status_code": 9999, "status_msg": "Upstream broke"}}, "server"),
    ],
)
def test_an_error_under_a_good_status_is_an_error(body, kind):
    for told in (json.dumps(body).encode(), stream(piece({"content": "Hi"}), body), stream(body, done=False)):
        failure = heard(told)
        assert isinstance(failure, Failure), told
        assert (failure.kind, failure.status) == (kind, 200)
        assert "Upstream broke" in failure.message


def test_an_error_event_by_name_only():
    body = stream(piece({"content": "Hi"}), done=False) + b'event: error\ndata: {"reason": "gone"}\n\n'
    failure = heard(body)
    assert (failure.kind, failure.message) == ("server", '{"reason": "gone"}')


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("error", "server"),
        ("insufficient_system_resource", "overloaded"),
        ("network_error", "server"),
        ("abort", "cut"),
    ],
)
def test_a_server_that_gave_up_has_not_replied(reason, kind):
    for body in (json.dumps(completion(reason=reason)).encode(), stream(piece({"content": "Hi"}, reason))):
        assert heard(body).kind == kind


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"", "cut"),
        (b"  \n", "cut"),
        (b'{"choices": [', "cut"),
        (b"<html>hello</html>", "garbled"),
        (b'"a string"', "garbled"),
        (b"{}", "garbled"),
        (b'{"choices": []}', "garbled"),
        (b'{"choices": [{"index": 0}]}', "garbled"),
        (b'{"choices": [7]}', "garbled"),
        (b": nothing but comments\n\n", "cut"),
        (b"data: [DONE]\n\n", None),
        (b"data: {broken\n\n", "garbled"),
        (b"data: 7\n\n", "garbled"),
    ],
)
def test_what_is_no_reply(body, kind):
    found = heard(body)
    assert (found.kind if isinstance(found, Failure) else None) == kind


def test_a_decoder_that_failed_stays_failed():
    reader = decoder()
    with pytest.raises(ProviderError):
        reader.feed(stream({"error": ERROR}))
    for again in (lambda: reader.feed(stream(piece({"content": "Hi"}))), reader.close):
        with pytest.raises(ProviderError, match="Upstream broke"):
            again()


# --- laws under load ------------------------------------------------------------------------------------

ARGUMENTS = ('{"path": "a.txt", "text": "one {two} \\"three\\""}', '{"n": [1, {"a": 2}]}', "{}")


def three_tools():
    parts = (
        Reasoning(text="Let me think."),
        Text(text="Looking — 🌡️."),
        *(
            ToolCall(id="", name=f"tool_{n}", arguments=a, wire_id=f"call_{n}")
            for n, a in enumerate(ARGUMENTS)
        ),
    )
    reply = Reply(
        parts=parts,
        stop=Stop.TOOLS,
        origin=heard(completion()).origin,
        usage=Usage(input=3, output=5),
        id="r1",
    )
    return reply, b"".join(SERVER.encode_reply(reply, stream=True).frames)


def test_cut_anywhere_no_tool_is_offered_with_half_its_arguments():
    reply, body = three_tools()
    accepted = 0
    for cut in range(len(body)):
        for end in (b"", b"\n\n", b"\n\ndata: [DONE]\n\n"):
            found = heard(body[:cut] + end)
            if isinstance(found, Reply):
                accepted += 1
                for call in found.calls:
                    assert call.arguments in ARGUMENTS
                if not end:
                    assert replace(found, usage=reply.usage, stop_detail="") == reply
    assert 0 < accepted < len(body)


def test_an_answer_is_whole_when_only_its_counts_are_missing():
    _, body = three_tools()
    counted = body.index(b'"usage"')
    before = body.rindex(b"data:", 0, counted)
    assert heard(body[:before]).usage == Usage(incomplete=True)


DELTAS = {
    "words": lambda at: {"content": " word"},
    "thoughts": lambda at: {"reasoning_content": " word"},
    "details": lambda at: {"reasoning_details": [{"type": "reasoning.text", "text": " word", "index": 0}]},
    "arguments": lambda at: {
        "tool_calls": [{"index": 0, "function": {"arguments": " }" if at else '{"a": "'}}]
    },
    "names": lambda at: {"tool_calls": [{"function": {"name": "f", "arguments": " }" if at else '{"a": "'}}]},
}


@pytest.mark.parametrize("kind", DELTAS)
def test_a_delta_costs_the_same_however_many_came_before(kind):
    def make_slices(count):
        begun = piece({"tool_calls": [{**CALL, "index": 0, "function": {"name": "f"}}]})
        frames = [stream(begun, done=False)] if kind == "arguments" else []
        frames += [stream(piece(DELTAS[kind](at)), done=False) for at in range(count)]
        return [*frames, stream(piece({}, "length"))]

    assert_deltas_cost_the_same(decoder, make_slices, " word" if kind == "words" else "")


def test_mutated_replies_give_a_reply_or_a_failure():
    """Seeded; BRIDLE_CAMPAIGN multiplies the number of tries."""
    random = Random(20_261_115)
    _, body = three_tools()
    bodies = [
        body,
        stream(*MANY),
        json.dumps(completion({"tool_calls": [CALL], "reasoning": "Hm."})).encode(),
    ]
    seen = set()
    for number in range(3_000 * CAMPAIGN):
        told = random.choice(bodies)
        told = damaged(told, random) if number % 2 else mutated(told, random)
        found = heard(told, random.choice((200, 200, 200, 400, 503)))
        seen.add(found.kind if isinstance(found, Failure) else "reply")
        if isinstance(found, Reply):
            json.dumps(json.loads(b"".join(SERVER.encode_reply(found, stream=False).frames)))
    assert {"reply", "cut", "garbled", "server"} <= seen


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
ODD = (
    None,
    True,
    0,
    -1,
    1.5,
    10**30,
    "",
    "x",
    "\ud83d",
    [],
    {},
    [None],
    [[]],
    {"type": "text"},
    {"index": 0},
)


def damaged(body, random):
    """Bytes lost, doubled, replaced and put in."""
    data = bytearray(body)
    for _ in range(random.randint(1, 5)):
        at = random.randrange(len(data) + 1)
        match random.randrange(4):
            case 0:
                data[at : at + 1] = random.randbytes(1)
            case 1:
                del data[at : at + random.randint(1, 40)]
            case 2:
                data[at:at] = data[at : at + random.randint(1, 80)]
            case _:
                data[at:at] = random.choice((b"\n\n", b"null", b"{", b'"', b"\\ud83d", b"\xff", b"[" * 3000))
    return bytes(data)


def mutated(body, random):
    """Well-formed JSON with members lost and values of the wrong kind."""
    if body[:1] == b"{":
        return json.dumps(changed(json.loads(body), random)).encode()
    events = body.split(b"\n\n")
    for _ in range(random.randint(1, 3)):
        at = random.randrange(len(events))
        if events[at].startswith(b"data: {"):
            events[at] = b"data: " + json.dumps(changed(json.loads(events[at][6:]), random)).encode()
    return b"\n\n".join(events)


def changed(value, random):
    node = value
    while isinstance(node, dict | list) and node:
        key = random.choice(list(node)) if isinstance(node, dict) else random.randrange(len(node))
        if random.random() < 0.3 or not isinstance(node[key], dict | list) or not node[key]:
            if random.random() < 0.3:
                del node[key]
            else:
                node[key] = json.loads(json.dumps(random.choice(ODD)))
            break
        node = node[key]
    return value


@pytest.mark.parametrize("depth", [50, 300, 600, 900, 2_000, 20_000])
def test_deep_nesting_is_a_reply_or_the_servers_fault(depth):
    for member in ('"mood": %s', '"tool_calls": [{"function": {"name": "f", "arguments": %s}}]'):
        inside = member % ("[" * depth + "]" * depth)
        message = '{"role": "assistant", "content": "Hi", %s}' % inside  # noqa: UP031
        whole = '{"choices": [{"index": 0, "message": %s, "finish_reason": "stop"}]}' % message  # noqa: UP031
        told = f"data: {whole.replace('message', 'delta')}\n\ndata: [DONE]\n\n"
        for body in (whole, told):
            found = heard(body.encode())
            assert isinstance(found, Reply) or found.kind in ("garbled", "cut")


def test_numbers_of_choices_and_calls_may_be_written_with_a_point():
    def chunk(place, **delta):
        return {"id": "r1", "x": None, "choices": [{"index": place, "delta": delta, "finish_reason": None}]}

    calls = [{**CALL, "index": place, "id": f"c{place}"} for place in (0.0, 1.0)]
    reply = heard(
        stream(
            chunk(0.0, content="He"),
            chunk(1.0, content="other"),
            chunk(0.0, content="y", tool_calls=calls),
            piece(reason="tool_calls"),
        )
    )
    assert reply.text == "Hey"
    assert [call.wire_id for call in reply.calls] == ["c0.0", "c1.0"]
