"""Reference decoder for Responses replies; see `reference_decoder.py`.

The last event of a stream holds the whole response; if a server omits its items, they are taken from the
events that complete them, by index. Summaries of one reasoning item are joined with a blank line, which is
ours and not the provider's.
"""

from collections.abc import Sequence
from typing import Any

from .reference_decoder import (
    NamedDocument,
    ReferenceReply,
    arguments_text,
    as_objects,
    as_text,
    explain_uneven_total,
    get_path,
    join_pieces,
    read_count,
)

REASONS = {
    "max_output_tokens": "length",
    "content_filter": "filtered",
    "max_messages": "paused",
    "steered": "paused",
}
_TEXT_TYPES = ("output_text", "input_text", "text", "refusal")
"""Content types that are text; others are kept but not shown."""
_UNFINISHED_STATUSES = ("queued", "in_progress", "cancelled")
_CLIENT_CALL_TYPES = ("shell_call", "local_shell_call", "apply_patch_call", "computer_call")
"""Calls of the provider's own tools that the client runs, unless the provider states that it ran them."""
_FINAL_EVENTS = ("response.completed", "response.incomplete", "response.failed", "response.done")


def read_openai_responses(documents: Sequence[NamedDocument]) -> ReferenceReply | None:
    response = _find_response([event for _, event in documents])
    if response is None or response.get("status") in ("failed", *_UNFINISHED_STATUSES):
        return None
    reason = as_text(get_path(response, "incomplete_details", "reason"))
    status = as_text(response.get("status")) or ("incomplete" if reason else "completed")
    items = as_objects(response.get("output"))
    pieces = [
        piece
        for item in items
        if _item_type(item) == "message" and item.get("role", "assistant") == "assistant"
        for piece in _content_pieces(item.get("content"))
        if piece.get("type") in _TEXT_TYPES
    ]
    answered = {item.get("call_id") for item in items if _item_type(item).endswith("_call_output")}
    calls = [_read_call(item) for item in items if _is_call(item, answered)]
    shortened = response.get("object") == "response.compaction"
    usage = response.get("usage")
    return ReferenceReply(
        text=join_pieces([as_text(piece.get("text")) + as_text(piece.get("refusal")) for piece in pieces]),
        reasoning=join_pieces([_read_reasoning(item) for item in items if _item_type(item) == "reasoning"]),
        calls=tuple(calls),
        counts=_read_usage(usage) if isinstance(usage, dict) else {},
        stop="paused"
        if shortened
        else _stop_class(
            status,
            reason,
            called=bool(calls),
            refused=any(piece.get("type") == "refusal" for piece in pieces),
        ),
        exceptions=_usage_exceptions(usage),
    )


def _find_response(events: Sequence[Any]) -> dict[str, Any] | None:
    if len(events) == 1 and get_path(events[0], "object") == "response":
        return dict(events[0])
    if len(events) == 1 and "output" in events[0] and "type" not in events[0]:
        return dict(events[0])
    last = next((event for event in events if get_path(event, "type") in _FINAL_EVENTS), None)
    if last is None or any(get_path(event, "type") == "error" for event in events):
        return None
    response = dict(last["response"])
    if not response.get("output"):
        done = [event for event in events if get_path(event, "type") == "response.output_item.done"]
        by_place = {read_count(event, "output_index"): event["item"] for event in done}
        response["output"] = [by_place[place] for place in sorted(by_place)]
    return response


def _item_type(item: dict[str, Any]) -> str:
    return as_text(item.get("type")) or ("message" if "role" in item else "")


def _content_pieces(content: object) -> list[dict[str, Any]]:
    return [{"type": "output_text", "text": content}] if isinstance(content, str) else as_objects(content)


def _is_call(item: dict[str, Any], answered: set[Any]) -> bool:
    kind = _item_type(item)
    if kind in _CLIENT_CALL_TYPES and item.get("call_id") not in answered | {None}:
        return not as_text(get_path(item, "environment", "type")).startswith("container")
    return kind in ("function_call", "custom_tool_call", "mcp_approval_request")


def _read_call(item: dict[str, Any]) -> tuple[str, str]:
    kind = _item_type(item)
    if kind in ("shell_call", "local_shell_call"):
        given = {name: value for name, value in item["action"].items() if value is not None}
        return kind.removesuffix("_call"), arguments_text(given)
    if kind == "apply_patch_call":
        return "apply_patch", arguments_text(item["operation"])
    if kind in ("computer_call", "mcp_approval_request"):
        asked = ("action", "actions", "pending_safety_checks", "server_label", "name", "arguments")
        given = {name: item[name] for name in asked if item.get(name)}
        return "computer" if kind == "computer_call" else "mcp_approval", arguments_text(given)
    if _item_type(item) == "custom_tool_call":
        return as_text(item.get("name")), arguments_text({"input": as_text(item.get("input"))})
    cut = item.get("status") in ("incomplete", "in_progress") and not as_text(item.get("arguments"))
    return as_text(item.get("name")), "" if cut else arguments_text(item.get("arguments"))


def _read_reasoning(item: dict[str, Any]) -> str:
    pieces = [*as_objects(item.get("summary")), *as_objects(item.get("content"))]
    return "\n\n".join(as_text(piece.get("text")) for piece in pieces)


def _stop_class(status: str, reason: str, *, called: bool, refused: bool) -> str:
    if status == "incomplete":
        return REASONS.get(reason, "other")
    return "tools" if called else "refused" if refused else "done"


def _read_usage(usage: dict[str, Any]) -> dict[str, int]:
    counts = {
        "prompt": read_count(usage, "input_tokens"),
        "cache_read": read_count(usage, "input_tokens_details", "cached_tokens"),
        "cache_write": read_count(usage, "input_tokens_details", "cache_write_tokens"),
        "output": read_count(usage, "output_tokens"),
        "reasoning": read_count(usage, "output_tokens_details", "reasoning_tokens"),
    }
    total = read_count(usage, "total_tokens")
    return counts | ({"total": total} if total else {})


def _usage_exceptions(usage: object) -> dict[str, str]:
    counts = _read_usage(usage) if isinstance(usage, dict) else {}
    excused = explain_uneven_total(counts.get("total", 0), counts.get("prompt", 0), counts.get("output", 0))
    if counts and counts["cache_read"] + counts["cache_write"] > counts["prompt"]:
        why = f"the cached count exceeds the whole prompt of {counts['prompt']}"
        excused |= {"cache_read": why, "cache_write": why}
    if counts and counts["reasoning"] > counts["output"]:
        excused["output"] = "the provider counts less for the whole answer than for the reasoning in it"
    return excused
