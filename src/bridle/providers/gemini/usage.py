"""Stop reason and token usage of a Gemini reply.

A reply with calls has the same finish reason as one without, so the content decides.  A blocked prompt has no
content, only feedback; it is a refusal.

Counts in a stream are totals so far, so the last ones count.  The provider counts reasoning separately from the
answer, and tokens of its own tools separately from the prompt; cached tokens are part of the prompt.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from bridle.providers.wire.json import count_or_zero, object_or_empty, parse_integer, text_or_empty
from bridle.providers.wire.usage import decode_service_terms
from bridle.values.message import Opaque, Part, Reply, Stop, ToolCall
from bridle.values.model import Model, make_origin
from bridle.values.usage import Usage

from .parts import CONTINUATION_KIND

UNSPECIFIED = "FINISH_REASON_UNSPECIFIED"
CONTINUATION_STOP = "CONTINUATION"
_MAPS_TERM = "google_maps"
STOPS = {
    "STOP": Stop.DONE,
    "MAX_TOKENS": Stop.LENGTH,
    CONTINUATION_STOP: Stop.PAUSED,
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
_STOPS_BY_NUMBER = (UNSPECIFIED, "STOP", "MAX_TOKENS", "SAFETY", "RECITATION", "OTHER")
"""Reasons by number, as clients may request them; for higher numbers the provider's two services disagree."""
BLOCK_PREFIX = "blockReason "


def build_reply(
    parts: Sequence[Part], meta: Mapping[str, Any], counts: Mapping[str, Any], model: Model
) -> Reply:
    """Build the reply; `meta` has the last values of the response and its candidate, by wire name."""
    stop, detail = _decode_stop(parts, meta)
    return Reply(
        parts=tuple(parts),
        stop=stop,
        origin=make_origin(model, text_or_empty(meta.get("modelVersion"))),
        usage=decode_usage(counts),
        id=text_or_empty(meta.get("responseId")),
        stop_detail=detail,
    )


def finish_reason(reason: object) -> str:
    """Return the provider's finish reason; empty if there is none yet."""
    if isinstance(reason, int) and not isinstance(reason, bool):
        reason = _STOPS_BY_NUMBER[reason] if 0 <= reason < len(_STOPS_BY_NUMBER) else str(reason)
    said = text_or_empty(reason)
    return "" if said == UNSPECIFIED else said


def is_prompt_blocked(feedback: object) -> bool:
    """Return True if prompt feedback says that the prompt was refused."""
    return isinstance(feedback, dict) and bool(
        feedback.get("blockReason") or feedback.get("blockReasonMessage")
    )


def add_grounding(usage: Usage, grounding: object) -> Usage:
    """Add the searches that a reply rests on: different ones are charged, and no empty ones.

    Places on a map are charged too, at a price that no table has.
    """
    found = {name: each for name, each in object_or_empty(grounding).items() if isinstance(each, list)}
    queries = {
        (name, each)
        for name in ("webSearchQueries", "imageSearchQueries")
        for each in found.get(name, ())
        if isinstance(each, str) and each.strip()
    }
    has_places = any(isinstance(each, dict) and "maps" in each for each in found.get("groundingChunks", ()))
    terms = (*usage.terms, _MAPS_TERM) if has_places else usage.terms
    return replace(usage, searches=len(queries), terms=terms)


def decode_usage(counts: Mapping[str, Any]) -> Usage:
    """Decode token counts; without a prompt count the usage is incomplete, not zero."""
    prompt, cached = (
        count_or_zero(counts.get("promptTokenCount")),
        count_or_zero(counts.get("cachedContentTokenCount")),
    )
    thoughts, looked_up = (
        count_or_zero(counts.get("thoughtsTokenCount")),
        count_or_zero(counts.get("toolUsePromptTokenCount")),
    )
    output = count_or_zero(counts.get("candidatesTokenCount")) + thoughts
    # A prompt in a file at another location is counted in the total only.
    prompt = prompt or max(count_or_zero(counts.get("totalTokenCount")) - output - looked_up, 0)
    return Usage(
        input=max(prompt - cached, 0) + looked_up,
        cache_read=cached,
        output=output,
        reasoning=thoughts,
        incomplete=parse_integer(counts.get("promptTokenCount")) is None and not prompt,
        terms=decode_service_terms(counts["serviceTier"]) if "serviceTier" in counts else (),
    )


def _decode_stop(parts: Sequence[Part], meta: Mapping[str, Any]) -> tuple[Stop, str]:
    reason, message = finish_reason(meta.get("finishReason")), text_or_empty(meta.get("finishMessage"))
    feedback = meta.get("promptFeedback")
    if not reason and not parts and isinstance(feedback, dict):
        reason = finish_reason(feedback.get("blockReason")) or "OTHER"
        message = text_or_empty(feedback.get("blockReasonMessage"))
        return Stop.REFUSED, BLOCK_PREFIX + reason + (f": {message}" if message else "")
    return choose_stop(reason, parts), reason + (f": {message}" if message else "")


def choose_stop(reason: str, parts: Sequence[Part]) -> Stop:
    stop = STOPS.get(reason, Stop.OTHER)
    if stop is Stop.DONE and any(isinstance(part, ToolCall) for part in parts):
        return Stop.TOOLS
    if stop is Stop.PAUSED and not any(
        isinstance(part, Opaque) and part.kind == CONTINUATION_KIND for part in parts
    ):
        # There is no content to continue from, so the reply counts as cut off.
        return Stop.LENGTH
    return stop
