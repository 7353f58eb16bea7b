"""Shortens long texts: excerpts of tool results, pages and searches for reading the rest.

An excerpt is decided once, before the result is recorded; the recorded text is what is sent from then on. The
model gets the beginning and the end, and between them a note with the missing amount and a handle. Only text
is shortened; images and files stay. The tool that reads the rest is revealed with the first excerpt, because
most sessions never need it. If the agent has a tool of that name, none is offered.

Pages start with a line that says what they are and how to get the next one; concatenated, they are exactly
the text. Searches look for literal text: a regular expression from a model could run forever.

Texts are cut between user-perceived characters, preferably between lines. An accent, a flag, an emoji
sequence or a CRLF consists of several code points. A short list of cases covers common texts; everything else
is cut between code points.
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

# not from outside: how far a text or a schema is searched, which has its own limit
CHARACTER_LENGTH_MAX = 64
"""Longer sequences of combining characters are cut anywhere."""
JOINER = "\u200d"


def cut_before(text: str, at: int, slack: int) -> int:
    """Best cut at or before `at`: after a line end at most `slack` earlier, if there is one."""
    if not 0 < at < len(text):
        return max(0, min(at, len(text)))
    line = text.rfind("\n", max(0, at - slack), at)
    if line >= 0:
        return line + 1
    return next((i for i in range(at, max(-1, at - CHARACTER_LENGTH_MAX), -1) if is_boundary(text, i)), at)


def cut_after(text: str, at: int, slack: int) -> int:
    """Best cut at or after `at`."""
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
    """True if the character combines with the previous one: accents, skin tones, tags, syllable blocks."""
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


RESULT_CHARACTERS_MIN = 1_000
"""Below this an excerpt would consist mostly of the note."""
PAGE_CHARACTERS_DEFAULT = 10_000
HEAD_SHARE = 2 / 3
"""The beginning shows what a result is, the end how it turned out."""
# not from outside: our own text, shown to a person or a model
NOTE_CHARACTERS_MAX = 400
LINE_SHARE = 0.1
"""Share of a part that may be dropped to cut between lines."""
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
    """All text of a result, each part on a line of its own."""
    return "".join(_text_pieces(result))


def is_long_result(result: ToolResult, limit: int | None) -> bool:
    if limit is None:
        return False
    if len(result.parts) == 1 and type(only := result.parts[0]) is Text:  # nearly always
        # guard: text-result-size-limit
        return len(only.text) > limit
    # guard: result-size-limit
    return sum(map(len, _text_pieces(result))) > limit


def make_excerpt(
    result: ToolResult, text: str, whole: StoredResult, limit: int, *, readable: bool
) -> ToolResult:
    """The result as stored and sent. `text` is its complete text; `readable`: a tool can read the rest."""
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
        if kept.strip():  # several wires reject a blank block
            parts.append(replace(part, text=kept))
    return replace(result, parts=tuple(parts))


def reveal_reader_tool(state: State) -> RevealTools | None:
    """Reveals the reader tool once there is a stored result to read."""
    name = READ_RESULT.name
    if (
        not state.calls.stored_results
        or name in state.tools.revealed
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


LONG_CHARACTERS = 20_000
"""A longer text can by itself be the reason why a conversation does not fit."""
LONG_HEAD_SHARE, LONG_TAIL_SHARE = 0.3, 0.1
WINDOW_CHARACTERS = 0.5
"""Characters per token of a small window above which a tool result is long."""
VERBOSE_CHARACTERS = 2_400
"""A longer tool result says more than is needed once it has been read."""
VERBOSE_HEAD, VERBOSE_TAIL = 800, 400
OLD_PROMPT_CHARACTERS, OLD_PROMPT_CHARACTERS_MIN = 2_400, 400
"""User messages are shortened last of all, above this length; the second is for small windows."""
CUT_NOTE = "\n[… {gone:,} of {all:,} characters were left out here later on. {way} …]\n"
CALL_AGAIN = "Call the tool again if they are needed."
READ_REST = 'To read them: {tool}(handle="{handle}", offset={offset}).'
PROMPT_CUT = "[…]"
TOO_LONG_TO_SEND = "It was too long to be sent."


def shorten_long_text(text: str, limit: int = LONG_CHARACTERS) -> str:
    return _keep_ends(text, int(limit * LONG_HEAD_SHARE), int(limit * LONG_TAIL_SHARE), TOO_LONG_TO_SEND)


def long_result_characters(window_tokens: int) -> int:
    """Length above which one tool result is too long, if nothing else makes the prompt fit."""
    return min(LONG_CHARACTERS, max(VERBOSE_CHARACTERS, int(window_tokens * WINDOW_CHARACTERS)))


def old_prompt_characters(window_tokens: int) -> int:
    """Length above which an earlier user message is shortened, if nothing else makes the prompt fit."""
    return min(OLD_PROMPT_CHARACTERS, max(OLD_PROMPT_CHARACTERS_MIN, window_tokens // 20))


def shorten_old_prompt(text: str, limit: int) -> str:
    """Beginning and end of an earlier user message; for a small limit, its beginning."""
    if limit >= OLD_PROMPT_CHARACTERS_MIN:
        return shorten_long_text(text, limit)
    return f"{text[:limit].rstrip()} {PROMPT_CUT}"


def shorten_old_result(text: str, stored_results: Iterable[StoredResult], *, readable: bool) -> str:
    """Shorten an old result; if the store has the complete text, the note names its handle."""
    whole = next((each for each in stored_results if readable and each.handle in text), None)
    way = (
        READ_REST.format(tool=READ_RESULT.name, handle=whole.handle, offset=VERBOSE_HEAD)
        if whole
        else CALL_AGAIN
    )
    return _keep_ends(text, VERBOSE_HEAD, VERBOSE_TAIL, way)


def _keep_ends(text: str, head: int, tail: int, way: str) -> str:
    between = CUT_NOTE.format(gone=len(text) - head - tail, all=len(text), way=way)
    return text[:head] + between + text[-tail:]


# not from outside: our own text, shown to a person or a model
LEAD_CHARACTERS_MAX = 200
AROUND_CHARACTERS = 100
"""Characters shown on either side of a match."""
SEARCH_STRIDE = 1 << 18
"""Characters searched at once; the interpreter is blocked meanwhile."""
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


def search_text(text: str, query: str, offset: int, limit: int) -> str:
    """Matches from the offset on, each with its surroundings on one line."""
    found: list[str] = []
    room, at = limit, min(max(offset, 0), len(text))
    pattern = re.compile(re.escape(query), re.IGNORECASE)
    shown = query if len(query) <= SEARCH_SHOWN_MAX else f"{query[:SEARCH_SHOWN_MAX]}…"
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
        # Matches inside the surroundings already shown are skipped.
        at = max(end - len(query) + 1, hit.end())
    if not found:
        return f"[no {shown!r} from character {min(max(offset, 0), len(text))} on, of {len(text)}]\n"
    return f"[{len(found)} places with {shown!r}, and no more; read there with offset=…]\n" + "".join(found)


def _next_match(pattern: "re.Pattern[str]", text: str, at: int) -> "re.Match[str] | None":
    # A match is never longer than the query: ignoring case maps one character to one.
    overlap = len(pattern.pattern)
    while at < len(text):
        hit = pattern.search(text, at, at + SEARCH_STRIDE + overlap)
        if hit is not None:
            return hit
        at += SEARCH_STRIDE
    return None


def _surrounding_range(text: str, start: int, end: int, limit: int) -> tuple[int, int]:
    """Line around a match, or the part of it that is shown."""
    side = min(AROUND_CHARACTERS, limit)
    first, last = max(start - side, 0), min(end + side, len(text))
    line, after = text.rfind("\n", first, start), text.find("\n", end, last)
    first = line + 1 if line >= 0 else min(cut_after(text, first, 0), start)
    return first, after if after >= 0 else max(cut_before(text, last, 0), end)


def _join_lines(text: str) -> str:
    return " ".join(text.split("\n"))
