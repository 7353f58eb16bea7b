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

from bridle.providers.wire.json import drop_nulls, dumps, repair_surrogates
from bridle.values.message import Part, Reasoning, Text, ToolCall

from .parts import Block, decode_part

_PATH = re.compile(r"""\.([^.\[\]]+)|\[(\d+)\]|\['((?:[^'\\]|\\.)*)'\]|\["((?:[^"\\]|\\.)*)"\]""")
_ESCAPED = re.compile(r"\\(.)")
_VALUE_MEMBERS = ("numberValue", "boolValue")

ArgumentPath = tuple[str | int, ...]


class PartialText:
    """What is said, or thought, without a signature: any number of pieces, joined once."""

    __slots__ = ("pieces", "thought")

    def __init__(self, *, thought: bool) -> None:
        self.thought = thought
        self.pieces: list[str] = []

    def build_part(self) -> Part:
        said = repair_surrogates("".join(self.pieces))
        return Reasoning(text=said) if self.thought else Text(text=said)


class PartialCall:
    """A call whose arguments arrive value by value."""

    def __init__(self, block: Block, place: int) -> None:
        self.place = place
        self.done = False
        self._block = block
        self._values: dict[ArgumentPath, Any] = {}
        self._open: dict[ArgumentPath, list[str]] = {}
        self.append(block)

    def append(self, block: Block) -> None:
        """A further piece; raises `ValueError` when it fits nowhere."""
        call = block["functionCall"]
        pieces = call.get("partialArgs") or []
        if not isinstance(pieces, list) or not all(isinstance(piece, dict) for piece in pieces):
            raise ValueError("pieces of arguments that are none")
        for piece in pieces:
            self._set_piece(_parse_path(piece.get("jsonPath")), piece)
        if block is not self._block:
            # A signature may come with any piece; it belongs to the call.
            self._block = {
                **drop_nulls(block),
                **self._block,
            }
        self.done = call.get("willContinue") is not True

    def build_part(self) -> ToolCall:
        given = self._block["functionCall"].get("args")
        root: Block = dict(given) if isinstance(given, dict) else {}
        for place, value in self._values.items():
            text = "".join(self._open[place]) if place in self._open else value
            _set_at_path(root, place, repair_surrogates(text) if isinstance(text, str) else text)
        written = dumps(root).decode()
        part = decode_part(self._block, written if self.done else written[:-1])
        assert isinstance(part, ToolCall)
        return part

    def _set_piece(self, place: ArgumentPath, piece: Block) -> None:
        if isinstance(said := piece.get("stringValue"), str):
            self._values.setdefault(place, "")
            self._open.setdefault(place, []).append(said)
        else:
            value = next((piece[name] for name in _VALUE_MEMBERS if piece.get(name) is not None), None)
            self._values[place] = value


EMPTY_REASONING_DROPPED = (
    "an empty thought without a signature was dropped: it holds nothing, and a part without data is refused"
)


class PartialGeminiReply:
    """The parts of a reply so far."""

    def __init__(self) -> None:
        self._parts: list[PartialText | PartialCall | Part] = []
        self._last: PartialText | None = None
        self._empty_thought = False
        self._dropped = False
        self.open: PartialCall | None = None

    @property
    def dropped(self) -> tuple[str, ...]:
        """What is not among the parts, and why."""
        return (EMPTY_REASONING_DROPPED,) if self._dropped or self._empty_thought else ()

    @property
    def count(self) -> int:
        return len(self._parts)

    @property
    def text(self) -> str:
        """The words shown so far."""
        pieces: list[str] = []
        for part in self._parts:
            if isinstance(part, PartialText) and not part.thought:
                pieces += part.pieces
            elif isinstance(part, Text):
                pieces.append(part.text)
        return repair_surrogates("".join(pieces))

    def append_text(self, said: str, *, thought: bool) -> None:
        last = self._last
        self._settle_empty_reasoning(joined=thought)
        if last is None or last.thought is not thought:
            last = self._last = PartialText(thought=thought)
            self._parts.append(last)
        last.pieces.append(said)

    def note_empty_reasoning(self) -> None:
        """Note a thought without words or signature; next to another thought it is a piece of that one."""
        self._empty_thought = self._last is None or not self._last.thought

    def _settle_empty_reasoning(self, *, joined: bool = False) -> None:
        self._dropped = self._dropped or (self._empty_thought and not joined)
        self._empty_thought = False

    def append_part(self, part: Part) -> None:
        """A part that is whole.  Words without anything beside them join those before."""
        if isinstance(part, Text) and part.native is None:
            if part.text:
                self.append_text(part.text, thought=False)
        elif isinstance(part, Reasoning) and part.native is None and not part.signature:
            if part.text:
                self.append_text(part.text, thought=True)
            else:
                self.note_empty_reasoning()
        else:
            self._settle_empty_reasoning()
            self._last = None
            self._parts.append(part)

    def append_call_piece(self, block: Block) -> ToolCall | None:
        """A piece of a call; the call, when this was its last one."""
        self._settle_empty_reasoning()
        if self.open is None or block["functionCall"].get("name"):
            self.open = PartialCall(block, len(self._parts))
            self._last = None
            self._parts.append(self.open)
        else:
            self.open.append(block)
        if not self.open.done:
            return None
        whole, place = self.open.build_part(), self.open.place
        self._parts[place], self.open = whole, None
        return whole

    def build_parts(self) -> Sequence[Part]:
        return [
            part.build_part() if isinstance(part, PartialText | PartialCall) else part for part in self._parts
        ]


def _parse_path(path: object) -> ArgumentPath:
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


def _set_at_path(root: Block, place: ArgumentPath, value: Any) -> None:
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
