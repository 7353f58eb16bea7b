"""What the Messages API tells beside an answer: why a prompt was missed, when it is asked to compare it with
an earlier one, and what of the counts went into a summary."""

from collections.abc import Mapping

from bridle.sim.cache.cache_report import CacheReport, CacheReporter, Message

UNKNOWN_MESSAGE = "previous_message_not_found"


def find_compared_reply(body: Mapping[str, object]) -> str:
    asked = body.get("diagnostics")
    earlier = asked.get("previous_message_id") if isinstance(asked, dict) else None
    return earlier if isinstance(earlier, str) else ""


def report_cache_use(message: Message, told: CacheReport) -> Message | None:
    begun, kind = message.get("message"), message.get("type")
    if kind == "message_start" and isinstance(begun, dict) and told.difference is not None:
        return {**message, "message": {**begun, "diagnostics": _diagnostics(told)}}
    if kind not in ("message", "message_delta"):
        return None
    apart = _split_usage(message, told)
    if kind == "message" and told.difference is not None:
        return {**(apart or message), "diagnostics": _diagnostics(told)}
    return apart


def _split_usage(message: Message, told: CacheReport) -> Message | None:
    """The counts of an answer behind a summary: all of them in the list, those of the summary only there."""
    counts, made = message.get("usage"), told.summary_usage
    if made is None or not isinstance(counts, dict):
        return None
    message = {**message, "context_management": {"applied_edits": []}}
    if len(counts["iterations"]) < 2:
        return message
    took = {
        "input_tokens": made.input,
        "cache_creation_input_tokens": made.cache_write,
        "cache_read_input_tokens": made.cache_read,
        "output_tokens": made.output,
    }
    rest = {name: counts[name] - value for name, value in took.items()}
    split = {"ephemeral_5m_input_tokens": made.cache_write - made.cache_write_1h,
             "ephemeral_1h_input_tokens": made.cache_write_1h}  # fmt: skip
    listed = [
        {"type": "compaction", **took, "cache_creation": split},
        {"type": "message", **rest},
    ]
    plain = {name: value for name, value in counts.items() if name != "cache_creation"}
    return {**message, "usage": {**plain, **rest, "iterations": listed}}


def _diagnostics(told: CacheReport) -> Message:
    miss = told.difference
    if miss is None or not miss.what:
        return {"cache_miss_reason": None}
    if miss.what == "unknown":
        return {"cache_miss_reason": {"type": UNKNOWN_MESSAGE}}
    reason = {"type": f"{miss.what}_changed", "cache_missed_input_tokens": miss.tokens}
    return {"cache_miss_reason": reason}


CACHE_REPORTER = CacheReporter(add_report=report_cache_use, find_compared_reply=find_compared_reply)
