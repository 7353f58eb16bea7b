"""Replies on the Responses wire: JSON and streams, whole and cut, ordinary and failed."""

import json
from random import Random

import pytest
from decode_kit import assert_deltas_cost_the_same, slice_body

from bridle.providers import load_codec
from bridle.sim.families import find_family
from bridle.values.errors import Failure, ProviderError
from bridle.values.message import Opaque, Reasoning, Reply, Stop, Text, ToolCall
from bridle.values.model import Endpoint, Model, Origin
from bridle.values.request import Request
from bridle.values.result import CallReady, ReasoningDelta, TextDelta, ToolCallDelta
from bridle.values.usage import Usage

CODEC = load_codec("openai_responses")
SERVER = find_family(CODEC.family)
ASKED = Request(model=Model(id="gpt-x", endpoint=Endpoint(name="here", family="openai_responses")))
SSE = {"content-type": "text/event-stream; charset=utf-8"}


def decode(body, status=200, headers=None, size=None):
    decoder = CODEC.new_decoder(ASKED, status, headers or {})
    step = size or len(body) or 1
    deltas = [delta for at in range(0, len(body), step) for delta in decoder.feed(body[at : at + step])]
    return decoder.close(), deltas


def failure(body, status=200, headers=None):
    with pytest.raises(ProviderError) as failed:
        decode(body, status, headers)
    return failed.value.failure


def stream(*events):
    return b"".join(b"event: x\ndata: " + json.dumps(event).encode() + b"\n\n" for event in events)


def response(*items, **more):
    return {
        "id": "resp_1",
        "object": "response",
        "model": "gpt-x-2026",
        "status": "completed",
        "output": items,
        **more,
    }


def ended(*items, kind="completed", **more):
    return {"type": f"response.{kind}", "response": response(*items, **{"status": kind, **more})}


def whole(*items, **more):
    return decode(json.dumps(response(*items, **more)).encode())[0]


def added(index, **item):
    return {"type": "response.output_item.added", "output_index": index, "item": item}


def done(index, **item):
    return {"type": "response.output_item.done", "output_index": index, "item": item}


def delta(kind, index, said):
    return {"type": f"response.{kind}.delta", "output_index": index, "delta": said, "obfuscation": "xxxx"}


def say(*texts, **more):
    content = [{"type": "output_text", "text": text, "annotations": [], "logprobs": []} for text in texts]
    return {"type": "message", "id": "msg_1", "role": "assistant", "content": content, **more}


CALL = {
    "type": "function_call",
    "id": "fc_1",
    "call_id": "call_1",
    "name": "look",
    "arguments": '{"a": 1}',
    "status": "completed",
}
THOUGHT = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"}


# Whole


def test_items_become_parts_in_their_order():
    searched = {"type": "web_search_call", "id": "ws_1", "action": {"type": "search"}}
    summary = [{"type": "summary_text", "text": "Hm."}]
    reply = whole(
        {**THOUGHT, "summary": summary, "status": "completed", "content": None},
        searched,
        {**say("One,", "two."), "status": "completed", "phase": "final_answer"},
        {**CALL, "namespace": "n"},
        {"type": "custom_tool_call", "id": "ctc_1", "call_id": "call_2", "name": "patch", "input": 'a"b'},
        usage={
            "input_tokens": 100,
            "input_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 30,
                                     "cache_write_tokens_details": {"ttl_12h_tokens": 10}},
            "output_tokens": 50,
            "output_tokens_details": {"reasoning_tokens": 20},
        },
    )  # fmt: skip
    assert reply == Reply(
        id="resp_1",
        stop=Stop.TOOLS,
        stop_detail="completed",
        origin=Origin(family="openai_responses", endpoint="here", model="gpt-x-2026"),
        usage=Usage(input=10, cache_read=60, cache_write=30, output=50, reasoning=20, cache_write_1h=10),
        parts=(
            Reasoning(text="Hm.", signature="gAAA", native='{"id":"rs_1"}'),
            Opaque(kind="web_search_call", native=json.dumps(searched, separators=(",", ":"))),
            Text(
                text="One,",
                native='{"message":{"id":"msg_1","status":"completed","phase":"final_answer"},"part":{"logprobs":[]}}',
            ),
            Text(text="two.", native='{"part":{"logprobs":[]}}'),
            ToolCall(
                id="", name="look", arguments='{"a": 1}', wire_id="call_1",
                native='{"id":"fc_1","status":"completed","namespace":"n"}',
            ),
            ToolCall(
                id="", name="patch", arguments='{"input":"a\\"b"}', wire_id="call_2",
                native='{"type":"custom_tool_call","id":"ctc_1"}',
            ),
        ),
    )  # fmt: skip


def short(reason, status="incomplete"):
    return {"status": status, "incomplete_details": {"reason": reason}}


REFUSAL = {"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]}


@pytest.mark.parametrize(
    ("items", "more", "stop", "detail"),
    [
        ([say("a")], {}, Stop.DONE, "completed"),
        ([say("a"), CALL], {}, Stop.TOOLS, "completed"),
        ([say("a")], short("max_output_tokens"), Stop.LENGTH, "incomplete: max_output_tokens"),
        ([THOUGHT], short("max_output_tokens"), Stop.LENGTH, "incomplete: max_output_tokens"),
        ([say("a")], short("content_filter"), Stop.FILTERED, "incomplete: content_filter"),
        ([say("a")], short("max_messages"), Stop.PAUSED, "incomplete: max_messages"),
        ([say("a")], short("steered"), Stop.PAUSED, "incomplete: steered"),
        ([say("a")], short("tomorrow"), Stop.OTHER, "incomplete: tomorrow"),
        ([say("a")], {"status": "incomplete"}, Stop.OTHER, "incomplete"),
        ([say("a")], short("max_output_tokens", None), Stop.LENGTH, "incomplete: max_output_tokens"),
        ([say("a")], {"status": "tomorrow"}, Stop.DONE, "tomorrow"),
        ([REFUSAL], {}, Stop.REFUSED, "refusal"),
    ],
)
def test_why_it_stopped(items, more, stop, detail):
    reply = whole(*items, **more)
    assert (reply.stop, reply.stop_detail) == (stop, detail)


def test_words_beside_a_refusal_say_that_they_are_none():
    content = [{"type": "output_text", "text": "Sorry. "}, {"type": "refusal", "refusal": "No."}]
    reply = whole({"type": "message", "role": "assistant", "content": content})
    assert reply.parts == (Text(text="Sorry. ", native='{"part":{"type":"output_text"}}'), Text(text="No."))
    assert reply.stop is Stop.REFUSED


@pytest.mark.parametrize("status", ["queued", "in_progress", "cancelled"])
def test_a_response_that_is_not_done_is_no_reply(status):
    with pytest.raises(ProviderError, match=status) as caught:
        whole(CALL, status=status)
    assert caught.value.failure.kind == "invalid"


def test_arguments_that_broke_off_stay_recognisable():
    for said, kept in (('{"a": ', '{"a": '), ("", "")):
        reply = whole({**CALL, "arguments": said, "status": "incomplete"}, **short("max_output_tokens"))
        assert (reply.stop, reply.calls[0].arguments) == (Stop.LENGTH, kept)
    for said in ("", None, {}):
        assert whole({**CALL, "arguments": said}).calls[0].arguments == "{}"


def test_trains_of_thought_in_several_pieces_are_kept_once():
    pieces = [{"type": "summary_text", "text": "One."}, {"type": "summary_text", "text": "Two."}]
    reply = whole({**THOUGHT, "summary": pieces, "content": [{"type": "reasoning_text", "text": "raw"}]})
    assert reply.parts == (
        Reasoning(
            text="One.\n\nTwo.\n\nraw",
            signature="gAAA",
            native='{"id":"rs_1","lengths":{"summary":[4,4],"content":[3]}}',
        ),
    )


# Streamed


FULL = (
    {"type": "response.created", "response": response(status="in_progress")},
    added(0, **{**THOUGHT, "encrypted_content": "gA"}),
    {"type": "response.reasoning_summary_part.added", "output_index": 0, "summary_index": 0, "part": {}},
    delta("reasoning_summary_text", 0, "Let me "),
    delta("reasoning_summary_text", 0, "see."),
    {"type": "response.reasoning_summary_part.added", "output_index": 0, "summary_index": 1, "part": {}},
    delta("reasoning_summary_text", 0, "Yes."),
    {"type": "response.keepalive"},
    done(0, **THOUGHT),
    added(1, type="message", id="msg_1", role="assistant", content=[], status="in_progress"),
    {"type": "response.content_part.added", "output_index": 1, "content_index": 0, "part": {}},
    delta("output_text", 1, "It is "),
    added(2, **{**CALL, "arguments": ""}),
    delta("output_text", 1, "wärm."),
    {"type": "response.output_text.annotation.added", "output_index": 1, "annotation": {"type": "url"}},
    {"type": "response.output_text.done", "output_index": 1, "text": "It is wärm."},
    delta("function_call_arguments", 2, '{"a"'),
    delta("function_call_arguments", 2, ": 1}"),
    {"type": "response.function_call_arguments.done", "output_index": 2, "arguments": '{"a": 1}'},
    done(1, **say("It is wärm.")),
    done(2, **CALL),
)  # fmt: skip


def test_a_stream_says_what_the_whole_says_and_shows_it_on_the_way():
    told = (THOUGHT, say("It is wärm."), CALL)
    body = stream(*FULL, ended(*told))
    reply, deltas = decode(body, headers=SSE)
    assert reply == whole(*told)
    assert deltas == [
        ReasoningDelta(reasoning="Let me "),
        ReasoningDelta(reasoning="see."),
        ReasoningDelta(reasoning="\n\n"),
        ReasoningDelta(reasoning="Yes."),
        TextDelta(text="It is "),
        TextDelta(text="wärm."),
        ToolCallDelta(index=2, name="look", arguments='{"a"'),
        ToolCallDelta(index=2, name="look", arguments=": 1}"),
        CallReady(index=0, call=ToolCall(id="", name="look", arguments='{"a": 1}')),
    ]
    for size in (1, 2, 3, 7, 64):
        assert decode(body, size=size) == (reply, deltas)


def test_what_was_said_so_far_is_known_at_any_time():
    decoder = CODEC.new_decoder(ASKED, 200, SSE)
    decoder.feed(stream(*FULL[:12]))
    assert decoder.partial_text == "It is "


def test_three_calls_cut_after_every_byte_are_never_offered():
    calls = [
        {**CALL, "call_id": f"call_{n}", "id": f"fc_{n}", "arguments": json.dumps({"n": n, "t": "x" * 9})}
        for n in range(3)
    ]
    events = [{"type": "response.created", "response": response(status="in_progress")}]
    for index, item in enumerate(calls):
        events.append(added(index, **{**item, "arguments": "", "status": "in_progress"}))
        said = item["arguments"]
        events += [
            delta("function_call_arguments", index, said[at : at + 5]) for at in range(0, len(said), 5)
        ]
        events += [
            {"type": "response.function_call_arguments.done", "output_index": index, "arguments": said}
        ]
        events.append(done(index, **item))
    body = stream(*events, ended(*calls))
    complete = decode(body)[0]
    assert [json.loads(call.arguments)["n"] for call in complete.calls] == [0, 1, 2]
    for cut in range(len(body) + 1):
        decoder = CODEC.new_decoder(ASKED, 200, SSE)
        decoder.feed(body[:cut])
        if cut < len(body) - 2:  # all but the blank line that ends the last event
            with pytest.raises(ProviderError) as failed:
                decoder.close()
            assert failed.value.failure.kind == "cut"
        else:
            assert decoder.close() == complete


def test_a_stream_that_was_shortened_ends_as_one():
    cut = {**CALL, "arguments": '{"a"', "status": "incomplete"}
    body = stream(
        *FULL[:9], ended(cut, kind="incomplete", incomplete_details={"reason": "max_output_tokens"})
    )
    reply, _ = decode(body)
    assert (reply.stop, reply.calls[0].arguments) == (Stop.LENGTH, '{"a"')


def test_a_delta_costs_the_same_however_many_came_before():
    def make_slices(count):
        body = stream(added(0, type="message", role="assistant", content=[]))
        body += stream(*(delta("output_text", 0, " hi") for _ in range(count)))
        return slice_body(body + stream(ended(say(" hi" * count))))

    assert_deltas_cost_the_same(lambda: CODEC.new_decoder(ASKED, 200, SSE), make_slices, " hi")


# Failed


def error_body(**error):
    return json.dumps(
        {"error": {"message": "m", "type": "invalid_request_error", "param": None, **error}}
    ).encode()


TABLE = [
    (400, {"code": "context_length_exceeded"}, "context"),
    (400, {"message": "Your input exceeds the context window of this model. Please adjust."}, "context"),
    (400, {"code": "invalid_encrypted_content"}, "reasoning_refused"),
    (400, {"code": "unsupported_parameter"}, "invalid"),
    (401, {"code": "invalid_api_key"}, "unauthorized"),
    (403, {}, "unauthorized"),
    (404, {"code": "model_not_found"}, "not_found"),
    (413, {}, "too_large"),
    (429, {"code": "rate_limit_exceeded", "type": "requests"}, "rate_limited"),
    (429, {"code": "slow_down"}, "rate_limited"),
    (429, {"type": "tokens"}, "rate_limited"),
    (429, {"type": "insufficient_quota"}, "quota"),
    (429, {"code": "credit_balance_exhausted"}, "quota"),
    (429, {"code": "organization_spend_limit_exceeded"}, "quota"),
    (429, {"code": "project_spend_limit_exceeded"}, "quota"),
    (429, {"code": "organization_usage_limit_exceeded"}, "quota"),
    (429, {"message": "You exceeded your current quota, please check your plan"}, "quota"),
    (400, {"message": "You exceeded your current quota, please check your plan"}, "invalid"),
    (500, {"type": "server_error"}, "server"),
    (503, {"code": "server_is_overloaded"}, "overloaded"),
    (503, {}, "overloaded"),
]


@pytest.mark.parametrize(("status", "error", "kind"), TABLE)
def test_failures_by_code_type_status_and_words(status, error, kind):
    found = failure(error_body(**error), status)
    assert (found.kind, found.status) == (kind, status)
    assert found.code == (error.get("code") or error.get("type") or "invalid_request_error")


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({"code": "context_length_exceeded", "message": "too long"}, "context"),
        ({"code": "server_error", "message": "An error occurred."}, "server"),
        ({"code": "rate_limit_exceeded"}, "rate_limited"),
        ({"code": "insufficient_quota"}, "quota"),
        ({"type": "invalid_request_error", "code": None, "message": "no such thing"}, "invalid"),
        ({"code": "bio_policy"}, "invalid"),
        ({"code": "image_too_large"}, "invalid"),
        ({"code": 502, "message": "upstream"}, "server"),
        ({"message": "something"}, "server"),
    ],
)
def test_failures_inside_a_good_reply(error, kind):
    nested = stream(FULL[0], {"type": "error", "sequence_number": 2, "error": error})
    flat = stream(FULL[0], {**error, "type": "error", "sequence_number": 2})
    told = stream(FULL[0], {"type": "response.failed", "response": response(status="failed", error=error)})
    answered = json.dumps(response(status="failed", error=error)).encode()
    assert failure(nested).kind == failure(told).kind == failure(answered).kind == kind
    if error.get("type") is None:
        assert failure(flat).kind == kind
    code = error.get("code")
    assert failure(nested).code == (code if isinstance(code, str) else error.get("type", ""))


LOST_ITEM = "Item with id 'rs_1' not found. Items are not persisted when `store` is set to false."


@pytest.mark.parametrize(
    ("status", "error", "code"),
    [
        (404, {"message": "Previous response with id 'resp_1' not found."}, "previous_response_not_found"),
        (400, {"code": "previous_response_not_found"}, "previous_response_not_found"),
        (404, {"param": "previous_response_id"}, "previous_response_not_found"),
        (404, {"message": "Conversation with id 'conv_1' not found."}, "conversation_not_found"),
        (400, {"message": LOST_ITEM}, "item_not_found"),
        (400, {"message": "The encrypted content gA… could not be verified."}, "invalid_encrypted_content"),
    ],
)
def test_what_asking_otherwise_can_mend_has_a_code(status, error, code):
    found = failure(error_body(**error), status)
    assert (found.code, found.kind) == (code, "reasoning_refused" if "encrypted" in code else "forgotten")


def test_waits_and_words_of_strangers():
    headers = {"retry-after-ms": "1500", "x-should-retry": "false"}
    found = failure(error_body(code="rate_limit_exceeded"), 429, headers)
    assert (found.retry_after_seconds, found.should_retry) == (1.5, False)
    xai = failure(b'{"code": "invalid-argument", "error": "Incorrect API key provided."}', 400)
    assert (xai.kind, xai.code, xai.message) == (
        "unauthorized",
        "invalid-argument",
        "Incorrect API key provided.",
    )
    assert failure(b'{"detail": "Could not parse your token."}', 401).message == "Could not parse your token."
    page = failure(b"<html><title>502 Bad Gateway</title></html>", 502)
    assert (page.kind, page.message) == ("server", "HTTP 502: 502 Bad Gateway")


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"", "cut"),
        (b'{"id": "resp_1", "outp', "cut"),
        (b"<html>hello</html>", "garbled"),
        (b'{"hello": 1}', "garbled"),
        (b"[1]", "garbled"),
        (b'{"object": "chat.completion", "choices": []}', "not_found"),
        (b'{"error": {"message": "no"}}', "server"),
        (stream(*FULL), "cut"),
        (stream(*FULL)[:-20], "cut"),
        (stream({"type": "response.completed", "response": None}), "garbled"),
        (b"data: {nonsense}\n\n", "garbled"),
        (b"data: {nonsense}", "cut"),
        (b'data: {"error": {"message": "no", "code": "server_error"}}\n\n', "server"),
    ],
)
def test_what_is_no_reply_is_never_one(body, kind):
    assert failure(body).kind == kind


def test_a_failed_decoder_stays_failed():
    decoder = CODEC.new_decoder(ASKED, 200, SSE)
    with pytest.raises(ProviderError):
        decoder.feed(stream({"type": "error", "code": "server_error", "message": "m"}))
    for again in (lambda: decoder.feed(stream(ended(say("a")))), decoder.close):
        with pytest.raises(ProviderError, match="m"):
            again()


def test_random_slices_of_a_stream_are_the_stream():
    body = stream(*FULL, ended(THOUGHT, say("It is wärm."), CALL))
    complete = decode(body)
    for seed in range(50):
        random = Random(seed)
        decoder, deltas, at = CODEC.new_decoder(ASKED, 200, SSE), [], 0
        while at < len(body):
            size = random.randint(1, 400)
            deltas += decoder.feed(body[at : at + size])
            at += size
        assert (decoder.close(), deltas) == complete


def test_speaking_a_failure_keeps_its_code():
    told = SERVER.encode_failure(
        Failure(kind="not_found", message="gone", code="previous_response_not_found")
    )
    assert failure(b"".join(told.frames), told.status).code == "previous_response_not_found"


def test_places_of_items_may_be_written_with_a_point():
    call = {"type": "function_call", "call_id": "c", "name": "a", "arguments": "{}", "id": "fc"}
    events = [added(0.0, **call), delta("function_call_arguments", 0.0, "{}"), done(0.0, **call), ended()]
    plain = [added(0, **call), delta("function_call_arguments", 0, "{}"), done(0, **call), ended()]
    assert decode(stream(*events)) == decode(stream(*plain))


def test_words_may_have_their_plain_name():
    reply = whole({"type": "message", "role": "assistant", "content": [{"type": "text", "text": "hi"}]})
    assert reply.text == "hi"
