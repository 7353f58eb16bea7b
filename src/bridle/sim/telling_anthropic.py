"""What the Messages API tells beside an answer: why a prompt was missed, when it is asked to compare it with
an earlier one, and what of the counts went into a summary."""

from collections.abc import Mapping

from .telling import Message, Teller, Told

UNKNOWN = "previous_message_not_found"


def compared(body: Mapping[str, object]) -> str:
    asked = body.get("diagnostics")
    earlier = asked.get("previous_message_id") if isinstance(asked, dict) else None
    return earlier if isinstance(earlier, str) else ""


def tell(message: Message, told: Told) -> Message | None:
    begun, kind = message.get("message"), message.get("type")
    if kind == "message_start" and isinstance(begun, dict) and told.miss is not None:
        return {**message, "message": {**begun, "diagnostics": _diagnostics(told)}}
    if kind not in ("message", "message_delta"):
        return None
    apart = _apart(message, told)
    if kind == "message" and told.miss is not None:
        return {**(apart or message), "diagnostics": _diagnostics(told)}
    return apart


def _apart(message: Message, told: Told) -> Message | None:
    """The counts of an answer behind a summary: all of them in the list, those of the summary only there."""
    counts, made = message.get("usage"), told.summary
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


def _diagnostics(told: Told) -> Message:
    miss = told.miss
    if miss is None or not miss.what:
        return {"cache_miss_reason": None}
    if miss.what == "unknown":
        return {"cache_miss_reason": {"type": UNKNOWN}}
    reason = {"type": f"{miss.what}_changed", "cache_missed_input_tokens": miss.tokens}
    return {"cache_miss_reason": reason}


TELLER = Teller(tell=tell, compared=compared)
