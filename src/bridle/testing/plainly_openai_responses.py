"""What a reply of the Responses wire says, read plainly: see `plainly.py`.

The last event of a stream holds the whole response; where a server leaves its items out of it, they are
those that were said to be done, by their places.  Pieces of one train of thought are put a blank line
apart, which is ours and not the provider's.
"""

from collections.abc import Sequence
from typing import Any

from .plainly import Said, Told, inside, joined, listed, number, uneven, words, written

REASONS = {
    "max_output_tokens": "length",
    "content_filter": "filtered",
    "max_messages": "paused",
    "steered": "paused",
}
_SPOKEN = ("output_text", "input_text", "text", "refusal")
"""Kinds of content that are words; the rest is kept and said to nobody."""
_NOT_DONE = ("queued", "in_progress", "cancelled")
_OURS = ("shell_call", "local_shell_call", "apply_patch_call", "computer_call")
"""Calls of the provider's own tools that the client runs, unless the provider says where it did."""
_LAST = ("response.completed", "response.incomplete", "response.failed", "response.done")


def told(said: Sequence[Said]) -> Told | None:
    response = _response([event for _, event in said])
    if response is None or response.get("status") in ("failed", *_NOT_DONE):
        return None
    reason = words(inside(response, "incomplete_details", "reason"))
    status = words(response.get("status")) or ("incomplete" if reason else "completed")
    items = listed(response.get("output"))
    pieces = [
        piece
        for item in items
        if _kind(item) == "message" and item.get("role", "assistant") == "assistant"
        for piece in _pieces(item.get("content"))
        if piece.get("type") in _SPOKEN
    ]
    answered = {item.get("call_id") for item in items if _kind(item).endswith("_call_output")}
    calls = [_call(item) for item in items if _is_call(item, answered)]
    shortened = response.get("object") == "response.compaction"
    usage = response.get("usage")
    return Told(
        text=joined([words(piece.get("text")) + words(piece.get("refusal")) for piece in pieces]),
        reasoning=joined([_thought(item) for item in items if _kind(item) == "reasoning"]),
        calls=tuple(calls),
        counts=_counts(usage) if isinstance(usage, dict) else {},
        stop="paused"
        if shortened
        else _stop(
            status,
            reason,
            called=bool(calls),
            refused=any(piece.get("type") == "refusal" for piece in pieces),
        ),
        excused=_excused(usage),
    )


def _response(events: Sequence[Any]) -> dict[str, Any] | None:
    if len(events) == 1 and inside(events[0], "object") == "response":
        return dict(events[0])
    if len(events) == 1 and "output" in events[0] and "type" not in events[0]:
        return dict(events[0])
    last = next((event for event in events if inside(event, "type") in _LAST), None)
    if last is None or any(inside(event, "type") == "error" for event in events):
        return None
    response = dict(last["response"])
    if not response.get("output"):
        done = [event for event in events if inside(event, "type") == "response.output_item.done"]
        by_place = {number(event, "output_index"): event["item"] for event in done}
        response["output"] = [by_place[place] for place in sorted(by_place)]
    return response


def _kind(item: dict[str, Any]) -> str:
    return words(item.get("type")) or ("message" if "role" in item else "")


def _pieces(content: object) -> list[dict[str, Any]]:
    return [{"type": "output_text", "text": content}] if isinstance(content, str) else listed(content)


def _is_call(item: dict[str, Any], answered: set[Any]) -> bool:
    kind = _kind(item)
    if kind in _OURS and item.get("call_id") not in answered | {None}:
        return not words(inside(item, "environment", "type")).startswith("container")
    return kind in ("function_call", "custom_tool_call", "mcp_approval_request")


def _call(item: dict[str, Any]) -> tuple[str, str]:
    kind = _kind(item)
    if kind in ("shell_call", "local_shell_call"):
        given = {name: value for name, value in item["action"].items() if value is not None}
        return kind.removesuffix("_call"), written(given)
    if kind == "apply_patch_call":
        return "apply_patch", written(item["operation"])
    if kind in ("computer_call", "mcp_approval_request"):
        asked = ("action", "actions", "pending_safety_checks", "server_label", "name", "arguments")
        given = {name: item[name] for name in asked if item.get(name)}
        return "computer" if kind == "computer_call" else "mcp_approval", written(given)
    if _kind(item) == "custom_tool_call":
        return words(item.get("name")), written({"input": words(item.get("input"))})
    cut = item.get("status") in ("incomplete", "in_progress") and not words(item.get("arguments"))
    return words(item.get("name")), "" if cut else written(item.get("arguments"))


def _thought(item: dict[str, Any]) -> str:
    pieces = [*listed(item.get("summary")), *listed(item.get("content"))]
    return "\n\n".join(words(piece.get("text")) for piece in pieces)


def _stop(status: str, reason: str, *, called: bool, refused: bool) -> str:
    if status == "incomplete":
        return REASONS.get(reason, "other")
    return "tools" if called else "refused" if refused else "done"


def _counts(usage: dict[str, Any]) -> dict[str, int]:
    counts = {
        "prompt": number(usage, "input_tokens"),
        "cache_read": number(usage, "input_tokens_details", "cached_tokens"),
        "cache_write": number(usage, "input_tokens_details", "cache_write_tokens"),
        "output": number(usage, "output_tokens"),
        "reasoning": number(usage, "output_tokens_details", "reasoning_tokens"),
    }
    total = number(usage, "total_tokens")
    return counts | ({"total": total} if total else {})


def _excused(usage: object) -> dict[str, str]:
    counts = _counts(usage) if isinstance(usage, dict) else {}
    excused = uneven(counts.get("total", 0), counts.get("prompt", 0), counts.get("output", 0))
    if counts and counts["cache_read"] + counts["cache_write"] > counts["prompt"]:
        why = f"more is said to be cached than the whole prompt of {counts['prompt']}"
        excused |= {"cache_read": why, "cache_write": why}
    if counts and counts["reasoning"] > counts["output"]:
        excused["output"] = "the provider counts less for the whole answer than for the reasoning in it"
    return excused
