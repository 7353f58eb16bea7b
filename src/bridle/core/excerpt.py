"""Results too long to be sent whole: what the model gets instead, and when it may read the rest.

The decision is made once, before the result is recorded; what is recorded is what is sent, now
and for ever.  The model gets the beginning and the end, and between them a note with what is
missing and the handle to read it by.  Only words are shortened: pictures and files stay where
they are.

The tool that reads the rest is shown from the first such result on, and not before: most
sessions never need it.  An agent's own tool of that name takes its place, and then nothing is
offered.
"""

from msgspec.structs import replace

from ..values.parts import Media, Opaque, Text, ToolResult
from ..values.request import ToolSpec
from ..values.whole import Whole
from .boundaries import cut_after, cut_before
from .effects import ShowTools
from .state import State

RESULT_CHARACTERS_LEAST = 1_000
"""Below this an excerpt would be mostly note."""
PAGE_CHARACTERS_DEFAULT = 10_000
HEAD_SHARE = 2 / 3
"""A beginning says what a thing is; an end says how it came out."""
NOTE_CHARACTERS_MAX = 400
LINE_SHARE = 0.1
"""How much of an end may be given up to cut between lines."""
SHOWN_BECAUSE = "a result was too long to be sent whole"

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


def whole_text(result: ToolResult) -> str:
    """All the words of a result as one text, with each part on a line of its own."""
    return "".join(_pieces(result))


def is_long(result: ToolResult, limit: int | None) -> bool:
    return limit is not None and sum(map(len, _pieces(result))) > limit


def excerpt(result: ToolResult, text: str, whole: Whole, limit: int, *, readable: bool) -> ToolResult:
    """The result as it is kept and sent.  `text` is its whole text; `readable`: a tool can read the rest."""
    room = max(limit - NOTE_CHARACTERS_MAX, 0)
    head = int(room * HEAD_SHARE)
    tail = room - head
    start = cut_before(text, head, int(head * LINE_SHARE))
    end = cut_after(text, len(text) - tail, int(tail * LINE_SHARE))
    note = _note(text, start, end, whole, readable=readable)
    parts: list[Text | Media | Opaque] = []
    at, noted = 0, False
    pieces = iter(_pieces(result))
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


def reader_wanted(state: State) -> ShowTools | None:
    """The tool for the rest, as soon as there is a rest to read."""
    name = READ_RESULT.name
    if not state.wholes or name in state.shown or READ_RESULT not in state.settings.hidden:
        return None
    return ShowTools(names=(name,), why=SHOWN_BECAUSE)


def _pieces(result: ToolResult) -> list[str]:
    texts = [part.text for part in result.parts if isinstance(part, Text)]
    between = [text if text.endswith("\n") else f"{text}\n" for text in texts[:-1]]
    return [*between, *texts[-1:]]


def _note(text: str, start: int, end: int, whole: Whole, *, readable: bool) -> str:
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
