"""A long text as its beginning and its end, with a note between them that says what is missing."""

from collections.abc import Iterable

from ..values.whole import Whole
from .excerpt import READ_RESULT

LONG_CHARACTERS = 20_000
"""A text above this can by itself be the reason why a conversation does not fit."""
LONG_HEAD, LONG_TAIL = 6_000, 2_000
VERBOSE_CHARACTERS = 2_400
"""A tool result above this says more than is needed once it has been read."""
VERBOSE_HEAD, VERBOSE_TAIL = 800, 400
BETWEEN = "\n[… {gone:,} of {all:,} characters were left out here later on. {way} …]\n"
AGAIN = "Call the tool again if they are needed."
READ = 'To read them: {tool}(handle="{handle}", offset={offset}).'
TOO_LONG = "It was too long to be sent."


def long_text(text: str) -> str:
    return _ends(text, LONG_HEAD, LONG_TAIL, TOO_LONG)


def verbose_text(text: str, wholes: Iterable[Whole], *, readable: bool) -> str:
    """An old result.  Where the store has all of it, the excerpt names a handle, and the note does too."""
    whole = next((each for each in wholes if readable and each.handle in text), None)
    way = READ.format(tool=READ_RESULT.name, handle=whole.handle, offset=VERBOSE_HEAD) if whole else AGAIN
    return _ends(text, VERBOSE_HEAD, VERBOSE_TAIL, way)


def _ends(text: str, head: int, tail: int, way: str) -> str:
    between = BETWEEN.format(gone=len(text) - head - tail, all=len(text), way=way)
    return text[:head] + between + text[-tail:]
