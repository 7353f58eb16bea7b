"""Pictures that are no pictures; what is not base64 is refused with the contents."""

from bridle.sim.rules.engine import RawRequest, RuleFinding
from bridle.sim.rules.media_data import recognize_data
from bridle.sim.rules.raw_request import as_mapping

from .request import list_parts, member, rule


def _check_image_data(request: RawRequest) -> RuleFinding | None:
    """Any of the image types is taken under the name of another; other files are not."""
    for _, part in list_parts(request):
        held = as_mapping(member(part, "inlineData"))
        labelled = str(member(held, "mimeType")).startswith("image/")
        shown = recognize_data(member(held, "data"))
        if labelled and shown and not shown.startswith("image/"):
            return {}
    return None


MEDIA_RULES = (
    rule(
        "image-data",
        _check_image_data,
        "Unable to process input image. Please retry or report in"
        " https://developers.generativeai.google/guide/troubleshooting",
        evidence="S",
    ),
)
