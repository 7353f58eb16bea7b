"""Converts between a model's message on Chat Completions and its parts.

`decode_parts` reads a message, `encode_message` writes one; each reverses the other. All messages of a model
pass through these two: replies in JSON, streamed replies, decoded and encoded requests. That is why a
streamed reply equals the same reply in JSON.

The members of a message have no order; the parts have: reasoning, text, a refusal, images, audio, calls.
Members that parts do not model are kept with the first part, under `message`, and sent back to the server
they came from. In a refused message the last text is the refusal.
"""

from collections.abc import Sequence
from typing import Any, TypeGuard

from msgspec import Raw
from msgspec.structs import replace

from bridle.providers.wire.json import drop_nulls, dumps, repair_surrogates, text_or_empty
from bridle.providers.wire.media import describe_omitted_media
from bridle.values.message import Media, Opaque, Part, Reasoning, Text, ToolCall, is_written_for

from .calls import decode_call, decode_legacy_call, encode_call, encode_legacy_call, is_legacy_call
from .content import (
    Block,
    decode_content,
    decode_native,
    encode_content,
    encode_native,
    parse_object,
)
from .dialect import FAMILY, ChatDialect
from .reasoning import (
    BLOCKS_FIELD,
    DETAILS_FIELD,
    REASONING_FIELDS,
    decode_chunk,
    decode_reasoning,
    encode_chunk,
    encode_reasoning,
    encode_tagged,
    remove_echo,
    split_tagged,
)

_KNOWN_MEMBERS = {
    "role",
    "content",
    "refusal",
    "images",
    "audio",
    "tool_calls",
    "function_call",
    BLOCKS_FIELD,
    DETAILS_FIELD,
    *REASONING_FIELDS,
}
_IGNORED_MEMBERS = {"index", "padding", "token_id", "channel", "parsed", "audio_content", "provider_metadata"}
"""Members without meaning: padding, copies of other members, routing notes."""
_EMPTY_VALUES: tuple[object, ...] = (None, "", [], {})
_PLAIN_TEXT_MEMBERS = {"type", "text"}
TEXT_SEPARATOR = "\n\n"


def decode_parts(message: Block, dialect: ChatDialect, *, cut: bool = False) -> list[Part]:
    """Decode the parts of a message. `cut`: the reply was truncated, so its last call may lack arguments."""
    parts: list[Part] = [*decode_reasoning(message), *decode_content_parts(message.get("content"), dialect)]
    if refusal := text_or_empty(message.get("refusal")):
        parts.append(Text(text=refusal))
    parts += [*_decode_images(message.get("images")), *_decode_audio(message.get("audio"))]
    listed = message.get("tool_calls")
    calls = listed if isinstance(listed, list) else []
    last = len(calls) - 1
    parts += [
        call
        for at, each in enumerate(calls)
        if (call := decode_call(each, cut=cut and at == last)) is not None
    ]
    if call := decode_legacy_call(message.get("function_call"), cut=cut):
        parts.append(call)
    return keep_members(parts, extra_members(message, _KNOWN_MEMBERS | _IGNORED_MEMBERS))


def is_refusal(message: Block) -> bool:
    return bool(text_or_empty(message.get("refusal")))


def decode_content_parts(content: object, dialect: ChatDialect) -> list[Part]:
    if isinstance(content, str):
        found = split_tagged(repair_surrogates(content)) if dialect.think_tags else None
        if found is None:
            return [Text(text=repair_surrogates(content))] if content else []
        thought, rest = found
        return [thought, Text(text=rest)] if rest else [thought]
    parts: list[Part] = []
    for block in content if isinstance(content, list) else ():
        if isinstance(block, dict) and block.get("type") == "thinking":
            parts.append(decode_chunk(block))
        elif not isinstance(block, str):
            parts.append(decode_content(block))
        elif block:
            parts.append(Text(text=repair_surrogates(block)))
    return parts


def extra_members(message: Block, taken: set[str]) -> Block:
    """Return the non-empty members that are not modelled."""
    told = ((name, remove_echo(name, value)) for name, value in message.items() if name not in taken)
    return {name: value for name, value in told if value not in _EMPTY_VALUES}


def keep_members(parts: Sequence[Part], fields: Block, member: str = "message") -> list[Part]:
    """Store members of the message in the first part; without a part nothing is stored."""
    for place, part in enumerate(parts):
        if fields and not isinstance(part, Opaque):
            kept = replace(part, native=encode_native(**decode_native(part), **{member: fields}))
            return [*parts[:place], kept, *parts[place + 1 :]]
    return list(parts)


def kept_members(parts: Sequence[Part], *, own: bool = True) -> Block:
    """Return the members of the message that its parts keep; without `own`, those that a client wrote."""
    fields: Block = {}
    for part in parts:
        if part.native and (own or is_written_for(part, FAMILY)):
            fields.update(decode_native(part).get("message", {}))
    return fields


def encode_message(
    parts: Sequence[Part],
    dialect: ChatDialect,
    *,
    own: bool,
    refused: bool = False,
    sent_ids: Sequence[str] = (),
) -> Block:
    """Encode a message with these parts; empty if they have no content. `sent_ids` are the ids of its calls.

    `own`: the parts came from this very server, so content that only it can read is sent back. The caller
    removes reasoning that must not be sent.
    """
    words, refusal = _split_refusal(parts) if refused and own else (parts, "")
    message: Block = {}
    content = _encode_content(words, dialect, own=own)
    if content is not None:
        message["content"] = content
    if refusal:
        message["refusal"] = repair_surrogates(refusal)
    if thoughts := [part for part in parts if type(part) is Reasoning]:
        encode_reasoning(message, thoughts)
    has_native = own and bool([part for part in parts if part.native])
    if has_native and (
        images := [encode_content(part, dialect, own=True) for part in parts if _is_generated_image(part)]
    ):
        message["images"] = images
    if has_native and (sound := _encode_audio_reference(parts)):
        message["audio"] = sound
    if sent_ids:
        _add_calls(message, [part for part in parts if type(part) is ToolCall], sent_ids, own=own)
    if has_native:
        fields = kept_members(parts)
        message.update((name, value) for name, value in fields.items() if name not in dialect.unsent)
    if message and "content" not in message and dialect.empty_content != "absent":
        message = {"content": None if dialect.empty_content == "null" else "", **message}
    return {"role": "assistant", **message} if message else {}


def simplify_content(blocks: Sequence[Block | Raw], dialect: ChatDialect) -> Any:
    """Simplify content: a string if it is only text, which every server accepts."""
    if dialect.content == "string":
        return TEXT_SEPARATOR.join(
            block["text"] for block in blocks if isinstance(block, dict) and "text" in block
        )
    only = blocks[0] if len(blocks) == 1 else None
    if isinstance(only, dict) and only.keys() == _PLAIN_TEXT_MEMBERS:
        return only["text"]
    return list(blocks)


def _encode_content(parts: Sequence[Part], dialect: ChatDialect, *, own: bool) -> Any:
    blocks: list[Block | Raw] = []
    tags = ""
    for part in parts:
        if type(part) is ToolCall:
            continue
        native = decode_native(part) if part.native else {}
        match part:
            case Text() if own and "audio" in native:
                continue
            case Text() | Opaque():
                if (block := encode_content(part, dialect, own=own)) is not None:
                    blocks.append(block)
            case Reasoning() if "tag" in native:
                tags += encode_tagged(part)
            case Reasoning() if "chunk" in native:
                blocks.append(encode_chunk(part))
            case Media() if own and (part.kind == "audio" or _is_generated_image(part)):
                continue
            case Media():
                blocks.append({"type": "text", "text": describe_omitted_media(part)})
    if not blocks:
        return tags or None
    content = simplify_content(blocks, dialect) or None
    if not tags or content is None:
        return tags or content
    return tags + content if isinstance(content, str) else [{"type": "text", "text": tags}, *content]


def _split_refusal(parts: Sequence[Part]) -> tuple[list[Part], str]:
    for place in range(len(parts) - 1, -1, -1):
        part = parts[place]
        if isinstance(part, Text) and part.text.strip() and "audio" not in decode_native(part):
            return [*parts[:place], *parts[place + 1 :]], part.text
    return list(parts), ""


def _add_calls(message: Block, calls: Sequence[ToolCall], sent_ids: Sequence[str], *, own: bool) -> None:
    listed = []
    for call, sent_id in zip(calls, sent_ids, strict=True):
        if own and call.native and is_legacy_call(call):
            message["function_call"] = encode_legacy_call(call)
        else:
            listed.append(encode_call(call, sent_id, own=own))
    if listed:
        message["tool_calls"] = listed


def _decode_images(listed: object) -> list[Part]:
    """Decode generated images, which are beside the text."""
    drawn = [decode_content(block) for block in listed] if isinstance(listed, list) else []
    return [
        replace(part, native=encode_native(**decode_native(part), **{"in": "images"}))
        for part in drawn
        if isinstance(part, Media)
    ]


def _is_generated_image(part: Part) -> TypeGuard[Media]:
    return type(part) is Media and decode_native(part).get("in") == "images"


def _decode_audio(audio: object) -> list[Part]:
    """Decode generated audio: its transcript, which is the answer, and the sound."""
    if not isinstance(audio, dict):
        return []
    held = {name: value for name, value in audio.items() if name not in ("data", "transcript")}
    transcript, data, known = (
        text_or_empty(audio.get("transcript")),
        text_or_empty(audio.get("data")),
        text_or_empty(audio.get("id")),
    )
    if not transcript and not data:
        return [Opaque(kind="audio", native=dumps(held).decode(), answers=True)] if known else []
    kept = encode_native(audio=drop_nulls(held)) if known else None
    words: list[Part] = [Text(text=transcript, native=kept)] if transcript else []
    return (
        [*words, Media.from_wire(kind="audio", data=data, native=None if words else kept)] if data else words
    )


def _encode_audio_reference(parts: Sequence[Part]) -> Block | None:
    """Encode audio as its id; the server has the rest."""
    for part in parts:
        sealed = isinstance(part, Opaque) and part.kind == "audio"
        held = parse_object(part.native or "") if sealed else decode_native(part).get("audio")
        if isinstance(held, dict) and held.get("id"):
            return {"id": held["id"]}
    return None
