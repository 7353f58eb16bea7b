"""JSON text that a model wrote, as data.

Text that is nested too deeply is refused in one place.  So validation, permission, receipts and progress read
the arguments of a call in the same way, and none of them runs out of stack.
"""

from typing import Any

import msgspec

NESTING_MAX = 100
"""How many objects and lists may stand inside one another."""


class TooDeep(ValueError):
    """JSON whose objects and lists are nested too deeply."""


def parse_json(text: str) -> Any:
    """The value of JSON text.  Raises `ValueError` for text that is no JSON, and `TooDeep`."""
    try:
        value = msgspec.json.decode(text)
    except RecursionError:
        raise TooDeep from None
    if _may_be_deep(text) and _is_deep(value):
        raise TooDeep
    return value


def is_too_deep(text: str) -> bool:
    if _may_be_deep(text):
        try:
            parse_json(text)
        except ValueError as error:
            return isinstance(error, TooDeep)
    return False


def _may_be_deep(text: str) -> bool:
    return len(text) > NESTING_MAX and text.count("[") + text.count("{") > NESTING_MAX


def _is_deep(value: object) -> bool:
    level: list[object] = [value]
    for _ in range(NESTING_MAX + 1):
        containers = [each for each in level if isinstance(each, dict | list)]
        if not containers:
            return False
        level = [
            member for each in containers for member in (each.values() if isinstance(each, dict) else each)
        ]
    return True
