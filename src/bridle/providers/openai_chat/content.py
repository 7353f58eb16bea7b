"""Converts between content parts of Chat Completions and Bridle's parts.

`decode_content` reads one typed part of a message's content, `encode_content` writes one. The caller handles
content that is a plain string.

Members that a part does not model are stored in `native`, under `part`: for text just those members, for
media the whole part without the one long string (the URL or the data), which the part already has. So nothing
is stored twice, and a part is sent back as it came. Parts that are not modelled become `Opaque`.

Content that a dialect cannot carry is replaced by a short text that says what was left out.
"""

import re
from typing import Any

from msgspec import Raw
from msgspec.structs import replace

from bridle.providers.wire.json import (
    drop_nulls,
    dumps,
    is_object,
    loads,
    raw_json,
    repair_surrogates,
    text_or_empty,
)
from bridle.providers.wire.media import decode_text_document, describe_omitted_media, lighten_media
from bridle.values.message import Media, MediaKind, Opaque, Part, Text, is_written_for

from .dialect import FAMILY, ChatDialect

Block = dict[str, Any]

_DATA_URL = re.compile(r"data:([\w.+-]+/[\w.+-]+);base64,", re.ASCII)
_MEDIA_MEMBERS: dict[str, tuple[MediaKind, str]] = {
    "image_url": ("image", "url"),
    "video_url": ("video", "url"),
    "document_url": ("document", "url"),
    "file_url": ("document", "url"),
    "input_audio": ("audio", "data"),
}
"""The kind of each type of part, and the member that holds the URL or the data."""
_FORMATS = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3"}
_AUDIO_TYPES = {"wav": "audio/wav", "mp3": "audio/mpeg"}
_DEFAULT_DIALECT = ChatDialect()
FILENAME_DEFAULT = "document.pdf"
"""A file without a name is refused."""


def decode_content(block: object) -> Text | Media | Opaque:
    if not isinstance(block, dict):
        return Opaque(kind="", native=dumps(block).decode())
    kind = text_or_empty(block.get("type"))
    if kind == "text" and isinstance(block.get("text"), str):
        more = {name: value for name, value in block.items() if name not in ("type", "text")}
        return Text(text=repair_surrogates(block["text"]), native=encode_native(part=drop_nulls(more)))
    media = _decode_file(block) if kind == "file" else _decode_media(kind, block)
    if media is None:
        return Opaque(kind=kind, native=dumps(block).decode())
    bare, frame = media
    if encode_content(bare, _DEFAULT_DIALECT) == drop_nulls(block):
        return bare
    return replace(bare, native=encode_native(part=frame))


def encode_content(
    part: Text | Media | Opaque, dialect: ChatDialect, *, own: bool = False
) -> Block | Raw | None:
    """Encode a part of content; None if it has none here. `own`: it came from this very server."""
    own = own or is_written_for(part, FAMILY)
    if isinstance(part, Opaque):
        placed = own and part.kind not in UNSENT_KINDS and is_object(part.native)
        if not own and part.text.strip():
            return {"type": "text", "text": repair_surrogates(part.text)}
        return raw_json(part.native) if placed else None
    kept = decode_native(part).get("part", {}) if own and part.native else {}
    if isinstance(part, Text):
        return {"type": "text", "text": repair_surrogates(part.text), **kept} if part.text.strip() else None
    if kept:
        return _restore_media(part, kept)
    return _encode_media(part, dialect)


UNSENT_KINDS = frozenset({"audio"})
"""Kinds of opaque parts that are beside the content, not in it."""


def encode_native(**members: Any) -> str | None:
    """Encode members to store with a part, sorted: streams deliver them in another order than bodies."""
    kept = {name: value for name, value in members.items() if value}
    return dumps(_sort_members(kept)).decode() if kept else None


def _sort_members(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _sort_members(value[name]) for name in sorted(value)}
    return [_sort_members(inner) for inner in value] if isinstance(value, list) else value


def decode_native(part: Part) -> Block:
    """Return the native members of a part; empty if another family wrote them."""
    return {} if part.native is None or isinstance(part, Opaque) else parse_object(part.native)


def parse_object(text: str) -> Block:
    try:
        value = loads(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _decode_media(kind: str, block: Block) -> tuple[Media, Block] | None:
    """Decode media and the part without its long string; None if `Media` cannot represent it."""
    if kind not in _MEDIA_MEMBERS:
        return None
    media_kind, place = _MEDIA_MEMBERS[kind]
    inner = block.get(kind)
    members: Block = inner if isinstance(inner, dict) else {place: inner}
    value = members.get(place)
    if not isinstance(value, str) or not value:
        return None
    rest = drop_nulls(
        {**block, kind: drop_nulls({**members, place: None}) if isinstance(inner, dict) else None}
    )
    if kind == "input_audio":
        media_type = _AUDIO_TYPES.get(text_or_empty(members.get("format")), "")
        return Media.from_wire(kind="audio", media_type=media_type, data=repair_surrogates(value)), rest
    name = text_or_empty(block.get("document_name"))
    if found := _DATA_URL.match(value):
        data = value[found.end() :]
        return Media.from_wire(kind=media_kind, media_type=found.group(1), data=data, name=name), rest
    return Media.from_wire(kind=media_kind, url=repair_surrogates(value), name=name), rest


def _decode_file(block: Block) -> tuple[Media, Block] | None:
    file = block.get("file")
    if not isinstance(file, dict):
        return None
    rest = {**block, "file": {n: v for n, v in drop_nulls(file).items() if n not in _FILE_MEMBERS}}
    file_id, data, name = (
        text_or_empty(file.get("file_id")),
        text_or_empty(file.get("file_data")),
        text_or_empty(file.get("filename")),
    )
    if file_id and not data:
        return Media.from_wire(kind="document", file_id=file_id, name=name), drop_nulls(rest)
    if not data or file_id:
        return None
    found = _DATA_URL.match(data)
    media_type = found.group(1) if found else ""
    bare = data[found.end() :] if found else data
    return Media.from_wire(kind="document", media_type=media_type, data=bare, name=name), drop_nulls(rest)


_FILE_MEMBERS = frozenset({"file_id", "file_data", "filename"})


def _restore_media(media: Media, frame: Block) -> Block:
    """Rebuild a received part: the stored JSON around it, with its data or URL inserted."""
    kind = text_or_empty(frame.get("type"))
    inner = frame.get(kind)
    if kind == "file":
        return {**frame, "file": {**_encode_file(media), **(inner if isinstance(inner, dict) else {})}}
    place = _MEDIA_MEMBERS[kind][1] if kind in _MEDIA_MEMBERS else "url"
    value = media.data if kind == "input_audio" else _media_url(media)
    return {**frame, kind: {**inner, place: value} if isinstance(inner, dict) else value}


def _encode_media(media: Media, dialect: ChatDialect) -> Block:
    match media:
        case Media(kind="document") if _is_plain_text(media):
            titled = f"{media.name}\n\n" if media.name else ""
            return {"type": "text", "text": repair_surrogates(titled + decode_text_document(media))}
        case _ if dialect.content == "string":
            pass
        case Media(kind="image", file_id=""):
            return {"type": "image_url", "image_url": {"url": _media_url(media)}}
        case Media(kind="audio", data=data) if dialect.audio and data and media.media_type in _FORMATS:
            sound = {"data": data, "format": _FORMATS[media.media_type]}
            return {"type": "input_audio", "input_audio": sound}
        case Media(kind="video", file_id="") if dialect.video:
            return {"type": "video_url", "video_url": {"url": _media_url(media)}}
        case Media(kind="document", file_id="") if dialect.documents == "document_url":
            named = {"document_name": media.name} if media.name else {}
            return {"type": "document_url", "document_url": _media_url(media), **named}
        case Media(kind="document", url="") if dialect.documents == "file":
            unnamed = {} if media.file_id or media.name else {"filename": FILENAME_DEFAULT}
            return {"type": "file", "file": {**unnamed, **_encode_file(media)}}
    return {"type": "text", "text": describe_omitted_media(media)}


def has_media_form(media: Media, dialect: ChatDialect, *, in_result: bool) -> bool:
    """False if a text that says so is sent in place of this media."""
    if media.kind == "document" and _is_plain_text(media):
        return True
    is_left_out = in_result and dialect.result_images == "omit"
    return not is_left_out and _encode_media(lighten_media(media), dialect)["type"] != "text"


def _encode_file(media: Media) -> Block:
    if media.file_id:
        return drop_nulls({"file_id": media.file_id, "filename": media.name or None})
    return {**({"filename": media.name} if media.name else {}), "file_data": _media_url(media)}


def _media_url(media: Media) -> str:
    if media.url:
        return media.url
    return f"data:{media.media_type};base64,{media.data}" if media.media_type else media.data


def _is_plain_text(media: Media) -> bool:
    """Return True for a document that servers of this wire accept as text only; their files are PDFs."""
    return bool(media.data) and media.media_type.startswith("text/")
