"""How a reply of Gemini ends: why it stopped and what it used, both ways.

A reply with calls ends with the same word as one without, so the content decides between them.  A
prompt that was blocked has no content at all, only feedback; it is a refusal like any other.

Counts of a stream are totals so far, so the last ones are the whole.  The provider counts what was
thought beside what was said, and what its own tools read beside the prompt; what came from its cache
is part of the prompt.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ..values.message import Reply, Stop
from ..values.model import Model, Origin
from ..values.parts import Opaque, Part, ToolCall
from ..values.usage import Usage
from ._gemini_parts import CONTINUATION, FAMILY, word
from ._json import whole
from ._terms import terms_of

UNSPECIFIED = "FINISH_REASON_UNSPECIFIED"
CONTINUES = "CONTINUATION"
STOPS = {
    "STOP": Stop.DONE,
    "MAX_TOKENS": Stop.LENGTH,
    CONTINUES: Stop.PAUSED,
    "SAFETY": Stop.REFUSED,
    "PROHIBITED_CONTENT": Stop.REFUSED,
    "IMAGE_SAFETY": Stop.REFUSED,
    "IMAGE_PROHIBITED_CONTENT": Stop.REFUSED,
    "BLOCKLIST": Stop.FILTERED,
    "SPII": Stop.FILTERED,
    "RECITATION": Stop.FILTERED,
    "LANGUAGE": Stop.FILTERED,
    "MODEL_ARMOR": Stop.FILTERED,
    "IMAGE_RECITATION": Stop.FILTERED,
    "IMAGE_OTHER": Stop.FILTERED,
    "MALFORMED_FUNCTION_CALL": Stop.MALFORMED,
    "MALFORMED_RESPONSE": Stop.MALFORMED,
    "UNEXPECTED_TOOL_CALL": Stop.MALFORMED,
    "MISSING_THOUGHT_SIGNATURE": Stop.MALFORMED,
    "TOO_MANY_TOOL_CALLS": Stop.OTHER,
    "NO_IMAGE": Stop.OTHER,
    "OTHER": Stop.OTHER,
}
_NUMBERED = (UNSPECIFIED, "STOP", "MAX_TOKENS", "SAFETY", "RECITATION", "OTHER")
"""Reasons by number, as a client may ask for them; beyond these the provider's two services disagree."""
_WORDS = {
    Stop.DONE: "STOP",
    Stop.TOOLS: "STOP",
    Stop.LENGTH: "MAX_TOKENS",
    Stop.PAUSED: CONTINUES,
    Stop.REFUSED: "SAFETY",
    Stop.CONTEXT: "MAX_TOKENS",
    Stop.FILTERED: "BLOCKLIST",
    Stop.MALFORMED: "MALFORMED_FUNCTION_CALL",
    Stop.OTHER: "OTHER",
}
_BLOCKED = "blockReason "
_DETAIL = re.compile(rf"({_BLOCKED})?(\w+)(?:: (.*))?", re.DOTALL)
"""`word`, `word: explanation`, and both of a blocked prompt."""


def reply_of(
    parts: Sequence[Part], meta: Mapping[str, Any], counts: Mapping[str, Any], model: Model
) -> Reply:
    """`meta` has the last words of the response and of its candidate, by their names on the wire."""
    stop, detail = _end(parts, meta)
    return Reply(
        parts=tuple(parts),
        stop=stop,
        origin=Origin(
            family=FAMILY, endpoint=model.endpoint.home, model=word(meta.get("modelVersion")) or model.id
        ),
        usage=usage_of(counts),
        id=word(meta.get("responseId")),
        stop_detail=detail,
    )


def finish_word(reason: object) -> str:
    """The provider's word for a stop; empty when it has not said one."""
    if isinstance(reason, int) and not isinstance(reason, bool):
        reason = _NUMBERED[reason] if 0 <= reason < len(_NUMBERED) else str(reason)
    said = word(reason)
    return "" if said == UNSPECIFIED else said


def is_block(feedback: object) -> bool:
    """Whether what is said about the prompt is that it was refused."""
    return isinstance(feedback, dict) and bool(
        feedback.get("blockReason") or feedback.get("blockReasonMessage")
    )


def usage_of(counts: Mapping[str, Any]) -> Usage:
    """What was counted; without a count of the prompt nothing was, and nought would be a lie."""
    prompt, cached = _count(counts.get("promptTokenCount")), _count(counts.get("cachedContentTokenCount"))
    thoughts, looked_up = (
        _count(counts.get("thoughtsTokenCount")),
        _count(counts.get("toolUsePromptTokenCount")),
    )
    output = _count(counts.get("candidatesTokenCount")) + thoughts
    # A prompt that is a file somewhere else is counted in the sum only.
    prompt = prompt or max(_count(counts.get("totalTokenCount")) - output - looked_up, 0)
    return Usage(
        input=max(prompt - cached, 0) + looked_up,
        cache_read=cached,
        output=output,
        reasoning=thoughts,
        incomplete=whole(counts.get("promptTokenCount")) is None and not prompt,
        terms=terms_of(counts.get("serviceTier")),
    )


def wire_usage(usage: Usage) -> dict[str, int]:
    """What the wire has a count for: what was written to a cache is part of the prompt here."""
    if usage == Usage(incomplete=True):
        return {}
    counts = {
        "promptTokenCount": usage.prompt,
        "cachedContentTokenCount": usage.cache_read,
        "candidatesTokenCount": usage.output - usage.reasoning,
        "thoughtsTokenCount": usage.reasoning,
        "totalTokenCount": usage.total,
    }
    return {name: count for name, count in counts.items() if count or name == "promptTokenCount"}


def wire_end(reply: Reply) -> dict[str, Any]:
    """`finishReason` and its message, or `promptFeedback`; from the detail, when it came from this wire."""
    found = _DETAIL.fullmatch(reply.stop_detail)
    blocked, reason, message = found.groups() if found else ("", "", None)
    if blocked and reply.stop is Stop.REFUSED and not reply.parts:
        feedback = {"blockReason": reason, "blockReasonMessage": message}
        return {"promptFeedback": {name: value for name, value in feedback.items() if value}}
    if _stop(reason, reply.parts) is not reply.stop or not reason:
        reason, message = _WORDS[reply.stop], None
    end = {"finishReason": reason, "finishMessage": message}
    return {name: value for name, value in end.items() if value}


def _end(parts: Sequence[Part], meta: Mapping[str, Any]) -> tuple[Stop, str]:
    reason, message = finish_word(meta.get("finishReason")), word(meta.get("finishMessage"))
    feedback = meta.get("promptFeedback")
    if not reason and not parts and isinstance(feedback, dict):
        reason = finish_word(feedback.get("blockReason")) or "OTHER"
        message = word(feedback.get("blockReasonMessage"))
        return Stop.REFUSED, _BLOCKED + reason + (f": {message}" if message else "")
    return _stop(reason, parts), reason + (f": {message}" if message else "")


def _stop(reason: str, parts: Sequence[Part]) -> Stop:
    stop = STOPS.get(reason, Stop.OTHER)
    if stop is Stop.DONE and any(isinstance(part, ToolCall) for part in parts):
        return Stop.TOOLS
    if stop is Stop.PAUSED and not any(
        isinstance(part, Opaque) and part.kind == CONTINUATION for part in parts
    ):
        # There is nothing to go on with; the best that can be said is that it broke off.
        return Stop.LENGTH
    return stop


def _count(value: object) -> int:
    return max(whole(value) or 0, 0)
