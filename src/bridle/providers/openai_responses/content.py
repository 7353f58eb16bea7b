"""Converts between content of the Responses wire and Bridle's parts: pieces of messages and tool outputs.

The role decides the type of a text (`input_text`, `output_text`, `refusal`); images and files can only be
input. `decode_content` reads one piece, `encode_content` writes one; members that a part does not model are
the `part` of the native object described in parts.py.

Encoding follows the strictest server found: some require members that the provider itself makes optional
(`annotations` on output, `detail` on an image, a name for a file).
"""

import re
from collections.abc import Mapping
from typing import Any

from msgspec import Raw

from bridle.providers.wire.json import drop_nulls, dumps, loads, raw_json, repair_surrogates, text_or_empty
from bridle.providers.wire.media import describe_omitted_media
from bridle.values.message import Media, Opaque, Text, ToolResult

FAMILY = "openai_responses"
Block = dict[str, Any]
CONTENT = (Text, Media)

OPAQUE_CONTENT_PREFIX = "content."
"""Prefix of the kind of an `Opaque` that is a piece of content, not an item."""
_TEXT_MEMBERS = {"input_text": "text", "output_text": "text", "text": "text", "refusal": "refusal"}
"""The member of each type of text that holds it."""
_KNOWN_TEXT_MEMBERS = {member: {"type", member} for member in _TEXT_MEMBERS.values()}
_KNOWN_MEDIA_MEMBERS = {
    "image_url": {"type", "image_url"},
    "file_url": {"type", "file_url"},
    "file_data": {"type", "file_data", "filename"},
    "file_id": {"type", "file_id"},
}
_DATA_URL = re.compile(r"data:([\w.+-]+/[\w.+-]+);base64,(.*)", re.DOTALL)


def expand_content(content: object, kind: str) -> list[Block] | None:
    """Return content in its list form: a string is one text. None if it is not content."""
    if isinstance(content, str):
        return [{"type": kind, "text": content}]
    if content is None:
        return []
    if isinstance(content, list) and not [piece for piece in content if not isinstance(piece, dict)]:
        return content
    return None


def decode_content(
    piece: Block, role: str, *, refused: bool = False, message: Block | None = None
) -> Text | Media | Opaque:
    """Convert a piece of content. `message`: further members of the message that a text starts."""
    kind = text_or_empty(piece.get("type"))
    member = _TEXT_MEMBERS.get(kind)
    if member is not None and isinstance(text := piece.get(member), str):
        more = _extra_members(_KNOWN_TEXT_MEMBERS[member], piece)
        if kind != _text_type(role, refused=refused):
            more["type"] = kind
        native: Block = {} if message is None else {"message": message}
        if more:
            native["part"] = more
        return Text(text=text_or_empty(text), native=dumps(native).decode() if native else None)
    if role != "assistant" and (media := _decode_media(kind, piece)) is not None:
        return media
    return Opaque(kind=OPAQUE_CONTENT_PREFIX + kind, native=dumps(piece).decode())


def encode_content(
    part: Text | Media, native: Mapping[str, Any], role: str, *, refused: bool = False
) -> Block:
    """Encode a piece of content with its native members, if it has any."""
    if isinstance(part, Media):
        return {**_encode_media(part, role), **native}
    kind = native.get("type") or _text_type(role, refused=refused)
    member = _TEXT_MEMBERS.get(kind)
    if member is None:
        return dict(native)
    piece: Block = {"type": kind, member: repair_surrogates(part.text)}
    if kind == "output_text":
        piece["annotations"] = []
    return {**piece, **native} if native else piece


def encode_output(result: ToolResult, *, own: bool) -> str | list[Any]:
    """Encode the content of a result: a string if it is plain text. `own`: native members are sent again."""
    pieces: list[Any] = []
    for part in result.parts:
        taken = own or part.wire == FAMILY
        if isinstance(part, Opaque):
            if taken:
                pieces.append(raw_json(part.native))
        elif not is_blank(part):
            native = loads(part.native).get("part", {}) if taken and part.native is not None else {}
            pieces.append(encode_content(part, native, "tool"))
    if result.is_error:
        prefix = "[tool error]" if result.outcome == "error" else f"[tool error: {result.outcome}]"
        first = pieces[0] if pieces else None
        if isinstance(first, dict) and first["type"] == "input_text":
            pieces[0] = {**first, "text": f"{prefix} {first['text']}"}
        else:
            pieces.insert(0, {"type": "input_text", "text": prefix})
    if not pieces:
        return ""
    only = pieces[0] if len(pieces) == 1 else None
    return only["text"] if isinstance(only, dict) and only.keys() == {"type", "text"} else pieces


def shorten_message(item: Block | Raw) -> Block | Raw:
    """Shorten a message of plain text to a string: the one form every server accepts for every role."""
    if isinstance(item, dict) and item.keys() == {"type", "role", "content"} and len(item["content"]) == 1:
        piece: Block = {"annotations": [], **item["content"][0]}
        if piece.keys() == {"type", "text", "annotations"} and not piece["annotations"]:
            return {**item, "content": piece["text"]}
    return item


def is_blank(part: object, *, own: bool = False) -> bool:
    """Return True for a blank text. With `own`, a blank text may hold the native form of an unknown piece."""
    return isinstance(part, Text) and not part.text.strip() and not (own and _is_placeholder(part))


def _is_placeholder(part: Text) -> bool:
    piece = loads(part.native).get("part") if part.native is not None else None
    return isinstance(piece, dict) and text_or_empty(piece.get("type")) not in ("", *_TEXT_MEMBERS)


def _text_type(role: str, *, refused: bool) -> str:
    if role != "assistant":
        return "input_text"
    return "refusal" if refused else "output_text"


def _decode_media(kind: str, piece: Block) -> Media | None:
    """Decode media; None if `Media` cannot represent its source."""
    given = [name for name in _KNOWN_MEDIA_MEMBERS if isinstance(piece.get(name), str)]
    if kind not in ("input_image", "input_file") or len(given) != 1:
        return None
    source, value = given[0], text_or_empty(piece[given[0]])
    more = _extra_members(_KNOWN_MEDIA_MEMBERS[source], piece)
    if more.get("detail") == "auto":
        del more["detail"]
    media_kind: Any = "image" if kind == "input_image" else "document"
    inline = _DATA_URL.fullmatch(value)
    native = dumps({"part": more}).decode() if more else None
    if source == "file_id":
        return Media.from_wire(kind=media_kind, file_id=value, native=native)
    if source == "file_data" and inline is None:
        return None
    if inline is None or source == "file_url":
        return Media.from_wire(kind=media_kind, url=value, native=native)
    media_type, name = inline.group(1), text_or_empty(piece.get("filename"))
    name = "" if name == _default_file_name(media_type) else name
    return Media.from_wire(
        kind=media_kind, media_type=media_type, data=inline.group(2), name=name, native=native
    )


def _encode_media(media: Media, role: str) -> Block:
    if role == "assistant" or media.kind not in ("image", "document"):
        return encode_content(Text(text=describe_omitted_media(media)), {}, role)
    kind = "input_image" if media.kind == "image" else "input_file"
    piece: Block = {"type": kind}
    if media.file_id:
        piece["file_id"] = media.file_id
    elif media.url:
        piece["image_url" if media.kind == "image" else "file_url"] = media.url
    else:
        inline = f"data:{media.media_type or 'application/octet-stream'};base64,{media.data}"
        if media.kind == "image":
            piece["image_url"] = inline
        else:
            piece["filename"] = repair_surrogates(media.name) or _default_file_name(media.media_type)
            piece["file_data"] = inline
    if media.kind == "image":
        piece["detail"] = "auto"
    return piece


def _default_file_name(media_type: str) -> str:
    """Return a file name: files must have one, and the suffix tells their type."""
    ending = media_type.rpartition("/")[2]
    return f"file.{'txt' if ending == 'plain' else ending or 'bin'}"


def _extra_members(modelled: set[str], piece: Mapping[str, Any]) -> Block:
    more = extra_members(modelled, piece)
    if more.get("annotations") == []:
        del more["annotations"]
    return more


def extra_members(modelled: set[str], item: Mapping[str, Any]) -> Block:
    """Return the members of an item that parts do not model."""
    more = dict(item)
    for name in modelled:
        more.pop(name, None)
    return drop_nulls(more) if None in more.values() else more
