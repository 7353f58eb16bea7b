"""Breakpoints of the Responses wire: where they can stand, and what a request that was read says of them.

A breakpoint stands on a piece of content of somebody who is not the model; neither the tools nor the
instructions have a place for one.  So instructions that are to be marked are the first message, said by the
developer, which is what the provider makes of them anyway.
"""

from collections.abc import Collection, Sequence
from typing import Any, cast, get_args

from ..values.model import Ttl
from ..values.parts import Text
from ..values.request import Mark
from ._json import mended
from ._openai_prompts import BREAKPOINT, COMPARED, EXTENDED, KEY, OPTIONS, POINT, RETENTION
from ._openai_responses_content import Block, said, word
from ._openai_responses_items import kind_of

DEVELOPER = "developer"
TTL_DEFAULT: Ttl = "30m"
_PLAIN_ITEMS = {"content": {"type", "role", "content"}, "output": {"type", "call_id", "output"}}
"""Items that are written with their content last, and where it is."""


def marked_message(system: Sequence[Text], marked: Collection[int]) -> Block:
    """`marked` are the numbers of the texts that a breakpoint ends."""
    pieces: list[Block] = []
    for at, text in enumerate(system):
        if text.text.strip():
            pieces.append({"type": "input_text", "text": mended(text.text)})
        if at in marked and pieces:
            pieces[-1][BREAKPOINT] = POINT
    return {"type": "message", "role": DEVELOPER, "content": pieces}


class Points:
    """The other way: what a request that was read says of all this."""

    def __init__(self, extras: Block) -> None:
        """Takes out of the extras what a request has a place for."""
        self.marks: list[Mark] = []
        self.key = word(extras.pop(KEY)) if isinstance(extras.get(KEY), str) else ""
        options = extras.get(OPTIONS)
        plain = isinstance(options, dict) and options.keys() <= {"ttl", COMPARED}
        given: Any = options if plain else {}
        self.compared_to, self._ttl = word(given.get(COMPARED)), _ttl(given.get("ttl"))
        self._inherited: Ttl = self._ttl or TTL_DEFAULT
        if plain and (self._ttl is not None or "ttl" not in given):
            del extras[OPTIONS]
        self._extras = extras

    def system(self, items: list[Block], instructions: str) -> tuple[tuple[str, ...], list[Block]]:
        """The instructions, where they are the first message and marked, and the items without them."""
        told = (instructions,) if instructions.strip() else ()
        first = items[0] if items else {}
        pieces = said(first.get("content"), "input_text") or []
        whole = first.keys() <= {"type", "role", "content"} and kind_of(first) == "message"
        if instructions or not whole or first.get("role") != DEVELOPER or not pieces:
            return told, items
        if not all(map(self._worded, pieces)) or not self._plain(pieces[-1]):
            return told, items
        last = len(pieces) - 1
        for at, piece in enumerate(pieces):
            if self._plain(piece):
                block = -1 if at == last else at
                self.marks.append(Mark(place="system", block=block, ttl=self._inherited))
        return tuple(word(piece.get("text")) for piece in pieces), items[1:]

    def _worded(self, piece: Block) -> bool:
        marked = BREAKPOINT not in piece or self._plain(piece)
        return (
            piece.keys() <= {"type", "text", BREAKPOINT} and bool(word(piece.get("text")).strip()) and marked
        )

    def unmarked(self, item: Block, place: int) -> Block:
        """The item without the mark on its end, which is remembered as that of the message."""
        inside = next((name for name, members in _PLAIN_ITEMS.items() if item.keys() <= members), "")
        content = item.get(inside)
        pieces = content if isinstance(content, list) and content else [{}]
        if not isinstance(pieces[-1], dict) or not self._plain(pieces[-1]) or item.get("role") == "assistant":
            return item
        self.marks.append(Mark(place="message", message=place, ttl=self._inherited))
        bare = {name: value for name, value in pieces[-1].items() if name != BREAKPOINT}
        return {**item, inside: [*pieces[:-1], bare]}

    def every_mark(self) -> tuple[Mark, ...]:
        """In the order of the prompt."""
        if self._ttl is not None:
            return (*self.marks, Mark(place="end", ttl=self._ttl))
        if self._extended:
            del self._extras[RETENTION]
            return (Mark(place="end", ttl=EXTENDED),)
        return tuple(self.marks)

    @property
    def _extended(self) -> bool:
        """It is said in the older models' way, and nothing in the newer ones'."""
        newer = self.marks or self.compared_to or OPTIONS in self._extras
        return self._extras.get(RETENTION) == EXTENDED and not newer

    def abilities(self) -> Block:
        """What a model must be able to, that is asked for this."""
        asked = bool(self.marks or self.compared_to or self._ttl)
        return {"cache": "points", "cache_marks": 4} if asked else {}

    def _plain(self, piece: Block) -> bool:
        point = piece.get(BREAKPOINT)
        return bool(point == POINT)


def _ttl(value: object) -> Ttl | None:
    return cast("Ttl", value) if value in get_args(Ttl) else None
