"""What goes wrong on the Responses wire, both ways: status, headers and error body, and our `Failure`.

The code in the error object decides, then its type, then the status: the same trouble comes as an HTTP
error, as an `error` event in the middle of a stream, or as a response that failed, and only the first of
these has a status.  Some codes look like passing troubles and are not: money that is spent does not come
back by waiting.

Two troubles a caller can mend by asking otherwise keep a code of their own, however they were worded:
state the provider no longer holds (`GONE`: resend everything), and encrypted reasoning it cannot read
(`invalid_encrypted_content`: resend without reasoning).
"""

import re
from collections.abc import Mapping
from typing import Any

from ..ports.codec import HttpReply
from ..values.errors import Failure, FailureKind
from ._failures import (
    SPENT_STATUSES,
    error_in,
    is_about_reasoning,
    is_overflow,
    kind_of_status,
    one_line,
    refusal,
    spoken,
)
from ._openai_responses_content import word

REFUSED = "invalid_encrypted_content"
_KINDS_BY_WORD: dict[str, FailureKind] = {
    "context_length_exceeded": "context",
    "insufficient_quota": "quota",
    "credit_balance_exhausted": "quota",
    "organization_spend_limit_exceeded": "quota",
    "project_spend_limit_exceeded": "quota",
    "organization_usage_limit_exceeded": "quota",
    "billing_hard_limit_reached": "quota",
    "billing_not_active": "quota",
    "rate_limit_exceeded": "rate_limited",
    "rate_limit_error": "rate_limited",
    "slow_down": "rate_limited",
    "server_is_overloaded": "overloaded",
    "overloaded_error": "overloaded",
    "service_unavailable_error": "overloaded",
    "server_error": "server",
    "internal_error": "server",
    "internal_server_error": "server",
    "vector_store_timeout": "timeout",
    "timeout_error": "timeout",
    "invalid_api_key": "unauthorized",
    "authentication_error": "unauthorized",
    "permission_error": "unauthorized",
    "model_not_found": "not_found",
    "not_found_error": "not_found",
    REFUSED: "reasoning_refused",
    "invalid_prompt": "invalid",
    "request_too_large": "too_large",
}
"""Codes and types alike; a word that is not here leaves the matter to the next one."""

GONE = {
    "previous_response_not_found": re.compile(r"previous response .*not found", re.IGNORECASE),
    "conversation_not_found": re.compile(r"conversation .*not found", re.IGNORECASE),
    "item_not_found": re.compile(r"item with id .*not found", re.IGNORECASE),
}
"""State the provider does not hold any more, by the code we give it and the words it is told in."""
_PARAMETER_OF_GONE = {"previous_response_id": "previous_response_not_found"}
_SPENT = re.compile(
    r"exceeded your current quota|insufficient (?:balance|quota|credits?|funds)", re.IGNORECASE
)
_KEY = re.compile(r"(incorrect|invalid) api key", re.IGNORECASE)

_WIRE: dict[FailureKind, tuple[int, str, str | None]] = {
    "invalid": (400, "invalid_request_error", None),
    "context": (400, "invalid_request_error", "context_length_exceeded"),
    "reasoning_refused": (400, "invalid_request_error", REFUSED),
    "unauthorized": (401, "invalid_request_error", "invalid_api_key"),
    "not_found": (404, "invalid_request_error", "model_not_found"),
    "forgotten": (404, "invalid_request_error", "previous_response_not_found"),
    "too_large": (413, "invalid_request_error", "request_too_large"),
    "quota": (429, "insufficient_quota", "insufficient_quota"),
    "rate_limited": (429, "requests", "rate_limit_exceeded"),
    "server": (500, "server_error", "server_error"),
    "overloaded": (503, "service_unavailable_error", "server_is_overloaded"),
    "timeout": (504, "timeout_error", None),
}


def failure_of(status: int, headers: Mapping[str, str], body: bytes) -> Failure:
    """A reply with an error status."""
    return refusal(status, headers, body, failure_from, _error_in)


def failure_from(error: Mapping[str, Any], status: int) -> Failure:
    """An error object: from a body, from an event, or from a response that failed."""
    code, kind_word = word(error.get("code")), word(error.get("type"))
    kind_word = "" if kind_word == "error" else kind_word
    message = one_line(word(error.get("message"))) or code or kind_word or f"HTTP {status}"
    code = _mendable(code, message, word(error.get("param")), status) or code
    kind = _KINDS_BY_WORD.get(code) or _KINDS_BY_WORD.get(kind_word)
    if code in GONE:
        kind = "forgotten"
    elif kind is None:
        kind = _kind_of(message, _status_in(error, status), named=bool(code or kind_word))
    return Failure(kind=kind, message=message, status=status, code=code or kind_word)


def _error_in(envelope: object) -> dict[str, Any] | None:
    error = error_in(envelope)
    if error is not None and isinstance(envelope, dict):
        error.setdefault("code", envelope.get("code"))
    return error


def error_event(event: Mapping[str, Any]) -> Mapping[str, Any]:
    """The error object of an `error` event, which has it inside or is it."""
    inner = event.get("error")
    return inner if isinstance(inner, dict) else event


def speak_failure(failure: Failure) -> HttpReply:
    status, kind_word, code = _WIRE.get(failure.kind, _WIRE["server"])
    error: dict[str, Any] = {"message": failure.message, "type": kind_word, "param": None}
    # What has no code of its own is known by its type, and then the code is null.
    error["code"] = None if failure.code == kind_word else failure.code or code
    return spoken(failure, status, {"error": error})


def _mendable(code: str, message: str, parameter: str, status: int) -> str:
    for name, wording in GONE.items():
        if code == name or (status < 500 and wording.search(message)):
            return name
    if status == 404 and parameter in _PARAMETER_OF_GONE:
        return _PARAMETER_OF_GONE[parameter]
    return REFUSED if status < 500 and is_about_reasoning(message) else ""


def _status_in(error: Mapping[str, Any], status: int) -> int:
    """The status of an error that came inside a good reply; gateways put it where the code should be."""
    given = error.get("code")
    return given if status < 300 and isinstance(given, int) and 400 <= given < 600 else status


def _kind_of(message: str, status: int, *, named: bool) -> FailureKind:
    # Inside a good reply every trouble with a name is about what was asked, but for those in the table.
    kind: FailureKind = "invalid" if status < 300 and named else kind_of_status(status)
    if kind in ("invalid", "server") and is_overflow(message):
        return "context"
    if status in SPENT_STATUSES and _SPENT.search(message):
        return "quota"
    return "unauthorized" if kind == "invalid" and _KEY.search(message) else kind
