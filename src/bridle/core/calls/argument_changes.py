"""Arguments of a call for display to a person: with defaults filled in, and compared after an edit.

Numbers are shown as they are written: what a person reads, edits and sends back is what runs.
"""

import json
from collections.abc import Iterator, Mapping
from decimal import Decimal
from functools import partial
from typing import Any

from bridle.values.request import ToolSpec
from bridle.values.text import escape_text, parse_json

from .argument_matching import fill_defaults, read_schema


class _Integer(int):
    """A number of JSON without fraction, with the text that it was written as."""

    text: str


class _Fraction(float):
    """A number of JSON with fraction or exponent, with the text that it was written as: a float holds 17 digits."""

    text: str


def _read_number(kind: type["_Integer"] | type["_Fraction"], text: str) -> "_Integer | _Fraction":
    number = kind(text)
    number.text = text
    return number


def parse_exactly(text: str) -> Any:
    """Parse JSON text into values whose numbers keep their text; raises `ValueError`.

    Of a repeated name the last value counts, as in the call that runs.
    """
    parse_json(text)  # numbers that are out of range, and too many levels
    return json.loads(
        text, parse_int=partial(_read_number, _Integer), parse_float=partial(_read_number, _Fraction)
    )


def write_exactly(value: object) -> str:
    """JSON text on one line as `json.dumps` writes it, but with every parsed number as it was written."""
    match value:
        case _Integer() | _Fraction():
            return value.text
        case dict():
            members = (
                f"{json.dumps(name, ensure_ascii=False)}: {write_exactly(each)}"
                for name, each in value.items()
            )
            return f"{{{', '.join(members)}}}"
        case list():
            return f"[{', '.join(map(write_exactly, value))}]"
    return json.dumps(value, ensure_ascii=False)


def complete_arguments(spec: ToolSpec | None, arguments: str) -> str:
    """The arguments that a call runs with, omitted defaults included, as JSON text; unchanged if they are not JSON."""
    try:
        parsed = parse_exactly(arguments.strip() or "{}")
    except ValueError:
        return arguments
    return write_exactly(parsed if spec is None else fill_defaults(read_schema(spec.parameters), parsed))


def show_arguments(arguments: str) -> str:
    """JSON text on one line, with invisible characters escaped; still equivalent JSON."""
    return escape_text(complete_arguments(None, arguments), exact=True)


def list_changes(before: str, after: str) -> list[str]:
    """One line per value that differs, by path."""
    try:
        first, second = (parse_exactly(text.strip() or "{}") for text in (before, after))
    except ValueError:
        return [] if before == after else [f"{show_arguments(before)} → {show_arguments(after)}"]
    return list(_iterate_changes("", first, second))


def _iterate_changes(path: str, before: object, after: object) -> Iterator[str]:
    if isinstance(before, dict) and isinstance(after, dict):
        for name in dict.fromkeys((*before, *after)):
            inner = f"{path}.{name}" if path else str(name)
            yield from _compare_member(inner, before.get(name, _ABSENT), after.get(name, _ABSENT))
    elif isinstance(before, list) and isinstance(after, list):
        for at in range(max(len(before), len(after))):
            old, new = (items[at] if at < len(items) else _ABSENT for items in (before, after))
            yield from _compare_member(f"{path}[{at}]", old, new)
    elif not _is_equal(before, after):
        yield f"{_show_path(path)}: {_show_json(before)} → {_show_json(after)}"


def _compare_member(path: str, before: object, after: object) -> Iterator[str]:
    if before is _ABSENT:
        yield f"{_show_path(path)}: + {_show_json(after)}"
    elif after is _ABSENT:
        yield f"{_show_path(path)}: - {_show_json(before)}"
    else:
        yield from _iterate_changes(path, before, after)


def _is_equal(before: object, after: object) -> bool:
    if isinstance(before, _Fraction) and isinstance(after, _Fraction):
        return Decimal(before.text) == Decimal(after.text)
    return type(before) is type(after) and before == after


def find_lost_digits(asked: str, given: object) -> str:
    """Path of a number that differs from that of the question as if a program had rounded it; empty if there is none.

    A program that holds every number as a double, as JavaScript does, changes long numbers of arguments that it only
    passes on. `given` are the arguments of an answer as values, not as text.
    """
    try:
        before = parse_exactly(asked.strip() or "{}")
    except ValueError:
        return ""
    return next(_find_rounded("", before, given), "")


def _find_rounded(path: str, before: object, after: object) -> Iterator[str]:
    if isinstance(before, dict) and isinstance(after, Mapping):
        for name in before.keys() & after.keys():
            yield from _find_rounded(f"{path}.{name}" if path else str(name), before[name], after[name])
    elif isinstance(before, list) and isinstance(after, list | tuple):
        for at, (old, new) in enumerate(zip(before, after, strict=False)):
            yield from _find_rounded(f"{path}[{at}]", old, new)
    elif isinstance(before, _Integer | _Fraction) and type(after) in (int, float):
        rounded = float(before)
        # A double is written with its shortest digits, or with all of them.
        if Decimal(before.text) != Decimal(repr(after)) and after in (
            Decimal(repr(rounded)),
            Decimal(rounded),
        ):
            yield _show_path(path)


_ABSENT = object()


def _show_path(path: str) -> str:
    return escape_text(path, exact=True) or "all"


def _show_json(value: object) -> str:
    return escape_text(write_exactly(value), exact=True)
