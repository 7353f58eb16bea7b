"""What failures look like on any wire: statuses, waits asked for, bodies that are not the provider's own.

Every family adds its own words to this (its error types, its codes, its wordings).  What is
here is what HTTP itself says, what proxies, gateways and other clouds put around it, and the few
wordings that every family has to know because gateways pass on what others said.

Structure comes first: a wording may only say more about a failure that neither a code nor a status
has told apart.  A message is shown to people and kept in logs, so it is cut; the one who knows the key
takes it out after that, which is why a cut falls between words and never inside one.
"""

import re
from collections.abc import Callable, Mapping
from datetime import datetime
from math import isfinite
from typing import Any

from msgspec.structs import replace

from bridle.values.errors import Failure, FailureKind

from .json import loads, repair_surrogates
from .rejections import find_rejected_parameter

MESSAGE_LENGTH_MAX = 1_000
"""Long enough for every sentence a provider writes, short enough for one line in a log."""

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
"""Waiting helps, or a smaller answer does; taking anything out of the conversation would not."""
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
"""How servers call a parameter that they do not take: invalid, offered by no endpoint, or not allowed."""
KindsByWording = Mapping[FailureKind, Callable[[str], object]]
QUOTA_STATUSES = frozenset({402, 429})
"""Only here do words about money mean that there is none left."""
_WORD_ENDS = re.compile(r"[\s,;]")
"""What no key has in it, as far as it is looked for."""
_TAG = re.compile(r"<(?:(/?)(script|style|title)\b)?[^<>]*>", re.IGNORECASE)
"""No tag holds another `<`, so that one which never ends is given up there: a page is read in one pass."""
HIDDEN_TAGS = ("script", "style")
"""Tags whose content is not for people."""


ErrorFinder = Callable[[object], dict[str, Any] | None]
ErrorClassifier = Callable[[Mapping[str, Any], int], Failure]


def decode_error_response(
    status: int, headers: Mapping[str, str], body: bytes, read_error: ErrorClassifier, find_error: ErrorFinder
) -> Failure:
    """A reply with an error status: the family finds the error in its body and says what it means."""
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
    """The kind of a failure nobody named; one inside a good reply (a stream that broke) is the server's."""
    return KINDS_BY_STATUS.get(status, "server" if status >= 500 or status < 300 else "invalid")


def describe_unknown_body(status: int, headers: Mapping[str, str], body: bytes) -> str:
    """One line for a body that holds no error object."""
    where = f" to {headers['location']}" if 300 <= status < 400 and "location" in headers else ""
    said = to_one_line(body)
    return f"HTTP {status}{where}" + (f": {said}" if said else ", without a word of explanation")


def unrecognised_reply(status: int, wanted: str, body: bytes) -> Failure:
    """A good status with something else in it than was `wanted`: nobody we know lives at this address."""
    said = to_one_line(body, UNRECOGNISED_LENGTH_MAX)
    message = f"HTTP {status}, but no {wanted}; check the base URL. It said: {said}"
    return Failure(kind="garbled", message=message, status=status, should_retry=False)


def refine_kind(kind: FailureKind, wordings: KindsByWording, message: str) -> FailureKind:
    """What the words make of a kind that nothing but a status has named; the first that fit count."""
    return next((told for told, tells in wordings.items() if tells(message)), kind)


def is_context_overflow(message: str) -> bool:
    """Whether these words say that the conversation is longer than the model can read."""
    return bool(_OVERFLOW_WORDS.search(message)) and not _NOT_OVERFLOW_WORDS.search(message)


def is_unknown_model_message(message: str) -> bool:
    """Whether these words say that there is no such model: gateways report it as a bad request."""
    return bool(_UNKNOWN_MODEL_WORDS.search(message))


def is_reasoning_rejection(message: str) -> bool:
    """Whether these words say that earlier reasoning is not taken back: broken, misplaced or missing."""
    return bool(_REASONING_REJECTED_WORDS.search(message))


def read_should_retry(headers: Mapping[str, str]) -> bool | None:
    return {"true": True, "false": False}.get(headers.get("x-should-retry", "").lower())


def find_error_object(envelope: object) -> dict[str, Any] | None:
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


def to_one_line(text: bytes | str, length_max: int = MESSAGE_LENGTH_MAX) -> str:
    """Words for a person: no markup, no line breaks, not too long."""
    read_max = 64 * MESSAGE_LENGTH_MAX
    said = text if isinstance(text, str) else text[:read_max].decode("utf-8", "replace")
    unread = isinstance(text, bytes) and len(text) > read_max
    if isinstance(text, bytes) and "<" in said:
        said = _strip_markup(said)
    said = " ".join(repair_surrogates(said).split())
    if len(said) <= length_max and not unread:
        return said
    said = said[: length_max - 1]
    whole = max((end.end() for end in _WORD_ENDS.finditer(said)), default=0)
    return said[:whole].rstrip() + "…"


def _strip_markup(page: str) -> str:
    """The title of a page, or else its text; in one pass, whatever is left open in it."""
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
    # A date says how long to wait only beside the sender's own clock; ours may be wrong by hours.
    until, now = _parse_http_date(headers.get("retry-after", "")), _parse_http_date(headers.get("date", ""))
    return max((until - now).total_seconds(), 0.0) if until and now else None


def _parse_http_date(text: str) -> datetime | None:
    try:
        return datetime.strptime(text.replace("GMT", "+0000"), "%a, %d %b %Y %H:%M:%S %z")
    except ValueError:
        return None
