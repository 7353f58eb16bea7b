"""Stop reason and token usage of a Bedrock Converse reply.

The four counts never overlap on this wire: input excludes cache reads and writes.  Every count comes twice,
under two names; one is used.  In a stream the counts follow the end of the reply, so a complete reply may lack
them; it is marked as such.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from bridle.providers.wire.json import parse_integer, repair_surrogates, text_or_empty
from bridle.values.message import Part, Reply, Stop
from bridle.values.model import Model, make_origin
from bridle.values.usage import Usage, list_service_terms

LENGTH_STOP = "max_tokens"
STOP_SEQUENCE, GUARDRAIL = "stop_sequence", "guardrail_intervened"
STOPS = {
    "end_turn": Stop.DONE,
    STOP_SEQUENCE: Stop.DONE,
    "tool_use": Stop.TOOLS,
    LENGTH_STOP: Stop.LENGTH,
    "model_context_window_exceeded": Stop.CONTEXT,
    # Filtered by the model's vendor; content caught by the account's own guardrails has another reason.
    "content_filtered": Stop.REFUSED,
    "refusal": Stop.REFUSED,
    GUARDRAIL: Stop.FILTERED,
    "malformed_model_output": Stop.MALFORMED,
    "malformed_tool_use": Stop.MALFORMED,
}
LONG_TTL = "1h"


def build_reply(parts: Sequence[Part], meta: Mapping[str, Any], model: Model, reply_id: str) -> Reply:
    word = text_or_empty(meta.get("stopReason"))
    why = _stop_explanation(word, meta)
    return Reply(
        parts=tuple(parts),
        stop=STOPS.get(word, Stop.OTHER),
        origin=make_origin(model),
        usage=decode_usage(meta.get("usage"), _decode_terms(meta)),
        id=reply_id,
        stop_detail=f"{word}: {why}" if why else word,
    )


def _decode_terms(meta: Mapping[str, Any]) -> tuple[str, ...]:
    return list_service_terms(meta) if "serviceTier" in meta or "performanceConfig" in meta else ()


def decode_usage(counts: object, terms: tuple[str, ...] = ()) -> Usage:
    if not isinstance(counts, dict):
        return Usage(incomplete=True, terms=terms)
    listed = counts.get("cacheDetails")
    details = [
        (_first_count(detail.get("inputTokens")), detail.get("ttl"))
        for detail in (listed if isinstance(listed, list) else ())
        if isinstance(detail, dict)
    ]
    written_long = sum(count for count, ttl in details if ttl == LONG_TTL)
    written = _first_count(counts.get("cacheWriteInputTokens"), counts.get("cacheWriteInputTokenCount"))
    written = written or sum(count for count, _ in details)
    return Usage(
        input=_first_count(counts.get("inputTokens")),
        cache_read=_first_count(counts.get("cacheReadInputTokens"), counts.get("cacheReadInputTokenCount")),
        cache_write=written,
        output=_first_count(counts.get("outputTokens")),
        cache_write_1h=min(written_long, written),
        terms=terms,
    )


def _stop_explanation(word: str, meta: Mapping[str, Any]) -> str:
    match word, meta.get("additionalModelResponseFields"), meta.get("trace"):
        case "stop_sequence", {"stop_sequence": str(found)} | {"delta": {"stop_sequence": str(found)}}, _:
            return repair_surrogates(found)
        case "guardrail_intervened", _, {"guardrail": {"actionReason": str(found)}}:
            return repair_surrogates(found)
    return ""


def _first_count(*values: object) -> int:
    return next((count for value in values if (count := parse_integer(value) or 0) > 0), 0)
