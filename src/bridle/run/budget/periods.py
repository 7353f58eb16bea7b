"""Periods of shared budgets: hours, days and months of the calendar in a time zone.

A period has a name of its own, so each period of a budget has a log of its own (`period_budget_name`), and what was
reserved in one is settled there, also after its end. Which period a call belongs to follows from the time at which
it is reserved. A day has 23 to 25 hours where clocks change, and an hour that is repeated is two periods.
"""

import math
from datetime import UTC, datetime, timedelta, tzinfo
from functools import cache
from typing import NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from bridle.values.errors import MisuseError
from bridle.values.usage import LimitPeriod

DAYS_AFTER_MONTH = 32
"""From the first of any month, as many days later is in the next one."""


class Period(NamedTuple):
    label: str
    """Unique among the periods of this kind and zone: `2026-11-18T09+0100`, `2026-11-18`, `2026-11`."""
    start: float
    end: float


@cache
def load_zone(name: str) -> tzinfo:
    """The time zone of this name; raises `MisuseError` if it is not known here."""
    if name in ("", "UTC"):
        return UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise MisuseError(
            f"the time zone {name!r} is not known on this machine; write it like Europe/Berlin, and install the"
            " package tzdata if the system has no time zones"
        ) from None


def find_period(kind: LimitPeriod, at: float, zone: tzinfo) -> Period:
    """The period that this time is in."""
    seconds = math.floor(at)  # a fraction that is rounded up would be in the next period
    local = datetime.fromtimestamp(seconds, zone)
    if kind == "hour":
        # Not the next hour by the calendar: the clocks may change in between.
        start = seconds - local.minute * 60 - local.second
        offset = "" if zone is UTC else f"{local:%z}"
        return Period(f"{local:%Y-%m-%dT%H}{offset}", start, start + 3_600)
    day = local.date() if kind == "day" else local.date().replace(day=1)
    following = day + timedelta(days=1)
    if kind == "month":
        following = (day + timedelta(days=DAYS_AFTER_MONTH)).replace(day=1)
    label = day.isoformat() if kind == "day" else f"{day:%Y-%m}"
    return Period(
        label,
        *(datetime(each.year, each.month, each.day, tzinfo=zone).timestamp() for each in (day, following)),
    )
