"""What failures look like on any wire: statuses, waits asked for, bodies that are not the provider's own.

Every family adds its own words to this (its error types, its codes, its wordings).  What is
here is what HTTP itself says, and what proxies, gateways and other clouds put around it.
"""

import re
from collections.abc import Mapping
from datetime import datetime
from math import isfinite
from typing import Any

from ..values.errors import Failure, FailureKind
from ._json import mended

MESSAGE_LENGTH_MAX = 1_000
"""Long enough for every sentence a provider writes, short enough for one line in a log."""

STRANGER_LENGTH_MAX = 200
KINDS_BY_STATUS: dict[int, FailureKind] = {
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
_MARKUP = re.compile(r"<(script|style)\b.*?</\1>|<[^>]*>", re.DOTALL | re.IGNORECASE)
_TITLE = re.compile(r"<title[^>]*>(.*?)</title>", re.DOTALL | re.IGNORECASE)


def kind_of_status(status: int) -> FailureKind:
    """The kind of a failure nobody named; one inside a good reply (a stream that broke) is the server's."""
    return KINDS_BY_STATUS.get(status, "server" if status >= 500 or status < 300 else "invalid")


def unexplained(status: int, headers: Mapping[str, str], body: bytes) -> str:
    """One line for a body that holds no error object."""
    where = f" to {headers['location']}" if 300 <= status < 400 and "location" in headers else ""
    said = one_line(body)
    return f"HTTP {status}{where}" + (f": {said}" if said else ", without a word of explanation")


def stranger(status: int, wanted: str, body: bytes) -> Failure:
    """A good status with something else in it than was `wanted`: nobody we know lives at this address."""
    said = one_line(body)[:STRANGER_LENGTH_MAX]
    message = f"HTTP {status}, but no {wanted}; check the base URL. It said: {said}"
    return Failure(kind="garbled", message=message, status=status, should_retry=False)


def should_retry(headers: Mapping[str, str]) -> bool | None:
    return {"true": True, "false": False}.get(headers.get("x-should-retry", "").lower())


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


def retry_after_seconds(headers: Mapping[str, str]) -> float | None:
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
        return datetime.strptime(text.replace("GMT", "+0000"), "%a, %d %b %Y %H:%M:%S %z")
    except ValueError:
        return None


def word(value: object) -> str:
    return mended(value) if isinstance(value, str) else ""
