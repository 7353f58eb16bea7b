"""From the provider's complaint to the part of ours it is about.

A codec merges, splits and reorders; only it knows what becomes of a message on its wire.  So
it is asked: the part meant is the first with which the item complained about is there as it
was sent.  That takes a few encodings, after an error that would otherwise be the end.
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
"""Where a wire item holds its pieces."""


def locate_rejected_parts(codec: Codec, request: Request, failure: Failure) -> tuple[PartRef, ...]:
    """The parts a refusal is about, of those that can be left out; empty when it cannot be told."""
    if failure.kind not in ("invalid", "too_large"):
        return ()
    complaint = find_rejected_item(failure.message, codec.messages_field)
    # A cache parameter may stand at a part of the conversation, which is not what is wrong.
    if complaint is None or find_rejected_parameter(failure.message):
        return ()
    spots = _find_parts_at(codec, request, complaint.path) if complaint.path else ()
    if not spots and complaint.about_media:
        spots = tuple(_newest_media(request.messages))
    return spots


def _find_parts_at(codec: Codec, request: Request, place: tuple[int, ...]) -> tuple[PartRef, ...]:
    messages = request.messages
    wanted = _item_at(_encode_items(codec, request, messages), place[:2])

    def there(told: Sequence[Message]) -> bool:
        return wanted is not None and _item_at(_encode_items(codec, request, told), place[:2]) == wanted

    count = _find_smallest(len(messages), lambda n: there(messages[:n]))
    if wanted is None or count == 0:
        return ()  # not an item of the conversation: nothing of ours can be left out
    message = messages[count - 1]
    before = messages[: count - 1]
    parts = _find_smallest(
        len(message.parts), lambda n: there((*before, replace(message, parts=message.parts[:n])))
    )
    at = max(0, parts - 1) if len(place) > 1 or len(message.parts) == 1 else -1
    indices = range(len(message.parts)) if at < 0 else (at,)
    return tuple(
        spot
        for index in indices
        for spot in _removable_parts(message.id, index, message.parts[index], place[2:], alone=at >= 0)
    )


def _removable_parts(
    message: str, index: int, part: Part, inner: tuple[int, ...], *, alone: bool
) -> tuple[PartRef, ...]:
    """What of a part can be replaced by words: never a call, and of a result only what is in it."""
    if isinstance(part, ToolCall):
        return ()
    if isinstance(part, ToolResult):
        within = range(len(part.parts))
        chosen = inner[:1] if inner and inner[0] in within else tuple(within)
        return tuple((message, index, at) for at in chosen)
    return ((message, index, -1),) if alone or isinstance(part, Media) else ()


def _newest_media(messages: Sequence[Message]) -> list[PartRef]:
    """Pictures and files that no reply has come after yet."""
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
        return []  # a beginning that is no conversation by itself
    listed = body.get(codec.messages_field)
    return listed if isinstance(listed, list) else []


def _item_at(listed: list[object], place: tuple[int, ...]) -> object:
    """The item at a place, or the piece of it; None when there is none."""
    if place[0] >= len(listed):
        return None
    item = listed[place[0]]
    if len(place) > 1 and isinstance(item, dict):
        pieces = next((item[name] for name in PIECE_LIST_FIELDS if isinstance(item.get(name), list)), None)
        if pieces is not None:
            return pieces[place[1]] if place[1] < len(pieces) else None
    return item


def _find_smallest(most: int, enough: Callable[[int], bool]) -> int:
    """The smallest number that is enough, when more always is; 0 when not even all are."""
    if not enough(most):
        return 0
    low, high = 0, most
    while low < high:
        middle = (low + high) // 2
        if enough(middle):
            high = middle
        else:
            low = middle + 1
    return low
