"""Rules of both OpenAI wires about images in data URLs, at the paths that each wire uses."""

import re
from collections.abc import Callable, Iterator

from bridle.sim.rules.engine import ProviderRule, RawRequest, RuleFinding
from bridle.sim.rules.media_data import is_base64, recognize_data

from .error_style import rule

ImageLister = Callable[[RawRequest], Iterator[tuple[str, str]]]
"""Yields every image URL in a request, with its path."""
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
    """Explain why a URL is not a base64 image; empty for a valid one and for web addresses."""
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
        problems = ((place, _explain_bad_url(url)) for place, url in pictures(request))
        return next(({"at": place, "what": what} for place, what in problems if what), None)

    def no_picture(request: RawRequest) -> RuleFinding | None:
        """Accept an image labelled as another image type, but no other file."""
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
