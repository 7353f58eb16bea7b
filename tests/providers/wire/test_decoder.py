"""Behaviour that all decoders share, and the head of every request."""

import pytest

from bridle.providers import load_codec
from bridle.providers.wire.decoder import ERROR_BYTES_MAX
from bridle.sim.families import find_family
from bridle.testing.conformance.codec_samples import sample_replies
from bridle.values.errors import MisuseError, ProviderError
from bridle.values.model import Endpoint, Model
from bridle.values.request import Request

FAMILIES = ("openai_responses", "openai_chat", "gemini")
MARK = b"\xef\xbb\xbf"


def make_request(family, **more):
    return Request(model=Model(id="m", endpoint=Endpoint(name="here", family=family, **more)))


def decode_slices(family, slices, status=200):
    decoder = load_codec(family).new_decoder(make_request(family), status, {})
    try:
        for data in slices:
            decoder.feed(data)
        return decoder.close()
    except ProviderError as error:
        with pytest.raises(ProviderError) as again:
            decoder.feed(b"more")
        assert again.value.failure == error.failure  # who failed once fails for ever
        with pytest.raises(ProviderError):
            decoder.close()
        return error.failure


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("stream", [False, True])
def test_what_stands_in_front_of_a_reply_says_nothing(family, stream):
    """Keep-alives, line breaks and the mark some servers begin with, in any slices."""
    reply = sample_replies(family)[0]
    body = b"".join(find_family(family).encode_reply(reply, stream=stream).frames)
    plain = decode_slices(family, [body])
    for lead in (b"\n" * 5_000, b" \r\n\t", MARK, b"\n" + MARK):
        pieces = [lead[at : at + 1] for at in range(len(lead))] if len(lead) < 9 else [lead]
        assert decode_slices(family, [*pieces, body]) == plain


@pytest.mark.parametrize("family", FAMILIES)
def test_the_last_event_counts_without_its_final_line_break(family):
    """Servers close the connection right behind the counts, which must not be lost for it."""
    reply = sample_replies(family)[0]
    frames = list(find_family(family).encode_reply(reply, stream=True).frames)
    while frames[-1].strip().endswith(b"[DONE]"):
        frames.pop()
    whole = decode_slices(family, frames)
    assert whole.usage.total > 0
    assert decode_slices(family, [*frames[:-1], frames[-1].rstrip()]) == whole


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"", "cut"),
        (b" \n", "cut"),
        (b'{"half": ', "cut"),
        (b"<html><title>Sign in</title></html>", "garbled"),
        (b'"words"', "garbled"),
        (b"data: {not json\n\n", "garbled"),
        (b": only a comment\n\n", "cut"),
        (b"data: " + b"[" * 5_000 + b"\n\n", "garbled"),
    ],
)
def test_what_is_no_reply_is_none(family, body, kind):
    assert decode_slices(family, [body]).kind == kind


@pytest.mark.parametrize("family", FAMILIES)
def test_an_error_page_is_read_as_far_as_it_tells_anything(family):
    found = decode_slices(family, [b"x" * ERROR_BYTES_MAX, b"y" * ERROR_BYTES_MAX], 502)
    assert (found.kind, found.status) == ("server", 502)
    assert decode_slices(family, [b"data: {}\n\n"], 429).kind == "rate_limited"


@pytest.mark.parametrize("family", FAMILIES)
def test_a_request_has_the_headers_of_its_endpoint_and_only_its_own_memory(family):
    codec = load_codec(family)
    sent = codec.encode(make_request(family, headers=(("X-Team", "7"),)))
    assert dict(sent.headers) == {"content-type": "application/json", "x-team": "7"}
    with pytest.raises(MisuseError, match="belongs to another codec"):
        codec.encode(make_request(family), load_codec("scripted").new_history())
