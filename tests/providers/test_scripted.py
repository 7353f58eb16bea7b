"""The scripted family of our own values: lossless, and streamed."""

import json

import pytest

from bridle.ports.codec import HttpRequest
from bridle.providers import load_codec
from bridle.sim.families import find_family
from bridle.testing.conformance.codec_samples import request_for, sample_replies, sample_requests
from bridle.values.errors import Failure, MisuseError, ProviderError
from bridle.values.message import Reasoning, Reply, Stop, Text, ToolCall
from bridle.values.model import Origin
from bridle.values.result import ReasoningDelta, TextDelta, ToolCallDelta

CODEC = load_codec("scripted")
SERVER = find_family(CODEC.family)
REPLY = Reply(
    parts=(
        Reasoning(text="hm, so"),
        Text(text="Let me  look."),
        ToolCall(id="", name="look", arguments='{"place": "Tōkyō"}', wire_id="w"),
    ),
    stop=Stop.TOOLS,
    origin=Origin(family="scripted", endpoint="scripted", model="script"),
)


@pytest.mark.parametrize("request_", sample_requests("scripted"))
def test_a_request_comes_back_as_it_was(request_):
    assert CODEC.decode_request(CODEC.encode(request_)) == request_
    assert CODEC.decode_request(CODEC.encode(request_, CODEC.new_history())) == request_


@pytest.mark.parametrize("reply", [REPLY, *sample_replies("scripted")])
@pytest.mark.parametrize("stream", [True, False])
def test_a_reply_comes_back_as_it_was(reply, stream):
    spoken = SERVER.encode_reply(reply, stream=stream)
    decoder = CODEC.new_decoder(request_for(reply), spoken.status, dict(spoken.headers))
    for frame in spoken.frames:
        list(decoder.feed(frame))
    assert decoder.close() == reply


def test_a_stream_shows_words_thoughts_and_calls():
    spoken = SERVER.encode_reply(REPLY, stream=True)
    decoder = CODEC.new_decoder(request_for(REPLY), spoken.status, dict(spoken.headers))
    deltas = [delta for frame in spoken.frames for delta in decoder.feed(frame)]
    assert [delta.text for delta in deltas if isinstance(delta, TextDelta)] == ["Let", " me", "  look."]
    assert [delta.reasoning for delta in deltas if isinstance(delta, ReasoningDelta)] == ["hm,", " so"]
    pieces = [delta for delta in deltas if isinstance(delta, ToolCallDelta)]
    assert len(pieces) > 1
    assert {(piece.index, piece.name) for piece in pieces} == {(2, "look")}
    assert json.loads("".join(piece.arguments for piece in pieces)) == {"place": "Tōkyō"}
    assert decoder.partial_text == "Let me  look."


def test_a_failure_in_the_middle_ends_the_stream():
    decoder = CODEC.new_decoder(request_for(REPLY), 200, {"content-type": "application/x-ndjson"})
    failed = Failure(kind="overloaded", message="busy")
    with pytest.raises(ProviderError):
        decoder.feed(b'{"failure":{"kind":"overloaded","message":"busy"}}\n')
    with pytest.raises(ProviderError) as again:
        decoder.close()
    assert again.value.failure == failed


def test_what_is_no_request_is_refused():
    with pytest.raises(ProviderError) as refused:
        CODEC.decode_request(HttpRequest(path="/reply", body=b'{"model":1}'))
    assert refused.value.failure.status == 400


def test_only_its_own_memory_is_accepted():
    class Other:
        def joined(self, messages):
            return b"", ""

    with pytest.raises(MisuseError):
        CODEC.encode(sample_requests("scripted")[0], Other())  # type: ignore[arg-type]
