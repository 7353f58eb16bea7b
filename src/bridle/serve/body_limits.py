"""Limits how many items the body of a request has, before any of them is read.

A body of a few megabytes can hold a million tiny messages, and the work on them blocks every other client of the
server.  The items of the lists of a conversation are counted without building them.  So are the items of all lists and
objects at any depth, whatever their fields are called: results inside parts, calls of a message, declarations.
"""

import re

import msgspec

from .errors import ServeError

LIST_FIELDS = ("messages", "input", "contents", "tools", "system", "parts", "content", "history")
"""Fields of all wires and of the API that hold the lists of a conversation."""
MESSAGES_MAX = 20_000
"""Items of one list of a request: messages, tools."""
PARTS_MAX = 30_000
"""Items of the lists inside those, together."""
LISTED_MAX = MESSAGES_MAX + PARTS_MAX
"""Objects that are items of a list, at any depth."""
VALUES_MAX = 500_000
"""Fields of objects and items of lists, at any depth."""

_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[\[,][ \t\r\n]*+(\{?)()|\{()', re.DOTALL)
"""A whole text, or the start of an item or of a field; group 1 is the start of an object in a list."""
# guard: part-count-pattern
_OBJECT_START = re.compile(rb"[ \t\r\n]*\{")
_OBJECT: msgspec.json.Decoder[dict[str, msgspec.Raw]] = msgspec.json.Decoder(dict[str, msgspec.Raw])
_LIST: msgspec.json.Decoder[list[msgspec.Raw]] = msgspec.json.Decoder(list[msgspec.Raw])


def check_body_items(body: bytes) -> None:
    """Raise `ServeError` if a list in the body has too many items; a body that is not JSON is left to its reader."""
    parts = 0
    for name, items in _read_lists(body):
        # guard: message-count-limit
        if len(items) > MESSAGES_MAX:
            raise _too_many(f"`{name}` has {len(items):,} items; the limit is {MESSAGES_MAX:,}")
        for item in items:
            parts += sum(len(inner) for _, inner in _read_lists(item))
        if parts > PARTS_MAX:
            raise _too_many(f"`{name}` has more than {PARTS_MAX:,} parts")
    _check_values(body)


def _check_values(body: bytes) -> None:
    """Count without decoding; counting ends above a limit."""
    if body.count(b"{") + body.count(b"[") + body.count(b",") <= LISTED_MAX:
        return
    listed = values = 0
    for token in _TOKEN.finditer(body):
        if token.lastindex is None:  # a text
            continue
        values += 1
        listed += bool(token[1])
        # guard: value-count-limit
        if listed > LISTED_MAX or values > VALUES_MAX:
            raise _too_many(
                f"at all levels, its lists hold more than {LISTED_MAX:,} objects, or it has more than"
                f" {VALUES_MAX:,} values"
            )


def _read_lists(data: bytes | msgspec.Raw) -> list[tuple[str, list[msgspec.Raw]]]:
    """The lists of an object, by field; empty for anything else."""
    if _OBJECT_START.match(memoryview(data)) is None:
        return []
    try:
        fields = _OBJECT.decode(data)
        return [
            (name, _LIST.decode(held))
            for name in LIST_FIELDS
            if (held := fields.get(name)) is not None and bytes(memoryview(held)[:1]) == b"["
        ]
    except (msgspec.MsgspecError, RecursionError):
        return []


def _too_many(problem: str) -> ServeError:
    return ServeError(413, "too_many_items", f"the request has too many items: {problem}")
