"""Converts between Anthropic content blocks and Bridle's parts.

`decode_part` reads a block, `encode_part` writes one; each reverses the other. All code that carries blocks
uses these two: replies in JSON, streamed replies, decoded and encoded requests. That is why a streamed reply
equals the same reply in JSON.

Members of a block that the part does not model (citations, `caller`, future fields) are stored in the part's
`native`: a JSON object of just those members, so that a log holds nothing twice. Null members are dropped.
Blocks that are not modelled become `Opaque`.
"""

from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import Any, cast

from msgspec import Raw

from bridle.providers.wire.call_arguments import decode_arguments, encode_arguments
from bridle.providers.wire.hosted import describe_hosted_item
from bridle.providers.wire.json import dumps, is_object, loads, raw_json, repair_surrogates, text_or_empty
from bridle.providers.wire.media import decode_text_document, describe_omitted_media
from bridle.providers.wire.tool_names import ToolNameRules
from bridle.values.errors import MisuseError
from bridle.values.message import (
    Media,
    MediaKind,
    Opaque,
    Part,
    Reasoning,
    Text,
    ToolCall,
    ToolResult,
    is_written_for,
)

FAMILY = "anthropic"
TOOL_DIALECT, OUTPUT_DIALECT = "plain", "anthropic_output"
"""The JSON Schema dialects of this wire, for tools and for answers."""
Block = dict[str, Any]

TOOL_NAMES = ToolNameRules(length_max=128)

_KNOWN_MEMBERS = {
    "text": {"type", "text"},
    "tool_use": {"type", "id", "name", "input"},
    "tool_result": {"type", "tool_use_id", "content", "is_error"},
    "thinking": {"type", "thinking", "signature"},
    "redacted_thinking": {"type", "data"},
    "image": {"type", "source"},
    "document": {"type", "source", "title"},
}
"""The members of each block that parts model."""
KNOWN_BLOCKS = frozenset(_KNOWN_MEMBERS)

_SOURCE_MEMBERS: dict[str, set[str]] = {
    "base64": {"type", "media_type", "data"},
    "text": {"type", "media_type", "data"},
    "url": {"type", "url"},
    "file": {"type", "file_id"},
}


COMPACTION = "compaction"
"""The block that replaces everything before it. Its summary is text, for models that cannot use the block."""
FILE_MADE = "container_upload"
HOSTED_SUFFIXES = ("_tool_use", "_tool_result")
"""Ends of the types of blocks that the provider's own tools make."""
"""The block of a file that the model created: it may be the whole answer."""
FALLBACK = "fallback"
"""The block where the provider fell back to a second model."""
_UNKNOWN_INSTRUCTION = "block of system"
"""Key in the `native` of a system text for a block that is not text."""


def decode_part(block: Block, arguments: str | None = None) -> Part:
    """Convert a block to a part. `arguments` is the original text of a call's input, if available.

    Call ids are left empty, and results have the provider's id: the caller that numbers the calls sets both.
    """
    kind = text_or_empty(block.get("type"))
    if kind == "text" and len(block) == 2 and type(text := block.get("text")) is str:
        return Text(text=repair_surrogates(text))  # most blocks
    native = _extra_members(kind, block)
    match kind:
        case "text":
            return Text(text=text_or_empty(block.get("text")), native=native)
        case "tool_use":
            return _decode_call(block, arguments, native)
        case "tool_result":
            return ToolResult(
                call_id=text_or_empty(block.get("tool_use_id")),
                parts=_decode_result_parts(block.get("content")),
                outcome="error" if block.get("is_error") is True else "ok",
                native=native,
            )
        case "thinking":
            text, signature = text_or_empty(block.get("thinking")), text_or_empty(block.get("signature"))
            # defect: signature-kept
            return Reasoning(text=text, signature=signature, native=native)
        case "redacted_thinking":
            return Reasoning(signature=text_or_empty(block.get("data")), redacted=True, native=native)
        case "image" | "document":
            return _decode_media(cast("MediaKind", kind), block, native) or _make_opaque(kind, block)
    return _make_opaque(kind, block)


def can_send_back(part: Opaque, *, signed: bool, unsigned: bool) -> bool:
    """Return True if a provider that accepts these kinds of summaries accepts this part."""
    if part.kind != COMPACTION:
        return True
    return signed if loads(part.native).get("signature") else unsigned


def encode_part(part: Part, *, own: bool, sent_id: str = "") -> Block | Raw | None:
    """Convert a part to a block; None if it has no content on this wire.

    `own`: the part came from this endpoint, so its native members are sent again, and an opaque part is sent
    unchanged. So are those of a client of this wire. `sent_id` is the id that a call and its result share.
    """
    if type(part) is Opaque:
        return _encode_opaque(part) if own or part.wire == FAMILY else None
    block = _encode_known_part(part, own=own, sent_id=sent_id)
    if block is not None and part.native is not None and (own or is_written_for(part, FAMILY)):
        more: Block = loads(part.native)
        block.update((name, value) for name, value in more.items() if name not in block)
    return block


def decode_instruction(block: Block) -> Text:
    """Convert a system block to a text. A block of an unknown kind is stored in an empty text."""
    part = decode_part(block)
    if isinstance(part, Text):
        return part
    return Text(text="", native=dumps({_UNKNOWN_INSTRUCTION: block}).decode())


def encode_instruction(text: Text) -> Block | Raw | None:
    if text.native is not None and _UNKNOWN_INSTRUCTION in text.native and not text.text:
        kept: Block = loads(text.native)
        return cast("Block", kept[_UNKNOWN_INSTRUCTION])
    return encode_part(text, own=True)


def find_model_switch(parts: Sequence[Part]) -> int:
    """Return the position where the provider last fell back to a second model; 0 if it did not.

    Reasoning and calls of the first model before that position must be neither run nor sent back.
    """
    switch = 0
    for at, part in enumerate(parts):
        if type(part) is Opaque and part.kind == FALLBACK:
            switch = at
    return switch


def make_call_opaque(call: ToolCall) -> Opaque:
    """Convert a call that must not run to an opaque part."""
    return Opaque(kind="tool_use", native=dumps(encode_part(call, own=True, sent_id=call.wire_id)).decode())


def _encode_known_part(part: Part, *, own: bool, sent_id: str) -> Block | None:
    if type(part) is Text:
        return {"type": "text", "text": repair_surrogates(part.text)} if part.text.strip() else None
    if type(part) is ToolCall:
        name, arguments = TOOL_NAMES.encode_name(part.name), encode_arguments(part.arguments)
        return {"type": "tool_use", "id": sent_id, "name": name, "input": arguments}
    if type(part) is ToolResult:
        return _encode_result(part, own=own, sent_id=sent_id)
    if type(part) is Reasoning:
        if part.redacted:
            return {"type": "redacted_thinking", "data": part.signature}
        text = repair_surrogates(part.text)
        return {"type": "thinking", "thinking": text, "signature": part.signature}
    assert type(part) is Media
    return _encode_media(part)


def _encode_opaque(part: Opaque) -> Raw:
    if not is_object(part.native):
        raise MisuseError(f"an opaque part of kind {part.kind!r} holds no JSON object: it cannot be sent")
    return raw_json(part.native)


def _encode_result(result: ToolResult, *, own: bool, sent_id: str) -> Block:
    block: Block = {"type": "tool_result", "tool_use_id": sent_id}
    content = [inner for part in result.parts if (inner := encode_part(part, own=own)) is not None]
    if not content and result.is_error:
        # The provider refuses an error without text.
        content = [{"type": "text", "text": f"The call ended without a word: {result.outcome}."}]
    only = content[0] if len(content) == 1 else None
    if isinstance(only, dict) and only.keys() == _KNOWN_MEMBERS["text"]:
        block["content"] = only["text"]
    elif content:
        block["content"] = content
    if result.is_error:
        block["is_error"] = True
    return block


def add_tool_references(block: Block | Raw, names: Sequence[str]) -> Block | Raw:
    """Add references that make tools available to a result. An error result may contain text only."""
    if not names or not isinstance(block, dict) or "is_error" in block:
        return block
    content = block.get("content", [])
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    references = [{"type": "tool_reference", "tool_name": TOOL_NAMES.encode_name(name)} for name in names]
    return {**block, "content": [*blocks, *references]}


def _encode_media(media: Media) -> Block:
    if media.kind not in ("image", "document"):
        return {"type": "text", "text": describe_omitted_media(media)}
    source: Block
    if media.url:
        source = {"type": "url", "url": media.url}
    elif media.file_id:
        source = {"type": "file", "file_id": media.file_id}
    elif media.kind == "document" and media.media_type.startswith("text/"):
        source = {"type": "text", "media_type": "text/plain", "data": decode_text_document(media)}
    else:
        source = {"type": "base64", "media_type": media.media_type, "data": media.data}
    block: Block = {"type": media.kind, "source": source}
    if media.kind == "document" and media.name:
        block["title"] = repair_surrogates(media.name)
    return block


def _decode_call(block: Block, arguments: str | None, native: str | None) -> ToolCall:
    if arguments is None:
        arguments = dumps(block.get("input") or {}).decode()
    return ToolCall(
        id="",
        name=text_or_empty(block.get("name")),
        arguments=decode_arguments(arguments),
        wire_id=text_or_empty(block.get("id")),
        native=native,
    )


def _decode_result_parts(content: object) -> tuple[Text | Media | Opaque, ...]:
    if isinstance(content, str):
        return (Text(text=content),) if content else ()
    if isinstance(content, dict):
        content = [content]
    if not isinstance(content, list):
        return ()
    return tuple(_decode_inner_part(block) for block in content if isinstance(block, dict))


def _decode_inner_part(block: Block) -> Text | Media | Opaque:
    part = decode_part(block)
    return (
        part
        if isinstance(part, Text | Media | Opaque)
        else _make_opaque(text_or_empty(block.get("type")), block)
    )


def _decode_media(kind: MediaKind, block: Block, native: str | None) -> Media | None:
    """Decode an image or document; None if `Media` cannot represent its source."""
    source = block.get("source")
    if not isinstance(source, dict) or source.keys() != _SOURCE_MEMBERS.get(
        text_or_empty(source.get("type"))
    ):
        return None
    if not all(isinstance(value, str) for value in source.values()):
        return None
    name = text_or_empty(block.get("title"))
    match source["type"]:
        case "url":
            return Media.from_wire(kind=kind, url=source["url"], name=name, native=native)
        case "file":
            return Media.from_wire(kind=kind, file_id=source["file_id"], name=name, native=native)
        case "base64" if not source["media_type"].startswith("text/"):
            data, media_type = source["data"], source["media_type"]
        case "text" if kind == "document" and source["media_type"] == "text/plain":
            data, media_type = b64encode(repair_surrogates(source["data"]).encode()).decode(), "text/plain"
        case _:
            return None
    return Media.from_wire(kind=kind, media_type=media_type, data=data, name=name, native=native)


def _make_opaque(kind: str, block: Block) -> Opaque:
    text = text_or_empty(block.get("content")) if kind == COMPACTION else ""
    if kind.endswith(HOSTED_SUFFIXES):
        given = {"arguments": dumps(block["input"]).decode()} if block.get("input") else {}
        text = describe_hosted_item(
            kind, {"name": block.get("name"), **given, "content": block.get("content")}
        )
    return Opaque(kind=kind, native=dumps(block).decode(), text=text, answers=kind == FILE_MADE)


def _extra_members(kind: str, block: Mapping[str, Any]) -> str | None:
    """Return the members of the block that parts do not model, as JSON; None if there are none."""
    modelled = _KNOWN_MEMBERS.get(kind)
    if modelled is None or block.keys() == modelled:
        return None
    more = {
        name: value
        for name, value in block.items()
        if name not in modelled and value is not None and not (name == "citations" and value == [])
    }
    return dumps(more).decode() if more else None
