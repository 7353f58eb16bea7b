"""Cache reports of the Messages API: the reason for a cache miss, and the usage of an automatic summary.

The reason is only reported if the request asks for a comparison with an earlier answer.
"""

from collections.abc import Mapping

from bridle.sim.cache.cache_report import CacheReport, CacheReporter, Message

UNKNOWN_MESSAGE = "previous_message_not_found"


def find_compared_reply(body: Mapping[str, object]) -> str:
    diagnostics = body.get("diagnostics")
    earlier = diagnostics.get("previous_message_id") if isinstance(diagnostics, dict) else None
    return earlier if isinstance(earlier, str) else ""


def report_cache_use(message: Message, report: CacheReport) -> Message | None:
    begun, kind = message.get("message"), message.get("type")
    if kind == "message_start" and isinstance(begun, dict) and report.difference is not None:
        return {**message, "message": {**begun, "diagnostics": _diagnostics(report)}}
    if kind not in ("message", "message_delta"):
        return None
    apart = _split_usage(message, report)
    if kind == "message" and report.difference is not None:
        return {**(apart or message), "diagnostics": _diagnostics(report)}
    return apart


def _split_usage(message: Message, report: CacheReport) -> Message | None:
    """Split the usage of an answer after a summary: the list holds all of it, the top level the answer's."""
    counts, summary_usage = message.get("usage"), report.summary_usage
    if summary_usage is None or not isinstance(counts, dict):
        return None
    message = {**message, "context_management": {"applied_edits": []}}
    if len(counts["iterations"]) < 2:
        return message
    took = {
        "input_tokens": summary_usage.input,
        "cache_creation_input_tokens": summary_usage.cache_write,
        "cache_read_input_tokens": summary_usage.cache_read,
        "output_tokens": summary_usage.output,
    }
    rest = {name: counts[name] - value for name, value in took.items()}
    split = {"ephemeral_5m_input_tokens": summary_usage.cache_write - summary_usage.cache_write_1h,
             "ephemeral_1h_input_tokens": summary_usage.cache_write_1h}  # fmt: skip
    listed = [
        {"type": "compaction", **took, "cache_creation": split},
        {"type": "message", **rest},
    ]
    plain = {name: value for name, value in counts.items() if name != "cache_creation"}
    return {**message, "usage": {**plain, **rest, "iterations": listed}}


def _diagnostics(report: CacheReport) -> Message:
    miss = report.difference
    if miss is None or not miss.what:
        return {"cache_miss_reason": None}
    if miss.what == "unknown":
        return {"cache_miss_reason": {"type": UNKNOWN_MESSAGE}}
    reason = {"type": f"{miss.what}_changed", "cache_missed_input_tokens": miss.tokens}
    return {"cache_miss_reason": reason}


CACHE_REPORTER = CacheReporter(add_report=report_cache_use, find_compared_reply=find_compared_reply)
