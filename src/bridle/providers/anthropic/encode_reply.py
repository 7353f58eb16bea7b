"""Encodes replies and failures as Anthropic sends them, whole or as a stream.

The stream has the form of recorded streams: an early ping, text in words, input in fragments of which the first is
empty, a signature in one piece at the end of its block, and token counts as totals.

An id that the reply does not have is derived from its content, so the same reply is always encoded to the same bytes.
"""

import re
from collections.abc import Iterator
from hashlib import blake2b
from typing import Any

from bridle.ports.codec import HttpReply
from bridle.providers.anthropic.failures import KINDS_BY_TYPE, KINDS_BY_WORDING
from bridle.providers.anthropic.parts import COMPACTION, Block, encode_part
from bridle.providers.anthropic.usage import COMPACTION_STOP, LENGTH_STOP, STOPS
from bridle.providers.wire.json import dumps, loads, repair_surrogates
from bridle.providers.wire.reply_encoding import (
    EVENT_STREAM_TYPE,
    JSON_TYPE,
    encode_error_response,
    encode_service_tier,
    encode_service_word,
    make_reply,
    split_arguments,
    split_words,
    unsendable_part,
)
from bridle.values.errors import Failure, FailureKind
from bridle.values.message import Media, Opaque, Part, Reasoning, Reply, Stop, Text, ToolCall, ToolResult
from bridle.values.usage import Usage

_WIRE_ERRORS: dict[FailureKind, tuple[int, str]] = {
    "invalid": (400, "invalid_request_error"),
    "context": (400, "invalid_request_error"),
    "reasoning_refused": (400, "invalid_request_error"),
    "unauthorized": (401, "authentication_error"),
    "quota": (402, "billing_error"),
    "not_found": (404, "not_found_error"),
    "too_large": (413, "request_too_large"),
    "rate_limited": (429, "rate_limit_error"),
    "server": (500, "api_error"),
    "timeout": (504, "timeout_error"),
    "overloaded": (529, "overloaded_error"),
}
_WIRE_MESSAGES: dict[FailureKind, str] = {
    "context": "prompt is too long",
    "reasoning_refused": "Invalid `signature` in `thinking` block",
}
"""Failures that only the error message distinguishes on this wire."""
_WIRE_STOPS = {
    Stop.DONE: "end_turn",
    Stop.TOOLS: "tool_use",
    Stop.LENGTH: LENGTH_STOP,
    Stop.PAUSED: "pause_turn",
    Stop.REFUSED: "refusal",
    Stop.CONTEXT: "model_context_window_exceeded",
    Stop.FILTERED: "refusal",
    Stop.MALFORMED: "end_turn",
    Stop.OTHER: "end_turn",
}
_ITERATION_FIELDS = (
    "input_tokens",
    "cache_creation_input_tokens",
    "cache_read_input_tokens",
    "cache_creation",
    "output_tokens",
)
_STOP_DETAIL = re.compile(r"(\w+)(?: \((\w+)\))?(?:: (.*))?", re.DOTALL)
"""`word`, `word (category)`, `word: explanation`, `word (category): explanation`."""


def encode_reply(reply: Reply, *, stream: bool) -> HttpReply:
    identity = reply.id or "msg_" + blake2b(dumps(reply), digest_size=12).hexdigest()
    blocks = [encode_block(part, f"toolu_{identity[4:]}_{place}") for place, part in enumerate(reply.parts)]
    message = {
        "id": identity,
        "type": "message",
        "role": "assistant",
        "model": reply.origin.model,
        "content": blocks,
        **encode_stop(reply),
        "usage": _split_summary_usage(reply, encode_usage(reply.usage)),
    }
    if not stream:
        return make_reply(JSON_TYPE, (dumps(message),))
    frames = tuple(encode_event(event) for event in _stream_events(reply, message))
    return make_reply(EVENT_STREAM_TYPE, frames)


def encode_block(part: Part, call_id: str) -> Block:
    match part:
        case Media() | ToolResult():
            raise unsendable_part(part)
        case Opaque(native=native):
            block: Block = loads(native)
            return block
        case Text(text=text):
            blank: Block = {"type": "text", "text": repair_surrogates(text)}
            return {**blank, **_native_members(part.native)}
    written = encode_part(part, own=True, sent_id=_choose_call_id(part, call_id))
    assert isinstance(written, dict)
    return written


def _choose_call_id(part: Part, otherwise: str) -> str:
    return part.wire_id or part.id or otherwise if isinstance(part, ToolCall) else ""


def _native_members(native: str | None) -> Block:
    more: Block = loads(native) if native is not None else {}
    return more


def _stream_events(reply: Reply, message: Block) -> Iterator[Block]:
    usage = message["usage"]
    begun = {**usage, "output_tokens": min(usage["output_tokens"], 1)} if usage else {}
    for told_later in ("output_tokens_details", "iterations"):
        begun.pop(told_later, None)
    start = {**message, "content": [], "stop_reason": None, "stop_sequence": None, "usage": begun}
    yield {"type": "message_start", "message": {**start, "stop_details": None}}
    yield {"type": "ping"}
    for index, (part, block) in enumerate(zip(reply.parts, message["content"], strict=True)):
        stub, deltas = split_block(part, block, reply.stop)
        yield {"type": "content_block_start", "index": index, "content_block": stub}
        for delta in deltas:
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    stop = {name: message[name] for name in ("stop_reason", "stop_sequence", "stop_details")}
    yield {"type": "message_delta", "delta": stop, "usage": usage}
    yield {"type": "message_stop"}


def split_block(part: Part, block: Block, stop: Stop) -> tuple[Block, list[Block]]:
    match part:
        case Text():
            cited = block.get("citations")
            citations = cited if isinstance(cited, list) else []
            stub = {**block, "text": "", "citations": []} if citations else {**block, "text": ""}
            return stub, [
                *({"type": "citations_delta", "citation": citation} for citation in citations),
                *({"type": "text_delta", "text": word} for word in split_words(block["text"])),
            ]
        case Reasoning(redacted=False):
            signed = (
                [{"type": "signature_delta", "signature": block["signature"]}] if block["signature"] else []
            )
            return {**block, "thinking": "", "signature": ""}, [
                *({"type": "thinking_delta", "thinking": word} for word in split_words(block["thinking"])),
                *signed,
            ]
        case ToolCall(arguments=arguments):
            # A call without arguments has no fragments, unless that could mean that it was cut off.
            input_text = "" if arguments == "{}" and stop is not Stop.LENGTH else repair_surrogates(arguments)
            pieces = ["", *split_arguments(input_text)]
            return {**block, "input": {}}, [
                {"type": "input_json_delta", "partial_json": piece} for piece in pieces
            ]
        case Opaque(kind=kind) if kind == COMPACTION and not block.get("signature"):
            # A requested summary comes whole; an automatic one is streamed.
            return {**block, "content": None}, [{"type": "compaction_delta", "content": block.get("content")}]
    return block, []


def encode_event(event: Block) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (event["type"].encode(), dumps(event))


def encode_failure(failure: Failure) -> HttpReply:
    status, kind_word = _WIRE_ERRORS.get(failure.kind, _WIRE_ERRORS["server"])
    message = failure.message
    if failure.kind in _WIRE_MESSAGES and not KINDS_BY_WORDING["invalid"][failure.kind](message):
        message = f"{_WIRE_MESSAGES[failure.kind]}: {message}"
    error: dict[str, Any] = {"type": kind_word, "message": message}
    if failure.code in KINDS_BY_TYPE:
        error["type"] = failure.code
    elif failure.code:
        error["details"] = {"error_code": failure.code}
    return encode_error_response(failure, status, {"type": "error", "error": error, "request_id": None})


def encode_usage(usage: Usage) -> dict[str, Any]:
    if not usage.is_known:
        return {}
    written_1h = usage.cache_write_1h
    counts: dict[str, Any] = {
        "input_tokens": usage.input,
        "cache_creation_input_tokens": usage.cache_write,
        "cache_read_input_tokens": usage.cache_read,
        "cache_creation": {
            "ephemeral_5m_input_tokens": usage.cache_write - written_1h,
            "ephemeral_1h_input_tokens": written_1h,
        },
        "output_tokens": usage.output,
    }
    if usage.reasoning:
        counts["output_tokens_details"] = {"thinking_tokens": usage.reasoning}
    if tier := encode_service_tier(usage.terms):
        counts["service_tier"] = tier
    for field in ("inference_geo", "speed"):
        if word := encode_service_word(usage.terms, field):
            counts[field] = word
    if usage.searches:
        counts["server_tool_use"] = {"web_search_requests": usage.searches, "web_fetch_requests": 0}
    return counts


def _split_summary_usage(reply: Reply, counts: dict[str, Any]) -> dict[str, Any]:
    """Split the counts of a reply that begins with a summary: the summary's are only in the list."""
    if not any(isinstance(part, Opaque) and part.kind == COMPACTION for part in reply.parts):
        return counts
    total = {name: counts[name] for name in _ITERATION_FIELDS if name in counts}
    nothing = {name: 0 for name, value in total.items() if isinstance(value, int)}
    if encode_stop(reply)["stop_reason"] != COMPACTION_STOP:
        return {**counts, "iterations": [{"type": COMPACTION, **nothing}, {"type": "message", **total}]}
    beside = {name: value for name, value in counts.items() if name not in _ITERATION_FIELDS}
    return {**nothing, **beside, "iterations": [{"type": COMPACTION, **total}]}


def encode_stop(reply: Reply) -> dict[str, Any]:
    """Return `stop_reason` and its explanation, from the detail if it came from this wire."""
    found = _STOP_DETAIL.fullmatch(reply.stop_detail)
    word, category, rest = found.groups() if found else ("", None, None)
    if STOPS.get(word, Stop.OTHER) is not reply.stop or not word:
        word, category, rest = _WIRE_STOPS[reply.stop], None, None
    stop: dict[str, Any] = {"stop_reason": word, "stop_sequence": None, "stop_details": None}
    if word == "stop_sequence":
        stop["stop_sequence"] = rest
    elif category or rest:
        stop["stop_details"] = {"type": word, "category": category, "explanation": rest}
    return stop
