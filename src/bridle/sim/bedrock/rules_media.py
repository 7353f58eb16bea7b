"""Rules about documents, images and videos: names, sources, and the models that support them."""

import re
from collections import Counter
from collections.abc import Iterator

from bridle.sim.rules.engine import RuleFinding
from bridle.sim.rules.media_data import is_base64, recognize_data
from bridle.sim.rules.raw_request import JsonObject, as_list, as_mapping

from .request import MODEL_ERROR_PREFIX, list_held, list_results
from .rules_fields import refuse

DOCUMENT_NAME = re.compile(r"(?!.*\s\s)[\w\s()\[\]-]+")


def _list_media(body: JsonObject, *kinds: str) -> Iterator[tuple[str, JsonObject]]:
    """Yield all blocks of these kinds, in messages and in the results in them."""
    for message in map(as_mapping, as_list(body.get("messages"))):
        results = ({"content": item.get("content")} for _, item in list_results(message))
        for holder in (message, *results):
            for kind in kinds:
                yield from ((kind, item) for _, item in list_held(holder, kind))


def _source(item: JsonObject) -> JsonObject:
    return as_mapping(item.get("source"))


def _find_bad_base64(body: JsonObject) -> RuleFinding | None:
    for kind, item in _list_media(body, "image", "document", "video", "audio"):
        data = _source(item).get("bytes")
        if isinstance(data, str) and not is_base64(data):
            return {"kind": kind}
    return None


def _has_other_data(body: JsonObject) -> bool:
    """True for an image that is no image; one labelled as another image format is accepted, as recordings show."""
    shown = (recognize_data(_source(item).get("bytes")) for _, item in _list_media(body, "image"))
    return any(type_ and not type_.startswith("image/") for type_ in shown)


def _document_names(body: JsonObject) -> list[str]:
    names = (item.get("name") for _, item in _list_media(body, "document"))
    return [name for name in names if isinstance(name, str)]


_NO_BASE64 = "The {kind} source bytes are not valid base64."

MEDIA_RULES = (
    refuse(
        "document-name",
        "",
        lambda body: not all(map(DOCUMENT_NAME.fullmatch, _document_names(body))),
        "The document file name can only contain alphanumeric characters, whitespace characters, hyphens,"
        " parentheses, and square brackets. The name can't contain more than one consecutive whitespace"
        " character.",
        evidence="S",
    ),
    refuse(
        "documents-unique",
        "",
        lambda body: any(times > 1 for times in Counter(_document_names(body)).values()),
        "Messages can't contain duplicate document names. Rename the document and retry your request.",
        evidence="S",
    ),
    refuse(
        "video",
        "",
        lambda body: any(_list_media(body, "video")),
        "This model doesn't support the video content block that you provided. Update the content block and"
        " try again.",
        evidence="S",
        models="that read no videos",
        when=lambda able: not able.videos,
    ),
    refuse(
        "audio",
        "",
        lambda body: any(_list_media(body, "audio")),
        "This model doesn't support the audio content block that you provided. Update the content block and"
        " try again.",
        evidence="K",
        models="that take no audio",
        when=lambda able: not able.audio,
    ),
    refuse("media-base64", "", _find_bad_base64, _NO_BASE64, evidence="K"),
    refuse("image-data", "", _has_other_data, MODEL_ERROR_PREFIX + "Could not process image", evidence="F"),
    refuse(
        "stored",
        "",
        lambda body: any("s3Location" in _source(item) for _, item in _list_media(body, "image")),
        "This model doesn't support the s3Uri field. Remove s3Uri and try again.",
        evidence="S",
        models="that read no videos",
        when=lambda able: not able.videos,
    ),
)
