"""What goes wrong at Anthropic, both ways: their status, headers and error body, and our `Failure`.

The type in the error body decides, because an error inside a stream has no status of its own; then
the status; then, for three things callers must tell apart and the wire does not, the wording.
A body that is not theirs (a proxy's page, another cloud's envelope) still gives one readable line.
"""

import re
from collections.abc import Mapping
from datetime import datetime
from email.utils import parsedate_to_datetime
from math import isfinite
from typing import Any

from ..ports.codec import HttpReply
from ..values.errors import Failure, FailureKind
from ._json import dumps, loads, mended

MESSAGE_LENGTH_MAX = 1_000
"""Long enough for every sentence the provider writes, short enough for one line in a log."""

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
_KINDS_BY_STATUS: dict[int, FailureKind] = {
    401: "unauthorized",
    402: "quota",
    403: "unauthorized",
    404: "not_found",
    408: "timeout",
    409: "server",
    413: "too_large",
    429: "rate_limited",
    503: "overloaded",
    504: "timeout",
    529: "overloaded",
}
_WIRE: dict[FailureKind, tuple[int, str]] = {
    "invalid": (400, "invalid_request_error"),
    "context": (400, "invalid_request_error"),
    "unauthorized": (401, "authentication_error"),
    "quota": (402, "billing_error"),
    "not_found": (404, "not_found_error"),
    "too_large": (413, "request_too_large"),
    "rate_limited": (429, "rate_limit_error"),
    "server": (500, "api_error"),
    "timeout": (504, "timeout_error"),
    "overloaded": (529, "overloaded_error"),
}
_SPENT_CODES = frozenset({"enforced_spend_limit_reached"})
_CONTEXT = re.compile(
    r"prompt is too long|input (is|length) .*(too long|exceed)"
    r"|exceeds? .*context|context (window|length|limit)",
    re.IGNORECASE,
)
_SPENT = re.compile(r"credit balance is too low|api usage limits|spend limit", re.IGNORECASE)
_MARKUP = re.compile(r"<(script|style)\b.*?</\1>|<[^>]*>", re.DOTALL | re.IGNORECASE)
_TITLE = re.compile(r"<title[^>]*>(.*?)</title>", re.DOTALL | re.IGNORECASE)


def failure_of(status: int, headers: Mapping[str, str], body: bytes) -> Failure:
    """A reply with an error status."""
    try:
        envelope = loads(body)
    except ValueError:
        envelope = None
    error = error_in(envelope)
    if error is None:
        where = f" to {headers['location']}" if 300 <= status < 400 and "location" in headers else ""
        said = one_line(body)
        error = {
            "message": f"HTTP {status}{where}" + (f": {said}" if said else ", without a word of explanation")
        }
    exception = headers.get("x-amzn-errortype", "").partition(":")[0]
    if exception and "type" not in error:
        error["type"] = exception
    failure = failure_from(error, status)
    should_retry = {"true": True, "false": False}.get(headers.get("x-should-retry", "").lower())
    return Failure(
        kind=failure.kind,
        message=failure.message,
        status=status,
        code=failure.code,
        retry_after_seconds=_retry_after_seconds(headers),
        should_retry=should_retry,
    )


def failure_from(error: Mapping[str, Any], status: int) -> Failure:
    """An error object, from a body or from the middle of a stream."""
    kind_word = _word(error.get("type"))
    details = error.get("details")
    code = _word(details.get("error_code")) if isinstance(details, dict) else ""
    message = one_line(_word(error.get("message"))) or kind_word or f"HTTP {status}"
    kind = _KINDS_BY_TYPE.get(kind_word.lower())
    if kind is None or (kind == "invalid" and status in _KINDS_BY_STATUS):
        kind = _KINDS_BY_STATUS.get(status, "server" if status >= 500 or status < 300 else "invalid")
    if code in _SPENT_CODES or (kind in ("invalid", "rate_limited") and _SPENT.search(message)):
        kind = "quota"
    elif kind == "invalid" and _CONTEXT.search(message):
        kind = "context"
    return Failure(kind=kind, message=message, status=status, code=code or kind_word)


def error_in(envelope: object) -> dict[str, Any] | None:
    """The error object in a body, in the provider's envelope or in one of those put around it."""
    if isinstance(envelope, list) and envelope:
        envelope = envelope[0]
    if not isinstance(envelope, dict):
        return None
    error = envelope.get("error")
    if isinstance(error, dict):
        return dict(error)
    for name in ("message", "Message", "error", "detail"):
        if isinstance(envelope.get(name), str) and envelope[name]:
            return {"message": envelope[name]}
    return None


def one_line(text: bytes | str) -> str:
    """Words for a person: no markup, no line breaks, not too long."""
    said = text if isinstance(text, str) else text[: 64 * MESSAGE_LENGTH_MAX].decode("utf-8", "replace")
    if isinstance(text, bytes) and "<" in said:
        title = _TITLE.search(said)
        said = title.group(1) if title else _MARKUP.sub(" ", said)
    said = " ".join(mended(said).split())
    return said if len(said) <= MESSAGE_LENGTH_MAX else said[: MESSAGE_LENGTH_MAX - 1] + "…"


def speak_failure(failure: Failure) -> HttpReply:
    status, kind_word = _WIRE.get(failure.kind, _WIRE["server"])
    message = failure.message
    if failure.kind == "context" and not _CONTEXT.search(message):
        message = f"prompt is too long: {message}"  # only the wording says so on this wire
    error: dict[str, Any] = {"type": kind_word, "message": message}
    if failure.code in _KINDS_BY_TYPE:
        error["type"] = failure.code
    elif failure.code:
        error["details"] = {"error_code": failure.code}
    headers = [("content-type", "application/json")]
    if failure.retry_after_seconds is not None:
        headers.append(("retry-after", f"{failure.retry_after_seconds:.15g}"))
    if failure.should_retry is not None:
        headers.append(("x-should-retry", "true" if failure.should_retry else "false"))
    body = dumps({"type": "error", "error": error, "request_id": None})
    if failure.status is not None and failure.status >= 400:
        status = failure.status
    return HttpReply(status=status, headers=tuple(headers), frames=(body,))


def _retry_after_seconds(headers: Mapping[str, str]) -> float | None:
    for name, per_second in (("retry-after-ms", 1000), ("retry-after", 1)):
        try:
            wait = float(headers.get(name, "")) / per_second
        except ValueError:
            continue
        if isfinite(wait):
            return max(wait, 0.0)
    # A date says how long to wait only beside the sender's own clock; ours may be wrong by hours.
    until, now = _moment(headers.get("retry-after", "")), _moment(headers.get("date", ""))
    return max((until - now).total_seconds(), 0.0) if until and now else None


def _moment(text: str) -> datetime | None:
    try:
        moment = parsedate_to_datetime(text)
    except (TypeError, ValueError, IndexError, OverflowError):
        return None
    return moment if moment.tzinfo else None


def _word(value: object) -> str:
    return mended(value) if isinstance(value, str) else ""
