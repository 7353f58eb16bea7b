"""Members of a client's request that only its own wire has: which of them reach the model, and the names of the rest.

Decoding a request keeps what our values do not model: as `native` of a part, as an `Opaque` part, as the definition of
a tool, as an `Extra`. A model of the same wire family gets all of it back unchanged. For a model of another family it
is a loss with a name. So is what the hooks of the agent would not see: a hook that redacts texts does not read members.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Any

from msgspec.structs import replace

from bridle.values.message import Media, Message, Opaque, Part, Reasoning, Text, ToolCall, ToolResult
from bridle.values.model import Model, make_origin
from bridle.values.request import Request
from bridle.values.text import parse_json

CACHE_MARKS = frozenset({"cache_control", "prompt_cache_breakpoint", "cachePoint"})
"""Members that mark the end of a cached prompt; the gateway sets its own."""
UNSIGNED = "reasoning without a signature of the provider (also called thinking)"
OTHER_REASONING = "reasoning of another provider (also called thinking)"
NAMED_DEPTH = 3
NUMBER_MAX = 10**8
"""A larger number may identify someone."""
_WORD = re.compile(r"[A-Za-z_]{0,64}")
_FRAMES = ("message", "part")
"""Members of `native` that hold members of the message or of the part; not part of a name."""
_KINDS: dict[type, str] = {
    Text: "text",
    ToolResult: "tool_result",
    ToolCall: "tool_call",
    Reasoning: "reasoning",
}
_PLACES = frozenset({"in", "role"})
"""Members of `native` that our values have in another form: the place of a part, the side of a message."""


def mark_client_parts(request: Request, family: str, model: Model, *, is_hooked: bool) -> Request:
    """The request with the parts that its client wrote marked as such.

    `is_hooked`: hooks read the messages; then members with text that no hook would see are removed.
    """
    messages = tuple(
        _mark_message(message, family, model, is_hooked=is_hooked) for message in request.messages
    )
    return replace(request, messages=messages)


def _mark_message(message: Message, family: str, model: Model, *, is_hooked: bool) -> Message:
    if message.origin is not None and model.endpoint.family == family:
        message = replace(message, origin=make_origin(model))
    if message.role == "assistant":
        marked_items = (
            replace(part, wire=family) if type(part) is Opaque else part for part in message.parts
        )
        return replace(message, parts=tuple(marked_items))
    message = _name_file_holder(
        message, model.endpoint.endpoint_id if model.endpoint.family == family else family
    )
    if all(_is_plain(part) for part in message.parts):
        return message
    marked = (_mark_part(part, family, is_hooked=is_hooked) for part in message.parts)
    return replace(message, parts=tuple(part for part in marked if part is not None))


def _name_file_holder(message: Message, holder: str) -> Message:
    """The message with the holder of files that a client names by an id: a model elsewhere cannot read them."""

    def name(part: Any) -> Any:
        if isinstance(part, Media) and part.file_id and not part.endpoint_id:
            return replace(part, endpoint_id=holder)
        if isinstance(part, ToolResult) and any(map(_is_file, part.parts)):
            return replace(part, parts=tuple(map(name, part.parts)))
        return part

    has_files = any(_is_file(part) or isinstance(part, ToolResult) for part in message.parts)
    return replace(message, parts=tuple(map(name, message.parts))) if has_files else message


def _is_file(part: Part) -> bool:
    return isinstance(part, Media) and bool(part.file_id)


def _is_plain(part: Part) -> bool:
    inner = part.parts if isinstance(part, ToolResult) else ()
    return part.native is None and all(each.native is None for each in inner)


def _mark_part(part: Part, family: str, *, is_hooked: bool) -> Part | None:
    """The part as the client's; None for an item that no hook would see."""
    if not isinstance(part, Text | Media | ToolResult | Opaque) or _is_plain(part):
        return part
    is_hidden = is_hooked and part.native is not None and _has_text(parse_json(part.native))
    if isinstance(part, Opaque):
        return None if is_hidden else replace(part, wire=family)
    if is_hidden:
        part = replace(part, native=None)
    if isinstance(part, ToolResult):
        inner = (_mark_part(each, family, is_hooked=is_hooked) for each in part.parts)
        kept = tuple(each for each in inner if isinstance(each, Text | Media | Opaque))
        return replace(part, parts=kept, wire=family)
    return replace(part, wire=family) if part.native is not None else part


def _has_text(value: object) -> bool:
    """True if a value has a name or string that is more than a word of a wire format, or a number like an id."""
    if isinstance(value, dict):
        return any(map(_has_text, value)) or any(map(_has_text, value.values()))
    if isinstance(value, list):
        return any(map(_has_text, value))
    if isinstance(value, int | float):
        return abs(value) >= NUMBER_MAX
    return isinstance(value, str) and _WORD.fullmatch(value) is None


def is_readable_by_hooks(json: str) -> bool:
    """True if a member has no text that a hook would have to see."""
    return not _has_text(parse_json(json))


def list_members(messages: Iterable[Message]) -> dict[str, None]:
    """Names of the members that only the client's wire has, in order, each once; cache marks are left out."""
    found: dict[str, None] = {}
    for message in messages:
        for part in message.parts:
            found.update(dict.fromkeys(_name_members(part)))
    return found


def list_unsent_reasoning(messages: Iterable[Message], model: Model, family: str) -> tuple[str, ...]:
    """A note if reasoning in a conversation from elsewhere, which a client of this family knows, is not sent."""
    parts = [part for message in messages for part in message.parts if isinstance(part, Reasoning)]
    if parts and model.endpoint.family != family:
        return (OTHER_REASONING,)
    if model.endpoint.reasoning != "signed":
        return ()
    return (UNSIGNED,) if any(not part.signature for part in parts) else ()


def list_system_members(request: Request) -> dict[str, None]:
    """Names of members of the system prompt that are not carried: the instructions of a run are text."""
    return dict.fromkeys(
        f"system.{name.removeprefix('text.')}" for text in request.system for name in _name_members(text)
    )


def has_cache_marks(parts: Iterable[Part]) -> bool:
    """True if the client marked ends of cached prompts in members of these parts."""
    for part in parts:
        if part.native is not None and any(
            not CACHE_MARKS.isdisjoint(path) for path in list_paths(parse_json(part.native))
        ):
            return True
        if isinstance(part, ToolResult) and has_cache_marks(part.parts):
            return True
    return False


def _name_members(part: Part) -> Iterator[str]:
    if isinstance(part, Opaque):
        yield f"part {part.kind}"
    elif part.native is not None:
        kind = part.kind if isinstance(part, Media) else _KINDS[type(part)]
        for path in list_paths(parse_json(part.native)):
            bare = [name for name in path if name not in _FRAMES]
            if bare and CACHE_MARKS.isdisjoint(bare) and bare[0] not in _PLACES:
                yield ".".join(bare if path[0] == "message" else [kind, *bare])
    if isinstance(part, ToolResult):
        for inner in part.parts:
            for name in _name_members(inner):
                yield f"tool_result {name}"


def list_paths(value: Any, depth: int = NAMED_DEPTH) -> Iterator[tuple[str, ...]]:
    """Paths of the members of an object, down to a depth; the members of a list are its own."""
    if isinstance(value, dict) and value and depth:
        for name, inner in value.items():
            for path in list_paths(inner, depth - 1):
                yield (str(name), *path)
    else:
        yield ()


def describe_native(part: Part) -> str:
    """The members of a part as text by which two requests are compared; without cache marks, which move."""
    if part.native is None:
        return ""
    kept = _without_marks(parse_json(part.native))
    return repr(kept) if kept else ""


def _without_marks(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_marks(each) for name, each in sorted(value.items()) if name not in CACHE_MARKS}
    return [_without_marks(each) for each in value] if isinstance(value, list) else value
