"""A reply of Gemini as it grows, part by part.

Plain words come in pieces and are one text, whether the pieces came in one response or in many: that
is why a reply told in pieces equals the same reply told whole.  A signed part is never joined with
another, because its signature is for that part alone; an empty one that carries a signature is kept.

A call comes whole, or (where a client asked for it) as values for places inside its arguments.  Such
a call is only finished when the provider says so; until then its arguments are no valid JSON, so that
nobody can take them for complete.
"""

import re
from collections.abc import Sequence
from typing import Any

from ..values.parts import Part, Reasoning, Text, ToolCall
from ._gemini_parts import Block, part_of
from ._json import dumps, mended

_PATH = re.compile(r"""\.([^.\[\]]+)|\[(\d+)\]|\['((?:[^'\\]|\\.)*)'\]|\["((?:[^"\\]|\\.)*)"\]""")
_ESCAPED = re.compile(r"\\(.)")
_VALUES = ("numberValue", "boolValue")

Place = tuple[str | int, ...]


class Words:
    """What is said, or thought, without a signature: any number of pieces, joined once."""

    __slots__ = ("pieces", "thought")

    def __init__(self, *, thought: bool) -> None:
        self.thought = thought
        self.pieces: list[str] = []

    def part(self) -> Part:
        said = mended("".join(self.pieces))
        return Reasoning(text=said) if self.thought else Text(text=said)


class CallInPieces:
    """A call whose arguments arrive value by value."""

    def __init__(self, block: Block, place: int) -> None:
        self.place = place
        self.done = False
        self._block = block
        self._values: dict[Place, Any] = {}
        self._open: dict[Place, list[str]] = {}
        self.add(block)

    def add(self, block: Block) -> None:
        """A further piece; raises `ValueError` when it fits nowhere."""
        call = block["functionCall"]
        pieces = call.get("partialArgs") or []
        if not isinstance(pieces, list) or not all(isinstance(piece, dict) for piece in pieces):
            raise ValueError("pieces of arguments that are none")
        for piece in pieces:
            self._put(_place(piece.get("jsonPath")), piece)
        if block is not self._block:
            # A signature may come with any piece; it belongs to the call.
            self._block = {
                **{name: value for name, value in block.items() if value is not None},
                **self._block,
            }
        self.done = call.get("willContinue") is not True

    def part(self) -> ToolCall:
        given = self._block["functionCall"].get("args")
        root: Block = dict(given) if isinstance(given, dict) else {}
        for place, value in self._values.items():
            text = "".join(self._open[place]) if place in self._open else value
            _set(root, place, mended(text) if isinstance(text, str) else text)
        written = dumps(root).decode()
        part = part_of(self._block, written if self.done else written[:-1])
        assert isinstance(part, ToolCall)
        return part

    def _put(self, place: Place, piece: Block) -> None:
        if isinstance(said := piece.get("stringValue"), str):
            self._values.setdefault(place, "")
            self._open.setdefault(place, []).append(said)
        else:
            value = next((piece[name] for name in _VALUES if piece.get(name) is not None), None)
            self._values[place] = value


EMPTY_THOUGHT = (
    "an empty thought without a signature was dropped: it holds nothing, and a part without data is refused"
)


class Growing:
    """The parts of a reply so far."""

    def __init__(self) -> None:
        self._parts: list[Words | CallInPieces | Part] = []
        self._last: Words | None = None
        self._empty_thought = False
        self._dropped = False
        self.open: CallInPieces | None = None

    @property
    def dropped(self) -> tuple[str, ...]:
        """What is not among the parts, and why."""
        return (EMPTY_THOUGHT,) if self._dropped or self._empty_thought else ()

    @property
    def count(self) -> int:
        return len(self._parts)

    @property
    def said(self) -> str:
        """The words shown so far."""
        pieces: list[str] = []
        for part in self._parts:
            if isinstance(part, Words) and not part.thought:
                pieces += part.pieces
            elif isinstance(part, Text):
                pieces.append(part.text)
        return mended("".join(pieces))

    def say(self, said: str, *, thought: bool) -> None:
        last = self._last
        self._end_empty_thought(joined=thought)
        if last is None or last.thought is not thought:
            last = self._last = Words(thought=thought)
            self._parts.append(last)
        last.pieces.append(said)

    def pass_empty_thought(self) -> None:
        """Note a thought without words or signature; next to another thought it is a piece of that one."""
        self._empty_thought = self._last is None or not self._last.thought

    def _end_empty_thought(self, *, joined: bool = False) -> None:
        self._dropped = self._dropped or (self._empty_thought and not joined)
        self._empty_thought = False

    def add(self, part: Part) -> None:
        """A part that is whole.  Words without anything beside them join those before."""
        if isinstance(part, Text) and part.native is None:
            if part.text:
                self.say(part.text, thought=False)
        elif isinstance(part, Reasoning) and part.native is None and not part.signature:
            if part.text:
                self.say(part.text, thought=True)
            else:
                self.pass_empty_thought()
        else:
            self._end_empty_thought()
            self._last = None
            self._parts.append(part)

    def call(self, block: Block) -> ToolCall | None:
        """A piece of a call; the call, when this was its last one."""
        self._end_empty_thought()
        if self.open is None or block["functionCall"].get("name"):
            self.open = CallInPieces(block, len(self._parts))
            self._last = None
            self._parts.append(self.open)
        else:
            self.open.add(block)
        if not self.open.done:
            return None
        whole, place = self.open.part(), self.open.place
        self._parts[place], self.open = whole, None
        return whole

    def parts(self) -> Sequence[Part]:
        return [part.part() if isinstance(part, Words | CallInPieces) else part for part in self._parts]


def _place(path: object) -> Place:
    """A place inside the arguments, as the provider writes it: `$.orders[0]['full name']`."""
    text = path if isinstance(path, str) else ""
    steps: list[str | int] = []
    at = 1
    while text.startswith("$") and at < len(text) and (found := _PATH.match(text, at)):
        name, index, single, double = found.groups()
        quoted = single if single is not None else double
        if index is not None:
            steps.append(int(index))
        else:
            steps.append(_ESCAPED.sub(r"\1", quoted) if quoted is not None else name)
        at = found.end()
    if not steps or at < len(text) or isinstance(steps[0], int):
        raise ValueError(f"no place inside arguments: {path!r}")
    return tuple(steps)


def _set(root: Block, place: Place, value: Any) -> None:
    """Put a value where it belongs.  Lists grow one by one: a far place in one is a mistake, or an attack."""
    inside: Any = root
    for at, step in enumerate(place):
        last = at == len(place) - 1
        fresh: Any = value if last else [] if isinstance(place[at + 1], int) else {}
        if isinstance(step, int) and isinstance(inside, list) and step <= len(inside):
            if step == len(inside):
                inside.append(fresh)
            elif last:
                inside[step] = value
        elif isinstance(step, str) and isinstance(inside, dict):
            if last:
                inside[step] = value
            else:
                inside.setdefault(step, fresh)
        else:
            raise ValueError(f"no such place inside arguments: {place!r}")
        inside = inside[step]
