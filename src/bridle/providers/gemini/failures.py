"""Reads Gemini errors: status, headers and body of a response become a `Failure`.

The `status` field of the error decides first, because an error inside a stream has no HTTP status; then the
HTTP status.  INVALID_ARGUMENT covers four failures that need different handling: a wrong key, a prompt that is
too long, a body that is too large, and an invalid signature.  The reason in its details distinguishes them, or
only the wording.  The time to wait is in the details, never in a header.
"""

import re
from collections.abc import Iterator, Mapping
from math import isfinite
from typing import Any

from bridle.providers.wire.failures import (
    KindsByWording,
    decode_error_response,
    find_error_object,
    is_context_overflow,
    is_reasoning_rejection,
    kind_of_status,
    refine_kind,
    to_one_line,
)
from bridle.providers.wire.json import text_or_empty
from bridle.values.errors import Failure, FailureKind

KINDS_BY_STATUS_NAME: dict[str, FailureKind] = {
    "INVALID_ARGUMENT": "invalid",
    "FAILED_PRECONDITION": "invalid",
    "OUT_OF_RANGE": "invalid",
    "UNIMPLEMENTED": "invalid",
    "UNAUTHENTICATED": "unauthorized",
    "PERMISSION_DENIED": "unauthorized",
    "NOT_FOUND": "not_found",
    "RESOURCE_EXHAUSTED": "rate_limited",
    "DEADLINE_EXCEEDED": "timeout",
    "UNAVAILABLE": "overloaded",
    "INTERNAL": "server",
    "UNKNOWN": "server",
    "ABORTED": "server",
    "CANCELLED": "server",
    "DATA_LOSS": "server",
}
KINDS_BY_REASON: dict[str, FailureKind] = {
    "API_KEY_INVALID": "unauthorized",
    "API_KEY_EXPIRED": "unauthorized",
    "API_KEY_SERVICE_BLOCKED": "unauthorized",
    "ACCESS_TOKEN_EXPIRED": "unauthorized",
    "BILLING_DISABLED": "quota",
    "CONSUMER_SUSPENDED": "quota",
}
_API_KEY_WORDS = re.compile(r"api key (?:not (?:valid|found)|expired|invalid)", re.IGNORECASE)
_TOO_LARGE_WORDS = re.compile(
    r"payload size exceeds|request (body|entity|size).*(too large|exceeds)", re.IGNORECASE
)
_STORED_PROMPT_WORDS = re.compile(
    r"CachedContent (?:not found|.* (?:expired|not found))|Invalid CachedContent name"
)
"""The stored prompt no longer exists; only the wording distinguishes this from a wrong key."""
KINDS_BY_WORDING: KindsByWording = {
    "forgotten": _STORED_PROMPT_WORDS.search,
    "reasoning_refused": is_reasoning_rejection,
    "context": is_context_overflow,
    "too_large": _TOO_LARGE_WORDS.search,
    "unauthorized": _API_KEY_WORDS.search,
}
"""Refinements of INVALID_ARGUMENT by wording, in the order of precedence."""
_DAILY_LIMIT_WORDS = re.compile(r"per_?day", re.IGNORECASE)
"""Matches the id of a daily limit, which does not recover within a run."""
_SECONDS = re.compile(r"(\d+(?:\.\d+)?)s")


def decode_failure(status: int, headers: Mapping[str, str], body: bytes) -> Failure:
    """Decode a response with an error status."""
    return decode_error_response(status, headers, body, classify_error, find_error_object)


def classify_error(error: Mapping[str, Any], status: int) -> Failure:
    """Classify an error object from a body, or from a stream, where it has its own code."""
    name, code = text_or_empty(error.get("status")), error.get("code")
    said = code if status < 300 and isinstance(code, int) and code >= 400 else status
    message = to_one_line(text_or_empty(error.get("message"))) or name or f"HTTP {said}"
    reason = next((text_or_empty(detail.get("reason")) for detail in _iter_details(error, "ErrorInfo")), "")
    kind = KINDS_BY_STATUS_NAME.get(name)
    if kind is None or (kind == "invalid" and said >= 400):
        kind = kind_of_status(said)
    if kind in ("unauthorized", "not_found") and _STORED_PROMPT_WORDS.search(message):
        kind = "forgotten"
    elif kind == "invalid":
        kind = refine_kind(kind, KINDS_BY_WORDING, message)
    elif kind == "rate_limited" and any(map(_is_daily_limit, _iter_details(error, "QuotaFailure"))):
        kind = "quota"
    return Failure(
        kind=KINDS_BY_REASON.get(reason, kind),
        message=message,
        status=status,
        code=reason or name,
        retry_after_seconds=_retry_delay_seconds(error),
    )


def _iter_details(error: Mapping[str, Any], kind: str) -> Iterator[Mapping[str, Any]]:
    details = error.get("details")
    for detail in details if isinstance(details, list) else ():
        if isinstance(detail, dict) and text_or_empty(detail.get("@type")).endswith(f".{kind}"):
            yield detail


def _is_daily_limit(detail: Mapping[str, Any]) -> bool:
    violations = detail.get("violations")
    return isinstance(violations, list) and any(
        isinstance(violation, dict) and _DAILY_LIMIT_WORDS.search(text_or_empty(violation.get("quotaId")))
        for violation in violations
    )


def _retry_delay_seconds(error: Mapping[str, Any]) -> float | None:
    for detail in _iter_details(error, "RetryInfo"):
        found = _SECONDS.fullmatch(text_or_empty(detail.get("retryDelay")))
        if found and isfinite(wait := float(found[1])):
            return wait
    return None
