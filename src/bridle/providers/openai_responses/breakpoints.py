"""Encodes and decodes cache breakpoints of the Responses wire.

A breakpoint is set on a piece of content that is not the model's; neither the tools nor the instructions can
carry one. So instructions with a breakpoint are sent as the first message, of the developer, which is what
the provider turns them into anyway.
"""

from collections.abc import Collection, Sequence
from typing import Any, cast, get_args

from bridle.providers.openai.prompt_cache import (
    BREAKPOINT,
    COMPARISON_ID,
    EXPLICIT_BREAKPOINT,
    EXTENDED_TTL,
    KEY,
    OPTIONS,
    RETENTION,
)
from bridle.providers.wire.json import repair_surrogates, text_or_empty
from bridle.values.message import Text
from bridle.values.model import Ttl
from bridle.values.request import Breakpoint

from .content import Block, expand_content
from .parts import item_type

DEVELOPER_ROLE = "developer"
DEFAULT_TTL: Ttl = "30m"
_PLAIN_ITEMS = {"content": {"type", "role", "content"}, "output": {"type", "call_id", "output"}}
"""Items that are written with their content last, and its member."""


def encode_marked_instructions(system: Sequence[Text], marked: Collection[int]) -> Block:
    """Encode instructions as a message; `marked` are the indexes of texts followed by a breakpoint."""
    pieces: list[Block] = []
    for at, text in enumerate(system):
        if text.text.strip():
            pieces.append({"type": "input_text", "text": repair_surrogates(text.text)})
        if at in marked and pieces:
            pieces[-1][BREAKPOINT] = EXPLICIT_BREAKPOINT
    return {"type": "message", "role": DEVELOPER_ROLE, "content": pieces}


class BreakpointReader:
    """Reads the breakpoints and cache settings of a request."""

    def __init__(self, extras: Block) -> None:
        """Read the cache settings, removing from the extras what `Request` models."""
        self.marks: list[Breakpoint] = []
        self.key = text_or_empty(extras.pop(KEY)) if isinstance(extras.get(KEY), str) else ""
        options = extras.get(OPTIONS)
        plain = isinstance(options, dict) and options.keys() <= {"ttl", COMPARISON_ID}
        given: Any = options if plain else {}
        self.compared_to, self._ttl = text_or_empty(given.get(COMPARISON_ID)), _decode_ttl(given.get("ttl"))
        self._inherited: Ttl = self._ttl or DEFAULT_TTL
        if plain and (self._ttl is not None or "ttl" not in given):
            del extras[OPTIONS]
        self._extras = extras

    def split_system(self, items: list[Block], instructions: str) -> tuple[tuple[str, ...], list[Block]]:
        """Split off the instructions if they are a first message with a breakpoint."""
        given = (instructions,) if instructions.strip() else ()
        first = items[0] if items else {}
        pieces = expand_content(first.get("content"), "input_text") or []
        is_plain = first.keys() <= {"type", "role", "content"} and item_type(first) == "message"
        if instructions or not is_plain or first.get("role") != DEVELOPER_ROLE or not pieces:
            return given, items
        if not all(map(self._is_plain_text, pieces)) or not self._has_plain_breakpoint(pieces[-1]):
            return given, items
        last = len(pieces) - 1
        for at, piece in enumerate(pieces):
            if self._has_plain_breakpoint(piece):
                block = -1 if at == last else at
                self.marks.append(Breakpoint(position="system", block=block, ttl=self._inherited))
        return tuple(text_or_empty(piece.get("text")) for piece in pieces), items[1:]

    def _is_plain_text(self, piece: Block) -> bool:
        marked = BREAKPOINT not in piece or self._has_plain_breakpoint(piece)
        return (
            piece.keys() <= {"type", "text", BREAKPOINT}
            and bool(text_or_empty(piece.get("text")).strip())
            and marked
        )

    def remove_breakpoint(self, item: Block, place: int) -> Block:
        """Remove the breakpoint at the end of an item and record it for its message."""
        member = next((name for name, members in _PLAIN_ITEMS.items() if item.keys() <= members), "")
        content = item.get(member)
        pieces = content if isinstance(content, list) and content else [{}]
        if (
            not isinstance(pieces[-1], dict)
            or not self._has_plain_breakpoint(pieces[-1])
            or item.get("role") == "assistant"
        ):
            return item
        self.marks.append(Breakpoint(position="message", message=place, ttl=self._inherited))
        bare = {name: value for name, value in pieces[-1].items() if name != BREAKPOINT}
        return {**item, member: [*pieces[:-1], bare]}

    def all_breakpoints(self) -> tuple[Breakpoint, ...]:
        if self._ttl is not None:
            return (*self.marks, Breakpoint(position="end", ttl=self._ttl))
        if self._is_extended:
            del self._extras[RETENTION]
            return (Breakpoint(position="end", ttl=EXTENDED_TTL),)
        return tuple(self.marks)

    @property
    def _is_extended(self) -> bool:
        """True if only the retention field of older models is used."""
        newer = self.marks or self.compared_to or OPTIONS in self._extras
        return self._extras.get(RETENTION) == EXTENDED_TTL and not newer

    def required_abilities(self) -> Block:
        """Return the abilities that a model needs for these settings."""
        is_used = bool(self.marks or self.compared_to or self._ttl)
        return {"cache": "points", "cache_marks": 4} if is_used else {}

    def _has_plain_breakpoint(self, piece: Block) -> bool:
        point = piece.get(BREAKPOINT)
        return bool(point == EXPLICIT_BREAKPOINT)


def _decode_ttl(value: object) -> Ttl | None:
    return cast("Ttl", value) if value in get_args(Ttl) else None
