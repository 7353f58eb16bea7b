"""What goes wrong at Anthropic, both ways: their status, headers and error body, and our `Failure`.

The type in the error body decides, because an error inside a stream has no status of its own; then
the status; then, for what callers must tell apart and the wire does not, the wording (`_REWORDED`).
A body that is not theirs (a proxy's page, another cloud's envelope) still gives one readable line.
"""

import re
from collections.abc import Mapping
from typing import Any

from ..ports.codec import HttpReply
from ..values.errors import Failure, FailureKind
from ._failures import (
    KINDS_BY_STATUS,
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

_KINDS_BY_TYPE: dict[str, FailureKind] = {
    "invalid_request_error": "invalid",
    "authentication_error": "unauthorized",
    "permission_error": "unauthorized",
    "billing_error": "quota",
    "not_found_error": "not_found",
    "request_too_large": "too_large",
    "rate_limit_error": "rate_limited",
    "timeout_error": "timeout",
    "overloaded_error": "overloaded",
    "api_error": "server",
    "conflict_error": "server",
    # The same model behind another cloud, which names its exceptions instead.
    "throttlingexception": "rate_limited",
    "servicequotaexceededexception": "quota",
    "serviceunavailableexception": "overloaded",
    "modelnotreadyexception": "overloaded",
    "modeltimeoutexception": "timeout",
    "modelstreamerrorexception": "server",
    "modelerrorexception": "server",
    "internalserverexception": "server",
    "accessdeniedexception": "unauthorized",
    "unrecognizedclientexception": "unauthorized",
    "resourcenotfoundexception": "not_found",
    "validationexception": "invalid",
}
_WIRE: dict[FailureKind, tuple[int, str]] = {
    "invalid": (400, "invalid_request_error"),
    "context": (400, "invalid_request_error"),
    "reasoning_refused": (400, "invalid_request_error"),
    "unauthorized": (401, "authentication_error"),
    "quota": (402, "billing_error"),
    "not_found": (404, "not_found_error"),
    "too_large": (413, "request_too_large"),
    "rate_limited": (429, "rate_limit_error"),
    "server": (500, "api_error"),
    "timeout": (504, "timeout_error"),
    "overloaded": (529, "overloaded_error"),
}
_SAYS: dict[FailureKind, str] = {
    "context": "prompt is too long",
    "reasoning_refused": "Invalid `signature` in `thinking` block",
}
"""What nothing but the wording says on this wire."""
_SPENT_CODES = frozenset({"enforced_spend_limit_reached"})
_SPENT = re.compile(r"credit balance is too low|api usage limits|spend limit", re.IGNORECASE)
_REWORDED: dict[FailureKind, Wordings] = {
    "invalid": {"quota": _SPENT.search, "reasoning_refused": is_about_reasoning, "context": is_overflow},
    "rate_limited": {"quota": _SPENT.search},
}
"""What the wording may make of a failure; where it stands in no line, type and status have said it all."""


def failure_of(status: int, headers: Mapping[str, str], body: bytes) -> Failure:
    """A reply with an error status; another cloud names its exception in a header."""
    exception = headers.get("x-amzn-errortype", "").partition(":")[0]

    def read_error(error: Mapping[str, Any], status: int) -> Failure:
        return failure_from({"type": exception, **error} if exception else error, status)

    return refusal(status, headers, body, read_error, error_in)


def failure_from(error: Mapping[str, Any], status: int) -> Failure:
    """An error object, from a body or from the middle of a stream."""
    kind_word = word(error.get("type"))
    details = error.get("details")
    code = word(details.get("error_code")) if isinstance(details, dict) else ""
    message = one_line(word(error.get("message"))) or kind_word or f"HTTP {status}"
    kind = _KINDS_BY_TYPE.get(kind_word.lower())
    if kind is None or (kind == "invalid" and status in KINDS_BY_STATUS):
        kind = kind_of_status(status)
    kind = "quota" if code in _SPENT_CODES else reworded(kind, _REWORDED.get(kind, {}), message)
    return Failure(kind=kind, message=message, status=status, code=code or kind_word)


def speak_failure(failure: Failure) -> HttpReply:
    status, kind_word = _WIRE.get(failure.kind, _WIRE["server"])
    message = failure.message
    if failure.kind in _SAYS and not _REWORDED["invalid"][failure.kind](message):
        message = f"{_SAYS[failure.kind]}: {message}"
    error: dict[str, Any] = {"type": kind_word, "message": message}
    if failure.code in _KINDS_BY_TYPE:
        error["type"] = failure.code
    elif failure.code:
        error["details"] = {"error_code": failure.code}
    return spoken(failure, status, {"type": "error", "error": error, "request_id": None})
