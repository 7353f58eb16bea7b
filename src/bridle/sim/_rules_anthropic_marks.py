"""Thoughts sent back, and the marks that say how far to cache."""

from base64 import b64encode
from collections.abc import Iterator

from msgspec.structs import replace

from ._rules_anthropic_shape import (
    NEWEST,
    asked,
    assistant,
    blocks,
    marked,
    messages,
    placed_blocks,
    result,
    rule,
    text,
    tools,
    user,
)
from ._rules_reading import (
    Block,
    field,
    listed,
    mapping,
    to,
)
from .rules import Asked, Found

MARKS_MAX = 4
MEGABYTE = 1024 * 1024
THOUGHTS = ("thinking", "redacted_thinking")
_LARGE = "{at}.image.source.base64: image exceeds {limit} MB maximum: {size} bytes > {most} bytes"
_TTL_ORDER = (
    "{at}.cache_control.ttl: a ttl='1h' cache_control block must not come after a ttl='5m' cache_control"
    " block. Note that blocks are processed in the following order: `tools`, `system`, `messages`."
)


def _unsigned(request: Asked) -> Found | None:
    for place, block in placed_blocks(request):
        if block.get("type") == "thinking" and block.get("signature") is None:
            return {"at": place}
    return None


def _thought_last(request: Asked) -> Found | None:
    for index, message in enumerate(messages(request)):
        said = blocks(message)
        if message.get("role") == "assistant" and said and said[-1].get("type") in THOUGHTS:
            return {"index": index, "type": said[-1].get("type")}
    return None


def _large_picture(request: Asked) -> Found | None:
    most = request.abilities.image_bytes_max if request.abilities else 0
    if not most:
        return None
    for place, block in placed_blocks(request):
        inside = listed(block.get("content")) if block.get("type") == "tool_result" else ()
        for at, picture in (
            (place, block),
            *((f"{place}.content.{n}", mapping(b)) for n, b in enumerate(inside)),
        ):
            data = mapping(picture.get("source")).get("data") if picture.get("type") == "image" else None
            if isinstance(data, str) and (size := len(data.rstrip("=")) * 3 // 4) > most:
                return {"at": at, "limit": most // MEGABYTE, "size": size, "most": most}
    return None


def _marked_thought(request: Asked) -> Found | None:
    for place, block in placed_blocks(request):
        if block.get("type") in THOUGHTS and "cache_control" in block:
            return {"at": place, "type": block.get("type")}
    return None


def _marks(request: Asked) -> Iterator[tuple[str, Block]]:
    """Every marked block with its place, in the order the provider reads them."""
    placed: list[tuple[str, Block]] = [(f"tools.{index}", item) for index, item in enumerate(tools(request))]
    placed += [(f"system.{index}", block) for index, block in enumerate(blocks(request.body, "system"))]
    for place, block in placed_blocks(request):
        inside = listed(block.get("content")) if block.get("type") == "tool_result" else ()
        placed += [(f"{place}.content.{index}", mapping(inner)) for index, inner in enumerate(inside)]
        placed.append((place, block))
    return ((place, block) for place, block in placed if mapping(block.get("cache_control")))


def _many_marks(request: Asked) -> Found | None:
    count = sum(1 for _ in _marks(request)) + bool(field(request, "cache_control"))
    return {"count": count} if count > MARKS_MAX else None


def _marked_nothing(request: Asked) -> Found | None:
    for place, block in _marks(request):
        if block.get("type") == "text" and block.get("text") == "":
            return {"at": place}
    return None


def _ttl_order(request: Asked) -> Found | None:
    short = False
    for place, block in _marks(request):
        long = mapping(block.get("cache_control")).get("ttl") == "1h"
        if long and short:
            return {"at": place}
        short = not long
    return None


def _picture(size: int) -> Block:
    data = b64encode(bytes(size)).decode()
    return {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}


_LITTLE = replace(NEWEST, image_bytes_max=4)
_THOUGHT = {"type": "thinking", "thinking": "I look.", "signature": "c2ln"}

MARK_RULES = (
    rule(
        "thought-signed",
        _unsigned,
        "{at}.thinking.signature: Field required",
        evidence="F",
        passes=asked(messages=[user("Hello"), assistant(_THOUGHT, text("Hello")), user("Bye")]),
        offends=asked(
            messages=[
                user("Hello"),
                assistant({"type": "thinking", "thinking": "Hm."}, text("Hello")),
                user("Bye"),
            ]
        ),
        says="messages.1.content.0.thinking.signature: Field required",
    ),
    rule(
        "thought-last",
        _thought_last,
        "messages.{index}: The final block in an assistant message cannot be `{type}`.",
        evidence="S",
        passes=asked(messages=[user("Hello"), assistant(_THOUGHT, text("Hello")), user("Bye")]),
        offends=asked(messages=[user("Hello"), assistant(text("Hello"), _THOUGHT), user("Bye")]),
        says="messages.1: The final block in an assistant message cannot be `thinking`.",
        also=((asked(messages=[user(_THOUGHT)]), ""),),
    ),
    rule(
        "image-size",
        _large_picture,
        _LARGE,
        evidence="S",
        passes=to(_LITTLE, asked(messages=[user(_picture(4))])),
        offends=to(_LITTLE, asked(messages=[user(text("Look"), _picture(5))])),
        says=_LARGE.format(at="messages.0.content.1", limit=0, size=5, most=4),
        also=(
            (
                to(_LITTLE, asked(messages=[user({"type": "tool_result", "content": [_picture(5)]})])),
                _LARGE.format(at="messages.0.content.0.content.0", limit=0, size=5, most=4),
            ),
            (to(_LITTLE, asked(messages=[user({"type": "other", "content": [_picture(5)]})])), ""),
            (to(_LITTLE, asked(messages=[user({**_picture(5), "type": "document"})])), ""),
            (to(None, asked(messages=[user(_picture(5))])), ""),
            (asked(messages=[user(_picture(5))]), ""),
        ),
    ),
    rule(
        "mark-thought",
        _marked_thought,
        "{at}.{type}.cache_control: Extra inputs are not permitted",
        evidence="S",
        passes=asked(messages=[user("Hello"), assistant(_THOUGHT, text("Hello", **marked())), user("Bye")]),
        offends=asked(
            messages=[user("Hello"), assistant({**_THOUGHT, **marked()}, text("Hello")), user("Bye")]
        ),
        says="messages.1.content.0.thinking.cache_control: Extra inputs are not permitted",
    ),
    rule(
        "mark-empty",
        _marked_nothing,
        "{at}: cache_control cannot be set for empty text blocks",
        evidence="S",
        passes=asked(system=[text("Be brief.", **marked())]),
        offends=asked(system=[text("", **marked())]),
        also=((asked(messages=[user({"type": "image", "text": "", **marked()})]), ""),),
        says="system.0: cache_control cannot be set for empty text blocks",
    ),
    rule(
        "marks-most",
        _many_marks,
        "A maximum of 4 blocks with cache_control may be provided. Found {count}.",
        evidence="S",
        passes=asked(system=[text("Rule", **marked()) for _ in range(3)], **marked()),
        offends=asked(system=[text("Rule", **marked()) for _ in range(4)], **marked()),
        says="A maximum of 4 blocks with cache_control may be provided. Found 5.",
        also=(
            (
                asked(messages=[user(result(content=[text("seen", **marked()) for _ in range(5)]))]),
                "A maximum of 4 blocks with cache_control may be provided. Found 5.",
            ),
            (asked(messages=[user({"type": "document", "content": [text("a", **marked())] * 5})]), ""),
        ),
    ),
    rule(
        "mark-ttl-order",
        _ttl_order,
        _TTL_ORDER,
        evidence="S",
        passes=asked(system=[text("Rule", **marked("1h"))], messages=[user(text("Hello", **marked("5m")))]),
        offends=asked(system=[text("Rule", **marked("5m"))], messages=[user(text("Hello", **marked("1h")))]),
        says=_TTL_ORDER.format(at="messages.0.content.0"),
        also=(
            (
                asked(
                    system=[text("Rule", cache_control={"type": "ephemeral"}), text("Rule", **marked("1h"))]
                ),
                _TTL_ORDER.format(at="system.1"),
            ),
        ),
    ),
)
