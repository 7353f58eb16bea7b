"""What a reply of Gemini says, read plainly: see `plainly.py`.

Pieces of a stream are whole responses; their parts follow one another and the last counts are the
whole.  The first candidate is the reply.  Calls end with the same word as anything else.
"""

from collections.abc import Sequence
from typing import Any

from .plainly import WHOLE, Said, Told, first, inside, joined, listed, number, uneven, words, written

STOPS = {
    "STOP": "done",
    "MAX_TOKENS": "length",
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
_ANSWERED = {"candidates", "usageMetadata"}
"""What a whole reply has, also one in which nothing is said."""
_NUMBERED = {1: "STOP", 2: "MAX_TOKENS", 3: "SAFETY", 4: "RECITATION", 5: "OTHER"}


def told(said: Sequence[Said]) -> Told | None:
    parts: list[dict[str, Any]] = []
    reason: Any = None
    usage: Any = None
    blocked = False
    for _, piece in said:
        if inside(piece, "error"):
            return None
        candidate: dict[str, Any] = next(
            (each for each in listed(inside(piece, "candidates")) if not number(each, "index")), {}
        )
        parts += listed(inside(candidate, "content", "parts"))
        reason = candidate.get("finishReason") or reason
        if isinstance(counted := inside(piece, "usageMetadata"), dict):
            usage = {**(usage or {}), **{name: value for name, value in counted.items() if value is not None}}
        feedback = inside(piece, "promptFeedback")
        blocked = blocked or bool(inside(feedback, "blockReason") or inside(feedback, "blockReasonMessage"))
    if not reason and not blocked and (said[0][0] != WHOLE or not _ANSWERED & said[0][1].keys()):
        return None
    calls = [part["functionCall"] for part in parts if isinstance(part.get("functionCall"), dict)]
    stop = STOPS.get(_NUMBERED.get(reason, reason), "other") if reason or not blocked else "refused"
    in_pieces = any("partialArgs" in call or "willContinue" in call for call in calls)
    return Told(
        text=joined([words(part.get("text")) for part in parts if part.get("thought") is not True]),
        reasoning=joined([words(part.get("text")) for part in parts if part.get("thought") is True]),
        calls=None
        if in_pieces
        else tuple((words(call.get("name")), written(call.get("args"))) for call in calls),
        counts=_counts(usage) if isinstance(usage, dict) else {},
        stop="tools" if stop == "done" and calls else stop,
        excused=_excused(usage),
    )


def _counts(usage: dict[str, Any]) -> dict[str, int]:
    thoughts, total = number(usage, "thoughtsTokenCount"), number(usage, "totalTokenCount")
    looked_up = number(usage, "toolUsePromptTokenCount")
    output = number(usage, "candidatesTokenCount") + thoughts
    counts = {
        # A prompt that is a file elsewhere is counted in the total only.
        "prompt": first(number(usage, "promptTokenCount") + looked_up, max(total - output, 0)),
        "cache_read": number(usage, "cachedContentTokenCount"),
        "output": output,
        "reasoning": thoughts,
    }
    return counts | ({"total": total} if total else {})


def _excused(usage: object) -> dict[str, str]:
    counts = _counts(usage) if isinstance(usage, dict) else {}
    excused = uneven(counts.get("total", 0), counts.get("prompt", 0), counts.get("output", 0))
    if counts and counts["cache_read"] > counts["prompt"]:
        why = f"more is said to be cached than the whole prompt of {counts['prompt']}"
        excused |= {"prompt": why, "total": why, "cache_read": why}
    return excused
