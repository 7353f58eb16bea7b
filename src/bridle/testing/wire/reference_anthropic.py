"""Reference decoder for Anthropic replies; see `reference_decoder.py`.

Blocks are read in order, by their type. Counts in a stream are running totals. If the provider compacted or
fell back to another model, its top-level counts omit those calls and `iterations` lists all of them. Behind
Bedrock each event is wrapped in `bytes`.
"""

import json
from base64 import b64decode
from collections.abc import Sequence
from typing import Any

from .reference_decoder import (
    NamedDocument,
    ReferenceReply,
    arguments_text,
    as_objects,
    as_text,
    first_nonzero,
    get_path,
    join_pieces,
    read_count,
)

STOPS = {
    "end_turn": "done",
    "stop_sequence": "done",
    "tool_use": "tools",
    "max_tokens": "length",
    "pause_turn": "paused",
    "refusal": "refused",
    "model_context_window_exceeded": "context",
    "compaction": "paused",
}
_PIECES = {"text_delta": "text", "thinking_delta": "thinking", "input_json_delta": "partial_json"}
_UNANNOUNCED = ("text", "thinking")
"""Blocks that some servers send without a start event."""


def read_anthropic(documents: Sequence[NamedDocument]) -> ReferenceReply | None:
    events = [_unwrap_event(event) for _, event in documents]
    whole = next((event for event in events if _is_message(event)), None)
    message = whole or _legacy_completion(events[0]) or _assemble_events(events)
    ended = whole is not None or any(get_path(event, "type") == "message_stop" for event in events)
    if message is None or not (ended or as_text(message.get("stop_reason"))):
        return None
    blocks = as_objects(message.get("content"))
    switched = max((at for at, block in enumerate(blocks) if block.get("type") == "fallback"), default=0)
    return ReferenceReply(
        text=join_pieces([as_text(block.get("text")) for block in blocks if block.get("type") == "text"]),
        reasoning=join_pieces(
            [as_text(block.get("thinking")) for block in blocks if block.get("type") == "thinking"]
        ),
        # Calls of a model that was replaced by another one must not be run.
        calls=tuple(
            (as_text(block.get("name")), arguments_text(block.get("partial_json") or block.get("input")))
            for block in blocks[switched:]
            if block.get("type") == "tool_use"
        ),
        counts=_read_usage(message.get("usage")),
        stop=STOPS.get(as_text(message.get("stop_reason")), "other"),
    )


def _is_message(event: Any) -> bool:
    """Accept a message without a type if it has the role and content of one: some servers omit the type."""
    named = get_path(event, "type")
    role = get_path(event, "role") if named is None else None
    return named == "message" or (role == "assistant" and isinstance(get_path(event, "content"), list))


def _legacy_completion(event: Any) -> dict[str, Any] | None:
    """Convert the reply form that preceded the Messages API."""
    if not isinstance(get_path(event, "completion"), str):
        return None
    return {**event, "content": [{"type": "text", "text": event["completion"]}]}


def _assemble_events(events: Sequence[Any]) -> dict[str, Any] | None:
    message: dict[str, Any] | None = None
    places: dict[Any, dict[str, Any]] = {}
    for event in events:
        match get_path(event, "type"):
            case "message_start":
                message = dict(event["message"])
                message["content"] = list(message.get("content") or [])
                message["usage"] = dict(message.get("usage") or {})
                places = {}
            case "content_block_start" if message is not None:
                places[event["index"]] = dict(event["content_block"])
                message["content"].append(places[event["index"]])
            case "content_block_delta" if message is not None:
                kind = _PIECES.get(as_text(get_path(event, "delta", "type")))
                if kind in _UNANNOUNCED and event["index"] not in places:
                    places[event["index"]] = {"type": kind}
                    message["content"].append(places[event["index"]])
                block = places[event["index"]]
                if kind:
                    block[kind] = as_text(block.get(kind)) + as_text(get_path(event, "delta", kind))
            case "message_delta" if message is not None:
                news = event.get("delta") or {}
                message |= {name: value for name, value in news.items() if value is not None}
                counts = event.get("usage") or {}
                message["usage"] |= {name: value for name, value in counts.items() if value is not None}
            case "error":
                return None
    return message


def _read_usage(usage: object) -> dict[str, int]:
    if not isinstance(usage, dict):
        return {}
    rounds = as_objects(usage.get("iterations"))
    if all(each.get("type") == "message" for each in rounds):
        rounds = [usage]
    return {
        "input": sum(read_count(each, "input_tokens") for each in rounds),
        "cache_read": sum(read_count(each, "cache_read_input_tokens") for each in rounds),
        "cache_write": sum(_cache_write_tokens(each) for each in rounds),
        "output": sum(read_count(each, "output_tokens") for each in rounds),
        "reasoning": read_count(usage, "output_tokens_details", "thinking_tokens"),
    }


def _cache_write_tokens(counts: dict[str, Any]) -> int:
    five, hour = (
        read_count(counts, "cache_creation", f"ephemeral_{span}_input_tokens") for span in ("5m", "1h")
    )
    return first_nonzero(read_count(counts, "cache_creation_input_tokens"), five + hour)


def _unwrap_event(event: Any) -> Any:
    wrapped = get_path(event, "bytes")
    return json.loads(b64decode(wrapped)) if isinstance(wrapped, str) else event
