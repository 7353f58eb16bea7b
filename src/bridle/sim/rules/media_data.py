"""Recognizes the media type of encoded data, as providers do."""

import binascii

from bridle.values.media import decode_head, recognize_bytes


def is_base64(data: str) -> bool:
    """True for standard base64; missing padding is accepted, as providers do."""
    try:
        binascii.a2b_base64(data + "=" * (-len(data) % 4), strict_mode=True)
    except ValueError:
        return False
    return True


def recognize_data(data: object) -> str:
    """Return the media type that the first bytes show, or ""."""
    return recognize_bytes(decode_head(data)) if isinstance(data, str) else ""


def is_mislabelled(data: object, label: object) -> bool:
    """True if data labelled as an image is another kind of file; data of an unknown kind passes."""
    shown = recognize_data(data)
    expected = "image/jpeg" if label == "image/jpg" else label
    return bool(shown) and isinstance(expected, str) and expected.startswith("image/") and shown != expected
