"""Splits a docstring into a description and the descriptions of parameters.

Reads three styles, which may be mixed: `Args:` with an indented body, headings underlined with dashes, and
`:param name:` fields.  Only parameters are extracted; everything else (return value, errors, notes) stays in the
description, because the model can use it.  Unrecognized text stays where it is; no docstring is an error.
"""

import inspect
import re
from typing import NamedTuple

_SECTION_TITLES = (
    r"(?:Args|Arguments|Parameters|Params|Attributes|Fields|Keyword Args|Keyword Arguments|Other Parameters)"
)
_COLON_HEADING = re.compile(rf"{_SECTION_TITLES}:\s*$")
_PLAIN_HEADING = re.compile(rf"{_SECTION_TITLES}\s*$")
_UNDERLINE = re.compile(r"-{3,}\s*$")
_ENTRY_LINE = re.compile(r"\*{0,2}(\w+)\s*(?:\(.*?\))?\s*:(?:\s+|$)(.*)$")
_NAMES_LINE = re.compile(r"(\*{0,2}\w+(?:\s*,\s*\*{0,2}\w+)*)\s*(?::.*)?$")
_FIELD_LINE = re.compile(
    r":(param|parameter|arg|argument|key|keyword|attr|attribute|type|rtype)\b([^:]*):\s*(.*)$"
)
_TYPES_ONLY = {"type", "rtype"}


class DocstringParts(NamedTuple):
    description: str
    parameters: dict[str, str]


def read_docstring(text: str | None) -> DocstringParts:
    lines = inspect.cleandoc(text or "").splitlines()
    kept: list[str] = []
    parameters: dict[str, str] = {}
    at = 0
    while at < len(lines):
        for read in (_read_colon_section, _read_underlined_section, _read_field):
            end, found = read(lines, at)
            if end > at:
                parameters |= {name: words for name, words in found.items() if words}
                at = end
                break
        else:
            kept.append(lines[at])
            at += 1
    description = re.sub(r"\n{3,}", "\n\n", "\n".join(line.rstrip() for line in kept))
    return DocstringParts(description.strip(), parameters)


def _read_colon_section(lines: list[str], at: int) -> tuple[int, dict[str, str]]:
    """Read `Args:` and the indented lines below it."""
    if not _COLON_HEADING.match(lines[at]):
        return at, {}
    end = at + 1
    while end < len(lines) and (not lines[end].strip() or lines[end][0].isspace()):
        end += 1
    body = [line for line in lines[at + 1 : end] if line.strip()]
    if not body:
        return at, {}
    margin = _indent_width(body[0])
    found: dict[str, list[str]] = {}
    words: list[str] = []
    for line in body:
        entry = _ENTRY_LINE.match(line.strip()) if _indent_width(line) <= margin else None
        if entry:
            words = found.setdefault(entry[1], [])
            words.append(entry[2])
        else:
            words.append(line.strip())
    return end, _join_descriptions(found)


def _read_underlined_section(lines: list[str], at: int) -> tuple[int, dict[str, str]]:
    """Read `Parameters` underlined with dashes, then names at the margin and indented descriptions."""
    if not _PLAIN_HEADING.match(lines[at]) or not _is_underline(lines, at + 1):
        return at, {}
    end = at + 2
    found: dict[str, list[str]] = {}
    names: list[str] = []
    while end < len(lines) and not _is_underline(lines, end + 1):
        line = lines[end]
        entry = _NAMES_LINE.match(line)
        if line[:1].isspace():
            for name in names:
                found[name].append(line.strip())
        elif entry:
            names = [name.strip().lstrip("*") for name in entry[1].split(",")]
            found |= {name: [] for name in names}
        elif line.strip():
            break
        end += 1
    return end, _join_descriptions(found)


def _read_field(lines: list[str], at: int) -> tuple[int, dict[str, str]]:
    """Read one `:param name: text` with its continuation lines; types come from the annotations."""
    field = _FIELD_LINE.match(lines[at])
    if not field:
        return at, {}
    kind, subject, first = field.groups()
    end = at + 1
    words = [first]
    while end < len(lines) and lines[end].strip() and lines[end][0].isspace():
        words.append(lines[end].strip())
        end += 1
    named = subject.split()
    if kind in _TYPES_ONLY or not named:
        return end, {}
    return end, _join_descriptions({named[-1].lstrip("*"): words})


def _is_underline(lines: list[str], at: int) -> bool:
    return at < len(lines) and bool(_UNDERLINE.match(lines[at]))


def _indent_width(line: str) -> int:
    return len(line) - len(line.lstrip())


def _join_descriptions(found: dict[str, list[str]]) -> dict[str, str]:
    return {name: " ".join(word for word in words if word) for name, words in found.items()}
