"""Signs by which a list of messages shows whose form it has.

People pass the list that their old library kept, and name the vendor they used.  The two can differ: one
vendor's library may keep the form of another wire.  A family's `Signs` are members that only its lists have.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from bridle.values.base import Value


class MessageForm(Value):
    members: frozenset[str] = frozenset()
    """Members of an item."""
    roles: frozenset[str] = frozenset()
    types: frozenset[str] = frozenset()
    """The `type` of an item."""
    content_types: frozenset[str] = frozenset()
    """The `type` of a piece of an item's `content`."""
    content_members: frozenset[str] = frozenset()
    """Members of a piece of content that has no `type`."""

    def matches(self, item: object) -> bool:
        """Whether the item has a sign."""
        if not isinstance(item, Mapping):
            return False
        pieces: Any = item.get("content")
        pieces = pieces if isinstance(pieces, Sequence) and not isinstance(pieces, str) else ()
        return (
            not self.members.isdisjoint(item)
            or item.get("role") in self.roles
            or item.get("type") in self.types
            or any(self._matches_content(piece) for piece in pieces)
        )

    def _matches_content(self, piece: object) -> bool:
        if not isinstance(piece, Mapping):
            return False
        if "type" in piece:
            return piece["type"] in self.content_types
        return not self.content_members.isdisjoint(piece)
