"""Maps the item a provider rejected to the message parts that produced it.

A codec merges, splits and reorders, so only encoding shows what becomes of a message on the wire: the part
meant is the first with which the rejected item appears as it was sent.  This takes a few encodings, after an
error that would otherwise end the run.
"""

import json
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from bridle.ports.codec import Codec
from bridle.providers.wire.rejections import find_rejected_item, find_rejected_parameter
from bridle.values.errors import BridleError, Failure
from bridle.values.events import PartRef
from bridle.values.message import Media, Message, Part, ToolCall, ToolResult
from bridle.values.request import Request

PIECE_LIST_FIELDS = ("content", "parts", "output")
"""Fields of a wire item that list its pieces."""


def locate_rejected_parts(codec: Codec, request: Request, failure: Failure) -> tuple[PartRef, ...]:
    """The rejected parts that can be left out of the request; empty if they cannot be determined."""
    if failure.kind not in ("invalid", "too_large"):
        return ()
    complaint = find_rejected_item(failure.message, codec.messages_field)
    # A rejected cache parameter may be attached to a part that is itself valid.
    if complaint is None or find_rejected_parameter(failure.message):
        return ()
    refs = _find_parts_at(codec, request, complaint.path) if complaint.path else ()
    if not refs and complaint.about_media:
        refs = tuple(_newest_media(request.messages))
    return refs


def _find_parts_at(codec: Codec, request: Request, path: tuple[int, ...]) -> tuple[PartRef, ...]:
    messages = request.messages
    rejected = _item_at(_encode_items(codec, request, messages), path[:2])

    def has_item(subset: Sequence[Message]) -> bool:
        return rejected is not None and _item_at(_encode_items(codec, request, subset), path[:2]) == rejected

    count = _find_smallest(len(messages), lambda n: has_item(messages[:n]))
    if rejected is None or count == 0:
        return ()  # not an item of the conversation: no part can be left out
    message = messages[count - 1]
    before = messages[: count - 1]
    parts = _find_smallest(
        len(message.parts), lambda n: has_item((*before, replace(message, parts=message.parts[:n])))
    )
    at = max(0, parts - 1) if len(path) > 1 or len(message.parts) == 1 else -1
    indices = range(len(message.parts)) if at < 0 else (at,)
    return tuple(
        ref
        for index in indices
        for ref in _removable_parts(message.id, index, message.parts[index], path[2:], alone=at >= 0)
    )


def _removable_parts(
    message: str, index: int, part: Part, inner: tuple[int, ...], *, alone: bool
) -> tuple[PartRef, ...]:
    """The parts that can be replaced by text: never a call, and only the content of a result."""
    if isinstance(part, ToolCall):
        return ()
    if isinstance(part, ToolResult):
        within = range(len(part.parts))
        chosen = inner[:1] if inner and inner[0] in within else tuple(within)
        return tuple((message, index, at) for at in chosen)
    return ((message, index, -1),) if alone or isinstance(part, Media) else ()


def _newest_media(messages: Sequence[Message]) -> list[PartRef]:
    """Media after the last reply."""
    found: list[PartRef] = []
    for message in reversed(messages):
        if message.role == "assistant":
            break
        for index, part in enumerate(message.parts):
            if isinstance(part, Media):
                found.append((message.id, index, -1))
            elif isinstance(part, ToolResult):
                inside = enumerate(part.parts)
                found += [(message.id, index, at) for at, each in inside if isinstance(each, Media)]
    return found


def _encode_items(codec: Codec, request: Request, messages: Sequence[Message]) -> list[object]:
    try:
        body = json.loads(
            codec.encode(replace(request, messages=tuple(messages), server_state_until=""), None).body
        )
    except (BridleError, ValueError):
        return []  # these messages alone are not a valid conversation
    listed = body.get(codec.messages_field)
    return listed if isinstance(listed, list) else []


def _item_at(listed: list[object], path: tuple[int, ...]) -> object:
    """The item at a path, or the piece of it; None if there is none."""
    if path[0] >= len(listed):
        return None
    item = listed[path[0]]
    if len(path) > 1 and isinstance(item, dict):
        pieces = next((item[name] for name in PIECE_LIST_FIELDS if isinstance(item.get(name), list)), None)
        if pieces is not None:
            return pieces[path[1]] if path[1] < len(pieces) else None
    return item


def _find_smallest(maximum: int, enough: Callable[[int], bool]) -> int:
    """The smallest number for which the monotonic `enough` holds, by bisection; 0 if none does."""
    if not enough(maximum):
        return 0
    low, high = 0, maximum
    while low < high:
        middle = (low + high) // 2
        if enough(middle):
            high = middle
        else:
            low = middle + 1
    return low
