"""What goes wrong on Chat Completions, both ways: statuses, headers and error bodies, and our `Failure`.

There are as many shapes of error as there are servers: an object under `error`, a string there, the
members without an envelope, lists of complaints, a status inside a reply that says 200.  All are
brought to one object first.  Then its code decides, its type, a status it names, the status of the
reply; and last, for what callers must tell apart and few servers name, the wording.
"""

import re
from collections.abc import Mapping
from typing import Any

from ..ports.codec import HttpReply
from ..values.errors import Failure, FailureKind
from ._failures import (
    Wordings,
    is_about_reasoning,
    is_overflow,
    kind_of_status,
    one_line,
    refusal,
    reworded,
    spoken,
    word,
)
from ._failures import error_in as common_error_in

REFUSED = "invalid_encrypted_content"
_KINDS: dict[str, FailureKind] = {
    "invalid_api_key": "unauthorized",
    "wrong_api_key": "unauthorized",
    "invalid_key": "unauthorized",
    "authentication_error": "unauthorized",
    "invalid_authentication_error": "unauthorized",
    "incorrect_api_key_error": "unauthorized",
    "permission_error": "unauthorized",
    "permission_denied": "unauthorized",
    "insufficient_quota": "quota",
    "insufficient_balance": "quota",
    "billing_hard_limit_reached": "quota",
    "billing_not_active": "quota",
    "exceeded_current_quota_error": "quota",
    "model_not_found": "not_found",
    "not_found_error": "not_found",
    "resource_not_found_error": "not_found",
    "deploymentnotfound": "not_found",
    "invalid_model": "not_found",
    "model_decommissioned": "not_found",
    "context_length_exceeded": "context",
    "exceed_context_size_error": "context",
    REFUSED: "reasoning_refused",
    "request_too_large": "too_large",
    "rate_limit_exceeded": "rate_limited",
    "rate_limit_error": "rate_limited",
    "rate_limit_reached_error": "rate_limited",
    "too_many_requests": "rate_limited",
    "engine_overloaded_error": "overloaded",
    "overloaded_error": "overloaded",
    "service_unavailable": "overloaded",
    "server_error": "server",
    "internal_error": "server",
    "internal_server_error": "server",
    "api_error": "server",
    "tool_use_failed": "server",  # the model wrote a call nobody could read: the next try may do better
    "timeout": "timeout",
    "timeout_error": "timeout",
    "request_timeout": "timeout",
}
_VERDICTS: dict[int, FailureKind] = {
    1001: "timeout",
    1002: "rate_limited",
    1004: "unauthorized",
    1008: "quota",
    1039: "rate_limited",
    2013: "invalid",
    2049: "unauthorized",
}
_WIRE: dict[FailureKind, tuple[int, str, str]] = {
    "invalid": (400, "invalid_request_error", ""),
    "context": (400, "invalid_request_error", "context_length_exceeded"),
    "reasoning_refused": (400, "invalid_request_error", REFUSED),
    "unauthorized": (401, "authentication_error", "invalid_api_key"),
    "not_found": (404, "not_found_error", "model_not_found"),
    "too_large": (413, "request_too_large", ""),
    "rate_limited": (429, "rate_limit_error", "rate_limit_exceeded"),
    "quota": (429, "insufficient_quota", "insufficient_quota"),
    "server": (500, "server_error", ""),
    "overloaded": (503, "overloaded_error", ""),
    "timeout": (504, "timeout_error", ""),
}
_SPENT = re.compile(
    r"insufficient (?:balance|quota|credits?|funds)|exceeded your current quota"
    r"|(?:out of|more|no) credits|payment required",
    re.IGNORECASE,
)
_NO_MODEL = re.compile(
    r"model not exist|(?:invalid|unknown|not supported) model|not a valid model"
    r"|supported api model names|model\b.{0,100}\b(?:not found|not exist)",
    re.IGNORECASE,
)
_KEY = re.compile(r"(?:invalid|incorrect|wrong|missing) api[ -]?key", re.IGNORECASE)
_BUSY = re.compile(r"overloaded|over capacity|at capacity|high demand", re.IGNORECASE)
_REWORDED: dict[FailureKind, Wordings] = {
    "invalid": {
        "reasoning_refused": is_about_reasoning,
        "context": is_overflow,
        "not_found": _NO_MODEL.search,
        "unauthorized": _KEY.search,
    },
    "too_large": {"context": is_overflow},
    "rate_limited": {"quota": _SPENT.search},
    "server": {"context": is_overflow, "overloaded": _BUSY.search},
}
"""What the wording may make of a failure that nothing but a status has named."""
_WAIT = re.compile(
    r"(?:try again|retry)(?: \w+)? (?:in|after) (?:(\d+)m(?!s))?(?:([\d.]+)(ms|s))?", re.IGNORECASE
)


def failure_of(status: int, headers: Mapping[str, str], body: bytes) -> Failure:
    """A reply with an error status."""
    return refusal(status, headers, body, failure_from, error_in)


def error_in(envelope: object) -> dict[str, Any] | None:
    """The error in a body or an event, whatever was put around it."""
    if isinstance(envelope, list) and envelope:
        envelope = envelope[0]
    if not isinstance(envelope, dict):
        return None
    if isinstance(complaints := envelope.get("detail"), list):
        return {"message": "; ".join(map(_complaint, complaints))}
    error = common_error_in(envelope)
    if error is None or isinstance(envelope.get("error"), dict):
        return error
    beside = {name: envelope[name] for name in ("code", "type", "param") if envelope.get(name)}
    return {**beside, **error}


def failure_from(error: Mapping[str, Any], status: int) -> Failure:
    """An error object, from a body or from the middle of a stream."""
    code, kind_word = _name(error.get("code")), word(error.get("type"))
    message = _message(error) or code or kind_word or f"HTTP {status}"
    kind = _KINDS.get(code.lower()) or _KINDS.get(kind_word.lower())
    if kind is None:
        named = [_number(error.get(name)) for name in ("code", "status", "status_code")]
        kind = kind_of_status(next((number for number in named if 400 <= number < 600), status))
        if status < 300 and not any(named) and kind_word == "invalid_request_error":
            kind = "invalid"
        kind = reworded(kind, _REWORDED.get(kind, {}), message)
    wait = _wait(message) if kind in ("rate_limited", "overloaded") else None
    return Failure(
        kind=kind, message=message, status=status, code=code or kind_word, retry_after_seconds=wait
    )


def failure_by_verdict(verdict: Mapping[str, Any], status: int) -> Failure:
    """One group of servers says 200 and puts a number of its own beside the choices; nought is well."""
    number = verdict.get("status_code")
    failure = failure_from({"message": verdict.get("status_msg")}, status)
    kind = _VERDICTS.get(number, failure.kind) if isinstance(number, int) else failure.kind
    kind = reworded(kind, _REWORDED.get(kind, {}), failure.message)
    return Failure(kind=kind, message=failure.message, status=status, code=str(number))


def speak_failure(failure: Failure) -> HttpReply:
    status, kind_word, code = _WIRE.get(failure.kind, _WIRE["server"])
    if failure.code == kind_word:
        code = ""
    elif failure.code and failure.code != code:
        # A code nobody knows says nothing of the kind, so the type has to.
        kind_word, code = code or kind_word, failure.code
    error = {"message": failure.message, "type": kind_word, "param": None, "code": code or None}
    return spoken(failure, status, {"error": error})


def _message(error: Mapping[str, Any]) -> str:
    """The server's sentence, and what it was told by somebody behind it."""
    said = word(error.get("message"))
    metadata, about = error.get("metadata"), word(error.get("param"))
    behind = word(metadata.get("raw")) if isinstance(metadata, dict) else ""
    if " " in about and about not in said:
        said += f": {about}"
    return one_line(f"{said}: {behind}" if behind else said)


def _complaint(complaint: object) -> str:
    if not isinstance(complaint, dict):
        return one_line(str(complaint))
    place = complaint.get("loc")
    where = ".".join(map(str, place)) if isinstance(place, list) else ""
    return f"{where}: {word(complaint.get('msg'))}"


def _name(code: object) -> str:
    return str(code) if isinstance(code, int) and not isinstance(code, bool) else word(code)


def _number(value: object) -> int:
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) == 3:
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def _wait(message: str) -> float | None:
    found = _WAIT.search(message)
    if found is None or not any(found.groups()):
        return None
    minutes, amount, unit = found.groups()
    try:
        seconds = float(amount or 0) / (1000 if unit == "ms" else 1)
    except ValueError:
        return None
    return int(minutes or 0) * 60 + seconds
