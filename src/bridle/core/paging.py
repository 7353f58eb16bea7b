"""A long text, a page at a time, or the places where words occur in it.

Every page begins with a line that says what it is and how to get the next one.  Pages put end
to end are the text, exactly.  A search looks for words, not for patterns: a pattern from a model
could take for ever.
"""

import re

from .boundaries import cut_after, cut_before

LEAD_CHARACTERS_MAX = 200
AROUND_CHARACTERS = 100
"""What is shown on either side of a place found."""
STRIDE = 1 << 18
"""How much is searched in one go: the interpreter does nothing else meanwhile."""
SEARCH_SHOWN_MAX = 60


def page(text: str, offset: int, limit: int) -> str:
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


def places(text: str, words: str, offset: int, limit: int) -> str:
    """Where the words occur, from the offset on: each place with its surroundings, on a line."""
    found: list[str] = []
    room, at = limit, min(max(offset, 0), len(text))
    pattern = re.compile(re.escape(words), re.IGNORECASE)
    shown = words if len(words) <= SEARCH_SHOWN_MAX else f"{words[:SEARCH_SHOWN_MAX]}…"
    while (hit := _next(pattern, text, at)) is not None:
        start, end = _around(text, hit.start(), hit.end(), max(limit // 2, 1))
        line = f"{hit.start()}: {_one_line(text[start:end])}\n"
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


def _next(pattern: "re.Pattern[str]", text: str, at: int) -> "re.Match[str] | None":
    # A match is never longer than its words: ignoring case, one character stands for one.
    overlap = len(pattern.pattern)
    while at < len(text):
        hit = pattern.search(text, at, at + STRIDE + overlap)
        if hit is not None:
            return hit
        at += STRIDE
    return None


def _around(text: str, start: int, end: int, most: int) -> tuple[int, int]:
    """The line a place is on, or as much of it as is shown."""
    side = min(AROUND_CHARACTERS, most)
    first, last = max(start - side, 0), min(end + side, len(text))
    line, after = text.rfind("\n", first, start), text.find("\n", end, last)
    first = line + 1 if line >= 0 else min(cut_after(text, first, 0), start)
    return first, after if after >= 0 else max(cut_before(text, last, 0), end)


def _one_line(text: str) -> str:
    return " ".join(text.split("\n"))
