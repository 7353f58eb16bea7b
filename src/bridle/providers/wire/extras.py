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


def merge_members(below: Fields, above: Fields) -> Fields:
    return {**below, **above}


def add_extra(
    fields: Fields,
    extra: Extra,
    reserved: frozenset[str],
    merge: Callable[[Fields, Fields], Fields] = merge_members,
) -> None:
    """Add an extra as it is written; to a field that is an object, only what that object lacks."""
    value, present = parse_extra(extra, reserved), fields.get(extra.name)
    if present is None:
        fields[extra.name] = raw_json(extra.json)
    elif isinstance(present, dict) and isinstance(value, dict):
        fields[extra.name] = merge(value, present)
    else:
        raise conflicting_extra(extra.name)
