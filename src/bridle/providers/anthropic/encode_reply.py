"""Replies as Anthropic gives them, whole or in pieces: the other end of the decoder.

The stream has the shape of recorded ones: a ping early on, text in words, input in fragments of which
the first is empty, a signature in one piece at the end of its block, counts as totals.  Ids that a
reply does not have are made from its content, so the same reply is always told in the same bytes.
"""

import re
from collections.abc import Iterator
from hashlib import blake2b

from bridle.ports.codec import HttpReply
from bridle.providers.wire.json import dumps, loads, repair_surrogates
from bridle.values.errors import MisuseError
from bridle.values.message import Media, Opaque, Part, Reasoning, Reply, Stop, Text, ToolCall, ToolResult

from .parts import COMPACTION, Block, encode_part
from .usage import encode_stop, encode_usage, split_summary_usage

_WORD = re.compile(r"\s*\S+|\s+")
_FRAGMENT_LENGTH = 12
"""The middle of what recorded streams show for pieces of tool input."""


def encode_reply(reply: Reply, *, stream: bool) -> HttpReply:
    identity = reply.id or "msg_" + blake2b(dumps(reply), digest_size=12).hexdigest()
    blocks = [_encode_block(part, f"toolu_{identity[4:]}_{place}") for place, part in enumerate(reply.parts)]
    message = {
        "id": identity,
        "type": "message",
        "role": "assistant",
        "model": reply.origin.model,
        "content": blocks,
        **encode_stop(reply),
        "usage": split_summary_usage(reply, encode_usage(reply.usage)),
    }
    if not stream:
        return HttpReply(
            status=200, headers=(("content-type", "application/json"),), frames=(dumps(message),)
        )
    frames = tuple(_encode_event(event) for event in _stream_events(reply, message))
    return HttpReply(
        status=200, headers=(("content-type", "text/event-stream; charset=utf-8"),), frames=frames
    )


def _encode_block(part: Part, call_id: str) -> Block:
    match part:
        case Media() | ToolResult():
            raise MisuseError(
                f"a model cannot say a {type(part).__name__} on this wire: leave it out of the reply"
            )
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
        stub, deltas = _split_block(part, block, reply.stop)
        yield {"type": "content_block_start", "index": index, "content_block": stub}
        for delta in deltas:
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    stop = {name: message[name] for name in ("stop_reason", "stop_sequence", "stop_details")}
    yield {"type": "message_delta", "delta": stop, "usage": usage}
    yield {"type": "message_stop"}


def _split_block(part: Part, block: Block, stop: Stop) -> tuple[Block, list[Block]]:
    match part:
        case Text():
            cited = block.get("citations")
            citations = cited if isinstance(cited, list) else []
            stub = {**block, "text": "", "citations": []} if citations else {**block, "text": ""}
            return stub, [
                *({"type": "citations_delta", "citation": citation} for citation in citations),
                *({"type": "text_delta", "text": word} for word in _WORD.findall(block["text"])),
            ]
        case Reasoning(redacted=False):
            signed = (
                [{"type": "signature_delta", "signature": block["signature"]}] if block["signature"] else []
            )
            return {**block, "thinking": "", "signature": ""}, [
                *({"type": "thinking_delta", "thinking": word} for word in _WORD.findall(block["thinking"])),
                *signed,
            ]
        case ToolCall(arguments=arguments):
            # A call without arguments is told by silence, unless silence could mean that it was cut.
            said = "" if arguments == "{}" and stop is not Stop.LENGTH else repair_surrogates(arguments)
            pieces = ["", *(said[at : at + _FRAGMENT_LENGTH] for at in range(0, len(said), _FRAGMENT_LENGTH))]
            return {**block, "input": {}}, [
                {"type": "input_json_delta", "partial_json": piece} for piece in pieces
            ]
        case Opaque(kind=kind) if kind == COMPACTION and not block.get("signature"):
            # One that was asked for comes whole; one that the provider made of its own accord does not.
            return {**block, "content": None}, [{"type": "compaction_delta", "content": block.get("content")}]
    return block, []


def _encode_event(event: Block) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (event["type"].encode(), dumps(event))
