"""Media on wires that cannot carry it, or carry it as text."""

from base64 import b64decode
from binascii import Error as Base64Error

from bridle.values.errors import MisuseError
from bridle.values.message import Media
from bridle.values.text import repair_surrogates


def describe_omitted_media(media: Media) -> str:
    """Text that is sent in place of media which a model does not accept."""
    named = media.name or media.url
    return repair_surrogates(
        f"[{media.kind}{' ' + named if named else ''} left out: it cannot be sent to this model]"
    )


def decode_text_document(media: Media) -> str:
    """Text of a document, for a wire without documents of a text type."""
    try:
        return b64decode(media.data, validate=True).decode("utf-8", "replace")
    except Base64Error:
        raise MisuseError(
            f"a document {media.name!r} of type {media.media_type} holds no base64: encode its bytes first"
        ) from None
