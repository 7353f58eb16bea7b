"""Rules about documents, images and videos: names, sources, and the models that support them."""

import re
from collections import Counter
from collections.abc import Iterator

from bridle.sim.rules.engine import RawRequest, RuleFinding
from bridle.sim.rules.media_data import is_base64, recognize_data
from bridle.sim.rules.raw_request import JsonObject, as_mapping

from .request import MODEL_ERROR_PREFIX, list_held, list_results, messages, rule

DOCUMENT_NAME = re.compile(r"(?!.*\s\s)[\w\s()\[\]-]+")


def _list_document_names(request: RawRequest) -> Iterator[object]:
    for holder in _list_content_holders(request):
        yield from (item.get("name") for _, item in list_held(holder, "document"))


def _refuses_video(request: RawRequest) -> bool:
    return request.abilities is not None and not request.abilities.videos


def _check_video(request: RawRequest) -> RuleFinding | None:
    return (
        {}
        if _refuses_video(request)
        and any(list_held(holder, "video") for holder in _list_content_holders(request))
        else None
    )


def _check_audio(request: RawRequest) -> RuleFinding | None:
    deaf = request.abilities is not None and not request.abilities.audio
    return (
        {} if deaf and any(list_held(holder, "audio") for holder in _list_content_holders(request)) else None
    )


def _check_media_base64(request: RawRequest) -> RuleFinding | None:
    for holder in _list_content_holders(request):
        for kind in ("image", "document", "video", "audio"):
            for _, item in list_held(holder, kind):
                data = as_mapping(item.get("source")).get("bytes")
                if isinstance(data, str) and not is_base64(data):
                    return {"kind": kind}
    return None


def _check_image_data(request: RawRequest) -> RuleFinding | None:
    """Accept an image labelled as another image format, as recordings show, but no other file."""
    pictures = (item for holder in _list_content_holders(request) for _, item in list_held(holder, "image"))
    shown = (recognize_data(as_mapping(item.get("source")).get("bytes")) for item in pictures)
    return {} if any(type_ and not type_.startswith("image/") for type_ in shown) else None


def _check_stored(request: RawRequest) -> RuleFinding | None:
    """Refuse images from the provider's own storage for models without video; documents are accepted."""
    found = any(
        "s3Location" in as_mapping(item.get("source"))
        for holder in _list_content_holders(request)
        for _, item in list_held(holder, "image")
    )
    return {} if _refuses_video(request) and found else None


def _list_content_holders(request: RawRequest) -> Iterator[JsonObject]:
    """Yield everything that holds blocks: messages, and the results in them."""
    for message in messages(request):
        yield message
        yield from ({"content": item.get("content")} for _, item in list_results(message))


def _check_document_name(request: RawRequest) -> RuleFinding | None:
    odd = any(
        isinstance(name, str) and not DOCUMENT_NAME.fullmatch(name) for name in _list_document_names(request)
    )
    return {} if odd else None


def _check_documents_unique(request: RawRequest) -> RuleFinding | None:
    names = Counter(name for name in _list_document_names(request) if isinstance(name, str))
    return {} if any(times > 1 for times in names.values()) else None


_NO_BASE64 = "The {kind} source bytes are not valid base64."

MEDIA_RULES = (
    rule(
        "document-name",
        _check_document_name,
        "The document file name can only contain alphanumeric characters, whitespace characters, hyphens,"
        " parentheses, and square brackets. The name can't contain more than one consecutive whitespace"
        " character.",
        evidence="S",
    ),
    rule(
        "documents-unique",
        _check_documents_unique,
        "Messages can't contain duplicate document names. Rename the document and retry your request.",
        evidence="S",
    ),
    rule(
        "video",
        _check_video,
        "This model doesn't support the video content block that you provided. Update the content block and"
        " try again.",
        evidence="S",
        models="that read no videos",
    ),
    rule(
        "audio",
        _check_audio,
        "This model doesn't support the audio content block that you provided. Update the content block and"
        " try again.",
        evidence="K",
        models="that take no audio",
    ),
    rule("media-base64", _check_media_base64, _NO_BASE64, evidence="K"),
    rule("image-data", _check_image_data, MODEL_ERROR_PREFIX + "Could not process image", evidence="F"),
    rule(
        "stored",
        _check_stored,
        "This model doesn't support the s3Uri field. Remove s3Uri and try again.",
        evidence="S",
        models="that read no videos",
    ),
)
