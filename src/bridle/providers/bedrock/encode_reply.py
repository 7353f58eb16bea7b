"""Encodes replies and failures as Bedrock Converse sends them, whole or as a stream.

The stream has the form of recorded streams: only calls, results and images are announced; text comes in words, input
in fragments of which the first is empty, citations before the text they support, token counts after the end; every
event has padding. The id of a reply is in a header. What a reply does not have is derived from its content, so the
same reply is always encoded to the same bytes.
"""

from collections.abc import Iterator
from hashlib import blake2b
from string import ascii_letters, digits
from typing import Any

from bridle.ports.codec import HttpReply
from bridle.providers.bedrock.decode import ID_HEADER
from bridle.providers.bedrock.failures import KINDS_BY_EXCEPTION, KINDS_BY_WORDING, TYPE_HEADER
from bridle.providers.bedrock.parts import Block, encode_part
from bridle.providers.bedrock.usage import GUARDRAIL, LENGTH_STOP, LONG_TTL, STOP_SEQUENCE, STOPS
from bridle.providers.wire.eventstream import CONTENT_TYPE, encode_event
from bridle.providers.wire.json import dumps, loads, repair_surrogates
from bridle.providers.wire.reply_encoding import (
    encode_error_response,
    encode_service_tier,
    encode_service_word,
    split_arguments,
    split_words,
    unsendable_part,
)
from bridle.values.errors import Failure, FailureKind
from bridle.values.message import Media, Part, Reply, Stop, Text, ToolCall, ToolResult
from bridle.values.usage import Usage

_LATENCY_MS = 500
_PADDING = ascii_letters + digits
_WIRE_ERRORS: dict[FailureKind, tuple[int, str]] = {
    "invalid": (400, "ValidationException"),
    "context": (400, "ValidationException"),
    "reasoning_refused": (400, "ValidationException"),
    "quota": (400, "ServiceQuotaExceededException"),
    "unauthorized": (403, "AccessDeniedException"),
    "not_found": (404, "ResourceNotFoundException"),
    "timeout": (408, "ModelTimeoutException"),
    "too_large": (413, "RequestEntityTooLargeException"),
    "rate_limited": (429, "ThrottlingException"),
    "server": (500, "InternalServerException"),
    "overloaded": (503, "ServiceUnavailableException"),
}
_WIRE_MESSAGES: dict[FailureKind, str] = {
    "context": "Input is too long for requested model",
    "reasoning_refused": "Invalid `signature` in `thinking` block",
}
"""Failures that only the error message distinguishes on this wire."""
_WIRE_STOPS = {
    Stop.DONE: "end_turn",
    Stop.TOOLS: "tool_use",
    Stop.LENGTH: LENGTH_STOP,
    Stop.PAUSED: "end_turn",
    Stop.REFUSED: "content_filtered",
    Stop.CONTEXT: "model_context_window_exceeded",
    Stop.FILTERED: GUARDRAIL,
    Stop.MALFORMED: "malformed_model_output",
    Stop.OTHER: "end_turn",
}


def encode_reply(reply: Reply, *, stream: bool) -> HttpReply:
    identity = reply.id or _make_request_id(dumps(reply))
    blocks = [
        _encode_block(part, f"tooluse_{identity[:24]}_{place}") for place, part in enumerate(reply.parts)
    ]
    word, more, trace = _encode_stop(reply)
    stop: Block = {"stopReason": word, **({"additionalModelResponseFields": more} if more else {})}
    extras: Block = {"metrics": {"latencyMs": _LATENCY_MS}, **({"trace": trace} if trace else {})}
    if not reply.usage.incomplete:
        extras["usage"] = _encode_usage(reply.usage)
    if tier := encode_service_tier(reply.usage.terms):
        extras["serviceTier"] = {"type": tier}
    if latency := encode_service_word(reply.usage.terms, "performanceConfig"):
        extras["performanceConfig"] = {"latency": latency}
    if not stream:
        message = {"content": blocks, "role": "assistant"}
        body = dumps({**extras, "output": {"message": message}, **stop})
        return HttpReply(status=200, headers=_reply_headers("application/json", identity), frames=(body,))
    events = [
        ("messageStart", {"role": "assistant"}),
        *_block_events(reply, blocks),
        ("messageStop", stop),
        *([("metadata", extras)] if trace or "usage" in extras else []),
    ]
    frames = tuple(encode_event(name, _encode_padded(event)) for name, event in events)
    return HttpReply(status=200, headers=_reply_headers(CONTENT_TYPE, identity), frames=frames)


def _reply_headers(content_type: str, identity: str) -> tuple[tuple[str, str], ...]:
    return ("content-type", content_type), (ID_HEADER, identity)


def _make_request_id(content: bytes) -> str:
    digest = blake2b(content, digest_size=16).hexdigest()
    return "-".join((digest[:8], digest[8:12], digest[12:16], digest[16:20], digest[20:]))


def _encode_block(part: Part, call_id: str) -> Block:
    if isinstance(part, ToolResult) or (isinstance(part, Media) and part.kind != "image"):
        raise unsendable_part(part)
    sent_id = part.wire_id or part.id or call_id if isinstance(part, ToolCall) else ""
    block = encode_part(part, own=True, sent_id=sent_id, blank=True)
    whole: Block = block if isinstance(block, dict) else loads(bytes(block or b"{}"))
    return whole


def _block_events(reply: Reply, blocks: list[Block]) -> Iterator[tuple[str, Block]]:
    for index, (part, block) in enumerate(zip(reply.parts, blocks, strict=True)):
        start, deltas = _split_block(part, block, reply.stop)
        if start is not None:
            yield "contentBlockStart", {"contentBlockIndex": index, "start": start}
        for delta in deltas:
            yield "contentBlockDelta", {"contentBlockIndex": index, "delta": delta}
        yield "contentBlockStop", {"contentBlockIndex": index}


def _split_block(part: Part, block: Block, stop: Stop) -> tuple[Block | None, list[Block]]:
    match block:
        case {"text": str(words)}:
            return None, _word_deltas("text", words)
        case {"citationsContent": {"citations": list(cited)}}:
            words = part.text if isinstance(part, Text) else ""
            citations = [{"citation": citation} for citation in cited]
            return None, citations + (_word_deltas("text", words) if words else [])
        case {"reasoningContent": {"reasoningText": {"text": str(words), **beside}}}:
            deltas = [*_word_deltas("text", words), *([beside] if beside else [])]
            return None, [{"reasoningContent": delta} for delta in deltas]
        case {"toolUse": {"input": arguments, **start}}:
            input_text = _streamed_arguments(part, arguments, stop)
            fragments = ["", *split_arguments(input_text)]
            return {"toolUse": start}, [{"toolUse": {"input": fragment}} for fragment in fragments]
        case {"toolResult": {"content": content, **start}}:
            return {"toolResult": start}, [{"toolResult": content}]
        case {"image": {"source": source, **start}}:
            return {"image": start}, [{"image": {"source": source}}]
    return None, [block]


def _word_deltas(member: str, words: str) -> list[Block]:
    return [{member: word} for word in split_words(words) or [""]]


def _streamed_arguments(part: Part, arguments: object, stop: Stop) -> str:
    if not isinstance(part, ToolCall):
        return dumps(arguments).decode()
    # A call without arguments has no fragments, unless that could mean that it was cut off.
    return "" if part.arguments == "{}" and stop is not Stop.LENGTH else repair_surrogates(part.arguments)


def _encode_padded(event: dict[str, Any]) -> bytes:
    plain = dumps(event)
    return plain[:-1] + b',"p":"%b"}' % _PADDING[: len(plain) % len(_PADDING)].encode()


def encode_failure(failure: Failure) -> HttpReply:
    status, exception = _WIRE_ERRORS.get(failure.kind, _WIRE_ERRORS["server"])
    message = failure.message
    if failure.kind in _WIRE_MESSAGES and not KINDS_BY_WORDING["invalid"][failure.kind](message):
        message = f"{_WIRE_MESSAGES[failure.kind]}: {message}"
    if KINDS_BY_EXCEPTION.get(failure.code.lower().removesuffix("exception")) == failure.kind:
        exception = failure.code
    named = ("content-type", "application/json"), (TYPE_HEADER, exception)
    return encode_error_response(failure, status, {"message": message}, *named)


def _encode_usage(usage: Usage) -> dict[str, Any]:
    counts: dict[str, Any] = {
        "cacheReadInputTokenCount": usage.cache_read,
        "cacheReadInputTokens": usage.cache_read,
        "cacheWriteInputTokenCount": usage.cache_write,
        "cacheWriteInputTokens": usage.cache_write,
        "inputTokens": usage.input,
        "outputTokens": usage.output,
        "serverToolUsage": {},
        "totalTokens": usage.total,
    }
    if usage.cache_write:
        split = {LONG_TTL: usage.cache_write_1h, "5m": usage.cache_write - usage.cache_write_1h}
        counts["cacheDetails"] = [{"inputTokens": count, "ttl": ttl} for ttl, count in split.items() if count]
    return counts


def _encode_stop(reply: Reply) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """Return the stop reason, the model's own fields about it, and the trace.

    They come from the detail if the reply came from this wire.
    """
    word, _, why = reply.stop_detail.partition(": ")
    if STOPS.get(word, Stop.OTHER) is not reply.stop or not word:
        word, why = _WIRE_STOPS[reply.stop], ""
    more = {STOP_SEQUENCE: why} if why and word == STOP_SEQUENCE else {}
    trace = {"guardrail": {"actionReason": why}} if why and word == GUARDRAIL else {}
    return word, more, trace
