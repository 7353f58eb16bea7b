"""Reference decoder for Bedrock Converse replies; see `reference_decoder.py`.

A block is an object with one member that names its kind. In a stream a block begins with its first delta, and
the counts come after the end. Calls of the provider's own tools are not calls to the client.
"""

from collections.abc import Sequence
from typing import Any

from .reference_decoder import (
    WHOLE_BODY,
    NamedDocument,
    ReferenceReply,
    arguments_text,
    as_objects,
    as_text,
    explain_uneven_total,
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
    "model_context_window_exceeded": "context",
    "content_filtered": "refused",
    "refusal": "refused",
    "guardrail_intervened": "filtered",
    "malformed_model_output": "malformed",
    "malformed_tool_use": "malformed",
}


def read_bedrock(documents: Sequence[NamedDocument]) -> ReferenceReply | None:
    whole = documents[0][1] if documents[0][0] == WHOLE_BODY else _assemble_events(documents)
    stop = as_text(get_path(whole, "stopReason"))
    if whole is None or not stop:
        return None
    blocks = as_objects(get_path(whole, "output", "message", "content"))
    calls = [block["toolUse"] for block in blocks if isinstance(block.get("toolUse"), dict)]
    usage = whole.get("usage")
    return ReferenceReply(
        text=join_pieces([_block_text(block) for block in blocks]),
        reasoning=join_pieces(
            [as_text(get_path(block, "reasoningContent", "reasoningText", "text")) for block in blocks]
        ),
        calls=tuple(
            (as_text(call.get("name")), arguments_text(call.get("input")))
            for call in calls
            if call.get("type") in (None, "tool_use")
        ),
        counts=_read_usage(usage) if isinstance(usage, dict) else {},
        stop=STOPS.get(stop, "other"),
        exceptions=_usage_exceptions(usage),
    )


def _block_text(block: dict[str, Any]) -> str:
    cited = as_objects(get_path(block, "citationsContent", "content"))
    guarded = as_text(get_path(block, "guardContent", "text", "text"))
    return as_text(block.get("text")) + join_pieces([as_text(piece.get("text")) for piece in cited]) + guarded


def _read_usage(usage: dict[str, Any]) -> dict[str, int]:
    counts = {
        "input": read_count(usage, "inputTokens"),
        "output": read_count(usage, "outputTokens"),
        "cache_read": first_nonzero(
            read_count(usage, "cacheReadInputTokens"), read_count(usage, "cacheReadInputTokenCount")
        ),
        "cache_write": first_nonzero(
            read_count(usage, "cacheWriteInputTokens"), read_count(usage, "cacheWriteInputTokenCount")
        ),
    }
    return counts | ({"total": read_count(usage, "totalTokens")} if "totalTokens" in usage else {})


def _usage_exceptions(usage: object) -> dict[str, str]:
    counts = _read_usage(usage) if isinstance(usage, dict) else {}
    return explain_uneven_total(counts.pop("total", 0), *counts.values())


def _assemble_events(documents: Sequence[NamedDocument]) -> dict[str, Any] | None:
    blocks: dict[int, dict[str, Any]] = {}
    whole: dict[str, Any] = {"output": {"message": {}}}
    for name, event in documents:
        block = blocks.setdefault(read_count(event, "contentBlockIndex"), {}) if "Block" in name else {}
        match name:
            case "contentBlockStart":
                for kind, start in (event.get("start") or {}).items():
                    block[kind] = dict(start) if isinstance(start, dict) else start
            case "contentBlockDelta":
                _grow_block(block, event.get("delta") or {})
            case "messageStop":
                whole["stopReason"] = event.get("stopReason")
            case "metadata":
                whole["usage"] = event.get("usage")
            case _ if name.endswith("Exception"):
                return None
    whole["output"]["message"]["content"] = [blocks[place] for place in sorted(blocks)]
    return whole


def _grow_block(block: dict[str, Any], delta: dict[str, Any]) -> None:
    if "text" in delta:
        block["text"] = as_text(block.get("text")) + as_text(delta["text"])
    call = block.get("toolUse")
    if isinstance(call, dict):
        call["input"] = as_text(call.get("input")) + as_text(get_path(delta, "toolUse", "input"))
    thought = get_path(delta, "reasoningContent", "text")
    if isinstance(thought, str):
        inner = block.setdefault("reasoningContent", {}).setdefault("reasoningText", {})
        inner["text"] = as_text(inner.get("text")) + thought
