"""Recognition and checks of pictures and files: what the bytes are, and whether a `Media` can be sent.

A file is read here on behalf of the caller, before any `Media` exists; nothing below reads one.
"""

import binascii
import os
from pathlib import Path

from .errors import MisuseError
from .text import repair_surrogates

AnyPath = str | os.PathLike[str]
KINDS = ("image", "document", "audio", "video")
CONSTRUCTORS = "Media.from_path, Media.from_bytes or Media.from_url"
_HEAD_CHARACTERS = 64
_SIGNATURES = (
    (b"\x89PNG\r\n\x1a\n", 0, "image/png"),
    (b"\xff\xd8\xff", 0, "image/jpeg"),
    (b"GIF87a", 0, "image/gif"),
    (b"GIF89a", 0, "image/gif"),
    (b"WEBP", 8, "image/webp"),
    (b"%PDF-", 0, "application/pdf"),
    (b"WAVE", 8, "audio/wav"),
    (b"ID3", 0, "audio/mpeg"),
    (b"OggS", 0, "audio/ogg"),
    (b"fLaC", 0, "audio/flac"),
    (b"ftypheic", 4, "image/heic"),
    (b"ftypheix", 4, "image/heic"),
    (b"ftypmif1", 4, "image/heic"),
    (b"ftypavif", 4, "image/avif"),
    (b"ftyp", 4, "video/mp4"),
    (b"\x1aE\xdf\xa3", 0, "video/webm"),
)
_EXTENSIONS = {
    "csv": "text/csv",
    "doc": "application/msword",
    "docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    "flac": "audio/flac",
    "gif": "image/gif",
    "heic": "image/heic",
    "heif": "image/heif",
    "htm": "text/html",
    "html": "text/html",
    "jpeg": "image/jpeg",
    "jpg": "image/jpeg",
    "json": "application/json",
    "m4a": "audio/mp4",
    "md": "text/markdown",
    "mkv": "video/x-matroska",
    "mov": "video/quicktime",
    "mp3": "audio/mpeg",
    "mp4": "video/mp4",
    "ogg": "audio/ogg",
    "pdf": "application/pdf",
    "png": "image/png",
    "txt": "text/plain",
    "wav": "audio/wav",
    "webm": "video/webm",
    "webp": "image/webp",
    "xls": "application/vnd.ms-excel",
    "xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    "xml": "application/xml",
}


def recognize_bytes(data: bytes) -> str:
    """The media type that the first bytes show; empty when they show none."""
    found = (type_ for mark, at, type_ in _SIGNATURES if data[at : at + len(mark)] == mark)
    return next(found, "")


def recognize_name(name: str) -> str:
    """The media type that a file's ending stands for; empty when it is not known."""
    return _EXTENSIONS.get(name.rpartition(".")[2].lower(), "")


def kind_of_type(media_type: str) -> str:
    kind = media_type.partition("/")[0]
    return kind if kind in ("image", "audio", "video") else "document"


def choose_type(data: bytes, name: str) -> str:
    """The media type of bytes nobody labelled; `MisuseError` when neither they nor their name show it."""
    shown, ending = recognize_bytes(data), recognize_name(name)
    if shown and kind_of_type(ending) == kind_of_type(shown) == "video":
        return ending
    if shown == "video/mp4" and ending == "audio/mp4":
        return ending
    if found := shown or ending:
        return found
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        called = f" of {name}" if name else ""
        raise MisuseError(f"the media type{called} cannot be recognized; give media_type='…/…'")
    return "text/plain"


def read_file(path: AnyPath) -> tuple[bytes, str]:
    """What the file holds, and its name; `MisuseError` when it cannot be read or holds nothing."""
    found = Path(path)
    try:
        data = found.read_bytes()
    except OSError as error:
        raise MisuseError(
            f"{repair_surrogates(str(found))} cannot be read: {error.strerror or error}"
        ) from None
    if not data:
        raise MisuseError(f"{repair_surrogates(str(found))} is empty")
    return data, found.name


def encode_bytes(data: bytes) -> str:
    return binascii.b2a_base64(data, newline=False).decode()


def decode_head(data: str) -> bytes:
    """The first bytes of base64 text; empty when it is not base64."""
    try:
        return binascii.a2b_base64(data[:_HEAD_CHARACTERS])
    except ValueError:
        return b""


def explain_unsendable(kind: str, media_type: str, data: str, url: str, file_id: str) -> str:
    """Reason why no provider can take this; empty when there is none."""
    given = sum(map(bool, (data, url, file_id)))
    if given != 1:
        return f"it has {'none' if not given else 'several'} of data, url and file_id, and needs exactly one"
    if data:
        try:
            binascii.a2b_base64(data, strict_mode=True)
        except ValueError:
            return (
                "its data is a data: URL, not base64"
                if data.startswith("data:")
                else "its data is not base64"
            )
    label = media_type.partition(";")[0].strip().lower()
    shown = recognize_bytes(decode_head(data)) if data else ""
    if (
        shown.startswith("image/")
        and label.startswith(("image/", "text/"))
        and shown != _canonical_type(label)
    ):
        return f"its data is {shown}, not {label}"
    if kind == "image" and shown and not shown.startswith("image/"):
        return f"its data is {shown}, which is no image"
    return ""


def explain_misuse(fields: dict[str, object]) -> str:
    """Reason why a `Media` cannot be made of these fields; empty when it can."""
    if fields.get("kind") not in KINDS:
        return f"kind is one of {', '.join(KINDS)}; not {fields.get('kind')!r}"
    data = fields.get("data", "")
    if isinstance(data, bytes | bytearray | memoryview):
        return "data is base64 text; for bytes use Media.from_bytes(…)"
    for name in ("data", "url", "file_id", "media_type", "name"):
        given = fields.get(name, "")
        if not isinstance(given, str):
            return f"{name} is text, not {type(given).__name__}; use {CONSTRUCTORS}"
        if name != "name" and given != repair_surrogates(given):
            return f"{name} has characters that UTF-8 cannot write"
    words = {name: str(fields.get(name, "")) for name in ("kind", "media_type", "data", "url", "file_id")}
    if why := explain_unsendable(**words):
        return f"{why}; use {CONSTRUCTORS}"
    kind, label = words["kind"], words["media_type"].lower()
    wrong_kind = kind != "document" and label and kind_of_type(label) != kind
    if label and ("/" not in label.strip("/") or wrong_kind):
        return f"media_type {label!r} is not the type of {'an' if kind[0] in 'ai' else 'a'} {kind}"
    return ""


def _canonical_type(label: str) -> str:
    return {"image/jpg": "image/jpeg", "image/heif": "image/heic"}.get(label, label)
