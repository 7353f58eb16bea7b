"""Filters of a model's text, applied before the text is shown, recorded or sent on.

A hook with a method `text_filter` makes one filter per reply. Text whose end could be the beginning of a match
is held back until the next piece arrives, so that nothing is shown that a later piece would have redacted.
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Protocol

from msgspec.structs import replace

from bridle.values.base import Value
from bridle.values.errors import MisuseError
from bridle.values.hooks import HeadText
from bridle.values.media import read_text_document
from bridle.values.message import (
    Media,
    Message,
    Opaque,
    Part,
    Reasoning,
    Text,
    ToolCall,
    ToolResult,
    ViewChange,
)

LOOKBEHIND_CHARACTERS = 64
"""Characters before a match that its pattern can look at."""
EMPTIED_TEXT = "[…]"
"""Text of a part whose whole text is redacted with that of another part; providers reject empty texts."""


class TextBlocked(Exception):
    """Raised by a text filter: the reply is abandoned and the run ends as `refused`."""


class TextFilter(Protocol):
    """Filters the text of one reply, piece by piece."""

    def feed(self, text: str) -> str:
        """The filtered text that is final; the rest is held back."""
        ...

    def finish(self) -> str:
        """The filtered text that was held back."""
        ...


class TextPattern(Value, kw_only=True, gc=True):
    """A kind of text to redact or to block."""

    name: str
    pattern: str
    """Regular expression of a match."""
    open_end: str
    """Regular expression of text at the end of a piece that could become a match."""
    check: Callable[[str], bool] | None = None
    """Further condition of a match."""

    def __post_init__(self) -> None:
        for field, given in (("pattern", self.pattern), ("open_end", self.open_end)):
            try:
                compile_pattern(given)
            except re.error as error:
                raise MisuseError(f"{field} of {self.name!r} is no regular expression: {error}") from None


class PatternFilter:
    """Replaces every match by the name of its pattern, or raises `TextBlocked`.

    The result does not depend on the pieces in which the text arrives: patterns are matched against the
    original text, from left to right, and a match counts once nothing that follows can change it. Among
    matches that begin at the same place the first pattern wins.
    """

    def __init__(self, patterns: Sequence[TextPattern], *, block: bool = False) -> None:
        self._patterns, self._block = tuple(patterns), block
        self._text, self._at = "", 0

    def feed(self, text: str) -> str:
        self._text += text
        end = min((_find_open_start(each, self._text, self._at) for each in self._patterns), default=None)
        return self._take(len(self._text) if end is None else end)

    def finish(self) -> str:
        final = self._take(len(self._text))
        self._text, self._at = "", 0
        return final

    def replace(self, text: str) -> str:
        """The text with every match replaced."""
        whole = PatternFilter(self._patterns, block=self._block)
        return whole.feed(text) + whole.finish()

    def _take(self, end: int) -> str:
        """The filtered text up to `end`, or up to the end of a match that begins before it."""
        text, at, pieces = self._text, self._at, list[str]()
        matches = [_find_match(each, text, at, end) for each in self._patterns]
        while found := [(match, place) for place, match in enumerate(matches) if match]:
            (start, stop), first = min(found, key=lambda each: (each[0][0], each[1]))
            name = self._patterns[first].name
            if self._block:
                raise TextBlocked(f"the reply contains: {name}")
            pieces += (text[at:start], f"[{name}]")
            at = stop
            for match, place in found:
                if match[0] < at:
                    matches[place] = _find_match(self._patterns[place], text, at, end)
        pieces.append(text[at:end])
        at = max(at, end)
        kept = max(at - LOOKBEHIND_CHARACTERS, 0)
        self._text, self._at = text[kept:], at - kept
        return "".join(pieces)


def _find_match(pattern: TextPattern, text: str, at: int, end: int) -> tuple[int, int] | None:
    """Start and end of the first match that passes the check of the pattern and begins before `end`."""
    expression = compile_pattern(pattern.pattern)
    while (found := expression.search(text, at)) and found.start() < end:
        if pattern.check is None:
            return found.span()
        # A number before or after the data may be part of the match: "2 4111 1111 1111 1111".
        for stop in range(found.end(), found.start(), -1):
            if not text[stop - 1].isalnum() or (text[stop : stop + 1].isalnum() and stop < found.end()):
                continue
            shorter = expression.fullmatch(text, found.start(), stop)
            if shorter and pattern.check(shorter[0]):
                return shorter.span()
        at = found.start() + 1
    return None


def _find_open_start(pattern: TextPattern, text: str, at: int) -> int:
    """Start of the text at the end that could become a match, or another one, with the text that follows."""
    opened = compile_pattern(rf"(?:{pattern.open_end})\Z").search(text, at)
    start = opened.start() if opened else len(text)
    expression = compile_pattern(pattern.pattern)
    while (found := expression.search(text, at)) and found.start() < start:
        if found.end() == len(text):
            return found.start()
        at = found.start() + 1 if pattern.check else found.end()
    return start


def compile_pattern(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


def edit_texts(messages: Sequence[Message], edit: Callable[[str], str]) -> tuple[ViewChange, ...]:
    """Edits for every text of the messages that `edit` changes.

    Also in tool results, in the arguments of calls, in text documents, and in what a provider added to a part.
    """
    return tuple(change for message in messages for change in edit_message(message, _edit_alone(edit)))


def _edit_alone(edit: Callable[[str], str]) -> "TextsEdit":
    return lambda texts: [edit(text) for text in texts]


def make_joined_edit(make_filter: Callable[[], TextFilter]) -> "TextsEdit":
    """A function that filters texts as one text."""

    def edit(texts: list[str]) -> list[str]:
        joined = make_filter()
        filtered = [joined.feed(text) for text in texts]
        filtered[-1] += joined.finish()
        if "".join(filtered) == "".join(texts):
            return texts
        return [text or (EMPTIED_TEXT if old else "") for text, old in zip(filtered, texts, strict=True)]

    return edit


def list_texts(message: Message) -> list[str]:
    """Every text of a message, its documents, arguments and results included."""
    found: list[str] = []

    def collect(texts: list[str]) -> list[str]:
        found.extend(texts)
        return texts

    for _ in edit_message(message, collect):
        pass
    return found


def list_documents(message: Message) -> list[str]:
    """The content of the text documents of a message."""
    return [text for part in message.parts if isinstance(part, Media) and (text := read_text_document(part))]


TextsEdit = Callable[[list[str]], list[str]]
"""A function of all texts of a message, or of a tool result; returns as many."""
_FindEdit = Callable[[str], bool]
"""Whether a text alone would be changed."""


def edit_message(message: Message, edit: TextsEdit, *, reads_ids: bool = False) -> Iterator[ViewChange]:
    """Edits of one message by a function of its texts.

    `reads_ids`: also remove ids, signatures and types that the function would change; they cannot be rewritten.
    """
    find_ids: _FindEdit = partial(_is_edited, edit=edit) if reads_ids else _finds_nothing
    own = [(at, -1, part) for at, part in enumerate(message.parts) if isinstance(part, Text)]
    yield from _edit_group(message.id, own, edit)
    for at, part in enumerate(message.parts):
        match part:
            case ToolResult():
                inner = [(at, place, each) for place, each in enumerate(part.parts)]
                yield from _edit_group(
                    message.id, [each for each in inner if isinstance(each[2], Text)], edit
                )
                for _, place, each in inner:
                    if not isinstance(each, Text):
                        yield from _edit_whole(message.id, at, place, each, edit, find_ids)
                if part.native and _edit_json(part.native, edit) != part.native:
                    # A part of a result that is replaced takes the provider's own form of the result with it.
                    first = next((each.text for each in part.parts if isinstance(each, Text)), EMPTIED_TEXT)
                    yield ViewChange(message=message.id, part=at, inner=0, text=edit([first])[0])
            case ToolCall():
                arguments = _edit_json(part.arguments, edit)
                is_changed = arguments != part.arguments or find_ids(part.wire_id)
                if is_changed:  # takes the provider's id and data with it
                    yield ViewChange(message=message.id, part=at, arguments=_keep_object(arguments))
                elif part.native and _edit_json(part.native, edit) != part.native:
                    yield ViewChange(message=message.id, part=at, strip_native=True)
            case Reasoning():
                is_changed = part.native is not None and _edit_json(part.native, edit) != part.native
                if is_changed or _is_edited(part.text, edit=edit) or find_ids(part.signature):
                    yield ViewChange(message=message.id, part=at)  # a signature covers the text
            case Media() | Opaque():
                yield from _edit_whole(message.id, at, -1, part, edit, find_ids)


def _edit_group(name: str, places: Sequence[tuple[int, int, Part]], edit: TextsEdit) -> Iterator[ViewChange]:
    texts = [part.text for _, _, part in places if isinstance(part, Text)]
    if not texts:
        return
    for (at, inner, part), old, new in zip(places, texts, edit(texts), strict=True):
        is_same = new == old and (not part.native or _edit_json(part.native, edit) == part.native)
        if not is_same:
            yield ViewChange(message=name, part=at, inner=inner, text=new)


def _edit_whole(
    name: str, at: int, inner: int, part: Part, edit: TextsEdit, find_ids: _FindEdit
) -> Iterator[ViewChange]:
    """The edit of a document, or of an item in a provider's own form: text takes its place."""
    match part:
        case Opaque() if (
            _edit_json(part.native, edit) != part.native
            or _is_edited(part.text, edit=edit)
            or find_ids(part.kind)
        ):
            text = edit([part.text])[0] if part.text else ""
            yield ViewChange(message=name, part=at, inner=inner, text=text or EMPTIED_TEXT)
        case Media():
            content, label = read_text_document(part), edit([part.name])[0] if part.name else ""
            edited = edit([content])[0] if content else ""
            link = edit([part.url])[0] if part.url else ""
            has_ids = find_ids(part.file_id) or find_ids(part.media_type)
            if edited != content or link != part.url or has_ids:
                text = f"[{part.kind} {label}]\n{edited or link}".replace(" ]", "]")
                yield ViewChange(message=name, part=at, inner=inner, text=text.rstrip("\n"))
            elif label != part.name or (part.native and _edit_json(part.native, edit) != part.native):
                is_own = inner < 0
                yield ViewChange(
                    message=name,
                    part=at,
                    inner=inner,
                    strip_native=is_own,
                    text="" if is_own else EMPTIED_TEXT,
                )


def _is_edited(text: str, *, edit: TextsEdit) -> bool:
    return bool(text) and edit([text]) != [text]


def _finds_nothing(text: str) -> bool:
    return False


def edit_head(texts: Sequence[HeadText], edit: TextsEdit) -> tuple[HeadText, ...]:
    """The texts outside the conversation that the function changes, each with its new text."""
    new = (
        replace(each, text=_edit_json(each.text, edit) if each.is_json else edit([each.text])[0])
        for each in texts
    )
    return tuple(now for now, each in zip(new, texts, strict=True) if now.text != each.text)


def _edit_json(text: str, edit: TextsEdit) -> str:
    """JSON with every string edited alone, as it reads after decoding, and numbers that become a text."""
    try:
        value = json.loads(text)
        edited = _edit_value(value, edit)
    except (ValueError, RecursionError):
        return edit([text])[0]
    return text if edited == value else json.dumps(edited, ensure_ascii=False, separators=(",", ":"))


def _edit_value(value: object, edit: TextsEdit) -> object:
    match value:
        case str():
            return edit([value])[0] if value else value
        case bool() | None:
            return value
        case int() | float():
            digits = str(value)
            edited = edit([digits])[0]
            return value if edited == digits else edited
        case list():
            return [_edit_value(each, edit) for each in value]
        case dict():
            return {
                edit([name])[0] if name else name: _edit_value(each, edit) for name, each in value.items()
            }
    return value


def _keep_object(arguments: str) -> str:
    """The arguments as a JSON object; a text that is none is put into one."""
    try:
        is_object = isinstance(json.loads(arguments), dict)
    except (ValueError, RecursionError):
        is_object = False
    return arguments if is_object else json.dumps({"text": arguments}, ensure_ascii=False)
