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

from ..ports.codec import HttpReply
from ..values.errors import MisuseError
from ..values.message import Reply
from ..values.parts import Opaque, Part, Reasoning, Text, ToolCall, ToolResult
from ._gemini_ends import wire_end, wire_usage
from ._gemini_parts import CANDIDATE_FIELDS, CONTINUATION, Block, Kinship, block_of
from ._json import dumps, loads, mended

_PIECES = re.compile(r"(?:\s*\S+){1,8}\s*|\s+")
"""Some forty letters, the middle of what recorded streams show for pieces of text."""
_EMPTY = {"text": ""}
_PARAGRAPHS = re.compile(r".+?(?:\n{2,}|\Z)", re.DOTALL)


def speak(reply: Reply, *, stream: bool) -> HttpReply:
    identity = reply.id or blake2b(dumps(reply), digest_size=12).hexdigest()
    end = wire_end(reply)
    frame = {"modelVersion": reply.origin.model, "responseId": identity}
    blocks = [block for part in reply.parts if (block := _block(part)) is not None]
    if not stream:
        body = {**_response(reply, blocks, end), "usageMetadata": wire_usage(reply.usage), **frame}
        return HttpReply(
            status=200, headers=(("content-type", "application/json; charset=UTF-8"),), frames=(dumps(body),)
        )
    pieces = [piece for part in reply.parts for piece in _in_pieces(part)]
    closing = [pieces.pop() if _is_signed_end(reply) else _EMPTY] if pieces else []
    frames = [_event({**_response(reply, [piece], {}), **frame, **_so_far(reply)}) for piece in pieces]
    last = {**_response(reply, closing, end), "usageMetadata": wire_usage(reply.usage), **frame}
    return HttpReply(
        status=200, headers=(("content-type", "text/event-stream"),), frames=(*frames, _event(last))
    )


def _is_signed_end(reply: Reply) -> bool:
    """Whether the reply ends with a signature that no words carry."""
    last = reply.parts[-1]
    return isinstance(last, Text) and not last.text and last.native is not None


def _response(reply: Reply, blocks: list[Any], end: Block) -> Block:
    """A response with these parts; with `end`, also what stands beside the content."""
    if "promptFeedback" in end:
        return dict(end)
    content = {"parts": blocks, "role": "model"} if blocks else {"role": "model"}
    beside: Block = {}
    for part in reply.parts:
        if end and isinstance(part, Opaque) and part.kind in (CANDIDATE_FIELDS, CONTINUATION):
            beside |= loads(part.native)
    return {"candidates": [{"content": content, **end, "index": 0, **beside}]}


def _block(part: Part) -> Any:
    match part:
        case ToolResult():
            raise MisuseError("a model cannot say a ToolResult on this wire: leave it out of the reply")
        case Text(text="", native=None):
            return None
        case Text(text=text, native=None):
            return {"text": mended(text)}
        case ToolCall(name=name, wire_id=wire_id, id=call_id):
            return block_of(part, Kinship.OWN, name=name, sent_id=wire_id or call_id)
    return block_of(part, Kinship.OWN)


def _in_pieces(part: Part) -> Iterator[Any]:
    match part:
        case Text(text=text, native=None):
            yield from ({"text": piece} for piece in _PIECES.findall(mended(text)))
        case Reasoning(text=text, signature="", native=None):
            for piece in _PARAGRAPHS.findall(mended(text)):
                yield {"text": piece, "thought": True}
        case _:
            if (block := _block(part)) is not None:
                yield block


def _so_far(reply: Reply) -> Block:
    """Counts while the reply is being told: the prompt is known, the answer is not."""
    prompt = reply.usage.prompt
    return {"usageMetadata": {"promptTokenCount": prompt, "totalTokenCount": prompt}} if prompt else {}


def _event(response: Block) -> bytes:
    return b"data: %b\r\n\r\n" % dumps(response)
