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

from ..ports.codec import HttpReply
from ..values.errors import MisuseError
from ..values.message import Reply, Stop
from ..values.parts import Media, Part, Text, ToolCall, ToolResult
from ._json import dumps
from ._openai_chat_calls import is_legacy
from ._openai_chat_content import Block, native_in
from ._openai_chat_dialect import Dialect
from ._openai_chat_ends import wire_reason, wire_usage
from ._openai_chat_message import message_of
from ._openai_chat_thoughts import BLOCKS, DETAILS, FIELDS
from ._terms import wire_tier

_WORDS = re.compile(r"\s*\S+|\s+")
_FRAGMENT_LENGTH = 12
"""The middle of what recorded streams show for pieces of arguments."""
_SPEAKER = Dialect(unsent=())
_SENTINEL = b"data: [DONE]\n\n"


def speak(reply: Reply, *, stream: bool) -> HttpReply:
    identity = reply.id or "chatcmpl-" + blake2b(dumps(reply), digest_size=12).hexdigest()
    message = _message(reply, identity)
    about: Block = {
        "id": identity,
        "object": "chat.completion.chunk" if stream else "chat.completion",
        "created": 0,
        "model": reply.origin.model,
    }
    more = {name: value for part in reply.parts for name, value in native_in(part).get("reply", {}).items()}
    usage = wire_usage(reply.usage)
    if tier := wire_tier(reply.usage.terms):
        about["service_tier"] = tier
    if not stream:
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": wire_reason(reply)}
        whole = {**about, "choices": [choice], **more, **({"usage": usage} if usage else {})}
        return HttpReply(status=200, headers=(("content-type", "application/json"),), frames=(dumps(whole),))
    frames = [_frame({**about, "choices": [_choice(delta)]}) for delta in _deltas(message)]
    if (reason := wire_reason(reply)) is not None or more:
        frames.append(_frame({**about, "choices": [_choice({}, reason)], **more}))
    if usage:
        frames.append(_frame({**about, "choices": [], "usage": usage}))
    return HttpReply(
        status=200,
        headers=(("content-type", "text/event-stream; charset=utf-8"),),
        frames=(*frames, _SENTINEL),
    )


def _message(reply: Reply, identity: str) -> Block:
    for part in reply.parts:
        if isinstance(part, ToolResult) or (isinstance(part, Media) and part.kind != "audio"):
            raise MisuseError(
                f"a model cannot say a {type(part).__name__} on this wire: leave it out of the reply"
            )
    calls = [part for part in reply.parts if isinstance(part, ToolCall)]
    sent_ids = [call.wire_id or call.id or f"call_{identity[-8:]}_{at}" for at, call in enumerate(calls)]
    message = message_of(
        reply.parts, _SPEAKER, own=True, refused=reply.stop is Stop.REFUSED, sent_ids=sent_ids
    )
    message = {"role": "assistant", "content": None, **message}
    return {**message, **dict(_as_said(reply.parts, message))}


def _as_said(parts: tuple[Part, ...], message: Block) -> Iterator[tuple[str, Any]]:
    """What a model says and nobody sends back: blank words, sound in full, arguments that broke off."""
    texts = [part.text for part in parts if isinstance(part, Text) and "audio" not in native_in(part)]
    if texts and message["content"] is None and not message.get("refusal"):
        yield "content", "".join(texts)
    if "audio" in message:
        spoken = [part for part in parts if "audio" in native_in(part) or isinstance(part, Media)]
        held: Block = {}
        for part in spoken:
            held.update(native_in(part).get("audio", {}))
            match part:
                case Text(text=text):
                    held["transcript"] = text
                case Media(data=data):
                    held["data"] = data
        yield "audio", held or message["audio"]
    calls = [part for part in parts if isinstance(part, ToolCall) and not is_legacy(part)]
    if calls:
        listed = zip(calls, message["tool_calls"], strict=True)
        yield "tool_calls", [_as_called(call, wire) for call, wire in listed]


def _as_called(call: ToolCall, wire: Block) -> Block:
    if "function" not in wire:
        return wire
    return {**wire, "function": {**wire["function"], "name": call.name, "arguments": call.arguments}}


def _deltas(message: Block) -> Iterator[Block]:
    yield {"role": "assistant", "content": ""}
    lists = {name: message[name] for name in (DETAILS, BLOCKS) if name in message}
    repeated = [name for name in FIELDS if message.get(name)]
    if not lists:
        for words in _WORDS.findall(message[repeated[0]]) if repeated else ():
            yield dict.fromkeys(repeated, words)
    else:
        yield {**{name: message[name] for name in repeated}, **lists}
    content = message["content"]
    if isinstance(content, str):
        yield from ({"content": words} for words in _WORDS.findall(content))
    elif content:
        yield from ({"content": [block]} for block in content)
    if refusal := message.get("refusal"):
        yield from ({"refusal": words} for words in _WORDS.findall(refusal))
    for index, call in enumerate(message.get("tool_calls", ())):
        yield from _call_deltas(index, call)
    told = {"role", "content", "refusal", "tool_calls", BLOCKS, DETAILS, *FIELDS}
    if more := {name: value for name, value in message.items() if name not in told}:
        yield more


def _call_deltas(index: int, call: Block) -> Iterator[Block]:
    kind, inside = ("function", "arguments") if "function" in call else ("custom", "input")
    said = call[kind][inside]
    yield {"tool_calls": [{**call, "index": index, kind: {**call[kind], inside: ""}}]}
    for at in range(0, len(said), _FRAGMENT_LENGTH):
        yield {"tool_calls": [{"index": index, kind: {inside: said[at : at + _FRAGMENT_LENGTH]}}]}


def _choice(delta: Block, reason: str | None = None) -> Block:
    return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}


def _frame(chunk: Block) -> bytes:
    return b"data: %b\n\n" % dumps(chunk)
