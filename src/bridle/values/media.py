"""Detection of media types, and validation of `Media` fields.

Files are read here on behalf of the caller, before a `Media` exists; no lower layer reads files.
"""

import binascii
import os
import re
from importlib import import_module
from typing import Protocol

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
    (b"ID3\x02", 0, "audio/mpeg"),
    (b"ID3\x03", 0, "audio/mpeg"),
    (b"ID3\x04", 0, "audio/mpeg"),
    (b"\xff\xfb", 0, "audio/mpeg"),
    (b"\xff\xf3", 0, "audio/mpeg"),
    (b"\xff\xf2", 0, "audio/mpeg"),
    (b"OggS", 0, "audio/ogg"),
    (b"fLaC", 0, "audio/flac"),
    (b"ftypheic", 4, "image/heic"),
    (b"ftypheix", 4, "image/heic"),
    (b"ftypmif1", 4, "image/heic"),
    (b"ftypavif", 4, "image/avif"),
    (b"ftyp", 4, "video/mp4"),
    (b"\x1aE\xdf\xa3", 0, "video/webm"),
)
SIGNED_TYPES = frozenset(type_ for _, _, type_ in _SIGNATURES)
_CONTAINERS = ("video/mp4", "video/webm")
"""Formats that hold audio or video of several types."""
_FETCHED_URL = re.compile(r"(https?|gs|s3)://(\[[\da-f:.]+\]|[^\s/?#\[\]]+)(:\d+)?([/?#].*)?", re.IGNORECASE)
"""Schemes that at least one provider fetches, and a host."""
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
    """Media type according to the file signature; empty if unknown."""
    found = (type_ for mark, at, type_ in _SIGNATURES if data[at : at + len(mark)] == mark)
    return next(found, "")


def recognize_name(name: str) -> str:
    """Media type according to the file extension; empty if unknown."""
    return _EXTENSIONS.get(name.rpartition(".")[2].lower(), "")


def kind_of_type(media_type: str) -> str:
    kind = media_type.partition("/")[0]
    return kind if kind in ("image", "audio", "video") else "document"


def choose_type(data: bytes, name: str) -> str:
    """Media type of unlabelled bytes. Raises `MisuseError` if neither content nor name shows it."""
    detected, ending = recognize_bytes(data), recognize_name(name)
    if detected and kind_of_type(ending) == kind_of_type(detected) == "video":
        return ending
    if detected == "video/mp4" and ending == "audio/mp4":
        return ending
    if found := detected or ending:
        return found
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        label = f" of {name}" if name else ""
        raise MisuseError(f"the media type{label} cannot be recognized; give media_type='…/…'")
    return "text/plain"


def check_signature(data: bytes, media_type: str) -> None:
    """Raise `MisuseError` if files of this type begin with a signature and the data does not."""
    label = _canonical_type(media_type.partition(";")[0].strip().lower())
    if label in SIGNED_TYPES and not recognize_bytes(data):
        raise MisuseError(f"Media: its data is not {label}; it begins with {data[:12]!r}")


def is_fetched_url(url: str) -> bool:
    """True for a URL that at least one provider fetches."""
    return _FETCHED_URL.fullmatch(url) is not None and url == url.strip()


FILE_BYTES_MAX = 256 * 1024 * 1024
"""Bytes of a file that is sent; the largest limit of a provider is 100 MB."""


def read_file(path: AnyPath) -> tuple[bytes, str]:
    """Content and name of the file. Raises `MisuseError` if it cannot be read or is empty."""
    if not isinstance(path, str | os.PathLike):
        raise MisuseError(f"Media.from_path takes a path, not {type(path).__name__}")
    found = import_module("pathlib").Path(path)  # slow to load, and few programs send a file
    try:
        data = read_at_most(found, FILE_BYTES_MAX, ", which no provider takes")
    except OSError as error:
        raise MisuseError(
            f"{repair_surrogates(str(found))} cannot be read: {error.strerror or error}"
        ) from None
    if not data:
        raise MisuseError(f"{repair_surrogates(str(found))} is empty")
    return data, found.name


def read_at_most(path: AnyPath, bytes_max: int, why: str = "") -> bytes:
    """Content of a file; raises `MisuseError` for a larger one, of which no more is read, and `OSError`.

    A device or a pipe has no size and may have no end.
    """
    with import_module("pathlib").Path(path).open("rb") as file:  # slow to load, and few programs read a file
        data: bytes = file.read(bytes_max + 1)
    if len(data) > bytes_max:
        raise MisuseError(f"{repair_surrogates(os.fspath(path))} has more than {bytes_max:,} bytes{why}")
    return data


def encode_bytes(data: bytes) -> str:
    return binascii.b2a_base64(data, newline=False).decode()


def decode_head(data: str) -> bytes:
    """First bytes of base64 text; empty if it is not base64."""
    try:
        return binascii.a2b_base64(data[:_HEAD_CHARACTERS])
    except ValueError:
        return b""


def explain_unsendable(kind: str, media_type: str, data: str, url: str, file_id: str) -> str:
    """Reason why no provider could accept this media; empty if there is none."""
    count = sum(map(bool, (data, url, file_id)))
    if count != 1:
        return f"it has {'none' if not count else 'several'} of data, url and file_id, and needs exactly one"
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
    detected = recognize_bytes(decode_head(data)) if data else ""
    if _contradicts(detected, label):
        return f"its data is {detected}, not {label}"
    if kind == "image" and detected and not detected.startswith("image/"):
        return f"its data is {detected}, which is no image"
    return ""


def _contradicts(detected: str, label: str) -> bool:
    """True if data with this signature cannot be of the type that it is labelled with."""
    if not detected or not label or detected == _canonical_type(label):
        return False
    if label.startswith(("image/", "text/")):
        return detected.startswith("image/")
    return label in SIGNED_TYPES and not (detected in _CONTAINERS and label.startswith(("audio/", "video/")))


def explain_misuse(fields: dict[str, object]) -> str:
    """Reason why these fields do not form a valid `Media`; empty if they do."""
    if fields.get("kind") not in KINDS:
        return f"kind must be one of {', '.join(KINDS)}, not {fields.get('kind')!r}"
    data = fields.get("data", "")
    if isinstance(data, bytes | bytearray | memoryview):
        return "data must be base64 text; for bytes use Media.from_bytes(…)"
    for name in ("data", "url", "file_id", "media_type", "name"):
        value = fields.get(name, "")
        if not isinstance(value, str):
            return f"{name} must be a string, not {type(value).__name__}; use {CONSTRUCTORS}"
        if name != "name" and value != repair_surrogates(value):
            return f"{name} has characters that UTF-8 cannot encode"
    texts = {name: str(fields.get(name, "")) for name in ("kind", "media_type", "data", "url", "file_id")}
    if why := explain_unsendable(**texts):
        return f"{why}; use {CONSTRUCTORS}"
    kind, label, url = texts["kind"], texts["media_type"].lower(), texts["url"]
    if url and not is_fetched_url(url):
        return f"no provider fetches {url[:80]!r}; use a URL such as https://…"
    if "@" in re.split(r"[/?#]", url.partition("://")[2], maxsplit=1)[0]:
        return "the URL has a user or password, which the log would keep; use a signed URL or Media.from_bytes(…)"
    wrong_kind = label and kind_of_type(label) != kind
    if label and ("/" not in label.strip("/") or wrong_kind):
        return f"media_type {label!r} is not the type of {'an' if kind[0] in 'ai' else 'a'} {kind}"
    return ""


def _canonical_type(label: str) -> str:
    return {"image/jpg": "image/jpeg", "image/heif": "image/heic"}.get(label, label)


class DocumentLike(Protocol):
    """The fields of `Media` that hold a document."""

    @property
    def media_type(self) -> str: ...
    @property
    def data(self) -> str: ...


TEXT_TYPES = (
    "application/json",
    "application/xml",
    "application/yaml",
    "application/x-ndjson",
    "application/rtf",
    "message/rfc822",
)
_BINARY_KINDS = ("image/", "audio/", "video/", "font/")
_BINARY_BYTES = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]")
_CHARSET = re.compile(r";\s*charset\s*=\s*\"?([\w.:-]{1,40})", re.IGNORECASE)
_NOT_BASE64 = re.compile(rb"[^A-Za-z0-9+/=]")
_URL_SAFE = bytes.maketrans(b"-_", b"+/")


def read_text_document(media: DocumentLike) -> str:
    """The text of a document that is text; empty for a picture, a PDF, a link or a file at the provider.

    A type that says neither is judged by its content: providers read many files as text.
    """
    kind = media.media_type.partition(";")[0].strip().lower()
    is_text = kind.startswith("text/") or kind in TEXT_TYPES or kind.endswith(("+json", "+xml"))
    if not media.data or (not is_text and kind.startswith(_BINARY_KINDS)):
        return ""
    content = _decode_base64(media.data)
    if content is None:
        return media.data if is_text else ""
    if is_text:
        return _decode_text(content, _CHARSET.search(media.media_type))
    if content.startswith(b"%PDF-") or _BINARY_BYTES.search(content):
        return ""
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        return ""


def _decode_base64(data: str) -> bytes | None:
    """The bytes as a tolerant decoder reads them: either alphabet, without padding, in pieces; None if it fails."""
    plain = b"".join(data.encode("ascii", "replace").split()).translate(_URL_SAFE)
    if _NOT_BASE64.search(plain):
        return None
    pieces = (piece[: len(piece) - (len(piece) % 4 == 1)] for piece in plain.split(b"="))
    return b"".join(binascii.a2b_base64(piece + b"==") for piece in pieces)


def _decode_text(content: bytes, charset: re.Match[str] | None) -> str:
    marked = "utf-16" if content[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    if b"\0" in content and marked == "utf-8-sig":
        marked = "utf-16-be" if content[:1] == b"\0" else "utf-16-le"
    for encoding in (*((charset[1],) if charset else ()), marked, "latin-1"):
        try:
            return content.decode(encoding)
        except (UnicodeError, LookupError):
            continue
    return ""
