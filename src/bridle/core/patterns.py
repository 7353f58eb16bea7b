"""Patterns of permission rules: globs, comparisons with a number, and the folding of text.

In a glob `*` stands for any run of characters (none, and line ends, included) and `?` for exactly one.
Every other character stands for itself, `[` and `\\` included; there is no escape.

A rule that allows compares text exactly.  A rule that asks or denies also compares folded text, in which
spellings that mean the same to a reader are one: case, Unicode compatibility forms (NFKC), characters that
are not shown, runs of white space, and `//`, `/./` and `/../` in paths.
"""

import math
import operator
import re
import unicodedata
from functools import lru_cache

import msgspec

from ..values.text import IGNORABLE

COMPARISONS = {"<=": operator.le, ">=": operator.ge, "<": operator.lt, ">": operator.gt, "=": operator.eq}
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
SPACE = re.compile(r"\s+")
PATTERNS_MAX = 1024
NULL = "null"
Number = int | float


@lru_cache(maxsize=PATTERNS_MAX)
def _compile_glob(pattern: str) -> re.Pattern[str]:
    # Atomic groups: what a star has taken is never given back, so matching takes linear time per star.
    first, *rest = ("".join("." if c == "?" else re.escape(c) for c in piece) for piece in pattern.split("*"))
    if not rest:
        return re.compile(first, re.DOTALL)
    middle = "".join(f"(?>.*?{piece})" for piece in rest[:-1] if piece)
    return re.compile(f"{first}{middle}.*{rest[-1]}", re.DOTALL)


def matches_glob(pattern: str, text: str) -> bool:
    return _compile_glob(pattern).fullmatch(text) is not None


def matches_any(patterns: tuple[str, ...], word: str, *, exact: bool) -> bool:
    """One of the patterns matches; no patterns match everything."""
    return not patterns or any(matches_text(pattern, word, exact=exact) for pattern in patterns)


def matches_text(pattern: str, text: str, *, exact: bool) -> bool:
    if exact:
        # `/safe/*` is meant to end where it says.
        climbs = ".." in text.replace("\\", "/").split("/") and ".." not in pattern
        return matches_glob(pattern, text) and not climbs
    if matches_glob(pattern, text):
        return True
    folded, plain = _fold_pattern(pattern), fold_text(text)
    if matches_glob(folded, plain) or matches_glob(folded, plain.strip()):
        return True
    return ("/" in plain or "\\" in plain) and matches_glob(folded.replace("\\", "/"), _direct_path(plain))


def fold_text(text: str) -> str:
    """The text without the differences that a reader does not see or does not mean."""
    if not text.isascii():
        text = unicodedata.normalize("NFKC", IGNORABLE.sub("", text))
        text = IGNORABLE.sub("", unicodedata.normalize("NFKC", text.casefold()))
    return CONTROL.sub("", SPACE.sub(" ", text)).casefold()


_fold_pattern = lru_cache(maxsize=PATTERNS_MAX)(fold_text)


def _direct_path(text: str) -> str:
    """The path without empty steps, `.` and `..`."""
    path = text.strip().replace("\\", "/")
    steps: list[str] = []
    for step in path.split("/"):
        if step == ".." and steps and steps[-1] != "..":
            steps.pop()
        elif step not in ("", ".") and not (step == ".." and path.startswith("/")):
            steps.append(step)
    return ("/" if path.startswith("/") else "") + "/".join(steps)


def is_any(pattern: str) -> bool:
    """The pattern is made of stars only: it matches every value that is there."""
    return bool(pattern) and not pattern.strip("*")


@lru_cache(maxsize=PATTERNS_MAX)
def parse_comparison(pattern: str) -> tuple[str, Number] | None:
    """The sign and the number of a pattern such as `<= 50`; None for a glob."""
    sign = next((sign for sign in COMPARISONS if pattern.startswith(sign)), "")
    limit = parse_number(pattern.removeprefix(sign).strip()) if sign else None
    return None if limit is None else (sign, limit)


def parse_number(text: str) -> Number | None:
    for read in (int, float):
        try:
            return read(text)
        except ValueError:
            continue
    return None


def matches_scalar(pattern: str, value: object, *, exact: bool) -> bool:
    """A text, number, truth value or null fits the pattern."""
    comparison = parse_comparison(pattern)
    if comparison is not None:
        return _compares(*comparison, value, exact=exact)
    if value is None:
        return pattern == NULL or (not exact and fold_text(pattern).strip() == NULL)
    if isinstance(value, str):
        return matches_text(pattern, value, exact=exact)
    if matches_text(pattern, msgspec.json.encode(value).decode(), exact=exact):
        return True
    # 17 and 17.0 are one number, however a model writes it.
    wanted = None if exact or isinstance(value, bool) else parse_number(pattern.strip())
    return wanted is not None and wanted == value


def _compares(sign: str, limit: Number, value: object, *, exact: bool) -> bool:
    amount = parse_number(fold_text(value).strip()) if isinstance(value, str) and not exact else value
    # True is 1 for Python; for somebody who wrote `<= 50` it is no amount.
    if isinstance(amount, bool) or not isinstance(amount, int | float):
        return False
    if isinstance(amount, float) and math.isnan(amount):
        return not exact
    return bool(COMPARISONS[sign](amount, limit))
