"""Shifts the clock of this process, before the user's code is loaded.

Python's `time` and `datetime` are shifted; C libraries that ask the system directly are not.  The replaced
types compare and hash equal to the originals, so that code that looks a type up still finds it.
"""

import datetime
import time
from collections.abc import Mapping
from typing import Any


def shift_clock(seconds: float) -> None:
    _shift_time(seconds)
    _shift_dates(datetime.timedelta(seconds=seconds))


def _shift_time(seconds: float) -> None:
    now, now_ns = time.time, time.time_ns
    time.time = lambda: now() + seconds
    time.time_ns = lambda: now_ns() + int(seconds * 1_000_000_000)
    for name in ("localtime", "gmtime"):
        setattr(time, name, _with_current_time(getattr(time, name)))
    made, written = time.strftime, time.asctime
    time.strftime = lambda form, at=None: made(form, time.localtime() if at is None else at)
    time.asctime = lambda at=None: written(time.localtime() if at is None else at)
    time.ctime = lambda at=None: written(time.localtime(at))


def _with_current_time(told: Any) -> Any:
    return lambda at=None: told(time.time() if at is None else at)


def _shift_dates(by: datetime.timedelta) -> None:
    moment, day = datetime.datetime, datetime.date

    def now(cls: type, tz: Any = None) -> Any:
        return moment.now(tz) + by

    def utcnow(cls: type) -> Any:
        return moment.now(datetime.UTC).replace(tzinfo=None) + by

    def today(cls: type) -> Any:
        return moment.now() + by

    def this_day(cls: type) -> Any:
        return (moment.now() + by).date()

    said: dict[str, Any] = {"now": now, "utcnow": utcnow, "today": today}
    vars(datetime)["datetime"] = _make_shifted_type(moment, said)
    vars(datetime)["date"] = _make_shifted_type(day, {"today": this_day})


def _make_shifted_type(real: type, said: Mapping[str, Any]) -> type:
    """A subclass of `real` with other class methods and the same name."""
    methods: dict[str, Any] = {name: classmethod(function) for name, function in said.items()}
    named = {"__module__": real.__module__, "__qualname__": real.__qualname__}
    made: type = _impersonating_metaclass(real)(real.__name__, (real,), {**named, **methods})
    return made


def _impersonating_metaclass(real: type) -> type:
    """A metaclass whose classes pass for `real` in comparisons and type checks."""

    class Passing(type):
        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, real)

        def __subclasscheck__(cls, other: type) -> bool:
            return issubclass(other, real)

        def __eq__(cls, other: object) -> bool:
            return other is real or other is cls

        def __hash__(cls) -> int:
            return hash(real)

    return Passing
