"""Whether a prompt was found, and why not, as the Responses API says it when asked to compare answers."""

from collections.abc import Mapping

from .telling import Message, Teller, Told

REASONS = {
    "model": "model_changed",
    "prompt_cache_key": "prompt_cache_key_changed",
    "tools": "tools_changed",
    "text.format": "text_format_changed",
    "reasoning.effort": "reasoning_effort_changed",
    "text.verbosity": "verbosity_changed",
    "context_management": "context_compacted",
    "service_tier": "service_tier_changed",
}
OTHER = "input_changed"


def compared(body: Mapping[str, object]) -> str:
    options = body.get("prompt_cache_options")
    earlier = options.get("comparison_response_id") if isinstance(options, dict) else None
    return earlier if isinstance(earlier, str) else ""


def tell(message: Message, told: Told) -> Message | None:
    if told.miss is None:
        return None
    if message.get("object") == "response":
        return {**message, "prompt_cache_diagnostics": _diagnostics(told)}
    ended = message.get("response")
    if isinstance(ended, dict) and ended.get("usage"):
        return {**message, "response": {**ended, "prompt_cache_diagnostics": _diagnostics(told)}}
    return None


def _diagnostics(told: Told) -> Message:
    miss = told.miss
    if miss is None or not miss.what:
        return {"type": "cache_hit"}
    if miss.what == "unknown":
        return {"type": "comparison_response_not_found"}
    reason = REASONS.get(miss.what, OTHER)
    return {"type": "cache_miss", "reason": reason, "cache_missed_tokens": miss.tokens}


TELLER = Teller(tell=tell, compared=compared)
