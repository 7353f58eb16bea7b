"""Recognises the wire family of a list of messages by members that only its messages have.

Users pass the message list of another library and name the vendor they used. The two can differ: one vendor's
library may keep messages in the form of another wire.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from bridle.values.base import Value

from .json import text_or_empty


class MessageForm(Value, kw_only=True):
    members: frozenset[str] = frozenset()
    roles: frozenset[str] = frozenset()
    types: frozenset[str] = frozenset()
    content_types: frozenset[str] = frozenset()
    """Values of `type` of a piece of `content`."""
    content_members: frozenset[str] = frozenset()
    """Members of a piece of content without `type`."""

    def matches(self, item: object) -> bool:
        """Return True if the item has one of these features."""
        if not isinstance(item, Mapping):
            return False
        pieces: Any = item.get("content")
        pieces = pieces if isinstance(pieces, Sequence) and not isinstance(pieces, str) else ()
        return (
            not self.members.isdisjoint(item)
            or text_or_empty(item.get("role")) in self.roles
            or text_or_empty(item.get("type")) in self.types
            or any(self._matches_content(piece) for piece in pieces)
        )

    def _matches_content(self, piece: object) -> bool:
        if not isinstance(piece, Mapping):
            return False
        if "type" in piece:
            return text_or_empty(piece["type"]) in self.content_types
        return not self.content_members.isdisjoint(piece)
