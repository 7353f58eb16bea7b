"""Replies as Gemini gives them, whole or in pieces: the other end of the decoder.

The stream has the shape of recorded ones: events without names and with CRLF, words in pieces of a few,
thoughts by the paragraph, calls whole, counts as totals so far.  The last event has the reason for the stop
and an empty text, signed where the reply is.  A signed part is never cut.  An id that a reply does not
have is made from its content, so the same reply is always told in the same bytes.
"""

import re
from collections.abc import Iterator
from hashlib import blake2b
from typing import Any

from bridle.ports.codec import HttpReply
from bridle.providers.wire.json import dumps, loads, repair_surrogates
from bridle.values.errors import MisuseError
from bridle.values.message import Opaque, Part, Reasoning, Reply, Text, ToolCall, ToolResult

from .parts import CANDIDATE_FIELDS_KIND, CONTINUATION_KIND, Block, OriginMatch, encode_part
from .usage import encode_stop, encode_usage

_EIGHT_WORDS = re.compile(r"(?:\s*\S+){1,8}\s*|\s+")
"""Some forty letters, the middle of what recorded streams show for pieces of text."""
_EMPTY_TEXT = {"text": ""}
_PARAGRAPHS = re.compile(r".+?(?:\n{2,}|\Z)", re.DOTALL)


def encode_reply(reply: Reply, *, stream: bool) -> HttpReply:
    identity = reply.id or blake2b(dumps(reply), digest_size=12).hexdigest()
    end = encode_stop(reply)
    frame = {"modelVersion": reply.origin.model, "responseId": identity}
    blocks = [block for part in reply.parts if (block := _encode_block(part)) is not None]
    if not stream:
        body = {**_encode_chunk(reply, blocks, end), "usageMetadata": encode_usage(reply.usage), **frame}
        return HttpReply(
            status=200, headers=(("content-type", "application/json; charset=UTF-8"),), frames=(dumps(body),)
        )
    pieces = [piece for part in reply.parts for piece in _split_part(part)]
    closing = [pieces.pop() if _has_signed_end(reply) else _EMPTY_TEXT] if pieces else []
    frames = [
        _encode_event({**_encode_chunk(reply, [piece], {}), **frame, **_usage_so_far(reply)})
        for piece in pieces
    ]
    last = {**_encode_chunk(reply, closing, end), "usageMetadata": encode_usage(reply.usage), **frame}
    return HttpReply(
        status=200, headers=(("content-type", "text/event-stream"),), frames=(*frames, _encode_event(last))
    )


def _has_signed_end(reply: Reply) -> bool:
    """Whether the reply ends with a signature that no words carry."""
    last = reply.parts[-1]
    return isinstance(last, Text) and not last.text and last.native is not None


def _encode_chunk(reply: Reply, blocks: list[Any], end: Block) -> Block:
    """A response with these parts; with `end`, also what stands beside the content."""
    if "promptFeedback" in end:
        return dict(end)
    content = {"parts": blocks, "role": "model"} if blocks else {"role": "model"}
    beside: Block = {}
    for part in reply.parts:
        if end and isinstance(part, Opaque) and part.kind in (CANDIDATE_FIELDS_KIND, CONTINUATION_KIND):
            beside |= loads(part.native)
    return {"candidates": [{"content": content, **end, "index": 0, **beside}]}


def _encode_block(part: Part) -> Any:
    match part:
        case ToolResult():
            raise MisuseError("a model cannot say a ToolResult on this wire: leave it out of the reply")
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
            if (block := _encode_block(part)) is not None:
                yield block


def _usage_so_far(reply: Reply) -> Block:
    """Counts while the reply is being told: the prompt is known, the answer is not."""
    prompt = reply.usage.prompt
    return {"usageMetadata": {"promptTokenCount": prompt, "totalTokenCount": prompt}} if prompt else {}


def _encode_event(response: Block) -> bytes:
    return b"data: %b\r\n\r\n" % dumps(response)
