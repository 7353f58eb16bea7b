"""Reads errors of the Responses wire: status, headers and body of a response become a `Failure`.

The code in the error object decides, then its type, then the status: the same failure comes as an HTTP error,
as an `error` event in the middle of a stream, or as a failed response, and only the first has a status.  Some
codes look temporary and are not: an account without credit does not recover by waiting.

Two failures that a changed request can solve keep their own code, whatever their wording: state that the
provider no longer holds (`GONE`: resend everything), and encrypted reasoning that it cannot read
(`invalid_encrypted_content`: resend without reasoning).
"""

import re
from collections.abc import Mapping
from typing import Any

from bridle.providers.wire.failures import (
    QUOTA_STATUSES,
    decode_error_response,
    find_error_object,
    is_context_overflow,
    is_reasoning_rejection,
    kind_of_status,
    to_one_line,
)
from bridle.providers.wire.json import text_or_empty
from bridle.values.errors import Failure, FailureKind

REASONING_REJECTED_CODE = "invalid_encrypted_content"
_KINDS_BY_CODE: dict[str, FailureKind] = {
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
    REASONING_REJECTED_CODE: "reasoning_refused",
    "invalid_prompt": "invalid",
    "request_too_large": "too_large",
}
"""Codes and types alike; for an unlisted one the next criterion decides."""

SERVER_STATE_LOST_CODES = {
    "previous_response_not_found": re.compile(r"previous response .*not found", re.IGNORECASE),
    "conversation_not_found": re.compile(r"conversation .*not found", re.IGNORECASE),
    "item_not_found": re.compile(r"item with id .*not found", re.IGNORECASE),
}
"""State the provider no longer holds, by Bridle's code for it and the provider's wording."""
_CODES_BY_PARAMETER = {"previous_response_id": "previous_response_not_found"}
_QUOTA_WORDS = re.compile(
    r"exceeded your current quota|insufficient (?:balance|quota|credits?|funds)", re.IGNORECASE
)
_API_KEY_WORDS = re.compile(r"(incorrect|invalid) api key", re.IGNORECASE)


def decode_failure(status: int, headers: Mapping[str, str], body: bytes) -> Failure:
    """A reply with an error status."""
    return decode_error_response(status, headers, body, classify_error, _find_error)


def classify_error(error: Mapping[str, Any], status: int) -> Failure:
    """Classify an error object from a body, an event or a failed response."""
    code, kind_word = text_or_empty(error.get("code")), text_or_empty(error.get("type"))
    kind_word = "" if kind_word == "error" else kind_word
    message = to_one_line(text_or_empty(error.get("message"))) or code or kind_word or f"HTTP {status}"
    code = _recoverable_code(code, message, text_or_empty(error.get("param")), status) or code
    kind = _KINDS_BY_CODE.get(code) or _KINDS_BY_CODE.get(kind_word)
    if code in SERVER_STATE_LOST_CODES:
        kind = "forgotten"
    elif kind is None:
        kind = _classify_message(message, _find_status(error, status), named=bool(code or kind_word))
    return Failure(kind=kind, message=message, status=status, code=code or kind_word)


def _find_error(envelope: object) -> dict[str, Any] | None:
    error = find_error_object(envelope)
    if error is not None and isinstance(envelope, dict):
        error.setdefault("code", envelope.get("code"))
    return error


def find_event_error(event: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the error object of an `error` event, which contains it or is it."""
    inner = event.get("error")
    return inner if isinstance(inner, dict) else event


def _recoverable_code(code: str, message: str, parameter: str, status: int) -> str:
    for name, wording in SERVER_STATE_LOST_CODES.items():
        if code == name or (status < 500 and wording.search(message)):
            return name
    if status == 404 and parameter in _CODES_BY_PARAMETER:
        return _CODES_BY_PARAMETER[parameter]
    return REASONING_REJECTED_CODE if status < 500 and is_reasoning_rejection(message) else ""


def _find_status(error: Mapping[str, Any], status: int) -> int:
    """Return the status of an error inside a good reply; gateways put it in place of the code."""
    given = error.get("code")
    return given if status < 300 and isinstance(given, int) and 400 <= given < 600 else status


def _classify_message(message: str, status: int, *, named: bool) -> FailureKind:
    # In a reply with HTTP status 200, a named error is an invalid request unless the table lists it.
    kind: FailureKind = "invalid" if status < 300 and named else kind_of_status(status)
    if kind in ("invalid", "server") and is_context_overflow(message):
        return "context"
    if status in QUOTA_STATUSES and _QUOTA_WORDS.search(message):
        return "quota"
    return "unauthorized" if kind == "invalid" and _API_KEY_WORDS.search(message) else kind
