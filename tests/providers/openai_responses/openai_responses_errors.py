"""Failures on the Responses wire, for tests."""

import json

from bridle.values.errors import Failure
from tests.providers.kit.failure_kit import FailureCases, Refusal
from tests.providers.openai_responses.openai_responses_replies import BEGIN, WIRE, message, response, stream


def error_body(**error):
    return json.dumps(
        {"error": {"message": "m", "type": "invalid_request_error", "param": None, **error}}
    ).encode()


def refuse(status, kind, **error):
    return Refusal(
        status, error_body(**error), kind, error.get("code") or error.get("type") or "invalid_request_error"
    )


def refuse_as(code, status, /, **error):
    """A failure that asking otherwise can mend has a code of its own."""
    kind = "reasoning_refused" if "encrypted" in code else "forgotten"
    return Refusal(status, error_body(**error), kind, code)


def say(message, status=400, **more):
    return json.dumps(
        {
            "error": {
                "message": message,
                **({} if status == 429 else {"type": "invalid_request_error"}),
                **more,
            }
        }
    ).encode()


def break_reply(kind, **error):
    code = error.get("code")
    code = code if isinstance(code, str) else error.get("type", "")
    bodies = [
        stream(BEGIN, {"type": "error", "sequence_number": 2, "error": error}),
        stream(BEGIN, {"type": "response.failed", "response": response(status="failed", error=error)}),
        message(status="failed", error=error),
    ]
    if error.get("type") is None:
        bodies.append(stream(BEGIN, {**error, "type": "error", "sequence_number": 2}))
    return bodies, kind, code, ""


QUOTA = "You exceeded your current quota, please check your plan"
LOST_ITEM = "Item with id 'rs_1' not found. Items are not persisted when `store` is set to false."
ENCRYPTED = (
    "The encrypted content {} could not be verified. Reason: Encrypted content could not be decrypted."
)
FAILURES = FailureCases(
    wire=WIRE,
    say=say,
    refusals=[
        refuse(400, "context", code="context_length_exceeded"),
        refuse(400, "context", message="Your input exceeds the context window of this model. Please adjust."),
        refuse(400, "reasoning_refused", code="invalid_encrypted_content"),
        refuse(400, "invalid", code="unsupported_parameter"),
        refuse(401, "unauthorized", code="invalid_api_key"),
        refuse(403, "unauthorized"),
        refuse(404, "not_found", code="model_not_found"),
        refuse(413, "too_large"),
        refuse(429, "rate_limited", code="rate_limit_exceeded", type="requests"),
        refuse(429, "rate_limited", code="slow_down"),
        refuse(429, "rate_limited", type="tokens"),
        refuse(429, "quota", type="insufficient_quota"),
        refuse(429, "quota", code="credit_balance_exhausted"),
        refuse(429, "quota", code="organization_spend_limit_exceeded"),
        refuse(429, "quota", code="project_spend_limit_exceeded"),
        refuse(429, "quota", code="organization_usage_limit_exceeded"),
        refuse(429, "quota", message=QUOTA),
        refuse(400, "invalid", message=QUOTA),
        refuse(500, "server", type="server_error"),
        refuse(503, "overloaded", code="server_is_overloaded"),
        refuse(503, "overloaded"),
        refuse_as(
            "previous_response_not_found", 404, message="Previous response with id 'resp_1' not found."
        ),
        refuse_as("previous_response_not_found", 400, code="previous_response_not_found"),
        refuse_as("previous_response_not_found", 404, param="previous_response_id"),
        refuse_as("conversation_not_found", 404, message="Conversation with id 'conv_1' not found."),
        refuse_as("item_not_found", 400, message=LOST_ITEM),
        refuse_as(
            "invalid_encrypted_content", 400, message="The encrypted content gA… could not be verified."
        ),
        Refusal(
            400,
            b'{"code": "invalid-argument", "error": "Incorrect API key provided."}',
            "unauthorized",
            "invalid-argument",
            "Incorrect API key provided.",
        ),
        Refusal(
            401,
            b'{"detail": "Could not parse your token."}',
            "unauthorized",
            message="Could not parse your token.",
        ),
    ],
    told=[
        Failure(
            kind="forgotten",
            message="Previous response with id 'resp_1' not found.",
            status=404,
            code="previous_response_not_found",
        )
    ],
    in_replies=[
        break_reply("context", code="context_length_exceeded", message="too long"),
        break_reply("server", code="server_error", message="An error occurred."),
        break_reply("rate_limited", code="rate_limit_exceeded"),
        break_reply("quota", code="insufficient_quota"),
        break_reply("invalid", type="invalid_request_error", code=None, message="no such thing"),
        break_reply("invalid", code="bio_policy"),
        break_reply("invalid", code="image_too_large"),
        break_reply("server", code=502, message="upstream"),
        break_reply("server", message="something"),
    ],
    reasoning_refused=[
        ENCRYPTED.format("gAAA"),
        ENCRYPTED.format("for item rs_1"),
        "Item 'fc_1' of type 'function_call' was provided without its required 'reasoning' item: 'rs_1'.",
        "Item 'rs_1' of type 'reasoning' was provided without its required following item.",
    ],
)
