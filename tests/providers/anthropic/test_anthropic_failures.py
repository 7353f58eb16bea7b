"""What goes wrong at Anthropic: status, headers and body, to a failure and back."""

import json

import pytest

from bridle.providers import load_codec
from bridle.sim.families import find_family
from bridle.values.errors import Failure, ProviderError
from bridle.values.model import Endpoint, Model
from bridle.values.request import Request

CODEC = load_codec("anthropic")
SERVER = find_family(CODEC.family)
ASKED = Request(model=Model(id="claude-x", endpoint=Endpoint(name="here", family="anthropic")))


def failure(status, body, headers=None):
    decoder = CODEC.new_decoder(ASKED, status, headers or {})
    assert list(decoder.feed(body)) == []
    with pytest.raises(ProviderError) as failed:
        decoder.close()
    return failed.value.failure


SPENT, RAMP = "enforced_spend_limit_reached", "ramp_limit_exceeded"


def error(kind, message="Some words.", **more):
    return json.dumps({"type": "error", "error": {"type": kind, "message": message, **more}}).encode()


REFUSED = [
    "messages.1.content.0: Invalid `signature` in `thinking` block",
    (
        "messages.1.content.0: Invalid `signature` in `thinking` block. The block is bound to a different"
        ' conversation. Remove the block, or set `thinking.block_binding.prefix_mismatch_behavior` to "drop_block".'
    ),
    (
        "messages.1.content.0: `thinking` or `redacted_thinking` blocks in the latest assistant message cannot be"
        " modified. These blocks must remain as they were in the original response."
    ),
    "messages.1.content.0.thinking.signature: Field required",
    (
        "messages.3.content.0.type: Expected `thinking` or `redacted_thinking`, but found `tool_use`. When"
        " `thinking` is enabled, a final `assistant` message must start with a thinking block."
    ),
    "The `content[].thinking` in the thinking mode must be passed back to the API.",
]
OVERFLOWS = [
    "prompt is too long: 1050000 tokens > 1000000 maximum",
    (
        "input length and `max_tokens` exceed context limit: 199000 + 8192 > 200000, decrease input length or"
        " `max_tokens` and try again"
    ),
    "invalid params, context window exceeds limit",
    "the request exceeds the available context size, try increasing it",
    "This model's maximum context length is 8192 tokens. However, you requested 9000 tokens",
    "Your request exceeded model token limit: 262144 (requested: 300000)",
]
NEITHER = [
    "max_tokens: 200000 > 128000, which is the maximum allowed number of output tokens for claude-sonnet-5-5",
    "`max_tokens` must be greater than `thinking.budget_tokens`.",
    "thinking.block_binding: Extra inputs are not permitted",
    "context_management.edits.0.trigger: Input should be less than the context window",
    "The long context beta is not yet available for this subscription.",
    "tools.0.custom.input_schema: Schema is too complex for compilation.",
    '"thinking.type.enabled" is not supported for this model. Use "thinking.type.adaptive".',
    "Too many tokens, please wait before trying again: rate limit of this context window exceeded",
    "Thinking may not be enabled when tool_choice forces tool use.",
]


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        *((words, "reasoning_refused") for words in REFUSED),
        *((words, "context") for words in OVERFLOWS),
        *((words, "invalid") for words in NEITHER),
    ],
)
def test_wordings_tell_apart_what_the_wire_does_not(message, kind):
    assert failure(400, error("invalid_request_error", message)).kind == kind
    # Type and status come first: what they name is not renamed by words.
    assert failure(429, error("rate_limit_error", message)).kind == "rate_limited"
    assert failure(413, error("request_too_large", message)).kind == "too_large"
    assert failure(529, error("overloaded_error", message)).kind == "overloaded"
    assert failure(401, error("authentication_error", message)).kind == "unauthorized"


@pytest.mark.parametrize(
    ("status", "body", "kind", "code"),
    [
        (400, error("invalid_request_error"), "invalid", "invalid_request_error"),
        (400, error("invalid_request_error", "prompt is too long: 9 tokens > 8 maximum"), "context", None),
        (
            400,
            error("invalid_request_error", "input length and `max_tokens` exceed context limit"),
            "context",
            None,
        ),
        (400, b'{"message":"Input is too long for requested model."}', "context", ""),
        (
            400,
            error("invalid_request_error", "Your credit balance is too low to access the API."),
            "quota",
            None,
        ),
        (
            400,
            error("invalid_request_error", "You have reached your specified API usage limits."),
            "quota",
            None,
        ),
        (401, error("authentication_error"), "unauthorized", "authentication_error"),
        (402, error("billing_error"), "quota", "billing_error"),
        (403, error("permission_error"), "unauthorized", "permission_error"),
        (404, error("not_found_error"), "not_found", "not_found_error"),
        (408, b"", "timeout", ""),
        (409, error("conflict_error"), "server", "conflict_error"),
        (413, error("request_too_large"), "too_large", "request_too_large"),
        (413, b"<html><body>413 Request Entity Too Large</body></html>", "too_large", ""),
        (429, error("rate_limit_error"), "rate_limited", "rate_limit_error"),
        (429, error("rate_limit_error", details={"error_code": SPENT}), "quota", SPENT),
        (429, error("rate_limit_error", details={"error_code": RAMP}), "rate_limited", RAMP),
        (500, error("api_error"), "server", "api_error"),
        (502, b"bad gateway", "server", ""),
        (503, b'{"message":"Model is getting throttled. Try your request again."}', "overloaded", ""),
        (504, error("timeout_error"), "timeout", "timeout_error"),
        (529, error("overloaded_error", details=None), "overloaded", "overloaded_error"),
        (418, error("tomorrow_error"), "invalid", "tomorrow_error"),
        (307, b"", "invalid", ""),
    ],
)
def test_statuses_and_types_have_one_kind(status, body, kind, code):
    found = failure(status, body)
    assert (found.kind, found.status) == (kind, status)
    if code is not None:
        assert found.code == code


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after-ms": "1500", "retry-after": "7"}, 1.5),
        ({"retry-after": "-3"}, 0.0),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "Sun, 15 Nov 2026 10:00:30 GMT"}, None),
        ({"retry-after": "Sun, 15 Nov 2026 10:00:30 GMT", "date": "Sun, 15 Nov 2026 10:00:00 GMT"}, 30.0),
        ({"retry-after": "Sun, 15 Nov 2026 10:00:00 GMT", "date": "Sun, 15 Nov 2026 10:00:30 GMT"}, 0.0),
    ],
)
def test_the_wait_is_what_the_provider_asked_for(headers, seconds):
    assert failure(429, error("rate_limit_error"), headers).retry_after_seconds == seconds


@pytest.mark.parametrize(("word", "said"), [("true", True), ("FALSE", False), ("", None), ("perhaps", None)])
def test_the_providers_word_on_trying_again(word, said):
    assert failure(500, error("api_error"), {"x-should-retry": word}).should_retry is said


@pytest.mark.parametrize(
    ("status", "body", "headers", "words"),
    [
        (502, b"<html><title>502\n Bad Gateway</title><p>x</html>", {}, "HTTP 502: 502 Bad Gateway"),
        (403, b"<html><style>a{}</style><p>No\nentry</p></html>", {}, "HTTP 403: No entry"),
        (500, b"", {}, "HTTP 500, without an explanation"),
        (500, b"\xff\xfe", {}, "HTTP 500: \ufffd\ufffd"),
        (301, b"", {"location": "https://else/"}, "HTTP 301 to https://else/, without an explanation"),
        (400, b'{"detail":"nope"}', {}, "nope"),
        (400, b'[{"error":{"message":"in a list"}}]', {}, "in a list"),
        (400, b'{"error":"just words"}', {}, "just words"),
    ],
)
def test_a_body_that_is_not_theirs_gives_one_readable_line(status, body, headers, words):
    assert failure(status, body, headers).message == words


def test_long_messages_are_cut_and_long_pages_not_kept():
    assert len(failure(500, b"x" * 5_000_000).message) <= 1_000
    assert len(failure(400, error("invalid_request_error", "y" * 5_000)).message) <= 1_000


def test_another_clouds_exceptions_are_understood():
    name = "ThrottlingException:http://internal/"
    assert failure(400, b'{"message":"slow"}', {"x-amzn-errortype": name}).kind == "rate_limited"


def test_a_failure_spoken_is_a_failure_understood():
    told = Failure(
        kind="quota", message="m", status=429, code="enforced_spend_limit_reached",
        retry_after_seconds=2.0, should_retry=False,
    )  # fmt: skip
    spoken = SERVER.encode_failure(told)
    assert failure(spoken.status, b"".join(spoken.frames), dict(spoken.headers)) == told
