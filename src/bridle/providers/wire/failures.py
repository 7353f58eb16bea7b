"""Classifies failures by HTTP status, headers and wording, for every wire.

Each family adds its own error types, codes and wordings. This module covers HTTP itself, the bodies of
proxies, gateways and other clouds, and the wordings that every family needs because gateways pass on other
providers' messages.

Structure takes precedence: wording is used only if neither a code nor a status identifies the failure. A
message is shown to people and kept in logs, so it is cut. The sender redacts the key afterwards, which is why
a cut falls between words and never inside one.
"""

import re
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import lru_cache
from math import isfinite
from typing import Any, NamedTuple

from msgspec.structs import replace

from bridle.values.errors import Failure, FailureKind

from .json import loads, repair_surrogates
from .rejections import find_rejected_parameter

MESSAGE_LENGTH_MAX = 1_000
"""Long enough for every sentence a provider writes, short enough for one line of a log."""

UNRECOGNISED_LENGTH_MAX = 200
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
_OVERFLOW_WORDS = re.compile(
    r"maximum context length"
    r"|exceed(?:s|ed)? (?:the |max |model'?s? |available |maximum )*context (?:window|length|size|limit)"
    r"|context (?:window|length|size|limit) (?:has been |is )?exceed(?:s|ed)|maximum prompt length is"
    r"|reduce the length of (?:the|your) (?:messages|prompt|input)|exceeds the maximum allowed input length"
    r"|(?:longer|greater) than the (?:model'?s )?context length|prompt (?:is )?too long"
    r"|(?:prompt|input) token count.{0,40} exceeds the (?:limit|maximum)|exceeded model token limit"
    r"|input is too long for requested model",
    re.IGNORECASE,
)
_NOT_OVERFLOW_WORDS = re.compile(
    r"rate.?limit|too many requests|throttl|per (?:minute|min|hour|day)\b"
    r"|max_(?:completion_|output_)?tokens'?\)? is too large",
    re.IGNORECASE,
)
"""Rate limits and oversized output limits: shortening the conversation would not help."""
_REASONING_REJECTED_WORDS = re.compile(
    r"encrypted content\b.*\bcould not be (?:verified|decrypted)"
    r"|was provided without its required (?:'reasoning' item|following item)"
    r"|missing a thought_?signature|(?:invalid|corrupted) thought.?signature"
    r"|thought.?signature is (?:not valid|invalid)"
    r"|reasoning_content.{0,40} (?:must be passed back|is missing in)|reasoning input is not enabled"
    r"|invalid .?signature.? in .?thinking|thinking.? blocks .{0,80}cannot be modified"
    r"|expected .?thinking.? or .?redacted_thinking.?, but found|thinking\.signature: field required"
    r"|content\[\]\.thinking.{0,40} must be passed back",
    re.IGNORECASE | re.DOTALL,
)
_UNKNOWN_MODEL_WORDS = re.compile(
    r"invalid model(?: name| id|:)|(?:unknown|no such|unrecognized) model\b|model identifier is invalid"
    r"|\bmodel:? [\"'`]?[\w./:@-]+[\"'`]? (?:does not exist|(?:was |is )?not found|is not a valid model)"
    r"|is not a valid model(?: id)?\b|no endpoints found for",
    re.IGNORECASE,
)
_REQUEST_FAILURES = ("invalid", "not_found", "unauthorized")
"""Kinds of failure with which servers refuse a parameter: invalid, offered by no endpoint, or not allowed."""
KindsByWording = Mapping[FailureKind, Callable[[str], object]]
QUOTA_STATUSES = frozenset({402, 429})
"""Statuses with which words about money mean that the account is out of credit."""
_WORD_ENDS = re.compile(r"[\s,;]")
"""Characters that no key contains, as far as redaction looks for it."""
_TAG = re.compile(r"<(?:(/?)(script|style|title)\b)?[^<>]*>", re.IGNORECASE)
"""No tag contains another `<`, so an unclosed tag ends there: a page is scanned in one pass."""
HIDDEN_TAGS = ("script", "style")
"""Tags whose content is not displayed."""


ErrorFinder = Callable[[object], dict[str, Any] | None]
ErrorClassifier = Callable[[Mapping[str, Any], int], Failure]


def decode_error_response(
    status: int, headers: Mapping[str, str], body: bytes, read_error: ErrorClassifier, find_error: ErrorFinder
) -> Failure:
    """Decode a reply with an error status; the family finds the error in its body and classifies it."""
    try:
        envelope = loads(body)
    except ValueError:
        envelope = None
    error = find_error(envelope) or {"message": describe_unknown_body(status, headers, body)}
    failure = read_error(error, status)
    wait = read_retry_after(headers)
    if failure.kind == "invalid" and is_unknown_model_message(failure.message):
        failure = replace(failure, kind="not_found")
    if failure.kind in _REQUEST_FAILURES:
        failure = replace(failure, refused_parameter=find_rejected_parameter(failure.message, error))
    return replace(
        failure,
        status=status,
        retry_after_seconds=failure.retry_after_seconds if wait is None else wait,
        should_retry=read_should_retry(headers),
    )


def kind_of_status(status: int) -> FailureKind:
    """Return the kind for a status alone; an error inside a good reply (a broken stream) is the server's."""
    return KINDS_BY_STATUS.get(status, "server" if status >= 500 or status < 300 else "invalid")


def describe_unknown_body(status: int, headers: Mapping[str, str], body: bytes) -> str:
    where = f" to {headers['location']}" if 300 <= status < 400 and "location" in headers else ""
    text = to_one_line(body)
    return f"HTTP {status}{where}" + (f": {text}" if text else ", without an explanation")


def unrecognised_reply(status: int, wanted: str, body: bytes) -> Failure:
    """Describe a good status with other content than was `wanted`: probably another server at this address."""
    text = to_one_line(body, UNRECOGNISED_LENGTH_MAX)
    message = f"HTTP {status}, but no {wanted}; check the base URL. The server sent: {text}"
    return Failure(kind="garbled", message=message, status=status, should_retry=False)


def refine_kind(kind: FailureKind, wordings: KindsByWording, message: str) -> FailureKind:
    """Refine a kind that only a status has determined; the first matching wording wins."""
    return next((refined for refined, matches in wordings.items() if matches(message)), kind)


def is_context_overflow(message: str) -> bool:
    """Return True if a message says that the conversation exceeds the context window."""
    return bool(_OVERFLOW_WORDS.search(message)) and not _NOT_OVERFLOW_WORDS.search(message)


def is_unknown_model_message(message: str) -> bool:
    """Return True if a message says that the model does not exist: gateways report that as a bad request."""
    return bool(_UNKNOWN_MODEL_WORDS.search(message))


def is_reasoning_rejection(message: str) -> bool:
    """Return True if a message says that earlier reasoning was refused: invalid, misplaced or missing."""
    return bool(_REASONING_REJECTED_WORDS.search(message))


def read_should_retry(headers: Mapping[str, str]) -> bool | None:
    return {"true": True, "false": False}.get(headers.get("x-should-retry", "").lower())


def find_error_object(envelope: object) -> dict[str, Any] | None:
    """Return the error object of a body, in the provider's envelope or a gateway's."""
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


def to_one_line(text: bytes | str, length_max: int = MESSAGE_LENGTH_MAX) -> str:
    """Format text for people: no markup, no line breaks, limited length."""
    read_max = 64 * MESSAGE_LENGTH_MAX
    line = text if isinstance(text, str) else text[:read_max].decode("utf-8", "replace")
    unread = isinstance(text, bytes) and len(text) > read_max
    if isinstance(text, bytes) and "<" in line:
        line = _strip_markup(line)
    line = " ".join(repair_surrogates(line).split())
    if len(line) <= length_max and not unread:
        return line
    line = line[: length_max - 1]
    cut_at = max((end.end() for end in _WORD_ENDS.finditer(line)), default=0)
    return line[:cut_at].rstrip() + "…"


def _strip_markup(page: str) -> str:
    """Return the title of a page, or else its text; one pass, even if tags are left open."""
    pieces: list[str] = []
    at, hidden, title = 0, "", None
    for tag in _TAG.finditer(page):
        closing, name = tag[1], (tag[2] or "").lower()
        if not hidden:
            pieces.append(page[at : tag.start()])
        at = tag.end()
        if hidden:
            hidden = "" if closing and name == hidden else hidden
        elif name in HIDDEN_TAGS and not closing:
            hidden = name
        elif name == "title" and closing and title is not None:
            return "".join(pieces[title:])
        elif name == "title" and not closing:
            title = len(pieces)
    if not hidden:
        pieces.append(page[at:])
    return " ".join(pieces)


def read_retry_after(headers: Mapping[str, str]) -> float | None:
    for name, per_second in (("retry-after-ms", 1000), ("retry-after", 1)):
        try:
            wait = float(headers.get(name, "")) / per_second
        except ValueError:
            continue
        if isfinite(wait):
            return max(wait, 0.0)
    # A date gives a wait only relative to the sender's clock; the local clock may be wrong by hours.
    until, now = _parse_http_date(headers.get("retry-after", "")), _parse_http_date(headers.get("date", ""))
    return max((until - now).total_seconds(), 0.0) if until and now else None


LIMIT_PAUSE_MAX = 120.0
"""Longest wait for a reset that a provider announces, in seconds."""
EPOCH_SECONDS_MIN = 1e9
EPOCH_MILLISECONDS_MIN = 1e12
HEADER_LISTS_MAX = 64
"""Lists of header names whose limits are remembered: a provider sends the same names in every response."""
_DURATION = re.compile(r"(?:(\d+)h)?(?:(\d+)m(?!s))?(?:([\d.]+)s)?(?:([\d.]+)ms)?")


class ProviderLimit(NamedTuple):
    """One rate limit of a provider, as of one response.

    Anthropic and OpenAI, and many servers like them, refill their limits continuously and report the time until
    they are full again.  If they also report the limit, the wait for a part of it is that part of the time.
    Other servers report the end of a period.
    """

    left: int
    reset: str
    """Time until the limit is full again, as reported; it is parsed only if a call has to wait."""
    sent: str = ""
    """Date of the response by the provider's clock, as reported."""
    counts_prompt: bool = False
    """True if every token of a prompt counts against it; False if a call counts as one."""
    refills_to: int | None = None
    """The limit, if it refills continuously; None if unknown or at the end of a period."""

    def find_wait(self, prompt_tokens: int) -> float:
        """Seconds from the response until a call with this prompt fits."""
        wanted = prompt_tokens if self.counts_prompt else 1
        if wanted <= self.left:
            return 0.0
        share = 1.0
        if self.refills_to is not None and self.refills_to > self.left:
            share = min(1.0, (wanted - self.left) / (self.refills_to - self.left))
        return min(_read_reset(self.reset, self.sent) * share, LIMIT_PAUSE_MAX)


def read_provider_limits(headers: Mapping[str, str]) -> tuple[ProviderLimit, ...]:
    """The limits in the headers, whose names are in lower case, that may make the next call wait."""
    found = []
    for remaining, reset, limit, counts_prompt in _find_limit_headers(tuple(headers)):
        text = headers[remaining].strip()
        if not text.isdecimal() or not headers[reset]:
            continue
        left = int(text)
        if left == 0 or counts_prompt:
            most = headers[limit].strip() if limit else ""
            full = int(most) if most.isdecimal() else None
            found.append(ProviderLimit(left, headers[reset], headers.get("date", ""), counts_prompt, full))
    return tuple(found)


@lru_cache(maxsize=HEADER_LISTS_MAX)
def _find_limit_headers(names: tuple[str, ...]) -> tuple[tuple[str, str, str, bool], ...]:
    """For each limit the headers of the rest, of the reset and of the limit (or ""), and `counts_prompt`."""
    found = []
    for name in names:
        reset, limit = name.replace("remaining", "reset"), name.replace("remaining", "limit")
        if "ratelimit" in name and "remaining" in name and reset in names:
            refills = "tokens" in name or "requests" in name
            counts_prompt = "tokens" in name and "output" not in name
            found.append((name, reset, limit if refills and limit in names else "", counts_prompt))
    return tuple(found)


def _read_reset(text: str, date: str) -> float:
    """Seconds until a reset, given as a time (by the sender's clock), as `6m0s` or `120ms`, or in seconds."""
    text, sent = text.strip(), _parse_http_date(date)
    try:
        number = float(text)
    except ValueError:
        pass
    else:
        if number < EPOCH_SECONDS_MIN:
            return max(0.0, number)
        since_epoch = number / 1000 if number >= EPOCH_MILLISECONDS_MIN else number
        return max(0.0, since_epoch - sent.timestamp()) if sent else 0.0
    if (found := _DURATION.fullmatch(text)) and text:
        hours, minutes, seconds, milliseconds = (float(each or 0) for each in found.groups())
        return hours * 3600 + minutes * 60 + seconds + milliseconds / 1000
    try:
        return max(0.0, (datetime.fromisoformat(text) - sent).total_seconds()) if sent else 0.0
    except (ValueError, TypeError):
        return 0.0


def _parse_http_date(text: str) -> datetime | None:
    try:
        return datetime.strptime(text.replace("GMT", "+0000"), "%a, %d %b %Y %H:%M:%S %z")
    except ValueError:
        return None
