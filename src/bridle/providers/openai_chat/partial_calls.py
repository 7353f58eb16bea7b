"""Assembles the calls of a streamed reply, from servers that identify them differently.

By the protocol each piece has the index of its call, and the first one its id and name. In practice the index
is missing or always 0, the id is missing, empty, shared or repeated, the name comes with every piece, and
complete calls come at once or twice. One rule assigns a piece to its call: a piece that can only be a new
call starts one (an unknown index or id, a name after complete arguments), and any other piece continues the
call it was last about.

No character is scanned twice, however a server splits its pieces.
"""

import re
from typing import Any

from bridle.providers.wire.json import dumps, parse_integer, repair_surrogates, text_or_empty

from .content import Block

_STRING_TOKEN = re.compile(r'["\\]')
_STRUCTURE_TOKEN = re.compile(r'["\[\]{}]')
_EMPTY_OBJECT = "{}"


class PartialChatCall:
    def __init__(self, place: int) -> None:
        self.place = place
        self.id = self.name = ""
        self.is_custom = False
        """A call of a free-text tool: its text is not JSON, so nothing in it shows that it is complete."""
        self.is_followed = False
        """The name was repeated after complete arguments: the next piece belongs to another call."""
        self.pieces: list[str] = []
        self.members: Block = {}
        self.rest: Block = {}
        self._scanned = self._depth = self._size = 0
        self._in_string = self._escaped = self._opened = False

    @property
    def arguments(self) -> str:
        return "".join(self.pieces)

    @property
    def is_complete(self) -> bool:
        """True if all brackets of the arguments so far are closed."""
        if self.is_custom:
            return False
        for piece in self.pieces[self._scanned :]:
            self._track_brackets(piece)
        self._scanned = len(self.pieces)
        return self._opened and self._depth <= 0 and not self._in_string

    def append(self, piece: str) -> None:
        if self.pieces == [_EMPTY_OBJECT] and piece.strip() and not self.is_custom:
            self.restart()  # some servers announce every call with an empty object
        self.pieces.append(piece)
        self._size += len(piece)

    def has_arguments(self, text: str) -> bool:
        return len(text) == self._size and text == self.arguments

    def restart(self) -> None:
        self.pieces.clear()
        self._scanned = self._depth = self._size = 0
        self._in_string = self._escaped = self._opened = False

    def build_call(self) -> Block:
        if self.is_custom:
            return {
                **self.members,
                "id": self.id,
                "custom": {**self.rest, "name": self.name, "input": self.arguments},
            }
        function = {**self.rest, "name": self.name, "arguments": self.arguments}
        return {**self.members, "id": self.id, "function": function}

    def _track_brackets(self, piece: str) -> None:
        at = 0
        if self._escaped and piece:
            at, self._escaped = 1, False
        while (
            found := (_STRING_TOKEN if self._in_string else _STRUCTURE_TOKEN).search(piece, at)
        ) is not None:
            symbol, at = found.group(), found.end()
            if symbol == "\\":
                self._escaped = at == len(piece)
                at += 1
            elif symbol == '"':
                self._in_string = not self._in_string
            else:
                self._depth += 1 if symbol in "{[" else -1
                self._opened = True


class PartialChatCalls:
    def __init__(self) -> None:
        self.calls: list[PartialChatCall] = []
        self._by_index: dict[int, PartialChatCall] = {}
        self._by_id: dict[str, PartialChatCall] = {}

    def find_by_index(self, index: int) -> PartialChatCall | None:
        """Return the call that a piece with only this index belongs to."""
        call = self._by_index.get(index)
        return None if call is None or call.is_followed else call

    def apply_pieces(self, pieces: list[Any]) -> list[tuple[PartialChatCall, str]]:
        """Apply pieces; return the affected calls with the arguments each received."""
        updated: list[tuple[PartialChatCall, str]] = []
        touched: set[int] = set()
        for piece in pieces:
            if isinstance(piece, dict):
                call, text = self._apply_piece(piece, touched)
                touched.add(call.place)
                updated.append((call, text))
        return updated

    def _apply_piece(self, piece: Block, touched: set[int]) -> tuple[PartialChatCall, str]:
        inner, custom = piece.get("function"), piece.get("custom")
        is_custom = isinstance(custom, dict) and not isinstance(inner, dict)
        content: Any = custom if is_custom else inner
        function: Block = content if isinstance(content, dict) else {}
        index, known, name = (
            _parse_index(piece.get("index")),
            text_or_empty(piece.get("id")),
            text_or_empty(function.get("name")),
        )
        given: Any = function.get("input" if is_custom else "arguments")
        text = given if isinstance(given, str) else "" if given is None else dumps(given).decode()
        call = self._find_call(index, known, name, text, touched)
        call.is_custom = call.is_custom or is_custom
        if known and not call.id:
            call.id = known
        if known:
            self._by_id.setdefault(known, call)
        if index is not None:
            self._by_index[index] = call
        if name and call.pieces and not text.strip() and call.is_complete:
            call.is_followed = True
        _set_name(call, name)
        _merge_members(call.members, piece, ("id", "index", "function", "custom"))
        _merge_members(call.rest, function, ("name", "input" if is_custom else "arguments"))
        if text and not (name and known == call.id and call.has_arguments(text)):
            call.append(text)
            return call, repair_surrogates(text)
        return call, ""

    def _find_call(
        self, index: int | None, known: str, name: str, text: str, touched: set[int]
    ) -> PartialChatCall:
        last = self.calls[-1] if self.calls else None
        if index is not None:
            if index not in self._by_index and (name or (known and known not in self._by_id)):
                return self._start_call()
            last = self._by_index.get(index) or self._by_id.get(known) or last
        if last is None or (name and last.place in touched):
            return self._start_call()
        if known and last.id and known != last.id:
            if index is None and known in self._by_id:
                return self._by_id[known]
            return self._start_call() if name or index is None or last.is_complete else last
        if last.is_followed and text.strip():
            return self._start_call(last.name)
        if name and last.name and self._is_new_call(last, index, known, name, text):
            return self._start_call()
        return last

    def _is_new_call(
        self, last: PartialChatCall, index: int | None, known: str, name: str, text: str
    ) -> bool:
        """Return True if a piece with a name, under the id of an existing call, starts a further call."""
        if name != last.name:
            return index is None or bool(text or last.pieces)
        if not text.strip() or not last.is_complete:
            return False
        repeated = bool(known) and index is not None and last.pieces == [_EMPTY_OBJECT]
        return not repeated and not last.has_arguments(text)

    def _start_call(self, name: str = "") -> PartialChatCall:
        call = PartialChatCall(len(self.calls))
        call.name = name
        self.calls.append(call)
        return call


def _set_name(call: PartialChatCall, name: str) -> None:
    """Set the name, which arrives complete, repeatedly, or, as the protocol allows, in pieces."""
    if name and name != call.name:
        call.name = name if name.startswith(call.name) or call.pieces else call.name + name


def _merge_members(members: Block, more: Block, excluded: tuple[str, ...]) -> None:
    for name, value in more.items():
        if name not in excluded and value not in (None, ""):
            members[name] = value


def _parse_index(value: object) -> int | None:
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 10:
        return int(value)
    return parse_integer(value)
