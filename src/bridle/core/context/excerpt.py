"""Where a text may be cut without breaking what a reader takes for one character.

A string is made of code points, and no cut can split one.  But a letter with its accent, a flag,
a family of faces or a line's two-character end are several code points; half of one is another
character, or none.  A cut between lines is better still, when one is near.

What a character is, is decided by a short list that covers what texts are made of, not by the
whole standard; what it misses is cut between code points.
"""

import re
import unicodedata
from collections.abc import Iterable

from msgspec.structs import replace

from bridle.core.effects import RevealTools
from bridle.core.state import State
from bridle.values.calls import StoredResult
from bridle.values.message import Media, Opaque, Text, ToolResult
from bridle.values.request import ToolSpec

CHARACTER_LENGTH_MAX = 64
"""Longer heaps of accents are cut wherever it happens to be."""
JOINER = "\u200d"


def cut_before(text: str, at: int, slack: int) -> int:
    """The best place at or before `at`: after a line's end not more than `slack` earlier, if there is one."""
    if not 0 < at < len(text):
        return max(0, min(at, len(text)))
    line = text.rfind("\n", max(0, at - slack), at)
    if line >= 0:
        return line + 1
    return next((i for i in range(at, max(-1, at - CHARACTER_LENGTH_MAX), -1) if is_boundary(text, i)), at)


def cut_after(text: str, at: int, slack: int) -> int:
    """The best place at or after `at`."""
    if not 0 < at < len(text):
        return max(0, min(at, len(text)))
    line = text.find("\n", at - 1, at + slack)
    if line >= 0:
        return line + 1
    last = min(len(text), at + CHARACTER_LENGTH_MAX)
    return next((i for i in range(at, last + 1) if is_boundary(text, i)), at)


def is_boundary(text: str, at: int) -> bool:
    if not 0 < at < len(text):
        return True
    before, after = text[at - 1], text[at]
    if before == "\r" and after == "\n":
        return False
    if before < "\u0300" and after < "\u0300":
        return True
    if JOINER in (before, after) or _is_combining(after):
        return False
    return not (_is_flag_half(after) and _flag_halves_before(text, at) % 2)


def _is_combining(character: str) -> bool:
    """Whether it belongs to the one before: accents, skin tones, tags, later letters of a syllable block."""
    code = ord(character)
    return (
        unicodedata.category(character).startswith("M")
        or 0x1F3FB <= code <= 0x1F3FF
        or 0xE0020 <= code <= 0xE007F
        or 0x1160 <= code <= 0x11FF
    )


def _is_flag_half(character: str) -> bool:
    return "\U0001f1e6" <= character <= "\U0001f1ff"


def _flag_halves_before(text: str, at: int) -> int:
    first = at
    while first > 0 and at - first < CHARACTER_LENGTH_MAX and _is_flag_half(text[first - 1]):
        first -= 1
    return at - first


# Results too long to be sent whole: what the model gets instead, and when it may read the rest.
#
# The decision is made once, before the result is recorded; what is recorded is what is sent, now
# and for ever.  The model gets the beginning and the end, and between them a note with what is
# missing and the handle to read it by.  Only words are shortened: pictures and files stay where
# they are.
#
# The tool that reads the rest is shown from the first such result on, and not before: most
# sessions never need it.  An agent's own tool of that name takes its place, and then nothing is
# offered.


RESULT_CHARACTERS_MIN = 1_000
"""Below this an excerpt would be mostly note."""
PAGE_CHARACTERS_DEFAULT = 10_000
HEAD_SHARE = 2 / 3
"""A beginning says what a thing is; an end says how it came out."""
NOTE_CHARACTERS_MAX = 400
LINE_SHARE = 0.1
"""How much of an end may be given up to cut between lines."""
REVEAL_REASON = "a result was too long to be sent whole"

READ_RESULT = ToolSpec(
    name="read_result",
    description=(
        "Read more of an earlier tool result that was too long to be shown whole. Without `search` it"
        " gives a page of the text; with `search` it lists where those words occur."
    ),
    parameters=(
        '{"type":"object","properties":{'
        '"handle":{"type":"string","description":"The handle named where the result was cut."},'
        '"offset":{"type":"integer","minimum":0,"default":0,'
        '"description":"The character to begin at; the first is 0."},'
        f'"limit":{{"type":"integer","minimum":1,"default":{PAGE_CHARACTERS_DEFAULT},'
        '"description":"The most characters to give."},'
        '"search":{"type":"string","default":"","maxLength":500,'
        '"description":"Words to look for from the offset on, in upper or lower case."}'
        '},"required":["handle"],"additionalProperties":false}'
    ),
    effect="read",
    on_unknown="retry",
)


def join_result_text(result: ToolResult) -> str:
    """All the words of a result as one text, with each part on a line of its own."""
    return "".join(_text_pieces(result))


def is_long_result(result: ToolResult, limit: int | None) -> bool:
    return limit is not None and sum(map(len, _text_pieces(result))) > limit


def make_excerpt(
    result: ToolResult, text: str, whole: StoredResult, limit: int, *, readable: bool
) -> ToolResult:
    """The result as it is kept and sent.  `text` is its whole text; `readable`: a tool can read the rest."""
    room = max(limit - NOTE_CHARACTERS_MAX, 0)
    head = int(room * HEAD_SHARE)
    tail = room - head
    start = cut_before(text, head, int(head * LINE_SHARE))
    end = cut_after(text, len(text) - tail, int(tail * LINE_SHARE))
    note = _make_cut_note(text, start, end, whole, readable=readable)
    parts: list[Text | Media | Opaque] = []
    at, noted = 0, False
    pieces = iter(_text_pieces(result))
    for part in result.parts:
        if not isinstance(part, Text):
            parts.append(part)
            continue
        before, at = at, at + len(next(pieces))
        if at < start or before >= end:
            parts.append(part)
            continue
        kept = text[before : min(at, start)]
        if not noted:
            kept, noted = kept + note, True
        kept += text[end:at]
        if kept.strip():  # a blank block is refused by several wires
            parts.append(replace(part, text=kept))
    return replace(result, parts=tuple(parts))


def reveal_reader_tool(state: State) -> RevealTools | None:
    """The tool for the rest, as soon as there is a rest to read."""
    name = READ_RESULT.name
    if (
        not state.stored_results
        or name in state.revealed_tools
        or READ_RESULT not in state.settings.hidden_tools
    ):
        return None
    return RevealTools(names=(name,), why=REVEAL_REASON)


def _text_pieces(result: ToolResult) -> list[str]:
    texts = [part.text for part in result.parts if isinstance(part, Text)]
    between = [text if text.endswith("\n") else f"{text}\n" for text in texts[:-1]]
    return [*between, *texts[-1:]]


def _make_cut_note(text: str, start: int, end: int, whole: StoredResult, *, readable: bool) -> str:
    left_out = f"{end - start:,} of {len(text):,} characters are left out here"
    if readable:
        way = (
            f'To read them: {READ_RESULT.name}(handle="{whole.handle}", offset={start});'
            ' with search="words" it finds words in the whole result.'
        )
    else:
        way = f"The whole result is kept under {whole.hash}; no tool here can read it, so ask for less."
    lead = "" if text[:start].endswith("\n") or not start else "\n"
    return f"{lead}[… {left_out}. {way} …]\n"


# A long text as its beginning and its end, with a note between them that says what is missing.


LONG_CHARACTERS = 20_000
"""A text above this can by itself be the reason why a conversation does not fit."""
LONG_HEAD_SHARE, LONG_TAIL_SHARE = 0.3, 0.1
WINDOW_CHARACTERS = 0.5
"""For each token of a small window: what makes a tool result a long one there."""
VERBOSE_CHARACTERS = 2_400
"""A tool result above this says more than is needed once it has been read."""
VERBOSE_HEAD, VERBOSE_TAIL = 800, 400
CUT_NOTE = "\n[… {gone:,} of {all:,} characters were left out here later on. {way} …]\n"
CALL_AGAIN = "Call the tool again if they are needed."
READ_REST = 'To read them: {tool}(handle="{handle}", offset={offset}).'
TOO_LONG_TO_SEND = "It was too long to be sent."


def shorten_long_text(text: str, most: int = LONG_CHARACTERS) -> str:
    return _keep_ends(text, int(most * LONG_HEAD_SHARE), int(most * LONG_TAIL_SHARE), TOO_LONG_TO_SEND)


def long_result_characters(window_tokens: int) -> int:
    """How many characters are too many for one tool result, where nothing else makes the prompt fit."""
    return min(LONG_CHARACTERS, max(VERBOSE_CHARACTERS, int(window_tokens * WINDOW_CHARACTERS)))


def shorten_old_result(text: str, wholes: Iterable[StoredResult], *, readable: bool) -> str:
    """An old result.  Where the store has all of it, the excerpt names a handle, and the note does too."""
    whole = next((each for each in wholes if readable and each.handle in text), None)
    way = (
        READ_REST.format(tool=READ_RESULT.name, handle=whole.handle, offset=VERBOSE_HEAD)
        if whole
        else CALL_AGAIN
    )
    return _keep_ends(text, VERBOSE_HEAD, VERBOSE_TAIL, way)


def _keep_ends(text: str, head: int, tail: int, way: str) -> str:
    between = CUT_NOTE.format(gone=len(text) - head - tail, all=len(text), way=way)
    return text[:head] + between + text[-tail:]


# A long text, a page at a time, or the places where words occur in it.
#
# Every page begins with a line that says what it is and how to get the next one.  Pages put end
# to end are the text, exactly.  A search looks for words, not for patterns: a pattern from a model
# could take for ever.


LEAD_CHARACTERS_MAX = 200
AROUND_CHARACTERS = 100
"""What is shown on either side of a place found."""
SEARCH_STRIDE = 1 << 18
"""How much is searched in one go: the interpreter does nothing else meanwhile."""
SEARCH_SHOWN_MAX = 60


def read_page(text: str, offset: int, limit: int) -> str:
    start = min(max(offset, 0), len(text))
    end = start + max(limit, 1)
    if end < len(text):
        cut = cut_before(text, end, limit // 10)
        end = cut if cut > start else end
    end = min(end, len(text))
    if start == end:
        return f"[nothing at {offset:,}: the result ends after {len(text):,} characters]\n"
    way = f"read on with offset={end}" if end < len(text) else "this is the end"
    return f"[characters {start}-{end} of {len(text)}; {way}]\n{text[start:end]}"


def search_text(text: str, words: str, offset: int, limit: int) -> str:
    """Where the words occur, from the offset on: each place with its surroundings, on a line."""
    found: list[str] = []
    room, at = limit, min(max(offset, 0), len(text))
    pattern = re.compile(re.escape(words), re.IGNORECASE)
    shown = words if len(words) <= SEARCH_SHOWN_MAX else f"{words[:SEARCH_SHOWN_MAX]}…"
    while (hit := _next_match(pattern, text, at)) is not None:
        start, end = _surrounding_range(text, hit.start(), hit.end(), max(limit // 2, 1))
        line = f"{hit.start()}: {_join_lines(text[start:end])}\n"
        if found and len(line) > room:
            return (
                f"[{len(found)} places with {shown!r}, and more: search on with offset={hit.start()}]\n"
                + ("".join(found))
            )
        found.append(line)
        room -= len(line)
        # What is inside the surroundings shown has been seen.
        at = max(end - len(words) + 1, hit.end())
    if not found:
        return f"[no {shown!r} from character {min(max(offset, 0), len(text))} on, of {len(text)}]\n"
    return f"[{len(found)} places with {shown!r}, and no more; read there with offset=…]\n" + "".join(found)


def _next_match(pattern: "re.Pattern[str]", text: str, at: int) -> "re.Match[str] | None":
    # A match is never longer than its words: ignoring case, one character stands for one.
    overlap = len(pattern.pattern)
    while at < len(text):
        hit = pattern.search(text, at, at + SEARCH_STRIDE + overlap)
        if hit is not None:
            return hit
        at += SEARCH_STRIDE
    return None


def _surrounding_range(text: str, start: int, end: int, most: int) -> tuple[int, int]:
    """The line a place is on, or as much of it as is shown."""
    side = min(AROUND_CHARACTERS, most)
    first, last = max(start - side, 0), min(end + side, len(text))
    line, after = text.rfind("\n", first, start), text.find("\n", end, last)
    first = line + 1 if line >= 0 else min(cut_after(text, first, 0), start)
    return first, after if after >= 0 else max(cut_before(text, last, 0), end)


def _join_lines(text: str) -> str:
    return " ".join(text.split("\n"))
