"""Encodes replies and failures as a Chat Completions server sends them, whole or as a stream.

The stream has the form of recorded streams: first the role, then reasoning and text in small pieces, the name of
a call and its arguments in fragments, the stop reason in a chunk of its own, the token counts, and the sentinel.

An id that the reply does not have is derived from its content, so the same reply is always encoded to the same bytes.
"""

from collections.abc import Iterator
from hashlib import blake2b
from typing import Any

from bridle.ports.codec import HttpReply
from bridle.providers.openai_chat.calls import is_legacy_call
from bridle.providers.openai_chat.content import Block, decode_native
from bridle.providers.openai_chat.dialect import ChatDialect
from bridle.providers.openai_chat.failures import REASONING_REJECTED_CODE
from bridle.providers.openai_chat.parts import encode_message
from bridle.providers.openai_chat.reasoning import BLOCKS_FIELD, DETAILS_FIELD, REASONING_FIELDS
from bridle.providers.openai_chat.usage import EXECUTED_FIELD, choose_stop
from bridle.providers.wire.json import dumps
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
from bridle.values.errors import Failure, FailureKind
from bridle.values.message import Media, Part, Reply, Stop, Text, ToolCall, ToolResult
from bridle.values.usage import Usage

_SERVER_DIALECT = ChatDialect(unsent=())
DONE_FRAME = b"data: [DONE]\n\n"
_WIRE_ERRORS: dict[FailureKind, tuple[int, str, str]] = {
    "invalid": (400, "invalid_request_error", ""),
    "context": (400, "invalid_request_error", "context_length_exceeded"),
    "reasoning_refused": (400, "invalid_request_error", REASONING_REJECTED_CODE),
    "unauthorized": (401, "authentication_error", "invalid_api_key"),
    "not_found": (404, "not_found_error", "model_not_found"),
    "too_large": (413, "request_too_large", ""),
    "rate_limited": (429, "rate_limit_error", "rate_limit_exceeded"),
    "quota": (429, "insufficient_quota", "insufficient_quota"),
    "server": (500, "server_error", ""),
    "overloaded": (503, "overloaded_error", ""),
    "timeout": (504, "timeout_error", ""),
}
_WIRE_STOPS = {
    Stop.DONE: "stop",
    Stop.TOOLS: "tool_calls",
    Stop.LENGTH: "length",
    Stop.PAUSED: "stop",
    Stop.REFUSED: "stop",
    Stop.CONTEXT: "model_context_window_exceeded",
    Stop.FILTERED: "content_filter",
    Stop.MALFORMED: "stop",
    Stop.OTHER: None,
}


def encode_reply(reply: Reply, *, stream: bool) -> HttpReply:
    identity = reply.id or "chatcmpl-" + blake2b(dumps(reply), digest_size=12).hexdigest()
    message = encode_reply_message(reply, identity)
    about: Block = {
        "id": identity,
        "object": "chat.completion.chunk" if stream else "chat.completion",
        "created": 0,
        "model": reply.origin.model,
    }
    more = {
        name: value for part in reply.parts for name, value in decode_native(part).get("reply", {}).items()
    }
    usage = encode_usage(reply.usage)
    if tier := encode_service_tier(reply.usage.terms):
        about["service_tier"] = tier
    if not stream:
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": encode_stop(reply)}
        body = {**about, "choices": [choice], **more, **({"usage": usage} if usage else {})}
        return make_reply(JSON_TYPE, (dumps(body),))
    frames = [
        encode_event({**about, "choices": [encode_choice(delta)]}) for delta in _message_deltas(message)
    ]
    if (reason := encode_stop(reply)) is not None or more:
        frames.append(encode_event({**about, "choices": [encode_choice({}, reason)], **more}))
    if usage:
        frames.append(encode_event({**about, "choices": [], "usage": usage}))
    return make_reply(EVENT_STREAM_TYPE, (*frames, DONE_FRAME))


def encode_reply_message(reply: Reply, identity: str) -> Block:
    for part in reply.parts:
        if isinstance(part, ToolResult) or (isinstance(part, Media) and part.kind != "audio"):
            raise unsendable_part(part)
    calls = [part for part in reply.parts if isinstance(part, ToolCall)]
    sent_ids = [call.wire_id or call.id or f"call_{identity[-8:]}_{at}" for at, call in enumerate(calls)]
    message = encode_message(
        reply.parts, _SERVER_DIALECT, own=True, refused=reply.stop is Stop.REFUSED, sent_ids=sent_ids
    )
    message = {"role": "assistant", "content": None, **message}
    return {**message, **dict(_server_only_members(reply.parts, message))}


def _server_only_members(parts: tuple[Part, ...], message: Block) -> Iterator[tuple[str, Any]]:
    """Yield members that only servers send: blank text, complete audio, arguments that were cut off."""
    texts = [part.text for part in parts if isinstance(part, Text) and "audio" not in decode_native(part)]
    if texts and message["content"] is None and not message.get("refusal"):
        yield "content", "".join(texts)
    if "audio" in message:
        audio_parts = [part for part in parts if "audio" in decode_native(part) or isinstance(part, Media)]
        audio: Block = {}
        for part in audio_parts:
            audio.update(decode_native(part).get("audio", {}))
            match part:
                case Text(text=text):
                    audio["transcript"] = text
                case Media(data=data):
                    audio["data"] = data
        yield "audio", audio or message["audio"]
    calls = [part for part in parts if isinstance(part, ToolCall) and not is_legacy_call(part)]
    if calls:
        listed = zip(calls, message["tool_calls"], strict=True)
        yield "tool_calls", [_restore_call(call, wire) for call, wire in listed]


def _restore_call(call: ToolCall, wire: Block) -> Block:
    if "function" not in wire:
        return wire
    return {**wire, "function": {**wire["function"], "name": call.name, "arguments": call.arguments}}


def _message_deltas(message: Block) -> Iterator[Block]:
    yield {"role": "assistant", "content": ""}
    lists = {name: message[name] for name in (DETAILS_FIELD, BLOCKS_FIELD) if name in message}
    repeated = [name for name in REASONING_FIELDS if message.get(name)]
    if not lists:
        for words in split_words(message[repeated[0]]) if repeated else ():
            yield dict.fromkeys(repeated, words)
    else:
        yield {**{name: message[name] for name in repeated}, **lists}
    content = message["content"]
    if isinstance(content, str):
        yield from ({"content": words} for words in split_words(content))
    elif content:
        yield from ({"content": [block]} for block in content)
    if refusal := message.get("refusal"):
        yield from ({"refusal": words} for words in split_words(refusal))
    for index, call in enumerate(message.get("tool_calls", ())):
        yield from call_deltas(index, call)
    executed = message.get(EXECUTED_FIELD)
    for tool in executed if isinstance(executed, list) else ():
        if isinstance(tool, dict) and "index" in tool:  # sent when the tool starts and again when it ends
            started = {name: value for name, value in tool.items() if name != "output"}
            yield {EXECUTED_FIELD: [{**started, "type": "function"}]}
        yield {EXECUTED_FIELD: [tool]}
    streamed_separately = {
        "role",
        "content",
        "refusal",
        "tool_calls",
        BLOCKS_FIELD,
        DETAILS_FIELD,
        EXECUTED_FIELD,
        *REASONING_FIELDS,
    }
    if more := {name: value for name, value in message.items() if name not in streamed_separately}:
        yield more


def call_deltas(index: int, call: Block) -> Iterator[Block]:
    kind, inside = ("function", "arguments") if "function" in call else ("custom", "input")
    arguments = call[kind][inside]
    yield {"tool_calls": [{**call, "index": index, kind: {**call[kind], inside: ""}}]}
    for piece in split_arguments(arguments):
        yield {"tool_calls": [{"index": index, kind: {inside: piece}}]}


def encode_choice(delta: Block, reason: str | None = None) -> Block:
    return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}


def encode_event(chunk: Block) -> bytes:
    return b"data: %b\n\n" % dumps(chunk)


def encode_failure(failure: Failure) -> HttpReply:
    status, kind_word, code = _WIRE_ERRORS.get(failure.kind, _WIRE_ERRORS["server"])
    if failure.code == kind_word:
        code = ""
    elif failure.code and failure.code != code:
        # An unknown code does not show the kind of error, so the type must.
        kind_word, code = code or kind_word, failure.code
    error = {"message": failure.message, "type": kind_word, "param": None, "code": code or None}
    return encode_error_response(failure, status, {"error": error})


def encode_usage(usage: Usage) -> Block | None:
    if usage.incomplete and not usage.total:
        return None
    counts: Block = {
        "prompt_tokens": usage.prompt,
        "completion_tokens": usage.output,
        "total_tokens": usage.total,
        "prompt_tokens_details": {
            "cached_tokens": usage.cache_read,
            "cache_write_tokens": usage.cache_write,
        },
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
    }
    if usage.searches:
        names = ("tool_calls_executed", "tool_calls_requested", "web_search_requests")
        counts["server_tool_use_details"] = dict.fromkeys(names, usage.searches)
    if usage.cache_write_1h:
        counts["cache_creation"] = {"ephemeral_1h_input_tokens": usage.cache_write_1h}
    return counts


def encode_stop(reply: Reply) -> str | None:
    """Return the server's own stop reason if the detail has it and it means this stop, or the usual one."""
    word = reply.stop_detail.partition(":")[0]
    refused = reply.stop is Stop.REFUSED
    tools = reply.stop is Stop.MALFORMED
    if word and choose_stop(reply.parts, word, refused=refused, tools=tools) is reply.stop:
        return word
    return _WIRE_STOPS[reply.stop]
