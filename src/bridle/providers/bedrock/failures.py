"""Reads Bedrock Converse errors: status, headers and body of a response become a `Failure`.

The name of the exception decides first; it comes in a header (followed by an address), in the body, or as the
type of a message inside a stream.  Then the status; then the wording, for failures that need different handling
but share a name: for example, one name covers a prompt that is too long and an invalid field.  Throttling for
too many tokens is a rate limit, never a prompt that is too long.
"""

import re
from collections.abc import Mapping
from typing import Any

from bridle.providers.wire.failures import (
    KINDS_BY_STATUS,
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

KINDS_BY_EXCEPTION: dict[str, FailureKind] = {
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
"""Kinds by exception name, in lower case and without the suffix "exception"."""
TYPE_HEADER = "x-amzn-errortype"
_OVERFLOW_WORDS = re.compile(r"input tokens exceeded|too many input tokens", re.IGNORECASE)
_UNKNOWN_MODEL_WORDS = re.compile(r"model identifier is invalid", re.IGNORECASE)
_THROTTLE_WORDS = re.compile(r"please wait before trying again", re.IGNORECASE)
_DAILY_LIMIT_WORDS = re.compile(r"per day", re.IGNORECASE)


def _is_overflow(message: str) -> bool:
    return is_context_overflow(message) or bool(_OVERFLOW_WORDS.search(message))


KINDS_BY_WORDING: dict[FailureKind, KindsByWording] = {
    "invalid": {
        "rate_limited": _THROTTLE_WORDS.search,
        "reasoning_refused": is_reasoning_rejection,
        "context": _is_overflow,
        "not_found": _UNKNOWN_MODEL_WORDS.search,
    },
    # A daily quota recovers, but not within a run.
    "rate_limited": {"quota": _DAILY_LIMIT_WORDS.search},
}
"""Refinements by wording; for kinds not listed here, name and status are enough."""


def decode_failure(status: int, headers: Mapping[str, str], body: bytes) -> Failure:
    """Decode a reply with an error status."""

    def read_error(error: Mapping[str, Any], status: int) -> Failure:
        return classify_error(headers.get(TYPE_HEADER) or text_or_empty(error.get("__type")), error, status)

    return decode_error_response(status, headers, body, read_error, _find_error)


def _find_error(envelope: object) -> dict[str, Any] | None:
    error = find_error_object(envelope)
    return {**envelope, **error} if error is not None and isinstance(envelope, dict) else error


def classify_error(exception: str, error: Mapping[str, Any], status: int) -> Failure:
    """Classify an exception from a reply or a stream."""
    # `Name:http://address/` in the header, `maker.package#Name` in a body.
    exception = exception.partition(":")[0].rpartition("#")[2].strip()
    message = to_one_line(text_or_empty(error.get("message"))) or exception or f"HTTP {status}"
    original = to_one_line(text_or_empty(error.get("originalMessage")))
    if original and original not in message:
        message = f"{message} ({original})"
    kind = KINDS_BY_EXCEPTION.get(exception.lower().removesuffix("exception"))
    if kind is None or (kind == "invalid" and status in KINDS_BY_STATUS):
        kind = kind_of_status(status)
    for named in ("invalid", "rate_limited"):
        if kind == named:
            kind = refine_kind(kind, KINDS_BY_WORDING[kind], message)
    return Failure(kind=kind, message=message, status=status, code=exception)
