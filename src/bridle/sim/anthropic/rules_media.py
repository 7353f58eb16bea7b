"""Pictures and documents that are sent as data: that it is base64, and what its label says."""

from collections.abc import Iterator

from bridle.sim.rules.engine import RawRequest, RuleFinding
from bridle.sim.rules.media_data import JPEG, PNG, is_base64, is_mislabelled
from bridle.sim.rules.raw_request import JsonObject, as_list, as_mapping

from .request import assistant, call, example, list_blocks, result, rule, text, tool, user

_NO_BASE64 = "{at}.source.base64: invalid base64 data"
_EMPTY = "{at}.source.base64: {kind} cannot be empty"
_MISLABELLED = "{at}.source.base64.data: Image does not match the provided media type {label}"


def _list_sources(request: RawRequest) -> Iterator[tuple[str, str, JsonObject]]:
    """Every base64 source with its place and the kind of its block, those inside results included."""
    for place, block in list_blocks(request):
        inside, outer = as_list(block.get("content")), block.get("type")
        inner = ((f"{place}.{outer}.content.{n}", as_mapping(each)) for n, each in enumerate(inside))
        for at, held in ((place, block), *inner):
            kind, source = held.get("type"), as_mapping(held.get("source"))
            if kind in ("image", "document") and source.get("type") == "base64":
                yield f"{at}.{kind}", str(kind), source


def _check_media_base64(request: RawRequest) -> RuleFinding | None:
    for at, _, source in _list_sources(request):
        data = source.get("data")
        if isinstance(data, str) and not is_base64(data):
            return {"at": at}
    return None


def _check_media_empty(request: RawRequest) -> RuleFinding | None:
    empty = ((at, kind) for at, kind, source in _list_sources(request) if source.get("data") == "")
    return next(({"at": at, "kind": kind} for at, kind in empty), None)


def _check_image_label(request: RawRequest) -> RuleFinding | None:
    for at, kind, source in _list_sources(request):
        if kind == "image" and is_mislabelled(source.get("data"), source.get("media_type")):
            return {"at": at, "label": source.get("media_type")}
    return None


def _media_block(data: str, media_type: str = "image/png", kind: str = "image") -> JsonObject:
    return {"type": kind, "source": {"type": "base64", "media_type": media_type, "data": data}}


def _example_with_result(block: JsonObject) -> RawRequest:
    said = [user("Look"), assistant(call()), user(result(content=[text("seen"), block]))]
    return example(messages=said, tools=[tool()])


MEDIA_RULES = (
    rule(
        "media-empty",
        _check_media_empty,
        _EMPTY,
        evidence="S",
        passes=example(messages=[user(_media_block("AAAA"))]),
        offends=example(messages=[user(text("Look"), _media_block(""))]),
        says=_EMPTY.format(at="messages.0.content.1.image", kind="image"),
    ),
    rule(
        "media-base64",
        _check_media_base64,
        _NO_BASE64,
        evidence="S",
        passes=example(
            messages=[user(_media_block("AAAA"), _media_block("AA", "application/pdf", "document"))]
        ),
        offends=_example_with_result(_media_block("b'picture'")),
        says=_NO_BASE64.format(at="messages.2.content.0.tool_result.content.1.image"),
        also=(
            (
                example(messages=[user(_media_block("A A="))]),
                _NO_BASE64.format(at="messages.0.content.0.image"),
            ),
            (example(messages=[user({"type": "image", "source": {"type": "url", "data": "?"}})]), ""),
            (example(messages=[user(_media_block("?", "video/mp4", "video"))]), ""),
            (example(messages=[user({"type": "image", "source": {"type": "base64"}})]), ""),
        ),
    ),
    rule(
        "image-label",
        _check_image_label,
        _MISLABELLED,
        evidence="S",
        passes=example(messages=[user(_media_block(PNG), _media_block(JPEG, "image/jpeg"))]),
        offends=example(messages=[user(_media_block(JPEG))]),
        says=_MISLABELLED.format(at="messages.0.content.0.image", label="image/png"),
        also=(
            (example(messages=[user(_media_block(JPEG, "application/pdf", "document"))]), ""),
            (example(messages=[user(_media_block(JPEG, "image/png", "document"))]), ""),
            (example(messages=[user(_media_block(JPEG, "application/pdf"))]), ""),
            (example(messages=[user(_media_block(JPEG, "image/jpg"))]), ""),
            (example(messages=[user({"type": "image", "source": {"type": "base64", "data": JPEG}})]), ""),
        ),
    ),
)
