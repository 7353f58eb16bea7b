"""Replies as Bedrock Converse gives them, whole or in pieces: the other end of the decoder.

The stream has the shape of recorded ones: only calls, results and pictures are announced, text comes in
words, input in fragments of which the first is empty, citations ahead of the words they support, the
counts after the end, and every event carries padding.  The id of a reply travels in a header.  What a reply
does not have is made from its content, so the same reply is always told in the same bytes.
"""

import re
from collections.abc import Iterator
from hashlib import blake2b
from string import ascii_letters, digits
from typing import Any

from bridle.ports.codec import HttpReply
from bridle.providers.wire.eventstream import CONTENT_TYPE, encode_event
from bridle.providers.wire.json import dumps, loads, repair_surrogates
from bridle.providers.wire.usage import encode_service_tier
from bridle.values.errors import MisuseError
from bridle.values.message import Media, Part, Reply, Stop, Text, ToolCall, ToolResult

from .decode import ID_HEADER
from .parts import Block, encode_part
from .usage import encode_stop, encode_usage

_WORD = re.compile(r"\s*\S+|\s+")
_FRAGMENT_LENGTH = 12
"""The middle of what recorded streams show for pieces of tool input."""
_LATENCY_MS = 500
_PADDING = ascii_letters + digits


def encode_reply(reply: Reply, *, stream: bool) -> HttpReply:
    identity = reply.id or _make_request_id(dumps(reply))
    blocks = [
        _encode_block(part, f"tooluse_{identity[:24]}_{place}") for place, part in enumerate(reply.parts)
    ]
    word, more, trace = encode_stop(reply)
    stop: Block = {"stopReason": word, **({"additionalModelResponseFields": more} if more else {})}
    told: Block = {"metrics": {"latencyMs": _LATENCY_MS}, **({"trace": trace} if trace else {})}
    if not reply.usage.incomplete:
        told["usage"] = encode_usage(reply.usage)
    if tier := encode_service_tier(reply.usage.terms):
        told["serviceTier"] = {"type": tier}
    if not stream:
        message = {"content": blocks, "role": "assistant"}
        body = dumps({**told, "output": {"message": message}, **stop})
        return HttpReply(status=200, headers=_reply_headers("application/json", identity), frames=(body,))
    events = [
        ("messageStart", {"role": "assistant"}),
        *_block_events(reply, blocks),
        ("messageStop", stop),
        *([("metadata", told)] if trace or "usage" in told else []),
    ]
    frames = tuple(encode_event(name, _encode_padded(event)) for name, event in events)
    return HttpReply(status=200, headers=_reply_headers(CONTENT_TYPE, identity), frames=frames)


def _reply_headers(content_type: str, identity: str) -> tuple[tuple[str, str], ...]:
    return ("content-type", content_type), (ID_HEADER, identity)


def _make_request_id(content: bytes) -> str:
    made = blake2b(content, digest_size=16).hexdigest()
    return "-".join((made[:8], made[8:12], made[12:16], made[16:20], made[20:]))


def _encode_block(part: Part, call_id: str) -> Block:
    if isinstance(part, ToolResult) or (isinstance(part, Media) and part.kind != "image"):
        raise MisuseError(
            f"a model cannot say a {type(part).__name__} on this wire: leave it out of the reply"
        )
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
            return None, _split_words("text", words)
        case {"citationsContent": {"citations": list(cited)}}:
            words = part.text if isinstance(part, Text) else ""
            citations = [{"citation": citation} for citation in cited]
            return None, citations + (_split_words("text", words) if words else [])
        case {"reasoningContent": {"reasoningText": {"text": str(words), **beside}}}:
            deltas = [*_split_words("text", words), *([beside] if beside else [])]
            return None, [{"reasoningContent": delta} for delta in deltas]
        case {"toolUse": {"input": given, **start}}:
            said = _spoken_arguments(part, given, stop)
            fragments = [
                "",
                *(said[at : at + _FRAGMENT_LENGTH] for at in range(0, len(said), _FRAGMENT_LENGTH)),
            ]
            return {"toolUse": start}, [{"toolUse": {"input": fragment}} for fragment in fragments]
        case {"toolResult": {"content": content, **start}}:
            return {"toolResult": start}, [{"toolResult": content}]
        case {"image": {"source": source, **start}}:
            return {"image": start}, [{"image": {"source": source}}]
    return None, [block]


def _split_words(member: str, words: str) -> list[Block]:
    return [{member: word} for word in _WORD.findall(words) or [""]]


def _spoken_arguments(part: Part, given: object, stop: Stop) -> str:
    if not isinstance(part, ToolCall):
        return dumps(given).decode()
    # A call without arguments is told by silence, unless silence could mean that it was cut.
    return "" if part.arguments == "{}" and stop is not Stop.LENGTH else repair_surrogates(part.arguments)


def _encode_padded(event: dict[str, Any]) -> bytes:
    plain = dumps(event)
    return plain[:-1] + b',"p":"%b"}' % _PADDING[: len(plain) % len(_PADDING)].encode()
