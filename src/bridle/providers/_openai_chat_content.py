"""Content parts of Chat Completions and our parts, both ways.

`part_of` reads one typed part of a message's content, `block_of` writes one.  A string as content is
one text; whoever holds the message knows that.

What a part says beyond our view of it is kept as `native`, under the member `part`: for words just the
members we have no place for, for media the whole part without the one long string (the address or the
data), which our part has already.  So nothing is held twice, and a part goes back as it came.  Parts
we do not interpret become `Opaque`, whole.

What a dialect cannot carry becomes a few words that say what was left out.
"""

import re
from base64 import b64decode
from binascii import Error as Base64Error
from typing import Any

from msgspec import Raw
from msgspec.structs import replace

from ..values.errors import MisuseError
from ..values.parts import Media, MediaKind, Opaque, Part, Text
from ._json import dumps, is_object, loads, mended, raw
from ._openai_chat_dialect import Dialect

Block = dict[str, Any]

_DATA = re.compile(r"data:([\w.+-]+/[\w.+-]+);base64,", re.ASCII)
_PLACES: dict[str, tuple[MediaKind, str]] = {
    "image_url": ("image", "url"),
    "video_url": ("video", "url"),
    "document_url": ("document", "url"),
    "file_url": ("document", "url"),
    "input_audio": ("audio", "data"),
}
"""What each type of part is, and which member of it holds the address or the data."""
_FORMATS = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3"}
_AUDIO_TYPES = {"wav": "audio/wav", "mp3": "audio/mpeg"}
_PROTOCOL = Dialect()
FILENAME_DEFAULT = "document.pdf"
"""A file without a name is refused."""


def part_of(block: object) -> Text | Media | Opaque:
    if not isinstance(block, dict):
        return Opaque(kind="", native=dumps(block).decode())
    kind = word(block.get("type"))
    if kind == "text" and isinstance(block.get("text"), str):
        more = {name: value for name, value in block.items() if name not in ("type", "text")}
        return Text(text=mended(block["text"]), native=native_of(part=said(more)))
    media = _file(block) if kind == "file" else _media(kind, block)
    if media is None:
        return Opaque(kind=kind, native=dumps(block).decode())
    bare, frame = media
    if block_of(bare, _PROTOCOL) == said(block):
        return bare
    return replace(bare, native=native_of(part=frame))


def block_of(part: Text | Media | Opaque, dialect: Dialect, *, own: bool = False) -> Block | Raw | None:
    """A part of content, or None when it has nothing to say here.  `own`: it came from this very server."""
    if isinstance(part, Opaque):
        placed = own and part.kind not in UNPLACED and is_object(part.native)
        if not own and part.text.strip():
            return {"type": "text", "text": mended(part.text)}
        return raw(part.native) if placed else None
    kept = native_in(part).get("part", {}) if own else {}
    if isinstance(part, Text):
        return {"type": "text", "text": mended(part.text), **kept} if part.text.strip() else None
    if kept:
        return _framed(part, kept)
    return _media_block(part, dialect)


UNPLACED = frozenset({"audio"})
"""Kinds of opaque parts that stand beside the content and not in it."""


def said(members: Block) -> Block:
    """The members that say something: null says nothing."""
    return {name: value for name, value in members.items() if value is not None}


def native_of(**members: Any) -> str | None:
    """Members to be kept with a part, in one order: pieces of a stream come in another than a whole."""
    kept = {name: value for name, value in members.items() if value}
    return dumps(_ordered(kept)).decode() if kept else None


def _ordered(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _ordered(value[name]) for name in sorted(value)}
    return [_ordered(inner) for inner in value] if isinstance(value, list) else value


def native_in(part: Part) -> Block:
    """What only this family can read of a part; nothing when it is not in our own writing."""
    return {} if part.native is None or isinstance(part, Opaque) else object_in(part.native)


def object_in(text: str) -> Block:
    try:
        value = loads(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def word(value: object) -> str:
    if not isinstance(value, str):
        return ""
    return value if value.isascii() else mended(value)


def _media(kind: str, block: Block) -> tuple[Media, Block] | None:
    """The media and the part without its long string; None for what media cannot hold."""
    if kind not in _PLACES:
        return None
    media_kind, place = _PLACES[kind]
    inner = block.get(kind)
    members: Block = inner if isinstance(inner, dict) else {place: inner}
    value = members.get(place)
    if not isinstance(value, str) or not value:
        return None
    rest = said({**block, kind: said({**members, place: None}) if isinstance(inner, dict) else None})
    if kind == "input_audio":
        media_type = _AUDIO_TYPES.get(word(members.get("format")), "")
        return Media.received(kind="audio", media_type=media_type, data=mended(value)), rest
    name = word(block.get("document_name"))
    if found := _DATA.match(value):
        data = value[found.end() :]
        return Media.received(kind=media_kind, media_type=found.group(1), data=data, name=name), rest
    return Media.received(kind=media_kind, url=mended(value), name=name), rest


def _file(block: Block) -> tuple[Media, Block] | None:
    file = block.get("file")
    if not isinstance(file, dict):
        return None
    rest = {**block, "file": {n: v for n, v in said(file).items() if n not in _FILE_MEMBERS}}
    file_id, data, name = word(file.get("file_id")), word(file.get("file_data")), word(file.get("filename"))
    if file_id and not data:
        return Media.received(kind="document", file_id=file_id, name=name), said(rest)
    if not data or file_id:
        return None
    found = _DATA.match(data)
    media_type = found.group(1) if found else ""
    bare = data[found.end() :] if found else data
    return Media.received(kind="document", media_type=media_type, data=bare, name=name), said(rest)


_FILE_MEMBERS = frozenset({"file_id", "file_data", "filename"})


def _framed(media: Media, frame: Block) -> Block:
    """The part as it came: its long string put back into its frame."""
    kind = word(frame.get("type"))
    inner = frame.get(kind)
    if kind == "file":
        return {**frame, "file": {**_file_members(media), **(inner if isinstance(inner, dict) else {})}}
    place = _PLACES[kind][1] if kind in _PLACES else "url"
    value = media.data if kind == "input_audio" else _address(media)
    return {**frame, kind: {**inner, place: value} if isinstance(inner, dict) else value}


def _media_block(media: Media, dialect: Dialect) -> Block:
    match media:
        case Media(kind="document") if _is_plain_text(media):
            titled = f"{media.name}\n\n" if media.name else ""
            return {"type": "text", "text": mended(titled + _plain_text(media))}
        case _ if dialect.content == "string":
            pass
        case Media(kind="image", file_id=""):
            return {"type": "image_url", "image_url": {"url": _address(media)}}
        case Media(kind="audio", data=data) if dialect.audio and data and media.media_type in _FORMATS:
            sound = {"data": data, "format": _FORMATS[media.media_type]}
            return {"type": "input_audio", "input_audio": sound}
        case Media(kind="video", file_id="") if dialect.video:
            return {"type": "video_url", "video_url": {"url": _address(media)}}
        case Media(kind="document", file_id="") if dialect.documents == "document_url":
            named = {"document_name": media.name} if media.name else {}
            return {"type": "document_url", "document_url": _address(media), **named}
        case Media(kind="document", url="") if dialect.documents == "file":
            unnamed = {} if media.file_id or media.name else {"filename": FILENAME_DEFAULT}
            return {"type": "file", "file": {**unnamed, **_file_members(media)}}
    return {"type": "text", "text": left_out(media)}


def left_out(media: Media) -> str:
    named = " " + (media.name or media.url) if media.name or media.url else ""
    return mended(f"[{media.kind}{named} left out: it cannot be sent to this model]")


def _file_members(media: Media) -> Block:
    if media.file_id:
        return said({"file_id": media.file_id, "filename": media.name or None})
    return {**({"filename": media.name} if media.name else {}), "file_data": _address(media)}


def _address(media: Media) -> str:
    if media.url:
        return media.url
    return f"data:{media.media_type};base64,{media.data}" if media.media_type else media.data


def _is_plain_text(media: Media) -> bool:
    """Servers of this wire take such a document as words only; what they call a file is a PDF."""
    return bool(media.data) and media.media_type.startswith("text/")


def _plain_text(media: Media) -> str:
    try:
        return b64decode(media.data, validate=True).decode("utf-8", "replace")
    except Base64Error:
        raise MisuseError(
            f"a document {media.name!r} of type {media.media_type} holds no base64: encode its bytes first"
        ) from None
