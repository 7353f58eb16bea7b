"""A long text as its beginning and its end, with a note between them that says what is missing."""

from collections.abc import Iterable

from ..values.whole import Whole
from .excerpt import READ_RESULT

LONG_CHARACTERS = 20_000
"""A text above this can by itself be the reason why a conversation does not fit."""
LONG_HEAD_SHARE, LONG_TAIL_SHARE = 0.3, 0.1
WINDOW_CHARACTERS = 0.5
"""For each token of a small window: what makes a tool result a long one there."""
VERBOSE_CHARACTERS = 2_400
"""A tool result above this says more than is needed once it has been read."""
VERBOSE_HEAD, VERBOSE_TAIL = 800, 400
BETWEEN = "\n[… {gone:,} of {all:,} characters were left out here later on. {way} …]\n"
AGAIN = "Call the tool again if they are needed."
READ = 'To read them: {tool}(handle="{handle}", offset={offset}).'
TOO_LONG = "It was too long to be sent."


def long_text(text: str, most: int = LONG_CHARACTERS) -> str:
    return _ends(text, int(most * LONG_HEAD_SHARE), int(most * LONG_TAIL_SHARE), TOO_LONG)


def long_result(window_tokens: int) -> int:
    """How many characters are too many for one tool result, where nothing else makes the prompt fit."""
    return min(LONG_CHARACTERS, max(VERBOSE_CHARACTERS, int(window_tokens * WINDOW_CHARACTERS)))


def verbose_text(text: str, wholes: Iterable[Whole], *, readable: bool) -> str:
    """An old result.  Where the store has all of it, the excerpt names a handle, and the note does too."""
    whole = next((each for each in wholes if readable and each.handle in text), None)
    way = READ.format(tool=READ_RESULT.name, handle=whole.handle, offset=VERBOSE_HEAD) if whole else AGAIN
    return _ends(text, VERBOSE_HEAD, VERBOSE_TAIL, way)


def _ends(text: str, head: int, tail: int, way: str) -> str:
    between = BETWEEN.format(gone=len(text) - head - tail, all=len(text), way=way)
    return text[:head] + between + text[-tail:]
