"""Reads an answer while it is still arriving, as plain data and as the output type.

    partial = PartialJson()
    partial.feed('{"city": "Ro')
    partial.value()                   {"city": "Ro"}

Strings grow with the text. Numbers, `true`, `false`, `null` and keys appear once they are complete, because a part of
them would be another value: 12 is not 120.
"""

from typing import Generic, TypeVar

from bridle.ports.tool import Json
from bridle.values.events import ModelReplied
from bridle.values.message import Stop
from bridle.values.result import AttemptRestarted, PartialOutput, Result, TextDelta, ToolCallDelta

# guard: partial-answer-nesting
from bridle.values.text import NESTING_MAX, parse_json

from .open_values import mark_open
from .output_type import OutputType

T = TypeVar("T")
_SPACE = " \t\r\n"
_ESCAPE_LENGTHS = {"u": 5}
REFRESH_SHARE = 100
"""An answer is read again when it has grown by a hundredth, so that all readings together stay proportional to it."""


class PartialJson:
    """The text of one JSON object so far."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._length = 0
        self._closers: list[str] = []
        """Brackets that close what is open, outermost first."""
        self._expected = (
            "value"  # value, key, colon, comma, or the kind of token being read: string, name, scalar
        )
        self._escape_start, self._escape_left = 0, 0
        self._end = 0
        """Length of the text that is complete once its brackets are closed."""

    def feed(self, piece: str) -> None:
        for place, character in enumerate(piece, self._length):
            self._read(character, place)
        self._pieces.append(piece)
        self._length += len(piece)

    def marked_value(self) -> Json:
        """The object so far, with the parts marked whose end has not arrived (`open_values`)."""
        value = self.value()
        in_text = self._expected == "string"
        return mark_open(value, len(self._closers), in_text=in_text)

    def value(self) -> Json:
        """The object so far; None if it has not begun, is not JSON or is nested too deeply."""
        if len(self._closers) > NESTING_MAX:
            return None
        text, closers = "".join(self._pieces), "".join(reversed(self._closers))
        self._pieces = [text]
        if self._expected == "string":
            end = self._escape_start if self._escape_left else len(text)
            found = _decode(f'{text[:end]}"{closers}')
            if found is not None:
                return found
        return _decode(text[: self._end] + closers)

    def _read(self, character: str, place: int) -> None:
        if self._expected in ("string", "name"):
            self._read_string(character, place)
            return
        if self._expected == "scalar":
            if character not in ",]}" + _SPACE:
                return
            self._complete(place)
        if character in _SPACE:
            return
        if character in "{[":
            self._closers.append("}" if character == "{" else "]")
            self._complete(place + 1)
            self._expected = "key" if character == "{" else "value"
        elif character in "]}":
            if self._closers:
                self._closers.pop()
            self._complete(place + 1)
        elif character == ",":
            self._expected = "key" if self._closers[-1:] == ["}"] else "value"
        elif character == ":":
            self._expected = "value"
        elif character == '"':
            self._expected = "name" if self._expected == "key" else "string"
        else:
            self._expected = "scalar"

    def _read_string(self, character: str, place: int) -> None:
        if self._escape_left:
            is_first = place == self._escape_start + 1
            self._escape_left = _ESCAPE_LENGTHS.get(character, 1) if is_first else self._escape_left
            self._escape_left -= 1
        elif character == "\\":
            self._escape_start, self._escape_left = place, 1
        elif character == '"':
            if self._expected == "name":
                self._expected = "colon"
            else:
                self._complete(place + 1)

    def _complete(self, end: int) -> None:
        self._end, self._expected = end, "comma"


def _decode(text: str) -> Json:
    try:
        found: Json = parse_json(text)
    except ValueError:
        return None
    return found


class PartialTracker(Generic[T]):
    """Follows the items of a run to the answer that is arriving: in the text, or as a call of the output tool."""

    def __init__(self, output_type: OutputType[T] | None) -> None:
        self._output_type = output_type
        self._answer, self._is_over, self._call_index = 1, False, -1
        self._texts: list[str] = []
        self._json, self._size, self._unread = PartialJson(), 0, 0

    def apply(self, item: object) -> bool:
        """Take one item of a run; True if so much more of an answer has arrived that it is to be read."""
        match item:
            case TextDelta(text=text) if self._call_index < 0 or self._is_over:
                self._begin_reply()
                return self._add_text(text)
            case ToolCallDelta(index=index, name=name, arguments=arguments):
                self._begin_reply()
                if not self._is_output_call(index, name):
                    return False
                if self._call_index < 0:  # text before the call is not the answer
                    self._restart(self._answer)
                    self._call_index = index
                return self._add_json(arguments)
            case AttemptRestarted():
                self._restart(self._answer)
            case ModelReplied(reply=reply, summarizes_until=""):
                is_continued = reply.stop in (Stop.LENGTH, Stop.PAUSED) and not reply.calls
                self._is_over = not is_continued
                return self._take_unread()
        return False

    def read(self) -> PartialOutput[T] | None:
        """The answer so far; None before it begins."""
        if self._output_type is None:
            text = "".join(self._texts)
            self._texts = [text]
            return PartialOutput(value=text, answer=self._answer) if text else None
        found = self._json.value()
        if not isinstance(found, dict) or (self._output_type.is_wrapped and "value" not in found):
            return None
        value = found["value"] if self._output_type.is_wrapped else found
        if self._output_type.has_unions:
            found = self._json.marked_value()
        return PartialOutput(value=value, output=_try_convert(self._output_type, found), answer=self._answer)

    def finish(self, result: Result[T]) -> PartialOutput[T]:
        """The answer of a run that is done."""
        self._restart(self._answer)
        self._add_text(result.text)
        last = self.read()
        value = last.value if last is not None else result.text
        return PartialOutput(value=value, output=result.output, answer=self._answer, complete=True)

    def _begin_reply(self) -> None:
        if self._is_over:
            self._restart(self._answer + (self.read() is not None))

    def _add_text(self, text: str) -> bool:
        if self._output_type is None:
            self._texts.append(text)
            return self._count(text)
        if not self._size:  # some models put a code fence before the object
            text = text[text.index("{") :] if "{" in text else ""
        return self._add_json(text)

    def _add_json(self, text: str) -> bool:
        self._json.feed(text)
        return self._count(text)

    def _count(self, text: str) -> bool:
        """Count new text; True if the answer is to be read."""
        self._size += len(text)
        self._unread += len(text)
        # guard: partial-read-share
        return self._unread >= self._size // REFRESH_SHARE and self._take_unread()

    def _take_unread(self) -> bool:
        """True if text has arrived since the answer was last read."""
        unread, self._unread = self._unread, 0
        return unread > 0

    def _is_output_call(self, index: int, name: str) -> bool:
        is_output = self._output_type is not None and name == self._output_type.name
        return is_output and self._call_index in (-1, index)

    def _restart(self, answer: int) -> None:
        self._answer, self._is_over, self._call_index = answer, False, -1
        self._texts = []
        self._json, self._size, self._unread = PartialJson(), 0, 0


def _try_convert(output_type: OutputType[T], value: Json) -> T | None:
    """The value as the output type; None if the type does not accept it, for example because it is incomplete."""
    try:
        return output_type.convert(value)
    except Exception:  # noqa: BLE001 - the type is foreign code, and half an answer may break it
        return None
