"""Cache reports of the Responses API: hits, and on request the reason for a miss."""

from collections.abc import Mapping

from bridle.sim.cache.cache_report import CacheReport, CacheReporter, Message

CHANGE_REASONS = {
    "model": "model_changed",
    "prompt_cache_key": "prompt_cache_key_changed",
    "tools": "tools_changed",
    "text.format": "text_format_changed",
    "reasoning.effort": "reasoning_effort_changed",
    "text.verbosity": "verbosity_changed",
    "context_management": "context_compacted",
    "service_tier": "service_tier_changed",
}
OTHER_REASON = "input_changed"


def find_compared_reply(body: Mapping[str, object]) -> str:
    options = body.get("prompt_cache_options")
    earlier = options.get("comparison_response_id") if isinstance(options, dict) else None
    return earlier if isinstance(earlier, str) else ""


def report_cache_use(message: Message, report: CacheReport) -> Message | None:
    if report.difference is None:
        return None
    if message.get("object") == "response":
        return {**message, "prompt_cache_diagnostics": _diagnostics(report)}
    ended = message.get("response")
    if isinstance(ended, dict) and ended.get("usage"):
        return {**message, "response": {**ended, "prompt_cache_diagnostics": _diagnostics(report)}}
    return None


def _diagnostics(report: CacheReport) -> Message:
    miss = report.difference
    if miss is None or not miss.what:
        return {"type": "cache_hit"}
    if miss.what == "unknown":
        return {"type": "comparison_response_not_found"}
    reason = CHANGE_REASONS.get(miss.what, OTHER_REASON)
    return {"type": "cache_miss", "reason": reason, "cache_missed_tokens": miss.tokens}


CACHE_REPORTER = CacheReporter(add_report=report_cache_use, find_compared_reply=find_compared_reply)
