"""Unified diffs of two versions of a text, and the way back from the newer one.

Lines end at `\\n` only, so that every text is the sum of its lines and a diff can be reversed exactly.
"""

import difflib
import re
from collections.abc import Iterator, Sequence

COMPARED_LINES_MAX = 2_000
"""Above it, the part that differs is shown as one block: comparing takes quadratic time."""
NO_NEWLINE = "\\ No newline at end of file"
_HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")


def make_diff(path: str, before: str, after: str, *, context: int = 0) -> str:
    """The unified diff, with so many unchanged lines around each change; empty if the texts are equal."""
    old, new = _split_lines(before), _split_lines(after)
    lines = [f"--- {path}", f"+++ {path}"]
    for group in _group_changes(_compare_lines(old, new), len(old), context):
        lines += _format_hunk(old, new, group)
    return "\n".join(lines) if len(lines) > 2 else ""


def reverse_diff(diff: str, after: str) -> str:
    """The older text, from a diff without context lines and the newer text; raises ValueError if they do not fit."""
    new, made, at = _split_lines(after), list[str](), 0
    for start, length, removed, added in _read_hunks(diff):
        first = start - 1 if length else start
        if first < at or new[first : first + length] != added:
            raise ValueError("the diff does not fit the text")
        made += new[at:first] + removed
        at = first + length
    return "".join(made + new[at:])


Change = tuple[int, int, int, int]
"""First and end line in the old text, first and end line in the new one."""


def _split_lines(text: str) -> list[str]:
    lines = [f"{line}\n" for line in text.split("\n")]
    last = lines.pop()[:-1]
    return [*lines, last] if last else lines


def _compare_lines(old: Sequence[str], new: Sequence[str]) -> list[Change]:
    """The changes, after equal lines at both ends were set aside."""
    start, shorter = 0, min(len(old), len(new))
    while start < shorter and old[start] == new[start]:
        start += 1
    end = 0
    while end < shorter - start and old[-1 - end] == new[-1 - end]:
        end += 1
    first, second = old[start : len(old) - end], new[start : len(new) - end]
    if len(first) + len(second) > COMPARED_LINES_MAX:
        return [(start, len(old) - end, start, len(new) - end)]
    matcher = difflib.SequenceMatcher(None, first, second, autojunk=False)
    return [
        (i1 + start, i2 + start, j1 + start, j2 + start)
        for kind, i1, i2, j1, j2 in matcher.get_opcodes()
        if kind != "equal"
    ]


def _group_changes(changes: Sequence[Change], length: int, context: int) -> Iterator[list[Change]]:
    """Changes whose context lines touch, each group with its context as first and last change."""
    group: list[Change] = []
    for change in changes:
        if group and change[0] - group[-1][1] > 2 * context:
            yield _add_context(group, length, context)
            group = []
        group.append(change)
    if group:
        yield _add_context(group, length, context)


def _add_context(group: list[Change], length: int, context: int) -> list[Change]:
    before, after = min(context, group[0][0]), min(context, length - group[-1][1])
    first, last = group[0], group[-1]
    return [
        (first[0] - before, first[0] - before, first[2] - before, first[2] - before),
        *group,
        (last[1] + after, last[1] + after, last[3] + after, last[3] + after),
    ]


def _format_hunk(old: Sequence[str], new: Sequence[str], group: Sequence[Change]) -> Iterator[str]:
    first, last = group[0], group[-1]
    removed, added = last[1] - first[0], last[3] - first[2]
    yield f"@@ -{_format_range(first[0], removed)} +{_format_range(first[2], added)} @@"
    at = first[0]
    for i1, i2, j1, j2 in group:
        for mark, lines in ((" ", old[at:i1]), ("-", old[i1:i2]), ("+", new[j1:j2])):
            for line in lines:
                yield mark + line.removesuffix("\n")
                if not line.endswith("\n"):
                    yield NO_NEWLINE
        at = i2


def _format_range(start: int, length: int) -> str:
    return f"{start + 1 if length else start},{length}"


def _read_hunks(diff: str) -> Iterator[tuple[int, int, list[str], list[str]]]:
    """Start and length in the newer text, lines removed and lines added, of every hunk."""
    lines = diff.split("\n")
    at = 0
    while at < len(lines):
        found = _HUNK.match(lines[at])
        at += 1
        if found is None:
            continue
        counts = {"-": int(found[2]), "+": int(found[4])}
        sides: dict[str, list[str]] = {"-": [], "+": []}
        mark = ""
        while at < len(lines) and (
            len(sides["-"]) < counts["-"] or len(sides["+"]) < counts["+"] or lines[at] == NO_NEWLINE
        ):
            if lines[at] == NO_NEWLINE:
                sides[mark][-1] = sides[mark][-1].removesuffix("\n")
            elif (mark := lines[at][:1]) in sides:
                sides[mark].append(f"{lines[at][1:]}\n")
            else:
                raise ValueError("the diff is damaged")
            at += 1
        yield int(found[3]), counts["+"], sides["-"], sides["+"]
