"""Failures on Chat Completions, for tests."""

import json

from bridle.values.errors import Failure
from tests.providers.kit.failure_kit import FailureCases, Refusal
from tests.providers.openai_chat.openai_chat_replies import WIRE, completion, piece, stream


def refuse(status, body, kind, message):
    return Refusal(
        status, body if isinstance(body, bytes) else json.dumps(body).encode(), kind, message=message
    )


def error(message, **more):
    return {"error": {"message": message, **more}}


def say(message, status=400, **more):
    return json.dumps(
        error(message, **({} if status == 429 else {"type": "invalid_request_error"}), **more)
    ).encode()


def break_reply(body, kind):
    bodies = [json.dumps(body).encode(), stream(piece({"content": "Hi"}), body), stream(body, done=False)]
    return bodies, kind, None, "Upstream broke"


def give_up(reason, kind):
    whole = json.dumps(completion(reason=reason)).encode()
    return [whole, stream(piece({"content": "Hi"}, reason))], kind, None, ""


def wait(message, seconds, **headers):
    body = error(message, code="rate_limit_exceeded")
    return (
        json.dumps(body).encode(),
        {name.replace("_", "-"): value for name, value in headers.items()},
        seconds,
    )


ERROR = {"message": "Upstream broke", "code": 502}
FAILURES = FailureCases(
    wire=WIRE,
    say=say,
    refusals=[
        refuse(400, error("No.", type="invalid_request_error", code=None), "invalid", "No."),
        refuse(401, error("Bad key", code="invalid_api_key"), "unauthorized", "Bad key"),
        refuse(400, error("Too long", code="context_length_exceeded"), "context", "Too long"),
        refuse(
            400,
            error("exceeds the available context size", type="exceed_context_size_error"),
            "context",
            "exceeds the available context size",
        ),
        refuse(
            500,
            error("Context size has been exceeded.", code=500),
            "context",
            "Context size has been exceeded.",
        ),
        refuse(429, error("Slow", type="requests", code="rate_limit_exceeded"), "rate_limited", "Slow"),
        refuse(429, error("You exceeded your current quota"), "quota", "You exceeded your current quota"),
        refuse(
            402, error("Insufficient Balance", code="invalid_request_error"), "quota", "Insufficient Balance"
        ),
        refuse(413, error("Too big", code="rate_limit_exceeded"), "rate_limited", "Too big"),
        refuse(400, error("Model Not Exist"), "not_found", "Model Not Exist"),
        refuse(404, {"code": "Some", "error": "The model is gone"}, "not_found", "The model is gone"),
        refuse(401, {"error": "Invalid credentials"}, "unauthorized", "Invalid credentials"),
        refuse(400, {"message": "Bad", "type": "Bad Request", "code": 400}, "invalid", "Bad"),
        refuse(401, {"detail": "Unauthorized"}, "unauthorized", "Unauthorized"),
        refuse(
            422,
            {"detail": [{"loc": ["body", "tools", 0], "msg": "Field required"}, "odd"]},
            "invalid",
            "body.tools.0: Field required; odd",
        ),
        refuse(
            400,
            error("Provider returned error", code=400, metadata={"raw": '{"m":"why"}'}),
            "invalid",
            'Provider returned error: {"m":"why"}',
        ),
        refuse(
            400,
            error("Param Incorrect", code="400", param="Not supported model bad"),
            "not_found",
            "Param Incorrect: Not supported model bad",
        ),
        refuse(
            429,
            error("The engine is overloaded", type="engine_overloaded_error"),
            "overloaded",
            "The engine is overloaded",
        ),
        refuse(503, error("Loading model"), "overloaded", "Loading model"),
        refuse(400, error("No such call", code="tool_use_failed"), "server", "No such call"),
        refuse(500, b"", "server", "HTTP 500, without an explanation"),
        refuse(
            502, b"<html><head><title>Bad gateway</title></head></html>", "server", "HTTP 502: Bad gateway"
        ),
        refuse(404, b"404 page not found", "not_found", "HTTP 404: 404 page not found"),
        refuse(400, [error("In a list")], "invalid", "In a list"),
    ],
    told=[
        Failure(
            kind="rate_limited",
            message="m",
            status=429,
            code="rate_limit_exceeded",
            retry_after_seconds=2.0,
            should_retry=False,
        )
    ],
    in_replies=[
        break_reply({"error": ERROR}, "server"),
        break_reply({"error": "Upstream broke"}, "server"),
        break_reply({"error": {**ERROR, "code": 429}}, "rate_limited"),
        break_reply({"error": {**ERROR, "code": "content_filter", "status": 400}}, "invalid"),
        break_reply(
            {
                "choices": [
                    {"index": 0, "error": ERROR, "message": {"content": "Hi"}, "finish_reason": "stop"}
                ]
            },
            "server",
        ),
        break_reply(
            {"object": "error", "message": "Upstream broke", "type": "invalid_request_error"}, "invalid"
        ),
        break_reply(
            {"choices": None, "base_resp": {"status_code": 1004, "status_msg": "Upstream broke"}},
            "unauthorized",
        ),
        break_reply(
            {"choices": None, "base_resp": {"status_code": 9999, "status_msg": "Upstream broke"}}, "server"
        ),
        (
            [stream(piece({"content": "Hi"}), done=False) + b'event: error\ndata: {"reason": "gone"}\n\n'],
            "server",
            None,
            '{"reason": "gone"}',
        ),
        give_up("error", "server"),
        give_up("insufficient_system_resource", "overloaded"),
        give_up("network_error", "server"),
        give_up("abort", "cut"),
    ],
    waits=[
        wait("try again in 9s", 0.0, retry_after="0"),
        wait("Please try again in 7.66s. Visit us.", 7.66),
        wait("Please try again in 1m2.5s.", 62.5),
        wait("Please try again in 350ms.", 0.35),
        wait("Please retry shortly.", None),
        wait("Please try again in a while.", None),
    ],
    reasoning_refused=[
        "The reasoning_content in the thinking mode must be passed back to the API.",
        "The `reasoning_content` in the thinking mode must be passed back to the API.",
        "Reasoning input is not enabled for this model",
        "thinking is enabled but reasoning_content is missing in assistant tool call message at index 2",
    ],
)
