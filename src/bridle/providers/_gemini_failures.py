"""What goes wrong at Gemini, both ways: their status, error body and details, and our `Failure`.

The word in the error (`status`) decides, because an error inside a stream has no status of its own;
then HTTP's.  Four things callers must tell apart hide behind one word: a wrong key is an invalid
argument with a reason in its details, or only by its wording, and so are a prompt too long, a body too
large and a signature that does not fit.  How long to wait is in the details, never in a header.
"""

import re
from collections.abc import Iterator, Mapping
from math import isfinite
from typing import Any

from ..ports.codec import HttpReply
from ..values.errors import Failure, FailureKind
from ._failures import (
    Wordings,
    error_in,
    is_about_reasoning,
    is_overflow,
    kind_of_status,
    one_line,
    refusal,
    reworded,
    spoken,
    word,
)

_KINDS: dict[str, FailureKind] = {
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
_KINDS_BY_REASON: dict[str, FailureKind] = {
    "API_KEY_INVALID": "unauthorized",
    "API_KEY_EXPIRED": "unauthorized",
    "API_KEY_SERVICE_BLOCKED": "unauthorized",
    "ACCESS_TOKEN_EXPIRED": "unauthorized",
    "BILLING_DISABLED": "quota",
    "CONSUMER_SUSPENDED": "quota",
}
_WIRE: dict[FailureKind, tuple[int, str]] = {
    "invalid": (400, "INVALID_ARGUMENT"),
    "context": (400, "INVALID_ARGUMENT"),
    "reasoning_refused": (400, "INVALID_ARGUMENT"),
    "too_large": (413, "INVALID_ARGUMENT"),
    "unauthorized": (403, "PERMISSION_DENIED"),
    "forgotten": (403, "PERMISSION_DENIED"),
    "not_found": (404, "NOT_FOUND"),
    "rate_limited": (429, "RESOURCE_EXHAUSTED"),
    "quota": (429, "RESOURCE_EXHAUSTED"),
    "server": (500, "INTERNAL"),
    "overloaded": (503, "UNAVAILABLE"),
    "timeout": (504, "DEADLINE_EXCEEDED"),
}
_KEY = re.compile(r"api key (?:not (?:valid|found)|expired|invalid)", re.IGNORECASE)
_LARGE = re.compile(r"payload size exceeds|request (body|entity|size).*(too large|exceeds)", re.IGNORECASE)
_NAMED = re.compile(r"CachedContent (?:not found|.* (?:expired|not found))|Invalid CachedContent name")
"""What was kept by name is there no more; only its wording tells it from a wrong key."""
_BY_WORDING: Wordings = {
    "forgotten": _NAMED.search,
    "reasoning_refused": is_about_reasoning,
    "context": is_overflow,
    "too_large": _LARGE.search,
    "unauthorized": _KEY.search,
}
"""What an invalid argument may really be, in the order in which it is looked for."""
_LEADS: dict[FailureKind, str] = {
    "context": "The input token count exceeds the maximum number of tokens allowed",
    "reasoning_refused": "Invalid thought signature",
    "forgotten": "CachedContent not found (or permission denied)",
}
"""What only the wording says on this wire."""
_DAILY = re.compile(r"per_?day", re.IGNORECASE)
"""In the id of a limit: what renews itself tomorrow is spent for this run."""
_SECONDS = re.compile(r"(\d+(?:\.\d+)?)s")
_DETAILS = "type.googleapis.com/google.rpc."


def failure_of(status: int, headers: Mapping[str, str], body: bytes) -> Failure:
    """A reply with an error status."""
    return refusal(status, headers, body, failure_from, error_in)


def failure_from(error: Mapping[str, Any], status: int) -> Failure:
    """An error object, from a body or from the middle of a stream; there it brings a code of its own."""
    name, code = word(error.get("status")), error.get("code")
    said = code if status < 300 and isinstance(code, int) and code >= 400 else status
    message = one_line(word(error.get("message"))) or name or f"HTTP {said}"
    reason = next((word(detail.get("reason")) for detail in _details(error, "ErrorInfo")), "")
    kind = _KINDS.get(name)
    if kind is None or (kind == "invalid" and said >= 400):
        kind = kind_of_status(said)
    if kind in ("unauthorized", "not_found") and _NAMED.search(message):
        kind = "forgotten"
    elif kind == "invalid":
        kind = reworded(kind, _BY_WORDING, message)
    elif kind == "rate_limited" and any(map(_is_daily, _details(error, "QuotaFailure"))):
        kind = "quota"
    return Failure(
        kind=_KINDS_BY_REASON.get(reason, kind),
        message=message,
        status=status,
        code=reason or name,
        retry_after_seconds=_wait(error),
    )


def speak_failure(failure: Failure) -> HttpReply:
    status, name = _WIRE.get(failure.kind, _WIRE["server"])
    message = failure.message
    if (lead := _LEADS.get(failure.kind)) and not _BY_WORDING[failure.kind](message):
        message = f"{lead}: {message}"
    details: list[dict[str, Any]] = []
    if failure.code in _KINDS_BY_REASON:
        details.append({"@type": f"{_DETAILS}ErrorInfo", "reason": failure.code})
    elif failure.code in _KINDS:
        name = failure.code
    if failure.kind == "quota":
        violation = {"quotaId": "GenerateRequestsPerDayPerProjectPerModel"}
        details.append({"@type": f"{_DETAILS}QuotaFailure", "violations": [violation]})
    if failure.retry_after_seconds is not None:
        wait = f"{failure.retry_after_seconds:.15g}s"
        details.append({"@type": f"{_DETAILS}RetryInfo", "retryDelay": wait})
    code = failure.status if failure.status is not None and failure.status >= 400 else status
    error: dict[str, Any] = {"code": code, "message": message, "status": name}
    if details:
        error["details"] = details
    return spoken(failure, status, {"error": error}, ("content-type", "application/json; charset=UTF-8"))


def _details(error: Mapping[str, Any], kind: str) -> Iterator[Mapping[str, Any]]:
    details = error.get("details")
    for detail in details if isinstance(details, list) else ():
        if isinstance(detail, dict) and word(detail.get("@type")).endswith(f".{kind}"):
            yield detail


def _is_daily(detail: Mapping[str, Any]) -> bool:
    violations = detail.get("violations")
    return isinstance(violations, list) and any(
        isinstance(violation, dict) and _DAILY.search(word(violation.get("quotaId")))
        for violation in violations
    )


def _wait(error: Mapping[str, Any]) -> float | None:
    for detail in _details(error, "RetryInfo"):
        found = _SECONDS.fullmatch(word(detail.get("retryDelay")))
        if found and isfinite(wait := float(found[1])):
            return wait
    return None
