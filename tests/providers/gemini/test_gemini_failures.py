"""What goes wrong at Gemini, and what is no reply at all."""

import json

import pytest
from gemini_replies import ASKED, CODEC, chunk, failure, stream, streamed, text

from bridle.values.errors import ProviderError
from bridle.values.message import Stop


def error(code, message, status=None, *details):
    said = {"code": code, "message": message}
    if status:
        said["status"] = status
    if details:
        said["details"] = list(details)
    return json.dumps({"error": said}).encode()


def detail(kind, **more):
    return {"@type": f"type.googleapis.com/google.rpc.{kind}", **more}


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (
            400,
            error(
                400, "API key not valid.", "INVALID_ARGUMENT", detail("ErrorInfo", reason="API_KEY_INVALID")
            ),
            "unauthorized",
        ),
        (
            400,
            error(
                400,
                "The input token count (1200000) exceeds the maximum number of tokens allowed (1048575).",
                "INVALID_ARGUMENT",
            ),
            "context",
        ),
        (
            400,
            error(400, "Request payload size exceeds the limit: 20971520 bytes.", "INVALID_ARGUMENT"),
            "too_large",
        ),
        (
            400,
            error(400, "Please ensure that function response turn comes immediately", "INVALID_ARGUMENT"),
            "invalid",
        ),
        (400, error(400, "User location is not supported", "FAILED_PRECONDITION"), "invalid"),
        (401, error(401, "no", "UNAUTHENTICATED"), "unauthorized"),
        (403, error(403, "no", "PERMISSION_DENIED"), "unauthorized"),
        (404, error(404, "models/x is not found", "NOT_FOUND"), "not_found"),
        (429, error(429, "Resource exhausted.", "RESOURCE_EXHAUSTED"), "rate_limited"),
        (
            429,
            error(
                429,
                "You exceeded your current quota",
                "RESOURCE_EXHAUSTED",
                detail(
                    "QuotaFailure",
                    violations=[{"quotaId": "GenerateRequestsPerDayPerProjectPerModel-FreeTier"}],
                ),
            ),
            "quota",
        ),
        (
            429,
            error(
                429,
                "You exceeded your current quota",
                "RESOURCE_EXHAUSTED",
                detail("QuotaFailure", violations=[{"quotaId": "GenerateRequestsPerMinutePerProject"}]),
            ),
            "rate_limited",
        ),
        (500, error(500, "Internal error", "INTERNAL"), "server"),
        (503, error(503, "The model is overloaded.", "UNAVAILABLE"), "overloaded"),
        (504, error(504, "slow", "DEADLINE_EXCEEDED"), "timeout"),
        (429, b"[" + error(429, "no", "RESOURCE_EXHAUSTED") + b"]", "rate_limited"),
        (502, b"<html><title>Bad Gateway</title></html>", "server"),
        (413, b"", "too_large"),
        (418, b'{"error":"tea"}', "invalid"),
    ],
)
def test_kinds_of_failures(status, body, kind):
    failed = failure(body, status)
    assert (failed.kind, failed.status) == (kind, status)
    assert failed.message


def test_how_long_to_wait_is_in_the_details():
    body = error(
        429,
        "slow down",
        "RESOURCE_EXHAUSTED",
        detail("Help"),
        detail("RetryInfo", retryDelay="34.074824224s"),
    )
    assert failure(body, 429).retry_after_seconds == 34.074824224
    assert failure(error(429, "x", "RESOURCE_EXHAUSTED"), 429, {"retry-after": "7"}).retry_after_seconds == 7
    odd = error(
        429, "x", "RESOURCE_EXHAUSTED", detail("RetryInfo", retryDelay="soon"), "odd", detail("RetryInfo")
    )
    assert failure(odd, 429).retry_after_seconds is None


def test_an_error_in_the_middle_of_a_stream_is_a_failure():
    broken = json.loads(error(503, "The model is overloaded.", "UNAVAILABLE"))
    begun = chunk(text("a"))
    for body in (
        stream(begun, broken),
        json.dumps([begun, broken]).encode(),
        stream(begun) + json.dumps(broken, indent=2).encode(),
        stream(begun, chunk(text("b"), finish="STOP")) + json.dumps(broken, indent=2).encode() + b"\n\n",
        json.dumps(broken).encode(),
    ):
        failed = failure(body)
        assert (failed.kind, failed.status, failed.message) == ("overloaded", 200, "The model is overloaded.")
    assert failure(stream(begun, {"error": {"code": 429, "message": "x"}})).kind == "rate_limited"


def test_what_comes_before_the_first_event_makes_no_difference():
    said = b"\xef\xbb\xbf\r\n \n" + stream(chunk(text("a"), finish="STOP"))
    for size in (1, 2, 5, len(said)):
        decoder = CODEC.new_decoder(ASKED, 200, {})
        for at in range(0, len(said), size):
            decoder.feed(said[at : at + size])
        assert decoder.close().text == "a"


def test_a_decoder_that_failed_stays_failed():
    decoder = CODEC.new_decoder(ASKED, 200, {})
    with pytest.raises(ProviderError):
        decoder.feed(stream({"error": {"message": "x"}}))
    for again in (decoder.close, lambda: decoder.feed(b"data: {}\n\n")):
        with pytest.raises(ProviderError, match="x"):
            again()


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"", "cut"),
        (b" \r\n", "cut"),
        (b'{"candidates": [', "cut"),
        (b"[", "cut"),
        (b'[{"candidates":[{"finishReason":"STOP"}]}', "cut"),
        (b": only a comment\n\n", "cut"),
        (b"data:\n\n", "cut"),
        (b"<html>hello</html>", "garbled"),
        (b'"text"', "garbled"),
        (b'{"hello": "you"}', "garbled"),
        (b'{"totalTokens": 7}', "garbled"),
        (b'{"message": "wrong door"}', "server"),
        (b"data: {no json}\n\n", "garbled"),
        (b'data: {"candidates": [}\n\n', "garbled"),
    ],
)
def test_what_is_no_reply(body, kind):
    assert failure(body).kind == kind


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
    reply, _ = streamed(chunk(text("a")), odd, chunk(text("b"), finish="STOP"))
    assert reply.text == "ab"
    assert reply.stop is Stop.DONE
