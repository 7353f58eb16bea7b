"""A model's message on Chat Completions and its parts, both ways.

`parts_of` reads a message, `message_of` writes one; each undoes the other.  Every message of a model
goes through these two: replies in JSON, replies put together from a stream, requests read, requests
written and replies spoken.  That is why a streamed reply equals the same reply in JSON.

The members of a message have no order; our parts have: reasoning, words, a refusal, pictures, sound,
calls.
Members we have no place for are kept with the first part, under `message`, and go back to the server
they came from.  In a refused message the last text is the refusal.
"""

from collections.abc import Sequence
from typing import Any, TypeGuard

from msgspec import Raw
from msgspec.structs import replace

from ..values.parts import Media, Opaque, Part, Reasoning, Text, ToolCall
from ._json import dumps, mended
from ._openai_chat_calls import call_of, is_legacy, legacy_call, wire_call, wire_legacy
from ._openai_chat_content import (
    Block,
    block_of,
    left_out,
    native_in,
    native_of,
    object_in,
    part_of,
    said,
    word,
)
from ._openai_chat_dialect import Dialect
from ._openai_chat_thoughts import (
    BLOCKS,
    DETAILS,
    FIELDS,
    chunk_of,
    chunk_part,
    put_thoughts,
    tagged,
    thoughts_of,
    untagged,
    without_echo,
)

_TAKEN = {
    "role",
    "content",
    "refusal",
    "images",
    "audio",
    "tool_calls",
    "function_call",
    BLOCKS,
    DETAILS,
    *FIELDS,
}
_NOISE = {"index", "padding", "token_id", "channel", "parsed", "audio_content", "provider_metadata"}
"""Members that say nothing: filling, echoes of other members, notes on routing."""
_EMPTY: tuple[object, ...] = (None, "", [], {})
_PLAIN_TEXT = {"type", "text"}
TEXTS_JOINT = "\n\n"


def parts_of(message: Block, dialect: Dialect, *, cut: bool = False) -> list[Part]:
    """`cut`: the reply ran out of room, so its last call may lack arguments it was going to have."""
    parts: list[Part] = [*thoughts_of(message), *content_parts(message.get("content"), dialect)]
    if refusal := word(message.get("refusal")):
        parts.append(Text(text=refusal))
    parts += [*_images(message.get("images")), *_sound(message.get("audio"))]
    listed = message.get("tool_calls")
    calls = listed if isinstance(listed, list) else []
    last = len(calls) - 1
    parts += [
        call for at, each in enumerate(calls) if (call := call_of(each, cut=cut and at == last)) is not None
    ]
    if call := legacy_call(message.get("function_call"), cut=cut):
        parts.append(call)
    return with_members(parts, beside(message, _TAKEN | _NOISE))


def is_refusal(message: Block) -> bool:
    return bool(word(message.get("refusal")))


def content_parts(content: object, dialect: Dialect) -> list[Part]:
    if isinstance(content, str):
        found = untagged(mended(content)) if dialect.think_tags else None
        if found is None:
            return [Text(text=mended(content))] if content else []
        thought, rest = found
        return [thought, Text(text=rest)] if rest else [thought]
    parts: list[Part] = []
    for block in content if isinstance(content, list) else ():
        if isinstance(block, dict) and block.get("type") == "thinking":
            parts.append(chunk_part(block))
        elif not isinstance(block, str):
            parts.append(part_of(block))
        elif block:
            parts.append(Text(text=mended(block)))
    return parts


def beside(message: Block, taken: set[str]) -> Block:
    """The members nobody has a place for and that say something."""
    told = ((name, without_echo(name, value)) for name, value in message.items() if name not in taken)
    return {name: value for name, value in told if value not in _EMPTY}


def with_members(parts: Sequence[Part], fields: Block, member: str = "message") -> list[Part]:
    """The parts, the first of which keeps these members of the message; without a part nothing is kept."""
    for place, part in enumerate(parts):
        if fields and not isinstance(part, Opaque):
            kept = replace(part, native=native_of(**native_in(part), **{member: fields}))
            return [*parts[:place], kept, *parts[place + 1 :]]
    return list(parts)


def members_of(parts: Sequence[Part]) -> Block:
    fields: Block = {}
    for part in parts:
        fields.update(native_in(part).get("message", {}))
    return fields


def message_of(
    parts: Sequence[Part],
    dialect: Dialect,
    *,
    own: bool,
    refused: bool = False,
    sent_ids: Sequence[str] = (),
) -> Block:
    """A message with these parts; empty when they say nothing.  `sent_ids` are the ids of its calls.

    `own`: they came from this very server, so what only it can read goes back.  Reasoning that must not
    be sent is left out by the caller.
    """
    words, refusal = _refusal_apart(parts) if refused and own else (parts, "")
    message: Block = {}
    content = _content(words, dialect, own=own)
    if content is not None:
        message["content"] = content
    if refusal:
        message["refusal"] = mended(refusal)
    put_thoughts(message, [part for part in parts if isinstance(part, Reasoning)])
    if own and (images := [block_of(part, dialect, own=True) for part in parts if _is_drawn(part)]):
        message["images"] = images
    if own and (sound := _sound_id(parts)):
        message["audio"] = sound
    _put_calls(message, [part for part in parts if isinstance(part, ToolCall)], sent_ids, own=own)
    if own:
        fields = members_of(parts)
        message.update((name, value) for name, value in fields.items() if name not in dialect.unsent)
    if message and "content" not in message and dialect.empty_content != "absent":
        message = {"content": None if dialect.empty_content == "null" else "", **message}
    return {"role": "assistant", **message} if message else {}


def joined(blocks: Sequence[Block | Raw], dialect: Dialect) -> Any:
    """Content in its plainest form: a string when it is nothing but words, which every server takes."""
    texts = [block["text"] for block in blocks if isinstance(block, dict) and block.keys() == _PLAIN_TEXT]
    if dialect.content == "string":
        return TEXTS_JOINT.join(
            block["text"] for block in blocks if isinstance(block, dict) and "text" in block
        )
    return texts[0] if len(blocks) == 1 and texts else list(blocks)


def _content(parts: Sequence[Part], dialect: Dialect, *, own: bool) -> Any:
    blocks: list[Block | Raw] = []
    tags = ""
    for part in parts:
        native = native_in(part)
        match part:
            case Reasoning() if "tag" in native:
                tags += tagged(part)
            case Reasoning() if "chunk" in native:
                blocks.append(chunk_of(part))
            case Text() if own and "audio" in native:
                continue
            case Media() if own and (part.kind == "audio" or _is_drawn(part)):
                continue
            case Media():
                blocks.append({"type": "text", "text": left_out(part)})
            case Text() | Opaque():
                if (block := block_of(part, dialect, own=own)) is not None:
                    blocks.append(block)
    if not blocks:
        return tags or None
    content = joined(blocks, dialect) or None
    if not tags or content is None:
        return tags or content
    return tags + content if isinstance(content, str) else [{"type": "text", "text": tags}, *content]


def _refusal_apart(parts: Sequence[Part]) -> tuple[list[Part], str]:
    for place in range(len(parts) - 1, -1, -1):
        part = parts[place]
        if isinstance(part, Text) and part.text.strip() and "audio" not in native_in(part):
            return [*parts[:place], *parts[place + 1 :]], part.text
    return list(parts), ""


def _put_calls(message: Block, calls: Sequence[ToolCall], sent_ids: Sequence[str], *, own: bool) -> None:
    listed = []
    for call, sent_id in zip(calls, sent_ids, strict=True):
        if own and is_legacy(call):
            message["function_call"] = wire_legacy(call)
        else:
            listed.append(wire_call(call, sent_id, own=own))
    if listed:
        message["tool_calls"] = listed


def _images(listed: object) -> list[Part]:
    """What the model drew, which stands beside its words."""
    drawn = [part_of(block) for block in listed] if isinstance(listed, list) else []
    return [
        replace(part, native=native_of(**native_in(part), **{"in": "images"}))
        for part in drawn
        if isinstance(part, Media)
    ]


def _is_drawn(part: Part) -> TypeGuard[Media]:
    return isinstance(part, Media) and native_in(part).get("in") == "images"


def _sound(audio: object) -> list[Part]:
    """What the model spoke: the words it said, which are its answer, and the sound of them."""
    if not isinstance(audio, dict):
        return []
    held = {name: value for name, value in audio.items() if name not in ("data", "transcript")}
    transcript, data, known = word(audio.get("transcript")), word(audio.get("data")), word(audio.get("id"))
    if not transcript and not data:
        return [Opaque(kind="audio", native=dumps(held).decode(), answers=True)] if known else []
    kept = native_of(audio=said(held)) if known else None
    words: list[Part] = [Text(text=transcript, native=kept)] if transcript else []
    return (
        [*words, Media.received(kind="audio", data=data, native=None if words else kept)] if data else words
    )


def _sound_id(parts: Sequence[Part]) -> Block | None:
    """Sound goes back as its id; the server has the rest."""
    for part in parts:
        sealed = isinstance(part, Opaque) and part.kind == "audio"
        held = object_in(part.native or "") if sealed else native_in(part).get("audio")
        if isinstance(held, dict) and held.get("id"):
            return {"id": held["id"]}
    return None
