"""Pictures that are no pictures; what is not base64 is refused with the contents."""

from ._rules_gemini_shape import asked, member, placed_parts, rule, user
from ._rules_media_data import JPEG, PDF, recognize_data
from ._rules_reading import Block, mapping
from .rules import Asked, Found


def _no_picture(request: Asked) -> Found | None:
    """Any of the image types is taken under the name of another; other files are not."""
    for _, part in placed_parts(request):
        held = mapping(member(part, "inlineData"))
        labelled = str(member(held, "mimeType")).startswith("image/")
        shown = recognize_data(member(held, "data"))
        if labelled and shown and not shown.startswith("image/"):
            return {}
    return None


def _held(data: str, label: str = "image/png") -> Block:
    return {"inlineData": {"mimeType": label, "data": data}}


MEDIA_RULES = (
    rule(
        "image-data",
        _no_picture,
        "Unable to process input image. Please retry or report in"
        " https://developers.generativeai.google/guide/troubleshooting",
        evidence="S",
        passes=asked(contents=[user(_held(JPEG))]),
        offends=asked(contents=[user(_held(PDF))]),
        also=((asked(contents=[user(_held(PDF, "application/pdf"))]), ""),),
    ),
)
