"""What goes wrong at Bedrock Converse, both ways: exceptions by name, and our `Failure`.

The name of the exception decides; it comes in a header (with an address behind it), in the body, or as
the type of a message inside a stream.  Then the status; then, for what callers must tell apart and one
name covers, the wording.  The same name, for one, says that a prompt is too long and that a field is
wrong.  Being throttled for too many tokens is no matter of length: it is never taken for one.
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

_KINDS: dict[str, FailureKind] = {
    "validation": "invalid",
    "serialization": "invalid",
    "throttling": "rate_limited",
    "toomanyrequests": "rate_limited",
    "servicequotaexceeded": "quota",
    "modelnotready": "overloaded",
    "serviceunavailable": "overloaded",
    "modeltimeout": "timeout",
    "requesttimeout": "timeout",
    "modelerror": "server",
    "modelstreamerror": "server",
    "internalserver": "server",
    "internalfailure": "server",
    "resourcenotfound": "not_found",
    "unknownoperation": "not_found",
    "requestentitytoolarge": "too_large",
    "accessdenied": "unauthorized",
    "unrecognizedclient": "unauthorized",
    "expiredtoken": "unauthorized",
    "invalidsignature": "unauthorized",
    "incompletesignature": "unauthorized",
    "signaturedoesnotmatch": "unauthorized",
    "missingauthenticationtoken": "unauthorized",
    "invalidclienttokenid": "unauthorized",
    "optinrequired": "unauthorized",
}
"""By name, without case and without the word exception at its end."""
_WIRE: dict[FailureKind, tuple[int, str]] = {
    "invalid": (400, "ValidationException"),
    "context": (400, "ValidationException"),
    "reasoning_refused": (400, "ValidationException"),
    "quota": (400, "ServiceQuotaExceededException"),
    "unauthorized": (403, "AccessDeniedException"),
    "not_found": (404, "ResourceNotFoundException"),
    "timeout": (408, "ModelTimeoutException"),
    "too_large": (413, "RequestEntityTooLargeException"),
    "rate_limited": (429, "ThrottlingException"),
    "server": (500, "InternalServerException"),
    "overloaded": (503, "ServiceUnavailableException"),
}
TYPE_HEADER = "x-amzn-errortype"
_TOO_LONG = re.compile(r"input tokens exceeded|too many input tokens", re.IGNORECASE)
_NO_MODEL = re.compile(r"model identifier is invalid", re.IGNORECASE)
_WAIT = re.compile(r"please wait before trying again", re.IGNORECASE)
_FOR_TODAY = re.compile(r"per day", re.IGNORECASE)
_SAYS: dict[FailureKind, str] = {
    "context": "Input is too long for requested model",
    "reasoning_refused": "Invalid `signature` in `thinking` block",
}
"""What nothing but the wording says on this wire."""


def _overflows(message: str) -> bool:
    return is_overflow(message) or bool(_TOO_LONG.search(message))


_REWORDED: dict[FailureKind, Wordings] = {
    "invalid": {
        "rate_limited": _WAIT.search,
        "reasoning_refused": is_about_reasoning,
        "context": _overflows,
        "not_found": _NO_MODEL.search,
    },
    # It does recover, but not within any run.
    "rate_limited": {"quota": _FOR_TODAY.search},
}
"""What the wording may make of a failure; where it stands in no line, name and status have said it all."""


def failure_of(status: int, headers: Mapping[str, str], body: bytes) -> Failure:
    """A reply with an error status."""

    def read_error(error: Mapping[str, Any], status: int) -> Failure:
        return failure_from(headers.get(TYPE_HEADER) or word(error.get("__type")), error, status)

    return refusal(status, headers, body, read_error, _error_in)


def _error_in(envelope: object) -> dict[str, Any] | None:
    error = error_in(envelope)
    return {**envelope, **error} if error is not None and isinstance(envelope, dict) else error


def failure_from(exception: str, error: Mapping[str, Any], status: int) -> Failure:
    """An exception, from a reply or from the middle of a stream."""
    # `Name:http://address/` in the header, `maker.package#Name` in a body.
    exception = exception.partition(":")[0].rpartition("#")[2].strip()
    message = one_line(word(error.get("message"))) or exception or f"HTTP {status}"
    original = one_line(word(error.get("originalMessage")))
    if original and original not in message:
        message = f"{message} ({original})"
    kind = _KINDS.get(exception.lower().removesuffix("exception"))
    if kind is None or (kind == "invalid" and status in KINDS_BY_STATUS):
        kind = kind_of_status(status)
    for named in ("invalid", "rate_limited"):
        if kind == named:
            kind = reworded(kind, _REWORDED[kind], message)
    return Failure(kind=kind, message=message, status=status, code=exception)


def speak_failure(failure: Failure) -> HttpReply:
    status, exception = _WIRE.get(failure.kind, _WIRE["server"])
    message = failure.message
    if failure.kind in _SAYS and not _REWORDED["invalid"][failure.kind](message):
        message = f"{_SAYS[failure.kind]}: {message}"
    if _KINDS.get(failure.code.lower().removesuffix("exception")) == failure.kind:
        exception = failure.code
    named = ("content-type", "application/json"), (TYPE_HEADER, exception)
    return spoken(failure, status, {"message": message}, *named)
