"""Make a conversation fit for whoever is to read it next.

The log keeps what was said.  What goes to a model is a *view* of it, and the view may
have to differ: a conversation from elsewhere may be illegal, a picture may be larger than
anybody accepts, a hundred screenshots cost more than they tell.

    legal(messages)     a conversation held elsewhere, with what was wrong put right
    wanted(state)       changes of the view that are due now, with their reason
    changed(view, …)    the view after such changes were recorded

Rule 1: a change is decided once, recorded, and never taken back: a view that wavers is a
        cache that never hits, and newer models refuse reasoning whose past was edited.
Rule 2: a call and its result are never parted.
Rule 3: nothing here knows a provider; what an endpoint wants is in its abilities.
"""

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from ..values.event import Change
from ..values.message import Message
from ..values.parts import Media, Part, Reasoning, Text, ToolCall, ToolResult
from .state import State

PICTURES_KEPT = 3
"""How many of the newest screenshots stay."""
PICTURES_BATCH = 3
"""How many more may gather before the old ones go: every change moves the cached prefix."""
PICTURE_GONE = "[an older picture was here]"
NO_RESULT = "No result of this call is known."
BEGINNING = "(The conversation begins here.)"


def wanted(state: State) -> tuple[tuple[Change, ...], str] | None:
    """Changes of the view that are due, and why; None when there are none."""
    if state.too_large:
        return state.too_large, "a picture is larger than this model accepts"
    if state.pictures > PICTURES_KEPT + PICTURES_BATCH:
        old = list(_pictures(state.view))[:-PICTURES_KEPT]
        return tuple(old), f"only the newest {PICTURES_KEPT} pictures from tools are sent on"
    return None


def changed(view: tuple[Message, ...], changes: Iterable[Change]) -> tuple[Message, ...]:
    by_message: dict[str, list[Change]] = {}
    for change in changes:
        by_message.setdefault(change.message, []).append(change)
    return tuple(
        _with_changes(message, by_message[message.id]) if message.id in by_message else message
        for message in view
    )


def pictures_in(message: Message) -> int:
    """How many pictures tools brought with this message."""
    return sum(isinstance(part, Media) for result in message.results for part in result.parts)


def too_large_in(message: Message, bytes_max: int) -> tuple[Change, ...]:
    """What in this message no request may carry."""
    if not bytes_max:
        return ()
    found: list[Change] = []
    for at, part in enumerate(message.parts):
        inside = enumerate(part.parts) if isinstance(part, ToolResult) else ((-1, part),)
        for inner, media in inside:
            if not isinstance(media, Media) or media.kind != "image":
                continue
            size = len(media.data) * 3 // 4
            if size > bytes_max:
                words = f"[picture of {size:,} bytes left out: at most {bytes_max:,} are accepted]"
                found.append(Change(message=message.id, part=at, inner=inner, words=words))
    return tuple(found)


def legal(messages: Iterable[Message]) -> tuple[tuple[Message, ...], tuple[str, ...]]:
    """The same conversation with every call answered once, in order and at its place; and what was repaired.

    Idempotent: a legal conversation comes out as it went in, with nothing repaired.
    """
    given = tuple(messages)
    repairs: list[str] = []
    results = _results(given, repairs)
    origins = {result.call_id: message.origin for message in given for result in message.results}
    told: list[Message] = []
    for message in given:
        parts = _worth_sending(part for part in message.parts if not isinstance(part, ToolResult))
        if len(parts) < len(message.parts) - len(message.results):
            repairs.append(f"blank text in {message.id or 'a message'} was left out")
        if not parts:
            continue
        if not told and message.role == "assistant":
            told.append(Message(role="user", parts=(Text(text=BEGINNING),)))
            repairs.append("the conversation began with the model; an opening was put before it")
        told.append(replace(message, role="user" if message.role == "tool" else message.role, parts=parts))
        if message.calls:
            answers = tuple(_answer(call, results, repairs) for call in message.calls)
            owner = next((origins[call.id] for call in message.calls if call.id in origins), None)
            told.append(Message(role="tool", parts=answers, at=message.at, origin=owner))
    return tuple(told), tuple(repairs)


def _results(messages: tuple[Message, ...], repairs: list[str]) -> Mapping[str, ToolResult]:
    """The first result of every call that was made before it."""
    asked: set[str] = set()
    found: dict[str, ToolResult] = {}
    for message in messages:
        asked.update(call.id for call in message.calls)
        for result in message.results:
            if result.call_id not in asked:
                repairs.append(f"a result for {result.call_id!r}, which nobody called, was left out")
            elif result.call_id in found:
                repairs.append(f"a second result for {result.call_id!r} was left out")
            else:
                found[result.call_id] = result
    return found


def _answer(call: ToolCall, results: Mapping[str, ToolResult], repairs: list[str]) -> ToolResult:
    if call.id in results:
        return results[call.id]
    repairs.append(f"the call {call.id!r} of {call.name} had no result; it was answered as unknown")
    return ToolResult(call_id=call.id, parts=(Text(text=NO_RESULT),), outcome="unknown")


def _worth_sending(parts: Iterable[Part]) -> tuple[Part, ...]:
    # A blank text may be the carrier of a signature: what a provider put beside it is worth its place.
    kept = tuple(part for part in parts if not isinstance(part, Text) or part.text.strip() or part.native)
    return kept if any(not isinstance(part, Reasoning) for part in kept) else ()


def _pictures(view: tuple[Message, ...]) -> Iterable[Change]:
    for message in view:
        for at, part in enumerate(message.parts):
            if isinstance(part, ToolResult):
                for inner, media in enumerate(part.parts):
                    if isinstance(media, Media):
                        yield Change(message=message.id, part=at, inner=inner, words=PICTURE_GONE)


def _with_changes(message: Message, changes: list[Change]) -> Message:
    parts: list[Part | None] = list(message.parts)
    for change in changes:
        part = parts[change.part]
        if change.inner < 0:
            parts[change.part] = Text(text=change.words) if change.words else None
        elif isinstance(part, ToolResult):
            inner = [
                Text(text=change.words) if at == change.inner else each for at, each in enumerate(part.parts)
            ]
            parts[change.part] = replace(part, parts=tuple(inner), native=None)
    return replace(message, parts=tuple(part for part in parts if part is not None))
