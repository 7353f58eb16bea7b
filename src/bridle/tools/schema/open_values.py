"""JSON values that are still arriving: a text, an array or an object whose end has not been read.

A loader that has to choose between several types looks at the class of the value: what an open value is so far may
belong to another type than what it becomes.
"""

from typing import Any

from bridle.ports.tool import Json


class OpenText(str):
    __slots__ = ()


class OpenArray(list[Any]):
    __slots__ = ()


class OpenObject(dict[str, Any]):
    __slots__ = ()


OPEN_TYPES = (OpenText, OpenArray, OpenObject)


def mark_open(value: Json, depth: int, *, in_text: bool) -> Json:
    """The value with its open parts marked: `depth` containers, each the last part of the one before, and a text."""
    if depth and isinstance(value, dict):
        last = next(reversed(value), None)
        inner = {} if last is None else {last: mark_open(value[last], depth - 1, in_text=in_text)}
        return OpenObject({**value, **inner})
    if depth and isinstance(value, list):
        return OpenArray([*value[:-1], *(mark_open(item, depth - 1, in_text=in_text) for item in value[-1:])])
    return OpenText(value) if in_text and not depth and isinstance(value, str) else value


def remove_marks(value: Any) -> Any:
    """The value in plain containers."""
    if isinstance(value, OpenObject):
        return {name: remove_marks(held) for name, held in value.items()}
    if isinstance(value, OpenArray):
        return [remove_marks(held) for held in value]
    return str.__str__(value) if isinstance(value, OpenText) else value
