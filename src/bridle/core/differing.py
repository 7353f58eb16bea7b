"""Where two JSON values differ, in words a person can act on: each place, with a glimpse of both."""

import json
from collections.abc import Iterator


def differences(theirs: object, ours: object, at: str = "$") -> Iterator[str]:
    """The places where two JSON values differ, each with a glimpse of both."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        for name in {**theirs, **ours}:
            if name not in theirs or name not in ours:
                yield f"{at}.{name}: {_glimpse(theirs, name)} became {_glimpse(ours, name)}"
            else:
                yield from differences(theirs[name], ours[name], f"{at}.{name}")
    elif isinstance(theirs, list) and isinstance(ours, list) and len(theirs) == len(ours):
        for index, (one, other) in enumerate(zip(theirs, ours, strict=True)):
            yield from differences(one, other, f"{at}[{index}]")
    elif isinstance(theirs, list) and isinstance(ours, list):
        pairs = enumerate(zip(theirs, ours, strict=False))
        first = next((index for index, (one, other) in pairs if one != other), min(len(theirs), len(ours)))
        lost, gained = theirs[first : first + 1], ours[first : first + 1]
        yield (
            f"{at}: {len(theirs)} items became {len(ours)},"
            f" the first difference is at [{first}]: {_short(lost)} became {_short(gained)}"
        )
    elif theirs != ours or isinstance(theirs, bool) is not isinstance(ours, bool):
        yield f"{at}: {_short(theirs)} became {_short(ours)}"


def _glimpse(members: dict[str, object], name: str) -> str:
    return _short(members[name]) if name in members else "nothing"


def _short(value: object, length_max: int = 80) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= length_max else text[: length_max - 1] + "…"
