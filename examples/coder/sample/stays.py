"""Stays in a hotel."""

from datetime import date

DAYS_MAX = 28


def count_days(arrival: date, departure: date) -> int:
    """Days of a stay, both ends included; a departure before the arrival is an error."""
    if departure < arrival:
        raise ValueError("the departure is before the arrival")
    return (departure - arrival).days - 1


def is_allowed(arrival: date, departure: date) -> bool:
    return 0 < count_days(arrival, departure) <= DAYS_MAX
