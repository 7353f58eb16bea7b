"""Differences between two JSON values, each with its path and an excerpt of both sides."""

import json
from collections.abc import Iterator

ALIKE_MAX, ALIKE_SHOWN = 40, 20
"""Length of a common beginning above which it is cut, and the part of it that is still shown."""


def list_differences(theirs: object, ours: object, at: str = "$") -> Iterator[str]:
    """Descriptions of the differences between two JSON values."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        for name in {**theirs, **ours}:
            if name not in theirs or name not in ours:
                yield f"{at}.{name}: {_show_member(theirs, name)} became {_show_member(ours, name)}"
            else:
                yield from list_differences(theirs[name], ours[name], f"{at}.{name}")
    elif isinstance(theirs, list) and isinstance(ours, list):
        yield from _list_differences_in_lists(theirs, ours, at)
    elif isinstance(theirs, str) and isinstance(ours, str) and theirs != ours:
        start = _first_shown_index(theirs, ours)
        yield f"{at}: {_shorten_json(_cut_start(theirs, start))} became {_shorten_json(_cut_start(ours, start))}"
    elif theirs != ours or isinstance(theirs, bool) is not isinstance(ours, bool):
        yield f"{at}: {_shorten_json(theirs)} became {_shorten_json(ours)}"


def _list_differences_in_lists(theirs: list[object], ours: list[object], at: str) -> Iterator[str]:
    """Compare item by item; for lists of different lengths, the part between their common ends."""
    if len(theirs) == len(ours):
        for index, (one, other) in enumerate(zip(theirs, ours, strict=True)):
            yield from list_differences(one, other, f"{at}[{index}]")
        return
    shorter = min(len(theirs), len(ours))
    before = next((place for place in range(shorter) if not _is_same(theirs[place], ours[place])), shorter)
    room = shorter - before
    after = next((n for n in range(room) if not _is_same(theirs[-1 - n], ours[-1 - n])), room)
    lost, gained = theirs[before : len(theirs) - after], ours[before : len(ours) - after]
    yield (
        f"{at}: {len(theirs)} items became {len(ours)},"
        f" the first difference is at [{before}]: {_shorten_json(lost)} became {_shorten_json(gained)}"
    )


def _first_shown_index(theirs: str, ours: str) -> int:
    """Index at which two texts are shown so that their difference is visible."""
    pairs = enumerate(zip(theirs, ours, strict=False))
    first = next((place for place, (one, other) in pairs if one != other), min(len(theirs), len(ours)))
    return first - ALIKE_SHOWN if first > ALIKE_MAX else 0


def _cut_start(text: str, start: int) -> str:
    return f"…{text[start:]}" if start else text


def _is_same(one: object, other: object) -> bool:
    return next(list_differences(one, other), None) is None


def _show_member(members: dict[str, object], name: str) -> str:
    return _shorten_json(members[name]) if name in members else "nothing"


def _shorten_json(value: object, length_max: int = 80) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= length_max else text[: length_max - 1] + "…"
