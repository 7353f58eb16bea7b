"""Failures of Anthropic, for tests."""

import json

from bridle.values.errors import Failure
from tests.providers.anthropic.anthropic_replies import BEGIN, WIRE, stream
from tests.providers.kit.failure_kit import FailureCases, Refusal

SPENT, RAMP = "enforced_spend_limit_reached", "ramp_limit_exceeded"
TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    529: "overloaded_error",
}


def error(kind, message="Some words.", **more):
    return json.dumps({"type": "error", "error": {"type": kind, "message": message, **more}}).encode()


def say(message, status=400, **more):
    return error(TYPES[status], message, **more)


INVALID = "invalid_request_error"
FAILURES = FailureCases(
    wire=WIRE,
    say=say,
    refusals=[
        Refusal(400, error(INVALID), "invalid", INVALID),
        Refusal(400, error(INVALID, "prompt is too long: 9 tokens > 8 maximum"), "context"),
        Refusal(400, error(INVALID, "input length and `max_tokens` exceed context limit"), "context"),
        Refusal(400, b'{"message":"Input is too long for requested model."}', "context", ""),
        Refusal(400, error(INVALID, "Your credit balance is too low to access the API."), "quota"),
        Refusal(400, error(INVALID, "You have reached your specified API usage limits."), "quota"),
        Refusal(401, error("authentication_error"), "unauthorized", "authentication_error"),
        Refusal(402, error("billing_error"), "quota", "billing_error"),
        Refusal(403, error("permission_error"), "unauthorized", "permission_error"),
        Refusal(404, error("not_found_error"), "not_found", "not_found_error"),
        Refusal(408, b"", "timeout", ""),
        Refusal(409, error("conflict_error"), "server", "conflict_error"),
        Refusal(413, error("request_too_large"), "too_large", "request_too_large"),
        Refusal(413, b"<html><body>413 Request Entity Too Large</body></html>", "too_large", ""),
        Refusal(429, error("rate_limit_error"), "rate_limited", "rate_limit_error"),
        Refusal(429, error("rate_limit_error", details={"error_code": SPENT}), "quota", SPENT),
        Refusal(429, error("rate_limit_error", details={"error_code": RAMP}), "rate_limited", RAMP),
        Refusal(500, error("api_error"), "server", "api_error"),
        Refusal(502, b"bad gateway", "server", ""),
        Refusal(503, b'{"message":"Model is getting throttled. Try your request again."}', "overloaded", ""),
        Refusal(504, error("timeout_error"), "timeout", "timeout_error"),
        Refusal(529, error("overloaded_error", details=None), "overloaded", "overloaded_error"),
        Refusal(418, error("tomorrow_error"), "invalid", "tomorrow_error"),
        Refusal(307, b"", "invalid", ""),
        # Another cloud's exceptions are understood.
        Refusal(
            400,
            b'{"message":"slow"}',
            "rate_limited",
            headers={"x-amzn-errortype": "ThrottlingException:http://internal/"},
        ),
    ],
    told=[
        Failure(
            kind="quota", message="m", status=429, code=SPENT, retry_after_seconds=2.0, should_retry=False
        )
    ],
    in_replies=[
        (
            [stream(BEGIN, json.loads(error("overloaded_error"))), error("overloaded_error")],
            "overloaded",
            "overloaded_error",
            "Some words.",
        ),
        ([stream(json.loads(error(INVALID)))], "invalid", INVALID, "Some words."),
    ],
    reasoning_refused=[
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
    ],
    invalid=[
        "max_tokens: 200000 > 128000, which is the maximum allowed number of output tokens for claude-sonnet-5-5",
        "`max_tokens` must be greater than `thinking.budget_tokens`.",
        "thinking.block_binding: Extra inputs are not permitted",
        "context_management.edits.0.trigger: Input should be less than the context window",
        "The long context beta is not yet available for this subscription.",
        "tools.0.custom.input_schema: Schema is too complex for compilation.",
        '"thinking.type.enabled" is not supported for this model. Use "thinking.type.adaptive".',
        "Too many tokens, please wait before trying again: rate limit of this context window exceeded",
        "Thinking may not be enabled when tool_choice forces tool use.",
    ],
)
