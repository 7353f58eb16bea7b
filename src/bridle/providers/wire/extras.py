"""Extras: fields of a request that go out as the caller wrote them. They add to a request and never change it."""

from collections.abc import Callable
from typing import Any

import msgspec

from bridle.values.errors import MisuseError
from bridle.values.request import Extra, ToolSpec

from .json import raw_json

Fields = dict[str, Any]


def parse_extra(
    extra: Extra,
    reserved: frozenset[str] = frozenset(),
    parse: Callable[[str], Any] = msgspec.json.decode,
) -> Any:
    """The extra's value; `MisuseError` for a reserved field and for text that is not JSON."""
    if extra.name in reserved:
        raise MisuseError(f"extra {extra.name!r} would replace part of the request: set it on the request")
    try:
        return parse(extra.json)
    except ValueError as error:
        raise MisuseError(f"extra {extra.name!r} holds no JSON ({error}): correct it") from None


def describe_hidden_tool(spec: ToolSpec) -> str:
    return (
        f"the hosted tool {spec.name!r} comes from a log, which does not hold its values; write it out again"
    )


def conflicting_extra(name: str) -> MisuseError:
    return MisuseError(f"extra {name!r} is set by the request already: remove one of the two")


def add_extra(fields: Fields, extra: Extra, reserved: frozenset[str]) -> None:
    """Add an extra as it is written; to a field that is an object, the members of its own."""
    value, present = parse_extra(extra, reserved), fields.get(extra.name)
    fields[extra.name] = raw_json(extra.json) if present is None else merge_extra(present, value, extra.name)


def merge_extra(present: Any, more: Any, name: str) -> Any:
    """A field of the request with the members that an extra adds to it.

    A member that both have with different values is refused: one of the two would not be sent.
    """
    if isinstance(present, dict) and isinstance(more, dict):
        both = dict(present)
        for inner, value in more.items():
            both[inner] = merge_extra(both[inner], value, f"{name}.{inner}") if inner in both else value
        return both
    if is_same_json(present, more):
        return present
    raise conflicting_extra(name)


def is_same_json(one: Any, other: Any) -> bool:
    """Whether two values are the same JSON; `1` and `true` are not."""

    def normalize(value: Any) -> bytes:
        plain = msgspec.json.decode(msgspec.json.encode(value))  # members that are JSON text already
        return msgspec.json.encode(plain, order="sorted")

    return normalize(one) == normalize(other)
