"""Documents, pictures and films: how they are called, where they are, and who reads them."""

import re
from collections import Counter
from collections.abc import Iterator

from ._rules_bedrock_converse_shape import (
    FILMS,
    MODEL_SAYS,
    asked,
    assistant,
    call,
    held,
    messages,
    offering,
    result,
    results,
    rule,
    user,
)
from ._rules_media_data import JPEG, PDF, PNG, is_base64, recognize_data
from ._rules_reading import (
    Block,
    mapping,
    to,
)
from .rules import Asked, Found

DOCUMENT_NAME = re.compile(r"(?!.*\s\s)[\w\s()\[\]-]+")


def _documents(request: Asked) -> Iterator[object]:
    for said in _carriers(request):
        yield from (item.get("name") for _, item in held(said, "document"))


def _films_refused(request: Asked) -> bool:
    return request.abilities is not None and not request.abilities.videos


def _film(request: Asked) -> Found | None:
    return {} if _films_refused(request) and any(held(said, "video") for said in _carriers(request)) else None


def _sound(request: Asked) -> Found | None:
    deaf = request.abilities is not None and not request.abilities.audio
    return {} if deaf and any(held(said, "audio") for said in _carriers(request)) else None


def _no_base64(request: Asked) -> Found | None:
    for said in _carriers(request):
        for kind in ("image", "document", "video", "audio"):
            for _, item in held(said, kind):
                data = mapping(item.get("source")).get("bytes")
                if isinstance(data, str) and not is_base64(data):
                    return {"kind": kind}
    return None


def _no_picture(request: Asked) -> Found | None:
    """A picture of one format is taken under the name of another, as recordings show; other files are not."""
    pictures = (item for said in _carriers(request) for _, item in held(said, "image"))
    shown = (recognize_data(mapping(item.get("source")).get("bytes")) for item in pictures)
    return {} if any(type_ and not type_.startswith("image/") for type_ in shown) else None


def _stored(request: Asked) -> Found | None:
    """Models that read no films take no pictures out of the provider's own store; documents they do."""
    found = any(
        "s3Location" in mapping(item.get("source"))
        for said in _carriers(request)
        for _, item in held(said, "image")
    )
    return {} if _films_refused(request) and found else None


def _carriers(request: Asked) -> Iterator[Block]:
    """Whatever holds blocks: messages, and results inside them."""
    for message in messages(request):
        yield message
        yield from ({"content": item.get("content")} for _, item in results(message))


def _document_name(request: Asked) -> Found | None:
    odd = any(isinstance(name, str) and not DOCUMENT_NAME.fullmatch(name) for name in _documents(request))
    return {} if odd else None


def _same_documents(request: Asked) -> Found | None:
    names = Counter(name for name in _documents(request) if isinstance(name, str))
    return {} if any(times > 1 for times in names.values()) else None


def _document(name: str) -> Block:
    return {"document": {"format": "txt", "name": name, "source": {"bytes": "AAAA"}}}


def _picture(data: str) -> Block:
    return {"image": {"format": "png", "source": {"bytes": data}}}


_AUDIO = {"audio": {"format": "mp3", "source": {"bytes": "AAAA"}}}
_NO_BASE64 = "The {kind} source bytes are not valid base64."
_LOOK = offering()
_VIDEO = {"video": {"format": "mp4", "source": {"bytes": "AAAA"}}}
_STORED = {"image": {"format": "png", "source": {"s3Location": {"uri": "s3://pictures/1.png"}}}}

MEDIA_RULES = (
    rule(
        "document-name",
        _document_name,
        "The document file name can only contain alphanumeric characters, whitespace characters, hyphens,"
        " parentheses, and square brackets. The name can't contain more than one consecutive whitespace"
        " character.",
        evidence="S",
        passes=asked(messages=[user("Read", _document("Plan (new) [2]-a_b"))]),
        offends=asked(messages=[user("Read", _document("plan.txt"))]),
        also=((asked(messages=[user({"document": {"format": "txt"}})]), ""),),
    ),
    rule(
        "documents-unique",
        _same_documents,
        "Messages can't contain duplicate document names. Rename the document and retry your request.",
        evidence="S",
        passes=asked(messages=[user("Read", _document("one"), _document("two"))]),
        offends=asked(messages=[user("Read", _document("one"), _document("one"))]),
    ),
    rule(
        "video",
        _film,
        "This model doesn't support the video content block that you provided. Update the content block and"
        " try again.",
        evidence="S",
        models="that read no videos",
        passes=to(FILMS, asked(messages=[user(_VIDEO)])),
        offends=asked(messages=[user("Look", _VIDEO)]),
    ),
    rule(
        "audio",
        _sound,
        "This model doesn't support the audio content block that you provided. Update the content block and"
        " try again.",
        evidence="K",
        models="that take no audio",
        passes=to(FILMS, asked(messages=[user("Listen", _AUDIO)])),
        offends=asked(messages=[user("Listen", _AUDIO)]),
        also=((to(None, asked(messages=[user("Listen", _AUDIO)])), ""),),
    ),
    rule(
        "media-base64",
        _no_base64,
        _NO_BASE64,
        evidence="K",
        passes=asked(messages=[user(_picture("AAAA"))]),
        offends=asked(messages=[user("Look", _picture("b'picture'"))]),
        says=_NO_BASE64.format(kind="image"),
    ),
    rule(
        "image-data",
        _no_picture,
        MODEL_SAYS + "Could not process image",
        evidence="F",
        passes=asked(messages=[user(_picture(PNG), _picture(JPEG))]),
        offends=asked(messages=[user("Look", _picture(PDF))]),
        also=(
            (
                asked(messages=[user(result("tooluse_1", {"text": "seen"}, _picture(PDF)))]),
                MODEL_SAYS + "Could not process image",
            ),
        ),
    ),
    rule(
        "stored",
        _stored,
        "This model doesn't support the s3Uri field. Remove s3Uri and try again.",
        evidence="S",
        models="that read no videos",
        passes=to(FILMS, asked(messages=[user(_STORED)])),
        offends=asked(
            messages=[user("Look"), assistant(call()), user(result("tooluse_1", _STORED))], **_LOOK
        ),
    ),
)
