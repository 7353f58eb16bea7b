"""What the data of a picture is, read the way every provider reads it."""

import binascii

from bridle.values.media import decode_head, recognize_bytes


def is_base64(data: str) -> bool:
    """Whether this is standard base64; missing padding is let pass, as providers do."""
    try:
        binascii.a2b_base64(data + "=" * (-len(data) % 4), strict_mode=True)
    except ValueError:
        return False
    return True


def recognize_data(data: object) -> str:
    """The media type that the first bytes show; empty when they show none."""
    return recognize_bytes(decode_head(data)) if isinstance(data, str) else ""


def is_mislabelled(data: object, label: object) -> bool:
    """Whether the data shows another kind of file than an image's label says; data that shows none passes."""
    shown = recognize_data(data)
    wanted = "image/jpeg" if label == "image/jpg" else label
    return bool(shown) and isinstance(wanted, str) and wanted.startswith("image/") and shown != wanted
