"""Breakpoints of the Responses wire: where they can stand, and what a request that was read says of them.

A breakpoint stands on a piece of content of somebody who is not the model; neither the tools nor the
instructions have a place for one.  So instructions that are to be marked are the first message, said by the
developer, which is what the provider makes of them anyway.
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
"""Items that are written with their content last, and where it is."""


def encode_marked_instructions(system: Sequence[Text], marked: Collection[int]) -> Block:
    """`marked` are the numbers of the texts that a breakpoint ends."""
    pieces: list[Block] = []
    for at, text in enumerate(system):
        if text.text.strip():
            pieces.append({"type": "input_text", "text": repair_surrogates(text.text)})
        if at in marked and pieces:
            pieces[-1][BREAKPOINT] = EXPLICIT_BREAKPOINT
    return {"type": "message", "role": DEVELOPER_ROLE, "content": pieces}


class BreakpointReader:
    """The other way: what a request that was read says of all this."""

    def __init__(self, extras: Block) -> None:
        """Takes out of the extras what a request has a place for."""
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
        """The instructions, where they are the first message and marked, and the items without them."""
        told = (instructions,) if instructions.strip() else ()
        first = items[0] if items else {}
        pieces = expand_content(first.get("content"), "input_text") or []
        whole = first.keys() <= {"type", "role", "content"} and item_type(first) == "message"
        if instructions or not whole or first.get("role") != DEVELOPER_ROLE or not pieces:
            return told, items
        if not all(map(self._is_plain_text, pieces)) or not self._has_plain_breakpoint(pieces[-1]):
            return told, items
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
        """The item without the mark on its end, which is remembered as that of the message."""
        inside = next((name for name, members in _PLAIN_ITEMS.items() if item.keys() <= members), "")
        content = item.get(inside)
        pieces = content if isinstance(content, list) and content else [{}]
        if (
            not isinstance(pieces[-1], dict)
            or not self._has_plain_breakpoint(pieces[-1])
            or item.get("role") == "assistant"
        ):
            return item
        self.marks.append(Breakpoint(position="message", message=place, ttl=self._inherited))
        bare = {name: value for name, value in pieces[-1].items() if name != BREAKPOINT}
        return {**item, inside: [*pieces[:-1], bare]}

    def all_breakpoints(self) -> tuple[Breakpoint, ...]:
        """In the order of the prompt."""
        if self._ttl is not None:
            return (*self.marks, Breakpoint(position="end", ttl=self._ttl))
        if self._is_extended:
            del self._extras[RETENTION]
            return (Breakpoint(position="end", ttl=EXTENDED_TTL),)
        return tuple(self.marks)

    @property
    def _is_extended(self) -> bool:
        """It is said in the older models' way, and nothing in the newer ones'."""
        newer = self.marks or self.compared_to or OPTIONS in self._extras
        return self._extras.get(RETENTION) == EXTENDED_TTL and not newer

    def required_abilities(self) -> Block:
        """What a model must be able to, that is asked for this."""
        asked = bool(self.marks or self.compared_to or self._ttl)
        return {"cache": "points", "cache_marks": 4} if asked else {}

    def _has_plain_breakpoint(self, piece: Block) -> bool:
        point = piece.get(BREAKPOINT)
        return bool(point == EXPLICIT_BREAKPOINT)


def _decode_ttl(value: object) -> Ttl | None:
    return cast("Ttl", value) if value in get_args(Ttl) else None
