"""Stop reason and token usage of an Anthropic reply.

Counts in a stream are totals so far, so the last one counts.  If the provider compacted or fell back, its
top-level counts exclude those calls; they are billed, so the list of iterations is summed.  A reply without
counts is marked as such: unknown is not zero.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from msgspec import Meta, Struct, convert
from msgspec.structs import replace

from bridle.providers.wire.input_changes import describe_input_changes
from bridle.providers.wire.json import count_or_zero, text_or_empty
from bridle.providers.wire.usage import decode_service_terms
from bridle.values.message import Opaque, Part, Reply, Stop
from bridle.values.model import Model, make_origin
from bridle.values.usage import STANDARD_TERMS, Usage, list_service_terms

Count = Annotated[int, Meta(ge=0)]
CODE_RESULT = "code_execution_tool_result"
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


def build_reply(
    parts: Sequence[Part], meta: Mapping[str, Any], usage: Mapping[str, Any], model: Model
) -> Reply:
    word = text_or_empty(meta.get("stop_reason"))
    stop = STOPS.get(word, Stop.OTHER)
    counted = decode_usage(usage)
    for part in parts:
        if type(part) is Opaque and part.kind.endswith(CODE_RESULT):
            counted = replace(counted, containers=1)  # a reply has one
    return Reply(
        parts=tuple(parts),
        stop=stop,
        origin=make_origin(model, text_or_empty(meta.get("model"))),
        # A request refused before any output is reported with its input tokens but not billed.
        usage=replace(counted, unbilled=True) if stop is Stop.REFUSED and not parts else counted,
        id=text_or_empty(meta.get("id")),
        stop_detail=_stop_detail(word, meta),
        cache_miss_reason=_cache_miss_reason(meta.get("diagnostics")),
        input_changes=describe_input_changes(meta["input_transformations"])
        if meta.get("input_transformations")
        else (),
    )


def _cache_miss_reason(diagnostics: object) -> str:
    """Return why the prompt was not cached; empty if it was, or if the reason is unknown."""
    reason = diagnostics.get("cache_miss_reason") if isinstance(diagnostics, dict) else None
    kind = text_or_empty(reason.get("type")) if isinstance(reason, dict) else ""
    return kind if kind.endswith("_changed") else ""


def decode_usage(counts: Mapping[str, Any]) -> Usage:
    listed = counts.get("iterations")
    if not isinstance(listed, list):
        return _decode_counts(counts)
    iterations = [each for each in listed if isinstance(each, dict)]
    if any(each.get("type") != "message" for each in iterations):
        total = sum(map(_decode_counts, iterations[1:]), _decode_counts(iterations[0]))
        told = _decode_counts(counts)
        return replace(
            total + Usage(reasoning=told.reasoning),
            searches=max(total.searches, told.searches),
            terms=told.terms,
        )
    return _decode_counts(counts)


def _stop_detail(word: str, meta: Mapping[str, Any]) -> str:
    details = meta.get("stop_details")
    category = explanation = ""
    if isinstance(details, dict):
        category = text_or_empty(details.get("category"))
        explanation = text_or_empty(details.get("explanation"))
    elif word == "stop_sequence":
        explanation = text_or_empty(meta.get("stop_sequence"))
    return word + (f" ({category})" if category else "") + (f": {explanation}" if explanation else "")


class _CacheCreation(Struct, gc=False):
    ephemeral_5m_input_tokens: Count = 0
    ephemeral_1h_input_tokens: Count = 0


class UsualCounts(Struct, gc=False):
    """The counts of an ordinary reply. Anything else is read by `_decode_counts`, which tolerates all values."""

    input_tokens: Count
    output_tokens: Count
    cache_read_input_tokens: Count = 0
    cache_creation_input_tokens: Count = 0
    cache_creation: _CacheCreation | None = None
    output_tokens_details: None = None
    server_tool_use: None = None
    iterations: None = None
    service_tier: str = ""
    inference_geo: str = ""
    speed: str = ""


def count_usual_usage(found: UsualCounts) -> Usage:
    split = found.cache_creation
    written, written_1h = found.cache_creation_input_tokens, 0
    if split is not None:
        written = written or split.ephemeral_5m_input_tokens + split.ephemeral_1h_input_tokens
        written_1h = min(split.ephemeral_1h_input_tokens, written)
    terms: tuple[str, ...] = ()
    words = found.service_tier, found.inference_geo, found.speed
    if not STANDARD_TERMS.issuperset(words):
        terms = decode_service_terms(words[0], place=words[1], speed=words[2])
    return Usage(
        input=found.input_tokens,
        cache_read=found.cache_read_input_tokens,
        cache_write=written,
        output=found.output_tokens,
        cache_write_1h=written_1h,
        terms=terms,
    )


def _decode_counts(counts: Mapping[str, Any]) -> Usage:
    try:
        return count_usual_usage(convert(counts, UsualCounts))
    except ValueError:  # half of a surrogate pair is no ValidationError
        pass  # read below, value by value
    split, details = counts.get("cache_creation"), counts.get("output_tokens_details")
    split = split if isinstance(split, dict) else {}
    served = counts.get("server_tool_use")
    served = served if isinstance(served, dict) else {}
    details = details if isinstance(details, dict) else {}
    written_5m = count_or_zero(split.get("ephemeral_5m_input_tokens"))
    written_1h = count_or_zero(split.get("ephemeral_1h_input_tokens"))
    written = count_or_zero(counts.get("cache_creation_input_tokens")) or written_5m + written_1h
    return Usage(
        input=count_or_zero(counts.get("input_tokens")),
        cache_read=count_or_zero(counts.get("cache_read_input_tokens")),
        cache_write=written,
        output=count_or_zero(counts.get("output_tokens")),
        reasoning=count_or_zero(details.get("thinking_tokens")),
        cache_write_1h=min(written_1h, written),
        incomplete="input_tokens" not in counts or "output_tokens" not in counts,
        searches=count_or_zero(served.get("web_search_requests")),
        terms=list_service_terms(counts),
    )
