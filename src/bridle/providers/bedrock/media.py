"""Converts images, documents, video and audio of Bedrock Converse.

Each has a format, which is nearly the subtype of its media type, and a source: bytes, or a location in the
cloud's own storage. Other URLs and file ids cannot be sent. A document may also contain text instead of
bytes. It is stored as data like any other document, so that other families can read it; an empty text in the
native source records that it was text.
"""

import re
from base64 import b64decode, b64encode
from typing import Any

from msgspec.structs import replace

from bridle.providers.wire.json import dumps, loads, repair_surrogates
from bridle.values.message import Media, MediaKind

MEDIA_BLOCKS: dict[str, MediaKind] = {
    "image": "image",
    "document": "document",
    "video": "video",
    "audio": "audio",
}
S3_PREFIX = "s3://"
# not from outside: names and requests that we make
NAME_LENGTH_MAX = 200
_DEFAULT_NAME = "document"
_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9\s()\[\]-]+")

_FORMATS: dict[MediaKind, str] = {
    "image": "png jpeg gif webp",
    "document": "pdf csv doc docx xls xlsx html txt md",
    "video": "mkv mov mp4 webm flv mpeg mpg wmv three_gp",
    "audio": "mp3 opus wav aac flac mp4 ogg mkv mka x-aac m4a mpeg mpga pcm webm",
}
_OFFICE = "application/vnd.openxmlformats-officedocument"
_TYPES: dict[tuple[MediaKind, str], str] = {
    ("document", "pdf"): "application/pdf",
    ("document", "csv"): "text/csv",
    ("document", "doc"): "application/msword",
    ("document", "docx"): f"{_OFFICE}.wordprocessingml.document",
    ("document", "xls"): "application/vnd.ms-excel",
    ("document", "xlsx"): f"{_OFFICE}.spreadsheetml.sheet",
    ("document", "html"): "text/html",
    ("document", "txt"): "text/plain",
    ("document", "md"): "text/markdown",
    ("video", "mkv"): "video/x-matroska",
    ("video", "mov"): "video/quicktime",
    ("video", "flv"): "video/x-flv",
    ("video", "wmv"): "video/x-ms-wmv",
    ("video", "three_gp"): "video/3gpp",
    ("audio", "mkv"): "audio/x-matroska",
}
"""Media types that are not simply the kind and the format."""
_ALIASES: dict[tuple[MediaKind, str], str] = {
    ("image", "image/jpg"): "jpeg",
    ("document", "application/json"): "txt",
    ("document", "application/xml"): "txt",
    ("document", "application/xhtml+xml"): "html",
    ("document", "text/x-markdown"): "md",
    ("audio", "audio/x-wav"): "wav",
    ("audio", "audio/wave"): "wav",
    ("audio", "audio/x-m4a"): "m4a",
    ("audio", "audio/x-flac"): "flac",
}


def _media_type(kind: MediaKind, form: str) -> str:
    lead = "application" if kind == "document" else kind
    return _TYPES.get((kind, form), f"{lead}/{form}")


_BY_TYPE = _ALIASES | {
    (kind, _media_type(kind, form)): form for kind, forms in _FORMATS.items() for form in forms.split()
}


def decode_media(kind: MediaKind, inner: dict[str, Any]) -> Media | None:
    """Decode media; None if `Media` cannot represent its source."""
    more = {
        name: value
        for name, value in inner.items()
        if name not in ("format", "name", "source") and value is not None
    }
    data = url = ""
    match inner.get("source"):
        case {"bytes": str(data), **rest} if not rest:
            pass
        case {"s3Location": {"uri": str(url), **owner}, **rest} if not rest:
            if owner:
                more["source"] = inner["source"]
        case {"text": str(text), **rest} if kind == "document" and not rest:
            data = _encode_base64(text)
            more["source"] = {"text": ""}
        case {"content": list(pieces), **rest} if (
            kind == "document" and not rest and all(map(is_text_piece, pieces))
        ):
            # Citations refer to the boundaries of the pieces.
            data = _encode_base64("\n\n".join(piece["text"] for piece in pieces))
            more["source"] = inner["source"]
        case _:
            return None
    form, name = inner.get("format", ""), inner.get("name", "")
    if not isinstance(form, str) or not isinstance(name, str) or not (data or url):
        return None
    return Media.from_wire(
        kind=kind,
        media_type=_media_type(kind, form) if form else "",
        data=data,
        url=url,
        name=repair_surrogates(name),
        native=dumps(more).decode() if more else None,
    )


def encode_media(media: Media, *, own: bool) -> dict[str, Any] | None:
    """Encode the content of a media block; None if this wire cannot carry it."""
    form = _choose_format(media, own=own)
    stored = media.url.startswith(S3_PREFIX)
    if (not form and not own) or not (media.data or stored):
        return None
    inner: dict[str, Any] = {"format": form} if form else {}
    if media.kind == "document":
        inner["name"] = repair_surrogates(media.name) or _DEFAULT_NAME
    inner["source"] = {"bytes": media.data} if media.data else {"s3Location": {"uri": media.url}}
    if own and media.native is not None:
        more = loads(media.native)
        if more.get("source") == {"text": ""}:
            more["source"] = {"text": b64decode(media.data).decode("utf-8", "replace")}
        inner.update(more)
    return inner


def legal_document_name(name: str) -> str:
    """Return a document name of letters, digits, single blanks and a few signs, as the provider requires."""
    plain = " ".join(_NOT_IN_NAMES.sub("-", name).split())
    return plain[:NAME_LENGTH_MAX].strip() or _DEFAULT_NAME


def rename_media(media: Media, name: str) -> Media:
    """Rename media; a format known only from the old name's suffix is kept as the media type."""
    end = media.name.rpartition(".")[2].lower() if "." in media.name else ""
    has_format = not media.media_type and end in _FORMATS[media.kind].split()
    return replace(
        media, name=name, media_type=_media_type(media.kind, end) if has_format else media.media_type
    )


def _choose_format(media: Media, *, own: bool) -> str:
    media_type = media.media_type.partition(";")[0].strip().lower()
    if found := _BY_TYPE.get((media.kind, media_type)):
        return found
    if own:
        return media_type.rpartition("/")[2]
    return "txt" if media.kind == "document" and media_type.startswith("text/") else ""


def _encode_base64(text: str) -> str:
    return b64encode(repair_surrogates(text).encode()).decode()


def is_text_piece(piece: object) -> bool:
    return isinstance(piece, dict) and piece.keys() == {"text"} and isinstance(piece["text"], str)
