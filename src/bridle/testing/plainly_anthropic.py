"""What a reply of Anthropic says, read plainly: see `plainly.py`.

Blocks in order, by their type.  Counts in a stream are totals so far.  When the provider compacted or
fell back on the way, its top-level counts leave those calls out and `iterations` lists them all.
Behind one other cloud each event is wrapped in `bytes`.
"""

import json
from base64 import b64decode
from collections.abc import Sequence
from typing import Any

from .plainly import Said, Told, first, inside, joined, listed, number, words, written

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
"""What some servers say without announcing it."""


def told(said: Sequence[Said]) -> Told | None:
    events = [_unwrapped(event) for _, event in said]
    whole = next((event for event in events if _is_message(event)), None)
    message = whole or _completion(events[0]) or _assembled(events)
    ended = whole is not None or any(inside(event, "type") == "message_stop" for event in events)
    if message is None or not (ended or words(message.get("stop_reason"))):
        return None
    blocks = listed(message.get("content"))
    switched = max((at for at, block in enumerate(blocks) if block.get("type") == "fallback"), default=0)
    return Told(
        text=joined([words(block.get("text")) for block in blocks if block.get("type") == "text"]),
        reasoning=joined(
            [words(block.get("thinking")) for block in blocks if block.get("type") == "thinking"]
        ),
        # What a model asked for before another took its place is nobody's to run.
        calls=tuple(
            (words(block.get("name")), written(block.get("partial_json") or block.get("input")))
            for block in blocks[switched:]
            if block.get("type") == "tool_use"
        ),
        counts=_counts(message.get("usage")),
        stop=STOPS.get(words(message.get("stop_reason")), "other"),
    )


def _is_message(event: Any) -> bool:
    """Some servers do not say what it is, but only whose."""
    named = inside(event, "type")
    role = inside(event, "role") if named is None else None
    return named == "message" or (role == "assistant" and isinstance(inside(event, "content"), list))


def _completion(event: Any) -> dict[str, Any] | None:
    """The form replies had before there were messages."""
    if not isinstance(inside(event, "completion"), str):
        return None
    return {**event, "content": [{"type": "text", "text": event["completion"]}]}


def _assembled(events: Sequence[Any]) -> dict[str, Any] | None:
    message: dict[str, Any] | None = None
    places: dict[Any, dict[str, Any]] = {}
    for event in events:
        match inside(event, "type"):
            case "message_start":
                message = dict(event["message"])
                message["content"] = list(message.get("content") or [])
                message["usage"] = dict(message.get("usage") or {})
                places = {}
            case "content_block_start" if message is not None:
                places[event["index"]] = dict(event["content_block"])
                message["content"].append(places[event["index"]])
            case "content_block_delta" if message is not None:
                kind = _PIECES.get(words(inside(event, "delta", "type")))
                if kind in _UNANNOUNCED and event["index"] not in places:
                    places[event["index"]] = {"type": kind}
                    message["content"].append(places[event["index"]])
                block = places[event["index"]]
                if kind:
                    block[kind] = words(block.get(kind)) + words(inside(event, "delta", kind))
            case "message_delta" if message is not None:
                news = event.get("delta") or {}
                message |= {name: value for name, value in news.items() if value is not None}
                counts = event.get("usage") or {}
                message["usage"] |= {name: value for name, value in counts.items() if value is not None}
            case "error":
                return None
    return message


def _counts(usage: object) -> dict[str, int]:
    if not isinstance(usage, dict):
        return {}
    rounds = listed(usage.get("iterations"))
    if all(each.get("type") == "message" for each in rounds):
        rounds = [usage]
    return {
        "input": sum(number(each, "input_tokens") for each in rounds),
        "cache_read": sum(number(each, "cache_read_input_tokens") for each in rounds),
        "cache_write": sum(_written(each) for each in rounds),
        "output": sum(number(each, "output_tokens") for each in rounds),
        "reasoning": number(usage, "output_tokens_details", "thinking_tokens"),
    }


def _written(counts: dict[str, Any]) -> int:
    five, hour = (number(counts, "cache_creation", f"ephemeral_{span}_input_tokens") for span in ("5m", "1h"))
    return first(number(counts, "cache_creation_input_tokens"), five + hour)


def _unwrapped(event: Any) -> Any:
    wrapped = inside(event, "bytes")
    return json.loads(b64decode(wrapped)) if isinstance(wrapped, str) else event
