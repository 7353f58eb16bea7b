"""From the provider's complaint to the part of ours it is about.

A codec merges, splits and reorders; only it knows what becomes of a message on its wire.  So
it is asked: the part meant is the first with which the item complained about is there as it
was sent.  That takes a few encodings, after an error that would otherwise be the end.
"""

import json
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from ..ports.codec import Codec
from ..providers.complaints import complaint_in
from ..providers.optional_parameters import find_refused_parameter
from ..values.errors import BridleError, Failure
from ..values.event import Spot
from ..values.message import Message
from ..values.parts import Media, Part, ToolCall, ToolResult
from ..values.request import Request

INSIDE = ("content", "parts", "output")
"""Where a wire item holds its pieces."""


def blamed(codec: Codec, request: Request, failure: Failure) -> tuple[Spot, ...]:
    """The parts a refusal is about, of those that can be left out; empty when it cannot be told."""
    if failure.kind not in ("invalid", "too_large"):
        return ()
    complaint = complaint_in(failure.message, codec.listed)
    # A cache parameter may stand at a part of the conversation, which is not what is wrong.
    if complaint is None or find_refused_parameter(failure.message):
        return ()
    spots = _at(codec, request, complaint.place) if complaint.place else ()
    if not spots and complaint.about_media:
        spots = tuple(_newest_media(request.messages))
    return spots


def _at(codec: Codec, request: Request, place: tuple[int, ...]) -> tuple[Spot, ...]:
    messages = request.messages
    wanted = _found(_listed(codec, request, messages), place[:2])

    def there(told: Sequence[Message]) -> bool:
        return wanted is not None and _found(_listed(codec, request, told), place[:2]) == wanted

    count = _fewest(len(messages), lambda n: there(messages[:n]))
    if wanted is None or count == 0:
        return ()  # not an item of the conversation: nothing of ours can be left out
    message = messages[count - 1]
    before = messages[: count - 1]
    parts = _fewest(len(message.parts), lambda n: there((*before, replace(message, parts=message.parts[:n]))))
    at = max(0, parts - 1) if len(place) > 1 or len(message.parts) == 1 else -1
    indices = range(len(message.parts)) if at < 0 else (at,)
    return tuple(
        spot
        for index in indices
        for spot in _leavable(message.id, index, message.parts[index], place[2:], alone=at >= 0)
    )


def _leavable(
    message: str, index: int, part: Part, inner: tuple[int, ...], *, alone: bool
) -> tuple[Spot, ...]:
    """What of a part can be replaced by words: never a call, and of a result only what is in it."""
    if isinstance(part, ToolCall):
        return ()
    if isinstance(part, ToolResult):
        within = range(len(part.parts))
        chosen = inner[:1] if inner and inner[0] in within else tuple(within)
        return tuple((message, index, at) for at in chosen)
    return ((message, index, -1),) if alone or isinstance(part, Media) else ()


def _newest_media(messages: Sequence[Message]) -> list[Spot]:
    """Pictures and files that no reply has come after yet."""
    found: list[Spot] = []
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


def _listed(codec: Codec, request: Request, messages: Sequence[Message]) -> list[object]:
    try:
        body = json.loads(codec.encode(replace(request, messages=tuple(messages), chained_to=""), None).body)
    except (BridleError, ValueError):
        return []  # a beginning that is no conversation by itself
    listed = body.get(codec.listed)
    return listed if isinstance(listed, list) else []


def _found(listed: list[object], place: tuple[int, ...]) -> object:
    """The item at a place, or the piece of it; None when there is none."""
    if place[0] >= len(listed):
        return None
    item = listed[place[0]]
    if len(place) > 1 and isinstance(item, dict):
        pieces = next((item[name] for name in INSIDE if isinstance(item.get(name), list)), None)
        if pieces is not None:
            return pieces[place[1]] if place[1] < len(pieces) else None
    return item


def _fewest(most: int, enough: Callable[[int], bool]) -> int:
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
