"""Replies that only Gemini makes; `tests/providers/kit` holds what every wire must do."""

import json
from random import Random

import pytest
from msgspec.structs import replace

from bridle.values.errors import Failure
from bridle.values.message import Opaque, Reasoning, Reply, Stop, Text
from bridle.values.request import ToolSpec
from bridle.values.result import CallReady, ToolCallDelta
from tests.providers.gemini.gemini_replies import (
    PIECES,
    WIRE,
    chunk,
    decode_message,
    decode_stream,
    function_call,
    stream,
    text,
)
from tests.providers.kit.decode_kit import damage_bytes
from tests.suite.campaign import list_seeds
from tests.wire.wire import corpus


def test_a_call_keeps_its_signature_and_its_id():
    signed = {"functionCall": {"id": "x1", "name": "a", "args": {}}, "thoughtSignature": "c2ln"}
    (call,) = decode_message(signed, finish="STOP").calls
    assert (call.wire_id, call.native) == ("x1", '{"thoughtSignature":"c2ln"}')


def test_id_and_model_of_a_reply_may_come_with_any_chunk():
    reply, _ = decode_stream(
        chunk(text("Hel")),
        chunk(text("lo"), responseId="r1", modelVersion="gemini-x-001"),
        chunk(finish="STOP"),
    )
    assert (reply.id, reply.origin.model) == ("r1", "gemini-x-001")


def test_words_after_a_reason_to_stop_still_count():
    """One generation stops halfway while its own code runs, another repeats the reason with every piece."""
    reply, _ = decode_stream(
        chunk(text("a"), finish="STOP"), chunk(text("b")), chunk(text("c"), finish="RECITATION")
    )
    assert reply.text == "abc"


def test_only_the_first_candidate_is_read():
    both = {"candidates": [*chunk(text("a"), finish="STOP")["candidates"], *chunk(text("x"))["candidates"]]}
    both["candidates"][1]["index"] = 1
    assert WIRE.decode(json.dumps(both).encode())[0].text == "a"
    second = chunk(text("x"), candidate={"index": 1})
    assert decode_stream(second, chunk(text("a"), finish="STOP"), second)[0].text == "a"


def test_a_result_is_not_the_models_to_say():
    said = {"functionResponse": {"name": "a", "response": {"output": "x"}, "parts": 7}}
    reply = decode_message(said, finish="STOP")
    assert [(type(part), part.kind) for part in reply.parts] == [(Opaque, "functionResponse")]


def test_a_reply_spread_over_lines_has_the_arguments_of_one_that_is_not():
    body = chunk(function_call("a", {"city": "New\nYork ", "n": [1, {"x": 2}]}), finish="STOP")
    on_one_line = json.dumps(body, separators=(",", ": ")).encode()
    assert WIRE.decode(json.dumps(body, indent=2).encode())[0] == WIRE.decode(on_one_line)[0]
    assert WIRE.decode(on_one_line)[0].calls[0].arguments == '{"city": "New\\nYork ","n": [1,{"x": 2}]}'


def test_names_come_back_as_the_tools_have_them():
    tools = (ToolSpec(name="größe"), ToolSpec(name="plain"))
    request = replace(WIRE.asked, tools=tools)
    declared = json.loads(WIRE.codec.encode(request).body)["tools"][0]["functionDeclarations"]
    sent_name = declared[0]["name"]
    assert sent_name.isascii()
    body = stream(
        chunk(function_call(sent_name), function_call("plain"), function_call("other"), finish="STOP")
    )
    reply, deltas = WIRE.decode(body, request=request)
    assert [call.name for call in reply.calls] == ["größe", "plain", "other"]
    assert [delta.name for delta in deltas if isinstance(delta, ToolCallDelta)] == ["größe", "plain", "other"]
    assert [delta.call for delta in deltas if isinstance(delta, CallReady)] == list(reply.calls)


def parses(arguments):
    try:
        json.loads(arguments)
    except ValueError:
        return False
    return True


def test_a_call_whose_end_never_came_is_not_valid():
    for count in range(1, len(PIECES)):
        reply, deltas = decode_stream(*map(chunk, PIECES[:count]), chunk(finish="MAX_TOKENS"))
        assert reply.stop is Stop.LENGTH
        assert deltas == []
        assert not parses(reply.calls[0].arguments)
    reply, _ = decode_stream(
        *map(chunk, PIECES[:3]), chunk(function_call("now", {"a": 1})), chunk(finish="STOP")
    )
    assert reply.calls[0].arguments == '{"items":[{"name":"apple"}]'
    assert json.loads(reply.calls[1].arguments) == {"a": 1}


def test_a_paused_reply_keeps_the_token_to_go_on_with():
    reply, _ = decode_stream(
        chunk(text("a"), candidate={"continuationToken": "b25l"}),
        chunk(text("b"), candidate={"continuationToken": "dHdv"}, finish="CONTINUATION"),
    )
    assert reply.stop is Stop.PAUSED
    assert reply.parts == (
        Text(text="ab"),
        Opaque(kind="continuation", native='{"continuationToken":"dHdv"}'),
    )
    done, _ = decode_stream(chunk(text("a"), candidate={"continuationToken": "b25l"}), chunk(finish="STOP"))
    assert done.parts == (Text(text="a"),)


def test_sources_are_kept_beside_what_they_are_for():
    found = {"groundingMetadata": {"webSearchQueries": ["q"]}, "citationMetadata": {}}
    reply, _ = decode_stream(chunk(text("a")), chunk(text("b"), finish="STOP", candidate=found))
    kept = Opaque(
        kind="candidate.fields",
        native='{"groundingMetadata":{"webSearchQueries":["q"]}}',
        text="[search: q]",
    )
    assert reply.parts == (Text(text="ab"), kept)
    assert decode_message(finish="STOP", candidate=found).parts == ()
    thought = decode_message(
        text("hm", thought=True), text("", thoughtSignature="eA=="), finish="STOP", candidate=found
    )
    assert not any(isinstance(part, Opaque) for part in thought.parts)


@pytest.mark.parametrize(
    ("grounding", "searches", "terms"),
    [
        ({"webSearchQueries": ["a", "b", "a", "", " "]}, 2, ()),
        ({"webSearchQueries": ["a"], "imageSearchQueries": ["a"]}, 2, ()),
        ({"webSearchQueries": None, "groundingChunks": [{"maps": {"title": "Leeds"}}]}, 0, ("google_maps",)),
        ({"groundingChunks": [{"web": {}}, None], "webSearchQueries": 7, "imageSearchQueries": "abc"}, 0, ()),
    ],
)
def test_different_searches_count_and_places_have_an_unknown_price(grounding, searches, terms):
    usage = decode_message(text("a"), finish="STOP", candidate={"groundingMetadata": grounding}).usage
    assert (usage.searches, usage.terms) == (searches, terms)


@pytest.mark.parametrize("empty", [{"thought": True}, {"text": "", "thought": True}])
@pytest.mark.parametrize("split", [True, False], ids=["streamed", "whole"])
def test_an_empty_thought_without_a_signature_is_dropped_for_a_recorded_reason(empty, split):
    """Recorded traffic sends a thought without words back only with its signature."""

    def decode_parts(*parts):
        chunks = [chunk(part) for part in parts] if split else [chunk(*parts)]
        chunks[-1]["candidates"][0]["finishReason"] = "STOP"
        reply, _ = decode_stream(*chunks) if split else WIRE.decode(json.dumps(chunks[0]).encode())
        return reply.parts, [words.partition(" was dropped")[0] for words in reply.dropped_parts]

    lost = ["an empty thought without a signature"]
    assert decode_parts(empty, text("One.")) == ((Text(text="One."),), lost)
    assert decode_parts(text("One"), empty, text(" two.")) == ((Text(text="One two."),), lost)
    assert decode_parts(text("One."), empty) == ((Text(text="One."),), lost)
    thought = Reasoning(text="Hm.")
    assert decode_parts(empty, text("Hm.", thought=True), text("One.")) == ((thought, Text(text="One.")), [])
    assert decode_parts(text("Hm.", thought=True), empty, text("One.")) == ((thought, Text(text="One.")), [])
    signed = Reasoning(text="", signature="c2ln")
    assert decode_parts({**empty, "thoughtSignature": "c2ln"}, text("One.")) == (
        (signed, Text(text="One.")),
        [],
    )
    call = function_call("look", {"at": 1}, thoughtSignature="c2ln")
    parts, dropped = decode_parts(empty, call)
    assert ([part.name for part in parts], dropped) == (["look"], lost)


@pytest.mark.parametrize(
    "odd",
    [
        {"candidates": None},
        {"candidates": {}},
        {"candidates": ["x", None, 7]},
        {"candidates": [{"content": "x"}]},
        {"candidates": [{"content": {"parts": "x"}}]},
        {"candidates": [{"content": {"parts": [None, "x", 7, {}]}}]},
        {"candidates": [{"content": {"parts": [{"text": 7}, {"functionCall": "x"}, {"inlineData": {}}]}}]},
        {"candidates": [{"content": {"parts": [{"functionCall": {}}]}}]},
        {"usageMetadata": "x", "responseId": 7, "modelVersion": []},
        {"promptFeedback": "x"},
        [],
        7,
    ],
)
def test_odd_pieces_are_passed_over(odd):
    reply, _ = decode_stream(chunk(text("a")), odd, chunk(text("b"), finish="STOP"))
    assert reply.text == "ab"
    assert reply.stop is Stop.DONE


def test_damaged_recordings_give_a_reply_or_a_failure_and_nothing_else():
    random = Random(20_261_115)
    recordings = [recording for recording in corpus("gemini") if len(recording.body) < 6_000]
    for _ in list_seeds(2_000):
        recording = random.choice(recordings)
        body = damage_bytes(recording.body, random)
        status = recording.status if random.random() < 0.9 else random.choice((204, 302, 400, 429, 503))
        size = random.choice((1, 16, 333, len(body) or 1))
        assert isinstance(WIRE.decode_or_fail(body, status, recording.headers, size), Reply | Failure), body
