"""Rules of the Messages API about reasoning that is sent back, and about cache marks."""

from collections.abc import Iterator

from bridle.sim.rules.engine import RawRequest, RuleFinding
from bridle.sim.rules.raw_request import JsonObject, as_list, as_mapping, field, tools

from .request import blocks, list_blocks, rule
from .rules_fields import BLOCKS, refuse

MARKS_MAX = 4
MEGABYTE = 1024 * 1024
THOUGHTS = ("thinking", "redacted_thinking")
_LARGE = "{at}.image.source.base64: image exceeds {limit} MB maximum: {size} bytes > {most} bytes"
_TTL_ORDER = (
    "{at}.cache_control.ttl: a ttl='1h' cache_control block must not come after a ttl='5m' cache_control"
    " block. Note that blocks are processed in the following order: `tools`, `system`, `messages`."
)


def _find_last_thought(message: JsonObject) -> RuleFinding | None:
    last = (blocks(message) or [{}])[-1].get("type")
    return {"type": last} if message.get("role") == "assistant" and last in THOUGHTS else None


def _find_marked_thought(block: JsonObject) -> RuleFinding | None:
    type_ = block.get("type")
    return {"type": type_} if type_ in THOUGHTS and "cache_control" in block else None


def _check_image_size(request: RawRequest) -> RuleFinding | None:
    most = request.abilities.image_bytes_max if request.abilities else 0
    if not most:
        return None
    for place, block in list_blocks(request):
        inside = as_list(block.get("content")) if block.get("type") == "tool_result" else ()
        for at, picture in (
            (place, block),
            *((f"{place}.content.{n}", as_mapping(b)) for n, b in enumerate(inside)),
        ):
            data = as_mapping(picture.get("source")).get("data") if picture.get("type") == "image" else None
            if isinstance(data, str) and (size := len(data.rstrip("=")) * 3 // 4) > most:
                return {"at": at, "limit": most // MEGABYTE, "size": size, "most": most}
    return None


def _list_marked_blocks(request: RawRequest) -> Iterator[tuple[str, JsonObject]]:
    """Yield every marked block with its path, in the order in which the provider reads them."""
    placed: list[tuple[str, JsonObject]] = [
        (f"tools.{index}", item) for index, item in enumerate(tools(request))
    ]
    placed += [(f"system.{index}", block) for index, block in enumerate(blocks(request.body, "system"))]
    for place, block in list_blocks(request):
        inside = as_list(block.get("content")) if block.get("type") == "tool_result" else ()
        placed += [(f"{place}.content.{index}", as_mapping(inner)) for index, inner in enumerate(inside)]
        placed.append((place, block))
    return ((place, block) for place, block in placed if as_mapping(block.get("cache_control")))


def _check_marks_most(request: RawRequest) -> RuleFinding | None:
    count = sum(1 for _ in _list_marked_blocks(request)) + bool(field(request, "cache_control"))
    return {"count": count} if count > MARKS_MAX else None


def _check_mark_empty(request: RawRequest) -> RuleFinding | None:
    for place, block in _list_marked_blocks(request):
        if block.get("type") == "text" and block.get("text") == "":
            return {"at": place}
    return None


def _check_mark_ttl_order(request: RawRequest) -> RuleFinding | None:
    short = False
    for place, block in _list_marked_blocks(request):
        long = as_mapping(block.get("cache_control")).get("ttl") == "1h"
        if long and short:
            return {"at": place}
        short = not long
    return None


CACHE_RULES = (
    refuse(
        "thought-signed",
        BLOCKS,
        lambda block: block.get("type") == "thinking" and block.get("signature") is None,
        "{at}.thinking.signature: Field required",
        evidence="F",
    ),
    refuse(
        "thought-last",
        "messages[]",
        _find_last_thought,
        "messages.{index}: The final block in an assistant message cannot be `{type}`.",
        evidence="S",
    ),
    rule("image-size", _check_image_size, _LARGE, evidence="S"),
    refuse(
        "mark-thought",
        BLOCKS,
        _find_marked_thought,
        "{at}.{type}.cache_control: Extra inputs are not permitted",
        evidence="S",
    ),
    rule(
        "mark-empty",
        _check_mark_empty,
        "{at}: cache_control cannot be set for empty text blocks",
        evidence="S",
    ),
    rule(
        "marks-most",
        _check_marks_most,
        "A maximum of 4 blocks with cache_control may be provided. Found {count}.",
        evidence="S",
    ),
    rule("mark-ttl-order", _check_mark_ttl_order, _TTL_ORDER, evidence="S"),
)
