"""Replies as the Responses wire gives them, whole or in pieces: the other end of the decoder.

The stream has the shape of recorded ones: every item announced, told in pieces, told whole, and told once
more in the response that ends the stream; events numbered; of encrypted content only the beginning when
its item is announced.  Items have the ids that the reply's parts kept, and none when they kept none.
What a reply does not have is made from its content, so the same reply is always told in the same bytes.
"""

import re
from collections.abc import Iterator
from hashlib import blake2b
from typing import Any

from msgspec import Raw

from bridle.ports.codec import HttpReply
from bridle.providers.wire.json import dumps, loads
from bridle.providers.wire.usage import encode_service_tier
from bridle.values.errors import MisuseError
from bridle.values.message import Media, Reply, Stop, ToolCall, ToolResult

from .content import Block
from .parts import encode_items
from .usage import COMPACTED_OBJECT, encode_stop, encode_usage, is_compaction

_WORD = re.compile(r"\s*\S+|\s+")
_FRAGMENT_LENGTH = 5
"""About what recorded streams show for pieces of arguments."""
_ARGUMENT_EVENTS = {
    "function_call": ("arguments", "response.function_call_arguments"),
    "custom_tool_call": ("input", "response.custom_tool_call_input"),
}
_REASONING_EVENTS = {"summary": "response.reasoning_summary", "content": "response.reasoning"}


def encode_reply(reply: Reply, *, stream: bool) -> HttpReply:
    for part in reply.parts:
        if isinstance(part, Media | ToolResult):
            raise MisuseError(
                f"a model cannot say a {type(part).__name__} on this wire: leave it out of the reply"
            )
    identity = reply.id or "resp_" + blake2b(dumps(reply), digest_size=24).hexdigest()
    numbers = {id(part): place for place, part in enumerate(reply.parts)}

    def call_id(call: ToolCall) -> str:
        return call.wire_id or call.id or f"call_{identity[5:]}_{numbers[id(call)]}"

    items = encode_items(reply.parts, own=True, refused=reply.stop is Stop.REFUSED, sent_id=call_id)
    if is_compaction(reply):
        return _encode_compacted(identity, reply, items)
    response = _encode_response(identity, reply)
    end = {**response, **encode_stop(reply), "output": items, "usage": encode_usage(reply.usage)}
    if tier := encode_service_tier(reply.usage.terms):
        end["service_tier"] = tier
    if not stream:
        return HttpReply(status=200, headers=(("content-type", "application/json"),), frames=(dumps(end),))
    plain: list[Block] = loads(dumps(items))
    frames = tuple(
        _encode_event({"type": event["type"], "sequence_number": number, **event})
        for number, event in enumerate(_stream_events(response, plain, end))
    )
    return HttpReply(
        status=200, headers=(("content-type", "text/event-stream; charset=utf-8"),), frames=frames
    )


def _encode_compacted(identity: str, reply: Reply, items: list[Block | Raw]) -> HttpReply:
    """A conversation made short; it never comes in pieces."""
    told = {
        "id": identity,
        "object": COMPACTED_OBJECT,
        "created_at": 0,
        "output": items,
        "usage": encode_usage(reply.usage),
    }
    return HttpReply(status=200, headers=(("content-type", "application/json"),), frames=(dumps(told),))


def _encode_response(identity: str, reply: Reply) -> Block:
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
        stub = _announced_item(item)
        yield {"type": "response.output_item.added", "output_index": index, "item": stub}
        where = {"item_id": item.get("id") or f"item_{index}", "output_index": index}
        for event in _split_item(item):
            yield {**event, **where}
        yield {"type": "response.output_item.done", "output_index": index, "item": item}
    kind = "completed" if end["status"] == "completed" else "incomplete"
    yield {"type": f"response.{kind}", "response": end}


def _announced_item(item: Block) -> Block:
    """The item as it is announced: begun, with nothing said yet."""
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


def _split_item(item: Block) -> Iterator[Block]:
    match item["type"]:
        case "message":
            for number, part in enumerate(item["content"]):
                yield from _content_events(number, part)
        case "reasoning":
            for name, prefix in _REASONING_EVENTS.items():
                for number, part in enumerate(item.get(name, [])):
                    yield from _reasoning_events(name, prefix, number, part)
        case "compaction":
            yield {"type": "response.compaction.compacting"}
        case "function_call" | "custom_tool_call" as kind:
            inside, prefix = _ARGUMENT_EVENTS[kind]
            said: str = item[inside]
            for at in range(0, len(said), _FRAGMENT_LENGTH):
                yield {"type": f"{prefix}.delta", "delta": said[at : at + _FRAGMENT_LENGTH]}
            yield {"type": f"{prefix}.done", inside: said}


def _content_events(number: int, part: Block) -> Iterator[Block]:
    kind, inside = ("refusal", "refusal") if part["type"] == "refusal" else ("output_text", "text")
    place = {"content_index": number}
    bare: Block = {**part, inside: ""}
    cited: list[Any] = part.get("annotations", [])
    if cited:
        bare["annotations"] = []
    yield {"type": "response.content_part.added", **place, "part": bare}
    for word in _WORD.findall(part[inside]):
        yield {"type": f"response.{kind}.delta", **place, "delta": word}
    for index, annotation in enumerate(cited):
        added = {"annotation_index": index, "annotation": annotation}
        yield {"type": "response.output_text.annotation.added", **place, **added}
    yield {"type": f"response.{kind}.done", **place, inside: part[inside]}
    yield {"type": "response.content_part.done", **place, "part": part}


def _reasoning_events(name: str, prefix: str, number: int, part: Block) -> Iterator[Block]:
    place = {f"{name}_index": number}
    if name == "summary":
        yield {"type": f"{prefix}_part.added", **place, "part": {**part, "text": ""}}
    for word in _WORD.findall(part.get("text", "")):
        yield {"type": f"{prefix}_text.delta", **place, "delta": word}
    yield {"type": f"{prefix}_text.done", **place, "text": part.get("text", "")}
    if name == "summary":
        yield {"type": f"{prefix}_part.done", **place, "part": part}


def _encode_event(event: Block) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (event["type"].encode(), dumps(event))
