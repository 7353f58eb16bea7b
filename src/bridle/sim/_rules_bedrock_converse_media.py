"""Documents, pictures and films: how they are called, where they are, and who reads them."""

import re
from collections import Counter
from collections.abc import Iterator

from ._rules_bedrock_converse_shape import (
    FILMS,
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
