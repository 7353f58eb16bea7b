"""Pictures in data URLs: shared by both wires, which name the place in their own way."""

import re
from collections.abc import Callable, Iterator

from bridle.sim.rules.engine import ProviderRule, RawRequest, RuleFinding
from bridle.sim.rules.media_data import is_base64, recognize_data

from .error_style import rule

ImageLister = Callable[[RawRequest], Iterator[tuple[str, str]]]
"""Every address of a picture in a request, with its place."""
_DATA_URL = re.compile(r"data:([^;,]*)((?:;[^;,]*)*),")
_WANTED = (
    "Expected a base64-encoded data URL with an image MIME type"
    " (e.g. 'data:image/png;base64,aW1nIGJ5dGVzIGhlcmU='), but got {what}."
)
_NO_PICTURE = (
    "The image data you provided does not represent a valid image. Please check your input and try again with"
    " one of the following image formats: ['image/jpeg', 'image/png', 'image/gif', 'image/webp']."
)


def _explain_bad_url(url: str) -> str:
    """What an address is instead of a picture in base64; empty for one, and for those on the web."""
    if url.startswith(("http://", "https://")):
        return ""
    head = _DATA_URL.match(url)
    if head is None:
        return "a value without the 'data:' prefix"
    if not head.group(1).startswith("image/"):
        return f"unsupported MIME type '{head.group(1)}'"
    data = url[head.end() :]
    if not data:
        return "empty base64-encoded bytes"
    return "" if head.group(2) == ";base64" and is_base64(data) else "an invalid base64-encoded value"


def media_rules(pictures: ImageLister, wording: str) -> tuple[ProviderRule, ...]:
    def no_picture_url(request: RawRequest) -> RuleFinding | None:
        told = ((place, _explain_bad_url(url)) for place, url in pictures(request))
        return next(({"at": place, "what": what} for place, what in told if what), None)

    def no_picture(request: RawRequest) -> RuleFinding | None:
        """Any of the image types is taken under the name of another; other files are not."""
        shown = (
            recognize_data(url.partition(",")[2]) for _, url in pictures(request) if url.startswith("data:")
        )
        return {} if any(type_ and not type_.startswith("image/") for type_ in shown) else None

    return (
        rule(
            "image-data-url",
            no_picture_url,
            f"{wording} {_WANTED}",
            param="{at}",
            code="invalid_value",
            evidence="S",
        ),
        rule("image-data", no_picture, _NO_PICTURE, code="image_parse_error", evidence="S"),
    )
