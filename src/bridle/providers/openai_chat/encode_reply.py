"""Replies as a server of Chat Completions gives them, whole or in pieces: the other end of the decoder.

The stream has the shape of recorded ones: the role first, thoughts and words in small pieces, the name of
a call and then its arguments in fragments, the reason in a piece of its own, counts after it, and the
sentinel.  Ids that a reply does not have are made from its content, so the same reply is always told in
the same bytes.
"""

import re
from collections.abc import Iterator
from hashlib import blake2b
from typing import Any

from bridle.ports.codec import HttpReply
from bridle.providers.wire.json import dumps
from bridle.providers.wire.usage import encode_service_tier
from bridle.values.errors import MisuseError
from bridle.values.message import Media, Part, Reply, Stop, Text, ToolCall, ToolResult

from .calls import is_legacy_call
from .content import Block, decode_native
from .dialect import ChatDialect
from .parts import encode_message
from .reasoning import BLOCKS_FIELD, DETAILS_FIELD, REASONING_FIELDS
from .usage import encode_stop, encode_usage

_WORD = re.compile(r"\s*\S+|\s+")
_FRAGMENT_LENGTH = 12
"""The middle of what recorded streams show for pieces of arguments."""
_SERVER_DIALECT = ChatDialect(unsent=())
_DONE_FRAME = b"data: [DONE]\n\n"


def encode_reply(reply: Reply, *, stream: bool) -> HttpReply:
    identity = reply.id or "chatcmpl-" + blake2b(dumps(reply), digest_size=12).hexdigest()
    message = _encode_message(reply, identity)
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
        whole = {**about, "choices": [choice], **more, **({"usage": usage} if usage else {})}
        return HttpReply(status=200, headers=(("content-type", "application/json"),), frames=(dumps(whole),))
    frames = [
        _encode_event({**about, "choices": [_encode_choice(delta)]}) for delta in _message_deltas(message)
    ]
    if (reason := encode_stop(reply)) is not None or more:
        frames.append(_encode_event({**about, "choices": [_encode_choice({}, reason)], **more}))
    if usage:
        frames.append(_encode_event({**about, "choices": [], "usage": usage}))
    return HttpReply(
        status=200,
        headers=(("content-type", "text/event-stream; charset=utf-8"),),
        frames=(*frames, _DONE_FRAME),
    )


def _encode_message(reply: Reply, identity: str) -> Block:
    for part in reply.parts:
        if isinstance(part, ToolResult) or (isinstance(part, Media) and part.kind != "audio"):
            raise MisuseError(
                f"a model cannot say a {type(part).__name__} on this wire: leave it out of the reply"
            )
    calls = [part for part in reply.parts if isinstance(part, ToolCall)]
    sent_ids = [call.wire_id or call.id or f"call_{identity[-8:]}_{at}" for at, call in enumerate(calls)]
    message = encode_message(
        reply.parts, _SERVER_DIALECT, own=True, refused=reply.stop is Stop.REFUSED, sent_ids=sent_ids
    )
    message = {"role": "assistant", "content": None, **message}
    return {**message, **dict(_server_only_members(reply.parts, message))}


def _server_only_members(parts: tuple[Part, ...], message: Block) -> Iterator[tuple[str, Any]]:
    """What a model says and nobody sends back: blank words, sound in full, arguments that broke off."""
    texts = [part.text for part in parts if isinstance(part, Text) and "audio" not in decode_native(part)]
    if texts and message["content"] is None and not message.get("refusal"):
        yield "content", "".join(texts)
    if "audio" in message:
        spoken = [part for part in parts if "audio" in decode_native(part) or isinstance(part, Media)]
        held: Block = {}
        for part in spoken:
            held.update(decode_native(part).get("audio", {}))
            match part:
                case Text(text=text):
                    held["transcript"] = text
                case Media(data=data):
                    held["data"] = data
        yield "audio", held or message["audio"]
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
        for words in _WORD.findall(message[repeated[0]]) if repeated else ():
            yield dict.fromkeys(repeated, words)
    else:
        yield {**{name: message[name] for name in repeated}, **lists}
    content = message["content"]
    if isinstance(content, str):
        yield from ({"content": words} for words in _WORD.findall(content))
    elif content:
        yield from ({"content": [block]} for block in content)
    if refusal := message.get("refusal"):
        yield from ({"refusal": words} for words in _WORD.findall(refusal))
    for index, call in enumerate(message.get("tool_calls", ())):
        yield from _call_deltas(index, call)
    told = {"role", "content", "refusal", "tool_calls", BLOCKS_FIELD, DETAILS_FIELD, *REASONING_FIELDS}
    if more := {name: value for name, value in message.items() if name not in told}:
        yield more


def _call_deltas(index: int, call: Block) -> Iterator[Block]:
    kind, inside = ("function", "arguments") if "function" in call else ("custom", "input")
    said = call[kind][inside]
    yield {"tool_calls": [{**call, "index": index, kind: {**call[kind], inside: ""}}]}
    for at in range(0, len(said), _FRAGMENT_LENGTH):
        yield {"tool_calls": [{"index": index, kind: {inside: said[at : at + _FRAGMENT_LENGTH]}}]}


def _encode_choice(delta: Block, reason: str | None = None) -> Block:
    return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}


def _encode_event(chunk: Block) -> bytes:
    return b"data: %b\n\n" % dumps(chunk)
