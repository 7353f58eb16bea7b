"""Failures of Bedrock Converse, for tests."""

import json

from bridle.providers.wire.eventstream import encode_frame
from bridle.values.errors import Failure
from tests.providers.bedrock.bedrock_replies import BEGIN, WIRE, exception, stream
from tests.providers.kit.failure_kit import FailureCases, Refusal

WAIT = "Too many tokens, please wait before trying again."


def refuse(status, name, message, kind):
    headers = {"x-amzn-errortype": f"{name}:http://internal.example/coral/"}
    return Refusal(status, json.dumps({"message": message}).encode(), kind, name, message, headers)


def say(message, status=400, **more):
    names = {400: "ValidationException", 429: "ThrottlingException", 500: "InternalServerException"}
    return json.dumps({"__type": names[status], "message": message, **more}).encode()


INVALID = "ValidationException"
FAILURES = FailureCases(
    wire=WIRE,
    say=say,
    refusals=[
        refuse(400, INVALID, "Malformed input request.", "invalid"),
        refuse(400, INVALID, "The provided model identifier is invalid.", "not_found"),
        refuse(
            400,
            INVALID,
            "The model returned the following errors: Input is too long for requested model.",
            "context",
        ),
        refuse(400, INVALID, "prompt is too long: 215000 tokens > 200000 maximum", "context"),
        refuse(
            400, INVALID, "Input Tokens Exceeded: Number of input tokens exceeds maximum length.", "context"
        ),
        refuse(400, INVALID, "input length and `max_tokens` exceed context limit: 199000 + 8192", "context"),
        refuse(400, INVALID, "The maximum tokens you requested exceeds the model limit of 8192.", "invalid"),
        refuse(
            400,
            INVALID,
            "The number of toolResult blocks at messages.2.content exceeds the number of toolUse blocks of previous turn.",
            "invalid",
        ),
        refuse(
            400,
            INVALID,
            "additionalModelRequestFields.context_management: Extra inputs are not permitted",
            "invalid",
        ),
        refuse(
            429,
            "ThrottlingException",
            "Too many tokens: the context window quota of this account",
            "rate_limited",
        ),
        refuse(400, "ServiceQuotaExceededException", "m", "quota"),
        refuse(403, "AccessDeniedException", "m", "unauthorized"),
        refuse(403, "UnrecognizedClientException", "The security token is invalid.", "unauthorized"),
        refuse(403, "ExpiredTokenException", "m", "unauthorized"),
        refuse(403, "InvalidSignatureException", "Signature expired", "unauthorized"),
        refuse(
            404,
            "ResourceNotFoundException",
            "This model version has reached the end of its life.",
            "not_found",
        ),
        refuse(408, "ModelTimeoutException", "m", "timeout"),
        refuse(413, "RequestEntityTooLargeException", "m", "too_large"),
        refuse(424, "ModelErrorException", "m", "server"),
        refuse(429, "ThrottlingException", WAIT, "rate_limited"),
        refuse(400, "ThrottlingException", WAIT, "rate_limited"),
        refuse(
            429, "ThrottlingException", "Too many tokens per day, please wait before trying again.", "quota"
        ),
        refuse(429, "ModelNotReadyException", "m", "overloaded"),
        refuse(500, "InternalServerException", "m", "server"),
        refuse(503, "ServiceUnavailableException", "m", "overloaded"),
        refuse(418, "TomorrowException", "m", "invalid"),
        Refusal(400, json.dumps({"message": WAIT}).encode(), "rate_limited", message=WAIT),
        Refusal(429, b'{"Message":"slow"}', "rate_limited", message="slow"),
        Refusal(
            400,
            b'{"__type":"com.cloud.service#ThrottlingException","message":"slow"}',
            "rate_limited",
            message="slow",
        ),
        Refusal(503, b"", "overloaded", message="HTTP 503, without an explanation"),
        Refusal(400, b"[]", "invalid", message="HTTP 400: []"),
        Refusal(
            424,
            b'{"message":"The model failed.","originalStatusCode":400,"originalMessage":"no such field"}',
            "server",
            message="The model failed. (no such field)",
            headers={"x-amzn-errortype": "ModelErrorException"},
        ),
    ],
    told=[
        Failure(
            kind="overloaded",
            message="m",
            status=429,
            code="ModelNotReadyException",
            retry_after_seconds=2.0,
            should_retry=True,
        )
    ],
    in_replies=[
        *(
            ([stream(BEGIN) + exception(name, **said)], kind, name, said.get("originalMessage", ""))
            for name, said, kind in [
                ("internalServerException", {"message": "m"}, "server"),
                ("modelStreamErrorException", {"message": "m", "originalMessage": "why"}, "server"),
                ("serviceUnavailableException", {"message": "m"}, "overloaded"),
                ("validationException", {"message": "m"}, "invalid"),
                ("validationException", {"message": "Input is too long for requested model."}, "context"),
                ("tomorrowException", {}, "server"),
            ]
        ),
        # An error that is no exception has its words in a header.
        (
            [
                stream(BEGIN)
                + encode_frame(
                    [
                        (":message-type", "error"),
                        (":error-code", "InternalFailure"),
                        (":error-message", "oh"),
                    ],
                    b"",
                )
            ],
            "server",
            "InternalFailure",
            "oh",
        ),
    ],
    rate_limited=[f"ThrottlingException: {WAIT}"],
    reasoning_refused=[
        "messages.1.content.0: Invalid `signature` in `thinking` block",
        "The model returned the following errors: messages.3.content.0: `thinking` or `redacted_thinking` blocks in the latest assistant message cannot be modified.",
        "messages.1.content.0.type: Expected `thinking` or `redacted_thinking`, but found `tool_use`.",
    ],
)
