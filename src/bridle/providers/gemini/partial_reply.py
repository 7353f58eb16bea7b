"""Builds the parts of a streamed Gemini reply.

Plain text arrives in pieces and becomes one text, however the pieces are spread over responses: that is why a
streamed reply equals the same reply in one body. A signed part is never joined with another, because its
signature covers that part alone; an empty part with a signature is kept.

A call arrives complete or (if a client asked for it) as values for paths inside its arguments. Such a call is
complete when the provider says so; until then its arguments are not valid JSON, so that they cannot be taken
for complete.
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
    """Text or reasoning without a signature: any number of pieces, joined once."""

    __slots__ = ("pieces", "thought")

    def __init__(self, *, thought: bool) -> None:
        self.thought = thought
        self.pieces: list[str] = []

    def build_part(self) -> Part:
        text = repair_surrogates("".join(self.pieces))
        return Reasoning(text=text) if self.thought else Text(text=text)


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
        """Add a further piece; raise `ValueError` if it is invalid."""
        call = block["functionCall"]
        pieces = call.get("partialArgs") or []
        if not isinstance(pieces, list) or not all(isinstance(piece, dict) for piece in pieces):
            raise ValueError("partialArgs is not a list of objects")
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
        if isinstance(text := piece.get("stringValue"), str):
            self._values.setdefault(place, "")
            self._open.setdefault(place, []).append(text)
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
        """Notices about content that was dropped."""
        return (EMPTY_REASONING_DROPPED,) if self._dropped or self._empty_thought else ()

    @property
    def count(self) -> int:
        return len(self._parts)

    @property
    def text(self) -> str:
        pieces: list[str] = []
        for part in self._parts:
            if isinstance(part, PartialText) and not part.thought:
                pieces += part.pieces
            elif isinstance(part, Text):
                pieces.append(part.text)
        return repair_surrogates("".join(pieces))

    def append_text(self, text: str, *, thought: bool) -> None:
        last = self._last
        self._settle_empty_reasoning(joined=thought)
        if last is None or last.thought is not thought:
            last = self._last = PartialText(thought=thought)
            self._parts.append(last)
        last.pieces.append(text)

    def note_empty_reasoning(self) -> None:
        """Record reasoning without text or signature; next to other reasoning it is a piece of that."""
        self._empty_thought = self._last is None or not self._last.thought

    def _settle_empty_reasoning(self, *, joined: bool = False) -> None:
        self._dropped = self._dropped or (self._empty_thought and not joined)
        self._empty_thought = False

    def append_part(self, part: Part) -> None:
        """Append a complete part. Text without native members is joined with the text before it."""
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
        """Add a piece of a call; return the call if this was its last piece."""
        self._settle_empty_reasoning()
        if self.open is None or block["functionCall"].get("name"):
            self.open = PartialCall(block, len(self._parts))
            self._last = None
            self._parts.append(self.open)
        else:
            self.open.append(block)
        if not self.open.done:
            return None
        call, place = self.open.build_part(), self.open.place
        self._parts[place], self.open = call, None
        return call

    def build_parts(self) -> Sequence[Part]:
        return [
            part.build_part() if isinstance(part, PartialText | PartialCall) else part for part in self._parts
        ]


def _parse_path(path: object) -> ArgumentPath:
    """Parse a path inside the arguments in the provider's notation: `$.orders[0]['full name']`."""
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
        raise ValueError(f"invalid path inside arguments: {path!r}")
    return tuple(steps)


def _set_at_path(root: Block, place: ArgumentPath, value: Any) -> None:
    """Set a value at a path. Lists grow one element at a time: an index far beyond the end is refused."""
    container: Any = root
    for at, step in enumerate(place):
        last = at == len(place) - 1
        fresh: Any = value if last else [] if isinstance(place[at + 1], int) else {}
        if isinstance(step, int) and isinstance(container, list) and step <= len(container):
            if step == len(container):
                container.append(fresh)
            elif last:
                container[step] = value
        elif isinstance(step, str) and isinstance(container, dict):
            if last:
                container[step] = value
            else:
                container.setdefault(step, fresh)
        else:
            raise ValueError(f"no such path inside arguments: {place!r}")
        container = container[step]
