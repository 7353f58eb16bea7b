"""What a reply of Bedrock Converse says, read plainly: see `plainly.py`.

A block is an object with one member that says its kind.  In a stream a block begins with its first
piece, and the counts come after the end.  What the provider's own tools asked is no call of ours.
"""

from collections.abc import Sequence
from typing import Any

from .plainly import WHOLE, Said, Told, first, inside, joined, listed, number, uneven, words, written

STOPS = {
    "end_turn": "done",
    "stop_sequence": "done",
    "tool_use": "tools",
    "max_tokens": "length",
    "model_context_window_exceeded": "context",
    "content_filtered": "refused",
    "refusal": "refused",
    "guardrail_intervened": "filtered",
    "malformed_model_output": "malformed",
    "malformed_tool_use": "malformed",
}


def told(said: Sequence[Said]) -> Told | None:
    whole = said[0][1] if said[0][0] == WHOLE else _assembled(said)
    stop = words(inside(whole, "stopReason"))
    if whole is None or not stop:
        return None
    blocks = listed(inside(whole, "output", "message", "content"))
    calls = [block["toolUse"] for block in blocks if isinstance(block.get("toolUse"), dict)]
    usage = whole.get("usage")
    return Told(
        text=joined([_text(block) for block in blocks]),
        reasoning=joined(
            [words(inside(block, "reasoningContent", "reasoningText", "text")) for block in blocks]
        ),
        calls=tuple(
            (words(call.get("name")), written(call.get("input")))
            for call in calls
            if call.get("type") in (None, "tool_use")
        ),
        counts=_counts(usage) if isinstance(usage, dict) else {},
        stop=STOPS.get(stop, "other"),
        excused=_excused(usage),
    )


def _text(block: dict[str, Any]) -> str:
    cited = listed(inside(block, "citationsContent", "content"))
    guarded = words(inside(block, "guardContent", "text", "text"))
    return words(block.get("text")) + joined([words(piece.get("text")) for piece in cited]) + guarded


def _counts(usage: dict[str, Any]) -> dict[str, int]:
    counts = {
        "input": number(usage, "inputTokens"),
        "output": number(usage, "outputTokens"),
        "cache_read": first(number(usage, "cacheReadInputTokens"), number(usage, "cacheReadInputTokenCount")),
        "cache_write": first(
            number(usage, "cacheWriteInputTokens"), number(usage, "cacheWriteInputTokenCount")
        ),
    }
    return counts | ({"total": number(usage, "totalTokens")} if "totalTokens" in usage else {})


def _excused(usage: object) -> dict[str, str]:
    counts = _counts(usage) if isinstance(usage, dict) else {}
    return uneven(counts.pop("total", 0), *counts.values())


def _assembled(said: Sequence[Said]) -> dict[str, Any] | None:
    blocks: dict[int, dict[str, Any]] = {}
    whole: dict[str, Any] = {"output": {"message": {}}}
    for name, event in said:
        block = blocks.setdefault(number(event, "contentBlockIndex"), {}) if "Block" in name else {}
        match name:
            case "contentBlockStart":
                for kind, start in (event.get("start") or {}).items():
                    block[kind] = dict(start) if isinstance(start, dict) else start
            case "contentBlockDelta":
                _grow(block, event.get("delta") or {})
            case "messageStop":
                whole["stopReason"] = event.get("stopReason")
            case "metadata":
                whole["usage"] = event.get("usage")
            case _ if name.endswith("Exception"):
                return None
    whole["output"]["message"]["content"] = [blocks[place] for place in sorted(blocks)]
    return whole


def _grow(block: dict[str, Any], delta: dict[str, Any]) -> None:
    if "text" in delta:
        block["text"] = words(block.get("text")) + words(delta["text"])
    call = block.get("toolUse")
    if isinstance(call, dict):
        call["input"] = words(call.get("input")) + words(inside(delta, "toolUse", "input"))
    thought = inside(delta, "reasoningContent", "text")
    if isinstance(thought, str):
        inner = block.setdefault("reasoningContent", {}).setdefault("reasoningText", {})
        inner["text"] = words(inner.get("text")) + thought
