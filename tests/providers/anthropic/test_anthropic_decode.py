"""Replies of Anthropic: JSON and streams, whole and cut, ordinary and odd."""

import json
from decimal import Decimal
from random import Random

import pytest
from decode_kit import assert_deltas_cost_the_same, slice_body

from bridle.providers import load_codec
from bridle.testing.conformance.codec import check_codec
from bridle.values.errors import Failure, ProviderError
from bridle.values.message import Opaque, Reasoning, Reply, Stop, Text, ToolCall
from bridle.values.model import Endpoint, Model, Origin
from bridle.values.request import Request
from bridle.values.result import ReasoningDelta, TextDelta, ToolCallDelta
from bridle.values.usage import Price, Rates, Usage

CODEC = load_codec("anthropic")
ASKED = Request(model=Model(id="claude-x", endpoint=Endpoint(name="here", family="anthropic")))
SSE = {"content-type": "text/event-stream; charset=utf-8"}
ORIGIN = Origin(family="anthropic", endpoint="anthropic", model="model-1")
BEGIN = {
    "type": "message_start",
    "message": {"id": "msg_1", "model": "claude-x-2026", "content": [], "usage": {}},
}
END = {"type": "message_stop"}


def decode(body, status=200, headers=None, size=None):
    decoder = CODEC.new_decoder(ASKED, status, headers or {})
    step = size or len(body) or 1
    deltas = [delta for at in range(0, len(body), step) for delta in decoder.feed(body[at : at + step])]
    return decoder.close(), deltas


def stream(*events):
    return b"".join(b"event: x\ndata: " + json.dumps(event).encode() + b"   \n\n" for event in events)


def streamed(*events):
    return decode(stream(BEGIN, *events, END), headers=SSE)


def start(index, **block):
    return {"type": "content_block_start", "index": index, "content_block": block}


def delta(index, **said):
    return {"type": "content_block_delta", "index": index, "delta": said}


def stopped(reason, usage=None, **more):
    return {"type": "message_delta", "delta": {"stop_reason": reason, **more}, "usage": usage or {}}


def message(*content, **more):
    return json.dumps(
        {"id": "msg_1", "model": "claude-x-2026", "type": "message", "content": content, **more}
    ).encode()


def failure(body, status=200, headers=None):
    with pytest.raises(ProviderError) as failed:
        decode(body, status, headers)
    return failed.value.failure


def test_all_laws_hold_for_what_only_this_family_says():
    cited = '{"citations":[{"type":"char_location","cited_text":"x"}],"caller":{"type":"direct"}}'
    used = Usage(input=1, cache_read=2, cache_write=7, output=30, reasoning=20, cache_write_1h=4)
    replies = [
        Reply(
            parts=(
                Reasoning(text="Let me think…", signature="c2ln"),
                Reasoning(text="", signature="only signed"),
                Reasoning(signature="blob", redacted=True),
                Text(text="As it says", native=cited),
                Opaque(kind="server_tool_use", native='{"type":"server_tool_use","id":"s","input":{"q":1}}'),
                Opaque(kind="tomorrow", native='{"type":"tomorrow","x":[null,1.5]}'),
                ToolCall(
                    id="", name="a", arguments='{"x": 1}', wire_id="t1", native='{"caller":{"type":"direct"}}'
                ),
                Text(text=""),
            ),
            stop=Stop.TOOLS,
            origin=ORIGIN,
            usage=used,
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
    ]
    check_codec(CODEC, replies=replies)


def test_deltas_say_what_they_belong_to():
    reply, deltas = streamed(
        start(0, type="thinking", thinking="", signature=""),
        delta(0, type="thinking_delta", thinking="hm", estimated_tokens=3),
        delta(0, type="signature_delta", signature="sig"),
        {"type": "ping"},
        start(1, type="text", text="To"),
        delta(1, type="text_delta", text="kyo"),
        {"type": "content_block_stop", "index": 1},
        start(2, type="tool_use", id="t", name="look", input={}),
        delta(2, type="input_json_delta", partial_json=""),
        delta(2, type="input_json_delta", partial_json='{"a": '),
        delta(2, type="input_json_delta", partial_json="1}"),
        stopped("tool_use"),
    )
    assert deltas == [
        ReasoningDelta(reasoning="hm"),
        TextDelta(text="To"),
        TextDelta(text="kyo"),
        ToolCallDelta(index=2, name="look", arguments='{"a": '),
        ToolCallDelta(index=2, name="look", arguments="1}"),
    ]
    assert reply.parts == (
        Reasoning(text="hm", signature="sig"),
        Text(text="Tokyo"),
        ToolCall(id="", name="look", arguments='{"a": 1}', wire_id="t"),
    )
    assert reply.origin == Origin(family="anthropic", endpoint="here", model="claude-x-2026")
    assert (reply.stop, reply.stop_detail, reply.id) == (Stop.TOOLS, "tool_use", "msg_1")


def test_partial_is_what_was_said_before_the_cut():
    decoder = CODEC.new_decoder(ASKED, 200, SSE)
    decoder.feed(stream(BEGIN, start(0, type="text", text=""), delta(0, type="text_delta", text="half a")))
    assert decoder.partial_text == "half a"
    with pytest.raises(ProviderError) as failed:
        decoder.close()
    assert failed.value.failure.kind == "cut"


@pytest.mark.parametrize(
    ("given", "deltas", "reason", "arguments"),
    [
        ({}, [], "tool_use", "{}"),
        ({}, ["", ""], "tool_use", "{}"),
        ({"a": 1}, [], "tool_use", '{"a": 1}'),
        ({}, [], "max_tokens", ""),
        ({}, ['{"a": "b'], "max_tokens", '{"a": "b'),
    ],
)
def test_arguments_are_the_text_that_arrived(given, deltas, reason, arguments):
    reply, _ = streamed(
        start(0, type="tool_use", id="t", name="look", input=given),
        *(delta(0, type="input_json_delta", partial_json=piece) for piece in deltas),
        stopped(reason),
    )
    assert reply.calls[0].arguments == arguments


def test_arguments_in_json_keep_their_spelling():
    body = b'{"content":[{"type":"tool_use","id":"t","name":"a","input":{"b": 1.50,  "a":"\\u00e9"}}]}'
    assert decode(body)[0].calls[0].arguments == '{"b": 1.50,  "a":"\\u00e9"}'


def test_a_message_may_be_complete_when_it_starts():
    whole = {**BEGIN["message"], "content": [{"type": "text", "text": "all"}], "stop_reason": "tool_use"}
    reply, _ = decode(stream({"type": "message_start", "message": whole}, END), headers=SSE)
    assert (reply.text, reply.stop) == ("all", Stop.TOOLS)


def test_unknown_things_are_passed_over_or_kept():
    reply, _ = streamed(
        {"type": "tomorrow", "x": 1},
        start(0, type="compaction", content=None),
        delta(0, type="compaction_delta", content="so "),
        delta(0, type="compaction_delta", content="far"),
        start(1, type="server_tool_use", id="s", name="n", input={}),
        delta(1, type="input_json_delta", partial_json='{"q": "x"}'),
        start(2, type="text", text="", citations=[]),
        delta(2, type="citations_delta", citation={"n": 1}),
        delta(2, type="text_delta", text="cited"),
        start(3, type="text", text="", citations=None),
        delta(3, type="tomorrow_delta", mood="fine"),
        delta(4, type="text_delta", text="unannounced"),
        stopped("tomorrow", usage={"output_tokens": None}),
    )
    assert reply.parts == (
        Opaque(kind="compaction", native='{"type":"compaction","content":"so far"}', text="so far"),
        Opaque(
            kind="server_tool_use", native='{"type":"server_tool_use","id":"s","name":"n","input":{"q":"x"}}'
        ),
        Text(text="cited", native='{"citations":[{"n":1}]}'),
        Text(text="", native='{"mood":"fine"}'),
        Text(text="unannounced"),
    )
    assert (reply.stop, reply.stop_detail) == (Stop.OTHER, "tomorrow")


def test_half_a_character_is_made_whole_by_its_other_half():
    events = [start(0, type="text", text=""), delta(0, type="text_delta", text="X")]
    halves = [
        stream(delta(0, type="text_delta", text="X")).replace(b"X", half) for half in (b"\\ud83d", b"\\ude00")
    ]
    body = stream(BEGIN, *events) + b"".join(halves) + stream(stopped("end_turn"), END)
    reply, deltas = decode(body, headers=SSE)
    assert reply.text == "X😀"
    assert "".join(delta.text for delta in deltas).isprintable()


def test_calls_made_before_a_model_declined_are_not_calls():
    used = {"type": "tool_use", "id": "t", "name": "a", "input": {}}
    reply, _ = decode(message(used, {"type": "fallback", "from": {}, "to": {}}, {**used, "id": "u"}))
    assert [type(part).__name__ for part in reply.parts] == ["Opaque", "Opaque", "ToolCall"]
    assert [call.wire_id for call in reply.calls] == ["u"]


def test_counts_are_totals_and_never_overlap():
    begin = {"input_tokens": 10, "output_tokens": 4, "cache_read_input_tokens": 7}
    body = stream(
        {"type": "message_start", "message": {**BEGIN["message"], "usage": begin}},
        stopped("end_turn", usage={"output_tokens": 9, "input_tokens": 12, "cache_read_input_tokens": None}),
        stopped(
            "end_turn",
            usage={
                "output_tokens": 30,
                "output_tokens_details": {"thinking_tokens": 20},
                "cache_creation": {"ephemeral_5m_input_tokens": 3, "ephemeral_1h_input_tokens": 2},
            },
        ),
        END,
    )
    reply, _ = decode(body, headers=SSE)
    assert reply.usage == Usage(
        input=12, cache_read=7, cache_write=5, output=30, reasoning=20, cache_write_1h=2
    )


def test_calls_the_provider_made_on_the_way_are_paid_for():
    steps = [
        {"type": "compaction", "input_tokens": 100, "output_tokens": 10},
        {"type": "message", "input_tokens": 20, "output_tokens": 2, "cache_read_input_tokens": 5},
    ]
    counts = {"input_tokens": 20, "output_tokens": 2, "cache_read_input_tokens": 5, "iterations": steps}
    assert decode(message(usage=counts))[0].usage == Usage(input=120, output=12, cache_read=5)
    plain = {**counts, "iterations": steps[1:]}
    assert decode(message(usage=plain))[0].usage == Usage(input=20, output=2, cache_read=5)


def test_what_the_headers_say_matters_less_than_what_arrives():
    text = {"type": "text", "text": "hi"}
    assert decode(message(text), headers=SSE)[0].text == "hi"
    assert decode(b" \r\n" + message(text), headers=SSE, size=1)[0].text == "hi"
    assert decode(b"\xef\xbb\xbf" + message(text), size=1)[0].text == "hi"
    body = stream(BEGIN, start(0, **text), END)
    for headers in ({}, {"content-type": "application/json"}):
        assert decode(b"\n\n" + body, headers=headers, size=1)[0].text == "hi"


def test_an_error_inside_a_stream_ends_it_for_good():
    body = stream(
        BEGIN, {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}, END
    )
    decoder = CODEC.new_decoder(ASKED, 200, SSE)
    for step in (lambda: decoder.feed(body), lambda: decoder.feed(body), decoder.close):
        with pytest.raises(ProviderError) as failed:
            step()
        assert failed.value.failure == Failure(
            kind="overloaded", message="Overloaded", status=200, code="overloaded_error"
        )


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"", "cut"),
        (b"  \n", "cut"),
        (b'{"content":[{"type":"te', "cut"),
        (b"<html><title>Sign in</title></html>", "garbled"),
        (b'{"hello":"world"}', "garbled"),
        (b'{"content":"words"}', "garbled"),
        (b"[1]", "garbled"),
        (b'{"type":"error","error":{"type":"api_error","message":"m"}}', "server"),
        (stream(END), "garbled"),
        (stream(BEGIN), "cut"),
        (stream(BEGIN, stopped(None, {"output_tokens": 3})), "cut"),
        (stream(BEGIN, stopped("end_turn"), BEGIN), "cut"),
        (stream(BEGIN) + b"data: {broken\n\n" + stream(END), "garbled"),
        (stream(BEGIN, delta(3, type="input_json_delta", partial_json="{")), "garbled"),
        (
            stream(BEGIN, {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "x"}}),
            "garbled",
        ),
    ],
)
def test_what_is_no_reply_says_so(body, kind):
    assert failure(body).kind == kind


def test_a_stream_that_told_why_it_stopped_is_whole_without_its_last_event():
    said = (
        BEGIN,
        start(0, type="text", text=""),
        delta(0, type="text_delta", text="hi"),
        stopped("end_turn"),
    )
    assert decode(stream(*said), headers=SSE) == decode(stream(*said, END), headers=SSE)


@pytest.mark.parametrize("extra", [b"data: [DONE]\n\n", stream({"type": "error", "error": {}}), b": bye\n\n"])
def test_nothing_counts_after_the_end(extra):
    assert decode(stream(BEGIN, start(0, type="text", text="x"), END) + extra, headers=SSE)[0].text == "x"


def test_damaged_streams_end_in_a_reply_or_a_provider_error():
    """Seeded: the number of a failing try is enough to see it again."""
    body = stream(
        BEGIN,
        start(0, type="thinking", thinking="", signature=""),
        delta(0, type="thinking_delta", thinking="hm"),
        start(1, type="text", text="", citations=[]),
        delta(1, type="citations_delta", citation={"n": 1}),
        delta(1, type="text_delta", text="Tōkyō"),
        start(2, type="tool_use", id="t", name="look", input={"a": 1}),
        delta(2, type="input_json_delta", partial_json='{"a": 1}'),
        start(3, type="fallback"),
        stopped(
            "max_tokens", usage={"output_tokens": 3, "iterations": [{"type": "x"}], "cache_creation": {}}
        ),
        END,
    )
    words = [
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
        b"\r",
        b"\n",
    ]
    for number in range(3_000):
        random = Random(number)
        damaged = bytearray(body)
        for _ in range(random.randint(1, 5)):
            at = random.randrange(len(damaged))
            damaged[at : at + random.randint(0, 12)] = random.choice(words)
        try:
            reply, _ = decode(bytes(damaged), headers=SSE, size=random.choice((7, 64, 5_000)))
        except ProviderError:
            continue
        assert isinstance(reply, Reply), number


def test_a_delta_costs_the_same_however_many_came_before():
    def make_slices(count):
        begin = stream(BEGIN, start(0, type="text", text=""))
        return slice_body(begin + stream(delta(0, type="text_delta", text=" hi")) * count + stream(END))

    assert_deltas_cost_the_same(lambda: CODEC.new_decoder(ASKED, 200, SSE), make_slices, " hi")


@pytest.mark.parametrize("usage", [None, {}, {"input_tokens": 3}, {"output_tokens": 3}, "many"])
def test_a_reply_without_counts_does_not_say_nought(usage):
    reply = decode(message(usage=usage))[0]
    assert reply.usage.incomplete
    assert not reply.usage.is_known or reply.usage.total
    begun = {"type": "message_start", "message": {**BEGIN["message"], "usage": usage}}
    assert decode(stream(begun, stopped("end_turn"), END), headers=SSE)[0].usage.incomplete


PRICE = Price(
    tiers=(
        Rates(
            input=Decimal(1),
            output=Decimal(5),
            cache_read=Decimal("0.1"),
            cache_write=Decimal("1.25"),
            cache_write_1h=Decimal(2),
        ),
    )
)


def test_a_refusal_before_a_word_is_counted_and_not_charged():
    counts = {"input_tokens": 1_000_000, "output_tokens": 1}
    refused = decode(message(stop_reason="refusal", content=[], usage=counts))[0]
    assert (refused.stop, refused.usage.input) == (Stop.REFUSED, 1_000_000)
    assert PRICE.cost(refused.usage) == 0
    begun = {"type": "message_start", "message": {**BEGIN["message"], "usage": counts}}
    assert decode(stream(begun, stopped("refusal"), END), headers=SSE)[0].usage == refused.usage
    said = [{"type": "text", "text": "Well"}]
    spoke = decode(message(stop_reason="refusal", content=said, usage=counts))[0]
    assert PRICE.cost(spoke.usage) > 1
    silent = decode(message(content=[], usage=counts))[0]
    assert PRICE.cost(silent.usage) > 1


def test_what_is_kept_for_an_hour_costs_what_an_hour_costs():
    split = {"ephemeral_5m_input_tokens": 400_000, "ephemeral_1h_input_tokens": 600_000}
    for total in (1_000_000, None):
        counts = {"input_tokens": 0, "output_tokens": 0, "cache_creation_input_tokens": total}
        reply = decode(message(usage={**counts, "cache_creation": split}))[0]
        assert PRICE.cost(reply.usage) == Decimal("1.7")


def test_numbers_of_blocks_may_be_written_with_a_point():
    reply, _ = streamed(
        start(0.0, type="text", text=""),
        delta(0.0, type="text_delta", text="hi"),
        start(1.0, type="tool_use", id="t", name="a", input={}),
        delta(1.0, type="input_json_delta", partial_json='{"x":1}'),
        {"type": "content_block_stop", "index": 1.0},
        stopped("tool_use"),
    )
    assert reply.parts == (Text(text="hi"), ToolCall(id="", name="a", arguments='{"x":1}', wire_id="t"))


@pytest.mark.parametrize("said", [{"type": "text_delta", "text": '{"n":1}'}, {"text": '{"n":1}'}])
def test_words_sent_for_a_call_are_an_error(said):
    """They may be its arguments: without them the call would run with its defaults."""
    call = start(0, type="tool_use", id="toolu_1", name="act", input={})
    assert failure(stream(BEGIN, call, delta(0, **said), stopped("tool_use"))).kind == "garbled"
