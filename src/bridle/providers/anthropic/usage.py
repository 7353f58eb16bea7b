"""How a reply of Anthropic ends: why it stopped and what it used, both ways.

Counts of a stream are totals so far, so the last one is the whole.  When the provider compacted or
fell back on the way, its top-level counts leave those calls out; the list of iterations has them all,
and they are paid for, so they are summed.  A reply without counts says so: unknown is not nought.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from bridle.providers.wire.json import parse_integer, repair_surrogates
from bridle.providers.wire.usage import decode_service_terms, encode_service_tier
from bridle.values.message import Opaque, Part, Reply, Stop
from bridle.values.model import Model, Origin
from bridle.values.usage import Usage

from .parts import COMPACTION, FAMILY

LENGTH_STOP, COMPACTION_STOP = "max_tokens", "compaction"
STOPS = {
    "end_turn": Stop.DONE,
    "stop_sequence": Stop.DONE,
    "tool_use": Stop.TOOLS,
    LENGTH_STOP: Stop.LENGTH,
    "pause_turn": Stop.PAUSED,
    "refusal": Stop.REFUSED,
    "model_context_window_exceeded": Stop.CONTEXT,
    COMPACTION_STOP: Stop.PAUSED,
}
_WIRE_STOPS = {
    Stop.DONE: "end_turn",
    Stop.TOOLS: "tool_use",
    Stop.LENGTH: LENGTH_STOP,
    Stop.PAUSED: "pause_turn",
    Stop.REFUSED: "refusal",
    Stop.CONTEXT: "model_context_window_exceeded",
    Stop.FILTERED: "refusal",
    Stop.MALFORMED: "end_turn",
    Stop.OTHER: "end_turn",
}
_ITERATION_FIELDS = (
    "input_tokens",
    "cache_creation_input_tokens",
    "cache_read_input_tokens",
    "cache_creation",
    "output_tokens",
)
_STOP_DETAIL = re.compile(r"(\w+)(?: \((\w+)\))?(?:: (.*))?", re.DOTALL)
"""`word`, `word (category)`, `word: explanation`, `word (category): explanation`."""


def build_reply(
    parts: Sequence[Part], meta: Mapping[str, Any], usage: Mapping[str, Any], model: Model
) -> Reply:
    word = _text_or_empty(meta.get("stop_reason"))
    stop = STOPS.get(word, Stop.OTHER)
    counted = decode_usage(usage)
    return Reply(
        parts=tuple(parts),
        stop=stop,
        origin=Origin(
            family=FAMILY,
            endpoint=model.endpoint.endpoint_id,
            model=_text_or_empty(meta.get("model")) or model.id,
        ),
        # Who is refused before a word is said is told what was read, and not charged for it.
        usage=replace(counted, unbilled=True) if stop is Stop.REFUSED and not parts else counted,
        id=_text_or_empty(meta.get("id")),
        stop_detail=_stop_detail(word, meta),
        cache_miss_reason=_cache_miss_reason(meta.get("diagnostics")),
    )


def _cache_miss_reason(diagnostics: object) -> str:
    """Why the prompt was not found; nothing when it was, or when that could not be told."""
    reason = diagnostics.get("cache_miss_reason") if isinstance(diagnostics, dict) else None
    kind = _text_or_empty(reason.get("type")) if isinstance(reason, dict) else ""
    return kind if kind.endswith("_changed") else ""


def decode_usage(counts: Mapping[str, Any]) -> Usage:
    listed = counts.get("iterations")
    iterations = [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []
    if any(each.get("type") != "message" for each in iterations):
        total = sum(map(_decode_counts, iterations[1:]), _decode_counts(iterations[0]))
        told = _decode_counts(counts)
        return replace(
            total + Usage(reasoning=told.reasoning),
            searches=max(total.searches, told.searches),
            terms=told.terms,
        )
    return _decode_counts(counts)


def encode_usage(usage: Usage) -> dict[str, Any]:
    if not usage.is_known:
        return {}
    written_1h = usage.cache_write_1h
    counts: dict[str, Any] = {
        "input_tokens": usage.input,
        "cache_creation_input_tokens": usage.cache_write,
        "cache_read_input_tokens": usage.cache_read,
        "cache_creation": {
            "ephemeral_5m_input_tokens": usage.cache_write - written_1h,
            "ephemeral_1h_input_tokens": written_1h,
        },
        "output_tokens": usage.output,
    }
    if usage.reasoning:
        counts["output_tokens_details"] = {"thinking_tokens": usage.reasoning}
    if tier := encode_service_tier(usage.terms):
        counts["service_tier"] = tier
    if usage.searches:
        counts["server_tool_use"] = {"web_search_requests": usage.searches}
    return counts


def split_summary_usage(reply: Reply, counts: dict[str, Any]) -> dict[str, Any]:
    """The counts of a reply that begins with a summary: what that took is told in the list alone."""
    if not any(isinstance(part, Opaque) and part.kind == COMPACTION for part in reply.parts):
        return counts
    whole = {name: counts[name] for name in _ITERATION_FIELDS if name in counts}
    nothing = {name: 0 for name, value in whole.items() if isinstance(value, int)}
    if encode_stop(reply)["stop_reason"] != COMPACTION_STOP:
        return {**counts, "iterations": [{"type": COMPACTION, **nothing}, {"type": "message", **whole}]}
    beside = {name: value for name, value in counts.items() if name not in _ITERATION_FIELDS}
    return {**nothing, **beside, "iterations": [{"type": COMPACTION, **whole}]}


def encode_stop(reply: Reply) -> dict[str, Any]:
    """`stop_reason` and what explains it, from the detail kept when it came from this wire."""
    found = _STOP_DETAIL.fullmatch(reply.stop_detail)
    word, category, rest = found.groups() if found else ("", None, None)
    if STOPS.get(word, Stop.OTHER) is not reply.stop or not word:
        word, category, rest = _WIRE_STOPS[reply.stop], None, None
    stop: dict[str, Any] = {"stop_reason": word, "stop_sequence": None, "stop_details": None}
    if word == "stop_sequence":
        stop["stop_sequence"] = rest
    elif category or rest:
        stop["stop_details"] = {"type": word, "category": category, "explanation": rest}
    return stop


def _stop_detail(word: str, meta: Mapping[str, Any]) -> str:
    details = meta.get("stop_details")
    category = explanation = ""
    if isinstance(details, dict):
        category, explanation = (
            _text_or_empty(details.get("category")),
            _text_or_empty(details.get("explanation")),
        )
    elif word == "stop_sequence":
        explanation = _text_or_empty(meta.get("stop_sequence"))
    return word + (f" ({category})" if category else "") + (f": {explanation}" if explanation else "")


def _decode_counts(counts: Mapping[str, Any]) -> Usage:
    split, details = counts.get("cache_creation"), counts.get("output_tokens_details")
    split = split if isinstance(split, dict) else {}
    served = counts.get("server_tool_use")
    served = served if isinstance(served, dict) else {}
    details = details if isinstance(details, dict) else {}
    written_5m = _count_or_zero(split.get("ephemeral_5m_input_tokens"))
    written_1h = _count_or_zero(split.get("ephemeral_1h_input_tokens"))
    written = _count_or_zero(counts.get("cache_creation_input_tokens")) or written_5m + written_1h
    return Usage(
        input=_count_or_zero(counts.get("input_tokens")),
        cache_read=_count_or_zero(counts.get("cache_read_input_tokens")),
        cache_write=written,
        output=_count_or_zero(counts.get("output_tokens")),
        reasoning=_count_or_zero(details.get("thinking_tokens")),
        cache_write_1h=min(written_1h, written),
        incomplete="input_tokens" not in counts or "output_tokens" not in counts,
        searches=_count_or_zero(served.get("web_search_requests")),
        terms=decode_service_terms(counts.get("service_tier"), place=counts.get("inference_geo")),
    )


def _count_or_zero(value: object) -> int:
    return max(parse_integer(value) or 0, 0)


def _text_or_empty(value: object) -> str:
    return repair_surrogates(value) if isinstance(value, str) else ""
