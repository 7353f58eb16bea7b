"""Reads Anthropic errors: status, headers and body of a response become a `Failure`.

The type in the error body decides first, because an error inside a stream has no status; then the status;
then the wording (`_REWORDED`), for failures that need different handling but share a type.  A body of another
server (a proxy's page, another cloud's envelope) still gives one readable line.
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

KINDS_BY_TYPE: dict[str, FailureKind] = {
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
    # Other clouds that serve the same models send names of exceptions instead.
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
_QUOTA_CODES = frozenset({"enforced_spend_limit_reached"})
_QUOTA_WORDS = re.compile(r"credit balance is too low|api usage limits|spend limit", re.IGNORECASE)
KINDS_BY_WORDING: dict[FailureKind, KindsByWording] = {
    "invalid": {
        "quota": _QUOTA_WORDS.search,
        "reasoning_refused": is_reasoning_rejection,
        "context": is_context_overflow,
    },
    "rate_limited": {"quota": _QUOTA_WORDS.search},
}
"""Refinements by wording; for kinds not listed here, type and status are enough."""


def decode_failure(status: int, headers: Mapping[str, str], body: bytes) -> Failure:
    """Decode a reply with an error status; another cloud names its exception in a header."""
    exception = headers.get("x-amzn-errortype", "").partition(":")[0]

    def read_error(error: Mapping[str, Any], status: int) -> Failure:
        return classify_error({"type": exception, **error} if exception else error, status)

    return decode_error_response(status, headers, body, read_error, find_error_object)


def classify_error(error: Mapping[str, Any], status: int) -> Failure:
    """Classify an error object from a body or a stream."""
    kind_word = text_or_empty(error.get("type"))
    details = error.get("details")
    code = text_or_empty(details.get("error_code")) if isinstance(details, dict) else ""
    message = to_one_line(text_or_empty(error.get("message"))) or kind_word or f"HTTP {status}"
    kind = KINDS_BY_TYPE.get(kind_word.lower())
    if kind is None or (kind == "invalid" and status in KINDS_BY_STATUS):
        kind = kind_of_status(status)
    kind = "quota" if code in _QUOTA_CODES else refine_kind(kind, KINDS_BY_WORDING.get(kind, {}), message)
    return Failure(kind=kind, message=message, status=status, code=code or kind_word)
