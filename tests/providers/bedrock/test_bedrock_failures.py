"""What goes wrong at Bedrock Converse: status, headers and body, to a failure and back."""

import json

import pytest

from bridle.providers import load_codec
from bridle.sim.families import find_family
from bridle.values.errors import Failure, ProviderError
from bridle.values.model import Endpoint, Model
from bridle.values.request import Request

CODEC = load_codec("bedrock_converse")
SERVER = find_family(CODEC.family)
ASKED = Request(model=Model(id="maker.x", endpoint=Endpoint(name="here", family="bedrock_converse")))


def failure(status, body, headers=None):
    decoder = CODEC.new_decoder(ASKED, status, headers or {})
    assert list(decoder.feed(body)) == []
    with pytest.raises(ProviderError) as failed:
        decoder.close()
    return failed.value.failure


def named(exception):
    return {"x-amzn-errortype": f"{exception}:http://internal.example/coral/"}


WAIT = "Too many tokens, please wait before trying again."


@pytest.mark.parametrize(
    ("status", "exception", "message", "kind"),
    [
        (400, "ValidationException", "Malformed input request.", "invalid"),
        (400, "ValidationException", "The provided model identifier is invalid.", "not_found"),
        (400, "ValidationException", "The model returned the following errors: Input is too long for requested model.", "context"),
        (400, "ValidationException", "prompt is too long: 215000 tokens > 200000 maximum", "context"),
        (400, "ValidationException", "Input Tokens Exceeded: Number of input tokens exceeds maximum length.", "context"),
        (400, "ValidationException", "input length and `max_tokens` exceed context limit: 199000 + 8192", "context"),
        (400, "ValidationException", "messages.1.content.0: Invalid `signature` in `thinking` block", "reasoning_refused"),
        (400, "ValidationException", "The model returned the following errors: messages.3.content.0: `thinking` or `redacted_thinking` blocks in the latest assistant message cannot be modified.", "reasoning_refused"),
        (400, "ValidationException", "messages.1.content.0.type: Expected `thinking` or `redacted_thinking`, but found `tool_use`.", "reasoning_refused"),
        (400, "ValidationException", "The maximum tokens you requested exceeds the model limit of 8192.", "invalid"),
        (400, "ValidationException", "The number of toolResult blocks at messages.2.content exceeds the number of toolUse blocks of previous turn.", "invalid"),
        (400, "ValidationException", "additionalModelRequestFields.context_management: Extra inputs are not permitted", "invalid"),
        (429, "ThrottlingException", "Too many tokens: the context window quota of this account", "rate_limited"),
        (400, "ServiceQuotaExceededException", "m", "quota"),
        (403, "AccessDeniedException", "m", "unauthorized"),
        (403, "UnrecognizedClientException", "The security token is invalid.", "unauthorized"),
        (403, "ExpiredTokenException", "m", "unauthorized"),
        (403, "InvalidSignatureException", "Signature expired", "unauthorized"),
        (404, "ResourceNotFoundException", "This model version has reached the end of its life.", "not_found"),
        (408, "ModelTimeoutException", "m", "timeout"),
        (413, "RequestEntityTooLargeException", "m", "too_large"),
        (424, "ModelErrorException", "m", "server"),
        (429, "ThrottlingException", WAIT, "rate_limited"),
        (400, "ThrottlingException", WAIT, "rate_limited"),
        (429, "ThrottlingException", "Too many tokens per day, please wait before trying again.", "quota"),
        (429, "ModelNotReadyException", "m", "overloaded"),
        (500, "InternalServerException", "m", "server"),
        (503, "ServiceUnavailableException", "m", "overloaded"),
        (418, "TomorrowException", "m", "invalid"),
    ],
)  # fmt: skip
def test_exceptions_have_one_kind(status, exception, message, kind):
    found = failure(status, json.dumps({"message": message}).encode(), named(exception))
    assert found == Failure(kind=kind, message=message, status=status, code=exception)


@pytest.mark.parametrize(
    ("status", "body", "kind", "message"),
    [
        (400, json.dumps({"message": WAIT}).encode(), "rate_limited", WAIT),
        (429, b'{"Message":"slow"}', "rate_limited", "slow"),
        (400, b'{"__type":"com.cloud.service#ThrottlingException","message":"slow"}', "rate_limited", "slow"),
        (503, b"", "overloaded", "HTTP 503, without an explanation"),
        (502, b"<html><title>502\n Bad Gateway</title></html>", "server", "HTTP 502: 502 Bad Gateway"),
        (400, b"[]", "invalid", "HTTP 400: []"),
    ],
)
def test_what_has_no_name_is_judged_by_status_and_words(status, body, kind, message):
    found = failure(status, body)
    assert (found.kind, found.message) == (kind, message)


def test_what_the_model_said_itself_is_told():
    body = b'{"message":"The model failed.","originalStatusCode":400,"originalMessage":"no such field"}'
    assert failure(424, body, named("ModelErrorException")).message == "The model failed. (no such field)"


def test_a_failure_spoken_is_a_failure_understood():
    told = Failure(
        kind="overloaded", message="m", status=429, code="ModelNotReadyException",
        retry_after_seconds=2.0, should_retry=True,
    )  # fmt: skip
    spoken = SERVER.encode_failure(told)
    assert failure(spoken.status, b"".join(spoken.frames), dict(spoken.headers)) == told
