"""Replies of Gemini: JSON, events and arrays, whole and cut, ordinary and odd."""

import json
import os
from random import Random

import pytest
from decode_kit import assert_deltas_cost_the_same
from gemini_replies import (
    ASKED,
    CODEC,
    called,
    chunk,
    decode,
    failure,
    outcome,
    stream,
    streamed,
    text,
    whole,
)
from msgspec.structs import replace

from bridle.sim.families import find_family
from bridle.testing.conformance.codec import check_codec
from bridle.values.message import Media, Opaque, Reasoning, Reply, Stop, Text, ToolCall
from bridle.values.model import Origin
from bridle.values.request import ToolSpec
from bridle.values.result import CallReady, ReasoningDelta, TextDelta, ToolCallDelta
from bridle.values.usage import Usage
from wire import corpus

ORIGIN = Origin(family="gemini", endpoint="gemini", model="model-1")
CAMPAIGN = float(os.environ.get("BRIDLE_CAMPAIGN", "1"))
SIGNED = '{"thoughtSignature":"c2ln"}'


# Laws


def test_all_laws_hold_for_what_only_this_family_says():
    used = Usage(input=4, cache_read=2, output=30, reasoning=20)
    replies = [
        Reply(
            parts=(
                Reasoning(text="Let me think…\n\nAnd again.\n\n\n"),
                Text(text="As I", native=SIGNED),
                Text(text=" said "),
                Text(text="", native=SIGNED),
                Opaque(
                    kind="executableCode", native='{"executableCode":{"code":"1"},"thoughtSignature":"eA=="}'
                ),
                Opaque(kind="codeExecutionResult", native='{"codeExecutionResult":{"output":"1"}}'),
                Media(kind="image", media_type="image/png", data="AAAA"),
                Opaque(kind="tomorrow", native='{"tomorrow":{"x":[null,1.5]}}'),
                Opaque(kind="candidate.fields", native='{"groundingMetadata":{"webSearchQueries":["q"]}}'),
            ),
            stop=Stop.DONE,
            origin=ORIGIN,
            usage=used,
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
            usage=used,
            stop_detail="STOP: Model generated function call(s).",
        ),
        Reply(
            parts=(
                Text(text="half a no"),
                Opaque(kind="continuation", native='{"continuationToken":"dG9r"}'),
            ),
            stop=Stop.PAUSED,
            origin=ORIGIN,
            usage=used,
        ),
        Reply(parts=(), stop=Stop.REFUSED, origin=ORIGIN, stop_detail="blockReason SAFETY: no"),
        Reply(parts=(), stop=Stop.MALFORMED, origin=ORIGIN, stop_detail="UNEXPECTED_TOOL_CALL: no such"),
        Reply(parts=(Text(text="x"),), stop=Stop.FILTERED, origin=ORIGIN, stop_detail="RECITATION"),
        Reply(parts=(Text(text="x"),), stop=Stop.OTHER, origin=ORIGIN, stop_detail="SOMETHING_NEW: yes"),
    ]
    check_codec(CODEC, replies=replies)


# Words


def test_pieces_of_words_are_one_text_and_thoughts_one_thought():
    reply, deltas = streamed(
        chunk(text("**A**", thought=True)),
        chunk(text(" b\n", thought=True)),
        chunk(text("Hel"), responseId="r1", modelVersion="gemini-x-001"),
        chunk(text("lo "), text("you")),
        chunk(text(""), finish="STOP"),
    )
    assert reply.parts == (Reasoning(text="**A** b\n"), Text(text="Hello you"))
    assert (reply.id, reply.origin.model, reply.stop) == ("r1", "gemini-x-001", Stop.DONE)
    assert deltas == [
        ReasoningDelta(reasoning="**A**"),
        ReasoningDelta(reasoning=" b\n"),
        TextDelta(text="Hel"),
        TextDelta(text="lo "),
        TextDelta(text="you"),
    ]
    assert (
        reply.parts
        == whole(text("**A** b\n", thought=True), text("Hello "), text("you"), text(""), finish="STOP").parts
    )


def test_a_signed_part_is_never_joined_and_an_empty_one_is_kept():
    reply, _ = streamed(
        chunk(text("a")),
        chunk(text("b", thoughtSignature="Yg==")),
        chunk(text("c")),
        chunk(text("d")),
        chunk(text("", thoughtSignature="ZA=="), finish="STOP"),
    )
    assert reply.parts == (
        Text(text="a"),
        Text(text="b", native='{"thoughtSignature":"Yg=="}'),
        Text(text="cd"),
        Text(text="", native='{"thoughtSignature":"ZA=="}'),
    )
    assert reply.text == "abcd"


def test_a_character_cut_in_two_is_joined_again():
    body = b'data: {"candidates":[{"content":{"parts":[{"text":"\\ud83c"}]}}]}\n\n'
    body += b'data: {"candidates":[{"content":{"parts":[{"text":"\\udf21"}]},"finishReason":"STOP"}]}\n\n'
    assert decode(body)[0].parts == (Text(text="🌡"),)


def test_words_after_a_reason_to_stop_still_count():
    """One generation stops halfway while its own code runs, another repeats the reason with every piece."""
    reply, _ = streamed(
        chunk(text("a"), finish="STOP"), chunk(text("b")), chunk(text("c"), finish="RECITATION")
    )
    assert (reply.text, reply.stop, reply.stop_detail) == ("abc", Stop.FILTERED, "RECITATION")


def test_only_the_first_candidate_is_read():
    both = {"candidates": [*chunk(text("a"), finish="STOP")["candidates"], *chunk(text("x"))["candidates"]]}
    both["candidates"][1]["index"] = 1
    assert decode(json.dumps(both).encode())[0].text == "a"
    second = chunk(text("x"), candidate={"index": 1})
    assert streamed(second, chunk(text("a"), finish="STOP"), second)[0].text == "a"


def test_a_result_is_not_the_models_to_say():
    said = {"functionResponse": {"name": "a", "response": {"output": "x"}, "parts": 7}}
    reply = whole(said, finish="STOP")
    assert [(type(part), part.kind) for part in reply.parts] == [(Opaque, "functionResponse")]


# Calls


def test_calls_keep_signature_id_and_spelling():
    arguments = b'{"n": 1.50,"s":"\\u00e9"}'
    body = (
        b'{"candidates":[{"content":{"parts":[{"functionCall":{"id":"x1","name":"a","args":%b},' % arguments
    )
    body += b'"thoughtSignature":"c2ln"},{"functionCall":{"name":"b"}}]},"finishReason":"STOP"}]}'
    reply, _ = decode(body)
    assert reply.stop is Stop.TOOLS
    assert reply.parts == (
        ToolCall(id="", name="a", arguments='{"n": 1.50,"s":"\\u00e9"}', wire_id="x1", native=SIGNED),
        ToolCall(id="", name="b", arguments="{}"),
    )
    events, deltas = decode(b"data: " + body + b"\r\n\r\n")
    assert events == reply
    assert deltas == [
        ToolCallDelta(index=0, name="a", arguments='{"n": 1.50,"s":"\\u00e9"}'),
        CallReady(index=0, call=reply.calls[0]),
        ToolCallDelta(index=1, name="b", arguments="{}"),
        CallReady(index=1, call=reply.calls[1]),
    ]


def test_a_reply_spread_over_lines_has_the_arguments_of_one_that_is_not():
    body = chunk(called("a", {"city": "New\nYork ", "n": [1, {"x": 2}]}), finish="STOP")
    on_one_line = json.dumps(body, separators=(",", ": ")).encode()
    assert decode(json.dumps(body, indent=2).encode())[0] == decode(on_one_line)[0]
    assert decode(on_one_line)[0].calls[0].arguments == '{"city": "New\\nYork ","n": [1,{"x": 2}]}'


def test_names_come_back_as_the_tools_have_them():
    tools = (ToolSpec(name="größe"), ToolSpec(name="plain"))
    request = replace(ASKED, tools=tools)
    declared = json.loads(CODEC.encode(request).body)["tools"][0]["functionDeclarations"]
    sent_name = declared[0]["name"]
    assert sent_name.isascii()
    body = stream(chunk(called(sent_name), called("plain"), called("other"), finish="STOP"))
    reply, deltas = decode(body, request=request)
    assert [call.name for call in reply.calls] == ["größe", "plain", "other"]
    assert [delta.name for delta in deltas if isinstance(delta, ToolCallDelta)] == ["größe", "plain", "other"]
    assert [delta.call for delta in deltas if isinstance(delta, CallReady)] == list(reply.calls)


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


def test_a_call_that_comes_value_by_value():
    reply, deltas = streamed(
        chunk(text("ok")),
        *map(chunk, PIECES),
        chunk(called("now")),
        *(chunk(each) for each in [called("b"), {"functionCall": {}}]),
        chunk(finish="STOP"),
    )
    assert [type(part) for part in reply.parts] == [Text, ToolCall, ToolCall, ToolCall]
    call = reply.calls[0]
    assert json.loads(call.arguments) == ARGUMENTS
    assert (call.name, call.wire_id, call.native) == ("write", "x1", SIGNED)
    assert [each.arguments for each in reply.calls[1:]] == ["{}", "{}"]
    assert deltas == [
        TextDelta(text="ok"),
        ToolCallDelta(index=1, name="write", arguments=call.arguments),
        CallReady(index=0, call=call),
        ToolCallDelta(index=2, name="now", arguments="{}"),
        CallReady(index=1, call=reply.calls[1]),
        ToolCallDelta(index=3, name="b", arguments="{}"),
        CallReady(index=2, call=reply.calls[2]),
    ]


def parses(arguments):
    try:
        json.loads(arguments)
    except ValueError:
        return False
    return True


def test_a_call_whose_end_never_came_is_not_valid():
    for count in range(1, len(PIECES)):
        reply, deltas = streamed(*map(chunk, PIECES[:count]), chunk(finish="MAX_TOKENS"))
        assert reply.stop is Stop.LENGTH
        assert deltas == []
        assert not parses(reply.calls[0].arguments)
    reply, _ = streamed(*map(chunk, PIECES[:3]), chunk(called("now", {"a": 1})), chunk(finish="STOP"))
    assert reply.calls[0].arguments == '{"items":[{"name":"apple"}]'
    assert json.loads(reply.calls[1].arguments) == {"a": 1}


@pytest.mark.parametrize(
    "odd",
    [
        piece("$.items[999999999]", numberValue=1),
        piece("$[0]", numberValue=1),
        piece("items", numberValue=1),
        piece("$.a b[", numberValue=1),
        piece(None, numberValue=1),
        {"functionCall": {"partialArgs": "x", "willContinue": True}},
        {"functionCall": {"partialArgs": ["x"], "willContinue": True}},
        piece("$" + ".a" * 40_000, numberValue=1),
    ],
)
def test_values_for_places_that_cannot_be_are_garbled(odd):
    body = stream(
        *map(chunk, [OPENED, piece("$.items[0]", numberValue=1), odd, {"functionCall": {}}]),
        chunk(finish="STOP"),
    )
    assert failure(body).kind == "garbled"


# Ends


@pytest.mark.parametrize(
    ("reason", "stop"),
    [
        ("STOP", Stop.DONE),
        ("MAX_TOKENS", Stop.LENGTH),
        ("SAFETY", Stop.REFUSED),
        ("PROHIBITED_CONTENT", Stop.REFUSED),
        ("IMAGE_SAFETY", Stop.REFUSED),
        ("IMAGE_PROHIBITED_CONTENT", Stop.REFUSED),
        ("BLOCKLIST", Stop.FILTERED),
        ("SPII", Stop.FILTERED),
        ("RECITATION", Stop.FILTERED),
        ("LANGUAGE", Stop.FILTERED),
        ("MODEL_ARMOR", Stop.FILTERED),
        ("IMAGE_RECITATION", Stop.FILTERED),
        ("IMAGE_OTHER", Stop.FILTERED),
        ("MALFORMED_FUNCTION_CALL", Stop.MALFORMED),
        ("MALFORMED_RESPONSE", Stop.MALFORMED),
        ("UNEXPECTED_TOOL_CALL", Stop.MALFORMED),
        ("TOO_MANY_TOOL_CALLS", Stop.OTHER),
        ("NO_IMAGE", Stop.OTHER),
        ("OTHER", Stop.OTHER),
        ("TOMORROWS_REASON", Stop.OTHER),
        ("CONTINUATION", Stop.LENGTH),
    ],
)
def test_every_reason_to_stop(reason, stop):
    reply = whole(text("x"), finish=reason, candidate={"finishMessage": "because"})
    assert (reply.stop, reply.stop_detail) == (stop, f"{reason}: because")
    bare = decode(json.dumps({"candidates": [{"finishReason": reason}]}).encode())[0]
    assert (bare.stop, bare.parts) == (stop, ())


@pytest.mark.parametrize(
    ("number", "stop", "detail"),
    [
        (1, Stop.DONE, "STOP"),
        (2, Stop.LENGTH, "MAX_TOKENS"),
        (3, Stop.REFUSED, "SAFETY"),
        (12, Stop.OTHER, "12"),
    ],
)
def test_reasons_by_number(number, stop, detail):
    reply = whole(text("x"), finish=number)
    assert (reply.stop, reply.stop_detail) == (stop, detail)


def test_a_paused_reply_keeps_the_token_to_go_on_with():
    reply, _ = streamed(
        chunk(text("a"), candidate={"continuationToken": "b25l"}),
        chunk(text("b"), candidate={"continuationToken": "dHdv"}, finish="CONTINUATION"),
    )
    assert reply.stop is Stop.PAUSED
    assert reply.parts == (
        Text(text="ab"),
        Opaque(kind="continuation", native='{"continuationToken":"dHdv"}'),
    )
    done, _ = streamed(chunk(text("a"), candidate={"continuationToken": "b25l"}), chunk(finish="STOP"))
    assert done.parts == (Text(text="a"),)


def test_a_blocked_prompt_is_a_refusal():
    blocked = {"promptFeedback": {"blockReason": "SAFETY", "blockReasonMessage": "Reasons"}}
    for body in (json.dumps(blocked).encode(), stream(blocked), json.dumps([blocked]).encode()):
        reply, _ = decode(body)
        assert (reply.stop, reply.parts, reply.stop_detail) == (
            Stop.REFUSED,
            (),
            "blockReason SAFETY: Reasons",
        )
    harmless = {**chunk(text("a"), finish="STOP"), "promptFeedback": {"safetyRatings": []}}
    assert decode(json.dumps(harmless).encode())[0].stop is Stop.DONE


def test_a_reply_given_whole_may_leave_out_why_it_stopped():
    assert whole(text("a")).stop is Stop.OTHER
    empty = decode(b'{"candidates":[],"usageMetadata":{"promptTokenCount":3}}')[0]
    assert (empty.parts, empty.stop, empty.usage.input) == ((), Stop.OTHER, 3)


def test_sources_are_kept_beside_what_they_are_for():
    found = {"groundingMetadata": {"webSearchQueries": ["q"]}, "citationMetadata": {}}
    reply, _ = streamed(chunk(text("a")), chunk(text("b"), finish="STOP", candidate=found))
    kept = Opaque(kind="candidate.fields", native='{"groundingMetadata":{"webSearchQueries":["q"]}}')
    assert reply.parts == (Text(text="ab"), kept)
    assert whole(finish="STOP", candidate=found).parts == ()
    thought = whole(
        text("hm", thought=True), text("", thoughtSignature="eA=="), finish="STOP", candidate=found
    )
    assert not any(isinstance(part, Opaque) for part in thought.parts)


# Counts


def test_counts_never_overlap():
    counts = {
        "promptTokenCount": 100,
        "cachedContentTokenCount": 60,
        "candidatesTokenCount": 10,
        "thoughtsTokenCount": 30,
        "toolUsePromptTokenCount": 7,
        "totalTokenCount": 147,
    }
    used = whole(text("a"), finish="STOP", counts=counts).usage
    assert used == Usage(input=47, cache_read=60, output=40, reasoning=30)
    assert used.total == counts["totalTokenCount"]


def test_a_prompt_that_is_counted_in_the_sum_only_is_counted():
    counts = {"candidatesTokenCount": 1, "thoughtsTokenCount": 41, "totalTokenCount": 338}
    assert whole(text("a"), finish="STOP", counts=counts).usage == Usage(input=296, output=42, reasoning=41)


def test_counts_of_a_stream_are_totals_so_far():
    reply, _ = streamed(
        chunk(text("a"), counts={"promptTokenCount": 9, "totalTokenCount": 9}),
        chunk(
            text("b"), counts={"promptTokenCount": 9, "thoughtsTokenCount": 4, "candidatesTokenCount": None}
        ),
        chunk(text("c"), finish="STOP", counts={"promptTokenCount": 8, "candidatesTokenCount": 5}),
    )
    assert reply.usage == Usage(input=8, output=9, reasoning=4)
    early, _ = streamed(
        chunk(text("a"), counts={"promptTokenCount": 9}), chunk(text("b")), chunk(finish="STOP")
    )
    assert early.usage == Usage(input=9)


@pytest.mark.parametrize(
    "counts", [None, {}, {"promptTokenCount": "3", "candidatesTokenCount": -1}, {"trafficType": "X"}]
)
def test_counts_that_are_none(counts):
    """Nobody knows what such a reply cost, and nought is what it did not cost."""
    used = Usage(incomplete=True)
    reply = whole(text("a"), finish="STOP", counts=counts)
    assert reply.usage == streamed(chunk(text("a"), finish="STOP", counts=counts))[0].usage == used
    for stream_it in (False, True):
        spoken = find_family(CODEC.family).encode_reply(reply, stream=stream_it)
        assert decode(b"".join(spoken.frames), headers=dict(spoken.headers))[0].usage == used


# Ways of delivery


CHUNKS = [
    chunk(text("hm", thought=True), counts={"promptTokenCount": 3}),
    chunk(text("Ich rufe — ")),
    chunk(called("a", {"city": "Tōkyō"}, thoughtSignature="c2ln")),
    chunk(called("b", {"x": [1, {"y": '"'}]}), called("c")),
    chunk(
        text("", thoughtSignature="ZW5k"),
        finish="STOP",
        counts={"promptTokenCount": 3, "candidatesTokenCount": 9},
    ),
]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 1024, None])
def test_events_arrays_and_all_slices_give_one_reply(size):
    expected, shown = streamed(*CHUNKS)
    as_array = json.dumps(CHUNKS, indent=2, ensure_ascii=False).encode()
    unindented = decode(json.dumps(CHUNKS).encode(), size=size)
    assert unindented == (expected, shown)
    assert [part for part in decode(as_array, size=size)[0].parts if not isinstance(part, ToolCall)] == [
        part for part in expected.parts if not isinstance(part, ToolCall)
    ]
    for ending in (b"\n\n", b"\r\r", b"\r\n\r\n"):
        assert decode(stream(*CHUNKS).replace(b"\r\n\r\n", ending), size=size) == (expected, shown)


def test_the_same_reply_whole_and_in_pieces():
    parts = [part for each in CHUNKS for part in each["candidates"][0]["content"]["parts"]]
    counts = {"promptTokenCount": 3, "candidatesTokenCount": 9}
    assert whole(*parts, finish="STOP", counts=counts) == streamed(*CHUNKS)[0]


@pytest.mark.parametrize(
    "body", [stream(*CHUNKS), stream(*map(chunk, PIECES), chunk(finish="STOP")), json.dumps(CHUNKS).encode()]
)
def test_cut_after_every_byte_it_is_no_reply_and_offers_no_half_call(body):
    expected, shown = decode(body)
    complete = [delta.arguments for delta in shown if isinstance(delta, ToolCallDelta)]
    for cut in range(len(body)):
        decoder = CODEC.new_decoder(ASKED, 200, {})
        deltas = list(decoder.feed(body[:cut]))
        offered = [delta.arguments for delta in deltas if isinstance(delta, ToolCallDelta)]
        assert offered == complete[: len(offered)]
        assert expected.text.startswith(decoder.partial_text)
        assert outcome(decoder.close) in ("cut", expected), cut


# Fuzz and cost


def mutated(body, random):
    data = bytearray(body)
    for _ in range(random.randint(1, 5)):
        at = random.randrange(len(data) + 1)
        match random.randrange(5):
            case 0:
                data[at : at + 1] = random.randbytes(1)
            case 1:
                del data[at : at + random.randint(1, 60)]
            case 2:
                data[at:at] = data[at : at + random.randint(1, 120)]
            case 3:
                other = random.randrange(len(data) + 1)
                data[at:at] = data[other : other + random.randint(1, 80)]
            case _:
                data[at:at] = random.choice(
                    (b"\r\n\r\n", b"null", b"{", b"[", b'"', b"\\ud83d", b"\xff", b"7")
                )
    return bytes(data)


def test_damaged_recordings_give_a_reply_or_a_failure_and_nothing_else():
    random = Random(20_261_115)
    bodies = [recording for recording in corpus("gemini") if len(recording.body) < 6_000]
    bodies += [replace(bodies[0], body=stream(*map(chunk, PIECES), chunk(finish="STOP")))] * 60
    for _ in range(int(2_500 * CAMPAIGN)):
        recording = random.choice(bodies)
        body = mutated(recording.body, random)
        status = recording.status if random.random() < 0.9 else random.choice((204, 302, 400, 429, 503))
        size = random.choice((1, 16, 333, len(body) or 1))
        try:
            outcome(lambda args=(body, status, recording.headers, size): decode(*args))
        except Exception as error:
            raise AssertionError(f"{type(error).__name__}: {error} from {body!r}") from error


def test_a_delta_costs_the_same_however_many_came_before():
    def make_slices(count):
        said = stream(chunk(text("some words "), counts={"promptTokenCount": 3}, responseId="r"))
        return [*[said] * count, stream(chunk(finish="STOP"))]

    assert_deltas_cost_the_same(lambda: CODEC.new_decoder(ASKED, 200, {}), make_slices, "some words ")


@pytest.mark.parametrize("empty", [{"thought": True}, {"text": "", "thought": True}])
@pytest.mark.parametrize("split", [True, False], ids=["streamed", "whole"])
def test_an_empty_thought_without_a_signature_is_dropped_for_a_recorded_reason(empty, split):
    """Recorded traffic sends a thought without words back only with its signature."""

    def told(*parts):
        chunks = [chunk(part) for part in parts] if split else [chunk(*parts)]
        chunks[-1]["candidates"][0]["finishReason"] = "STOP"
        reply, _ = streamed(*chunks) if split else decode(json.dumps(chunks[0]).encode())
        return reply.parts, [words.partition(" was dropped")[0] for words in reply.dropped_parts]

    lost = ["an empty thought without a signature"]
    assert told(empty, text("One.")) == ((Text(text="One."),), lost)
    assert told(text("One"), empty, text(" two.")) == ((Text(text="One two."),), lost)
    assert told(text("One."), empty) == ((Text(text="One."),), lost)
    thought = Reasoning(text="Hm.")
    assert told(empty, text("Hm.", thought=True), text("One.")) == ((thought, Text(text="One.")), [])
    assert told(text("Hm.", thought=True), empty, text("One.")) == ((thought, Text(text="One.")), [])
    signed = Reasoning(text="", signature="c2ln")
    assert told({**empty, "thoughtSignature": "c2ln"}, text("One.")) == ((signed, Text(text="One.")), [])
    call = called("look", {"at": 1}, thoughtSignature="c2ln")
    parts, dropped = told(empty, call)
    assert ([part.name for part in parts], dropped) == (["look"], lost)
