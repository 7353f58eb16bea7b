"""Calls of a streamed reply while they arrive, from servers that cannot agree on how to tell them apart.

By the protocol each piece has the index of its call, and the first one its id and name.  In the wild the
index is missing or always nought, the id is missing, empty, the same for all or repeated, the name comes
with every piece, and whole calls come at once or a second time.  One rule finds a piece its call: what
can only be a new call begins one (an index or an id not seen before, a name after complete arguments),
and everything else continues the call it was last about.

No character is looked at twice, however a server cuts its pieces.
"""

import re
from typing import Any

from ._json import dumps, mended, whole
from ._openai_chat_content import Block, word

_IN_STRING = re.compile(r'["\\]')
_OUTSIDE = re.compile(r'["\[\]{}]')
_PLACEHOLDER = "{}"


class GrowingCall:
    def __init__(self, place: int) -> None:
        self.place = place
        self.id = self.name = ""
        self.is_custom = False
        """A call of a free-text tool: its words are no JSON, so nothing in them says that it is complete."""
        self.is_followed = False
        """Its name came once more after its arguments were complete: what comes next is another call's."""
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
        """Whether the brackets of the arguments so far are closed again."""
        if self.is_custom:
            return False
        for piece in self.pieces[self._scanned :]:
            self._scan(piece)
        self._scanned = len(self.pieces)
        return self._opened and self._depth <= 0 and not self._in_string

    def say(self, piece: str) -> None:
        if self.pieces == [_PLACEHOLDER] and piece.strip() and not self.is_custom:
            self.restart()  # some servers announce every call with an empty object
        self.pieces.append(piece)
        self._size += len(piece)

    def has_said(self, all_of_it: str) -> bool:
        return len(all_of_it) == self._size and all_of_it == self.arguments

    def restart(self) -> None:
        self.pieces.clear()
        self._scanned = self._depth = self._size = 0
        self._in_string = self._escaped = self._opened = False

    def wire(self) -> Block:
        if self.is_custom:
            return {
                **self.members,
                "id": self.id,
                "custom": {**self.rest, "name": self.name, "input": self.arguments},
            }
        function = {**self.rest, "name": self.name, "arguments": self.arguments}
        return {**self.members, "id": self.id, "function": function}

    def _scan(self, piece: str) -> None:
        at = 0
        if self._escaped and piece:
            at, self._escaped = 1, False
        while (found := (_IN_STRING if self._in_string else _OUTSIDE).search(piece, at)) is not None:
            mark, at = found.group(), found.end()
            if mark == "\\":
                self._escaped = at == len(piece)
                at += 1
            elif mark == '"':
                self._in_string = not self._in_string
            else:
                self._depth += 1 if mark in "{[" else -1
                self._opened = True


class GrowingCalls:
    def __init__(self) -> None:
        self.calls: list[GrowingCall] = []
        self._by_index: dict[int, GrowingCall] = {}
        self._by_id: dict[str, GrowingCall] = {}

    def at(self, index: int) -> GrowingCall | None:
        """The call that a piece with this index and nothing else is about."""
        call = self._by_index.get(index)
        return None if call is None or call.is_followed else call

    def take(self, pieces: list[Any]) -> list[tuple[GrowingCall, str]]:
        """The calls these pieces were about, each with the arguments it got."""
        grown: list[tuple[GrowingCall, str]] = []
        touched: set[int] = set()
        for piece in pieces:
            if isinstance(piece, dict):
                call, said = self._take(piece, touched)
                touched.add(call.place)
                grown.append((call, said))
        return grown

    def _take(self, piece: Block, touched: set[int]) -> tuple[GrowingCall, str]:
        inner, custom = piece.get("function"), piece.get("custom")
        is_custom = isinstance(custom, dict) and not isinstance(inner, dict)
        said_in: Any = custom if is_custom else inner
        function: Block = said_in if isinstance(said_in, dict) else {}
        index, known, name = _index(piece.get("index")), word(piece.get("id")), word(function.get("name"))
        given: Any = function.get("input" if is_custom else "arguments")
        said = given if isinstance(given, str) else "" if given is None else dumps(given).decode()
        call = self._about(index, known, name, said, touched)
        call.is_custom = call.is_custom or is_custom
        if known and not call.id:
            call.id = known
        if known:
            self._by_id.setdefault(known, call)
        if index is not None:
            self._by_index[index] = call
        if name and call.pieces and not said.strip() and call.is_complete:
            call.is_followed = True
        _name(call, name)
        _fold(call.members, piece, ("id", "index", "function", "custom"))
        _fold(call.rest, function, ("name", "input" if is_custom else "arguments"))
        if said and not (name and known == call.id and call.has_said(said)):
            call.say(said)
            return call, mended(said)
        return call, ""

    def _about(self, index: int | None, known: str, name: str, said: str, touched: set[int]) -> GrowingCall:
        last = self.calls[-1] if self.calls else None
        if index is not None:
            if index not in self._by_index and (name or (known and known not in self._by_id)):
                return self._begin()
            last = self._by_index.get(index) or self._by_id.get(known) or last
        if last is None or (name and last.place in touched):
            return self._begin()
        if known and last.id and known != last.id:
            if index is None and known in self._by_id:
                return self._by_id[known]
            return self._begin() if name or index is None or last.is_complete else last
        if last.is_followed and said.strip():
            return self._begin(last.name)
        if name and last.name and self._is_another(last, index, known, name, said):
            return self._begin()
        return last

    def _is_another(self, last: GrowingCall, index: int | None, known: str, name: str, said: str) -> bool:
        """Whether a piece with a name, under the id of a call that has one, is about a further call."""
        if name != last.name:
            return index is None or bool(said or last.pieces)
        if not said.strip() or not last.is_complete:
            return False
        repeated = bool(known) and index is not None and last.pieces == [_PLACEHOLDER]
        return not repeated and not last.has_said(said)

    def _begin(self, name: str = "") -> GrowingCall:
        call = GrowingCall(len(self.calls))
        call.name = name
        self.calls.append(call)
        return call


def _name(call: GrowingCall, name: str) -> None:
    """Names come whole, again and again, or, by the letter of the protocol, in pieces."""
    if name and name != call.name:
        call.name = name if name.startswith(call.name) or call.pieces else call.name + name


def _fold(members: Block, more: Block, but: tuple[str, ...]) -> None:
    for name, value in more.items():
        if name not in but and value not in (None, ""):
            members[name] = value


def _index(value: object) -> int | None:
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 10:
        return int(value)
    return whole(value)
