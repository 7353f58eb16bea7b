"""Encodes replies and failures as the Responses wire has them, whole or as a stream.

The stream has the form of recorded streams: each item is announced, sent in pieces, sent complete, and repeated in
the response that ends the stream. Events are numbered. The announcement of an encrypted item has only the start of
its content. Items have the ids that the parts of the reply kept, if any.

An id that the reply does not have is derived from its content, so the same reply is always encoded to the same bytes.
"""

import re
from collections.abc import Iterator
from hashlib import blake2b
from typing import Any

from msgspec import Raw

from bridle.ports.codec import HttpReply
from bridle.providers.openai_responses.content import Block
from bridle.providers.openai_responses.failures import REASONING_REJECTED_CODE
from bridle.providers.openai_responses.parts import encode_items, parse_native
from bridle.providers.openai_responses.usage import (
    COMPACTED_OBJECT,
    COMPACTION_DETAIL,
    STOPS,
    UNFINISHED_STATUSES,
)
from bridle.providers.wire.json import dumps, loads, text_or_empty
from bridle.providers.wire.reply_encoding import (
    EVENT_STREAM_TYPE,
    JSON_TYPE,
    encode_error_response,
    encode_service_tier,
    make_reply,
    split_arguments,
    split_words,
    unsendable_part,
)
from bridle.values.errors import Failure, FailureKind, MisuseError
from bridle.values.message import Media, Reply, Stop, ToolCall, ToolResult
from bridle.values.usage import Usage

_FRAGMENT_LENGTH = 5
"""Length of argument fragments in recorded streams."""
_ARGUMENT_EVENTS = {
    "function_call": ("arguments", "response.function_call_arguments"),
    "custom_tool_call": ("input", "response.custom_tool_call_input"),
}
_TEXT_MEMBERS = {"output_text": "text", "refusal": "refusal"}
_REASONING_EVENTS = {"summary": "response.reasoning_summary", "content": "response.reasoning"}
_WIRE_ERRORS: dict[FailureKind, tuple[int, str, str | None]] = {
    "invalid": (400, "invalid_request_error", None),
    "context": (400, "invalid_request_error", "context_length_exceeded"),
    "reasoning_refused": (400, "invalid_request_error", REASONING_REJECTED_CODE),
    "unauthorized": (401, "invalid_request_error", "invalid_api_key"),
    "not_found": (404, "invalid_request_error", "model_not_found"),
    "forgotten": (404, "invalid_request_error", "previous_response_not_found"),
    "too_large": (413, "invalid_request_error", "request_too_large"),
    "quota": (429, "insufficient_quota", "insufficient_quota"),
    "rate_limited": (429, "requests", "rate_limit_exceeded"),
    "server": (500, "server_error", "server_error"),
    "overloaded": (503, "service_unavailable_error", "server_is_overloaded"),
    "timeout": (504, "timeout_error", None),
}
_WIRE_STOPS = {
    Stop.LENGTH: "max_output_tokens",
    Stop.CONTEXT: "max_output_tokens",  # also used if the context window is full
    Stop.FILTERED: "content_filter",
    Stop.PAUSED: "max_messages",
    Stop.MALFORMED: "other",
    Stop.OTHER: "other",
}
_STOP_DETAIL = re.compile(r"incomplete: (\w+)")
_NO_IMAGES = {
    "input_tokens": 0,
    "input_tokens_details": {"image_tokens": 0, "text_tokens": 0},
    "output_tokens": 0,
    "total_tokens": 0,
}


def encode_reply(reply: Reply, *, stream: bool) -> HttpReply:
    for part in reply.parts:
        if isinstance(part, Media | ToolResult):
            raise unsendable_part(part)
    identity = reply.id or "resp_" + blake2b(dumps(reply), digest_size=24).hexdigest()
    numbers = {id(part): place for place, part in enumerate(reply.parts)}

    def call_id(call: ToolCall, native: Block) -> str:
        return call.wire_id or call.id or f"call_{identity[5:]}_{numbers[id(call)]}"

    parts = [(part, parse_native(part)) for part in reply.parts]
    items = encode_items(parts, own=True, refused=reply.stop is Stop.REFUSED, sent_id=call_id)
    if _is_compaction(reply):
        return _encode_compacted(identity, reply, items)
    response = encode_response(identity, reply)
    end = {**response, **encode_stop(reply), "output": items, "usage": encode_usage(reply.usage)}
    if tier := encode_service_tier(reply.usage.terms):
        end["service_tier"] = tier
    if reply.usage.searches:
        end["tool_usage"] = {"image_gen": _NO_IMAGES, "web_search": {"num_requests": reply.usage.searches}}
    if not stream:
        return make_reply(JSON_TYPE, (dumps(end),))
    plain: list[Block] = loads(dumps(items))
    frames = tuple(
        encode_event({"type": event["type"], "sequence_number": number, **event})
        for number, event in enumerate(_stream_events(response, plain, end))
    )
    return make_reply(EVENT_STREAM_TYPE, frames)


def _encode_compacted(identity: str, reply: Reply, items: list[Block | Raw]) -> HttpReply:
    """Encode a compacted conversation, which is never streamed."""
    told = {
        "id": identity,
        "object": COMPACTED_OBJECT,
        "created_at": 0,
        "output": items,
        "usage": encode_usage(reply.usage),
    }
    return make_reply(JSON_TYPE, (dumps(told),))


def encode_response(identity: str, reply: Reply) -> Block:
    return {
        "id": identity,
        "object": "response",
        "created_at": 0,
        "status": "in_progress",
        "background": False,
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "max_output_tokens": None,
        "model": reply.origin.model,
        "output": [],
        "parallel_tool_calls": True,
        "previous_response_id": None,
        "store": False,
        "tool_choice": "auto",
        "tools": [],
        "usage": None,
        "metadata": {},
    }


def _stream_events(response: Block, items: list[Block], end: Block) -> Iterator[Block]:
    yield {"type": "response.created", "response": response}
    yield {"type": "response.in_progress", "response": response}
    for index, item in enumerate(items):
        stub = announced_item(item)
        yield {"type": "response.output_item.added", "output_index": index, "item": stub}
        where = {"item_id": item.get("id") or f"item_{index}", "output_index": index}
        for event in split_item(item):
            yield {**event, **where}
        yield {"type": "response.output_item.done", "output_index": index, "item": item}
    kind = "completed" if end["status"] == "completed" else "incomplete"
    yield {"type": f"response.{kind}", "response": end}


def announced_item(item: Block) -> Block:
    """Return the item as it is announced: in progress and without content."""
    stub = dict(item)
    if "status" in stub:
        stub["status"] = "in_progress"
    for name in ("content", "summary"):
        if isinstance(stub.get(name), list):
            stub[name] = []
    for name, _ in _ARGUMENT_EVENTS.values():
        if name in stub:
            stub[name] = ""
    if isinstance(blob := stub.get("encrypted_content"), str):
        stub["encrypted_content"] = blob[: len(blob) // 2]
    return stub


def split_item(item: Block) -> Iterator[Block]:
    match item.get("type"):
        case "message":
            for number, part in enumerate(_list_parts(item, "content")):
                yield from _content_events(number, part)
        case "reasoning":
            for name, prefix in _REASONING_EVENTS.items():
                for number, part in enumerate(_list_parts(item, name)):
                    yield from _reasoning_events(name, prefix, number, part)
        case "compaction":
            yield {"type": "response.compaction.compacting"}
        case "function_call" | "custom_tool_call" as kind:
            inside, prefix = _ARGUMENT_EVENTS[kind]
            said = _check_text(item, inside)
            for piece in split_arguments(said, _FRAGMENT_LENGTH):
                yield {"type": f"{prefix}.delta", "delta": piece}
            yield {"type": f"{prefix}.done", inside: said}


def _list_parts(item: Block, name: str) -> list[Block]:
    parts = item.get(name) or []
    if not isinstance(parts, list) or not all(isinstance(part, dict) for part in parts):
        raise MisuseError(
            f"the simulator cannot stream an item {item.get('type')!r} whose {name} is not a list of objects"
        )
    return parts


def _check_text(part: Block, name: str) -> str:
    text = part.get(name)
    if not isinstance(text, str):
        raise MisuseError(
            f"the simulator cannot stream {part.get('type')!r}: its {name} must be a text, not {text!r}"
        )
    return text


def _content_events(number: int, part: Block) -> Iterator[Block]:
    place = {"content_index": number}
    kind = text_or_empty(part.get("type"))
    if kind not in _TEXT_MEMBERS:
        yield {"type": "response.content_part.added", **place, "part": part}
        yield {"type": "response.content_part.done", **place, "part": part}
        return
    inside = _TEXT_MEMBERS[kind]
    text = _check_text(part, inside)
    bare: Block = {**part, inside: ""}
    cited = _list_parts(part, "annotations")
    if cited:
        bare["annotations"] = []
    yield {"type": "response.content_part.added", **place, "part": bare}
    for word in split_words(text):
        yield {"type": f"response.{kind}.delta", **place, "delta": word}
    for index, annotation in enumerate(cited):
        added = {"annotation_index": index, "annotation": annotation}
        yield {"type": "response.output_text.annotation.added", **place, **added}
    yield {"type": f"response.{kind}.done", **place, inside: text}
    yield {"type": "response.content_part.done", **place, "part": part}


def _reasoning_events(name: str, prefix: str, number: int, part: Block) -> Iterator[Block]:
    place = {f"{name}_index": number}
    text = _check_text({"text": "", **part}, "text")
    if name == "summary":
        yield {"type": f"{prefix}_part.added", **place, "part": {**part, "text": ""}}
    for word in split_words(text):
        yield {"type": f"{prefix}_text.delta", **place, "delta": word}
    yield {"type": f"{prefix}_text.done", **place, "text": text}
    if name == "summary":
        yield {"type": f"{prefix}_part.done", **place, "part": part}


def encode_event(event: Block) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (event["type"].encode(), dumps(event))


def encode_failure(failure: Failure) -> HttpReply:
    status, kind_word, code = _WIRE_ERRORS.get(failure.kind, _WIRE_ERRORS["server"])
    error: dict[str, Any] = {"message": failure.message, "type": kind_word, "param": None}
    # An error without a code is identified by its type, and its code is null.
    error["code"] = None if failure.code == kind_word else failure.code or code
    return encode_error_response(failure, status, {"error": error})


def encode_usage(usage: Usage) -> dict[str, Any] | None:
    if not usage.is_known:
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


def encode_stop(reply: Reply) -> dict[str, Any]:
    """Return `status` and its explanation, from the detail if the reply came from this wire."""
    if reply.stop is Stop.OTHER and reply.stop_detail in UNFINISHED_STATUSES:
        return {"status": reply.stop_detail, "incomplete_details": None}
    if reply.stop not in _WIRE_STOPS:
        return {"status": "completed", "incomplete_details": None}
    found = _STOP_DETAIL.fullmatch(reply.stop_detail)
    reason = found.group(1) if found else ""
    if not reason or STOPS.get(reason, Stop.OTHER) is not reply.stop:
        reason = _WIRE_STOPS[reply.stop]
    return {"status": "incomplete", "incomplete_details": {"reason": reason}}


def _is_compaction(reply: Reply) -> bool:
    """True for a compacted conversation, which is not an answer."""
    return reply.stop is Stop.PAUSED and reply.stop_detail == COMPACTION_DETAIL
