"""Why a prompt was missed, as the Messages API says it when it is asked to compare with an earlier answer."""

from collections.abc import Mapping

from .telling import Message, Teller, Told

UNKNOWN = "previous_message_not_found"


def compared(body: Mapping[str, object]) -> str:
    asked = body.get("diagnostics")
    earlier = asked.get("previous_message_id") if isinstance(asked, dict) else None
    return earlier if isinstance(earlier, str) else ""


def tell(message: Message, told: Told) -> Message | None:
    if told.miss is None:
        return None
    begun = message.get("message")
    if message.get("type") == "message_start" and isinstance(begun, dict):
        return {**message, "message": {**begun, "diagnostics": _diagnostics(told)}}
    return {**message, "diagnostics": _diagnostics(told)} if message.get("type") == "message" else None


def _diagnostics(told: Told) -> Message:
    miss = told.miss
    if miss is None or not miss.what:
        return {"cache_miss_reason": None}
    if miss.what == "unknown":
        return {"cache_miss_reason": {"type": UNKNOWN}}
    reason = {"type": f"{miss.what}_changed", "cache_missed_input_tokens": miss.tokens}
    return {"cache_miss_reason": reason}


TELLER = Teller(tell=tell, compared=compared)
