"""Encodes replies and failures as Gemini sends them, whole or as a stream.

The stream has the form of recorded streams: events without names and with CRLF, text in pieces of a few words,
reasoning by the paragraph, complete calls, token counts as totals so far. The last event has the finish reason and an
empty text, which is signed if the reply is. A signed part is never split. An id that the reply does not have is derived
from its content, so the same reply is always encoded to the same bytes.
"""

import re
from collections.abc import Iterator
from hashlib import blake2b
from typing import Any

from bridle.ports.codec import HttpReply
from bridle.providers.gemini.failures import KINDS_BY_REASON, KINDS_BY_STATUS_NAME, KINDS_BY_WORDING
from bridle.providers.gemini.parts import (
    CANDIDATE_FIELDS_KIND,
    CONTINUATION_KIND,
    Block,
    OriginMatch,
    encode_part,
)
from bridle.providers.gemini.usage import BLOCK_PREFIX, CONTINUATION_STOP, choose_stop
from bridle.providers.wire.json import dumps, loads, repair_surrogates
from bridle.providers.wire.reply_encoding import (
    encode_error_response,
    encode_service_tier,
    make_reply,
    unsendable_part,
)
from bridle.values.errors import Failure, FailureKind
from bridle.values.message import Opaque, Part, Reasoning, Reply, Stop, Text, ToolCall, ToolResult
from bridle.values.usage import Usage

_EIGHT_WORDS = re.compile(r"(?:\s*\S+){1,8}\s*|\s+")
"""About forty letters, the median of text chunks in recorded streams."""
_EMPTY_TEXT = {"text": ""}
_TIERS = ("flex", "priority")
JSON_TYPE = "application/json; charset=UTF-8"
_PARAGRAPHS = re.compile(r".+?(?:\n{2,}|\Z)", re.DOTALL)
_WIRE_ERRORS: dict[FailureKind, tuple[int, str]] = {
    "invalid": (400, "INVALID_ARGUMENT"),
    "context": (400, "INVALID_ARGUMENT"),
    "reasoning_refused": (400, "INVALID_ARGUMENT"),
    "too_large": (413, "INVALID_ARGUMENT"),
    "unauthorized": (403, "PERMISSION_DENIED"),
    "forgotten": (403, "PERMISSION_DENIED"),
    "not_found": (404, "NOT_FOUND"),
    "rate_limited": (429, "RESOURCE_EXHAUSTED"),
    "quota": (429, "RESOURCE_EXHAUSTED"),
    "server": (500, "INTERNAL"),
    "overloaded": (503, "UNAVAILABLE"),
    "timeout": (504, "DEADLINE_EXCEEDED"),
}
_WIRE_MESSAGES: dict[FailureKind, str] = {
    "context": "The input token count exceeds the maximum number of tokens allowed",
    "reasoning_refused": "Invalid thought signature",
    "forgotten": "CachedContent not found (or permission denied)",
}
"""Failures that only the error message distinguishes on this wire."""
_DETAIL_TYPE_PREFIX = "type.googleapis.com/google.rpc."
_WIRE_STOPS = {
    Stop.DONE: "STOP",
    Stop.TOOLS: "STOP",
    Stop.LENGTH: "MAX_TOKENS",
    Stop.PAUSED: CONTINUATION_STOP,
    Stop.REFUSED: "SAFETY",
    Stop.CONTEXT: "MAX_TOKENS",
    Stop.FILTERED: "BLOCKLIST",
    Stop.MALFORMED: "MALFORMED_FUNCTION_CALL",
    Stop.OTHER: "OTHER",
}
_STOP_DETAIL = re.compile(rf"({BLOCK_PREFIX})?(\w+)(?:: (.*))?", re.DOTALL)
"""`word`, `word: explanation`, and both of a blocked prompt."""


def encode_reply(reply: Reply, *, stream: bool) -> HttpReply:
    identity = reply.id or blake2b(dumps(reply), digest_size=12).hexdigest()
    end = encode_stop(reply)
    frame = {"modelVersion": reply.origin.model, "responseId": identity}
    blocks = [block for part in reply.parts if (block := encode_block(part)) is not None]
    if not stream:
        body = {**encode_chunk(reply, blocks, end), "usageMetadata": encode_usage(reply.usage), **frame}
        return make_reply(JSON_TYPE, (dumps(body),))
    pieces = [piece for part in reply.parts for piece in _split_part(part)]
    closing = [pieces.pop() if _has_signed_end(reply) else _EMPTY_TEXT] if pieces else []
    frames = [
        encode_event({**encode_chunk(reply, [piece], {}), **frame, **_usage_so_far(reply)})
        for piece in pieces
    ]
    last = {**encode_chunk(reply, closing, end), "usageMetadata": encode_usage(reply.usage), **frame}
    return make_reply("text/event-stream", (*frames, encode_event(last)))


def _has_signed_end(reply: Reply) -> bool:
    """True if the reply ends with a signature on an empty text."""
    last = reply.parts[-1]
    return isinstance(last, Text) and not last.text and last.native is not None


def encode_chunk(reply: Reply, blocks: list[Any], end: Block) -> Block:
    """Make a response with these parts; `end` adds what stands beside the content."""
    if "promptFeedback" in end:
        return dict(end)
    content = {"parts": blocks, "role": "model"} if blocks else {"role": "model"}
    beside: Block = {}
    for part in reply.parts:
        if end and isinstance(part, Opaque) and part.kind in (CANDIDATE_FIELDS_KIND, CONTINUATION_KIND):
            beside |= loads(part.native)
    return {"candidates": [{"content": content, **end, "index": 0, **beside}]}


def encode_block(part: Part) -> Any:
    match part:
        case ToolResult():
            raise unsendable_part(part)
        case Text(text="", native=None):
            return None
        case Text(text=text, native=None):
            return {"text": repair_surrogates(text)}
        case ToolCall(name=name, wire_id=wire_id, id=call_id):
            return encode_part(part, OriginMatch.OWN, name=name, sent_id=wire_id or call_id)
    return encode_part(part, OriginMatch.OWN)


def _split_part(part: Part) -> Iterator[Any]:
    match part:
        case Text(text=text, native=None):
            yield from ({"text": piece} for piece in _EIGHT_WORDS.findall(repair_surrogates(text)))
        case Reasoning(text=text, signature="", native=None):
            for piece in _PARAGRAPHS.findall(repair_surrogates(text)):
                yield {"text": piece, "thought": True}
        case _:
            if (block := encode_block(part)) is not None:
                yield block


def _usage_so_far(reply: Reply) -> Block:
    """Return the counts while the reply is streamed: those of the prompt only."""
    prompt = reply.usage.prompt
    return {"usageMetadata": {"promptTokenCount": prompt, "totalTokenCount": prompt}} if prompt else {}


def encode_event(response: Block) -> bytes:
    return b"data: %b\r\n\r\n" % dumps(response)


def encode_failure(failure: Failure) -> HttpReply:
    status, name = _WIRE_ERRORS.get(failure.kind, _WIRE_ERRORS["server"])
    message = failure.message
    if (lead := _WIRE_MESSAGES.get(failure.kind)) and not KINDS_BY_WORDING[failure.kind](message):
        message = f"{lead}: {message}"
    details: list[dict[str, Any]] = []
    if failure.code in KINDS_BY_REASON:
        details.append({"@type": f"{_DETAIL_TYPE_PREFIX}ErrorInfo", "reason": failure.code})
    elif failure.code in KINDS_BY_STATUS_NAME:
        name = failure.code
    if failure.kind == "quota":
        violation = {"quotaId": "GenerateRequestsPerDayPerProjectPerModel"}
        details.append({"@type": f"{_DETAIL_TYPE_PREFIX}QuotaFailure", "violations": [violation]})
    if failure.retry_after_seconds is not None:
        wait = f"{failure.retry_after_seconds:.15g}s"
        details.append({"@type": f"{_DETAIL_TYPE_PREFIX}RetryInfo", "retryDelay": wait})
    code = failure.status if failure.status is not None and failure.status >= 400 else status
    error: dict[str, Any] = {"code": code, "message": message, "status": name}
    if details:
        error["details"] = details
    return encode_error_response(failure, status, {"error": error}, ("content-type", JSON_TYPE))


def encode_usage(usage: Usage) -> dict[str, int | str]:
    """Encode the counts that the wire has; tokens written to a cache are part of the prompt here."""
    if usage == Usage(incomplete=True):
        return {}
    counts = {
        "promptTokenCount": usage.prompt,
        "cachedContentTokenCount": usage.cache_read,
        "candidatesTokenCount": usage.output - usage.reasoning,
        "thoughtsTokenCount": usage.reasoning,
        "totalTokenCount": usage.total,
    }
    known: dict[str, int | str] = {
        name: count for name, count in counts.items() if count or name == "promptTokenCount"
    }
    tier = encode_service_tier(usage.terms)
    return {**known, "serviceTier": tier} if tier in _TIERS else known


def encode_stop(reply: Reply) -> dict[str, Any]:
    """Return `finishReason` with its message or `promptFeedback`, from the stop detail if it fits."""
    found = _STOP_DETAIL.fullmatch(reply.stop_detail)
    blocked, reason, message = found.groups() if found else ("", "", None)
    if blocked and reply.stop is Stop.REFUSED and not reply.parts:
        feedback = {"blockReason": reason, "blockReasonMessage": message}
        return {"promptFeedback": {name: value for name, value in feedback.items() if value}}
    if choose_stop(reason, reply.parts) is not reply.stop or not reason:
        reason, message = _WIRE_STOPS[reply.stop], None
    end = {"finishReason": reason, "finishMessage": message}
    return {name: value for name, value in end.items() if value}
