"""Pictures and documents that are sent as data: that it is base64, and what its label says."""

from collections.abc import Iterator

from bridle.sim.rules.engine import RawRequest, RuleFinding
from bridle.sim.rules.media_data import is_base64, is_mislabelled
from bridle.sim.rules.raw_request import JsonObject, as_list, as_mapping

from .request import list_blocks, rule

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


MEDIA_RULES = (
    rule("media-empty", _check_media_empty, _EMPTY, evidence="S"),
    rule("media-base64", _check_media_base64, _NO_BASE64, evidence="S"),
    rule("image-label", _check_image_label, _MISLABELLED, evidence="S"),
)
