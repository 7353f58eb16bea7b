"""Parsers of option values. argparse puts the option's name before the message of `ArgumentTypeError`."""

import math
import re
from argparse import ArgumentTypeError
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

PORT_MAX = 65_535
COUNT_MAX = 1_000_000_000
"""Larger than any real count, and within the range of a database integer."""
# not from outside: our own text, shown to a person or a model
VALUE_CHARACTERS_MAX = 60
TIME_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def make_count_parser(minimum: int) -> Callable[[str], int]:
    """A parser of whole numbers not below `minimum`."""

    def count(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            raise ArgumentTypeError(f"{text[:VALUE_CHARACTERS_MAX]!r} is not a whole number") from None
        if number < minimum:
            raise ArgumentTypeError(f"must be {minimum} or more, not {number}")
        if number > COUNT_MAX:
            raise ArgumentTypeError(f"must be at most {COUNT_MAX:,}")
        return number

    return count


def parse_port(text: str) -> int:
    """A TCP port; 0 lets the system choose one."""
    number = make_count_parser(0)(text)
    if number > PORT_MAX:
        raise ArgumentTypeError(f"must be at most {PORT_MAX}, not {number}")
    return number


def parse_amount(text: str) -> float:
    """A number of dollars or seconds: finite and not negative."""
    number = _parse_finite(text)
    if number < 0:
        raise ArgumentTypeError(f"must be 0 or more, not {text}")
    return number


def parse_share(text: str) -> float:
    """A share of a limit, above 0 and up to 1."""
    number = _parse_finite(text)
    if not 0 < number <= 1:
        raise ArgumentTypeError(f"must be above 0 and at most 1, such as 0.8; not {text}")
    return number


def parse_time(text: str) -> float:
    """Unix time of `today`, `yesterday`, `3d`, `12h`, a day or a time; a day begins at midnight UTC."""
    now = datetime.now(UTC)
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    word = text.strip().lower()
    if word in ("today", "yesterday"):
        return (midnight - timedelta(days=word == "yesterday")).timestamp()
    span = re.fullmatch(r"(\d{1,6})\s*([mhdw])", word)
    if span:
        return (now - timedelta(**{TIME_UNITS[span[2]]: int(span[1])})).timestamp()
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        example = f"{midnight:%Y-%m-%d}"
        raise ArgumentTypeError(
            f"{text!r} is not a date; write {example}, {example}T09:00, today, yesterday, 12h or 7d"
        ) from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _parse_finite(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        raise ArgumentTypeError(f"{text!r} is not a number") from None
    if not math.isfinite(number):
        raise ArgumentTypeError(f"{text!r} is not a finite number")
    return number
