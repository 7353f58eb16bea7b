"""Arguments of a call for display to a person: with defaults filled in, and compared after an edit."""

import json
from collections.abc import Iterator

from bridle.values.request import ToolSpec
from bridle.values.text import escape_text, parse_json

from .argument_matching import fill_defaults, read_schema


def complete_arguments(spec: ToolSpec | None, arguments: str) -> str:
    """The arguments with all omitted defaults, as JSON text; unchanged if they are not JSON."""
    try:
        parsed = parse_json(arguments.strip() or "{}")
    except ValueError:
        return arguments
    filled = parsed if spec is None else fill_defaults(read_schema(spec.parameters), parsed)
    return json.dumps(filled, ensure_ascii=False)


def show_arguments(arguments: str) -> str:
    """JSON text on one line, with invisible characters escaped; still equivalent JSON."""
    return escape_text(complete_arguments(None, arguments), exact=True)


def list_changes(before: str, after: str) -> list[str]:
    """One line per value that differs, by path."""
    try:
        first, second = (parse_json(text.strip() or "{}") for text in (before, after))
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
    elif type(before) is not type(after) or before != after:
        yield f"{_show_path(path)}: {_show_json(before)} → {_show_json(after)}"


def _compare_member(path: str, before: object, after: object) -> Iterator[str]:
    if before is _ABSENT:
        yield f"{_show_path(path)}: + {_show_json(after)}"
    elif after is _ABSENT:
        yield f"{_show_path(path)}: - {_show_json(before)}"
    else:
        yield from _iterate_changes(path, before, after)


_ABSENT = object()


def _show_path(path: str) -> str:
    return escape_text(path, exact=True) or "all"


def _show_json(value: object) -> str:
    return escape_text(json.dumps(value, ensure_ascii=False), exact=True)
