"""Where a text may be cut without breaking what a reader takes for one character.

A string is made of code points, and no cut can split one.  But a letter with its accent, a flag,
a family of faces or a line's two-character end are several code points; half of one is another
character, or none.  A cut between lines is better still, when one is near.

What a character is, is decided by a short list that covers what texts are made of, not by the
whole standard; what it misses is cut between code points.
"""

import unicodedata

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
    if JOINER in (before, after) or _extends(after):
        return False
    return not (_is_flag_half(after) and _flag_halves_before(text, at) % 2)


def _extends(character: str) -> bool:
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
