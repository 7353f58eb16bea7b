"""Media on wires that cannot carry it, or carry it as text."""

from base64 import b64decode
from binascii import Error as Base64Error

from msgspec.structs import replace

from bridle.values.errors import MisuseError
from bridle.values.message import Media
from bridle.values.text import repair_surrogates


def describe_omitted_media(media: Media) -> str:
    """Text that is sent in place of media which a model does not accept."""
    named = media.name or media.url
    return repair_surrogates(
        f"[{media.kind}{' ' + named if named else ''} left out: it cannot be sent to this model]"
    )


def lighten_media(media: Media) -> Media:
    """The same media with hardly any data, to find out cheaply how it would be encoded."""
    return replace(media, data=_SOME_DATA) if media.data else media


_SOME_DATA = "AAAA"


def describe_unsent_media(media: Media, at: str) -> str:
    """One sentence about media that the wire of an endpoint cannot carry in its form."""
    kind = "picture" if media.kind == "image" else media.kind
    named = f"{kind} {media.name}" if media.name else kind
    if media.url:
        form = f"no {kind} by its address; pass its bytes"
    elif media.file_id:
        form = f"no {kind} by the id of a file; pass its bytes"
    else:
        form = f"no {media.media_type or kind} here"
    return f"{named} left out: {at} takes {form}"


def decode_text_document(media: Media) -> str:
    """Text of a document, for a wire without documents of a text type."""
    try:
        return b64decode(media.data, validate=True).decode("utf-8", "replace")
    except Base64Error:
        raise MisuseError(
            f"a document {media.name!r} of type {media.media_type} holds no base64: encode its bytes first"
        ) from None
