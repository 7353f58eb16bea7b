"""How a reply of the Responses wire ends: why it stopped and what it used, both ways.

The wire says `completed`, or `incomplete` with a reason; that a reply is a call or a refusal shows only in
its items.  The status of an item decides nothing: its content does.  Counts contain one another:
`input_tokens` has what was read from and written to the cache in it, `output_tokens` the reasoning.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from ..values.message import Reply, Stop
from ..values.model import Model, Origin
from ..values.parts import Opaque, Part, ToolCall
from ..values.usage import Usage
from ._json import loads, whole
from ._openai_responses_content import said, word
from ._openai_responses_hosted import HOSTED
from ._openai_responses_items import CUSTOM_CALL, FAMILY, has_refusal, kind_of, parts_of
from ._terms import terms_of

REASONS = {
    "max_output_tokens": Stop.LENGTH,
    "content_filter": Stop.FILTERED,
    "max_messages": Stop.PAUSED,
    "steered": Stop.PAUSED,
}
_WORDS = {
    Stop.LENGTH: "max_output_tokens",
    Stop.CONTEXT: "max_output_tokens",  # also what it says when the window is full
    Stop.FILTERED: "content_filter",
    Stop.PAUSED: "max_messages",
    Stop.MALFORMED: "other",
    Stop.OTHER: "other",
}
COMPACTED, COMPACTION = "response.compaction", "compaction"
NOT_DONE = {
    "queued": "is still waiting to be made",
    "in_progress": "is still being made",
    "cancelled": "was cancelled",
}
"""States in which a response is no reply: only one that is made in the background has them."""
_DETAIL = re.compile(r"incomplete: (\w+)")


def reply_of(response: Mapping[str, Any], items: Sequence[object], model: Model) -> Reply:
    """A reply from the response object; its items may have arrived elsewhere.

    A response that is not done (`NOT_DONE`) never comes here.  Raises `ValueError` for an item that does not
    say what it is: it may have been a call.
    """
    if any(isinstance(item, dict) and not kind_of(item) for item in items):
        raise ValueError("an item of the output has no type")
    details = response.get("incomplete_details")
    reason = word(details.get("reason")) if isinstance(details, dict) else ""
    status = word(response.get("status")) or ("incomplete" if reason else "completed")
    parts = parts_of(items, refused=False, surface=True)
    if response.get("object") == COMPACTED:
        parts, stop, detail = tuple(map(_in_words, parts)), Stop.PAUSED, COMPACTION
    elif status == "incomplete":
        parts = _leave_open(parts, items)
        stop, detail = REASONS.get(reason, Stop.OTHER), f"incomplete: {reason}" if reason else status
    elif any(isinstance(part, ToolCall) for part in parts):
        stop, detail = Stop.TOOLS, status
    elif has_refusal(items):
        parts, stop, detail = parts_of(items, refused=True, surface=True), Stop.REFUSED, "refusal"
    else:
        stop, detail = Stop.DONE, status
    return Reply(
        parts=parts,
        stop=stop,
        origin=Origin(
            family=FAMILY, endpoint=model.endpoint.home, model=word(response.get("model")) or model.id
        ),
        usage=replace(usage_of(response.get("usage")), terms=terms_of(response.get("service_tier"))),
        id=word(response.get("id")),
        stop_detail=detail,
        missed=_missed(response.get("prompt_cache_diagnostics")),
    )


def _leave_open(parts: tuple[Part, ...], items: Sequence[object]) -> tuple[Part, ...]:
    """The parts, with a call at the end unfit to run if its form does not show that it is whole."""
    last, call = items[-1] if items else None, parts[-1] if parts else None
    if not isinstance(last, dict) or not isinstance(call, ToolCall):
        return parts
    if kind_of(last) != CUSTOM_CALL and kind_of(last) not in HOSTED:
        return parts  # JSON shows where it ends, and what comes after a call shows that the call is whole
    return (*parts[:-1], replace(call, arguments=call.arguments.removesuffix("}")))


def _missed(told: object) -> str:
    """Why the prompt was not found; nothing when it was, or when that could not be told."""
    miss = isinstance(told, dict) and told.get("type") == "cache_miss"
    return word(told.get("reason")) if isinstance(told, dict) and miss else ""


def is_compacted(reply: Reply) -> bool:
    """Whether it is no answer, but what stands for a conversation."""
    return reply.stop is Stop.PAUSED and reply.stop_detail == COMPACTION


def _in_words(part: Part) -> Part:
    """What people said is among the items of a conversation that was made short, for all to read."""
    if not isinstance(part, Opaque) or part.kind != "message":
        return part
    pieces = said(loads(part.native).get("content"), "input_text") or []
    texts = (word(piece.get("text")) for piece in pieces if isinstance(piece, dict))
    return replace(part, text="\n".join(filter(None, texts)))


def wire_end(reply: Reply) -> dict[str, Any]:
    """`status` and what explains it, from the detail kept when the reply came from this wire."""
    if reply.stop is Stop.OTHER and reply.stop_detail in NOT_DONE:
        return {"status": reply.stop_detail, "incomplete_details": None}
    if reply.stop not in _WORDS:
        return {"status": "completed", "incomplete_details": None}
    found = _DETAIL.fullmatch(reply.stop_detail)
    reason = found.group(1) if found else ""
    if not reason or REASONS.get(reason, Stop.OTHER) is not reply.stop:
        reason = _WORDS[reply.stop]
    return {"status": "incomplete", "incomplete_details": {"reason": reason}}


def usage_of(counts: object) -> Usage:
    if not isinstance(counts, dict) or whole(counts.get("input_tokens")) is None:
        return Usage(incomplete=True)
    details, made = _inside(counts, "input_tokens_details"), _inside(counts, "output_tokens_details")
    prompt = _count(counts.get("input_tokens"))
    read = min(_count(details.get("cached_tokens")), prompt)
    written = min(_count(details.get("cache_write_tokens")), prompt - read)
    # The longest-lived kind of entry has a price of its own, like the hour elsewhere.
    long_lived = _count(_inside(details, "cache_write_tokens_details").get("ttl_12h_tokens"))
    reasoning = _count(made.get("reasoning_tokens"))
    return Usage(
        input=prompt - read - written,
        cache_read=read,
        cache_write=written,
        output=max(_count(counts.get("output_tokens")), reasoning),
        reasoning=reasoning,
        cache_write_1h=min(long_lived, written),
    )


def wire_usage(usage: Usage) -> dict[str, Any] | None:
    if not usage.known:
        return None
    details: dict[str, Any] = {"cached_tokens": usage.cache_read, "cache_write_tokens": usage.cache_write}
    if usage.cache_write_1h:
        details["cache_write_tokens_details"] = {
            "ttl_30m_tokens": usage.cache_write - usage.cache_write_1h,
            "ttl_12h_tokens": usage.cache_write_1h,
        }
    return {
        "input_tokens": usage.prompt,
        "input_tokens_details": details,
        "output_tokens": usage.output,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning},
        "total_tokens": usage.total,
    }


def _inside(counts: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    inner = counts.get(name)
    return inner if isinstance(inner, dict) else {}


def _count(value: object) -> int:
    return max(whole(value) or 0, 0)
