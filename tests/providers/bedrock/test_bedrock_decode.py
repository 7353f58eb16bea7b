"""Replies of Bedrock Converse: JSON and streams, whole and cut, ordinary and odd."""

import json
import os
from base64 import b64encode
from random import Random

import pytest
from decode_kit import assert_deltas_cost_the_same, slice_body

from bridle.providers import load_codec
from bridle.providers.wire.eventstream import encode_event, encode_frame
from bridle.sim.families import find_family
from bridle.testing.conformance.codec import check_codec
from bridle.values.errors import Failure, ProviderError
from bridle.values.message import Media, Opaque, Reasoning, Reply, Stop, Text, ToolCall
from bridle.values.model import Endpoint, Model, Origin
from bridle.values.request import Request
from bridle.values.result import CallReady, ReasoningDelta, TextDelta, ToolCallDelta
from bridle.values.usage import Usage

CODEC = load_codec("bedrock_converse")
SERVER = find_family(CODEC.family)
ASKED = Request(model=Model(id="maker.x", endpoint=Endpoint(name="here", family="bedrock_converse")))
ORIGIN = Origin(family="bedrock_converse", endpoint="bedrock_converse", model="model-1")
HEADERS = {"content-type": "application/vnd.amazon.eventstream", "x-amzn-requestid": "r-1"}
CAMPAIGN = float(os.environ.get("BRIDLE_CAMPAIGN", "1"))
BEGIN = ("messageStart", {"role": "assistant", "p": "abc"})
COUNTS = {"inputTokens": 11, "outputTokens": 5, "totalTokens": 16}


def decode(body, status=200, headers=HEADERS, size=None):
    decoder = CODEC.new_decoder(ASKED, status, headers)
    step = size or len(body) or 1
    deltas = [delta for at in range(0, len(body), step) for delta in decoder.feed(body[at : at + step])]
    return decoder.close(), deltas


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


def ended(reason="end_turn", **more):
    return "messageStop", {"stopReason": reason, **more}


def counted(**counts):
    return "metadata", {"metrics": {"latencyMs": 9}, "usage": {**COUNTS, **counts}}


def streamed(*events, reason="end_turn"):
    return decode(stream(BEGIN, *events, ended(reason), counted()))


def message(*content, reason="end_turn", **more):
    output = {"message": {"role": "assistant", "content": content}}
    return json.dumps({"output": output, "stopReason": reason, "usage": COUNTS, **more}).encode()


def failure(body, status=200, headers=HEADERS):
    with pytest.raises(ProviderError) as failed:
        decode(body, status, headers)
    return failed.value.failure


def test_all_laws_hold_for_what_only_this_family_says():
    used = Usage(input=1, cache_read=2, cache_write=7, output=30, cache_write_1h=4)
    server = {"input": {"q": 1}, "name": "code", "toolUseId": "s", "type": "server_tool_use"}
    found = {
        "content": [{"json": {"out": "1"}}],
        "status": "success",
        "toolUseId": "s",
        "type": "code_result",
    }
    replies = [
        Reply(
            parts=(
                Reasoning(text="Let me think…", signature="c2ln"),
                Reasoning(text="", signature="only signed"),
                Reasoning(text="not signed"),
                Reasoning(signature="YmxvYg==", redacted=True),
                Opaque(kind="toolUse", native=compact({"toolUse": server})),
                Opaque(kind="toolResult", native=compact({"toolResult": found})),
                Text(
                    text="As it says",
                    native='{"citationsContent":{"citations":[{"title":"t"},{"source":"s"}]}}',
                ),
                Opaque(
                    kind="citationsContent", native='{"citationsContent":{"citations":[{"location":{}}]}}'
                ),
                Opaque(kind="tomorrow", native='{"tomorrow":{"x":[null,1.5]}}'),
                Media(kind="image", media_type="image/png", data="aGk="),
                ToolCall(id="", name="a", arguments='{"x": 1}', wire_id="t1", native='{"mood":"fine"}'),
                Text(text=""),
            ),
            stop=Stop.TOOLS,
            origin=ORIGIN,
            usage=used,
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
    ]
    check_codec(CODEC, replies=replies)


def compact(value):
    return json.dumps(value, separators=(",", ":"))


def test_deltas_say_what_they_belong_to():
    reply, deltas = streamed(
        delta(0, reasoningContent={"text": "hm"}),
        delta(0, reasoningContent={"text": "m"}),
        delta(0, reasoningContent={"signature": "si"}),
        delta(0, reasoningContent={"signature": "g"}),
        stop(0),
        delta(1, text="To"),
        delta(1, text="kyo"),
        stop(1),
        start(2, toolUse={"toolUseId": "t", "name": "look", "type": "tool_use"}),
        delta(2, toolUse={"input": ""}),
        delta(2, toolUse={"input": '{"a": '}),
        delta(2, toolUse={"input": "1}"}),
        stop(2),
        reason="tool_use",
    )
    assert deltas == [
        ReasoningDelta(reasoning="hm"),
        ReasoningDelta(reasoning="m"),
        TextDelta(text="To"),
        TextDelta(text="kyo"),
        ToolCallDelta(index=2, name="look", arguments='{"a": '),
        ToolCallDelta(index=2, name="look", arguments="1}"),
        CallReady(index=0, call=reply.calls[0]),
    ]
    assert reply == Reply(
        parts=(
            Reasoning(text="hmm", signature="sig"),
            Text(text="Tokyo"),
            ToolCall(id="", name="look", arguments='{"a": 1}', wire_id="t"),
        ),
        stop=Stop.TOOLS,
        origin=Origin(family="bedrock_converse", endpoint="here", model="maker.x"),
        usage=Usage(input=11, output=5),
        id="r-1",
        stop_detail="tool_use",
    )


def test_the_end_is_messagestop_and_counts_may_follow_or_not():
    said = stream(BEGIN, delta(0, text="half a"))
    decoder = CODEC.new_decoder(ASKED, 200, HEADERS)
    decoder.feed(said)
    assert decoder.partial_text == "half a"
    assert decoder.partial_usage == Usage(incomplete=True)
    with pytest.raises(ProviderError) as failed:
        decoder.close()
    assert failed.value.failure.kind == "cut"
    assert failure(said + stream(stop(0), counted())).kind == "cut"
    assert decode(said + stream(ended()))[0].usage == Usage(incomplete=True)
    assert decode(said + stream(ended(), counted())[:-1])[0].usage == Usage(incomplete=True)
    assert decode(said + stream(counted(), ended()))[0].usage == Usage(input=11, output=5)


@pytest.mark.parametrize(
    ("deltas", "reason", "arguments"),
    [
        ([], "tool_use", "{}"),
        (["", ""], "tool_use", "{}"),
        ([], "max_tokens", ""),
        (['{"a": "b'], "max_tokens", '{"a": "b'),
        (['{"b": 1.50,  "a":"\\u00e9"}'], "tool_use", '{"b": 1.50,  "a":"\\u00e9"}'),
    ],
)
def test_arguments_are_the_text_that_arrived(deltas, reason, arguments):
    pieces = [delta(0, toolUse={"input": piece}) for piece in deltas]
    reply, _ = streamed(start(0, toolUse={"toolUseId": "t", "name": "look"}), *pieces, reason=reason)
    assert reply.calls[0].arguments == arguments


def test_arguments_in_json_keep_their_spelling():
    body = message({"toolUse": {"toolUseId": "t", "name": "a", "input": {"b": 1}}})
    spelled = body.replace(b'{"b": 1}', b'{"b": 1.50,  "a":"\\u00e9"}')
    assert decode(spelled)[0].calls[0].arguments == '{"b": 1.50,  "a":"\\u00e9"}'
    assert decode(message({"toolUse": {"toolUseId": "t", "name": "a"}}))[0].calls[0].arguments == "{}"


def test_a_citation_makes_words_cited_wherever_it_comes():
    cited = Text(
        text="twenty days", native='{"citationsContent":{"citations":[{"title":"a"},{"title":"b"}]}}'
    )
    for order in ("ccww", "wwcc", "cwcw"):
        words, titles = iter(("twenty ", "days")), iter("ab")
        events = [
            delta(0, text=next(words)) if each == "w" else delta(0, citation={"title": next(titles)})
            for each in order
        ]
        reply, deltas = streamed(*events)
        assert reply.parts == (cited,)
        assert "".join(delta.text for delta in deltas) == "twenty days"
    whole = message({"citationsContent": {"citations": [{"title": "a"}, {"title": "b"}],
                                          "content": [{"text": "twenty days"}]}})  # fmt: skip
    assert decode(whole)[0].parts == (cited,)


def test_what_the_providers_own_tools_do_is_carried_and_not_run():
    used = {"name": "code", "toolUseId": "s", "type": "server_tool_use"}
    found = {"status": "success", "toolUseId": "s", "type": "code_result"}
    reply, deltas = streamed(
        start(0, toolUse=used),
        delta(0, toolUse={"input": '{"q":'}),
        delta(0, toolUse={"input": "1}"}),
        start(1, toolResult=found),
        delta(1, toolResult=[{"text": "[HIDDEN]"}]),
        delta(1, toolResult=[{"json": {}}]),
    )
    assert deltas == []
    assert reply.calls == ()
    contents = [{"text": "[HIDDEN]"}, {"json": {}}]
    native = ({"toolUse": {"input": {"q": 1}, **used}}, {"toolResult": {"content": contents, **found}})
    assert decode(message(*native))[0].parts == reply.parts
    assert [part.kind for part in reply.parts] == ["toolUse", "toolResult"]


def test_bytes_in_pieces_are_put_together_as_bytes():
    pieces = [b64encode(data).decode() for data in (b"a", b"bc", b"def")]
    reply, _ = streamed(
        *(delta(0, reasoningContent={"redactedContent": piece}) for piece in pieces),
        start(1, image={"format": "png"}),
        *(delta(1, image={"source": {"bytes": piece}}) for piece in pieces),
    )
    whole = b64encode(b"abcdef").decode()
    assert reply.parts == (
        Reasoning(signature=whole, redacted=True),
        Media(kind="image", media_type="image/png", data=whole),
    )


def test_unknown_things_are_passed_over_or_kept():
    reply, _ = streamed(
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
    assert reply.parts == (
        Text(text="plain"),
        Opaque(kind="tomorrow", native='{"tomorrow":{"x":"ab","y":[1,2]}}'),
        Opaque(kind="news", native='{"news":"ab"}'),
    )
    assert (reply.stop, reply.stop_detail) == (Stop.OTHER, "tomorrow")
    odd = decode(message({"type": "text", "text": "x"}, {"a": 1, "b": 2}, {"reasoningContent": {}}, {}))[
        0
    ].parts
    assert odd == (
        Text(text="x"),
        Opaque(kind="a", native='{"a":1,"b":2}'),
        Opaque(kind="reasoningContent", native='{"reasoningContent":{}}'),
        Opaque(kind="", native="{}"),
    )


def test_half_a_character_is_made_whole_by_its_other_half():
    halves = [
        encode_event("contentBlockDelta", b'{"contentBlockIndex":0,"delta":{"text":"%b"}}' % half)
        for half in (b"X", b"\\ud83d", b"\\ude00")
    ]
    reply, deltas = decode(stream(BEGIN) + b"".join(halves) + stream(ended()))
    assert reply.text == "X😀"
    assert "".join(delta.text for delta in deltas).isprintable()


def test_a_stream_that_begins_again_is_one_reply():
    again = (BEGIN, delta(0, text="no"), BEGIN, delta(0, text="yes"), ended(), counted())
    assert decode(stream(*again))[0].text == "yes"


def test_counts_never_overlap():
    counts = {"cacheReadInputTokenCount": 7, "cacheWriteInputTokens": 5, "cacheWriteInputTokenCount": 5,
              "cacheDetails": [{"ttl": "1h", "inputTokens": 2}, {"ttl": "5m", "inputTokens": 3}]}  # fmt: skip
    expected = Usage(input=11, cache_read=7, cache_write=5, output=5, cache_write_1h=2)
    assert decode(stream(BEGIN, ended(), counted(**counts)))[0].usage == expected
    assert decode(message(usage={**COUNTS, **counts}))[0].usage == expected
    assert decode(message(usage=None))[0].usage == Usage(incomplete=True)
    assert decode(message(usage={"inputTokens": -1, "outputTokens": True}))[0].usage == Usage()


@pytest.mark.parametrize(
    ("reason", "more", "detail"),
    [
        ("stop_sequence", {"additionalModelResponseFields": {"stop_sequence": "END"}}, "stop_sequence: END"),
        ("stop_sequence", {"additionalModelResponseFields": {"delta": {"stop_sequence": "X"}}}, "stop_sequence: X"),
        ("stop_sequence", {"additionalModelResponseFields": {"delta": {"stop_sequence": None}}}, "stop_sequence"),
        ("guardrail_intervened", {"trace": {"guardrail": {"actionReason": "Blocked."}}}, "guardrail_intervened: Blocked."),
        ("end_turn", {"trace": {"guardrail": {"actionReason": "No action."}}}, "end_turn"),
    ],
)  # fmt: skip
def test_why_it_stopped(reason, more, detail):
    assert decode(message(reason=reason, **more))[0].stop_detail == detail


def test_why_the_accounts_own_rules_stepped_in_comes_with_the_counts():
    why = "guardrail_intervened: Guardrail blocked."
    told = Reply(parts=(Text(text="No."),), stop=Stop.FILTERED, origin=ORIGIN, id="r-1", stop_detail=why)
    for whole in (True, False):
        spoken = SERVER.encode_reply(told, stream=not whole)
        assert decode(b"".join(spoken.frames))[0].stop_detail == why
    assert (
        decode(b"".join(SERVER.encode_reply(told, stream=True).frames[:-1]))[0].stop_detail
        == "guardrail_intervened"
    )


def test_what_the_headers_say_matters_less_than_what_arrives():
    assert decode(message({"text": "hi"}), size=1)[0].text == "hi"
    assert decode(b" \r\n" + message({"text": "hi"}))[0].text == "hi"
    for headers in ({}, {"content-type": "application/json"}):
        assert decode(stream(BEGIN, delta(0, text="hi"), ended()), headers=headers, size=1)[0].text == "hi"


def test_an_exception_inside_a_stream_ends_it_for_good():
    body = stream(BEGIN, delta(0, text="x")) + exception(
        "throttlingException", message="Too many tokens, please wait before trying again."
    )
    decoder = CODEC.new_decoder(ASKED, 200, HEADERS)
    for step in (lambda: decoder.feed(body), lambda: decoder.feed(body), decoder.close):
        with pytest.raises(ProviderError) as failed:
            step()
        assert failed.value.failure == Failure(
            kind="rate_limited",
            message="Too many tokens, please wait before trying again.",
            status=200,
            code="throttlingException",
        )
    assert decoder.partial_text == "x"


@pytest.mark.parametrize(
    ("name", "said", "kind"),
    [
        ("internalServerException", {"message": "m"}, "server"),
        ("modelStreamErrorException", {"message": "m", "originalMessage": "why"}, "server"),
        ("serviceUnavailableException", {"message": "m"}, "overloaded"),
        ("validationException", {"message": "m"}, "invalid"),
        ("validationException", {"message": "Input is too long for requested model."}, "context"),
        ("tomorrowException", {}, "server"),
    ],
)
def test_exceptions_inside_a_stream(name, said, kind):
    found = failure(stream(BEGIN) + exception(name, **said))
    assert (found.kind, found.code) == (kind, name)
    assert found.message
    assert said.get("originalMessage", "") in found.message


def test_an_error_that_is_no_exception_says_its_words_in_a_header():
    error = encode_frame(
        [(":message-type", "error"), (":error-code", "InternalFailure"), (":error-message", "oh")], b""
    )
    found = failure(stream(BEGIN) + error)
    assert (found.kind, found.message, found.code) == ("server", "oh", "InternalFailure")


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"", "cut"),
        (b"  \n", "cut"),
        (b'{"output":{"message":{"con', "cut"),
        (b"<html><title>Sign in</title></html>", "garbled"),
        (b"upstream error", "garbled"),
        (b'{"hello":"world"}', "garbled"),
        (b'{"output":{}}', "garbled"),
        (b'{"output":{"message":{"content":"words"}}}', "garbled"),
        (b'{"output":{"message":{"content":[1]}}}', "garbled"),
        (b"null", "garbled"),
        (b'{"message":"Something broke."}', "server"),
        (b'{"__type":"a.b#ThrottlingException","message":"slow"}', "rate_limited"),
        (stream(BEGIN), "cut"),
        (stream(BEGIN, delta(0, text="x"), stop(0)), "cut"),
        (stream(BEGIN)[:-3], "cut"),
        (stream(BEGIN) + encode_event("contentBlockDelta", b"{broken") + stream(ended()), "garbled"),
        (stream(BEGIN) + encode_event("contentBlockDelta", b"[]") + stream(ended()), "garbled"),
        (stream(BEGIN, delta(3, toolUse={"input": "{"})), "garbled"),
        (stream(BEGIN, ("contentBlockDelta", {"delta": {"text": "x"}})), "garbled"),
        (stream(BEGIN, delta(0, reasoningContent={"redactedContent": "!"}),
                delta(0, reasoningContent={"redactedContent": "a"}), ended()), "garbled"),
        (stream(BEGIN)[:20] + b"x" + stream(BEGIN, ended())[21:], "garbled"),
    ],
)  # fmt: skip
def test_what_is_no_reply_says_so(body, kind):
    assert failure(body).kind == kind


@pytest.mark.parametrize(
    "extra",
    [
        stream(delta(0, text="y")),
        stream(BEGIN),
        exception("internalServerException", message="late"),
        encode_event("metadata", b"{broken"),
        b"\x00\x00",
    ],
)
def test_nothing_but_counts_matters_after_the_end(extra):
    assert decode(stream(BEGIN, delta(0, text="x"), ended()) + extra)[0].text == "x"


THREE_CALLS = stream(
    BEGIN,
    delta(0, text="Let me look."),
    stop(0),
    *(
        event
        for index, city in ((1, "Tōkyō"), (2, "Ōsaka"), (3, "Kyōto"))
        for event in (
            start(index, toolUse={"toolUseId": f"t{index}", "name": "look"}),
            delta(index, toolUse={"input": ""}),
            delta(index, toolUse={"input": '{"city": '}),
            delta(index, toolUse={"input": f'"{city}"}}'}),
            stop(index),
        )
    ),
    ended("tool_use"),
)


def test_no_call_of_a_reply_that_was_cut_is_offered():
    for cut in range(len(THREE_CALLS)):
        found = failure(THREE_CALLS[:cut])
        assert found.kind == "cut", cut
    reply, _ = decode(THREE_CALLS)
    assert [json.loads(call.arguments)["city"] for call in reply.calls] == ["Tōkyō", "Ōsaka", "Kyōto"]
    whole = SERVER.encode_reply(reply, stream=False).frames[0]
    for cut in range(len(whole)):
        assert failure(whole[:cut]).kind == "cut", cut


WORDS = [
    b"null",
    b"[]",
    b"{}",
    b"1",
    b'"x"',
    b"-1e999",
    b"true",
    b"[[",
    b"\xff",
    b"\\ud800",
    b"\n",
    b",",
    b'"',
]
RICH = [
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
    ended("max_tokens", additionalModelResponseFields={"stop_sequence": None}),
    counted(cacheDetails=[{"ttl": "1h", "inputTokens": 2}]),
]


def test_damaged_events_end_in_a_reply_or_a_provider_error():
    """Seeded: the number of a failing try is enough to see it again.

    Events are damaged inside intact frames, or no damage would ever get past the checksums.
    """
    events = [(name, json.dumps(event).encode()) for name, event in RICH]
    names = [name for name, _ in RICH]
    for number in range(int(3_000 * CAMPAIGN)):
        random = Random(number)
        damaged = [[name, bytearray(event)] for name, event in events]
        for _ in range(random.randint(1, 5)):
            frame = random.choice(damaged)
            at = random.randrange(len(frame[1]) + 1)
            frame[1][at : at + random.randint(0, 12)] = random.choice(WORDS)
        for _ in range(random.randint(0, 2)):
            random.choice(damaged)[0] = random.choice(names)
        if number % 7 == 0:
            random.shuffle(damaged)
        body = b"".join(encode_event(name, bytes(event)) for name, event in damaged)
        if number % 5 == 0:
            at = random.randrange(len(body))
            body = body[:at] + random.randbytes(random.randint(0, 4)) + body[at + 1 :]
        try:
            reply, _ = decode(body, size=random.choice((7, 64, 5_000)))
        except ProviderError:
            continue
        assert isinstance(reply, Reply), number


def test_damaged_json_ends_in_a_reply_or_a_provider_error():
    told = SERVER.encode_reply(decode(stream(*RICH))[0], stream=False).frames[0]
    for number in range(int(2_000 * CAMPAIGN)):
        random = Random(number)
        body = bytearray(told)
        for _ in range(random.randint(1, 5)):
            at = random.randrange(len(body))
            body[at : at + random.randint(0, 12)] = random.choice(WORDS)
        try:
            reply, _ = decode(bytes(body), status=200 if number % 4 else 400)
        except ProviderError:
            continue
        assert isinstance(reply, Reply), number


def test_a_delta_costs_the_same_however_many_came_before():
    def make_slices(count):
        return slice_body(
            stream(BEGIN, delta(0, text="")) + stream(delta(0, text=" hi")) * count + stream(ended())
        )

    assert_deltas_cost_the_same(lambda: CODEC.new_decoder(ASKED, 200, HEADERS), make_slices, " hi")


def test_nulls_unknown_members_and_numbers_with_a_point_hide_nothing():
    odd = stream(
        BEGIN,
        delta(0.0, tomorrow={"x": 1}, image=None, text="Hel"),
        delta(0.0, toolUse=None, text="lo"),
        stop(0.0),
        start(1.0, toolUse={"toolUseId": "t", "name": "a"}),
        delta(1.0, text=None, toolUse={"input": "{}"}),
        stop(1.0),
        ended("tool_use"),
    )
    reply, deltas = decode(odd)
    assert reply.parts == (Text(text="Hello"), ToolCall(id="", name="a", arguments="{}", wire_id="t"))
    assert any(isinstance(each, CallReady) for each in deltas)
