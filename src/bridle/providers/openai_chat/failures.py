"""Reads Chat Completions errors: status, headers and body of a response become a `Failure`.

Servers send errors in many forms: an object or a string under `error`, the members without an envelope, lists
of errors, a status inside a reply with HTTP status 200.  All are converted to one object first.  Then its code
decides, its type, a status in it, the status of the reply; and last the wording, for failures that need
different handling but that few servers name.
"""

import re
from collections.abc import Mapping
from typing import Any

from bridle.providers.wire.failures import (
    KindsByWording,
    decode_error_response,
    is_context_overflow,
    is_reasoning_rejection,
    kind_of_status,
    refine_kind,
    to_one_line,
)
from bridle.providers.wire.failures import find_error_object as common_error_in
from bridle.providers.wire.json import text_or_empty
from bridle.values.errors import Failure, FailureKind

REASONING_REJECTED_CODE = "invalid_encrypted_content"
_KINDS_BY_CODE: dict[str, FailureKind] = {
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
    REASONING_REJECTED_CODE: "reasoning_refused",
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
    "tool_use_failed": "server",  # the model wrote an unreadable call: a retry may succeed
    "timeout": "timeout",
    "timeout_error": "timeout",
    "request_timeout": "timeout",
}
_KINDS_BY_STATUS_CODE: dict[int, FailureKind] = {
    1001: "timeout",
    1002: "rate_limited",
    1004: "unauthorized",
    1008: "quota",
    1039: "rate_limited",
    2013: "invalid",
    2049: "unauthorized",
}
_QUOTA_WORDS = re.compile(
    r"insufficient (?:balance|quota|credits?|funds)|exceeded your current quota"
    r"|(?:out of|more|no) credits|payment required",
    re.IGNORECASE,
)
_UNKNOWN_MODEL_WORDS = re.compile(
    r"model not exist|(?:invalid|unknown|not supported) model|not a valid model"
    r"|supported api model names|model\b.{0,100}\b(?:not found|not exist)",
    re.IGNORECASE,
)
_API_KEY_WORDS = re.compile(r"(?:invalid|incorrect|wrong|missing) api[ -]?key", re.IGNORECASE)
_OVERLOADED_WORDS = re.compile(r"overloaded|over capacity|at capacity|high demand", re.IGNORECASE)
_KINDS_BY_WORDING: dict[FailureKind, KindsByWording] = {
    "invalid": {
        "reasoning_refused": is_reasoning_rejection,
        "context": is_context_overflow,
        "not_found": _UNKNOWN_MODEL_WORDS.search,
        "unauthorized": _API_KEY_WORDS.search,
    },
    "too_large": {"context": is_context_overflow},
    "rate_limited": {"quota": _QUOTA_WORDS.search},
    "server": {"context": is_context_overflow, "overloaded": _OVERLOADED_WORDS.search},
}
"""Refinements by wording of failures that only a status has classified."""
_RETRY_WORDS = re.compile(
    r"(?:try again|retry)(?: \w+)? (?:in|after) (?:(\d+)m(?!s))?(?:([\d.]+)(ms|s))?", re.IGNORECASE
)


def decode_failure(status: int, headers: Mapping[str, str], body: bytes) -> Failure:
    """A reply with an error status."""
    return decode_error_response(status, headers, body, classify_error, find_error)


def find_error(envelope: object) -> dict[str, Any] | None:
    """Return the error in a body or an event, whatever its envelope."""
    if isinstance(envelope, list) and envelope:
        envelope = envelope[0]
    if not isinstance(envelope, dict):
        return None
    if isinstance(complaints := envelope.get("detail"), list):
        return {"message": "; ".join(map(_validation_message, complaints))}
    error = common_error_in(envelope)
    if error is None or isinstance(envelope.get("error"), dict):
        return error
    beside = {name: envelope[name] for name in ("code", "type", "param") if envelope.get(name)}
    return {**beside, **error}


def classify_error(error: Mapping[str, Any], status: int) -> Failure:
    """Classify an error object from a body or a stream."""
    code, kind_word = _code_name(error.get("code")), text_or_empty(error.get("type"))
    message = _error_message(error) or code or kind_word or f"HTTP {status}"
    kind = _KINDS_BY_CODE.get(code.lower()) or _KINDS_BY_CODE.get(kind_word.lower())
    if kind is None:
        named = [_parse_status(error.get(name)) for name in ("code", "status", "status_code")]
        kind = kind_of_status(next((number for number in named if 400 <= number < 600), status))
        if status < 300 and not any(named) and kind_word == "invalid_request_error":
            kind = "invalid"
        kind = refine_kind(kind, _KINDS_BY_WORDING.get(kind, {}), message)
    wait = _retry_delay_seconds(message) if kind in ("rate_limited", "overloaded") else None
    return Failure(
        kind=kind, message=message, status=status, code=code or kind_word, retry_after_seconds=wait
    )


def classify_status_code(verdict: Mapping[str, Any], status: int) -> Failure:
    """Classify a status code inside a reply with HTTP status 200; 0 means success."""
    number = verdict.get("status_code")
    failure = classify_error({"message": verdict.get("status_msg")}, status)
    kind = _KINDS_BY_STATUS_CODE.get(number, failure.kind) if isinstance(number, int) else failure.kind
    kind = refine_kind(kind, _KINDS_BY_WORDING.get(kind, {}), failure.message)
    return Failure(kind=kind, message=failure.message, status=status, code=str(number))


def _error_message(error: Mapping[str, Any]) -> str:
    """Return the server's message, with that of the upstream provider if it quotes one."""
    said = text_or_empty(error.get("message"))
    metadata, about = error.get("metadata"), text_or_empty(error.get("param"))
    behind = text_or_empty(metadata.get("raw")) if isinstance(metadata, dict) else ""
    if " " in about and about not in said:
        said += f": {about}"
    return to_one_line(f"{said}: {behind}" if behind else said)


def _validation_message(complaint: object) -> str:
    if not isinstance(complaint, dict):
        return to_one_line(str(complaint))
    place = complaint.get("loc")
    where = ".".join(map(str, place)) if isinstance(place, list) else ""
    return f"{where}: {text_or_empty(complaint.get('msg'))}"


def _code_name(code: object) -> str:
    return str(code) if isinstance(code, int) and not isinstance(code, bool) else text_or_empty(code)


def _parse_status(value: object) -> int:
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) == 3:
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def _retry_delay_seconds(message: str) -> float | None:
    found = _RETRY_WORDS.search(message)
    if found is None or not any(found.groups()):
        return None
    minutes, amount, unit = found.groups()
    try:
        seconds = float(amount or 0) / (1000 if unit == "ms" else 1)
    except ValueError:
        return None
    return int(minutes or 0) * 60 + seconds
