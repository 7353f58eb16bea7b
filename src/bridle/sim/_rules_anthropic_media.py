"""Pictures and documents that are sent as data: that it is base64, and what its label says."""

from collections.abc import Iterator

from ._rules_anthropic_shape import asked, assistant, call, placed_blocks, result, rule, text, tool, user
from ._rules_media_data import JPEG, PNG, is_base64, is_mislabelled
from ._rules_reading import Block, listed, mapping
from .rules import Asked, Found

_NO_BASE64 = "{at}.source.base64: invalid base64 data"
_EMPTY = "{at}.source.base64: {kind} cannot be empty"
_MISLABELLED = "{at}.source.base64.data: Image does not match the provided media type {label}"


def _sources(request: Asked) -> Iterator[tuple[str, str, Block]]:
    """Every base64 source with its place and the kind of its block, those inside results included."""
    for place, block in placed_blocks(request):
        inside, outer = listed(block.get("content")), block.get("type")
        inner = ((f"{place}.{outer}.content.{n}", mapping(each)) for n, each in enumerate(inside))
        for at, held in ((place, block), *inner):
            kind, source = held.get("type"), mapping(held.get("source"))
            if kind in ("image", "document") and source.get("type") == "base64":
                yield f"{at}.{kind}", str(kind), source


def _no_base64(request: Asked) -> Found | None:
    for at, _, source in _sources(request):
        data = source.get("data")
        if isinstance(data, str) and not is_base64(data):
            return {"at": at}
    return None


def _empty(request: Asked) -> Found | None:
    empty = ((at, kind) for at, kind, source in _sources(request) if source.get("data") == "")
    return next(({"at": at, "kind": kind} for at, kind in empty), None)


def _mislabelled(request: Asked) -> Found | None:
    for at, kind, source in _sources(request):
        if kind == "image" and is_mislabelled(source.get("data"), source.get("media_type")):
            return {"at": at, "label": source.get("media_type")}
    return None


def _held(data: str, media_type: str = "image/png", kind: str = "image") -> Block:
    return {"type": kind, "source": {"type": "base64", "media_type": media_type, "data": data}}


def _brought(block: Block) -> Asked:
    said = [user("Look"), assistant(call()), user(result(content=[text("seen"), block]))]
    return asked(messages=said, tools=[tool()])


MEDIA_RULES = (
    rule(
        "media-empty",
        _empty,
        _EMPTY,
        evidence="S",
        passes=asked(messages=[user(_held("AAAA"))]),
        offends=asked(messages=[user(text("Look"), _held(""))]),
        says=_EMPTY.format(at="messages.0.content.1.image", kind="image"),
    ),
    rule(
        "media-base64",
        _no_base64,
        _NO_BASE64,
        evidence="S",
        passes=asked(messages=[user(_held("AAAA"), _held("AA", "application/pdf", "document"))]),
        offends=_brought(_held("b'picture'")),
        says=_NO_BASE64.format(at="messages.2.content.0.tool_result.content.1.image"),
        also=(
            (asked(messages=[user(_held("A A="))]), _NO_BASE64.format(at="messages.0.content.0.image")),
            (asked(messages=[user({"type": "image", "source": {"type": "url", "data": "?"}})]), ""),
            (asked(messages=[user(_held("?", "video/mp4", "video"))]), ""),
            (asked(messages=[user({"type": "image", "source": {"type": "base64"}})]), ""),
        ),
    ),
    rule(
        "image-label",
        _mislabelled,
        _MISLABELLED,
        evidence="S",
        passes=asked(messages=[user(_held(PNG), _held(JPEG, "image/jpeg"))]),
        offends=asked(messages=[user(_held(JPEG))]),
        says=_MISLABELLED.format(at="messages.0.content.0.image", label="image/png"),
        also=(
            (asked(messages=[user(_held(JPEG, "application/pdf", "document"))]), ""),
            (asked(messages=[user(_held(JPEG, "image/png", "document"))]), ""),
            (asked(messages=[user(_held(JPEG, "application/pdf"))]), ""),
            (asked(messages=[user(_held(JPEG, "image/jpg"))]), ""),
            (asked(messages=[user({"type": "image", "source": {"type": "base64", "data": JPEG}})]), ""),
        ),
    ),
)
