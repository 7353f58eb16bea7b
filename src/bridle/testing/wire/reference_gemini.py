"""Reference decoder for Gemini replies; see `reference_decoder.py`.

Chunks of a stream are whole responses; their parts are concatenated and the last counts are the total. The
first candidate is the reply. Calls have no stop reason of their own.
"""

from collections.abc import Sequence
from typing import Any

from .reference_decoder import (
    WHOLE_BODY,
    NamedDocument,
    ReferenceReply,
    arguments_text,
    as_objects,
    as_text,
    explain_uneven_total,
    first_nonzero,
    get_path,
    join_pieces,
    read_count,
)

STOPS = {
    "STOP": "done",
    "MAX_TOKENS": "length",
    "CONTINUATION": "paused",
    "SAFETY": "refused",
    "PROHIBITED_CONTENT": "refused",
    "IMAGE_SAFETY": "refused",
    "IMAGE_PROHIBITED_CONTENT": "refused",
    "BLOCKLIST": "filtered",
    "SPII": "filtered",
    "RECITATION": "filtered",
    "LANGUAGE": "filtered",
    "MODEL_ARMOR": "filtered",
    "IMAGE_RECITATION": "filtered",
    "IMAGE_OTHER": "filtered",
    "MALFORMED_FUNCTION_CALL": "malformed",
    "MALFORMED_RESPONSE": "malformed",
    "UNEXPECTED_TOOL_CALL": "malformed",
    "MISSING_THOUGHT_SIGNATURE": "malformed",
}
_REPLY_FIELDS = {"candidates", "usageMetadata"}
"""Fields that every whole reply has, even one without content."""
_NUMBERED_STOPS = {1: "STOP", 2: "MAX_TOKENS", 3: "SAFETY", 4: "RECITATION", 5: "OTHER"}


def read_gemini(documents: Sequence[NamedDocument]) -> ReferenceReply | None:
    parts: list[dict[str, Any]] = []
    reason: Any = None
    usage: Any = None
    blocked = can_continue = False
    for _, piece in documents:
        if get_path(piece, "error"):
            return None
        candidate: dict[str, Any] = next(
            (each for each in as_objects(get_path(piece, "candidates")) if not read_count(each, "index")), {}
        )
        parts += as_objects(get_path(candidate, "content", "parts"))
        reason = candidate.get("finishReason") or reason
        can_continue = can_continue or bool(as_text(candidate.get("continuationToken")))
        if isinstance(counted := get_path(piece, "usageMetadata"), dict):
            usage = {**(usage or {}), **{name: value for name, value in counted.items() if value is not None}}
        feedback = get_path(piece, "promptFeedback")
        blocked = blocked or bool(
            get_path(feedback, "blockReason") or get_path(feedback, "blockReasonMessage")
        )
    if (
        not reason
        and not blocked
        and (documents[0][0] != WHOLE_BODY or not _REPLY_FIELDS & documents[0][1].keys())
    ):
        return None
    calls = [part["functionCall"] for part in parts if isinstance(part.get("functionCall"), dict)]
    stop = STOPS.get(_NUMBERED_STOPS.get(reason, reason), "other") if reason or not blocked else "refused"
    if stop == "paused" and not can_continue:
        stop = "length"  # a pause that nothing continues
    in_pieces = any("partialArgs" in call or "willContinue" in call for call in calls)
    return ReferenceReply(
        text=join_pieces([as_text(part.get("text")) for part in parts if part.get("thought") is not True]),
        reasoning=join_pieces([as_text(part.get("text")) for part in parts if part.get("thought") is True]),
        calls=None
        if in_pieces
        else tuple((as_text(call.get("name")), arguments_text(call.get("args"))) for call in calls),
        counts=_read_usage(usage) if isinstance(usage, dict) else {},
        stop="tools" if stop == "done" and calls else stop,
        exceptions=_usage_exceptions(usage),
    )


def _read_usage(usage: dict[str, Any]) -> dict[str, int]:
    thoughts, total = read_count(usage, "thoughtsTokenCount"), read_count(usage, "totalTokenCount")
    looked_up = read_count(usage, "toolUsePromptTokenCount")
    output = read_count(usage, "candidatesTokenCount") + thoughts
    counts = {
        # A prompt stored as a file elsewhere is counted in the total only.
        "prompt": first_nonzero(read_count(usage, "promptTokenCount") + looked_up, max(total - output, 0)),
        "cache_read": read_count(usage, "cachedContentTokenCount"),
        "output": output,
        "reasoning": thoughts,
    }
    return counts | ({"total": total} if total else {})


def _usage_exceptions(usage: object) -> dict[str, str]:
    counts = _read_usage(usage) if isinstance(usage, dict) else {}
    excused = explain_uneven_total(counts.get("total", 0), counts.get("prompt", 0), counts.get("output", 0))
    if counts and counts["cache_read"] > counts["prompt"]:
        why = f"the cached count exceeds the whole prompt of {counts['prompt']}"
        excused |= {"prompt": why, "total": why, "cache_read": why}
    return excused
