"""How a reply of Bedrock Converse ends: why it stopped and what it used, both ways.

The four counts never overlap on this wire: what was read from the cache or written to it is not part
of the input.  Every count comes twice, under two names; one is enough.  In a stream they come after the
end of the reply, so a reply can be complete and its counts lost; it then says so.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from ..values.message import Reply, Stop
from ..values.model import Model, Origin
from ..values.parts import Part
from ..values.usage import Usage
from ._bedrock_converse_dialect import FAMILY
from ._json import mended, whole
from ._terms import terms_of

LENGTH_WORD = "max_tokens"
_SEQUENCE, _GUARDED = "stop_sequence", "guardrail_intervened"
STOPS = {
    "end_turn": Stop.DONE,
    _SEQUENCE: Stop.DONE,
    "tool_use": Stop.TOOLS,
    LENGTH_WORD: Stop.LENGTH,
    "model_context_window_exceeded": Stop.CONTEXT,
    # What a model's maker refuses to have said; what the account's own rules caught is another thing.
    "content_filtered": Stop.REFUSED,
    "refusal": Stop.REFUSED,
    _GUARDED: Stop.FILTERED,
    "malformed_model_output": Stop.MALFORMED,
    "malformed_tool_use": Stop.MALFORMED,
}
_WORDS = {
    Stop.DONE: "end_turn",
    Stop.TOOLS: "tool_use",
    Stop.LENGTH: LENGTH_WORD,
    Stop.PAUSED: "end_turn",
    Stop.REFUSED: "content_filtered",
    Stop.CONTEXT: "model_context_window_exceeded",
    Stop.FILTERED: _GUARDED,
    Stop.MALFORMED: "malformed_model_output",
    Stop.OTHER: "end_turn",
}
_LONG = "1h"


def reply_of(parts: Sequence[Part], meta: Mapping[str, Any], model: Model, reply_id: str) -> Reply:
    word = _word(meta.get("stopReason"))
    why = _explanation(word, meta)
    return Reply(
        parts=tuple(parts),
        stop=STOPS.get(word, Stop.OTHER),
        origin=Origin(family=FAMILY, endpoint=model.endpoint.home, model=model.id),
        usage=replace(usage_of(meta.get("usage")), terms=_terms(meta.get("serviceTier"))),
        id=reply_id,
        stop_detail=f"{word}: {why}" if why else word,
    )


def usage_of(counts: object) -> Usage:
    if not isinstance(counts, dict):
        return Usage(incomplete=True)
    listed = counts.get("cacheDetails")
    details = [
        (_count(detail.get("inputTokens")), detail.get("ttl"))
        for detail in (listed if isinstance(listed, list) else ())
        if isinstance(detail, dict)
    ]
    written_long = sum(count for count, ttl in details if ttl == _LONG)
    written = _count(counts.get("cacheWriteInputTokens"), counts.get("cacheWriteInputTokenCount"))
    written = written or sum(count for count, _ in details)
    return Usage(
        input=_count(counts.get("inputTokens")),
        cache_read=_count(counts.get("cacheReadInputTokens"), counts.get("cacheReadInputTokenCount")),
        cache_write=written,
        output=_count(counts.get("outputTokens")),
        cache_write_1h=min(written_long, written),
    )


def _terms(tier: object) -> tuple[str, ...]:
    return terms_of(tier.get("type")) if isinstance(tier, dict) else ()


def wire_usage(usage: Usage) -> dict[str, Any]:
    counts: dict[str, Any] = {
        "cacheReadInputTokenCount": usage.cache_read,
        "cacheReadInputTokens": usage.cache_read,
        "cacheWriteInputTokenCount": usage.cache_write,
        "cacheWriteInputTokens": usage.cache_write,
        "inputTokens": usage.input,
        "outputTokens": usage.output,
        "serverToolUsage": {},
        "totalTokens": usage.total,
    }
    if usage.cache_write:
        split = {_LONG: usage.cache_write_1h, "5m": usage.cache_write - usage.cache_write_1h}
        counts["cacheDetails"] = [{"inputTokens": count, "ttl": ttl} for ttl, count in split.items() if count]
    return counts


def wire_stop(reply: Reply) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """The word for the stop, what the model's maker says of it, and what the trace says.

    They come from the detail kept when the reply came from this wire.
    """
    word, _, why = reply.stop_detail.partition(": ")
    if STOPS.get(word, Stop.OTHER) is not reply.stop or not word:
        word, why = _WORDS[reply.stop], ""
    more = {_SEQUENCE: why} if why and word == _SEQUENCE else {}
    trace = {"guardrail": {"actionReason": why}} if why and word == _GUARDED else {}
    return word, more, trace


def _explanation(word: str, meta: Mapping[str, Any]) -> str:
    match word, meta.get("additionalModelResponseFields"), meta.get("trace"):
        case "stop_sequence", {"stop_sequence": str(found)} | {"delta": {"stop_sequence": str(found)}}, _:
            return mended(found)
        case "guardrail_intervened", _, {"guardrail": {"actionReason": str(found)}}:
            return mended(found)
    return ""


def _count(*values: object) -> int:
    return next((count for value in values if (count := whole(value) or 0) > 0), 0)


def _word(value: object) -> str:
    return mended(value) if isinstance(value, str) else ""
