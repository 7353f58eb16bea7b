"""Failures of Gemini, for tests."""

import json

from bridle.values.errors import Failure
from tests.providers.gemini.gemini_replies import WIRE, chunk, stream, text
from tests.providers.kit.failure_kit import FailureCases, Refusal


def error(code, message, status=None, *details):
    said = {"code": code, "message": message}
    if status:
        said["status"] = status
    if details:
        said["details"] = list(details)
    return json.dumps({"error": said}).encode()


def detail(kind, **more):
    return {"@type": f"type.googleapis.com/google.rpc.{kind}", **more}


def limit(*details, message="You exceeded your current quota"):
    return error(429, message, "RESOURCE_EXHAUSTED", *details)


def say(message, status=400, **more):
    words = {400: "INVALID_ARGUMENT", 429: "RESOURCE_EXHAUSTED", 500: "INTERNAL"}
    return json.dumps(
        {"error": {"message": message, **more, "code": status, "status": words[status]}}
    ).encode()


UNSIGNED = (
    "Function call is missing a thought_signature in functionCall parts. This is required for tools to work"
    " correctly, and missing thought_signature may lead to degraded model performance."
)
WRONG = "INVALID_ARGUMENT"
TOO_LONG = "The input token count (1200000) exceeds the maximum number of tokens allowed (1048575)."
DAILY = detail("QuotaFailure", violations=[{"quotaId": "GenerateRequestsPerDayPerProjectPerModel-FreeTier"}])
MINUTE = detail("QuotaFailure", violations=[{"quotaId": "GenerateRequestsPerMinutePerProject"}])
BEGUN = chunk(text("a"))
BROKEN = json.loads(error(503, "The model is overloaded.", "UNAVAILABLE"))
SPREAD = json.dumps(BROKEN, indent=2).encode()
FAILURES = FailureCases(
    wire=WIRE,
    say=say,
    refusals=[
        Refusal(
            400,
            error(400, "API key not valid.", WRONG, detail("ErrorInfo", reason="API_KEY_INVALID")),
            "unauthorized",
        ),
        *(
            Refusal(400, say(message), "unauthorized")
            for message in (
                "API key not valid. Please pass a valid API key.",
                "API Key not found. Please pass a valid API key.",
                "API key expired. Please renew the API key.",
            )
        ),
        Refusal(400, error(400, TOO_LONG, WRONG), "context"),
        Refusal(
            400, error(400, "Request payload size exceeds the limit: 20971520 bytes.", WRONG), "too_large"
        ),
        Refusal(
            400, error(400, "Please ensure that function response turn comes immediately", WRONG), "invalid"
        ),
        Refusal(400, error(400, "User location is not supported", "FAILED_PRECONDITION"), "invalid"),
        Refusal(401, error(401, "no", "UNAUTHENTICATED"), "unauthorized", message="no"),
        Refusal(403, error(403, "no", "PERMISSION_DENIED"), "unauthorized"),
        Refusal(404, error(404, "models/x is not found", "NOT_FOUND"), "not_found"),
        Refusal(429, limit(message="Resource exhausted."), "rate_limited"),
        Refusal(429, limit(DAILY), "quota"),
        Refusal(429, limit(MINUTE), "rate_limited"),
        Refusal(500, error(500, "Internal error", "INTERNAL"), "server"),
        Refusal(503, error(503, "The model is overloaded.", "UNAVAILABLE"), "overloaded"),
        Refusal(504, error(504, "slow", "DEADLINE_EXCEEDED"), "timeout"),
        Refusal(429, b"[" + error(429, "no", "RESOURCE_EXHAUSTED") + b"]", "rate_limited"),
        Refusal(502, b"<html><title>Bad Gateway</title></html>", "server"),
        Refusal(413, b"", "too_large"),
        Refusal(418, b'{"error":"tea"}', "invalid"),
    ],
    told=[Failure(kind="overloaded", message="m", status=503, code="UNAVAILABLE", retry_after_seconds=2.0)],
    in_replies=[
        (
            [
                stream(BEGUN, BROKEN),
                json.dumps([BEGUN, BROKEN]).encode(),
                stream(BEGUN) + SPREAD,
                stream(BEGUN, chunk(text("b"), finish="STOP")) + SPREAD + b"\n\n",
                json.dumps(BROKEN).encode(),
            ],
            "overloaded",
            None,
            "The model is overloaded.",
        ),
        ([stream(BEGUN, {"error": {"code": 429, "message": "x"}})], "rate_limited", None, "x"),
    ],
    waits=[
        (limit(detail("Help"), detail("RetryInfo", retryDelay="34.074824224s")), {}, 34.074824224),
        (limit(), {"retry-after": "7"}, 7),
        (limit(detail("RetryInfo", retryDelay="soon"), "odd", detail("RetryInfo")), {}, None),
    ],
    reasoning_refused=[
        UNSIGNED,
        "Invalid thought signature.",
        "Corrupted thought signature.",
        "Thought signature is not valid",
    ],
    invalid=["Invalid value at 'tools[0]': the property \"API key\" has no type"],
)
